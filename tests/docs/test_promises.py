"""Every promise of tests/promises.yaml is kept by a test, and every marker names a promise.

docs/promises.md is made from both; test_results.py holds the page to them.
"""

import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import generate_results  # noqa: E402 (in docs/)


def test_every_promise_is_kept_by_a_test_and_every_marker_names_a_promise():
    groups = yaml.safe_load((ROOT / "tests" / "promises.yaml").read_text(encoding="utf-8"))
    names = [name for group in groups.values() for name in group]
    assert len(names) == len(set(names)) >= 30
    assert set(names) == set(generate_results.promised(ROOT / "tests"))
