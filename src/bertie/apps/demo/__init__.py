"""The demo: the whole pipeline on text that every machine has, in minutes, and a report."""

from typing import TYPE_CHECKING

from bertie.apps import modules_of

if TYPE_CHECKING:
    from bertie.apps.demo import headline as headline
    from bertie.apps.demo import pipeline as pipeline
else:
    __getattr__ = modules_of(__name__)
