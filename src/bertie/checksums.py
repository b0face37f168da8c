"""checksums.json: the size and hash of every file of a folder, written last, so that later changes are found.

    {"format": 1, "kind": "model", "files": {"config.json": {"size": 812, "xxh3_128": "..."}, ...}, "seal": "..."}

A folder inside with its own list (checksums.json, or the manifest.json of a checkpoint or corpus) is represented only
by that list. `seal` is the hash of the rest of the file.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bertie.errors import BadFile, DataError
from bertie.files import LOCK, Json, JsonObject, file_hash, is_leftover, read_json, seal, write_json

CHECKSUMS, CARD = "checksums.json", "README.md"
_LISTS = (CHECKSUMS, "manifest.json")  # either of them in a folder inside vouches for the other files there


@dataclass(frozen=True)
class FolderCheck:
    """The result of comparing a folder with its checksums.json: a message for each damaged file, and files not
    listed."""

    files: int = 0
    damage: list[str] = field(default_factory=list)
    uncovered: list[str] = field(default_factory=list)


def describe_file(path: Path) -> JsonObject:
    """Returns the size and hash of a file, as in a list of files."""
    return {"size": path.stat().st_size, "xxh3_128": file_hash(path)}


def write_checksums(
    folder: Path,
    kind: str,
    *,
    covered: Callable[[str], bool] = lambda name: False,
    origin: Json | None = None,
) -> None:
    """Write checksums.json for all files of a folder but those `covered` elsewhere (by name, as of a manifest).

    origin: how the folder was made, where there is more to say than its kind.
    """
    names = [name for name in list_files(folder) if not covered(name)]
    listing: JsonObject = {
        "format": 1,
        "kind": kind,
        "files": {name: describe_file(folder / name) for name in names},
    }
    listing |= {"made": origin} if origin else {}
    write_json(folder / CHECKSUMS, {**listing, "seal": seal(listing)})


def update(folder: Path, *names: str) -> None:
    """Writes the hashes of some replaced files again, and that of the list in the list above, where it is in one.

    Without a list it does nothing.
    """
    if not (folder / CHECKSUMS).exists():
        return
    listing = read_checksums(folder)
    listing["files"] |= {name: describe_file(folder / name) for name in names}
    write_json(folder / CHECKSUMS, {**listing, "seal": seal(listing)})
    if (inner := f"{folder.name}/{CHECKSUMS}") in list_checked_names(folder.parent):
        update(folder.parent, inner)


def read_checksums(folder: Path) -> JsonObject:
    """Returns the checksums.json of a folder. Raises DataError when it is missing or damaged."""
    path = folder / CHECKSUMS
    listing = read_json(path)
    if not isinstance(listing, dict) or listing.get("format") != 1 or not isinstance(listing.get("files"), dict):
        raise BadFile(f"{path} is damaged, or has a format that this version does not know.")
    if listing.get("seal") != seal(listing):
        raise BadFile(f"{path} is damaged: it does not match its own hash.")
    return listing


def list_checked_names(folder: Path) -> set[str]:
    """Returns the names in a folder's checksums.json; none where it is missing or damaged."""
    try:
        return set(read_checksums(folder)["files"])
    except DataError:
        return set()


def read_folder_kind(folder: Path) -> str:
    """Returns what a folder is, as its checksums.json says: "model", "run"; empty where it is missing or damaged."""
    try:
        return str(read_checksums(folder).get("kind", ""))
    except DataError:
        return ""


def check_files(folder: Path, *, covered: Callable[[str], bool] = lambda name: False) -> FolderCheck:
    """Compares every file of a folder with the list there, and with the lists of the folders inside.

    covered: names that are checked elsewhere. Raises DataError when the list itself is missing or damaged.
    """
    files: Mapping[str, Mapping[str, object]] = read_checksums(folder)["files"]
    result = FolderCheck(len(files))
    for name, expected in files.items():
        message = problem(folder / name, expected)
        if message:
            result.damage.append(message)
        elif name.endswith("/" + CHECKSUMS):
            inner = _check_inner((folder / name).parent)
            place = name.removesuffix(CHECKSUMS)
            result.damage.extend(inner.damage)
            result.uncovered.extend(f"{place}{other}" for other in inner.uncovered)
            result = FolderCheck(result.files + inner.files, result.damage, result.uncovered)
    known = files.keys() | {CHECKSUMS}
    result.uncovered.extend(name for name in list_files(folder) if name not in known and not covered(name))
    return result


def problem(path: Path, expected: Mapping[str, object]) -> str:
    """Returns how a file differs from its entry in a list; empty when it does not."""
    if not path.is_file():
        return f"{path} is missing."
    if (size := path.stat().st_size) != expected["size"]:
        return f"{path} is damaged: it has {size:,} of {expected['size']:,} bytes."
    try:
        return "" if file_hash(path) == expected["xxh3_128"] else f"{path} is damaged: its hash differs."
    except DataError as error:
        return str(error)


def content_hashes(path: Path) -> object:
    """Returns hashes of a file, or of the files of a folder, as a JSON value; the path itself if nothing is there.

    The manifest.json of a corpus or checkpoint represents its folder.
    """
    if path.is_dir():
        manifest = path / "manifest.json"
        if manifest.is_file():
            return file_hash(manifest)
        return {name: file_hash(path / name) for name in list_files(path) if (path / name).is_file()}
    return file_hash(path) if path.is_file() else str(path)


def identity(folder: Path) -> str:
    """Returns a hash of the files of a model's folder that decide its answers: of all but its card and checksums."""
    names = list_files(folder) if folder.is_dir() else []  # whoever opens the model says what is wrong with the path
    return seal(
        {"files": {name: file_hash(folder / name) for name in names if Path(name).name not in (CHECKSUMS, CARD)}}
    )


def _check_inner(folder: Path) -> FolderCheck:
    try:
        return check_files(folder)
    except DataError as error:
        return FolderCheck(0, [str(error)])


def list_files(folder: Path) -> list[str]:
    """Returns the files of a folder as paths with slashes; of a folder inside with a list, only that list."""
    return sorted(path.relative_to(folder).as_posix() for path in _files(folder))


def _files(folder: Path, *, top: bool = True) -> Iterator[Path]:
    if not top and (lists := [folder / name for name in _LISTS if (folder / name).is_file()]):
        yield lists[0]
        return
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            if not is_leftover(path.name):
                yield from _files(path, top=False)
        elif path.name not in (LOCK, *((CHECKSUMS,) if top else ())) and not is_leftover(path.name):
            yield path
