"""The zip file for GLUE's server: a file per test set, "index<TAB>prediction", in the order of the rows.

Names and labels are those of gluebenchmark.com. Written files are checked by the same rules as given ones.
"""

import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import bertie
from bertie.platform import BadRecord, DataError, File, Predictor, UsageError, nearest

HEADER = "index\tprediction"
STSB = (0.0, 5.0)


@dataclass(frozen=True)
class TestSet:
    """One file of a submission, and its test set."""

    data: str
    split: str = "test"


GLUE_FILES = {
    "CoLA.tsv": TestSet("cola"),
    "SST-2.tsv": TestSet("sst2"),
    "MRPC.tsv": TestSet("mrpc"),
    "STS-B.tsv": TestSet("stsb"),
    "QQP.tsv": TestSet("qqp"),
    "MNLI-m.tsv": TestSet("mnli"),
    "MNLI-mm.tsv": TestSet("mnli", "test_mismatched"),
    "QNLI.tsv": TestSet("qnli"),
    "RTE.tsv": TestSet("rte"),
    "WNLI.tsv": TestSet("wnli"),
    "AX.tsv": TestSet("ax"),
}
ANSWERED_BY = {"ax": "mnli"}  # the diagnostic set is for the model of MNLI


def test_answers(predictor: Predictor, test: TestSet, data_dir: Path) -> tuple[list[str], int]:
    """Returns the prediction for every row of a test set, and the number of unreadable rows, which get the first label
    or 0."""
    dataset = bertie.data_sets([test.data])[0]
    answers = predictor.stream_published(test.data, test.split, data_dir)
    if dataset.labels and set(predictor.labels) != set(dataset.labels):
        raise DataError(
            f"{test.data} has the labels {', '.join(dataset.labels)}, but this model has {', '.join(predictor.labels)}."
        )
    cells, unread = [], 0
    for _, answer in answers:
        if isinstance(answer, BadRecord):
            unread += 1
            cells.append(dataset.labels[0] if dataset.labels else "0")
        elif isinstance(answer.label, float):
            cells.append(f"{min(max(answer.label, STSB[0]), STSB[1]):z.3f}")
        else:
            cells.append(str(answer.label))
    return cells, unread


def write_submission(predictors: Mapping[str, Predictor], data_dir: Path, path: Path) -> list[str]:
    """Writes the zip file of the data sets with a model, and returns warnings. Nothing is written on an error.

    predictors: by data set. Raises UsageError for a data set outside GLUE, DataError for missing files or a wrong
    model.
    """
    sets = {test.data for test in GLUE_FILES.values()}
    for name in predictors:
        if name not in sets:
            raise UsageError(f"{name!r} is not a data set of GLUE. {nearest(name, sets)}")
    notes, raw = [], io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, test in GLUE_FILES.items():
            predictor = predictors.get(test.data) or predictors.get(ANSWERED_BY.get(test.data, ""))
            if predictor is None:
                notes.append(f"{file} is missing: no model of {test.data}")
                continue
            answers, unread = test_answers(predictor, test, data_dir)
            if unread:
                notes.append(f"{file}: {unread:,} rows cannot be read and have the first label")
            lines = [HEADER, *(f"{index}\t{answer}" for index, answer in enumerate(answers))]
            content = "\n".join(lines) + "\n"
            archive.writestr(zipfile.ZipInfo(file), content, zipfile.ZIP_DEFLATED)  # ZipInfo: no clock, the same bytes
    problems = check_submission(raw.getvalue(), complete=False)
    if problems:
        raise DataError(f"The submission is not valid: {'; '.join(problems)}.")
    with File(path).write() as written:
        written.write(raw.getvalue())
    return notes


def check_submission(raw: bytes, *, complete: bool = True) -> list[str]:
    """Returns the errors of a submission: files, rows, indices, labels. complete: whether every file must exist."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(raw))
        files = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, NotImplementedError) as error:
        return [f"it is not a readable zip ({error})"]
    problems = [
        f"{name} is not a file of GLUE (files must not be in a folder inside the zip)"
        for name in files.keys() - GLUE_FILES
    ]
    problems += [f"{name} is missing" for name in GLUE_FILES if complete and name not in files]
    for name, test in GLUE_FILES.items():
        if name in files:
            problems += [f"{name}: {problem}" for problem in _problems(files[name], test)]
    return problems


def _problems(raw: bytes, test: TestSet) -> list[str]:
    dataset = bertie.data_sets([test.data])[0]
    expected = dataset.splits[test.split].examples
    header, *lines = raw.decode("utf-8", "replace").removesuffix("\n").split("\n")
    problems = [] if header == HEADER else [f"the first line is {header[:40]!r}, not {HEADER!r}"]
    if len(lines) != expected:
        problems.append(f"{len(lines):,} rows instead of {expected:,}")
    for index, line in enumerate(lines):
        number, _, answer = line.partition("\t")
        if number != str(index):
            return [*problems, f"row {index + 1:,} has the index {number[:20]!r}, not {index}"]
        if not _is_answer(answer, dataset.labels):
            allowed = " or ".join(dataset.labels) or f"a number from {STSB[0]:g} to {STSB[1]:g}"
            return [*problems, f"row {index + 1:,} has {answer[:40]!r}, not {allowed}"]
    return problems


def _is_answer(answer: str, labels: tuple[str, ...]) -> bool:
    if labels:
        return answer in labels
    try:
        return STSB[0] <= float(answer) <= STSB[1]
    except ValueError:
        return False
