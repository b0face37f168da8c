"""The rows that sentence embeddings are learned from, by their columns.

    text, text, score                               "scored"     two texts and how alike they are
    anchor, positive, negative, negative_2 ...      "positive"   a text, one of the same meaning, others that differ
    anchor, positive, negative ..., scores          "judged"     the same with a cross-encoder's scores, or their margin
    anchor, positive, negative, score_positive ...  "judged"     the same with a column for each score
    text, label                                     "labeled"    texts of a label are alike

The texts of an example are in this order: the anchor, its positive text, and the negative ones.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from numbers import Real
from typing import Literal, TypeAlias

from bertie.errors import DataError, WrongValue
from bertie.io.columns import LookAhead, columns_of_numbers, find_columns
from bertie.io.fields import Fields, Template, columns_in, is_template, number_of
from bertie.io.header import LABEL_COLUMNS
from bertie.io.lines import BadRecord
from bertie.io.memory import PAIR_FIELDS
from bertie.io.table_format import Columns
from bertie.io.tables import Example, example
from bertie.tasks.regression import RegressionTask

Form: TypeAlias = Literal["scored", "positive", "judged", "labeled"]
LossName: TypeAlias = Literal["cosine", "cosent", "contrastive", "in_batch_negatives", "triplet", "margin_mse", "kl"]
ALIKE = 0.8  # of the highest score: from here on, the texts of a pair have one meaning
FORMS: dict[Form, str] = {
    "scored": "pairs of texts with a score",
    "positive": "an anchor and a positive text",
    "judged": "an anchor, a positive text and negative texts with scores",
    "labeled": "texts with a label",
}
ANCHORS = ("anchor", "query", "question", "text")
NEGATIVE = re.compile(r"(hard_)?negatives?(_?\d+)?")
SCORE_COLUMNS = ("score", "similarity", "similarity_score", "점수", "유사도")  # of how alike two texts are
JUDGMENT_COLUMNS = ("scores", "margin")  # columns of what a cross-encoder says of triples


def form_of(row: Example) -> Form:
    """Returns the form of a row."""
    if row.group is not None:
        return "positive"
    if len(row.texts) == 1:
        return "labeled"
    return "judged" if isinstance(row.label, tuple) else "scored"


def form_of_all(examples: Sequence[Example]) -> Form:
    """Returns the form of all rows. Raises DataError for rows of different forms."""
    forms = {form_of(example): example.line for example in examples}
    if len(forms) > 1:
        shown = ", ".join(f"{FORMS[form]} (line {line})" for form, line in forms.items())
        raise DataError(f"The rows have different forms: {shown}. Use one table for each.")
    return next(iter(forms))


def columns_of_rows(names: Sequence[str], columns: Columns, where: str, look: LookAhead) -> Columns:
    """Returns the columns of the texts, in order, and of the score or the label; label None: there is none.

    Raises DataError with the available names.
    """
    if columns.labelled:  # an object of JSON may leave out a negative text, and the first one may do so too
        names = tuple(dict.fromkeys(chain(names, *look())))
    text = columns.text or _texts_among(names)
    if not text and {*chain(*map(columns_in, columns.usual_text))} <= {*names}:
        text = columns.usual_text
    if not columns.labelled and not columns.text:
        text = text[:2]  # a similarity is that of two texts
    usual = (
        columns.label,
        columns.usual_label,
        *(JUDGMENT_COLUMNS if len(text) > 2 else SCORE_COLUMNS),
        *LABEL_COLUMNS,
    )
    label = next((name for name in usual if name and name in names and name not in text), columns.label)
    if label is not None and label not in names and len(text) > 2:
        label = _judgments_among(names, text) or label
    if len(text) == 1 or not columns.labelled or (label and len(text) < 3):
        return find_columns(names, replace(columns, text=text, label=label), where, look)
    if len(text) > 1:
        for name in (*text, *filter(None, (label,))):  # says which one there is not
            find_columns(names, replace(columns, text=(name,), label=None), where)
        return replace(columns, text=text, label=label or None)
    pair = find_columns(names, replace(columns, label=None), where, look)
    if len(pair.text) != 2:
        return find_columns(names, columns, where, look)
    scores = columns_of_numbers([name for name in names if name not in pair.text], columns, look())
    return find_columns((*pair.text, *scores), replace(columns, text=pair.text), where, look) if scores else pair


def _texts_among(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns of an anchor, a positive and the negative texts; none where there are no such names."""
    first = next((name for name in ANCHORS if name in names), None)
    if first is None or "positive" not in names:
        return ()
    return (first, "positive", *(name for name in names if NEGATIVE.fullmatch(name)))


