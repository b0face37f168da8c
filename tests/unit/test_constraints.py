"""constraints.txt pins what the extras of pyproject.toml need, so that two installations are the same."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINNED = {
    line.partition("==")[0].lower().replace("_", "-")
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
}
UNPINNED = {"scale", "ray"}  # a cluster has its own Ray


@pytest.mark.parametrize("extra", ["", *sorted(PROJECT["optional-dependencies"].keys() - UNPINNED)])
def test_what_an_extra_needs_is_pinned(extra: str):
    needed = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    names = {re.split(r"[<>=\[; ]", one)[0].lower().replace("_", "-") for one in needed}
    assert names - {"bertie"} <= PINNED
