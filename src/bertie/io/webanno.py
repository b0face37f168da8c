"""WebAnno TSV 3, which INCEpTION and WebAnno write: a word per line, with its place and a column for each feature.

    #FORMAT=WebAnno TSV 3.3
    #T_SP=de.tudarmstadt.ukp.dkpro.core.api.ner.type.NamedEntity|identifier|value
    #Text=Ada Lovelace wrote.
    1-1<TAB>0-3<TAB>Ada<TAB>_<TAB>PER[1]

`_` is no annotation, `*` one without a value; words with the same [1] are one entity.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import IO

from bertie.errors import DataError, nearest
from bertie.io.lines import BadRecord, text_lines
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.io.words import TaggedExample, places_of, tag_words

BEGINS, TEXT = "#FORMAT=WebAnno TSV", "#Text="
_LAYER = re.compile(r"#T_(SP|CH|RL)=([^|]*)((?:\|.*)?)")
_NUMBERED = re.compile(r"(.*)\[(\d+)\]$")
BACKSLASHED = re.compile(r"\\(.)")
_USUAL = ("value", "label", "PosValue")  # features whose values are labels
_OWN_LAYERS = ("NamedEntity", "POS")  # layers, the first of which is taken
_Lines = list[tuple[int, str]]


def webanno(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Example | BadRecord]:
    """Yields the sentences of a file. columns.label: the feature with the labels, by default that of named entities.

    Raises DataError for a file without such a feature.
    """
    columns: dict[str, int] = {}
    width, column, block, text, bad = 3, -1, _Lines(), list[str](), None
    for number, line in itertools.chain(text_lines(file, where, format.file), [(0, "")]):
        if isinstance(line, BadRecord):
            bad = bad or line
        elif layer := _LAYER.fullmatch(line):
            kind, name, features = layer[1], layer[2].rpartition(".")[2], layer[3].split("|")[1:]
            for i, feature in enumerate(features or [""]):
                if kind == "SP":
                    columns[f"{name}.{feature}" if feature else name] = width + i
            width += max(1, len(features))
        elif line.startswith("#") and not block:
            text += [BACKSLASHED.sub(r"\1", line.removeprefix(TEXT))] if line.startswith(TEXT) else []
        elif line.strip():
            block.append((number, line))
        elif block or bad:
            column = column if column >= 0 else _column(columns, format, where)
            name = next((name for name, at in columns.items() if at == column), "")
            yield bad or _sentence(block, column, "" if "." in name else name, "\n".join(text), format)
            block, text, bad = [], [], None


def _column(columns: dict[str, int], format: TableFormat, where: str) -> int:
    """Returns the column of the labels."""
    if format.columns.label:
        matches = [at for name, at in columns.items() if format.columns.label in (name, *name.split("."))]
        if not matches:
            raise DataError(
                f"{where} has no feature {format.columns.label!r}. {nearest(format.columns.label, columns)}"
            )
        return matches[0]
    ranked = sorted(
        columns, key=lambda name: (*(own not in name for own in _OWN_LAYERS), name.rpartition(".")[2] not in _USUAL)
    )
    if not ranked:
        if format.columns.labelled:
            raise DataError(f"{where} has no layer of spans, so its words have no labels.")
        return 0
    return columns[ranked[0]]


def _sentence(block: _Lines, column: int, layer: str, text: str, format: TableFormat) -> Example | BadRecord:
    """Returns the example of a sentence. layer: the name of a layer without features, which is the label itself."""
    words, tags, before = list[str](), list[str](), ("", "")
    for _, line in block:
        cells = line.split("\t")
        if "." in cells[0].partition("-")[2]:
            if format.columns.labelled and len(cells) > column and cells[column] not in ("_", ""):
                return BadRecord(block[0][0], "an entity that is a part of a word")
            continue
        if len(cells) <= max(2, column):
            return BadRecord(block[0][0], "a word without its columns")
        words.append(BACKSLASHED.sub(r"\1", cells[2]))
        value = re.split(r"(?<!\\)\|", cells[column])
        if len(value) > 1 and format.columns.labelled:
            return BadRecord(block[0][0], "entities that share a word")
        numbered = _NUMBERED.fullmatch(value[0])
        kind, name = (numbered[1], numbered[2]) if numbered else (value[0], "")
        kind = BACKSLASHED.sub(r"\1", kind)
        if kind in ("_", ""):
            tags.append("O")
        elif kind == "*" and not layer and format.columns.labelled:
            return BadRecord(block[0][0], "an entity without a label")
        else:
            begins = "I" if name and (kind, name) == before else "B"
            tags.append(f"{begins}-{layer if kind == '*' else kind}")
        before = (kind, name)
    example = tag_words(words, tags if format.columns.labelled else None, block[0][0])
    if isinstance(example, TaggedExample) and (spans := places_of(text, words)):
        return replace(example, texts=(text,), spans=spans)
    return example
