"""YAML that can run no code, whose only booleans are true and false. The library is imported when a text is read."""

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yaml import SafeLoader

BOOLEAN = "tag:yaml.org,2002:bool"


@cache
def _loader() -> "type[SafeLoader]":
    """Safe YAML in which only true and false are booleans, as in YAML 1.2: yes and no are labels and words."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012  (as the base class has it)
            first: [(tag, pattern) for tag, pattern in resolvers if tag != BOOLEAN]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    Loader.add_implicit_resolver(BOOLEAN, re.compile("(true|True|TRUE|false|False|FALSE)$"), [*"tTfF"])
    return Loader


def parse_yaml(text: str) -> object:
    """Returns the value of a text. Raises ValueError for one that is not YAML, RecursionError for too deep a one."""
    import yaml

    loader = _loader()(text)
    try:
        return loader.get_single_data()
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    finally:
        loader.dispose()


def yaml_text(tree: object) -> str:
    """Returns a value as YAML, its keys in their order."""
    import yaml

    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
