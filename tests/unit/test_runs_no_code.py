"""No file that Bertie opens can run code: what could do that is called nowhere in src, by its syntax trees."""

import ast
from pathlib import Path

import pytest

# The one exception: it reads the numbers of a pickle the user says they trust, with weights_only, in a process of its
# own that only `bertie convert --unsafe` starts. Nothing imports it.
EXEMPT = {"models/unpickle.py": "torch.load"}

SOURCE = Path(__file__).parents[2] / "src" / "bertie"

FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "torch.hub"}
FORBIDDEN_NAMES = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_ATTRIBUTES = {
    ("torch", "load"),
    ("torch", "save"),
    ("yaml", "load"),
    ("yaml", "load_all"),
    ("yaml", "unsafe_load"),
    ("yaml", "full_load"),
    ("yaml", "UnsafeLoader"),
    ("np", "loads"),
    ("os", "system"),
    ("os", "popen"),
}


def faults(tree: ast.AST) -> list[str]:
    """Every use of a forbidden thing, with its line."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [f"{node.lineno}: import {a.name}" for a in node.names if a.name in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom):
            if node.module in FORBIDDEN_MODULES:
                found.append(f"{node.lineno}: from {node.module} import")
            found += [
                f"{node.lineno}: from {node.module} import {a.name}"
                for a in node.names
                if (node.module, a.name) in FORBIDDEN_ATTRIBUTES
            ]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in FORBIDDEN_NAMES:
            found.append(f"{node.lineno}: {node.id}")
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and (node.value.id, node.attr) in FORBIDDEN_ATTRIBUTES
        ):
            found.append(f"{node.lineno}: {node.value.id}.{node.attr}")
        elif (
            isinstance(node, ast.keyword)
            and node.arg in ("allow_pickle", "shell", "trust_remote_code")
            and not (isinstance(node.value, ast.Constant) and node.value.value is False)
        ):
            found.append(f"{node.value.lineno}: {node.arg}=")
    return found


@pytest.mark.promise("no-code")
@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_nothing_in_the_source_can_run_what_a_file_holds(path):
    found = faults(ast.parse(path.read_text(encoding="utf-8")))
    allowed = EXEMPT.get(str(path.relative_to(SOURCE)))
    assert [fault for fault in found if allowed is None or not fault.endswith(allowed)] == []


def test_the_exception_reads_numbers_alone_and_is_imported_by_nobody():
    (name,) = EXEMPT
    tree = ast.parse((SOURCE / name).read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == EXEMPT[name]]
    assert len(calls) == 1
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in calls[0].keywords}
    assert given["weights_only"] == "True"
    module = "bertie." + name.removesuffix(".py").replace("/", ".")
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            assert module not in names, path


@pytest.mark.promise("no-code")
@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "import yaml\nyaml.load(f, Loader=yaml.FullLoader)",
        "eval('1')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import subprocess\nsubprocess.run('ls', shell=True)",
    ],
)
def test_the_check_finds_what_it_looks_for(code):
    assert faults(ast.parse(code))
