"""The native encoder in a program of its own (native_driver.cpp): under sanitizers, and on ARM by an emulator.

The portable build in float32 is what the others are compared with. test_native.py compares that with torch.
"""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bertie.infer.native.library import COMPILER_FLAGS, SOURCE_FOLDER, TARGETS, found_compiler, targets

pytestmark = [pytest.mark.slow, pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")]
DRIVER = Path(__file__).with_name("native_driver.cpp")
SANITIZERS = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
ARM, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
SHAPES = {  # H I E heads layers activation radius, then the lengths
    "one head of 32, four activations": (96, 176, 96, 3, 2, 1, 0, 1, 2, 5, 17, 33),
    "narrow heads": (80, 320, 80, 5, 2, 2, 0, 7, 47),
    "wide heads, factorized embeddings": (128, 128, 64, 1, 2, 3, 0, 16, 15, 9),
    "narrower than a panel": (48, 64, 48, 3, 1, 4, 0, 1, 3, 70),
    "gates and windows of few tokens": (96, 176, 96, 3, 3, 9, 3, 1, 2, 17, 33, 151),
    "gates and wider windows": (64, 80, 64, 1, 2, 12, 40, 5, 47, 203),
}


def compiled(compiler: str, folder: Path, *flags: str) -> Path:
    out = folder / "driver"
    own = [flag for flag in COMPILER_FLAGS if flag not in ("-shared", "-fPIC", "-O3")]
    subprocess.run([compiler, *own, "-pthread", *flags, f"-I{SOURCE_FOLDER}", str(DRIVER), "-o", str(out)], check=True)
    return out


def states(command: list[str], kind: int, shape: tuple[int, ...]) -> np.ndarray | None:
    """Hidden states (T, H); None where the build has no products of this kind."""
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # the driver frees nothing
    done = subprocess.run(
        [*command, str(kind), *map(str, shape)], capture_output=True, check=False, env=environment, timeout=300
    )
    if done.returncode == 3:
        return None
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return np.frombuffer(done.stdout, np.float32).reshape(-1, shape[0])


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(str(found_compiler()), tmp_path_factory.mktemp("portable"), "-O2")


def check(command: list[str], reference: Path, *, approximate: bool = True) -> None:
    for name, shape in SHAPES.items():
        expected = states([str(reference)], 0, shape)
        for kind in (0, 1, 2) if approximate else (0,):
            found = states(command, kind, shape)
            if found is None:
                continue
            assert np.isfinite(found).all(), name
            if kind == 0:
                np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0, err_msg=name)  # states are about 1
            else:  # bf16 keeps 8 bits, int8 255 or 127 steps: relative errors of 1 % cost their square
                cosines = (found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
                assert cosines.min() > 0.999, (name, kind)


@pytest.mark.parametrize("target", targets())
def test_nothing_is_read_or_written_beyond_its_array(target, tmp_path, portable):
    """Odd sizes under AddressSanitizer and UndefinedBehaviorSanitizer: the first finding ends the program."""
    built = compiled(str(found_compiler()), tmp_path, *SANITIZERS, *TARGETS[target][1])
    check([str(built)], portable)


@pytest.mark.skipif(not shutil.which(ARM) or not shutil.which(EMULATOR), reason=f"needs {ARM} and {EMULATOR}")
def test_arm_computes_the_same(tmp_path, portable):
    built = compiled(ARM, tmp_path, "-O2", "-static", *TARGETS["neon-dotprod"][1])
    check([EMULATOR, str(built)], portable)
