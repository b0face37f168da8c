"""Submissions to the GLUE server: written and checked."""

from typing import TYPE_CHECKING

from bertie.apps import modules_of

if TYPE_CHECKING:
    from bertie.apps.submission import glue as glue
else:
    __getattr__ = modules_of(__name__)
