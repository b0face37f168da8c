"""Probes of a model, layer by layer, in a run that can be resumed.

The run folder has settings.json (what the run depends on) and rows.jsonl (a line per probe and layer). Until the run is
finished, it also has vectors/. A finished run has results.json, and report.html with the same figures.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from bertie import Tokenizer
from bertie.apps.probe import probes
from bertie.apps.probe.labels import FEWEST_WORDS, with_shuffled
from bertie.apps.probe.page import render_probe_page
from bertie.apps.probe.pooling import check_pooling
from bertie.apps.probe.probes import PROBE_PARTS, MetricSums, Probe, ProbeSample
from bertie.apps.probe.sentences import Sentence, SentenceSource, source
from bertie.apps.probe.vectors import read_layer, readable_sentences, write_word_vectors
from bertie.platform import DataError, File, FolderKind, ModelInternals, TorchModel, UsageError, console

SETTINGS, ROWS, RESULTS, REPORT, VECTORS = "settings.json", "rows.jsonl", "results.json", "report.html", "vectors"
PROBED = FolderKind(
    "run of probes", (SETTINGS,), (SETTINGS, ROWS, RESULTS, REPORT), {VECTORS: FolderKind.named("folder")}
)
_MODELS = ("model", "random")


@dataclass(frozen=True)
class ProbeSettings:
    """What is probed, and how.

    Attributes:
        train: Files to train on: .conllu, tagged files, texts.
        test: Files to test on, in the same order. Empty: a third of each file of `train` is held out.
        probes: Names of PROBES. Empty: all that the files allow.
        formats: The format of each file. Empty: by its name.
        sentences: The largest number of sentences to train on; half as many are tested on.
        pooling: How the tokens of a word become a vector: mean or first.
        encoding: Text encoding of the files.
        seed: Seed of the sample, the control tasks, the random weights and the shuffled words.
    """

    train: tuple[str, ...]
    test: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    sentences: int = 2000
    pooling: str = "mean"
    encoding: str = "utf-8"
    seed: int = 0

    def check(self) -> None:
        """Raises UsageError for settings that contradict each other or do not exist."""
        check_pooling(self.pooling)
        probes.chosen_probes(self.probes)
        if not self.train:
            raise UsageError("There is no file to probe with. Pass --train FILE: .conllu, .conll or .txt.")
        for name, files in (("test", self.test), ("format", self.formats)):
            if files and len(files) != len(self.train):
                raise UsageError(
                    f"--{name} is given {len(files)} times and --train {len(self.train)} times. "
                    f"Pass one --{name} for each --train, in the same order."
                )


@dataclass
class ProbeData:
    """The sentences of a source that a probe reads, and their vectors by model and layer.

    name: of the folders of vectors. whole: one vector per sentence.
    """

    name: str
    source: SentenceSource
    train: Sequence[Sentence]
    test: Sequence[Sentence]
    whole: bool
    folder: Path
    models: Mapping[str, TorchModel]
    pooling: str

    def vectors(self, model: str, split: str, layer: int) -> NDArray[np.float32]:
        """Returns the vectors of a layer, after computing those of all layers the first time."""
        sentences = self.train if split == "train" else self.test
        folder = self.folder / f"{self.name}-{split}-{model}"
        write_word_vectors(folder, self.models[model], sentences, pooling=self.pooling, whole=self.whole)
        return read_layer(folder, layer)


@dataclass(frozen=True)
class ProbeUnit:
    """A probe and what it reads."""

    name: str
    probe: Probe
    data: ProbeData

    @cached_property
    def train(self) -> list[Sentence]:
        """The sentences to train on."""
        return [one for one in self.data.train if self.probe.usable(one)]

    @cached_property
    def test(self) -> list[Sentence]:
        """The sentences to test on."""
        return [one for one in self.data.test if self.probe.usable(one)]

    def measure(self, layer: int, seed: int) -> list[dict[str, Any]]:
        """Returns the figures of each metric at a layer."""
        parts: dict[str, MetricSums] = {}
        for model in _MODELS:
            train = ProbeSample(self.train, self._rows(model, "train", layer))
            test = ProbeSample(self.test, self._rows(model, "test", layer))
            for control in (False, True):
                part = PROBE_PARTS[2 * _MODELS.index(model) + control]
                parts[part] = self.probe.measure(train, test, control=control, seed=seed)
        return [probes.compute_metric_figures(parts, metric) for metric in self.probe.metrics]

    def _rows(self, model: str, split: str, layer: int) -> NDArray[np.float32]:
        vectors = self.data.vectors(model, split, layer)
        if self.probe.whole:
            return vectors
        sentences = self.data.train if split == "train" else self.data.test
        usable = np.repeat([self.probe.usable(one) for one in sentences], [len(one.spans) for one in sentences])
        rows: NDArray[np.float32] = vectors[usable]
        return rows


def probe_layers(
    model: TorchModel, settings: ProbeSettings, run: Path, *, name: str = "", overwrite: bool = False
) -> dict[str, object]:
    """Probes every layer of a model and of the same model with random weights. Returns the contents of results.json.

    A run that was stopped continues with the next layer. name: of the model in the report. Raises UsageError for wrong
    settings or a folder of another run, DataError for files without what a probe needs.
    """
    settings.check()
    model.training_facts.check_reads_texts("bertie probe")
    layers = ModelInternals(model).facts.layer_numbers()
    with PROBED.held(run, overwrite=overwrite):
        if done := _finished(run, _identity(model, settings)):
            return done
        units = list(_units(model, settings, run / VECTORS))
        File(run / SETTINGS).write_json(_identity(model, settings))
        rows = _rows(run / ROWS)
        with (
            console.progress("Probing", total=len(units) * len(layers), done=len(rows)) as advance,
            open(run / ROWS, "a", encoding="utf-8") as log,
        ):
            for unit in units:
                for layer in layers:
                    if (unit.name, layer) not in rows:
                        figures = unit.measure(layer, settings.seed)
                        rows[unit.name, layer] = figures
                        log.write(json.dumps({"probe": unit.name, "layer": layer, "figures": figures}) + "\n")
                        log.flush()
                        advance(probe=unit.name, layer=layer)
        results = {"model": name, "pooling": settings.pooling, "seed": settings.seed, "layers": len(layers) - 1}
        results["probes"] = [_result(unit, [rows[unit.name, layer] for layer in layers]) for unit in units]
        File(run / RESULTS).write_json(results)
        with console.no_failure(run / REPORT):
            render_probe_page(results).save(run / REPORT)
        shutil.rmtree(run / VECTORS, ignore_errors=True)
        PROBED.seal(run, covered=lambda path: path.endswith(PROBED.lock))
    return results


def _identity(model: TorchModel, settings: ProbeSettings) -> dict[str, object]:
    digest = xxhash.xxh3_128()
    for weight in model.encoder.state_dict().values():
        digest.update(weight.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    files = {path: File(path).hash if Path(path).is_file() else path for path in (*settings.train, *settings.test)}
    return {
        **vars(settings),
        "weights": digest.hexdigest(),
        "tokenizer": model.text_tokenizer.fingerprint,
        "files": files,
    }


def _finished(run: Path, identity: Mapping[str, object]) -> dict[str, object] | None:
    """Returns the results of a finished run. Raises UsageError for a run with other settings, data or weights."""
    if not (run / SETTINGS).exists():
        return None
    PROBED.check_unchanged(run, vars(ProbeSettings(())) | File(run / SETTINGS).read_json(), identity)
    if not PROBED.sealed(run):
        return None
    console.say(f"{run} is finished already: returning its results. --overwrite starts again.")
    results: dict[str, object] = File(run / RESULTS).read_json()
    return results


def _rows(path: Path) -> dict[tuple[str, int], list[dict[str, object]]]:
    """Returns the finished layers of a run. A line that was cut when its process was killed is removed."""
    rows = {}
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        if whole != lines:
            path.write_text("".join(whole), encoding="utf-8")
        rows = {(row["probe"], row["layer"]): row["figures"] for row in map(json.loads, whole)}
    return rows


def _units(model: TorchModel, settings: ProbeSettings, folder: Path) -> Iterator[ProbeUnit]:
    """Yields the probes that the files allow. Raises DataError when there is none, or one was asked for by name."""
    tokenizer = model.text_tokenizer
    tests, kinds = settings.test or (None,) * len(settings.train), settings.formats or ("",) * len(settings.train)
    sources = [
        source(train, test, kind=kind, encoding=settings.encoding, most=settings.sentences, seed=settings.seed)
        for train, test, kind in zip(settings.train, tests, kinds, strict=True)
    ]
    models = {"model": model, "random": random_weights(model, settings.seed)}
    cache: dict[tuple[int, bool], ProbeData] = {}

    def data(number: int, whole: bool) -> ProbeData:
        if (number, whole) not in cache:
            source, prepare = sources[number], _mixed if whole else _plain
            splits = [
                prepare(some, tokenizer, model.config.max_length, settings.seed) for some in (source.train, source.test)
            ]
            name = f"{number}-{'sentences' if whole else 'words'}"
            cache[number, whole] = ProbeData(
                name, source, splits[0], splits[1], whole, folder, models, settings.pooling
            )
        return cache[number, whole]

    count, files = 0, ", ".join(settings.train)
    for name, one in probes.chosen_probes(settings.probes).items():
        fitting = (ProbeUnit(name, one, data(number, one.whole)) for number in range(len(sources)))
        unit = next((unit for unit in fitting if unit.train and unit.test), None)
        if unit is not None and one.varied(unit.train):
            count += 1
            yield unit
        elif settings.probes and unit is None:
            raise DataError(f"{files}: no sentence has what {name!r} needs: {one.needs}.")
        elif unit is not None:
            problem = f"{unit.data.source.name}: {name!r} has one answer in all sentences to train on ({one.title})"
            if settings.probes:
                raise DataError(f"{problem}, so nothing can be learned. Pass other sentences, or omit it.")
            console.warn(f"{problem}, so it is left out.")
    if not count:
        raise DataError(
            f"{files}: no sentence can be probed. It must fit into {model.config.max_length} tokens. Of a text, it "
            f"needs {FEWEST_WORDS} different words."
        )


def _plain(sentences: Sequence[Sentence], tokenizer: Tokenizer, length: int, seed: int) -> list[Sentence]:
    fits = readable_sentences(sentences, tokenizer, length)
    return [one for one, fine in zip(sentences, fits, strict=True) if fine]


def _mixed(sentences: Sequence[Sentence], tokenizer: Tokenizer, length: int, seed: int) -> list[Sentence]:
    """Returns sentences in order, and then the same shuffled, where both can be read."""
    both = with_shuffled(sentences, seed)
    half = len(both) // 2
    fits = np.array(readable_sentences(both, tokenizer, length), np.bool_).reshape(2, half).all(0)
    return [one for one, fine in zip(both, np.tile(fits, 2), strict=True) if fine]


def random_weights(model: TorchModel, seed: int) -> TorchModel:
    """Returns a model of the same shape with random weights, in evaluation mode."""
    return model.randomized(seed).eval()


def _result(unit: ProbeUnit, layers: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, object]:
    """Returns the results of a probe: its best layer by the main metric, its baseline, and every layer."""
    baseline, values = unit.probe.baseline(unit.train, unit.test)
    times = 2 if unit.probe.whole else 1  # each sentence is there in order and shuffled
    return {
        "probe": unit.name,
        "title": unit.probe.title,
        "file": unit.data.source.name,
        "train": len(unit.train) // times,
        "test": len(unit.test) // times,
        "best_layer": int(np.argmax([figures[0]["model"] for figures in layers])),
        "baseline": {"name": baseline, **values},
        "layers": [{"layer": layer, "figures": list(figures)} for layer, figures in enumerate(layers)],
    }
