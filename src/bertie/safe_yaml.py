"""YAML that can run no code, whose only booleans are true and false."""

import re

import yaml

BOOLEAN = "tag:yaml.org,2002:bool"


class Loader(yaml.SafeLoader):
    """Safe YAML in which only true and false are booleans, as in YAML 1.2: yes and no are labels and words."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (as the base class has it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != BOOLEAN]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


Loader.add_implicit_resolver(BOOLEAN, re.compile("(true|True|TRUE|false|False|FALSE)$"), [*"tTfF"])


def parse_yaml(text: str) -> object:
    """Returns the value of a text. Raises ValueError for one that is not YAML, RecursionError for too deep a one."""
    loader = Loader(text)
    try:
        return loader.get_single_data()
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    finally:
        loader.dispose()


def yaml_text(tree: object) -> str:
    """Returns a value as YAML, its keys in their order."""
    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
