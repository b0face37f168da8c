"""Options made from the fields of a config: the help is the field's docstring, the default is the field's default.

    @app.command()
    @configured("pretrain", corpus="corpus", seed="train.seed")
    def pretrain(values: OptionValues, overrides: Overrides = None, ...): ...

`values` has the values that the user passed, by the dotted key of the setting. What the fields are is in settings.json,
since importing pydantic and the configs would make --help slow. A test holds the file to the configs, and writes it.
"""

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from bertie.apps.cli.app import with_parameters
from bertie.platform import UsageError

OptionValues = dict[str, Any]
SETTINGS_FILE = Path(__file__).with_name("settings.json")
TYPES = {"str": str, "int": int, "float": float, "bool": bool}


class Setting(NamedTuple):
    """A field of a config. type: "str", "int", "float", "bool" or "list". default: None where it has none."""

    type: str
    choices: Sequence[str]
    default: object
    help: str


@cache
def _read_settings() -> dict[str, dict[str, Setting]]:
    """Returns the fields of each config by their dotted keys."""
    table = json.loads(SETTINGS_FILE.read_bytes())
    return {name: {key: Setting(*row) for key, row in rows.items()} for name, rows in table.items()}


@dataclass(frozen=True)
class Flag:
    """An option for a setting that needs more than a name and a help text.

    read: makes the value from the text. default: in the help, where it is no constant.
    """

    key: str
    name: str = ""
    read: Callable[[str], Any] | None = None
    metavar: str | None = None
    default: str = ""


def configured(config: str, **options: str | Flag) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Decorator: adds an option per setting of a config: "corpus", "pretrain" or "finetune".

    The command receives the values as `values`. options: parameter name -> dotted key, or a `Flag`.
    """
    flags = {name: key if isinstance(key, Flag) else Flag(key) for name, key in options.items()}
    annotations = {name: _option(name, flag, _read_settings()[config][flag.key]) for name, flag in flags.items()}

    def decorate(command: Callable[..., object]) -> Callable[..., object]:
        signature = inspect.signature(command)
        own = [parameter for name, parameter in signature.parameters.items() if name != "values"]
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in annotations.items()
        ]

        @wraps(command)
        def run(**values: Any) -> object:
            texts = {name: value for name in flags if (value := values.pop(name)) not in (None, [])}
            _check_once([flags[name].key for name in texts], values.get("overrides") or [])
            return command({flags[name].key: _value(flags[name], value) for name, value in texts.items()}, **values)

        return with_parameters(run, [*(p.replace(kind=keyword) for p in own), *parameters])

    return decorate


def grouped(command: Callable[..., object]) -> Callable[..., object]:
    """Gives a command one option per field of its dataclass parameters.

    A field is annotated as a parameter of a command would be.
    """
    parameters = inspect.signature(command).parameters
    groups: dict[str, Any] = {name: p.annotation for name, p in parameters.items() if is_dataclass(p.annotation)}
    keyword, options = inspect.Parameter.KEYWORD_ONLY, list[inspect.Parameter]()
    for name, parameter in parameters.items():
        group = fields(groups[name]) if name in groups else ()
        options += [inspect.Parameter(f.name, keyword, default=f.default, annotation=f.type) for f in group]
        options += [] if name in groups else [parameter.replace(kind=keyword)]

    @wraps(command)
    def run(**values: Any) -> object:
        chosen = {name: kind(**{f.name: values.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        return command(**values, **chosen)

    return with_parameters(run, options)


def _option(name: str, flag: Flag, setting: Setting) -> object:
    declared = flag.name or "--" + name.rstrip("_").replace("_", "-")
    several = setting.type == "list" and flag.read is None
    kind: object = (list[str] if several else TYPES.get(setting.type, str)) | None
    default: Any = flag.default or setting.default
    if setting.type == "bool":
        declared = f"{declared}/--no-{declared.removeprefix('--')}"
        default = {True: "yes", False: "no"}.get(default, default)
    if isinstance(default, list):
        default = ", ".join("the current folder" if one == "." else str(one) for one in default)
    shown = setting.help + (f" One of {', '.join(setting.choices)}." if setting.choices else "")
    shown += f" Default: {default}." if default not in (None, "") else ""
    return Annotated[kind, typer.Option(declared, metavar=flag.metavar, help=shown)]


def _check_once(keys: Sequence[str], overrides: Sequence[str]) -> None:
    """Raises UsageError for a setting that has a value by its option and another as key=value, of which the last
    counts."""
    if key := next((key for key in keys if any(one.partition("=")[0] == key for one in overrides)), None):
        raise UsageError(f"The setting {key} is given twice, by its option and as {key}=VALUE. Pass it once.")


def _value(flag: Flag, value: Any) -> object:
    return flag.read(value) if flag.read else value
