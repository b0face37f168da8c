"""Changed copies of texts, from which a student learns a teacher's answers."""

from typing import TYPE_CHECKING

from bertie.apps import modules_of

if TYPE_CHECKING:
    from bertie.apps.vary import vary as vary
else:
    __getattr__ = modules_of(__name__)
