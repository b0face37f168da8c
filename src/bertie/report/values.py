"""Formats of numbers: settings, metrics, counts, durations, probabilities."""

import math
from types import MappingProxyType

from bertie.console import counted
from bertie.files import Json

UNSET = "(not set)"
_METRIC_NAMES = {
    "brier": "Brier score (mean squared error of probabilities)",
    "auprc": "area under the precision-recall curve (AUPRC)",
    "ece": "expected calibration error (ECE)",
    "f1": "F1",
    "las": "labeled attachment score (LAS)",
    "map": "mean average precision (MAP)",
    "mcc": "Matthews correlation coefficient (MCC)",
    "mrr": "mean reciprocal rank (MRR)",
    "mse": "mean squared error (MSE)",
    "uas": "unlabeled attachment score (UAS)",
}
CAPITALS = frozenset(_METRIC_NAMES) - {"brier"}


def metric_name(name: str, scores: Json = MappingProxyType({}), *, expand: bool = False) -> str:
    """Returns macro_f1 as "macro F1", and the f1 of one label as "F1 of 'spam'".

    scores: a report of scores (metrics/base.py). expand: with the meaning of the abbreviation, once per page.
    """
    words = (word.upper() if word in CAPITALS else word for word in name.split("_"))
    shown = _METRIC_NAMES[name] if expand and name in _METRIC_NAMES else " ".join(words)
    label = scores.get("positive", {}).get(name)
    return shown if label is None else f"{shown} of {label!r}"


def setting_text(value: object) -> str:
    """Returns a setting as the user would type it: 0.0001, and never 0.000; an unset one is "(not set)"."""
    if value is None or value == "" or (isinstance(value, list | tuple | dict) and not value):
        return UNSET
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(setting_text, value))
    return str(value)


def number(value: float) -> str:
    """Returns a metric or another measured number with suitable digits: 0.913, 2.85, 412.5, 3,505,000."""
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    if not math.isfinite(value) or value == 0 or 0.0005 <= size < 100:
        return f"{value:z.3f}"
    if size < 0.0005:
        return f"{value:.2g}"
    return f"{value:,.1f}" if size < 1000 else f"{float(f'{value:.4g}'):,.0f}"


def quantity(value: float, unit: str = "") -> str:
    """Returns a count, or a number of a unit, with a suitable multiple of it: "4.1 M", "12.3 KB", "1 h 20 min".

    unit: "" of a count, "bytes", "s", or "FLOPs", which are written as 1.3e+11; otherwise a noun: "2 words".
    """
    if unit == "s":
        return _duration(value)
    if unit == "FLOPs":
        return f"{value:.2g} FLOPs"
    if unit == "bytes":
        return f"{value:.0f} bytes" if value < 1000 else quantity(value).replace(" B", " G") + "B"
    if unit:
        return counted(round(value), unit)
    for scale, letter in ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " K")):
        if value >= scale * 0.99995:
            return f"{value / scale:.1f}{letter}"
    return f"{value:.0f}"


def _duration(seconds: float) -> str:
    """Returns a time with suitable units: 0.4 s, 3 s, 12 min, 1 h 20 min, 2 d 3 h."""
    if seconds < 0.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 10 and (rest := round(seconds) % 60):
        return f"{int(round(seconds) // 60)} min {rest} s"
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"


def probability(value: float) -> str:
    """Returns a probability in percent, with a decimal near one half."""
    return f"{value:.1%}" if 0.45 <= value <= 0.55 or 0 < value < 0.01 else f"{value:.0%}"


def interval(low: float, high: float) -> str:
    """Returns "0.560 to 0.713"."""
    return f"{number(low)} to {number(high)}"
