"""Markdown tables for generate.py: of commands' options, of settings and of dataclasses' fields."""

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin

NOTE = "<!-- Made by docs/generate.py: edit the source code, not this page. -->\n"


def plain(text: object) -> str:
    """Text with the characters escaped that mean something in Markdown, outside `code`."""
    parts = re.split(r"(`[^`]+`)", " ".join(str(text).split()))
    return "".join(part if n % 2 else re.sub(r"([*\[\]<>$|\\])", r"\\\1", part) for n, part in enumerate(parts))


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; empty without rows."""
    lines = [" | ".join(cell.replace("\\|", "|").replace("|", "\\|") or " " for cell in row) for row in rows]
    heads = list(head)
    return "\n".join(f"| {line} |" for line in [" | ".join(heads), " | ".join("---" for _ in heads), *lines]) + "\n"


def page(title: str, intro: str, *parts: str) -> str:
    """A whole page."""
    return "\n".join([NOTE, f"# {title}\n", intro + "\n", *parts])


def settings(kind: Any) -> str:
    """The table of a pydantic model's keys, those of its sections under dotted names."""
    return table(("key", "type", "default", "range", "meaning", "source of the default"), _rows(kind, "", None))


def _rows(kind: Any, prefix: str, over: Any) -> Iterator[tuple[str, ...]]:
    from pydantic import BaseModel

    for name, field in kind.model_fields.items():
        default = getattr(over, name) if over is not None else field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            yield from _rows(type(default), f"{prefix}{name}.", default)
            continue
        shown = "required" if field.is_required() and over is None else _value(default)
        yield (
            f"`{prefix}{name}`",
            _type(field.annotation),
            shown,
            _range(field.metadata),
            *_meaning(field.description or ""),
        )


def _meaning(text: str) -> tuple[str, str]:
    """What a docstring says of a setting, and where its default comes from: all after "Source:"."""
    meaning, _, source = " ".join(text.split()).partition(" Source: ")
    return plain(meaning), plain(source.removesuffix("."))


def dataclass_table(kind: Any, skip: tuple[str, ...]) -> str:
    """The table of a dataclass's fields, or "" when there are none. Meanings are attribute docstrings or remarks."""
    said = _remarks(kind)
    rows = []
    for field in fields(kind):
        if field.init and field.name not in skip and not field.name.startswith("_"):
            default = field.default if field.default is not MISSING else (
                field.default_factory() if field.default_factory is not MISSING else MISSING
            )  # fmt: skip
            shown = "required" if default is MISSING else _value(default)
            rows.append((f"`{field.name}`", _type(field.type), shown, *_meaning(said.get(field.name, ""))))
    return table(("key", "type", "default", "meaning", "source of the default"), rows) if rows else ""


def _remarks(kind: type) -> dict[str, str]:
    """Field -> the string that follows it in the source, or the remark on its line; of base classes too."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not is_dataclass(base):
            continue
        source = textwrap.dedent(inspect.getsource(base))
        lines = source.splitlines()
        body = ast.parse(source).body[0].body  # type: ignore[attr-defined]
        for node, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                text = (
                    after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
                )
                remark = re.search(r"  # (.*)$", lines[(node.end_lineno or 1) - 1])
                found[node.target.id] = str(text) or (remark[1] if remark else "")
    return found


def summary(kind: type) -> str:
    """The first paragraph of a docstring."""
    return plain((inspect.getdoc(kind) or "").split("\n\n")[0])


def _type(annotation: Any) -> str:
    return f"`{_type_name(annotation)}`"


def _type_name(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(map(repr, args))
    if origin in (Union, types.UnionType):
        return " | ".join(map(_type_name, args))
    if origin is not None and hasattr(annotation, "__metadata__"):
        return _type_name(args[0])
    if origin is not None:
        name = getattr(origin, "__name__", str(origin)).lower()
        return f"{'mapping' if name in ('dict', 'mapping') else name}[{', '.join(map(_type_name, args))}]"
    return "None" if annotation is type(None) else "..." if annotation is ... else getattr(
        annotation, "__name__", str(annotation)
    )  # fmt: skip


def _value(value: Any) -> str:
    if value is None:
        return "not set"
    if value in ("", (), {}, []):
        return "empty"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _range(metadata: Iterable[Any]) -> str:
    signs = {"ge": "≥", "gt": "\\>", "le": "≤", "lt": "\\<", "min_length": "length ≥"}
    bounds = [(sign, getattr(one, name, None)) for one in metadata for name, sign in signs.items()]
    return ", ".join(f"{sign} {bound:,}" for sign, bound in bounds if bound is not None)
