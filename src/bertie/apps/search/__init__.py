"""Search in one's own documents: passages, an index, ranked results, and answers marked in them."""

from typing import TYPE_CHECKING

from bertie.apps import modules_of

if TYPE_CHECKING:
    from bertie.apps.search import api as api
    from bertie.apps.search import check as check
    from bertie.apps.search import embedded as embedded
    from bertie.apps.search import engine as engine
    from bertie.apps.search import evaluate as evaluate
    from bertie.apps.search import index as index
    from bertie.apps.search import models as models
    from bertie.apps.search import negatives as negatives
    from bertie.apps.search import neighbors as neighbors
    from bertie.apps.search import questions as questions
    from bertie.apps.search import remote as remote
    from bertie.apps.search import retrieval as retrieval
    from bertie.apps.search import searcher as searcher
    from bertie.apps.search import terms as terms
else:
    __getattr__ = modules_of(__name__)
