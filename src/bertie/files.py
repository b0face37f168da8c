"""Atomic files: data is written to a temporary file, flushed to the disk, and the file is renamed."""

import errno
import fcntl
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeAlias

import xxhash

from bertie.errors import BadFile, DataError, MissingFile, OutputExists, Stopped, UnreadableFile, UsageError

_SMALL_FILE_BYTES = 64 << 20  # bytes of the largest file that is read as a whole, where its reader names no other bound
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # as JSON escapes it; two make a character
UNDECODED = re.compile("[\udc80-\udcff]")  # bytes of a file name that are not UTF-8 (surrogateescape)
LACK = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # of the machine, and no fault of a file
LOCK = ".lock"  # held by the process that writes to a folder


Json: TypeAlias = Mapping[str, Any]
"""An object of JSON that is read: a report, results, a manifest, config.json."""
JsonObject: TypeAlias = dict[str, Any]
"""An object of JSON that is made, or changed before it is written."""
MAX_PATH_CHARACTERS = 1024  # characters of a path; a single name has at most 255 bytes


def exists(path: str | Path) -> bool:
    """Whether there is a file or a folder of this name; a text that is too long for a name is none."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long, or with a null character
        return False


def is_leftover(name: str) -> bool:
    """Returns whether this is the temporary name of a file or folder that a process is writing."""
    return name.startswith(".") and name.endswith((".tmp", ".old"))


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Opens `path` for writing bytes so that readers see the old file or the complete new one.

    Folders above that are missing are made. Raises Stopped (exit 75) when the disk is full; the old file then remains.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(3)}.tmp")  # pids repeat in containers
    with folders_above(path):
        try:
            with open(temporary, "wb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # as `sweep` asks
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                yield file
            with open(temporary, "r+b") as file:  # a library may have put a file of its own here (safetensors does)
                os.fsync(file.fileno())
            os.chmod(temporary, mode)
            os.replace(temporary, path)
            sync_folder(path.parent)
        except BaseException as error:
            with suppress(OSError):
                temporary.unlink()
            if isinstance(error, OSError) and error.filename == str(temporary):
                error.filename = str(path)
            if stopped := Stopped.for_full_disk(error, path):
                raise stopped from None
            raise


@contextmanager
def atomic_writes(paths: Iterable[Path]) -> Iterator[list[IO[bytes]]]:
    """Opens files as `atomic_write` does: at the end all are written, or none, also on a full disk."""
    with ExitStack() as stack:
        files = [stack.enter_context(atomic_write(path)) for path in paths]
        yield files
        for file in files:  # the disk may be found full only here; nothing is renamed before
            file.flush()
            os.fsync(file.fileno())


def sweep(path: Path) -> None:
    """Deletes the temporary files of `path` that killed processes left: those that no process holds, and whose process
    is not running here."""
    name = re.compile(rf"\.{re.escape(path.name)}\.(\d+)(\.[0-9a-f]{{6}})?\.tmp")
    for entry in path.parent.iterdir() if path.parent.is_dir() else ():
        if (match := name.fullmatch(entry.name)) and not _runs(int(match[1])):
            with suppress(OSError), open(entry, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                entry.unlink()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def folders_above(path: Path) -> Iterator[None]:
    """Context in which the folders above a path exist. Those that it made are removed, if the path is not there at the
    end."""
    missing = [] if path.parent.is_dir() else [parent for parent in path.parents if not parent.exists()]
    if missing:  # else a file stands above, of which the system says what is wrong when the path is opened
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        if missing and not path.exists():
            with suppress(OSError):  # another process may have put something there
                for parent in missing:
                    parent.rmdir()


def sync_folder(folder: Path) -> None:
    """Flushes a folder's entries, so that a renamed file in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes `data` to `path` atomically."""
    with atomic_write(path) as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    """Writes a text in UTF-8, atomically; bytes of file names as `shown`."""
    write_bytes(path, shown(text).encode())


def write_json(path: Path, value: object) -> None:
    """Writes `value` as indented UTF-8 JSON, atomically, with a final newline."""
    write_bytes(path, json_bytes(value))


def json_bytes(value: object) -> bytes:
    """Returns `value` as indented UTF-8 JSON with a final newline; bytes of file names as `shown`."""
    return (shown(json.dumps(value, ensure_ascii=False, indent=2), backslash="\\\\") + "\n").encode()


