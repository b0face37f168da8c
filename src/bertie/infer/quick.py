"""Predictions without importing torch, which takes longer than a few texts do: the native engine on a model folder."""

import sys
from pathlib import Path

from bertie.errors import BertieError
from bertie.infer import rates
from bertie.infer.engine import PRECISIONS
from bertie.infer.native.folder import FolderEngine, open_native_engine
from bertie.models.packed import INT8
from bertie.models.variant import method_of, read_public
from bertie.text.formats import TOKENIZER_FILES
from bertie.text.tokenizer import Tokenizer


def without_torch(folder: Path, precision: str, device: str, engine: str) -> tuple[FolderEngine, Tokenizer] | None:
    """A model folder's engine and tokenizer, or None: torch is asked for, is faster, or opens the folder alone.

    Weights that are not int8 need rates that an earlier command has measured. Torch says what is wrong with a folder.
    """
    if device not in ("auto", "cpu") or (device == "auto" and _has_gpu()):
        return None
    if engine not in ("auto", "native") or precision not in PRECISIONS:
        return None
    try:
        int8 = method_of(read_public(folder)) == INT8
        if int8 and precision == "bf16":  # torch's way refuses it
            return None
        chosen = "fp32" if int8 else _precision(precision, engine)
        if chosen is None or not any((folder / name).is_file() for name in TOKENIZER_FILES):
            return None
        native = open_native_engine(folder, "bf16" if chosen == "bf16" else "fp32")
        if native is None:
            return None
        tokenizer = Tokenizer.load(folder)
    except BertieError:
        return None
    if not native.config.vocab_size - 128 < tokenizer.vocab_size <= native.config.vocab_size:
        return None
    if engine == "auto" and not int8 and (known := rates.read_stored_rates()):
        rates.tell_choice(known, chosen)
    return native, tokenizer


def _precision(precision: str, engine: str) -> str | None:
    """The precision to compute in; None where torch is faster in it, or nothing is known yet."""
    if engine == "native" and precision in ("fp32", "bf16"):
        return precision
    known = rates.read_stored_rates()
    if precision not in ("fp32", "bf16", "auto") or known is None:
        return None
    chosen = rates.quickest_precision(known) if precision == "auto" else precision
    return chosen if engine == "native" or rates.native_is_faster(known, chosen) else None


def _has_gpu() -> bool:
    return sys.platform == "darwin" or any(Path("/dev").glob("nvidia[0-9]*"))
