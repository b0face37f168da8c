"""Memory that is used step after step stays with the process."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # malloc.h
TOP_PAD_BYTES = 64 << 20  # how much more the heap grows at a time than was asked for


def keep_memory() -> bool:
    """Let glibc keep freed memory for the next step instead of giving it back; -> whether it could be asked to.

    By default it returns every block above 32 MiB to the system at once, so that each step has its activations, logits
    and gradients cleared and mapped anew, page by page: a fifth of a training step of BERT-BASE on a CPU
    (docs/LOG.md). Peak memory stays what it was; the process holds it until it ends.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library than glibc
        return False
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1, M_TOP_PAD: TOP_PAD_BYTES}  # no mmap, no trimming
    return all(mallopt(option, value) == 1 for option, value in settings.items())
