"""One text through a masked language model, with the shape of every array."""

from typing import TYPE_CHECKING

from bertie.apps import modules_of

if TYPE_CHECKING:
    from bertie.apps.trace import trace as trace
else:
    __getattr__ = modules_of(__name__)
