"""Compression of trained models, with a measurement of its cost."""

from typing import TYPE_CHECKING

from bertie.apps import modules_of

if TYPE_CHECKING:
    from bertie.apps.compress import measure as measure
    from bertie.apps.compress import run as run
else:
    __getattr__ = modules_of(__name__)
