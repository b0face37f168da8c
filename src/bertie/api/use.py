"""A function for each method of `Model`, for a model, its name or its folder. A folder is opened as `load` opens it.

The options are those of the method and of the command of that name; `device`, `precision` and `engine` are those of
`load`, for a model that is not open yet.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar, Unpack, get_type_hints, overload

from bertie.api.embedding import readable_texts
from bertie.api.model import THEIRS, Model, load, usable
from bertie.api.options import (
    EmbedOptions,
    EvaluateOptions,
    Output,
    PerplexityOptions,
    PredictOptions,
    RankOptions,
    ReceivePrediction,
    SimilarityOptions,
    WhereOptions,
    WriteOptions,
)
from bertie.api.results import Predictions, Ranked, Written
from bertie.errors import arguments
from bertie.infer.embed import Vector
from bertie.infer.fill import MaskPrediction
from bertie.infer.layers import TokenVectors
from bertie.io.memory import RowsInput

if TYPE_CHECKING:
    from bertie.api.scores import Scores
    from bertie.infer.pairs import PairVerdict
    from bertie.infer.perplexity import Perplexity
    from bertie.models.model import TorchModel


__all__ = [
    "AnyModel",
    "checked",
    "embed",
    "evaluate",
    "fill_mask",
    "module_of",
    "next_sentence",
    "perplexity",
    "predict",
    "rank",
    "readable_texts",
    "similarity",
    "write",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_MODEL_HELP = "model: The model, or its name or folder, or those of a run or a checkpoint."
WHERE_LINES = """\
    device: Of a model that is not open yet: cpu, cuda, cuda:1, mps or auto.
    precision: fp32, bf16 (may change the third digit) or auto.
    engine: torch, native or auto, the faster one here."""


def function_of(
    method: Callable[..., object], open_model: Callable[..., object], **others: str
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Decorator: a function `f(model, ...)` has the parameters and the documentation of a method, and those of `load`.

    open_model: its parameters after the first. others: what another library calls an argument -> our name.
    """

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        own = [*chain.from_iterable(map(_named, [*inspect.signature(method).parameters.values()][1:]))]
        where = [one.replace(kind=one.KEYWORD_ONLY) for one in inspect.signature(open_model).parameters.values()][1:]
        model = inspect.Parameter("model", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        text = inspect.getdoc(method) or ""

        returned = inspect.signature(method).return_annotation
        function.__signature__ = inspect.Signature([model, *own, *where], return_annotation=returned)  # type: ignore[attr-defined]
        text = text.replace("Args:\n", f"Args:\n    {_MODEL_HELP}\n", 1)
        text = text.replace("\n\nReturns:", f"\n{WHERE_LINES}\n\nReturns:", 1)
        function.__doc__ = text.replace(f"model.{method.__name__}(", f"bertie.{method.__name__}(model, ")
        return arguments(**others)(function)

    return decorate


def _named(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yields a parameter, or one for each name of `**options: Unpack[...]`."""
    if parameter.kind is not parameter.VAR_KEYWORD:
        yield parameter
        return
    (options,) = parameter.annotation.__args__
    for name, kind in get_type_hints(options).items():
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


AnyModel = Model | str | PathLike[str]
"""An open model, or the name or the folder of one, or a run."""


class _Predict(PredictOptions, WhereOptions, total=False):
    ensemble: Sequence[AnyModel]


class _Evaluate(EvaluateOptions, WhereOptions, total=False):
    ensemble: Sequence[AnyModel]
    against: AnyModel | None


class _Embed(EmbedOptions, WhereOptions, total=False):
    pass


class _Similarity(SimilarityOptions, WhereOptions, total=False):
    pass


class _Rank(RankOptions, WhereOptions, total=False):
    pass


class _Write(WriteOptions, WhereOptions, total=False):
    pass


class _Perplexity(PerplexityOptions, WhereOptions, total=False):
    pass


def module_of(model: "AnyModel | TorchModel", device: str | None = None, precision: str | None = None) -> "TorchModel":
    """Returns a model in torch: of an open model, of a name or a folder, or a module itself.

    Raises UsageError for a device or a precision of a model that is open.
    """
    from bertie.models.model import TorchModel

    if isinstance(model, TorchModel):
        return model
    engine = "auto" if isinstance(model, Model) else "torch"
    return usable(model, device=device or "auto", precision=precision or "fp32", engine=engine).module


def _call(method: Callable[..., _T], model: AnyModel, /, *texts: object, **options: object) -> _T:
    """Calls a method of a model, which is opened by the options of `load` that are among the others."""
    where = {name: options.pop(name) for name in ("device", "precision", "engine") if name in options}
    return method(usable(model, **where), *texts, **options)  # type: ignore[arg-type]  # checked by those that call


@overload
def predict(model: AnyModel, texts: RowsInput, *, output: None = None, **options: Unpack[_Predict]) -> Predictions: ...
@overload
def predict(
    model: AnyModel, texts: RowsInput, *, output: Output | ReceivePrediction, **options: Unpack[_Predict]
) -> Written: ...
@function_of(Model.predict, load, **THEIRS)
def predict(model: AnyModel, texts: RowsInput, **options: object) -> Predictions | Written:
    """Predicts labels for texts."""
    return _call(Model.predict, model, texts, **options)


@function_of(Model.evaluate, load, **THEIRS)
def evaluate(model: AnyModel, examples: RowsInput | None = None, **options: Unpack[_Evaluate]) -> "Scores":
    """Computes the metrics of a model on labeled examples."""
    return _call(Model.evaluate, model, examples, **options)


@overload
def embed(
    model: AnyModel, texts: RowsInput, *, tokens: Literal[False] = False, output: None = None, **options: Unpack[_Embed]
) -> Vector: ...
@overload
def embed(
    model: AnyModel, texts: RowsInput, *, tokens: Literal[True], output: None = None, **options: Unpack[_Embed]
) -> list[TokenVectors | None]: ...
@overload
def embed(
    model: AnyModel, texts: RowsInput, *, output: Output, tokens: bool = False, **options: Unpack[_Embed]
) -> Written: ...
@function_of(Model.embed, load, **THEIRS)
def embed(model: AnyModel, texts: RowsInput, **options: object) -> Vector | list[TokenVectors | None] | Written:
    """Computes a vector for each text, or for each of its tokens."""
    return _call(Model.embed, model, texts, **options)


@function_of(Model.similarity, load, **THEIRS)
def similarity(
    model: AnyModel, first: Iterable[object], second: Iterable[object], **options: Unpack[_Similarity]
) -> Vector:
    """Computes the similarity of each text of `first` to each text of `second`."""
    return _call(Model.similarity, model, first, second, **options)


@function_of(Model.rank, load, **THEIRS)
def rank(
    model: AnyModel, query: str, passages: Iterable[object], *, top: int | None = None, **options: Unpack[_Rank]
) -> list[Ranked]:
    """Ranks passages by relevance to a query."""
    return _call(Model.rank, model, query, passages, top=top, **options)


@function_of(Model.fill_mask, load, **THEIRS)
def fill_mask(
    model: AnyModel, text: str, *, top: int = 5, max_length: int | None = None, **options: Unpack[WhereOptions]
) -> list[list[MaskPrediction]]:
    """Predicts masked tokens."""
    return _call(Model.fill_mask, model, text, top=top, max_length=max_length, **options)


@function_of(Model.write, load, **THEIRS)
def write(model: AnyModel, texts: Iterable[object], **options: Unpack[_Write]) -> list[str | None]:
    """Generates a text for each text."""
    return _call(Model.write, model, texts, **options)


@function_of(Model.perplexity, load, **THEIRS)
def perplexity(model: AnyModel, texts: RowsInput, **options: Unpack[_Perplexity]) -> "Perplexity":
    """Computes the perplexity of texts, or the pseudo-perplexity of a masked language model."""
    return _call(Model.perplexity, model, texts, **options)


@function_of(Model.next_sentence, load, **THEIRS)
def next_sentence(
    model: AnyModel, first: str, second: str, *, max_length: int | None = None, **options: Unpack[WhereOptions]
) -> "PairVerdict":
    """Predicts whether one text follows another."""
    return _call(Model.next_sentence, model, first, second, max_length=max_length, **options)


def checked(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorator: as `arguments`, which also knows what other libraries call an argument."""
    known = inspect.signature(function).parameters
    return arguments(**{theirs: ours for theirs, ours in THEIRS.items() if ours in known})(function)
