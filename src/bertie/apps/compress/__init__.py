"""Compression of trained models, with a measurement of its cost."""

from typing import TYPE_CHECKING

from bertie.apps import modules_of

if TYPE_CHECKING:
    from bertie.apps.compress import api as api
    from bertie.apps.compress import gate as gate
    from bertie.apps.compress import learn as learn
    from bertie.apps.compress import prune as prune
    from bertie.apps.compress import recipe as recipe
    from bertie.apps.compress import run as run
else:
    __getattr__ = modules_of(__name__)
