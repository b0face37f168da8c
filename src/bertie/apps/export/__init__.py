"""Export of models to other formats, checked against the model before anything is written."""

from typing import TYPE_CHECKING

from bertie.apps import modules_of

if TYPE_CHECKING:
    from bertie.apps.export import api as api
    from bertie.apps.export import folder as folder
    from bertie.apps.export import texts as texts
else:
    __getattr__ = modules_of(__name__)
