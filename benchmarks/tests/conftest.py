"""What the tests of the benchmarks share."""

import pytest

from benchmarks.__main__ import bench
from toys import CommandLine


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """`python -m benchmarks` in this process: benchmarks("neighbor") -> exit code, standard output, standard error."""
    return CommandLine(monkeypatch, capsys, bench)
