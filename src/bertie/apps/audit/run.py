"""An audit of a model folder, from the files of the sets to a page.

OUT/settings.json    the model, the files and the settings
OUT/scores.jsonl     scores as they are computed; a stopped audit resumes from them
OUT/audit.json       every figure
OUT/report.html      the page
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import bertie
from bertie.apps.audit.base import AuditSet, AuditSource, Read, Subject
from bertie.apps.audit.figures import Scored, compute_figures, scored
from bertie.apps.audit.journal import Journal
from bertie.apps.audit.page import render_audit_page
from bertie.apps.audit.sets import SETS
from bertie.platform import (
    DataError,
    File,
    FolderKind,
    ModelFolder,
    ModelInternals,
    PairHead,
    SourceFiles,
    TableFormat,
    TorchModel,
    UsageError,
    console,
    nearest,
)

SETTINGS, SCORES, RESULTS, REPORT = "settings.json", "scores.jsonl", "audit.json", "report.html"
AUDIT = FolderKind("audit", begins=(SETTINGS,), files=(SETTINGS, SCORES, RESULTS, REPORT))
_AUDIT_FORMAT = 1  # of audit.json
HEAD_BYTES = 4096  # of a file, read to recognize it


@dataclass(frozen=True)
class Asked:
    """What is audited.

    data: files and folders of published or own sets. sets: their names; none: all that are there and that the model can
    have. table, group, format: labeled texts for a classifier, and the column of the group. limit: items of each set,
    drawn at random. controls: whether a model with random weights is scored too.
    """

    data: tuple[Path, ...] = ()
    sets: tuple[str, ...] = ()
    table: Path | None = None
    group: str = ""
    format: TableFormat = field(default_factory=TableFormat)
    limit: int | None = None
    controls: bool = True
    seed: int = 0


def audit(
    model: Path | str,
    request: Asked | None = None,
    *,
    out: Path | None = None,
    overwrite: bool = False,
    device: str | None = None,
    precision: str | None = None,
    engine: str = "auto",
    keep: dict[str, Scored] | None = None,
) -> dict[str, Any]:
    """Audits a model and returns the content of audit.json. With `out`, the same call resumes a stopped audit.

    keep: receives the items and scores of each set, by name.

    Raises UsageError when the model lacks the head of a named set, or can have none of the sets; DataError for missing
    or damaged files.
    """
    folder, request = ModelFolder(model).path, request or Asked()
    sources = found_sources(request)
    loaded = bertie.load(folder, device or "auto", precision or "fp32", "torch").module
    loaded.training_facts.check_texts_decide("bertie audit")
    run = _Run(request, loaded, folder, engine, {} if keep is None else keep)
    chosen, lacking = chosen_sets(run.subject, request, sources)
    read = {name: SETS[name].read(run.subject, sources[name]) for name in chosen}  # what is wrong is reported now
    where = {"precision": precision or "fp32", "device": str(loaded.device)}
    with _journal(out, _settings(folder, request, sources) | where, overwrite=overwrite) as journal:
        results = {name: run.result(name, SETS[name], sources[name], read[name], journal) for name in chosen}
        lacking |= {name: result for name, result in results.items() if isinstance(result, str)}
        measured = [result for result in results.values() if not isinstance(result, str)]
        if not measured or any(name in lacking for name in request.sets):
            raise DataError(
                " ".join(f"{name} cannot be measured: {lacking[name]}." for name in chosen if name in lacking)
            )
        content = {
            "format": _AUDIT_FORMAT,
            "model": str(model),
            "fingerprint": ModelFolder(folder).fingerprint,
            "architecture": str(loaded.public.get("architectures", [""])[0]),
            "parameters": sum(one.numel() for one in loaded.own_parameters().values()),
            "seed": request.seed,
            "sets": measured,
            "not_measured": lacking,
        }
        if out is not None:
            File(out / RESULTS).write_json(content)
            with console.no_failure(out / REPORT):
                render_audit_page(content).save(out / REPORT)
            AUDIT.seal(out)
    return content


def found_sources(request: Asked) -> dict[str, AuditSource]:
    """Returns what each set reads. Raises DataError for a missing path, or one that no set recognizes."""
    paths: dict[str, list[Path]] = {name: [] for name in SETS}
    for path in request.data:
        if not path.exists():
            raise DataError(f"{path} does not exist.")
        inside = SourceFiles.inside(path) if path.is_dir() else SourceFiles([str(path)], [], [])
        if inside.unread:
            console.warn(inside.unread)
        known = [(name, file) for file in map(Path, inside.names) for name in _recognized(file)]
        if not known:
            raise DataError(
                f"No audit set was recognized in {path}. Known are the published files of CrowS-Pairs, StereoSet, "
                "BBQ, KoBBQ and WEAT/SEAT, and own word sets and templates (bertie help audit)."
            )
        for name, file in known:
            paths[name].append(file)
    return {name: AuditSource(tuple(paths[name]), request.table, request.format, request.group) for name in SETS}


def _recognized(file: Path) -> list[str]:
    with open(file, "rb") as opened_file:
        head = opened_file.read(HEAD_BYTES)
    return [name for name, one in SETS.items() if one.recognizes(file, head)]


def chosen_sets(
    subject: Subject, request: Asked, sources: Mapping[str, AuditSource]
) -> tuple[list[str], dict[str, str]]:
    """Returns the sets to measure, and why the model cannot have the others that are there.

    Raises UsageError for an unknown set, a named set that cannot be measured, or no set at all.
    """
    for name in request.sets:
        if name not in SETS:
            raise UsageError(f"Unknown audit set {name!r}. {nearest(name, SETS)}")
    lacks = {name: one.missing(subject) for name, one in SETS.items()}
    can = [name for name in SETS if not lacks[name]]
    there = [name for name, one in SETS.items() if one.offered(sources[name])]
    for name in request.sets:
        if lacks[name]:
            raise UsageError(f"{name} needs {lacks[name]}. This model can have: {', '.join(can)}.")
        if name not in there:
            raise UsageError(f"{name} has no data. {SETS[name].remedy}")
    chosen = [name for name in there if name in can and (not request.sets or name in request.sets)]
    lacking = {name: f"it needs {lacks[name]}" for name in there if lacks[name] and not request.sets}
    if not chosen:
        raise UsageError(
            f"This model can have none of the sets given. It can have: {', '.join(can)}.", code="wrong-model"
        )
    for name, reason in lacking.items():
        console.warn(f"{name} is left out: {reason}.")
    return chosen, lacking


@dataclass
class _Run:
    """The audit of one model."""

    request: Asked
    model: TorchModel
    folder: Path
    engine: str
    scores: dict[str, Scored]

    @cached_property
    def subject(self) -> Subject:
        """The model."""
        return self._subject(self.model)

    @cached_property
    def random(self) -> Subject:
        """The same model with random weights."""
        return self._subject(self.model.randomized(self.request.seed))

    def _subject(self, model: TorchModel) -> Subject:
        if model.tokenizer is None:
            raise UsageError(
                f"{self.folder} has no tokenizer. Copy its files (tokenizer.json or vocab.txt) into the folder."
            )
        return Subject(
            ModelInternals(model).engine(self.engine),
            model.tokenizer,
            PairHead.of(self.folder).kind if "pair" in model.heads else "",
        )

    def result(
        self, name: str, audited: AuditSet[Any], source: AuditSource, read: Read[Any], journal: Journal
    ) -> dict[str, object] | str:
        """Returns the results of one set as JSON values, or the reason why it has none."""
        items = self._limited(read)
        if not items:
            return " ".join(read.notes).rstrip(".") or "it has no items"
        own = self._scores(name, audited, items, self.subject, journal)
        kept_items, kept_scores = self.scores[name] = scored(items, own)
        if not kept_items:
            return f"none of {len(items):,} items has a score: {own[0]}"
        random = None
        if self.request.controls:
            random = self._scores(f"{name}, random weights", audited, items, self.random, journal)
        figures = compute_figures(audited, items, own, random, seed=self.request.seed)
        examples = audited.examples(kept_items, kept_scores)
        return {
            "name": name,
            "title": audited.title,
            "about": audited.about,
            "criticism": audited.criticism,
            "unit": audited.unit,
            "scale": audited.scale,
            "files": [path.name for path in source.paths],
            "items": len(kept_items),
            "notes": [*read.notes, *_skipped(read), *_left_out(own)],
            "figures": [figure.as_json() for figure in figures],
            "examples": examples and {"title": examples.title, "columns": examples.columns, "rows": examples.rows},
        }

    def _limited(self, read: Read[Any]) -> list[object]:
        limit = self.request.limit
        if limit is None or len(read.items) <= limit:
            return read.items
        chosen = np.random.default_rng(self.request.seed).choice(len(read.items), limit, replace=False)
        read.notes.append(f"A random sample of {limit:,} of {len(read.items):,} items.")
        return [read.items[i] for i in sorted(chosen.tolist())]

    def _scores(
        self, name: str, audited: AuditSet[Any], items: Sequence[object], subject: Subject, journal: Journal
    ) -> list[object]:
        def compute(chunk: Sequence[object]) -> list[Any]:
            return audited.scores(subject, chunk)

        return journal.scores(name, items, compute, audited.chunk, "items")


def _skipped(read: Read[Any]) -> list[str]:
    return [f"{file}: {report}" for file, report in read.skipped.items() if report.total]


def _left_out(scores: Sequence[object]) -> list[str]:
    reasons = [score for score in scores if isinstance(score, str)]
    return [f"{reasons.count(one):,} of {len(scores):,} items left out: {one}." for one in dict.fromkeys(reasons)]


def _settings(folder: Path, request: Asked, sources: Mapping[str, AuditSource]) -> dict[str, Any]:
    files = {path for source in sources.values() for path in source.paths} | ({request.table} - {None})
    return {
        "format": _AUDIT_FORMAT,
        "version": bertie_version(),
        "model": ModelFolder(folder).fingerprint,
        "files": {str(path): File(path).hash for path in sorted(files, key=str) if path is not None},
        "sets": list(request.sets),
        "group": request.group,
        "columns": [*request.format.columns.text, request.format.columns.label],
        "reading": [
            request.format.file.kind,
            request.format.file.encoding,
            *request.format.file.names,
            *request.format.labels.names.items(),
        ],
        "limit": request.limit,
        "seed": request.seed,
    }


def bertie_version() -> str:
    """Returns the version of Bertie."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(bertie.__name__)
    except PackageNotFoundError:  # a source tree that was never installed
        return ""


@contextmanager
def _journal(out: Path | None, settings: Mapping[str, object], *, overwrite: bool) -> Iterator[Journal]:
    """Context with the journal of a locked folder. Raises UsageError for the folder of another audit."""
    if out is None:
        yield Journal(None)
        return
    with AUDIT.held(out, overwrite=overwrite):
        path = out / SETTINGS
        if path.exists():
            AUDIT.check_unchanged(out, File(path).read_json(), settings)
        AUDIT.unseal(out)
        File(path).write_json(settings)
        yield Journal(out / SCORES)
