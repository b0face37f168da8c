"""The options of commands that are settings of a run: their table is what the configs say.

`python tests/unit/test_command_settings.py` writes the table, apps/cli/settings.json, when a config has changed.
"""

import json
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic_core import PydanticUndefined

from bertie.apps.cli.options import SETTINGS_FILE
from bertie.runs.config import FinetuneConfig, PretrainConfig
from bertie.runs.corpora import CorpusRecipe
from bertie.settings import Config

CONFIGS: dict[str, type[Config]] = {"corpus": CorpusRecipe, "pretrain": PretrainConfig, "finetune": FinetuneConfig}


def table() -> str:
    """The table as JSON: config -> dotted key -> [type, choices, default, help], a row a line."""
    blocks = []
    for name, kind in CONFIGS.items():
        rows = [f"    {json.dumps(key)}: {json.dumps(row, ensure_ascii=False)}" for key, row in settings(kind)]
        blocks.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n  }")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def settings(kind: type[Config], section: Config | None = None, before: str = "") -> Any:
    """The settings of a config and of its sections: dotted key -> type, choices, default, help."""
    for name, field in kind.model_fields.items():
        value = getattr(section, name) if section else field.get_default(call_default_factory=True)
        if isinstance(value, Config):
            yield from settings(type(value), value, f"{before}{name}.")
            continue
        type_ = plain(field.annotation)
        several = "list" if get_origin(type_) is tuple else "str"
        shown = type_.__name__ if type_ in (str, int, float, bool) else several
        help = " ".join((field.description or "").split()).partition(" Source: ")[0]
        choices = get_args(type_) if get_origin(type_) is Literal else ()
        choices = () if all(one in help for one in choices) else choices  # the help says which there are
        default = None if isinstance(value, dict) or value is PydanticUndefined else value
        yield before + name, [shown, choices, default, help]


def plain(annotation: Any) -> Any:
    """`Annotated[int, ...] | None` -> int."""
    if get_origin(annotation) is Annotated:
        return plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        kinds = [one for one in get_args(annotation) if one is not NoneType]
        return plain(kinds[0]) if len(kinds) == 1 else annotation
    return annotation


def test_the_table_is_what_the_configs_say() -> None:
    assert SETTINGS_FILE.read_text(encoding="utf-8") == table(), "run: python tests/unit/test_command_settings.py"


@pytest.mark.parametrize("name", CONFIGS)
def test_every_setting_has_a_help_text(name: str) -> None:
    rows = json.loads(SETTINGS_FILE.read_text(encoding="utf-8"))[name]
    assert len(rows) > 10
    assert [key for key, (_, _, _, help) in rows.items() if not help] == []


if __name__ == "__main__":
    SETTINGS_FILE.write_text(table(), encoding="utf-8")
