"""The cost of a run before it starts, on every device: operations, memory, time, energy, CO2 and money."""

from typing import TYPE_CHECKING

from bertie.apps import modules_of

if TYPE_CHECKING:
    from bertie.apps.plan import forecast as forecast
    from bertie.apps.plan import page as page
    from bertie.apps.plan import presets as presets
else:
    __getattr__ = modules_of(__name__)
