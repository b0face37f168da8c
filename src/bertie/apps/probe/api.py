"""The functions `bertie.probe` and `bertie.words`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bertie
from bertie import Model
from bertie.apps.probe.contexts import compare_word_vectors as compare
from bertie.apps.probe.contexts import contexts_of
from bertie.apps.probe.run import ProbeSettings
from bertie.apps.probe.run import probe_layers as run
from bertie.platform import UsageError, checked_arguments, readable_texts

if TYPE_CHECKING:
    import pandas

    from bertie.platform import TorchModel

_LAYER_COLUMNS = ("layer", "mean_similarity", "baseline", "adjusted")  # of a layer


@dataclass(frozen=True)
class ProbeResults:
    """What each layer of a model knows.

    Attributes:
        folder: The run folder; report.html is its page.
        results: The contents of results.json, as `bertie probe --json` prints them.
    """

    folder: Path
    results: Mapping[str, object]

    def to_dict(self) -> dict[str, object]:
        """Returns the results as JSON values."""
        return {**self.results}

    def to_dicts(self) -> list[dict[str, object]]:
        """Returns a row for each probe, layer and metric: of the model, of random weights, and of the control task."""
        results: Mapping[str, Any] = self.results
        return [
            {
                "probe": one["probe"],
                "layer": layer["layer"],
                **{name: figures[name] for name in ("metric", "model", "random", "control")},
            }
            for one in results["probes"]
            for layer in one["layers"]
            for figures in layer["figures"]
        ]

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns `to_dicts` as a DataFrame of pandas."""
        import pandas

        return pandas.DataFrame(self.to_dicts())

    def __repr__(self) -> str:
        results: Mapping[str, Any] = self.results
        best = ", ".join(f"{one['probe']} best in layer {one['best_layer']}" for one in results["probes"])
        return f"ProbeResults({str(self.folder)!r}, {best})"


@dataclass(frozen=True)
class WordContexts:
    """The vectors of a word in several texts, compared layer by layer.

    Attributes:
        results: contexts; for each layer the cosines of all pairs and of random words, as `bertie words --json` prints
            them.
    """

    results: Mapping[str, object]

    def to_dict(self) -> dict[str, object]:
        """Returns the results as JSON values."""
        return {**self.results}

    def to_dicts(self) -> list[dict[str, object]]:
        """Returns a row for each layer: the mean cosine of the pairs, that of random words, and the difference."""
        results: Mapping[str, Any] = self.results
        return [{name: one[name] for name in _LAYER_COLUMNS} for one in results["layers"]]

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns `to_dicts` as a DataFrame of pandas."""
        import pandas

        return pandas.DataFrame(self.to_dicts())

    def __repr__(self) -> str:
        results: Mapping[str, Any] = self.results
        words = ", ".join(one["word"] for one in results["contexts"])
        return f"WordContexts({words}: {results['layers'][-1]['mean_similarity']:z.3f} in the last layer)"


@checked_arguments
def probe(
    model: "TorchModel | str | Path",
    train: str | Path | Sequence[str | Path],
    *,
    output: Path | str,
    test: str | Path | Sequence[str | Path] = (),
    probes: str | Sequence[str] = (),
    format: str | Sequence[str] = (),
    limit: int = 2000,
    pooling: str = "mean",
    encoding: str = "utf-8",
    precision: str | None = None,
    device: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> ProbeResults:
    """Measures what each layer of a model knows, with linear probes.

    Args:
        model: A model, or its folder.
        train: Files to train probes on: .conllu, tagged files, texts.
        output: Run folder to write. A stopped run continues.
        test: Files to test on, one for each of `train`. Default: a third of `train`.
        probes: pos, relation, distance, entity, order, length. Default: all that fit the files.
        format: Format of each file: conllu, klue-dp, conll, klue, lines ... Default: by its name.
        limit: Maximum number of sentences to train on; half as many for testing.
        pooling: Vector of a word from its tokens: mean or first.
        encoding: Text encoding of the files.
        precision: fp32, bf16 or auto.
        device: cpu, cuda, cuda:1, mps or auto.
        seed: Seed of the sample, the controls and the random weights.
        overwrite: Whether to delete first what Bertie wrote to the folder before.

    Raises:
        DataError: The files do not have what a probe needs.
        UsageError: There is no such probe, or the folder contains another run.

    Example:
        >>> results = bertie.probe("runs/tiny", "notes.txt", output="out/probe", probes=["order"], limit=20)
        >>> results.to_pandas().columns.tolist()
        ['probe', 'layer', 'metric', 'model', 'random', 'control']
    """
    settings = ProbeSettings(
        _names(train), _names(test), _names(probes), _names(format), limit, pooling, encoding, seed
    )
    settings.check()
    name = str(model) if isinstance(model, str | Path) else type(model).__name__
    folder = Path(output)
    return ProbeResults(
        folder, run(_module(model, device, precision), settings, folder, name=name, overwrite=overwrite)
    )


def _names(names: str | Path | Iterable[str | Path]) -> tuple[str, ...]:
    """Returns names as texts; a single name is one of them."""
    return (str(names),) if isinstance(names, str | PathLike) else tuple(map(str, names))


@checked_arguments
def words(
    model: "TorchModel | str | Path",
    texts: Iterable[str],
    *,
    word: str = "",
    baseline: Iterable[str] | None = None,
    pooling: str = "mean",
    precision: str | None = None,
    device: str | None = None,
    seed: int = 0,
) -> WordContexts:
    """Compares the vectors of a word in several texts, layer by layer.

    Args:
        model: A model, or its folder.
        texts: The texts. The word may be marked: "the *bank* of a river".
        word: Word of the texts without a mark. Default: the only word that they share.
        baseline: Texts of which random words are taken. Default: sample reviews.
        pooling: Vector of a word from its tokens: mean or first.
        precision: fp32, bf16 or auto.
        device: cpu, cuda, cuda:1, mps or auto.
        seed: Seed of the random words.

    Raises:
        UsageError: A text does not have the word.

    Example:
        >>> contexts = bertie.words("starter-en", ["the bank of the river", "a bank account"], word="bank")
        >>> contexts.to_pandas().columns.tolist()
        ['layer', 'mean_similarity', 'baseline', 'adjusted']
    """
    texts = [text for text in readable_texts(texts) if text is not None]
    contexts_of(texts, word)  # before the model is opened
    others = () if baseline is None else [text for text in readable_texts(baseline, "baseline") if text is not None]
    module = _module(model, device, precision)
    return WordContexts(compare(module, texts, word=word, baseline=others, pooling=pooling, seed=seed))


def _module(model: "Model | TorchModel | str | Path", device: str | None, precision: str | None) -> "TorchModel":
    """Returns a model in torch. Raises UsageError for a device or a precision of a model that is open."""
    if isinstance(model, str | PathLike):
        return bertie.load(model, device or "auto", precision or "fp32", "torch").module
    if device or precision:
        raise UsageError(f"The model is open already. Pass {'device' if device else 'precision'} to bertie.load.")
    return model.module if isinstance(model, Model) else model
