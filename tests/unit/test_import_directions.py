"""Who may import whom (docs/architecture.md): a room imports rooms above it in that list, never beside or below."""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "bertie"

PAGE = SOURCE.parents[1] / "docs" / "architecture.md"

# The page's own list: a line a floor, rooms divided by commas or bars, a remark in brackets.
FLOORS = [
    {room.strip() for room in re.split(r"[,|]", rooms)}
    for rooms in re.findall(r"^\d  ([^(\n]+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def imported_rooms(path: Path) -> list[tuple[int, str]]:
    """Every room of bertie that a file imports anywhere, also inside functions, with the line."""
    rooms = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; write bertie.…"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        rooms += [(node.lineno, name.split(".")[1]) for name in names if name.startswith("bertie.")]
    return rooms


def test_the_page_lists_the_rooms_there_are():
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    files = {path.stem for path in SOURCE.glob("*.py") if not path.stem.startswith("__")}
    assert set(FLOOR) == folders | files
    described = set(re.findall(r"^\| `(\w+)/` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert described == folders


def test_every_import_points_to_a_room_above():
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        room = parts[0]
        if parts == ("__init__",) or parts == ("__main__",):
            continue  # the front door may reach every room
        assert room in FLOOR, f"{path}: room {room!r} has no floor"
        for line, target in imported_rooms(path):
            same_floor_zero = FLOOR[room] == 0 == FLOOR.get(target)
            if target != room and not same_floor_zero and FLOOR.get(target, 99) >= FLOOR[room]:
                wrong.append(f"{path}:{line}: {room} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_text_and_config_import_no_torch():
    light = [*(SOURCE / "text").glob("*.py"), SOURCE / "models" / "config.py", *SOURCE.glob("*.py")]
    for path in light:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            heavy = [name for name in names if name.split(".")[0] == "torch"]
            assert not heavy, f"{path}:{node.lineno} imports torch"
