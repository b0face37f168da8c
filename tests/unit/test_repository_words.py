"""The repository speaks of the product alone: no path of a machine, no host of a package registry."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = [
    (re.compile(r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/"), "a path of somebody's machine"),
    (re.compile(r"files\.pythonhosted\.org|pypi\.org/simple|deb\.debian\.org|registry\.npmjs\.org"), "a registry host"),
]


def texts():
    """The tracked text files, this one left out."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    for name in listed.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file() and path.suffix not in {".png", ".npy", ".safetensors"} and path != Path(__file__):
            yield path, path.read_text(encoding="utf-8")


def test_no_file_names_a_machine_or_a_registry():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {what}: {line.strip()[:100]}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, what in FORBIDDEN
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)
