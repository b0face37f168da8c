"""Integrity check of a folder that Bertie wrote: are all files intact, consistent and reproducible?"""

import itertools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import xxhash
import yaml

from bertie import checksums
from bertie import settings as configs
from bertie.data import plans
from bertie.data.corpus import covered
from bertie.data.shards import Shards
from bertie.data.tokens import home
from bertie.errors import BadFile, BertieError, DataError, UsageError
from bertie.files import JsonObject, read_small
from bertie.folders import check_folder_kind
from bertie.models import families
from bertie.models import variant as models
from bertie.models.files import hash_model_folder, is_export
from bertie.models.model import TorchModel
from bertie.models.saving import check_vocabulary
from bertie.runs.config import FinetuneConfig, PretrainConfig, choose_config_class
from bertie.runs.folder import AGAINST, CONFIG, RESULTS, STUDY, read_results, seed_runs
from bertie.runs.layout import MODEL, OUTLINE
from bertie.runs.models import model_folder
from bertie.runs.run_data import models_named, read_captions
from bertie.text.formats import TOKENIZER_FILES
from bertie.text.tokenizer import Tokenizer
from bertie.train import checkpoint, log

_DAMAGED_FILES_SHOWN = 5  # damaged files named in one message


@dataclass(frozen=True)
class Check:
    """A check of a folder.

    Attributes:
        name: What was checked.
        ok: Whether it is as it was written.
        result: What is there, or what is wrong.
    """

    name: str
    ok: bool
    result: str


