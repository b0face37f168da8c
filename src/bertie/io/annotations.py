"""Records of annotation programs as fields that the readers know: the columns of a text, `label`, `entities`.

    Label Studio   {"data": {"text": ...}, "annotations": [{"result": [{"from_name", "type", "value"}]}]}, and a JSON
                   list or {"choices": [...]} as a value or in a cell
    Prodigy        {"text", "options": [...], "accept": ["A"], "answer": "accept"}
    spaCy          ["text", {"entities": [[0, 3, "PER"]], "cats": {"A": 1.0}}]
    doccano        {"text", "label": [[0, 3, "PER"]]} or {"text", "label": ["A"]}: nothing to change

A record of another form is returned as it is.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from bertie.files import Json, JsonObject

UNUSED = ("reject", "ignore")  # answers in Prodigy
PROGRAM = (  # columns that programs add, which are neither texts nor labels
    *("id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement", "Comments"),
    *("_input_hash", "_task_hash", "_view_id", "_annotator_id", "_session_id", "_timestamp", "answer"),
)
_SKIPPED = "was_cancelled"
CHOSEN, COUNTED = ("choices", "taxonomy"), ("rating", "number")  # keys of a value of Label Studio without a place


def records_of(value: object, *, labelled: bool = True) -> Iterator[object]:
    """Yields the records of one JSON value: of a task of Label Studio, one for each annotation that was submitted.

    labelled: whether annotations are wanted; without, a task is one record.
    """
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict):
        value = {"text": value[0], **value[1]}
    if not isinstance(value, dict):
        yield value
    elif isinstance(value.get("data"), dict) and ("annotations" in value or "completions" in value):
        yield from _tasks(value, labelled)
    else:
        yield _record(value)


def _record(value: Json) -> Json:
    """Returns a record with its labels as a list, where a program wrote them in another way."""
    changed: JsonObject = {}
    cats = value.get("cats")
    if isinstance(cats, dict) and "label" not in value:
        changed["label"] = [name for name, share in cats.items() if isinstance(share, int | float) and share >= 0.5]
    elif isinstance(cats, list) and "label" not in value:
        changed["label"] = cats
    if isinstance(value.get("accept"), list) and "options" in value and "label" not in value:
        changed["label"] = value["accept"]
    for name, one in value.items():
        if isinstance(one, dict | list) and (labels := labels_in(one)) is not one:
            changed[name] = labels
    return {**value, **changed} if changed else value


def labels_in(value: Any) -> Any:
    """Returns the labels in a value of Label Studio: {"choices": [...]}, a list of these, or of {"rating": 4}.

    Another value is returned as it is, also a list of entities.
    """
    parts, known = (value, CHOSEN + COUNTED) if isinstance(value, list) else ([value], CHOSEN)
    if not parts or not all(isinstance(one, dict) and len(one) == 1 and {*one} <= {*known} for one in parts):
        return value
    inner = [one for part in parts for one in part.values()]
    flat = [label for one in inner for label in (one if isinstance(one, list) else [one])]
    return ["/".join(map(str, label)) if isinstance(label, list) else label for label in flat]  # a branch of a taxonomy


def cell_labels(cell: str) -> Any:
    """Returns the labels or entities that a cell of a table has as JSON; the cell itself where it is no JSON."""
    text = cell.strip()
    if not (text.startswith(("[", '{"choices"', '{"taxonomy"')) and text.endswith(("]", "}"))):
        return cell
    try:
        return labels_in(json.loads(text))
    except (ValueError, RecursionError):
        return cell


def _tasks(task: Json, labelled: bool) -> Iterator[Mapping[str, object]]:
    """Yields the records of a task of Label Studio, as its own export JSON-MIN has them."""
    items = task["annotations"] if "annotations" in task else task["completions"]
    base = {**task["data"], **({"id": task["id"]} if "id" in task else {})}
    annotations = [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
    if not annotations or not labelled:
        yield base
        return
    for one in annotations:
        if one.get(_SKIPPED) or one.get("skipped"):
            yield {**base, _SKIPPED: True}
            continue
        results = one.get("result")
        values_by_name: dict[str, list[object]] = {}
        for result in results if isinstance(results, list) else []:
            if isinstance(result, dict) and isinstance(result.get("value"), dict) and result.get("from_name"):
                values_by_name.setdefault(str(result["from_name"]), []).append(result["value"])
        answers = {name: labels_in(values) for name, values in values_by_name.items()}
        yield {**base, **answers, "annotation_id": one.get("id", 0)}


def why_unused(fields: Mapping[str, object]) -> str:
    """Returns why an annotator left a row without an answer; "" for a row with one."""
    if fields.get("answer") in UNUSED:
        return f"answer is {fields['answer']}"
    return "skipped by the annotator" if fields.get(_SKIPPED) in (True, "true") else ""


def is_annotated(fields: Mapping[str, object]) -> bool | None:
    """Returns whether somebody annotated a row of Label Studio, which then may have no label; None for another row."""
    return fields["annotation_id"] not in (None, "") if "annotation_id" in fields else None
