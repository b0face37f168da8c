"""Builds and opens the native encoder: one shared library for the processor of this machine.

Bertie works without it. A library made at installation is used: `python -m bertie.infer.native.library` makes one for
each kind of processor of this architecture. Otherwise, where there is a C++ compiler, the library is compiled into the
user's cache folder at first use, which takes some seconds.
"""

import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import xxhash

from bertie.console import console
from bertie.errors import UnknownName, UsageError, nearest
from bertie.files import user_cache

SOURCE_FOLDER = Path(__file__).parent
SOURCES = (SOURCE_FOLDER / "encoder.cpp", SOURCE_FOLDER / "vectors.h")
# not -ffast-math: a library linked with it switches denormal numbers off for the whole process
COMPILER_FLAGS = (
    "-std=c++17",
    "-O2",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-shared",
    "-fPIC",
    "-Wno-maybe-uninitialized",
)
X86_64_V4 = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd")
TARGETS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "avx512-vnni-bf16": (
        (*X86_64_V4, "avx512_vnni", "avx512_bf16"),
        ("-march=x86-64-v4", "-mavx512vnni", "-mavx512bf16"),
    ),
    "avx512-vnni": ((*X86_64_V4, "avx512_vnni"), ("-march=x86-64-v4", "-mavx512vnni")),
    "avx-vnni": (("avx2", "fma", "avx_vnni"), ("-march=x86-64-v3", "-mavxvnni")),
    "avx2": (("avx2", "fma"), ("-march=x86-64-v3",)),
    "neon-dotprod": (("asimddp",), ("-march=armv8.2-a+dotprod",)),
    "portable": ((), ()),
}
"""Target -> the required features of the processor, and the compiler flags; the fastest first."""


def thread_count() -> int:
    """Returns the number of threads: $OMP_NUM_THREADS, or the cores that this process may use."""
    setting = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if setting.isdigit() and int(setting):
        return int(setting)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def features() -> frozenset[str]:
    """Returns the features of this processor, by their names in /proc/cpuinfo; empty where this file is missing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    line = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(line.partition(":")[2].split())


def targets(known: Iterable[str] | None = None) -> list[str]:
    """Returns the targets that this processor supports, the fastest first."""
    known = features() if known is None else frozenset(known)
    return [name for name, (needs, _) in TARGETS.items() if known.issuperset(needs)]


def found_compiler() -> str | None:
    """Returns the C++ compiler of $CXX, or the first one found."""
    return next(filter(None, map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))), None)


def compile_library(target: str, folder: Path) -> Path:
    """Compiles the encoder for a target. Raises OSError when there is no compiler, or it fails."""
    if (compiler := found_compiler()) is None:
        raise OSError("there is no C++ compiler (c++, g++ or clang++)")
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{target}.so"
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".tmp", delete=False) as file:
        library = Path(file.name)
    try:
        command = [compiler, *COMPILER_FLAGS, *TARGETS[target][1], str(SOURCES[0]), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise OSError(f"{compiler} failed: {done.stderr.strip()[-500:]}")
        library.chmod(0o755)  # a temporary file is its owner's alone, and a server runs as another user
        library.replace(out)
    finally:
        library.unlink(missing_ok=True)
    return out


def build_all() -> list[str]:
    """Compiles the encoder beside its sources, for every target of this architecture, and returns their names.

    Raises OSError when there is no compiler.
    """
    names = list[str]()
    for target in reversed(TARGETS):  # "portable" compiles everywhere
        try:
            compile_library(target, installed_folder())
        except OSError:
            if not names:
                raise
        else:
            names.append(target)
    return names


@cache
def hash_native_sources() -> str:
    """Returns a hash of the sources, so that only a matching library is used."""
    return xxhash.xxh3_64_hexdigest(b"".join(path.read_bytes() for path in SOURCES) + " ".join(COMPILER_FLAGS).encode())


def installed_folder() -> Path:
    """Returns the folder of libraries compiled at installation."""
    return SOURCE_FOLDER / "built" / hash_native_sources()


def cache_folder() -> Path:
    """Returns the folder of libraries compiled at first use."""
    return user_cache() / "native" / f"{platform.machine()}-{hash_native_sources()}"


def name_target(target: str | None = None) -> str:
    """Returns a target's name; by default $BERTIE_NATIVE, or the fastest that this processor supports."""
    return target or os.environ.get("BERTIE_NATIVE") or targets()[0]


def open_library(target: str | None = None) -> tuple[ctypes.CDLL, str]:
    """Returns the native encoder, compiled if necessary, and its target. Raises OSError where it is not available."""
    target = name_target(target)
    if target not in TARGETS:
        raise UnknownName(f"BERTIE_NATIVE names {target!r}. {nearest(target, TARGETS)}")
    if features() and (missing := [name for name in TARGETS[target][0] if name not in features()]):
        raise UsageError(
            f"The native engine's build {target!r} needs {', '.join(missing)}, which this processor does not have. "
            f"Set BERTIE_NATIVE to one of: {', '.join(targets())}."
        )
    return _open(target), target


@cache
def _open(target: str) -> ctypes.CDLL:
    for folder in (installed_folder(), cache_folder()):
        if (folder / f"{target}.so").is_file():
            return ctypes.CDLL(str(folder / f"{target}.so"))
    if found_compiler() is not None:
        console.say(f"Compiling the native engine for {target}, which takes some seconds the first time.")
    return ctypes.CDLL(str(compile_library(target, cache_folder())))


if __name__ == "__main__":
    print("Compiled:", ", ".join(build_all()))
