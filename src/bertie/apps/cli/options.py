"""Options made from the fields of a config: the help is the field's docstring, the default is the field's default.

    @app.command()
    @configured("bertie.runs.config:PretrainConfig", corpus="corpus", seed="train.seed")
    def pretrain(given: OptionValues, overrides: Overrides = None, ...): ...

`given` has the values that the user passed, by the dotted key of the setting. Fields are read from the source code,
since importing pydantic and the configs would make --help slow.
"""

import ast
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any

import typer

import bertie
from bertie.apps.cli.app import with_parameters
from bertie.platform import UsageError

OptionValues = dict[str, Any]
TYPES = {"str": str, "int": int, "float": float, "bool": bool}


@dataclass(frozen=True)
class Setting:
    """A field of a config, read from its source code. default: None where it has none or an empty one."""

    type: str
    default: object
    help: str


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
    """Decorator: adds an option per setting of a config ("module:Class").

    The command receives the values as `given`. options: parameter name -> dotted key, or a `Flag`.
    """
    flags = {name: key if isinstance(key, Flag) else Flag(key) for name, key in options.items()}
    annotations = {name: _option(name, flag, setting(config, flag.key)) for name, flag in flags.items()}

    def decorate(command: Callable[..., object]) -> Callable[..., object]:
        signature = inspect.signature(command)
        own = [parameter for name, parameter in signature.parameters.items() if name != "given"]
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in annotations.items()
        ]

        @wraps(command)
        def run(**values: Any) -> Any:
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
    def run(**values: Any) -> Any:
        chosen = {name: kind(**{f.name: values.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        return command(**values, **chosen)

    return with_parameters(run, options)


def _option(name: str, flag: Flag, setting: Setting) -> object:
    declared = flag.name or "--" + name.rstrip("_").replace("_", "-")
    base = setting.type.removesuffix(" | None")
    several = base.startswith("tuple") and flag.read is None
    kind: object = (list[str] if several else TYPES.get(base, str)) | None
    if base == "bool":
        declared = f"{declared}/--no-{declared.removeprefix('--')}"
    default: Any = flag.default or setting.default
    if base == "bool":
        default = {True: "yes", False: "no"}.get(default, default)
    if isinstance(default, tuple):
        default = ", ".join("the current folder" if one == "." else str(one) for one in default)
    choices = ", ".join(ast.literal_eval(f"({base[8:-1]},)")) if re.fullmatch(r"Literal\[[^]]*\]", base) else ""
    shown = setting.help + (f" One of {choices}." if choices else "")
    shown += f" Default: {default}." if default not in (None, "", {}) else ""
    return Annotated[kind, typer.Option(declared, metavar=flag.metavar, help=shown)]


def _check_once(keys: Sequence[str], overrides: Sequence[str]) -> None:
    """Raises UsageError for a setting that has a value by its option and another as key=value, of which the last
    counts."""
    if key := next((key for key in keys if any(one.partition("=")[0] == key for one in overrides)), None):
        raise UsageError(f"The setting {key} is given twice, by its option and as {key}=VALUE. Pass it once.")


def _value(flag: Flag, value: Any) -> object:
    return flag.read(value) if flag.read else value


# Reading fields from source ------------------------------------------------------------------------------------------


@cache
def setting(config: str, key: str) -> Setting:
    """Returns the field of a config with a dotted key. Raises KeyError for an unknown key."""
    module, _, name = config.partition(":")
    first, _, rest = key.partition(".")
    body = _class(module, name).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == first:
            if rest:
                inner = setting(f"{module}:{ast.unparse(node.annotation)}", rest)
                keywords = node.value.keywords if isinstance(node.value, ast.Call) else []
                own = next((_default(one.value) for one in keywords if one.arg == rest), inner.default)
                return replace(inner, default=own)
            said = after.value if isinstance(after, ast.Expr) else None
            help = said.value if isinstance(said, ast.Constant) else ""
            text = " ".join(str(help).split()).partition(" Source: ")[0]
            return Setting(ast.unparse(node.annotation), _default(node.value), text)
    for base in _class(module, name).bases:
        if isinstance(base, ast.Name) and base.id != "Config":
            return setting(f"{module}:{base.id}", key)
    raise KeyError(f"{config} has no field {key}")


def _class(module: str, name: str) -> ast.ClassDef:
    """Returns the definition of a class in the module, or in the module that it is imported from."""
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            return _class(node.module, name)
    raise KeyError(f"{module} has no class {name}")


@cache
def _tree(module: str) -> ast.Module:
    path = Path(bertie.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def _default(value: ast.expr | None) -> object:
    if isinstance(value, ast.Call):  # Field(0.8, gt=0)
        value = value.args[0] if value.args else None
    try:
        return None if value is None else ast.literal_eval(value)
    except ValueError:
        return None
