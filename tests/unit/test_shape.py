"""The shape of the code as numbers that may fall and never rise. A change that lowers one lowers its ceiling here.

The aims are those of docs/architecture.md. `python tests/unit/test_shape.py` prints the table.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "bertie"
PARTICIPLES = {"found", "told", "asked", "made", "given", "kept", "seen", "named", "wanted", "opened"}


@cache
def trees() -> dict[Path, ast.Module]:
    """Path below src/bertie -> syntax tree."""
    return {path.relative_to(SOURCE): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")}


def core() -> list[Path]:
    return [path for path in trees() if path.parts[0] != "apps"]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def core_lines() -> int:
    return sum(len((SOURCE / path).read_text(encoding="utf-8").splitlines()) for path in core())


def core_files() -> int:
    return len(core())


def imports_inside_functions() -> int:
    """Statements that import something of bertie when a function runs."""
    return sum(
        isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "bertie"
        for tree in trees().values()
        for function in functions(tree)
        for node in ast.walk(function)
    )


def uses_of_any() -> int:
    return sum(isinstance(node, ast.Name) and node.id == "Any" for tree in trees().values() for node in ast.walk(tree))


def asserts() -> int:
    return sum(isinstance(node, ast.Assert) for tree in trees().values() for node in ast.walk(tree))


def longest_function() -> int:
    """Lines of a function without its docstring."""
    lengths = [
        (function.end_lineno or 0)
        - (function.body[ast.get_docstring(function) is not None :] or function.body)[0].lineno
        for tree in trees().values()
        for function in functions(tree)
    ]
    return max(lengths) + 1


def names_in_several_modules() -> int:
    """Public functions, classes and constants that more than one module defines."""
    homes: Counter[str] = Counter()
    for tree in trees().values():
        names: set[str] = set()
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Assign):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        homes.update(name for name in names if not name.startswith("_"))
    return sum(count > 1 for count in homes.values())


def participles_as_names() -> int:
    """Uses of names that say what happened to a value, such as `found`, instead of what it is."""
    nodes: Counter[Any] = Counter()
    for tree in trees().values():
        nodes.update(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        nodes.update(node.arg for node in ast.walk(tree) if isinstance(node, ast.arg))
    return sum(nodes[name] for name in PARTICIPLES)


def names_of_the_waist() -> int:
    """Names that applications may use: those of bertie/__init__.py and bertie/platform.py.

    What a class of platform.py only bundles counts one by one: functions (`check_new = staticmethod(check_new_file)`,
    or a @staticmethod) and other names of its module (`Tile = StatCard`).
    """
    listed = {path: _assigned(trees()[Path(path)], "__all__") for path in ("__init__.py", "platform.py")}
    homes = {
        alias.name: Path(str(node.module).removeprefix("bertie.").replace(".", "/"))
        for node in ast.walk(trees()[Path("platform.py")])
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("bertie.")
        for alias in node.names
    }
    bundled = 0
    for name, home in homes.items():
        tree = trees().get(home.with_suffix(".py")) or trees()[home / "__init__.py"]
        kinds = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        made_by = _assigned(tree, name)  # console = Console()
        kind = kinds.get(ast.unparse(made_by.func) if isinstance(made_by, ast.Call) else name)
        bundled += sum(map(_bundles, kind.body)) if kind else 0
    return bundled + sum(len(ast.literal_eval(names)) for names in listed.values() if names)


def _assigned(tree: ast.Module, name: str) -> ast.expr | None:
    """Returns what a module assigns to a name."""
    nodes = (node for node in tree.body if isinstance(node, ast.Assign))
    return next((node.value for node in nodes if ast.unparse(node.targets[0]) == name), None)


def _bundles(node: ast.stmt) -> int:
    """Returns how many functions or other names of a module an entry of a class only makes reachable."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return any(ast.unparse(one) == "staticmethod" for one in node.decorator_list)
    told = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or (told and not told.startswith(("ClassVar", "TypeAlias"))):
        return 0
    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    return sum(
        isinstance(value, ast.Name | ast.Attribute)
        or (isinstance(value, ast.Call) and ast.unparse(value.func) == "staticmethod")
        for value in values
    )


def joined_packages() -> int:
    """Pairs of packages, in percent, of which one imports the other."""
    packages = {path.parts[0] for path in trees() if len(path.parts) > 1}
    pairs = set()
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("bertie."):
                for one in node.names:
                    other = f"{node.module}.{one.name}".split(".")[1]
                    if other in packages and path.parts[0] in packages and other != path.parts[0]:
                        pairs.add(frozenset((other, path.parts[0])))
    return round(100 * len(pairs) / (len(packages) * (len(packages) - 1) / 2))


def checks_for_classes_of_tasks() -> int:
    """isinstance(x, SpanTask) and `type(x) is SpanTask` outside tasks/, where a capability should be asked for."""

    def names(node: ast.AST) -> set[str]:
        return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} | {
            n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)
        }

    count = 0
    for path, tree in trees().items():
        if path.parts[0] == "tasks":
            continue
        for node in ast.walk(tree):
            tested: set[str] = set()
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("isinstance", "issubclass")
            ):
                tested = names(node.args[1])
            elif isinstance(node, ast.Compare) and any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
                tested = names(node)
            count += any(name.endswith("Task") and name != "Task" for name in tested)
    return count


CEILINGS: dict[Callable[[], int], tuple[int, int]] = {
    core_lines: (67_688, 45_000),
    core_files: (360, 290),
    imports_inside_functions: (52, 60),
    uses_of_any: (551, 600),
    asserts: (43, 50),
    longest_function: (70, 80),
    names_in_several_modules: (29, 60),
    participles_as_names: (0, 0),
    names_of_the_waist: (119, 120),
    joined_packages: (33, 25),
    checks_for_classes_of_tasks: (0, 0),
}
"""What is measured -> its ceiling today, and the aim."""


@pytest.mark.parametrize("measure", CEILINGS, ids=lambda measure: measure.__name__)
def test_the_shape_gets_no_worse(measure: Callable[[], int]) -> None:
    ceiling, _ = CEILINGS[measure]
    assert measure() <= ceiling


if __name__ == "__main__":
    for measure, (ceiling, aim) in CEILINGS.items():
        print(f"{measure.__name__:30} {measure():7,}  ceiling {ceiling:7,}  aim {aim:7,}")
