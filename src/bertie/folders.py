"""Output folders: one process at a time, nothing of another's replaced, whole or absent.

    new_folder     of a command that writes once (tokenizer train, convert, grow, RUN/model): written next to it under a
                   temporary name with its checksums.json, renamed when whole
    made_once      the same, and nothing to do where the same command has made the folder of the same inputs before
    held           of a command that can be resumed (pretrain, finetune, tune, corpus): locked, and swept
                   of what a killed process left

`--overwrite` replaces what Bertie wrote, which the `FolderKind` of a folder and its checksums.json tell; where anything
else stands, nothing is touched. A symbolic link stays: what it leads to is written or replaced.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote
from typing import Any

from bertie import checksums
from bertie.console import console
from bertie.errors import DataError, InUse, OtherSettings, OutputExists, UsageError
from bertie.files import LOCK, UNDECODED, folders_above, is_leftover, shown, sync_folder
from bertie.registry import Later, Registry
from bertie.settings import flatten

_UNKNOWN_FILES_SHOWN = 5  # unknown files that an error lists


@dataclass(frozen=True)
class FolderKind:
    """The files that a command writes into its folder.

    begins: patterns of files, one of which always exists. files: patterns of names. folders: pattern of the name of a
    folder inside -> its kind; None: the same kind again. clears: patterns of leftovers that the command deletes itself.
    use: a command that takes the folder, whose path replaces {}.
    """

    name: str
    begins: tuple[str, ...]
    files: tuple[str, ...]
    folders: Mapping[str, "FolderKind | None"] = field(default_factory=dict)
    lock: str = LOCK
    clears: tuple[str, ...] = ()
    use: str = ""

    @property
    def article(self) -> str:
        """The article of the name."""
        return "an" if self.name[0] in "aeiou" else "a"

    def inner(self, name: str) -> "FolderKind | None":
        """Returns the kind of a folder inside, or None for an unknown name."""
        return next((kind or self for pattern, kind in self.folders.items() if fnmatchcase(name, pattern)), None)

    def begun(self, folder: Path) -> bool:
        """Returns whether a folder contains the beginning of something of this kind, and not of another kind."""
        if self.started(folder) or checksums.read_folder_kind(folder) == self.name:
            return True
        alike = {checksums.CHECKSUMS, LOCK, self.lock}  # of every kind
        return all(path.name in alike or is_leftover(path.name) for path in folder.iterdir())

    def started(self, folder: Path) -> bool:
        """Returns whether a folder contains one of the files that always exist."""
        return any((folder / name).exists() or ("*" in name and any(folder.glob(name))) for name in self.begins)

    @classmethod
    def named(cls, name: str) -> "FolderKind":
        """Returns the kind with a name: "model", "run", "corpus", "tokenizer"; "folder": with any files."""
        return ANYTHING if name == ANYTHING.name else FOLDER_KINDS[name]

    def check(self, path: Path, *, overwrite: bool = False, new: bool = False) -> None:
        """Raises UsageError unless a folder may be written to. See `check_writable`."""
        check_writable(path, self, overwrite=overwrite, new=new)

    def check_unchanged(self, folder: Path, before: Mapping[str, object], now: Mapping[str, object]) -> None:
        """Raises UsageError with the differences where a folder was made with other settings or data."""
        old, new = flatten(before), flatten(now)
        changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
        if changed:
            lines = "".join(f"\n  {key}: {old.get(key)} -> {new.get(key)}" for key in changed)
            raise OtherSettings(
                f"{folder} contains {self.article} {self.name} with other settings or data:{lines}\n"
                "Choose another folder or pass --overwrite."
            )

    def held(self, path: Path, *, overwrite: bool = False) -> AbstractContextManager[None]:
        """Context with a lock on a folder that is written step by step. See `held`."""
        return held(path, self, overwrite=overwrite)

    def new(self, path: Path, *, overwrite: bool = False, keep_strangers: bool = False) -> AbstractContextManager[Path]:
        """Context with a folder to write to, which replaces `path` at the end. See `new_folder`."""
        return new_folder(path, self, overwrite=overwrite, keep_strangers=keep_strangers)

    def made_once(self, path: Path, by: str, write: Callable[[Path], "_Facts"], *, overwrite: bool = False) -> "_Facts":
        """Makes a folder with `write`, unless the same call made it before. See `made_once`."""
        return made_once(path, self, by, write, overwrite=overwrite)

    def seal(self, folder: Path, *, covered: Callable[[str], bool] = lambda name: False) -> None:
        """Writes the checksums.json of a folder of this kind. See `checksums.write`."""
        checksums.write_checksums(folder, self.name, covered=covered)

    def sealed(self, folder: Path) -> bool:
        """Returns whether a folder has the list of its files, which is written last."""
        return (folder / checksums.CHECKSUMS).exists()

    def unseal(self, folder: Path) -> None:
        """Deletes the list of a folder's files, before they are written again."""
        (folder / checksums.CHECKSUMS).unlink(missing_ok=True)


