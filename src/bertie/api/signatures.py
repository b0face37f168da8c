"""The signature and the documentation of a function that calls a method of a model."""

import inspect
from collections.abc import Callable, Iterator
from itertools import chain
from typing import ParamSpec, TypeVar, get_type_hints

from bertie.errors import arguments

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
