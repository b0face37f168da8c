"""What the layers of a model know: probes, and vectors of a word in different texts."""

from typing import TYPE_CHECKING

from bertie.apps import modules_of

if TYPE_CHECKING:
    from bertie.apps.probe import api as api
    from bertie.apps.probe import contexts_page as contexts_page
    from bertie.apps.probe import page as page
    from bertie.apps.probe import run as run
else:
    __getattr__ = modules_of(__name__)
