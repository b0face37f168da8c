"""A trained model in another size, precision or vocabulary: `convert`, `grow`, `shrink`, `extend_vocabulary` ..."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

from bertie.api.once import seal_of
from bertie.api.tokenizer import each_line
from bertie.console import console
from bertie.errors import DataError, UsageError, arguments
from bertie.folders import check_other, made_once
from bertie.io.lines import valid_lines
from bertie.models import convert as converting
from bertie.models import families
from bertie.models.convert import Converted, FolderPrecision, save_like
from bertie.models.files import MODEL_FOLDER
from bertie.models.model import TorchModel
from bertie.models.surgery import DepthMethod, Fill, deeper, take_layers, with_positions, with_vocabulary
from bertie.models.widen import wider
from bertie.runs.adapters import merge_adapter
from bertie.runs.models import model_folder
from bertie.runs.weights import load_model
from bertie.text import resize

ModelChange = Callable[[TorchModel], tuple[TorchModel, dict[str, object]]]
"""The changed model, and what else is known of the change."""


@dataclass(frozen=True)
class ChangedModel:
    """A model folder that was made from another one.

    Attributes:
        folder: The folder.
        parameters: Number of weights.
        layers: Number of layers.
        hidden_size: Numbers of a state.
        vocab_size: Entries of the vocabulary.
        max_length: Maximum number of tokens of a text.
        taken: The layers that were taken, of `shrink`.
        left_out: Word -> why it was not added, of `extend_vocabulary`.
    """

    folder: Path
    parameters: int
    layers: int
    hidden_size: int
    vocab_size: int
    max_length: int
    taken: Sequence[int] | None = None
    left_out: Mapping[str, str] | None = field(default=None)

    def to_dict(self) -> dict[str, object]:
        """Returns the facts as JSON values."""
        facts = {name: value for name, value in asdict(self).items() if value is not None}
        return {"output": str(facts.pop("folder")), **facts}


@arguments(out="output", dtype="precision")
def convert(
    folder: str | Path,
    output: str | Path,
    *,
    precision: FolderPrecision = "float32",
    shard_size: int | None = None,
    unsafe: bool = False,
    adapter: str | Path | None = None,
    overwrite: bool = False,
) -> Converted:
    """Rewrites a model folder with the current weight names. The tokenizer and the model card are kept.

    Args:
        folder: Name or folder of the model.
        output: Folder to write.
        precision: float32, float16 or bfloat16.
        shard_size: Maximum MB of a file of weights. Default: one file.
        unsafe: Whether to open pytorch_model.bin, in a separate process that can only read numbers.
        adapter: Folder of an adapter of LoRA, in the format of `peft`, to merge into the model.
        overwrite: Whether to replace an earlier output of Bertie.

    Returns:
        What was written.

    Raises:
        DataError: Files are missing or damaged, or the adapter is of another model.
        UsageError: The precision is unknown, or the folder contains other files.

    Example:
        >>> converted = bertie.convert("runs/reviews", "out/halves", precision="bfloat16")
    """
    with TemporaryDirectory(prefix="bertie-") as merged:
        base = place = model_folder(folder)
        if adapter is not None:
            place = Path(merged) / "model"
            merge_adapter(base, Path(adapter), place)
        return converting.convert_folder(
            families.family(place),
            place,
            Path(output),
            precision=precision,
            shard_bytes=None if shard_size is None else shard_size * 1_000_000,
            unsafe=unsafe,
            overwrite=overwrite,
            by=seal_of("convert", place, precision=precision, shard_size=shard_size, unsafe=unsafe),
        )


@arguments(out="output")
def grow(
    folder: str | Path,
    output: str | Path,
    *,
    layers: int | None = None,
    how: DepthMethod = "stack",
    times: int = 1,
    intermediate: int | None = None,
    positions: int | None = None,
    fill: Fill = "tile",
    overwrite: bool = False,
) -> ChangedModel:
    """Adds layers, width or positions to a model. Continue to train the new model afterwards.

    Args:
        folder: Name or folder of the model.
        output: Folder to write.
        layers: Number of layers of the new model.
        how: stack, interleave, or identity (pre-norm models only).
        times: Factor for the hidden size. The logits do not change.
        intermediate: Size of the feed-forward network.
        positions: Maximum number of tokens of a text.
        fill: Initialization of new positions: tile or interpolate.
        overwrite: Whether to replace an earlier output of Bertie.

    Raises:
        UsageError: No size is given, or the model cannot have it.

    Example:
        >>> bertie.grow("runs/tiny", "out/deeper", layers=4).layers
        4
    """
    if layers is None and positions is None and times == 1 and intermediate is None:
        raise UsageError("No new size given. Pass `layers`, `times`, `intermediate` or `positions`.")

    def grown(model: TorchModel) -> tuple[TorchModel, dict[str, object]]:
        if layers is not None:
            model = deeper(model, layers, how=how)
        if times > 1 or intermediate is not None:
            model = wider(model, times=times, intermediate_size=intermediate)
        if positions is not None:
            model = with_positions(model, positions, fill=fill)
        return model, {}

    options = {"layers": layers, "how": how, "times": times, "intermediate": intermediate}
    return _make("grow", folder, output, overwrite, grown, **options, positions=positions, fill=fill)


@arguments(out="output")
def shrink(
    folder: str | Path,
    output: str | Path,
    *,
    from_layers: Sequence[int] = (),
    family: str = "",
    overwrite: bool = False,
) -> ChangedModel:
    """Initializes a smaller student model from a model's layers. Train the student by distillation afterwards.

    Args:
        folder: Name or folder of the model.
        output: Folder to write.
        from_layers: Layers to take, counted from 0. Default: every second layer.
        family: Family of the new model. Default: the same.
        overwrite: Whether to replace an earlier output of Bertie.

    Raises:
        UsageError: There is no such layer or family.

    Example:
        >>> bertie.shrink("runs/tiny", "out/student", from_layers=[0]).layers
        1
    """
    variant = families.VARIANTS[family] if family else None

    def shrunk(model: TorchModel) -> tuple[TorchModel, dict[str, object]]:
        numbers = [*from_layers] or list(range(0, model.config.num_hidden_layers, 2))
        return take_layers(model, numbers, variant=variant), {"taken": numbers}

    return _make("shrink", folder, output, overwrite, shrunk, from_layers=[*from_layers], family=family)


@arguments(out="output")
def extend_vocabulary(
    folder: str | Path, words: str | Path | Iterable[str], output: str | Path, *, overwrite: bool = False
) -> ChangedModel:
    """Adds words to the vocabulary of a model. The embedding of a word is the mean of those of its former tokens.

    Args:
        folder: Name or folder of the model.
        words: The words, or a file with one on each line.
        output: Folder to write.
        overwrite: Whether to replace an earlier output of Bertie.

    Raises:
        DataError: There are no words.

    Example:
        >>> changed = bertie.extend_vocabulary("runs/tiny", ["umbrella", "thunder"], "out/extended")
        >>> changed.left_out
        {}
    """
    lines = [*valid_lines(Path(words))] if isinstance(words, str | PathLike) else [*words]
    stripped = [word.strip() for word in lines if word.strip()]
    if not stripped:
        raise DataError(f"{words}: no text." if isinstance(words, str | PathLike) else "There are no words.")

    def extended(model: TorchModel) -> tuple[TorchModel, dict[str, object]]:
        resized = resize.add_tokens(model.text_tokenizer, iter(stripped))
        for word, why in resized.left_out.items():
            console.warn(f"{word!r} {why}: skipped")
        return with_vocabulary(model, resized), {"left_out": dict(resized.left_out)}

    return _make("extend_vocabulary", folder, output, overwrite, extended, words=stripped)


@arguments(out="output", corpus="texts")
def trim_vocabulary(
    folder: str | Path,
    texts: str | PathLike[str] | Iterable[object],
    output: str | Path,
    *,
    overwrite: bool = False,
) -> ChangedModel:
    """Keeps only the tokens that occur in some texts, and the special tokens. The output for these texts is the same.

    Args:
        folder: Name or folder of the model.
        texts: Corpora or files of text, one or a list; or texts in memory, as for `train_tokenizer`.
        output: Folder to write.
        overwrite: Whether to replace an earlier output of Bertie.

    Raises:
        DataError: There is no text.

    Example:
        >>> bertie.trim_vocabulary("starter-en", iter(["It was written in the rain."]), "out/trimmed").vocab_size < 100
        True
    """

    def trimmed(model: TorchModel) -> tuple[TorchModel, dict[str, object]]:
        return with_vocabulary(model, resize.trim_tokenizer(model.text_tokenizer, _some(each_line(texts)))), {}

    return _make("trim_vocabulary", folder, output, overwrite, trimmed, texts=texts)


def _some(lines: Iterable[str]) -> Iterable[str]:
    """Yields lines. Raises DataError at the end where all were empty."""
    empty = True
    for line in lines:
        empty = empty and not line.strip()
        yield line
    if empty:
        raise DataError("There is no text.")


def _make(
    function: str, folder: str | Path, output: str | Path, overwrite: bool, change: ModelChange, **options: object
) -> ChangedModel:
    """Writes the changed model, unless it is there already."""
    source, target = model_folder(folder), Path(output)
    check_other(target, source)

    def write(place: Path) -> dict[str, object]:
        model = load_model(source)
        if model.tokenizer is None:
            raise UsageError(f"{source} has no tokenizer. Copy the tokenizer files of the model into it.")
        model, more = change(model)
        save_like(model, place, source)
        return {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "layers": model.config.num_hidden_layers,
            "hidden_size": model.config.hidden_size,
            "vocab_size": model.config.vocab_size,
            "max_length": model.config.max_length,
            **more,
        }

    texts = options.pop("texts", None)
    seal = seal_of(function, [source] if texts is None else _with(source, texts), **options)
    return ChangedModel(target, **made_once(target, MODEL_FOLDER, seal, write, overwrite=overwrite))


def _with(source: Path, texts: object) -> object:
    """Returns the paths of a model and of texts together, or texts in memory."""
    paths = texts if isinstance(texts, list | tuple) else [texts]
    return [source, *paths] if all(isinstance(path, str | PathLike) for path in paths) else iter(())
