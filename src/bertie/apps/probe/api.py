"""The functions `bertie.probe` and `bertie.words`."""

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertie.apps.probe.contexts import contexts_of
from bertie.apps.probe.contexts import words as compare
from bertie.apps.probe.run import Settings
from bertie.apps.probe.run import probe as run
from bertie.platform import FOREIGN_ARGUMENTS, Texts, checked_arguments, module_of, readable_texts

if TYPE_CHECKING:
    from bertie.platform import TorchModel


@checked_arguments("test", "probes", "format", "sentences", "pooling", "encoding", "seed")
def probe(
    model: "TorchModel | str | Path",
    train: str | Path | Sequence[str | Path],
    *,
    output: Path | str,
    device: str | None = None,
    precision: str | None = None,
    overwrite: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Measures what each layer of a model knows, with linear probes.

    Args:
        model: A model, or its folder.
        train: Files to train probes on: .conllu, tagged files, texts.
        output: Run folder to write. A stopped run continues.
        device: cpu, cuda, cuda:1, mps or auto.
        precision: fp32, bf16 or auto.
        overwrite: Whether to delete first what Bertie wrote to the folder before.
        **options: test, probes, format, sentences, pooling, encoding and seed, as for `bertie probe`.

    Returns:
        The contents of results.json, as `bertie probe --json` prints them.

    Raises:
        DataError: The files do not have what a probe needs.
        UsageError: There is no such probe, or the folder contains another run.
    """
    told = {"formats" if key == "format" else key: value for key, value in options.items()}
    lists: dict[str, Any] = {key: _names(told.pop(key)) for key in ("test", "probes", "formats") if key in told}
    settings = Settings(_names(train), **lists, **told)
    settings.check()
    name = str(model) if isinstance(model, str | Path) else type(model).__name__
    return run(module_of(model, device, precision), settings, Path(output), name=name, overwrite=overwrite)


def _names(given: str | Path | Iterable[str | Path]) -> tuple[str, ...]:
    """Returns names as texts; a single name is one of them."""
    return (str(given),) if isinstance(given, str | PathLike) else tuple(map(str, given))


@checked_arguments("word", "baseline", "pooling", "seed", **FOREIGN_ARGUMENTS)
def words(
    model: "TorchModel | str | Path",
    texts: Iterable[str],
    *,
    device: str | None = None,
    precision: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Compares the vectors of a word in several texts, layer by layer.

    Args:
        model: A model, or its folder.
        texts: The texts. The word may be marked: "the *bank* of a river".
        device: cpu, cuda, cuda:1, mps or auto.
        precision: fp32, bf16 or auto.
        **options: word, baseline (texts) and pooling, as for `bertie words`.

    Returns:
        contexts, and for each layer the cosines of all pairs and of random words, as `bertie words --json` prints them.

    Raises:
        UsageError: A text does not have the word.
    """
    texts = [text for text in readable_texts(texts) if text is not None]
    contexts_of(texts, options.get("word", ""))  # before the model is opened
    if options.get("baseline") is not None:
        options["baseline"] = [*Texts.each(options["baseline"], "baseline")]
    return compare(module_of(model, device, precision), texts, **options)
