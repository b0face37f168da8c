"""The data of a pre-training run: its corpora as token ids, and the batches of its phases."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from bertie import objectives
from bertie.data import executors, tokens
from bertie.data.shards import Shards
from bertie.errors import DataError, UsageError
from bertie.files import JsonObject
from bertie.io.table_format import TableFormat
from bertie.io.tables import SkipReport, stream_examples
from bertie.models.batch import Batch
from bertie.models.variant import CONFIG
from bertie.objectives import OBJECTIVES
from bertie.objectives.captions import Captions, CaptionSource
from bertie.objectives.mixture import Mixture, shares
from bertie.objectives.source import CorpusSource, PretrainingSource
from bertie.order import key
from bertie.runs.config import CorpusShare, PretrainConfig
from bertie.runs.models import model_folder
from bertie.settings import merge
from bertie.text.tokenizer import Tokenizer
from bertie.train.base import PhasedSource
from bertie.train.rendezvous import world_size
from bertie.training_facts import FeatureConfig


@dataclass(frozen=True)
class Phase:
    """A phase of a run. first: the number of its first sample."""

    steps: int
    max_length: int
    batch_size: int
    micro_batch_size: int | None
    objectives: dict[str, JsonObject | None]
    first: int


def phases(config: PretrainConfig) -> list[Phase]:
    """Returns all phases of a run, which is one phase without `phases`.

    Raises UsageError when the steps do not sum to train.steps. Raises UsageError too when an objective is not one of
    the run's, or an option is not one of the batches.
    """
    train = config.train
    if not config.phases:
        return [
            Phase(train.steps, config.max_length, train.batch_size, train.largest_micro_batch, config.objectives, 0)
        ]
    result: list[Phase] = []
    for number, (phase, steps) in enumerate(zip(config.phases, _steps(config), strict=True), 1):
        for name, options in phase.objectives.items():
            if config.objectives.get(name) is None:
                raise UsageError(
                    f"Phase {number} sets options of {name!r}, which is not an objective of the run. A phase "
                    "can change the options of objectives, but not the objectives."
                )
            if fixed := [option for option in options if option in OBJECTIVES[name].whole_run]:
                raise UsageError(
                    f"Phase {number} sets {name}.{fixed[0]}, which is the same in the whole run. Set it for the run: "
                    f"objectives.{name}.{fixed[0]}. A phase can only change what its batches contain."
                )
        result.append(
            Phase(
                steps,
                phase.max_length or config.max_length,
                phase.batch_size or train.batch_size,
                phase.micro_batch_size or train.largest_micro_batch,
                merge({k: v if v is None else dict(v) for k, v in config.objectives.items()}, phase.objectives),
                first=sum(before.steps * before.batch_size for before in result),
            )
        )
    return result


def _steps(config: PretrainConfig) -> list[int]:
    """Returns the steps of each phase."""
    total = config.train.steps
    steps = [phase.steps for phase in config.phases]
    known = [None if s is None else round(s * total) if s < 1 else round(s) for s in steps]
    left, open_ones = total - sum(filter(None, known)), known.count(None)
    shown = " + ".join("the rest" if s is None else f"{s:,}" for s in known)
    if open_ones > 1:
        raise UsageError(
            f"Two phases have no steps ({shown}). Only one phase may omit them and takes the rest of train.steps."
        )
    if (left != 0 if open_ones == 0 else left < 1) or 0 in known:
        raise UsageError(
            f"The phases have {shown} steps, but train.steps is {total:,}. Omit `steps` in one phase, which "
            "then takes the rest."
        )
    return [left if s is None else s for s in known]


AnySource = CorpusSource | Mixture


class RunData:
    """The corpora of a run and its phases. Raises DataError for a corpus that is missing, damaged or too small."""

    def __init__(self, config: PretrainConfig, tokenizer: Tokenizer) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.phases = phases(config)
        ranks, fewest = world_size(), min(phase.batch_size for phase in self.phases)
        if fewest < ranks:
            raise UsageError(
                f"A batch of {fewest} sequences is smaller than the number of processes "
                f"({ranks}). Set it to at least {ranks}."
            )
        corpora = _corpora(config)
        self.shards: dict[str, Shards | Captions] = {}
        for name, corpus in corpora.items():
            if config.features.column:
                self.shards[name] = read_captions(Path(corpus.path), config.features, tokenizer)
            else:
                self.shards[name] = _encoded(Path(corpus.path), tokenizer)
        sizes = [shards.num_values for shards in self.shards.values()]
        weights = [corpus.weight for corpus in corpora.values()]
        self.shares = dict(zip(corpora, shares(weights, sizes, config.corpus_exponent), strict=True))
        self.sources = [self.source_of(phase) for phase in self.phases]
        self.source = PhasedSource(
            [(phase.steps, source) for phase, source in zip(self.phases, self.sources, strict=True)]
        )

    @property
    def feature_size(self) -> int | None:
        """Numbers of a feature vector of the table; None for corpora of texts."""
        tables = [table.vectors.shape[1] for table in self.shards.values() if isinstance(table, Captions)]
        return tables[0] if tables else None

    @property
    def longest(self) -> int:
        """The largest number of tokens and feature vectors of a sequence of the table."""
        return max(source.longest for source in self.sources if isinstance(source, CaptionSource))

    @property
    def notes(self) -> list[str]:
        """What was skipped or not found in the table of feature vectors."""
        tables = [table for table in self.shards.values() if isinstance(table, Captions)]
        read = [name for name, options in self.config.objectives.items() if options is not None]
        return [note for table in tables for note in table.notes] + [
            f"{self.config.corpus} has no recognized text column for {' and '.join(read)}. Name the column `text`."
            for table in tables
            if not table.has_texts and read != [objectives.MaskedFrames.name]
        ]

    @property
    def folders(self) -> dict[str, tuple[Path, Shards]]:
        """The folder and the token ids of each corpus of texts."""
        paths = [self.config.corpus] if self.config.corpus else [corpus.path for corpus in self.config.corpora]
        pairs = zip(paths, self.shards.items(), strict=True)
        return {name: (Path(path), shards) for path, (name, shards) in pairs if isinstance(shards, Shards)}

    @property
    def fingerprint(self) -> Any:
        """The hash of the corpus, or of several corpora with their fractions."""
        if len(self.shards) == 1:
            return next(iter(self.shards.values())).fingerprint
        return [f"{shards.fingerprint} {self.shares[name]:z.5f}" for name, shards in self.shards.items()]

    @property
    def validates(self) -> bool:
        """Whether documents are held out, in every phase."""
        parts = [[*source.sources.values()] if isinstance(source, Mixture) else [source] for source in self.sources]
        return all(any(part.validates for part in phase) for phase in parts)

    def validation(self, step: int) -> dict[str, list[Batch]]:
        """Returns validation batches after `step` steps by corpus, or none without held-out documents."""
        source = self.sources[self.source.phase(max(0, step - 1))]
        parts = source.sources if isinstance(source, Mixture) else {next(iter(self.shards)): source}
        return {name: batches for name, part in parts.items() if (batches := part.validation_batches())}

    def facts(self) -> list[JsonObject]:
        """Returns name, fraction, size and number of epochs of each corpus."""
        rows = []
        for name, shards in self.shards.items():
            instances = [self.share_of(source, name).instances_per_epoch for source in self.sources]
            epochs = sum(
                phase.steps * phase.batch_size * self.shares[name] / n
                for phase, n in zip(self.phases, instances, strict=True)
            )
            rows.append(
                {
                    "name": name,
                    "share": round(self.shares[name], 5),
                    "documents": shards.num_documents,
                    "tokens": shards.num_values,
                    "instances_per_epoch": instances[0],
                    "tokens_per_epoch": self.share_of(self.sources[0], name).report.get("tokens_read"),
                    "epochs": round(epochs, 2),
                }
            )
        return rows

    def share_of(self, source: AnySource, name: str) -> CorpusSource:
        """Returns the part of a phase's source that reads one corpus."""
        return source.sources[name] if isinstance(source, Mixture) else source

    def source_of(self, phase: Phase) -> AnySource:
        """Returns the batches of a phase."""
        seed, packing = self.config.train.seed, self.config.packing
        objective = objectives.build_objective(phase.objectives)
        if len(self.shards) == 1:
            (shards,) = self.shards.values()
            cut: JsonObject = {
                "max_length": phase.max_length,
                "batch_size": phase.batch_size,
                "micro_batch_size": phase.micro_batch_size,
                "seed": seed,
                "first": phase.first,
            }
            if isinstance(shards, Captions):
                return CaptionSource(shards, self.tokenizer, objective, **cut)
            return PretrainingSource(shards, self.tokenizer, objective, packing=packing, **cut)
        parts = {
            name: PretrainingSource(
                shards,
                self.tokenizer,
                objective,
                max_length=phase.max_length,
                batch_size=1,
                micro_batch_size=phase.micro_batch_size or phase.batch_size,
                seed=int(key(seed, number) >> 1),  # two corpora draw nothing alike
                packing=packing,
            )
            for number, (name, shards) in enumerate(self.shards.items())
            if isinstance(shards, Shards)
        }
        return Mixture(
            parts,
            [*self.shares.values()],
            batch_size=phase.batch_size,
            micro_batch_size=phase.micro_batch_size,
            seed=seed,
            first=phase.first,
        )


