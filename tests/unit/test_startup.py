"""What a command imports before it answers: never what it does not use. Counted in modules, since seconds vary."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest
from test_predict import save_model

from bertie.infer.native.library import found_compiler
from bertie.registry import import_name

UNUSED = (
    *("torch._dynamo", "torch._inductor", "sympy", "triton", "torch.distributed.fsdp", "torch.distributed.tensor"),
    *("scipy", "sklearn", "matplotlib", "pandas", "pyarrow", "transformers", "ray", "optuna", "tensorboard"),
    *("yaml", "bertie.runs.config", "bertie.objectives", "bertie.report.page"),
)
SCRIPT = """
import sys
from bertie.program import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def imported(*arguments: object, stdin: str = "") -> set[str]:
    """The modules that a command line has imported when it ends well."""
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("command", ["predict", "embed"])
def test_an_answer_needs_torch_and_little_else(folder, command):
    modules = imported(command, folder, "--engine", "torch", "-q", stdin="a b c\n")
    assert "torch" in modules
    assert sorted(modules & set(UNUSED)) == []


@pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("command", ["predict", "embed"])
def test_the_native_engine_needs_no_torch(folder, command):
    modules = imported(command, folder, "--engine", "native", "-q", stdin="a b c\n")
    unused = {"torch", "onnxruntime", "loky", "psutil", "bertie.nn", "bertie.train", "bertie.apps.compress"}
    assert sorted(modules & (unused | set(UNUSED))) == []
    assert not modules & {"bertie.tasks.several", "bertie.tasks.parse", "bertie.tasks.span"}, "tasks of other models"


def test_imports_collect_no_garbage_and_leave_the_collector_as_it_was(tmp_path, monkeypatch):
    (tmp_path / "of_a_test.py").write_text("import gc\nvalue = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert import_name("of_a_test", "value") is False
    assert gc.isenabled()
    gc.disable()
    try:
        import_name("of_a_test", "value")
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(AttributeError):
        import_name("of_a_test", "other")
    assert gc.isenabled()


def test_ctrl_c_during_the_imports_prints_no_traceback():
    script = """
import sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "bertie.program":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
from bertie.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (130, "")


def test_help_needs_no_torch():
    assert not imported("predict", "--help") & {"torch", "numpy"}


def test_no_command_imports_torch_to_show_its_help():
    """What a command calls, its application's modules and the waist, are imported when it runs."""
    script = """
import sys
from bertie.apps.cli.table import COMMAND_ROWS, load_command
for row in COMMAND_ROWS.values():
    load_command(row).get_help(load_command(row).make_context(row.name, ["--help"], resilient_parsing=True))
    if heavy := sorted({"torch", "onnxruntime", "matplotlib"} & set(sys.modules)):
        sys.exit(f"{row.name} imports {heavy}")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_library_imports_itself_alone():
    """`import bertie` takes a few hundredths of a second, because its names are imported when they are used."""
    script = "import sys; before = {*sys.modules}; import bertie; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names == {"bertie"}
