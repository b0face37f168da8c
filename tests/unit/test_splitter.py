"""Records of a csv are those of the csv module, also over several lines and beyond the longest field it allows."""

import csv

from hypothesis import given
from hypothesis import strategies as st

from bertie.io.delimited import _MAX_RECORD_CHARACTERS, RETURN, RecordSplitter, separator_of, split_records
from bertie.io.lines import BadRecord

END = "\0no more"
OPEN = "a quotation mark left open"


@given(st.text(alphabet='ab",\n; x', max_size=30))
def test_records_are_those_of_the_csv_module(text: str) -> None:
    lines = text.split("\n")
    expected = [*csv.reader([*(line + "\n" for line in lines), END])]
    records = [*split_records(enumerate(lines, 1), ",")]
    if expected[-1] == [END]:  # no mark is left open
        values = [row if isinstance(row, list) else row.reason for _, row in records]
        assert values == [row or "empty line" for row in expected[:-1]]
    else:
        assert any(isinstance(row, BadRecord) and row.reason == OPEN for _, row in records)


@given(st.text(alphabet='ab",\n\r', max_size=30))
def test_no_line_is_lost(text: str) -> None:
    """Each line is a record, a part of one, or has its reason."""
    lines = text.split("\n")
    records = [*split_records(enumerate(lines, 1), ",")]
    numbers = [number for number, _ in records]
    inside = sum(value.count("\n") for _, row in records if isinstance(row, list) for value in row)
    assert numbers == sorted(numbers)
    assert len(records) + inside == len(lines)


def test_a_record_ends_when_its_last_line_is_fed() -> None:
    splitter = RecordSplitter(";")
    assert [*splitter.feed(1, "a;b")] == [(1, ["a", "b"])]
    assert [*splitter.feed(2, 'x;"one')] == [*splitter.feed(3, "two")] == []
    assert [*splitter.feed(4, 'three ""3""";y')] == [(4, ["x", 'one\ntwo\nthree "3"', "y"])]
    assert [*splitter.feed(5, '"open')] == [*splitter.feed(6, "z")] == []
    assert [*splitter.close()] == [(5, BadRecord(5, OPEN)), (6, ["z"])]
    assert [*splitter.close()] == []


def test_a_line_that_cannot_be_decoded_costs_its_record() -> None:
    bad = BadRecord(2, "not utf-8")
    assert [*split_records([(1, '"a'), (2, bad), (3, 'b"'), (4, "c")], ",")] == [(2, bad), (4, ["c"])]
    assert [*split_records([(2, bad), (4, "c")], ",")] == [(2, bad), (4, ["c"])]


def test_a_carriage_return_outside_of_marks_costs_its_line() -> None:
    lines = ["a\rb", '"a\rb",c', '"a"\rb', '"a', 'b"\rc', "d"]
    rows = [row if isinstance(row, list) else row.reason for _, row in split_records(enumerate(lines, 1), ",")]
    assert rows == [RETURN, ["a\rb", "c"], RETURN, OPEN, RETURN, ["d"]]


def test_long_fields_leave_the_limit_of_the_process_alone() -> None:
    limit, long = csv.field_size_limit(), "x" * 200_000
    lines = ["text,label", f'"{long}, ""{long}""', 'more",a', f"{long},b", f'"{long}",c', "c,d"]
    rows = [*split_records(enumerate(lines, 1), ",")]
    assert rows == [
        (1, ["text", "label"]),
        (3, [f'{long}, "{long}"\nmore', "a"]),
        (4, [long, "b"]),
        (5, [long, "c"]),
        (6, ["c", "d"]),
    ]
    assert csv.field_size_limit() == limit


def test_an_open_quotation_mark_costs_its_line() -> None:
    lines = ["a,b", '"open,c', *["x" * 1000 + ",d"] * 300, "e,f"]
    rows = [row for _, row in split_records(enumerate(lines, 1), ",")]
    assert rows[1] == BadRecord(2, OPEN)
    assert (len(rows), rows[-1]) == (303, ["e", "f"])


def test_memory_is_bounded_where_a_mark_is_left_open() -> None:
    splitter, line = RecordSplitter(), "x" * (_MAX_RECORD_CHARACTERS // 2)
    assert [*splitter.feed(1, '"open')] == [*splitter.feed(2, line)] == []
    assert [type(row) for _, row in splitter.feed(3, line)] == [BadRecord, list, list]


def test_separators() -> None:
    assert [separator_of(head, 0) for head in ("a,b", "a;b", "a\tb", "a|b", "a", '"a,b";c')] == [*",;\t|,;"]