def models_named(config: PretrainConfig) -> dict[str, str]:
    """Returns the models of a run by setting: the preset or folder that it starts from, a teacher's folder."""
    reads = objectives.build_objective(config.objectives).reads
    return {"model": config.model, **{f"objectives.{option}": folder for option, folder in reads.items()}}


def is_folder(model: str | Path) -> bool:
    """Returns whether a name is a model folder or a run, and not a preset."""
    return (model_folder(model) / CONFIG).is_file()


def _corpora(config: PretrainConfig) -> Mapping[str, CorpusShare]:
    """Returns the corpora by a short name: that of the folder, or as much of the path as is unique."""
    if bool(config.corpus) == bool(config.corpora):
        problem = "--corpus and `corpora` cannot be combined." if config.corpus else "No corpus given."
        raise UsageError(f"{problem} Pass --corpus FOLDER, or list several in `corpora`.")
    if config.features.column and (config.corpora or config.packing or config.pseudo_perplexity):
        raise UsageError(
            "A table with feature vectors is a run's only corpus, without packing and pseudo_perplexity. Omit corpora "
            "and these, or features.column."
        )
    listed = config.corpora or (CorpusShare(path=config.corpus),)
    names = [Path(corpus.path).name for corpus in listed]
    if len(set(names)) < len(names):
        names = [corpus.path for corpus in listed]
    if len(set(names)) < len(names):
        raise UsageError(f"A corpus is listed twice in {', '.join(names)}. List it once and give it a larger weight.")
    return dict(zip(names, listed, strict=True))


def _encoded(folder: Path, tokenizer: Tokenizer) -> Shards:
    """Returns a corpus as token ids. The first rank encodes it, and the others wait."""
    turn = FileLock(folder / ".encode.lock") if world_size() > 1 and folder.is_dir() else nullcontext()
    with turn:
        return tokens.encode_corpus(folder, tokenizer, workers=executors.cores())


def read_captions(path: Path, features: FeatureConfig, tokenizer: Tokenizer) -> Captions:
    """Returns the rows of a table. Raises DataError for a folder, or a file without a usable row."""
    if path.is_dir():
        raise DataError(
            f"{path} is a folder. With feature vectors, pass a table of texts and vectors: --corpus FILE.jsonl"
        )
    format = TableFormat.of(labelled=False, features=features)
    examples, skipped = SkipReport.collect(stream_examples(path, format), str(path))
    notes = [f"{path}: {note}" for note in skipped.notes]
    ids = tokenizer.ids([" ".join(example.texts) for example in examples])
    return Captions(ids, [example.vectors for example in examples if example.vectors is not None], notes)
