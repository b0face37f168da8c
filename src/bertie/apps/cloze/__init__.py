"""Cloze questions about raw text, to practice question answering without labels."""

from typing import TYPE_CHECKING

from bertie.apps import modules_of

if TYPE_CHECKING:
    from bertie.apps.cloze import cloze as cloze
else:
    __getattr__ = modules_of(__name__)
