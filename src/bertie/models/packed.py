"""Weights with few bits per number in a model folder. A format is one class and one row of `FORMATS`."""

from collections.abc import Container, Iterable, Sequence

from bertie.models.int4 import Int4Weight
from bertie.models.int8 import Int8Weight

INT8 = "bertie-int8"
PackedWeight = Int8Weight | Int4Weight
FORMATS: dict[str, type[Int8Weight] | type[Int4Weight]] = {INT8: Int8Weight, "bertie-int4": Int4Weight}
"""By the quant_method in config.json's quantization_config."""


def find_weight_format(name: str, names: Container[str]) -> type[Int8Weight] | type[Int4Weight] | None:
    """Returns the format of a stored weight, by the names of the arrays beside it; None: a float weight."""
    return next((one for one in FORMATS.values() if f"{name}_{one.PARTS[0]}" in names), None)


def fused(parts: Sequence[PackedWeight]) -> PackedWeight:
    """Returns one matrix of several that read the same rows. Raises ValueError for those that do not match."""
    kind = type(parts[0])
    if any(type(part) is not kind for part in parts):
        raise ValueError("matrices that are fused have the same format")
    weight: PackedWeight = kind.fused(parts)  # type: ignore[arg-type]
    return weight


def quantization(weights: Iterable[PackedWeight]) -> dict[str, object]:
    """Returns the quantization_config of a folder with these weights: that of the smallest format among them."""
    kinds = {type(weight) for weight in weights}
    method, kind = min(((name, one) for name, one in FORMATS.items() if one in kinds), key=lambda row: row[1].BITS)
    return {"quant_method": method, "bits": kind.BITS}