ANYTHING = FolderKind("folder", ("",), ("*",), {"*": None})
FOLDER_KINDS: Registry[FolderKind] = Registry(
    "kind of folder",
    [
        ("search index", Later("bertie.apps.search.store", "INDEX_KIND")),
        ("run", Later("bertie.runs.folder", "RUN")),
        ("model", Later("bertie.models.files", "MODEL_FOLDER")),
        ("corpus", Later("bertie.data.corpus", "CORPUS")),  # a checkpoint has a manifest too
        ("tokenizer", Later("bertie.text.vocabulary", "TOKENIZER_FOLDER")),
    ],
)
"""What commands take as input. A folder that could be several of them is the first one."""


def check_folder_kind(folder: Path, *expected: str) -> None:
    """Raises DataError for a folder of another kind than those expected, with a command that takes it."""
    kind = next((kind for _, kind in FOLDER_KINDS.items() if kind.started(folder)), None)
    if kind is not None and kind.name not in expected:
        names = " or ".join(f"{FOLDER_KINDS[name].article} {name}" for name in expected)
        raise DataError(
            f"{folder} is {kind.article} {kind.name}, not {names}. To use it: {kind.use.format(quote(str(folder)))}"
        )


def strangers(folder: Path, kind: FolderKind) -> list[str]:
    """Returns the files in a folder that Bertie did not write, as relative paths; a folder ends in a slash."""
    if not any(folder.iterdir()):
        return []
    if not kind.begun(folder):
        return sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    return sorted(_strangers(folder, kind))


def _strangers(folder: Path, kind: FolderKind) -> Iterator[str]:
    known = checksums.list_checked_names(folder)
    for path in folder.iterdir():
        name = path.name
        if name in (LOCK, checksums.CHECKSUMS) or name in known or is_leftover(name):
            continue
        if path.is_symlink() or not path.is_dir():
            if not any(fnmatchcase(name, pattern) for pattern in kind.files):
                yield name
        elif inner := kind.inner(name):
            yield from (f"{name}/{other}" for other in _strangers(path, inner) if f"{name}/{other}" not in known)
        elif not all(file.relative_to(folder).as_posix() in known for file in path.rglob("*") if not file.is_dir()):
            yield name + "/"


def check_writable(path: Path, kind: FolderKind, *, overwrite: bool = False, new: bool = False) -> None:
    """Raises UsageError unless a folder may be written to.

    new: whether existing content cannot be resumed. A file, a mount point that would be renamed, and a folder that
    another process is writing are refused. With `overwrite`, files that Bertie did not write are refused too.
    """
    if UNDECODED.search(str(path)):
        raise UsageError(
            f"The name {shown(str(path))} is not UTF-8, and no weights could be read under it. Choose another."
        )
    _check_link(path)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file; an output folder was expected. Choose another name.")
    if not path.is_dir():
        return
    if new and os.path.ismount(path):
        raise UsageError(
            f"{path} is a mount point, which cannot be replaced. Choose a folder inside it: {path / 'NAME'}."
        )
    if not any(path.iterdir()):
        return
    if not overwrite:
        if new:
            raise OutputExists(f"{path} is not empty. Choose another folder, or pass --overwrite to replace it.")
        if not kind.begun(path):
            raise OutputExists(f"{path} contains files that are not {kind.article} {kind.name}. Choose another folder.")
        return
    if others := strangers(path, kind):
        more = f" and {len(others) - _UNKNOWN_FILES_SHOWN:,} more" if len(others) > _UNKNOWN_FILES_SHOWN else ""
        raise UsageError(
            f"{path} cannot be replaced: it contains files that Bertie did not write as {kind.article} {kind.name}: "
            f"{', '.join(others[:_UNKNOWN_FILES_SHOWN])}{more}. Move them away, or choose another folder."
        )
    if (path / kind.lock).exists():
        with locked(path / kind.lock, busy_error(path)):
            pass


def _check_link(path: Path) -> None:
    if path.is_symlink() and not path.exists():
        raise UsageError(f"{path} is a link to {os.readlink(path)}, which does not exist. Choose another folder.")


def busy_error(path: Path) -> str:
    """Returns the message about a folder that another process is writing."""
    return f"Another process is writing to {path}. Wait for it to end, or choose another folder."


@contextmanager
def locked(lock: Path, busy: str) -> Iterator[None]:
    """Context with a lock against other processes. Raises UsageError with the words `busy` when one holds it.

    The lock ends with its process. The same process may lock twice. The file remains, since deleting a file that
    another process waits for would admit two.
    """
    from filelock import FileLock, Timeout  # slow to import, and this module is read at every start

    held = FileLock(lock, timeout=0, is_singleton=True)
    try:
        held.acquire()
    except Timeout:
        raise InUse(busy) from None
    try:
        yield
    finally:
        held.release()


@contextmanager
def held(path: Path, kind: FolderKind, *, overwrite: bool = False) -> Iterator[None]:
    """Context with a lock on a folder that is written step by step. overwrite: its content is deleted first, after
    locking.

    A folder made for this is removed if it is still empty at the end, or if bad input is refused before anything was
    started. Raises UsageError as `check_writable` does.
    """
    check_writable(path, kind, overwrite=overwrite)
    is_new, refused = not path.exists(), False
    lock = path / kind.lock
    with folders_above(path):
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            with locked(lock, busy_error(path)):
                if overwrite:
                    _clear(path, kind)
                _sweep(path, kind)
                yield
        except (DataError, UsageError):
            refused = not kind.started(path)
            raise
        finally:
            empty = path.is_dir() and [file for file in path.rglob("*") if not file.is_dir()] in ([], [lock])
            if is_new and (empty or refused):
                shutil.rmtree(path, ignore_errors=True)


