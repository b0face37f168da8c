"""The check before a model is served: its answers to examples must be finite, and equal alone and in a batch.

A file `golden.json` in the model's folder adds requests and their expected answers:

    [{"route": "/predict", "request": {"inputs": "fine soup"}, "answer": [{"score": 0.98, "label": "positive"}]}]
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from bertie.apps.serve.admission import Admission, Budget
from bertie.apps.serve.call import Call
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.routes import BY_PATH, pipeline_of
from bertie.apps.serve.ticket import Ticket
from bertie.platform import BertieError, DataError, File

if TYPE_CHECKING:
    from bertie.apps.serve.served import Served

FILE, MASK = "golden.json", "[MASK]"
ANY_NUMBER = 1 << 62  # of texts, bytes and tokens
TOLERANCE = 1e-3  # of numbers between 0 and 1; relative to larger ones


async def check_golden_answer(model: "Served") -> None:
    """Raises DataError for a wrong or missing answer. The budgets are its own: a busy server loads models too."""
    admission = Admission(Budget("texts", ANY_NUMBER), Budget("bytes", ANY_NUMBER), max_tokens=ANY_NUMBER)
    admission.add(model.name)
    route, request = sample_request(model)
    first, again = [await answered(model, route, request, admission) for _ in range(2)]
    if fault := difference(first, again):
        raise DataError(f"{model.folder}: the same request had two different answers: {fault}.")
    path = model.folder / FILE
    for number, row in enumerate(read_golden(path) if path.is_file() else ()):
        answer = await answered(model, row["route"], row["request"], admission)
        if fault := difference(row["answer"], answer):
            raise DataError(f"{path}: the answer to request {number} is not the one expected: {fault}.")


def sample_request(model: "Served") -> tuple[str, Any]:
    """Returns a route and a request that the model must be able to answer."""
    if task := model.pipeline.task_or_none:
        line = task.sample(model.pipeline.texts or 1)
        row = json.loads(line) if line.startswith("{") else line
        if others := task.sample_columns():
            row = (row if isinstance(row, dict) else {"text": row}) | others
        return "/answer", {"inputs": [row]}
    route = pipeline_of(model)
    mask = model.tokenizer.special_tokens.get("mask") or MASK
    return route.path, json.loads(json.dumps(route.example).replace(MASK, mask))


async def answered(model: "Served", path: str, request: Any, admission: Admission) -> Any:
    """Returns the answer as JSON. Raises DataError for an error."""
    route = BY_PATH[path]
    try:
        with Ticket(model, admission) as ticket:
            answer = await route.work(Call(ticket), route.adapter.validate_python(request))
            return orjson.loads(orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY))
    except (Refusal, BertieError) as error:
        raise DataError(f"{model.folder}: the model does not answer {path}: {error.message}") from None
    except (TypeError, ValueError) as error:
        raise DataError(f"{model.folder}: the model could not be checked at {path}: {error}") from None


def read_golden(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a file. Raises DataError for another form."""
    rows = File(path).read_json()
    if not isinstance(rows, list) or not all(
        isinstance(r, dict) and {"route", "request", "answer"} <= set(r) for r in rows
    ):
        raise DataError(f"{path} is not a list of objects with route, request and answer.")
    for row in rows:
        if row["route"] not in BY_PATH:
            raise DataError(f"{path}: there is no route {json.dumps(row['route'])}.")
    return rows


def difference(expected: object, actual: object, where: str = "answer", *, tolerance: float = TOLERANCE) -> str:
    """Returns where two JSON values differ, numbers by more than `tolerance`; "" if they agree."""
    if isinstance(expected, bool) or not isinstance(expected, (int, float, list, dict)):
        return "" if expected == actual else f"{where} differs"
    if isinstance(expected, (int, float)):
        alike = isinstance(actual, (int, float)) and abs(expected - actual) <= tolerance * max(1.0, abs(expected))
        return "" if alike else f"{where} is {str(actual)[:40]}, not {expected}"
    if type(expected) is not type(actual) or len(expected) != len(actual):
        return f"{where} has another shape"
    pairs = expected.items() if isinstance(expected, dict) else enumerate(expected)
    if isinstance(expected, dict) and set(expected) != set(actual):
        return f"{where} has other keys"
    for key, value in pairs:
        if fault := difference(value, actual[key], f"{where}[{key!r}]", tolerance=tolerance):
            return fault
    return ""
