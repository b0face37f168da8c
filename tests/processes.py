"""Commands and scripts in processes of their own that need no second for their imports: copies of one that has them.

The copied process has imported the libraries and nothing of what a package may add to, so that each copy finds other
packages, another folder and another environment, as a process that was started for it does.
"""

import atexit
import gc
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NoReturn

LIBRARIES = (
    *("numpy", "torch", "torch._dynamo", "scipy.stats", "sklearn.linear_model", "pydantic", "typer", "yaml"),
    *("bertie.program", "bertie.models.families", "bertie.runs.finetune", "bertie.infer.engine"),
)


@cache
def copied() -> subprocess.Popen[str]:
    """The process whose copies run the commands of these tests."""
    command = [sys.executable, __file__]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.communicate)  # the end of its input ends it
    return process


def run(
    arguments: Iterable[object],
    *,
    script: str = "",
    packages: Iterable[Path] = (),
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command line of `bertie`, or a script, one at a time. packages: folders where packages are installed"""
    command, paths = [*map(str, arguments)], [*map(str, packages)]
    environment = {**(os.environ if environment is None else environment)}
    environment["PYTHONPATH"] = os.pathsep.join([*paths, environment.get("PYTHONPATH", "")])  # for those it starts
    with tempfile.TemporaryDirectory() as outputs:
        asked = {
            "arguments": command,
            "script": script,
            "packages": paths,
            "environment": environment,
            "folder": str(folder or Path.cwd()),
            "outputs": outputs,
        }
        process = copied()
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        code = int(process.stdout.readline())
        out, err = ((Path(outputs) / name).read_text(encoding="utf-8") for name in ("out", "err"))
    return subprocess.CompletedProcess(command, code, out, err)


def _serve() -> None:
    """Copies this process for every line of standard input, and writes the exit code of the copy."""
    from importlib import import_module

    for name in LIBRARIES:
        import_module(name)
    from bertie import registry

    assert "huggingface_hub" not in sys.modules, "it reads the environment when it is imported"
    assert not registry.offered.cache_info().currsize, "what packages offer was read before there are packages"
    gc.freeze()  # or each copy ends with a search through all of it
    for line in sys.stdin:
        process = os.fork()
        if not process:
            _copy(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


def _copy(
    arguments: list[str],
    script: str,
    packages: list[str],
    environment: dict[str, str],
    folder: str,
    outputs: str,
) -> NoReturn:
    """Runs it, and ends without the half second in which Python takes all modules apart."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:1] = packages  # in the place of this file's folder
    for file, number in ((os.devnull, 0), (f"{outputs}/out", 1), (f"{outputs}/err", 2)):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT, 0o600), number)
    code: object = 0
    try:
        if script:
            exec(compile(script, "<script>", "exec"), vars(sys.modules["__main__"]))
        else:
            from bertie.program import main

            sys.argv = ["bertie", *arguments]
            main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    _serve()