def _judgments_among(names: Sequence[str], text: Sequence[str]) -> str:
    """Returns a template of the columns with a score for each passage, such as score_positive; "" without them."""
    forms = ([form.format(name) for name in text[1:]] for form in ("score_{}", "{}_score"))
    return next((" ".join(f"{{{name}}}" for name in own) for own in forms if {*own} <= {*names}), "")


def example_of_row(fields: Fields, columns: Columns, line: int) -> Example | BadRecord:
    """Returns the example of a row: its label is a score, the scores of its passages, a name, or None."""
    if len(columns.text) == 2 and columns.label is not None:
        return RegressionTask.example(fields, columns, line)
    if len(columns.text) < 2:
        return example(fields, columns, line)
    anchor, positive, *_ = columns.text
    passages = [(name, cell) for name in columns.text[1:] for cell in _cells(fields, name)]
    filled = [(name, cell) for name, cell in passages if name == positive or str(cell or "").strip()]
    if sum(name == positive for name, _ in filled) > 1:
        return BadRecord(line, f"{positive} has several texts; one was expected")
    own = {f"{name} {n}" if n else name: cell for n, (name, cell) in enumerate(filled)}
    row = example({**fields, **own}, replace(columns, text=(anchor, *own), label=None), line)
    if isinstance(row, BadRecord) or columns.label is None:
        return row
    names = columns_in(columns.label)
    cells = [fields.get(name) for name in names]  # of a template, a column for each score
    by_column = [cell for cell in cells if str(cell or "").strip()]
    scores, count = _scores(by_column if is_template(columns.label) else cells[0]), len(filled)
    label = ", ".join(names)
    if isinstance(scores, str):
        return BadRecord(line, f"{label} {scores}")
    if len(scores) == 1 and count == 2:
        scores = (scores[0], 0.0)  # of which the difference is learned
    if len(scores) != count:
        return BadRecord(line, f"{label} has {len(scores)} numbers for {count} texts after the anchor")
    return replace(row, label=scores)


def row_of_tuple(values: Sequence[object]) -> Mapping[str, object]:
    """Returns the values of a tuple by column: texts, and after them a score or the scores of the passages."""
    if isinstance(values[0], tuple | list):  # ((text, text), score)
        values = (*values[0], *values[1:])
    judged = isinstance(values[-1], list | tuple | Real)
    texts = values[: len(values) - judged]
    if len(texts) < 2 or not all(isinstance(text, str | None) for text in texts):
        raise WrongValue(
            f"A row is {str(tuple(values))[:80]}; two texts or more, and after them scores, were expected."
        )
    names = ("anchor", "positive", *(f"negative_{n}" for n in range(1, len(texts) - 1)))
    if not judged:
        return dict(zip(names, texts, strict=True))
    if len(texts) == 2:
        return dict(zip((*PAIR_FIELDS, "label"), values, strict=True))
    return dict(zip(names, texts, strict=True)) | {"scores": values[-1]}


def as_positive(row: Example) -> Example:
    """Returns a row without a score or a label as one whose second text has the meaning of the first."""
    return replace(row, label=1.0, group=f"line {row.line}")


def _cells(fields: Fields, name: str) -> Sequence[object]:
    """Returns the texts of a column or of a template: one, or those of a list."""
    value = Template.of(name).fill(fields) if name not in fields and is_template(name) else fields.get(name)
    return value if isinstance(value, list) and value else [value]


def _scores(value: object) -> tuple[float, ...] | str:
    """Returns the numbers of a cell: one, or several as a list. What is wrong with it otherwise."""
    if isinstance(value, str) and value.strip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return "is no list of numbers"
    numbers = [number_of(str(one)) for one in (value if isinstance(value, list) else [value])]
    wrong = next((number for number in numbers if isinstance(number, str)), None)
    return wrong if wrong is not None else tuple(number for number in numbers if isinstance(number, float))


def check_labels(examples: Iterable[Example]) -> None:
    """Raises DataError where no two texts have the same label, or all have."""
    labels = [example.label for example in examples]
    if len({*labels}) == len(labels):
        raise DataError(
            "Embeddings are trained on pairs of texts, or on texts whose labels repeat: every text has another label. "
            "Pass --text for both columns of a pair."
        )
    if len({*labels}) == 1:
        raise DataError(f"All texts have the label {labels[0]!r}, so no texts are different.")
