"""Tables in parquet files."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from bertie.errors import BadFile
from bertie.io.fields import composed, flat
from bertie.io.header import Row, header
from bertie.io.table_format import TableFormat


def read_parquet(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Row]:
    """Row groups one after another; the line is the row's number, from 1. Numbers of classes become their names."""
    import pyarrow
    import pyarrow.parquet

    try:
        numbers = itertools.count(1)
        table = pyarrow.parquet.ParquetFile(file)
        classes = _classes(table.schema_arrow.metadata or {})
        names = header(table.schema_arrow.names, where)
        yield 0, names
        for batch in table.iter_batches(batch_size=4096):
            for row in batch.rename_columns(names).to_pylist():
                row |= {name: _class(row.get(name), own) for name, own in classes.items() if name in row}
                yield next(numbers), flat(row)
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # ValueError: a name or a text
        raise BadFile(f"{where} is not a readable parquet file ({error}). The file may be truncated.") from None


def _classes(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Returns the names of the classes of each column, in a file that the library `datasets` wrote."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        kinds = {composed(name): feature.get("feature", feature) for name, feature in features.items()}
        return {name: kind["names"] for name, kind in kinds.items() if kind.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _class(value: object, names: Sequence[str]) -> object:
    """Returns the name of a class, or the names in a list. -1 means that the class is not known."""
    if isinstance(value, list):
        return [_class(one, names) for one in value]
    return (names[value] if 0 <= value < len(names) else None) if isinstance(value, int) else value
