"""Every error has a code for programs, which stays when its wording changes. Here the wording of each code, once.

Other tests ask for the class or the code where they only want to know which error came.
"""

import ast
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bertie as package
from bertie import errors, folders
from bertie.errors import BertieError, DataError, MissingColumn, UnreadableFile, UsageError
from bertie.runs.folder import RUN
from bertie.text.tokenizer import Tokenizer
from serving import live, make_models
from toys import CommandLine, toy_model

SOURCE = Path(errors.__file__).parent
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BertieError)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_models(tmp_path_factory.mktemp("models"), ["sequence"])["sequence"]


def test_each_kind_has_a_code_of_its_own_and_is_raised_somewhere() -> None:
    codes = [kind.code for kind in KINDS]
    assert len({*codes}) == len(codes)
    assert all(code.replace("-", "").isalpha() and code.islower() for code in codes)
    calls = [
        node
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]
    used = {ast.unparse(node.func).removesuffix(".of") for node in calls}
    coded = {ast.unparse(node.args[0]) for node in calls if ast.unparse(node.func) == "BertieError.with_code"}
    assert {kind.__name__ for kind in KINDS if repr(kind.code) not in coded} <= used


def test_an_error_of_a_code_is_of_its_class() -> None:
    for kind in KINDS:
        error = BertieError.with_code(kind.code, "what is wrong")
        assert type(error) is kind
        assert (error.code, str(error)) == (kind.code, "what is wrong")


CASES: list[tuple[tuple[str, ...], int, str, str]] = [
    (("predict", "MODEL", "t.csv", "--precision", "fp99"), 2, "unknown-name", "Unknown precision 'fp99'. Did you"),
    (("predict", "MODEL", "t.csv", "--max-length", "2"), 2, "wrong-value", "max_length is 2; it must be 4 to"),
    (
        ("evaluate", "MODEL", "t.csv", "--label", "label", "--label-names", "maybe=2"),
        2,
        "unknown-label",
        "'2' of the label names",
    ),
    (("predict", "MODEL", "none.csv"), 3, "missing-file", "none.csv cannot be read: No such file"),
    (("predict", "none", "t.csv"), 3, "missing-file", "none is not a folder."),
    (("predict", "MODEL", "t.csv", "--text", "x"), 3, "missing-column", "t.csv has no column 'x'. Choices:"),
    (("predict", "MODEL", "bad.json"), 3, "damaged-file", "bad.json is not JSON"),
    (("predict", "MODEL", "."), 3, "data", ". is a folder;"),
    (("tune",), 2, "usage", "No output folder given."),
    (("predict", "MODEL", "t.csv", "-o", "t.csv"), 2, "usage", "t.csv is read by this command"),
    (("predict", "MODEL", "t.csv", "-o", "old.csv"), 2, "output-exists", "old.csv exists. Choose another name"),
    (("corpus", "t.csv", "-o", "full"), 2, "output-exists", "full contains files that are not"),
    (("fill-mask", "MODEL", "a [MASK]"), 2, "wrong-model", "This model has no masked-LM head."),
    (("evaluate", "MODEL", "empty.csv"), 3, "no-rows", "There is no labeled example to evaluate on."),
]