def shown(text: str, *, backslash: str = "\\") -> str:
    """Returns a text that can be written: bytes of a file name that are not UTF-8 as \\xff.

    Python has such a byte as half of a surrogate pair; any other half is U+FFFD. backslash: as the format escapes it.
    """
    if text.isascii():
        return text
    text = UNDECODED.sub(lambda match: f"{backslash}x{ord(match[0]) - 0xDC00:02x}", text)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def read_journal(path: Path) -> list[Any]:
    """Returns the rows of a journal, one JSON value per line; none without the file.

    A partially written last line is cut from the file. Raises DataError for another damaged line.
    """
    if not path.exists():
        return []
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        os.truncate(path, end)
    return [parse_json(line, path) for line in data[:end].splitlines()]


def files_in(folder: Path, *, hidden: bool = False) -> tuple[list[Path], list[str]]:
    """Returns the files in a folder and those inside, sorted, and what cannot be read there: "PATH (reason)".

    hidden: whether files and folders whose names begin with a dot are included. Links to folders are not followed.
    """
    files, unreadable = list[Path](), list[str]()

    def leave_out(error: OSError) -> None:
        unreadable.append(f"{error.filename} ({error.strerror})")

    for root, folders, names in os.walk(folder, onerror=leave_out):
        if not hidden:
            folders[:], names[:] = ([one for one in some if not one.startswith(".")] for some in (folders, names))
        for name in (*folders, *names):
            path = os.path.join(root, name)
            try:
                mode = os.stat(path).st_mode
            except OSError as error:
                leave_out(error)
                continue
            if stat.S_ISREG(mode):
                files.append(Path(path))
            elif not stat.S_ISDIR(mode):
                unreadable.append(f"{path} (a pipe or a device)")
            elif os.path.islink(path):
                unreadable.append(f"{path} (a link to a folder)")
    return sorted(files), sorted(unreadable)


def some_of(names: Collection[str], most: int = 3) -> str:
    """Returns the first names of a list for a message: "a, b, c, ..."."""
    return ", ".join([*islice(names, most), *(["..."] if len(names) > most else [])])


@contextmanager
def open_regular(path: Path) -> Iterator[IO[bytes]]:
    """Opens a regular file for reading. A pipe may never end, and a device has no end.

    Raises DataError with the reason where the file cannot be opened; FileNotFoundError where it is missing; OSError
    where the machine lacks memory or file descriptors.
    """
    try:  # opened as usual, a pipe would wait for its writer
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    except FileNotFoundError:
        raise
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; a file was expected.") from None
    except OSError as error:
        if error.errno in LACK:
            raise
        raise UnreadableFile.of(path, error) from None
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise DataError(f"{path} is a pipe or a device. Save its content as a regular file first.")
        yield file


def check_readable(path: Path) -> None:
    """Raises DataError with the reason where an existing file cannot be opened, or has a name that is not UTF-8.

    For libraries that report a missing file, or a damaged one, whatever the reason is.
    """
    if UNDECODED.search(str(path)):
        raise DataError(f"The name {shown(str(path))} is not UTF-8, which libraries need to open it. Rename it.")
    with suppress(FileNotFoundError), open_regular(path):
        pass


def read_small(path: Path, *, most: int = _SMALL_FILE_BYTES) -> bytes:
    """Returns all bytes of a file of at most `most` bytes. Raises DataError for a larger one, and as `open_regular`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(most + 1) if size <= most else b""
    if max(size, len(data)) > most:
        raise DataError(
            f"{path} has {max(size, len(data)):,} bytes, more than the maximum of {most:,} for this kind of file. "
            "Check that it is the right file."
        )
    return data


def read_json(path: Path, *, most: int = _SMALL_FILE_BYTES) -> Any:
    """Reads a UTF-8 JSON file. Raises DataError with its name when it is missing, damaged or nested too deep.

    Also when it is not a regular file, or has more than `most` bytes.
    """
    try:
        data = read_small(path, most=most)
    except FileNotFoundError:
        raise MissingFile(f"{path} does not exist.") from None
    return parse_json(data, path)


def parse_json(data: bytes, path: Path) -> Any:
    """Returns the value of JSON text. Raises DataError with the name of its file when it is damaged."""
    try:
        value = json.loads(data)
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()  # half of a pair is no character: nothing could write it
        return value
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} is not readable JSON ({error}). The file may be truncated.") from None


def user_cache() -> Path:
    """Returns the user's cache folder: $XDG_CACHE_HOME/bertie, or ~/.cache/bertie. A relative path is ignored, as the
    XDG Base Directory Specification asks."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path("~/.cache").expanduser()) / "bertie"


