"""Settings every test shares."""

import os
import signal
import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from bertie.console import Verbosity, console
from bertie.errors import speech

if TYPE_CHECKING:
    from toys import CommandLine

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the libraries we compare with must not look for anything elsewhere
# Models of the tests are too small to gain from threads, which wait for each other many times over on a busy machine:
# some took 40 times as long. Set before torch is imported, and inherited by commands; another given number is kept.
os.environ.setdefault("OMP_NUM_THREADS", "1")
for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLORTERM", "COLUMNS", "LINES"):
    os.environ.pop(name, None)  # a test sets what it is about
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or every command that a test starts compiles all of its modules
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored, in the processes of the tests too
_fsync = os.fsync


def _fsync_later(file: int) -> None:
    """Leaves it to the system when what a test writes reaches the disk: no test outlives the machine's power."""
    if not stat.S_ISREG(mode := os.fstat(file).st_mode) and not stat.S_ISDIR(mode):
        _fsync(file)


os.fsync = _fsync_later  # type: ignore[assignment]
if not os.path.exists("/dev/nvidia0"):
    os.environ.setdefault(
        "TRITON_INTERPRET", "1"
    )  # the kernels of a GPU run on the CPU; triton reads this when imported

# Machines are shared and slow at times; a test never fails for that. The same examples every run.
settings.register_profile("bertie", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("bertie")


# Files that take more than ten seconds, the longest first: begun last, one of them would keep one process busy alone.
LONG_FILES = (
    *("test_readme", "test_examples", "test_recorded_passes", "test_families", "test_add_a_family", "test_sklearn"),
    *("test_corpus_build", "test_recorded_forwards", "test_search_index", "test_task_kinds", "test_folds"),
    *("test_convert", "test_fused_kernels", "test_add_a_task", "test_hub_models", "test_calibration", "test_tune"),
    *("test_any_bytes", "test_config_law", "test_serve_process", "test_feature_vectors", "test_golden"),
    *("test_cli_finetune", "test_imbalance", "test_uncertain_answers", "test_thresholds", "test_serve_versions"),
    *("test_add_a_package", "test_error_codes", "test_finetune_report", "test_data_in_memory", "test_static"),
    *("test_recipes", "test_features", "test_lora", "test_published_sets", "test_isolated", "test_stop_and_go"),
)


def pytest_configure(config: pytest.Config) -> None:
    """Files are dealt in the order of `pytest_collection_modifyitems`, not by their number of tests."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the long files first."""
    place = {name: number for number, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


@pytest.fixture(autouse=True)
def _usual_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test starts with the usual messages, also after a command line of another test with --quiet or --json."""
    monkeypatch.setattr(console, "verbosity", Verbosity())
    monkeypatch.setattr(speech, "shell", True)  # tests name options as commands do; test_errors_in_python.py the others


@pytest.fixture
def bertie(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> "CommandLine":
    """The command line, in this process: bertie("predict", folder) -> exit code, standard output, standard error."""
    from toys import CommandLine  # with torch, which tests of text alone do without

    return CommandLine(monkeypatch, capsys)