def _clear(folder: Path, kind: FolderKind) -> None:
    """Deletes everything but the lock; the files that identify the kind are last, so that an interrupted deletion is
    known."""
    last = {*kind.begins, checksums.CHECKSUMS, kind.lock.partition("/")[0]}
    for path in sorted(folder.iterdir(), key=lambda path: path.name in last):
        if path == folder / kind.lock:
            continue
        if path.is_dir() and not path.is_symlink():
            for inner in path.iterdir() if path == (folder / kind.lock).parent else [path]:
                _delete(inner) if inner != folder / kind.lock else None
        else:
            path.unlink()


def _delete(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _sweep(folder: Path, kind: FolderKind) -> None:
    """Deletes what killed processes left in a folder: files and folders under temporary names."""
    for path in folder.iterdir():
        if is_leftover(path.name) and not any(fnmatchcase(path.name, pattern) for pattern in kind.clears):
            with suppress(OSError):
                _delete(path)


_Facts = dict[str, Any]


def check_other(out: Path, source: Path) -> None:
    """Raises UsageError when a folder made from another one would replace it."""
    if out.resolve() == Path(source).resolve():
        raise UsageError(
            f"{out} is the folder that is read. Write to another folder, so that the original remains intact."
        )


def made_once(
    path: Path, kind: FolderKind, by: str, write: Callable[[Path], _Facts], *, overwrite: bool = False
) -> _Facts:
    """Makes a folder with `write`, unless the same call made it before. Returns what `write` returned, now or then.

    by: hash of the command, its settings and the contents of its inputs; "" if they are unknown. The facts are JSON
    values. Raises UsageError as `check_writable` does, and where a file was changed after it was made.
    """
    facts_before = None if overwrite or not by else _made_by(path, by)
    if facts_before is not None:
        console.say(f"{path} was made by this command before; nothing to do. --overwrite makes it again.")
        return facts_before
    origin: _Facts = {"by": by}
    with new_folder(path, kind, overwrite=overwrite, origin=origin) as folder:
        origin["facts"] = write(folder)
    facts: _Facts = origin["facts"]
    return facts


def _made_by(path: Path, by: str) -> _Facts | None:
    try:
        origin = checksums.read_checksums(path).get("made", {})
    except DataError:
        return None
    if origin.get("by") != by:
        return None
    if damage := checksums.check_files(path).damage:
        raise OutputExists(f"{path} was made by this command, but: {damage[0]} Pass --overwrite to make it again.")
    facts: _Facts = origin["facts"]
    return facts


@contextmanager
def new_folder(
    path: Path, kind: FolderKind, *, overwrite: bool = False, keep_strangers: bool = False, origin: _Facts | None = None
) -> Iterator[Path]:
    """Context with a folder to write to, which replaces `path` at the end, with its checksums.json.

    A killed process leaves `path` unchanged, and a hidden folder that the next call deletes. keep_strangers: foreign
    files are kept, not refused, inside a run that is resumed. origin: stored in checksums.json, as it is at the end
    of the block. Raises UsageError as `check_writable` does.
    """
    _check_link(path)
    path = path.resolve()  # a link stays, and what it leads to is replaced
    temporary, old = path.with_name(f".{path.name}.tmp"), path.with_name(f".{path.name}.old")
    if old.exists():  # a process was killed between two renames, or after them
        _delete(old) if path.exists() else old.rename(path)
    check_writable(path, kind, overwrite=overwrite and not keep_strangers, new=not keep_strangers)
    with ExitStack() as stack:
        stack.enter_context(folders_above(path))
        temporary.mkdir(exist_ok=True)
        stack.enter_context(locked(temporary / LOCK, busy_error(path)))
        for leftover in temporary.iterdir():
            if leftover.name != LOCK:
                _delete(leftover)
        try:
            yield temporary
            if keep_strangers and path.exists():
                _take_over(path, temporary, strangers(path, kind))
            checksums.write_checksums(temporary, kind.name, origin=origin)
            _sync(temporary)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        if path.exists():
            path.rename(old)
        temporary.rename(path)
        sync_folder(path.parent)
        (path / LOCK).unlink(missing_ok=True)
        _delete(old) if old.exists() else None


def _take_over(source: Path, target: Path, names: list[str]) -> None:
    for name in names:
        if name.endswith("/"):
            shutil.copytree(source / name, target / name, dirs_exist_ok=True)
        elif not (target / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, target / name, follow_symlinks=False)


def _sync(folder: Path) -> None:
    """Flushes every file and folder to the disk before the folder is renamed."""
    for path in [*folder.rglob("*"), folder]:
        if path.is_dir():
            sync_folder(path)
        elif not path.is_symlink():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
