"""Whether a model still reads what it was trained on: its traffic compared with that of the training."""

from typing import TYPE_CHECKING

from bertie.apps import modules_of

if TYPE_CHECKING:
    from bertie.apps.drift import api as api
    from bertie.apps.drift import compare as compare
    from bertie.apps.drift import shift as shift
else:
    __getattr__ = modules_of(__name__)
