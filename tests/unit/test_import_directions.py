"""Import directions (docs/architecture.md): a package imports packages on earlier lines of that list only."""

import ast
import re
from collections.abc import Container, Mapping
from pathlib import Path

import bertie
from bertie import platform

SOURCE = Path(__file__).parents[2] / "src" / "bertie"

TORCHLESS = ("config", "count", "flat", "head_config", "kinds")  # of models/
PAGE = SOURCE.parents[1] / "docs" / "architecture.md"

# The page's list: one line per level, packages divided by commas or bars, a remark in brackets.
LEVELS = [
    {package.strip() for package in re.split(r"[,|]", packages)}
    for packages in re.findall(r"^\d+ +([^(\n]+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
]
LEVEL = {package: level for level, packages in enumerate(LEVELS) for package in packages}


def imported_packages(path: Path) -> list[tuple[int, str]]:
    """Every package of bertie that a file imports anywhere, also inside functions, with the line."""
    packages = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; write bertie.…"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        packages += [(node.lineno, name.split(".")[1]) for name in names if name.startswith("bertie.")]
    return packages


def test_the_page_lists_every_package():
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    files = {path.stem for path in SOURCE.glob("*.py") if not path.stem.startswith("__")}
    assert set(LEVEL) == folders | files
    described = set(re.findall(r"^\| `(\w+)/` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert described == folders


def test_every_import_points_to_an_earlier_level():
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        package = parts[0]
        if parts in (("__init__",), ("__main__",)) or package == "apps":
            continue  # the package itself may import everything; applications have a test of their own, below
        assert package in LEVEL, f"{path}: package {package!r} has no level"
        for line, target in imported_packages(path):
            both_zero = LEVEL[package] == 0 == LEVEL.get(target)
            if target != package and not both_zero and LEVEL.get(target, 99) >= LEVEL[package]:
                wrong.append(f"{path}:{line}: {package} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_an_application_sees_the_waist_alone():
    """Of the library, only `bertie` and `bertie.platform`, in imports anywhere, also for types alone."""
    wrong = []
    for path in sorted(SOURCE.glob("apps/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in (name for name in names if name.split(".")[0] == "bertie"):
                module, _, last = name.rpartition(".")
                front = module == "bertie" and last in (*bertie.__all__, "platform")
                if name != "bertie" and not front and not name.startswith(("bertie.apps.", "bertie.platform.")):
                    wrong.append(f"{path}:{node.lineno}: {name}")
    assert not wrong, "\n".join(wrong)


def test_the_waist_has_every_name_once_and_used():
    """What type checkers see, what is imported at run time, and the list are the same; an application uses each."""
    tree = ast.parse((SOURCE / "platform.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    checked = {
        (alias.asname or alias.name): (str(node.module), alias.name)
        for part in block.body
        for node in ast.walk(part)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("bertie.")
        for alias in node.names
    }
    assert checked == platform._HOMES
    assert sorted(checked) == sorted(platform.__all__)
    assert not set(platform.__all__) & set(bertie.__all__)
    used: set[str] = set()
    for path in SOURCE.glob("apps/**/*.py"):
        text = path.read_text(encoding="utf-8")
        ours = re.search(r"^from bertie import platform$", text, re.MULTILINE)  # not Python's own
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module == "bertie.platform":
                used |= {alias.name for alias in node.names}
            elif ours and isinstance(node, ast.Attribute) and ast.unparse(node.value) == "platform":
                used.add(node.attr)
    assert used == set(platform.__all__)
    for name in platform.__all__:
        getattr(platform, name)


def test_an_application_imports_no_other_but_those_of_the_page():
    rows = re.findall(r"^\| `apps/(\w+)/` \|[^|]*\|([^|]*)\|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    allowed = {name: set(re.findall(r"`(\w+)`", others)) for name, others in rows}
    assert set(allowed) == {path.parent.name for path in SOURCE.glob("apps/*/__init__.py")}
    used: dict[str, set[str]] = {name: set() for name in allowed}
    for path in SOURCE.glob("apps/*/*.py"):
        names = {name.split(".")[2] for name in imported_modules(path, modules()) if name.startswith("bertie.apps.")}
        used[path.parent.name] |= names - {path.parent.name, "cli"}  # commands are made with the command line
    assert used == allowed


def modules() -> dict[str, Path]:
    """Every module by its name; a package is its __init__."""
    paths = SOURCE.rglob("*.py")
    names = {path: ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in paths}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def imported_modules(path: Path, known: Container[str]) -> set[str]:
    """The modules of bertie that a file names in imports anywhere, also inside functions and for types alone."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else str(node.module) for name in whole]
        found |= {name for name in names if name in known}
    return found


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """Modules that import one another in a circle, the first found; none: []."""
    done: set[str] = set()

    def search(name: str, trail: list[str]) -> list[str]:
        if name in trail:
            return [*trail[trail.index(name) :], name]
        if name in done:
            return []
        for other in sorted(imports.get(name, ())):
            if found := search(other, [*trail, name]):
                return found
        done.add(name)
        return []

    return next((found for name in imports if (found := search(name, []))), [])


def test_no_module_imports_itself_by_way_of_others():
    """The front door, bertie/__init__.py, may be imported by those it opens when they run."""
    known = modules()
    imports = {name: imported_modules(path, known) - {name, "bertie"} for name, path in known.items()}
    assert sum(map(len, imports.values())) > len(imports), "imports are found at all"
    assert not (found := circle(imports)), " imports ".join(found)


def test_a_circle_is_found():
    straight = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert circle(straight) == []
    assert circle(straight | {"c": {"d"}, "d": {"b"}}) == ["b", "c", "d", "b"]


def test_text_and_config_import_no_torch():
    light = [
        *(SOURCE / "text").glob("*.py"),
        *(SOURCE / "models" / f"{name}.py" for name in TORCHLESS),
        *SOURCE.glob("*.py"),
    ]
    for path in light:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            heavy = [name for name in names if name.split(".")[0] == "torch"]
            assert not heavy, f"{path}:{node.lineno} imports torch"