@dataclass(frozen=True)
class Verification:
    """The checks of a folder.

    Attributes:
        folder: The folder.
        checks: The checks.
    """

    folder: Path
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether all checks are fine."""
        return all(check.ok for check in self.checks)

    def to_dict(self) -> dict[str, object]:
        """Returns the checks as JSON values."""
        return {"run": str(self.folder), "ok": self.ok, "checks": [{**vars(check)} for check in self.checks]}

    def text(self) -> str:
        """Returns one line for each check."""
        width = max(len(check.name) for check in self.checks)
        rows = [f"{'ok ' if one.ok else 'BAD'}  {one.name:<{width}}  {one.result}" for one in self.checks]
        return "\n".join(rows)

    def raise_if_damaged(self) -> None:
        """Raises DataError unless all checks are fine."""
        if wrong := [check.name for check in self.checks if not check.ok]:
            raise DataError(f"{self.folder} failed the check of: {', '.join(wrong)}.")


def verify_folder(folder: Path | str) -> Verification:
    """Checks a folder that Bertie wrote: a run, runs with several seeds or from two models, trials, a corpus, a
    tokenizer, a model.

    Every byte of every file is compared with its checksum. For a run, this includes the folders that it reads.
    Raises DataError when the folder is none of these.
    """
    folder = Path(folder)
    return Verification(folder, tuple(_checked(name, look) for name, look in _looks(folder)))


def run_config(run: Path) -> PretrainConfig | FinetuneConfig:
    """Returns the config of a run. Raises DataError when it is missing or damaged."""
    if not (run / CONFIG).is_file():
        check_folder_kind(run, "run")
        raise DataError(f"{run} is not a run: it has no {CONFIG}. Pass the folder of a single run.")
    try:
        tree = configs.read_yaml(run / CONFIG)
        kind: type[PretrainConfig | FinetuneConfig] = choose_config_class(tree)
        return configs.build_config(kind, tree)
    except (UsageError, yaml.YAMLError) as error:
        raise DataError(f"{run / CONFIG} cannot be used: {error}") from None


def run_identity(run: Path) -> JsonObject:
    """Returns the fingerprint of a run: from its results, or from its newest checkpoint."""
    if (run / RESULTS).exists():
        return dict(read_results(run).get("identity", {}))
    newest = checkpoint.latest(run)
    return {} if newest is None else dict(newest.state["identity"])


Look = tuple[str, Callable[[], str]]


def _looks(folder: Path) -> Iterator[Look]:
    """Yields the checks: a name, and a function that returns a message or raises an error."""
    if (folder / CONFIG).is_file():
        yield from _run_looks(folder)
    elif seeds := seed_runs(folder):
        for seed in seeds:
            yield from ((f"{seed.name}: {name}", look) for name, look in _run_looks(seed))
    elif starts := [folder / name for name in AGAINST if (folder / name).is_dir()]:
        for start in starts:
            yield from ((f"{start.name}: {name}", look) for name, look in _looks(start))
        return
    elif (folder / STUDY).is_file():
        if (folder / RESULTS).exists() or (folder / MODEL).exists():  # a search writes both at its end
            yield "model", partial(_opens, folder / MODEL)
        for path in sorted(folder.glob("*=*/checkpoint-*")):
            yield f"{path.parent.name}: {path.name}", partial(_checkpoint, path.parent, path)
    elif (folder / "manifest.json").is_file():
        yield "shards", partial(_shards, folder)
        yield from ((path.name, partial(_shards, path)) for path in sorted(folder.glob("tokens-*")) if path.is_dir())
    elif (folder / models.CONFIG).is_file() and not is_export(folder):
        yield "model", partial(_opens, folder)
    elif (folder / "tokenizer.json").is_file():
        yield "tokenizer", lambda: f"{Tokenizer.load(folder).vocab_size:,} entries"
    elif not (folder / checksums.CHECKSUMS).is_file():
        raise DataError(f"{folder} contains no run, corpus, tokenizer or model. `bertie verify` checks one of these.")
    yield "files", partial(_files, folder)


def _run_looks(run: Path) -> Iterator[Look]:
    yield CONFIG, lambda: f"a {type(run_config(run)).__name__}"
    yield log.METRICS, partial(_metrics, run)
    for folder in sorted(run.glob("checkpoint-*"), key=lambda path: (len(path.name), path.name)):
        yield folder.name, partial(_checkpoint, run, folder)
    # A run writes both at its end, when its outline is deleted. A finished run that is extended has a model already.
    if (run / RESULTS).exists() or ((run / MODEL).exists() and not (run / OUTLINE).exists()):
        yield RESULTS, partial(_results, run)
        yield MODEL, partial(_model, run)
    yield "tokenizer", partial(_tokenizer, run)
    yield "corpus", partial(_corpus, run)
    yield "models read", partial(_models_read, run)
    yield "folders read", partial(_folders_read, run)


def _files(folder: Path) -> str:
    """Compares every file with checksums.json, and lists files without a checksum."""
    if (folder / checksums.CHECKSUMS).exists():
        result = checksums.check_files(folder, covered=covered)
        if result.damage:
            raise DataError(
                " ".join(result.damage[:_DAMAGED_FILES_SHOWN])
                + f" ({len(result.damage)} in all)" * (len(result.damage) > _DAMAGED_FILES_SHOWN)
            )
        return f"files intact: {result.files:,}" + _uncovered(result.uncovered)
    if (folder / RESULTS).is_file():
        raise DataError(
            f"{folder / checksums.CHECKSUMS} is missing: it was deleted, or the process was killed before it was "
            "written. Run the same command again."
        )
    names = [name for name in checksums.list_files(folder) if not covered(name) and not name.startswith("checkpoint-")]
    return f"there is no {checksums.CHECKSUMS}: not finished, or not written by Bertie" + _uncovered(names)


def _uncovered(names: list[str]) -> str:
    return f"; not covered: {', '.join(names)}" if names else ""


def _shards(folder: Path) -> str:
    shards = Shards.open(folder)
    if wrong := plans.damaged(folder / "plans"):
        raise DataError(f"{', '.join(map(str, wrong))}: damaged. The next run that needs it writes it again.")
    kind = shards.manifest.get("kind", "values")
    return f"intact (documents: {shards.num_documents:,}, {kind}: {shards.num_values:,})"


def _opens(folder: Path) -> str:
    return _opened(folder)[1]


def _opened(folder: Path) -> tuple[TorchModel, str]:
    """Opens a model as `bertie.load` does, and returns it with a message."""
    model, report = families.load(folder)
    if report.fresh:
        raise DataError(f"Weights are missing in {folder}: {', '.join(sorted(report.fresh)[:3])} ...")
    return model, f"{report} {_tokenizer_of(folder, model)}"


def _tokenizer_of(folder: Path, model: TorchModel) -> str:
    if not any((folder / name).exists() for name in TOKENIZER_FILES):
        raise DataError(f"{folder} has no tokenizer, which a model needs.")
    tokenizer = Tokenizer.load(folder)
    check_vocabulary(tokenizer, model.config, folder)
    return f"{tokenizer.vocab_size:,} vocabulary entries."


def _checked(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except BertieError as error:
        return Check(name, False, str(error))


def _metrics(run: Path) -> str:
    lines = log.read_log(run)
    if not lines:
        raise DataError(f"{run / log.METRICS} has no lines.")
    for kind in ("train", "valid"):
        steps = [line["step"] for line in lines if line.get("kind") == kind]
        for before, after in itertools.pairwise(steps):
            if after <= before:
                raise DataError(
                    f"The {kind} lines go from step {before:,} back to {after:,}: lines of two runs are mixed."
                )
    before = 0
    for line in lines:
        if line.get("kind") == "train":
            if line["step"] - before > line["steps"]:
                raise DataError(f"No line covers the steps between {before:,} and {line['step']:,}: lines are missing.")
            before = line["step"]
    return f"{len(lines):,} lines, to step {lines[-1]['step']:,}"


def _checkpoint(run: Path, folder: Path) -> str:
    point = checkpoint.verify_checkpoint(folder)
    position = point.state["metrics_bytes"]
    metrics = read_small(run / log.METRICS, most=log.MAX_LOG_BYTES) if os.path.lexists(run / log.METRICS) else b""
    if len(metrics) < position or metrics[:position][-1:] not in (b"", b"\n"):
        raise DataError(f"{log.METRICS} has changed since {folder.name} was saved: it has {len(metrics):,} bytes.")
    if xxhash.xxh3_128_hexdigest(metrics[:position]) != point.state["metrics_xxh3_128"]:
        raise DataError(f"{log.METRICS} has changed since {folder.name} was saved: its bytes differ.")
    size = sum(path.stat().st_size for path in folder.iterdir())
    return f"intact: {size:,} bytes"


def _results(run: Path) -> str:
    results = read_results(run)
    steps = run_config(run).train.steps
    if reason := results.get("ended_early"):
        if not 0 <= results.get("step", 0) <= steps:
            raise DataError(f"{RESULTS} is of step {results['step']:,}, but {CONFIG} has {steps:,} steps.")
        return f"ended early, after step {results.get('step', 0):,} of {steps:,}: {reason}"
    if results.get("step", steps) != steps:
        raise DataError(f"{RESULTS} is of step {results['step']:,}, but {CONFIG} has {steps:,} steps.")
    return f"finished after {steps:,} steps"


def _model(run: Path) -> str:
    model, said = _opened(run / MODEL)
    newest = checkpoint.latest(run)
    if newest is None or not isinstance(run_config(run), PretrainConfig) or newest.step != run_config(run).train.steps:
        return said
    saved = newest.tensors(checkpoint.MODEL)
    other = [n for n, p in model.named_parameters() if n in saved and not torch.equal(p, saved[n].to(p.dtype))]
    if other:
        raise DataError(f"{len(other)} tensors of the model differ from {newest.folder.name}, first {other[0]}.")
    return f"the weights of {newest.folder.name}"


def _tokenizer(run: Path) -> str:
    config, expected = run_config(run), run_identity(run).get("tokenizer")
    if not isinstance(config, PretrainConfig) or expected is None:
        return "not recorded"
    folder = model_folder(config.tokenizer or config.model)
    actual = Tokenizer.load(folder).fingerprint
    if actual != expected:
        raise DataError(f"{folder} now contains another tokenizer: {actual} instead of {expected}.")
    return f"the same: {actual}"


def _corpus(run: Path) -> str:
    """Checks every byte of the text and of its token ids, or of a table, and that they are those of the run."""
    config, identity = run_config(run), run_identity(run)
    if not isinstance(config, PretrainConfig) or not identity:
        return "not recorded"
    if "corpus" not in identity:
        raise BadFile(f"{CONFIG} is damaged: it is that of a pre-training run, but the run has read no corpus.")
    if config.features.column:
        tokenizer = Tokenizer.load(model_folder(config.tokenizer or config.model))
        actual = read_captions(Path(config.corpus), config.features, tokenizer).fingerprint
        if actual != identity["corpus"]:
            raise DataError(f"{config.corpus} now contains other rows: {actual} instead of {identity['corpus']}.")
        return f"{config.corpus} is the same: {actual}"
    expected = identity["corpus"] if isinstance(identity["corpus"], list) else [identity["corpus"]]
    paths = [config.corpus] if config.corpus else [corpus.path for corpus in config.corpora]
    if len(paths) != len(expected):
        raise DataError(f"The run has {len(expected)} corpora, but {CONFIG} lists {len(paths)}.")
    said = []
    for path, recorded in zip(paths, expected, strict=True):
        text = Shards.open(path)
        tokens = home(text, identity["tokenizer"])
        if not (tokens / "manifest.json").exists():
            said.append(f"{path} is intact; its token ids are missing and would be written again")
            continue
        ids = Shards.open(tokens)
        if ids.fingerprint != recorded.split()[0] or ids.manifest["corpus"] != text.fingerprint:
            raise DataError(f"{path} now contains another corpus: {ids.fingerprint} instead of {recorded}.")
        said.append(f"{path} is the same: {ids.fingerprint}")
    return "; ".join(said)


def _folders_read(run: Path) -> str:
    """Compares every file of the folders that a run reads, such as a corpus' card, with the checksums there."""
    config = run_config(run)
    if isinstance(config, FinetuneConfig):
        folders = [model_folder(config.model)]
    else:
        corpora = [config.corpus] if config.corpus else [corpus.path for corpus in config.corpora]
        models = [config.tokenizer or config.model, *models_named(config).values()]
        folders = [*map(Path, corpora), *map(model_folder, models)]
    listed = [folder for folder in dict.fromkeys(folders) if (folder / checksums.CHECKSUMS).is_file()]
    return "; ".join(f"{folder}: {_files(folder)}" for folder in listed) or "none has checksums"


def _models_read(run: Path) -> str:
    """Checks that the folders of the start model and of a teacher are unchanged."""
    config, identity = run_config(run), run_identity(run)
    models = models_named(config) if isinstance(config, PretrainConfig) else {}
    read = {setting: folder for setting, folder in models.items() if identity.get(setting, folder) != folder}
    for setting, folder in read.items():
        if (actual := hash_model_folder(model_folder(folder))) != identity[setting]:
            raise DataError(
                f"{folder} ({setting}) now contains another model: {actual} instead of {identity[setting]}."
            )
    return "; ".join(f"{folder} ({setting}) is the same" for setting, folder in read.items()) or "none"


def same_data(run: Path, contents: dict[str, object]) -> None:
    """Raises DataError unless the inputs of a run are those in `contents`: corpus, tokenizer, models, by their
    fingerprints."""
    before = run_identity(run)
    for name, now in contents.items():
        if name in before and json.dumps(before[name]) != json.dumps(now):
            raise DataError(
                f"The {name} differs from that of {run}: {before[name]} then, {now} now. Restore it, or start "
                f"a new run with -c {run / CONFIG}."
            )
