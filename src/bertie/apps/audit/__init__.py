"""Audits: what a model prefers between groups of people, measured with published sets and with own texts."""

from typing import TYPE_CHECKING

from bertie.apps import modules_of

if TYPE_CHECKING:
    from bertie.apps.audit import debias as debias
    from bertie.apps.audit import page as page
    from bertie.apps.audit import remedy as remedy
    from bertie.apps.audit import remedy_page as remedy_page
    from bertie.apps.audit import run as run
else:
    __getattr__ = modules_of(__name__)
