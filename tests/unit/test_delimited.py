"""Records of a csv are those of the csv module, also where a field is longer than the module allows."""

import csv

from hypothesis import given
from hypothesis import strategies as st

from bertie.io.delimited import LONGEST, Records, separator_of, split
from bertie.io.lines import BadRecord

END = "\0no more"


@given(st.text(alphabet='ab",\n; x', max_size=20))
def test_a_record_is_that_of_the_csv_module(text: str) -> None:
    lines = [line + "\n" for line in text.split("\n")]
    expected = next(csv.reader([*lines, END])) or [""]  # an empty line has one empty value here
    assert split([*lines, END], ",") == (None if expected[-1].endswith(END) else expected)


def test_long_fields_leave_the_limit_of_the_process_alone() -> None:
    limit, long = csv.field_size_limit(), "x" * 200_000
    lines = ["text,label", f'"{long}, ""{long}""', 'more",a', f"{long},b", "c,d"]
    rows = [*Records(enumerate(lines, 1), ",")]
    assert rows == [(1, ["text", "label"]), (3, [f'{long}, "{long}"\nmore', "a"]), (4, [long, "b"]), (5, ["c", "d"])]
    assert csv.field_size_limit() == limit


def test_an_open_quotation_mark_costs_its_line() -> None:
    lines = ["a,b", '"open,c', *["x" * 1000 + ",d"] * 300, "e,f"]
    rows = [row for _, row in Records(enumerate(lines, 1), ",")]
    assert rows[1] == BadRecord(2, "a quotation mark left open")
    assert (len(rows), rows[-1]) == (303, ["e", "f"])
    assert split(['"' + "x" * LONGEST + '"\n'], ",") is None, "what bounds memory"


def test_separators() -> None:
    assert [separator_of(head, 0) for head in ("a,b", "a;b", "a\tb", "a|b", "a", '"a,b";c')] == [*",;\t|,;"]