def file_hash(path: Path) -> str:
    """Returns xxh3-128 of a file's bytes as 32 hex digits, read in blocks of 1 MiB. Raises as `open_regular` does."""
    digest = xxhash.xxh3_128()
    with open_regular(path) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def seal(facts: Mapping[str, object]) -> str:
    """Returns a hash of a JSON object without its own key "seal"."""
    rest = {key: value for key, value in facts.items() if key != "seal"}
    text = json.dumps(rest, sort_keys=True)
    if "\\udc" in text:  # perhaps a byte of a file name, which is written otherwise, and so read
        text = json.dumps(json.loads(json_bytes(rest)), sort_keys=True)
    return xxhash.xxh3_128_hexdigest(text.encode())


def home_of(name: str, folder: Path, key: str) -> Path:
    """Returns where files derived from a folder are stored: inside it, or, if it is read-only, in the user's cache.

    key: identifies the folder's content. The cache is $XDG_CACHE_HOME/bertie, or ~/.cache/bertie.
    """
    inside = folder / name
    if inside.exists() or os.access(folder, os.W_OK):
        return inside
    return user_cache() / key / name


def check_new_file(path: Path, *, overwrite: bool = False, inputs: Iterable[str | Path] = ()) -> None:
    """Raises UsageError when an output file exists and `overwrite` is off, is a folder, or is one of the inputs.

    Otherwise deletes what killed processes left of it.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder; a file was expected. Choose another name: {path / 'NAME'}.")
    if path.exists() and any(Path(one).is_file() and path.samefile(one) for one in inputs):
        raise UsageError(f"{path} is read by this command, and --overwrite does not replace it. Choose another name.")
    if path.exists() and not overwrite:
        raise OutputExists(f"{path} exists. Choose another name, or pass --overwrite to replace it.")
    sweep(path)


class File:
    """A file at a path: read as a whole, and written whole or not at all."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def hash(self) -> str:
        """xxh3-128 of its bytes as 32 hex digits. Raises DataError where it cannot be opened."""
        return file_hash(self.path)

    def check_new(self, *, overwrite: bool = False, inputs: Iterable[str | Path] = ()) -> None:
        """Raises UsageError where it exists and `overwrite` is off, is a folder, or is one of the inputs."""
        check_new_file(self.path, overwrite=overwrite, inputs=inputs)

    def full_disk(self, error: BaseException) -> Stopped | None:
        """Returns the error to raise when an error of writing it means that the disk is full, else None."""
        return Stopped.for_full_disk(error, self.path)

    def check_readable(self) -> None:
        """Raises DataError with the reason where it exists and cannot be opened, or has a name that is not UTF-8."""
        check_readable(self.path)

    def write(self) -> AbstractContextManager[IO[bytes]]:
        """Opens it for writing bytes, so that readers see the old file or the complete new one."""
        return atomic_write(self.path)

    def write_json(self, value: object) -> None:
        """Writes a value as indented UTF-8 JSON, with a final newline."""
        write_json(self.path, value)

    def write_lines(self, lines: Iterable[str], *, empty: Callable[[], str] | None = None) -> int:
        """Writes texts with their line ends, and returns their number. empty: returns the message of the DataError
        that is raised instead of an empty file."""
        count = 0
        with self.write() as file:
            for line in lines:
                file.write(line.encode())
                count += 1
            if empty and not count:
                raise DataError(empty())
        return count

    def read_json(self) -> Any:
        """Returns the value of a UTF-8 JSON file. Raises DataError where it is missing or damaged."""
        return read_json(self.path)

    def read_journal(self) -> list[Any]:
        """Returns the rows of a journal, one JSON value a line; none without the file. Cuts a half-written last one."""
        return read_journal(self.path)
