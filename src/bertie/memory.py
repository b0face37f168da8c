"""Keeps memory of one step for the next, or returns memory that is free."""

import ctypes
import sys
from contextlib import suppress

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -2, -3, -4  # malloc.h
TOP_PAD_BYTES = 64 << 20  # how much more the heap grows at a time than was asked for
MATRIX_BYTES = 1 << 18  # from which on a block has pages of its own


def keep_memory() -> bool:
    """Makes glibc keep freed memory for the next step; -> whether this is possible.

    By default, glibc returns every block above 32 MiB to the system. What a step computes is then cleared and mapped
    again, a fifth of a step of BERT-base on a CPU (benchmarks/log). The peak memory does not change.
    """
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1, M_TOP_PAD: TOP_PAD_BYTES}  # no mmap, no trimming
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):  # another C library than glibc
            return all(ctypes.CDLL(None).mallopt(option, value) == 1 for option, value in settings.items())
    return False


def return_memory(*, later: bool = False) -> None:
    """Makes glibc return to the system what is free now. later: from now on, freed matrices too, at once.

    Otherwise their place stays between smaller blocks in use, for processes that make and drop matrices all the time.
    """
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            if later:
                library.mallopt(M_MMAP_THRESHOLD, MATRIX_BYTES)
            library.malloc_trim(0)