@pytest.mark.parametrize(("command", "exit_code", "code", "start"), CASES)
def test_json_has_the_code(
    command: tuple[str, ...], exit_code: int, code: str, start: str, model: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, bertie: CommandLine,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("text,label\na b,no\n")
    Path("bad.json").write_text('{"x"')
    Path("old.csv").touch()
    Path("full").mkdir()
    Path("full/notes.txt").touch()
    Path("empty.csv").write_text("text,label\n")
    arguments = [str(model) if one == "MODEL" else one for one in command]
    status, out, err = bertie(*arguments, "--json")
    error = json.loads(out)
    assert (status, error["code"]) == (exit_code, code), error
    assert error["error"].startswith(start)
    assert start.split()[0] in err


def refused() -> None:
    raise UnreadableFile.of("closed.csv", PermissionError(13, "Permission denied"))


def remade() -> None:
    RUN.check_unchanged(Path("run"), {"lr": 1}, {"lr": 2})


def too_long() -> None:
    Tokenizer.load(Path(__file__).parents[2] / "models" / "starter-en").encode(
        "a b c d e", max_length=4, truncation="error"
    )


@pytest.mark.parametrize(
    ("work", "code", "wording"),
    [
        (refused, "unreadable-file", "closed.csv cannot be read: Permission denied."),
        (remade, "other-settings", "run contains a run with other settings or data:\n  lr: 1 -> 2"),
        (too_long, "too-long", "A text of 7 tokens is longer than max_length 4."),
        (lambda: package.load("minilm-none"), "missing-file", "minilm-none is not a folder."),
    ],
)
def test_python_has_the_code(work: Callable[[], object], code: str, wording: str) -> None:
    with pytest.raises(BertieError) as caught:
        work()
    assert caught.value.code == code
    assert str(caught.value).startswith(wording)


def test_a_folder_in_use_has_a_code(tmp_path: Path) -> None:
    hold = "import sys, pathlib; from bertie.folders import locked\n"
    hold += f"with locked(pathlib.Path({str(tmp_path / 'lock')!r}), ''): print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(errors.InUse, match=r"^Another process is writing to out"),
            folders.locked(tmp_path / "lock", folders.busy_error(Path("out"))),
        ):
            pass
        other.communicate("")


def test_the_page_lists_all_codes_and_the_server_uses_no_others() -> None:
    page = (SOURCE.parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| `(\w+)` \| (\d+) \|", page, re.MULTILINE)
    assert {*rows} == {(kind.code, kind.__name__, str(kind.exit_code)) for kind in KINDS}
    used = {
        keyword.value.value
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("Refusal", "BertieError", "UsageError", "DataError")
        for keyword in node.keywords
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)
    }
    assert used
    assert used <= {kind.code for kind in KINDS}


MATCHED_IN_SEVERAL_TESTS = 19
"""Wordings of errors that more than one test matches: it may fall and never rise."""


def test_the_same_words_are_matched_in_one_test() -> None:
    homes = dict[str, set[str]]()
    for path in Path(__file__).parents[1].rglob("test_*.py"):
        for test in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and test.name.startswith("test_"):
                for node in ast.walk(test):
                    if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises":
                        words = [one.value for one in node.keywords if one.arg == "match"]
                        for one in words:
                            if isinstance(one, ast.Constant):
                                homes.setdefault(str(one.value), set()).add(f"{path.name}: {test.name}")
    several = {words: tests for words, tests in homes.items() if len(tests) > 1}
    assert len(several) <= MATCHED_IN_SEVERAL_TESTS, several


def test_a_code_of_one_error_stays_with_it() -> None:
    for error in (DataError("It is wrong.", code="odd"), MissingColumn("It is not there.")):
        same = pickle.loads(pickle.dumps(error))
        assert (same.code, str(same)) == (error.code, str(error))
    assert UsageError("Wrong.").code == "usage"


def test_http_has_the_code(model: Path) -> None:
    pytest.importorskip("starlette")
    with live({"m": model}) as server:
        error = server.post("/answer", {"inputs": {"a": "x", "b": "y"}}).json()
        assert (error["error_type"], error["code"]) == ("Validation", "missing-column")
        assert "code" not in server.post("/answer", {"inputs": []}).json(), "the server's own are kinds by themselves"
        error = server.post("/answer", {"inputs": "a " * 99, "truncate": False}).json()
        assert (error["error_type"], error["code"]) == ("Validation", "too-long")
        error = server.post("/fill_mask", {"inputs": "a [MASK]"}).json()
        assert (error["error_type"], error["code"]) == ("Backend", "wrong-model")


def test_a_server_that_does_not_start_has_the_code(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    toy_model(tmp_path / "encoder", "abc")
    (tmp_path / "encoder" / "model.safetensors").unlink()
    with pytest.raises(BertieError, match="none does not exist") as caught:
        package.serve(tmp_path / "none")
    assert caught.value.code == "missing-file"
    with pytest.raises(BertieError) as caught:
        package.serve(tmp_path / "encoder", threads=1)
    assert caught.value.code == "missing-file"
