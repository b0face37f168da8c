"""Whatever bytes a file holds, a reader gives records, says what is wrong with some, or refuses the file by name."""

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertie.errors import BertieError
from bertie.io import conll, questions, rows, sources, tables, tagged
from bertie.io.blocks import ReadOptions
from bertie.io.lines import BadRecord
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example

TABLE = pyarrow.table({"text": ["a", "b", "c"], "label": ["x", "y", "x"]})
SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "a b c",
                    "qas": [{"id": 1, "question": "q", "answers": [{"text": "b", "answer_start": 2}]}],
                }
            ]
        }
    ]
}


def parquet() -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(TABLE, file)
    return file.getvalue()


SEEDS = [
    b'text,label\n"a, b",x\nc,y\n',
    b"text\tlabel\na\tx\n",
    b'{"text": "a", "label": {"b": [1, null, true, 1e400]}}\n{"text": "\\ud800", "label": "\\uac00"}\n',
    b'[{"text": "a"}, {"text": 1}]',
    json.dumps(SQUAD).encode(),
    b'{"tokens": ["a", "b"], "tags": ["O", "B-X"]}\n',
    b"a O\nb B-PER\n\n-DOCSTART- O\n",
    b"1\ta\t_\tNOUN\t_\t_\t0\troot\t_\tSpaceAfter=No\n2-3\tb\t_\t_\t_\t_\t_\t_\t_\t_\n\n",
    b"\xef\xbb\xbf## c\n1\ta\tb\tc\t2\td\n2\ta\tb\tc\t0\td\n",
    '<doc id="1" title="제목">\n제목\n\n본문.\n</doc>\n'.encode(),
    "한글\n".encode("cp949"),
    parquet(),
]
HARD = [
    b"\r",
    b"\n",
    b"\r\n",
    b'"',
    b"\0",
    b"\xff",
    b"\\ud800",
    b"9" * 30,
    b"[" * 3000,
    b'{"a":' * 900,
    b"\t",
    b",",
    b"-",
]


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """A file of some format, with pieces taken out, doubled, changed, and other things put in."""
    data = bytearray(draw(st.sampled_from([*SEEDS, b""])))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        stop = min(len(data), at + draw(st.sampled_from([0, 1, 3, 20])))
        data[at:stop] = draw(st.sampled_from(HARD) | st.binary(max_size=8) | st.just(bytes(data[at:stop] * 2)))
    return bytes(data)


TABLES = [*rows.FORMATS, ""]
READERS: dict[str, Callable[[Path], Iterable[object]]] = {
    **{
        f"table {kind or 'recognised'}": lambda path, kind=kind: tables.stream_examples(
            path, TableFormat.of(kind=kind, labelled=False)
        )
        for kind in TABLES
    },
    **{
        f"tags {kind}": lambda path, kind=kind: tagged.sentences(path, TableFormat.of(kind=kind))
        for kind in tagged.FORMATS
    },
    **{f"trees {kind}": lambda path, kind=kind: conll.trees(path, TableFormat.of(kind=kind)) for kind in conll.FORMATS},
    "questions": questions.questions,
    "questions a line": lambda path: questions.questions(path.rename(path.with_suffix(".jsonl"))),
}


def text_of(found: object) -> str:
    """All a record holds, as it would be written."""
    return json.dumps(vars(found), ensure_ascii=False, default=str)


@pytest.mark.promise("every-record")
@pytest.mark.parametrize("name", READERS)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=mangled())
def test_examples_or_what_is_wrong_with_them(name: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with suppress(BertieError):
        for found in READERS[name](path):
            assert isinstance(found, Example | BadRecord)
            text_of(found).encode()  # what cannot be written would end `predict`


@pytest.mark.promise("every-record")
@pytest.mark.parametrize("kind", [kind for kind, source in sources.SOURCES.items() if not source.scheme])
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=mangled(), ending=st.sampled_from(["", ".gz", ".zst", ".xz", ".bz2"]))
def test_documents_or_what_was_dropped(kind: str, data: bytes, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{ending}"
    path.write_bytes(data)
    reading = ReadOptions(format=kind)
    with suppress(BertieError):
        units, _ = sources.plan_units([str(path)], reading)
        for unit in units:
            for found in sources.read_unit(unit, reading, Counter()):
                assert isinstance(found, str | BadRecord)
