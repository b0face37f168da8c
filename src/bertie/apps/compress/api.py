"""A model with weights of 8 or 4 bits from one that is open: for `Model.compress`."""

from collections.abc import Sequence

from bertie.apps.compress.gate import quantized, read
from bertie.platform import DataError, TorchModel, UsageError


def quantize_module(
    module: TorchModel, texts: Sequence[str | tuple[str, ...]], *, bits: int, embeddings: int, force: bool
) -> TorchModel:
    """Gives a module quantized weights, and returns it.

    Raises DataError for too few texts and for a model that misses the quality threshold; UsageError for other bits, and
    for a module without a tokenizer or with quantized weights.
    """
    if bits not in (4, 8) or embeddings not in (4, 8) or (embeddings == 4 and bits == 8):
        raise UsageError("bits is 8 or 4, and embeddings is 8 or, with 4 bits, 4.")
    if module.packed:
        raise UsageError("The model has quantized weights already. Compress the float model that it was made from.")
    fidelity = quantized(module, read(module, texts), bits=bits, embeddings=embeddings)
    if not fidelity.enough and not force:
        raise DataError(
            f"The int{bits} model misses the quality threshold: {fidelity}. Give more texts, or pass `force`."
        )
    return module
