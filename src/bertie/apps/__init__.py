"""Applications around the library. Each sees `bertie`, `bertie.platform` and itself."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType


def modules_of(package: str) -> Callable[[str], ModuleType]:
    """Returns the `__getattr__` of a package whose modules are imported when they are first used.

    A command can then be imported for its help without the modules that it calls.
    """

    def module(name: str) -> ModuleType:
        try:
            return import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from None

    return module
