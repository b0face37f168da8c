"""Pre-training objectives. Each is one file and one table row. Objectives can be added."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import reduce
from operator import add
from typing import Any, Literal, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from bertie.errors import UnknownName, UsageError, nearest
from bertie.objectives.base import LossReport, LossTerm, Objective, Sum
from bertie.objectives.distil import Distillation
from bertie.objectives.frames import MaskedFrames
from bertie.objectives.hidden import HiddenStates
from bertie.objectives.ltr import BiLanguageModel, LeftToRight
from bertie.objectives.mlm import MaskedLM
from bertie.objectives.pair import ImageTextMatching, NextSentence, SentenceOrder
from bertie.objectives.plm import PermutationLM
from bertie.objectives.rtd import ReplacedTokens
from bertie.objectives.span import SpanCorruption
from bertie.registry import Registry

__all__ = [
    "OBJECTIVES",
    "BiLanguageModel",
    "Distillation",
    "HiddenStates",
    "ImageTextMatching",
    "LeftToRight",
    "LossReport",
    "LossTerm",
    "MaskedFrames",
    "MaskedLM",
    "NextSentence",
    "Objective",
    "PermutationLM",
    "ReplacedTokens",
    "SentenceOrder",
    "SpanCorruption",
    "Sum",
    "build_objective",
]

OBJECTIVES: Registry[type[Objective]] = Registry(
    "objective",
    [
        ("mlm", MaskedLM),
        ("nsp", NextSentence),
        ("sop", SentenceOrder),
        ("rtd", ReplacedTokens),
        ("ltr", LeftToRight),
        ("distil", Distillation),
        ("span", SpanCorruption),
        ("plm", PermutationLM),
        ("bilm", BiLanguageModel),
        ("itm", ImageTextMatching),
        ("frames", MaskedFrames),
        ("hidden", HiddenStates),
    ],
    group="bertie.objectives",
)


def build_objective(options: Mapping[str, Mapping[str, Any] | None]) -> Objective:
    """Returns the sum of the named objectives, each with its options. A name with None is left out.

    Raises:
        UsageError: An objective or option is unknown, an option is out of range, or no objective remains.
    """
    kinds = {name: OBJECTIVES[name] for name in options}  # also of null: a misspelled name removes nothing
    chosen = [_one(kinds[name], name, values) for name, values in options.items() if values is not None]
    if not chosen:
        raise UnknownName(f"No objective is left to train on. {nearest('', OBJECTIVES)}")
    return reduce(add, chosen)


def _one(kind: type[Objective], name: str, settings: Mapping[str, object]) -> Objective:
    if not is_dataclass(kind):
        raise UsageError(f"The objective {name} has no options: {kind.__name__} must be a dataclass.")
    known = [field.name for field in fields(kind) if field.init]
    for option in settings:
        if option not in known:
            raise UnknownName(f"Unknown option {f'{name}.{option}'!r}. {nearest(option, known)}")
    values = {option: tuple(value) if isinstance(value, list) else value for option, value in settings.items()}
    hints = get_type_hints(kind)
    for option, value in values.items():
        if get_origin(hints[option]) is Literal:  # the objective names the nearest word
            continue
        try:
            TypeAdapter(hints[option], config={"allow_inf_nan": False}).validate_python(value, strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            if first["type"] in ("missing", "too_long"):  # how many there must be, the objective says better
                continue
            said = first["msg"].replace("tuple", "list")
            raise UsageError(
                f"objectives.{name}.{option} is {settings[option]!r}. {said} (bertie help objectives)."
            ) from None
    return kind(**values)
