"""What a model looks at: attributions of one prediction to the words of its text, and how faithful they are."""

from typing import TYPE_CHECKING

from bertie.apps import modules_of

if TYPE_CHECKING:
    from bertie.apps.explain import api as api
    from bertie.apps.explain import attention as attention
    from bertie.apps.explain import attention_page as attention_page
    from bertie.apps.explain import attribution as attribution
    from bertie.apps.explain import heads as heads
    from bertie.apps.explain import heads_page as heads_page
    from bertie.apps.explain import page as page
    from bertie.apps.explain import relations as relations
    from bertie.apps.explain import targets as targets
else:
    __getattr__ = modules_of(__name__)
