"""Every promise of docs/promises.md names tests that keep it, and they exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+) \| .+ \| (.+) \|$", re.MULTILINE)


def test_every_promise_names_tests_that_exist():
    rows = ROW.findall((ROOT / "docs" / "promises.md").read_text(encoding="utf-8"))
    assert len(rows) >= 30
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    for number, named in rows:
        known, found = set[str](), 0
        for name in re.findall(r"`([\w/.]+)`", named):
            if name.endswith(".py"):
                tree = ast.parse((ROOT / "tests" / name).read_text(encoding="utf-8"))
                known = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            elif name.startswith("test_"):
                assert name in known, f"promise {number}: there is no {name}"
                found += 1
        assert found, f"promise {number} is kept by no test"
