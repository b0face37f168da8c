"""The documentation inside installed Python packages as prose: a corpus on every machine with Python.

A module is parsed, and never imported or run. Its docstrings, the string constants of C extensions (`add_docstr`,
`add_newdoc`), and .rst and .md files of the package become paragraphs of plain sentences. Doctests, signatures, tables,
formulas and markup are removed, and explanations are kept. One module is one document.
"""

import ast
import inspect
import os
import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from bertie.platform import DataError, nearest

STDLIB = "stdlib"
SUFFIXES = {".py", ".pyi", ".rst", ".md"}
# Tests, code copied from elsewhere, legal texts: not a package's own documentation.
SKIPPED_PARTS = re.compile(
    r"tests?|testing|_?vendor(ed)?|third_party|_?externals?|array_api_compat|__pycache__|(site|dist)-packages"
    r"|idlelib|lib2to3|turtledemo|.*\.dist-info|(license|notice|copying|authors|changelog).*",
    re.IGNORECASE,
)
DOCSTRING_CALL = re.compile(r"add_?(newdoc|docstr)")
DOCSTRING_TABLES = {"topics.py"}  # pydoc_data/topics.py: the language reference, as one dictionary of strings
NAMED = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
SHORTEST_CONSTANT = 60  # characters; below, a string constant in such a call or table is a name


@dataclass(frozen=True)
class DocPassage:
    """One docstring's prose. `name` is the dotted name of the documented object ("json.decoder.JSONDecoder")."""

    name: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class Module:
    """One module's documentation, which is a document. `package` is the user's name for it; `name` is dotted."""

    package: str
    name: str
    passages: tuple[DocPassage, ...]

    @property
    def text(self) -> str:
        """The whole document, with paragraphs in the order of the file, separated by empty lines."""
        return "\n\n".join(paragraph for passage in self.passages for paragraph in passage.paragraphs)

    @classmethod
    def stored(cls, package: str, name: str, passages: Iterable[tuple[str, Iterable[str]]]) -> "Module":
        """Returns a module whose documentation was stored: the name and the paragraphs of each passage."""
        return cls(package, name, tuple(DocPassage(inside, tuple(paragraphs)) for inside, paragraphs in passages))


class PythonPackage:
    """An installed package, or `stdlib`: its files, and the documentation in them."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __iter__(self) -> Iterator[Module]:
        """Yields every module with documentation, ordered by path."""
        return modules(self.name)

    @property
    def root(self) -> Path:
        """The folder, or the file, of the package."""
        return locate(self.name)

    def files(self) -> list[Path]:
        """Returns the files that may have documentation."""
        return package_files(self.name)

    def read(self, path: Path) -> Module | None:
        """Returns the documentation of one file, or None when it has none or cannot be read."""
        return read_module(path, self.name, self.root)


def modules(package: str) -> Iterator[Module]:
    """Yields every module of one installed package (or of `stdlib`) with documentation, ordered by path.

    Files that are not Python of this version, or not UTF-8, are skipped. Raises DataError for an unknown package.
    """
    root = locate(package)
    for path in package_files(package):
        module = read_module(path, package, root)
        if module is not None:
            yield module


@cache
def locate(package: str) -> Path:
    """Returns the folder, or for a package of one file the file, of an installed package, without importing it."""
    if package == STDLIB:
        return Path(sysconfig.get_path("stdlib"))
    if package.isidentifier():
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            return Path(next(iter(spec.submodule_search_locations)))
        if spec is not None and spec.origin and spec.origin.endswith(".py"):
            return Path(spec.origin)
    by_distribution = metadata.packages_distributions()  # import name -> distributions: "sklearn" -> ["scikit-learn"]
    for name, distributions in sorted(by_distribution.items()):
        if package in distributions and name != package and name.isidentifier() and not name.startswith("_"):
            return locate(name)
    known = {STDLIB, *(name for name in by_distribution if name.isidentifier() and not name.startswith("_"))}
    hint = nearest(package, known) if len(known) < 40 else nearest(package, known).split("Choices:")[0]
    raise DataError(
        f"The Python package {package!r} is not installed. {hint}Install it with pip, or name another package."
    )


def package_files(package: str) -> list[Path]:
    """Yields the files of a package that may have documentation, in a fixed order."""
    root = locate(package)
    if root.is_file():
        return [root]
    paths = list[Path]()
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not SKIPPED_PARTS.fullmatch(name)]  # not even looked into
        paths += [Path(folder, name) for name in names if not SKIPPED_PARTS.fullmatch(name)]
    paths = [path for path in paths if path.suffix in SUFFIXES and path.is_file()]
    return sorted(paths, key=lambda path: str(path.relative_to(root)))


def read_module(path: Path, package: str, root: Path) -> Module | None:
    """Returns one file's documentation, or None when it has none or cannot be read."""
    inside = path.relative_to(root if root.is_dir() else root.parent).with_suffix("")
    top = () if package == STDLIB or root.is_file() else (root.name,)
    parts = [*top, *inside.parts]
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    try:
        source = path.read_text(encoding="utf-8")
        texts = docstrings(source, name, path.name) if path.suffix in {".py", ".pyi"} else [(name, source)]
    except (SyntaxError, ValueError, RecursionError):
        return None
    gathered: dict[str, dict[str, None]] = {}  # name -> its paragraphs, in order, each once in the module
    earlier = set[str]()
    for qualified, text in texts:
        new = [paragraph for paragraph in prose(text) if paragraph not in earlier]
        earlier.update(new)
        gathered.setdefault(qualified, {}).update(dict.fromkeys(new))
    passages = tuple(
        DocPassage(qualified, tuple(paragraphs)) for qualified, paragraphs in gathered.items() if paragraphs
    )
    return Module(package, name, passages) if passages else None


def docstrings(source: str, module: str, filename: str = "") -> list[tuple[str, str]]:
    """Yields (dotted name, docstring) of a module and everything in it, in the order of the file.

    Raises SyntaxError, ValueError or RecursionError when `source` is not Python.
    """
    texts: list[tuple[str, str]] = []

    def visit(node: ast.AST, name: str) -> None:
        if isinstance(node, ast.Module | NAMED) and (text := ast.get_docstring(node, clean=False)):
            texts.append((name, text))
        if isinstance(node, ast.Module | NAMED | ast.If | ast.Try | ast.With):
            for child in ast.iter_child_nodes(node):
                visit(child, f"{name}.{child.name}" if isinstance(child, NAMED) else name)
        elif isinstance(node, ast.Expr | ast.Assign):
            if isinstance(node.value, ast.Call) and DOCSTRING_CALL.search(ast.unparse(node.value.func)):
                documented = [ast.unparse(part) for part in node.value.args[:1] if isinstance(part, ast.Attribute)]
                documented += [text for text in strings(node.value) if text.isidentifier()][:1]
                name = ".".join([name, *documented])
            elif filename not in DOCSTRING_TABLES:
                return
            texts.extend((name, text) for text in strings(node.value) if len(text) >= SHORTEST_CONSTANT)

    visit(ast.parse(source), module)
    return texts


def strings(node: ast.AST) -> list[str]:
    """Yields every string constant below a node."""
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


# From a docstring to paragraphs of prose.

UNDERLINE = re.compile(r"^\s*([=\-~^\"'`#*+.])\1{2,}\s*$")
LEFT_OUT_SECTION = re.compile(r"(see also|references?|methods|authors?|copyright|license)$", re.IGNORECASE)
GOOGLE_SECTION = re.compile(
    r"(args|arguments|parameters|keyword args|keyword arguments|returns?|yields?|raises?|shapes?|inputs?|outputs?"
    r"|attributes|variables|examples?|notes?|warnings?|see also|references?):{1,2}$",
    re.IGNORECASE,
)
DIRECTIVE = re.compile(r"^\s*\.\.(?: +(?P<name>[\w-]+)::)?(?:\s|$)")  # .. note::, and comments and targets
PROSE_DIRECTIVES = {"note", "warning", "tip", "important", "caution", "attention", "hint", "admonition"}
_FIELD = re.compile(r"^:(?P<kind>\w+)(?: [^:`]*)?:(?!`) *(?P<text>.*)$")
GOOGLE_ENTRY = re.compile(r"^\*{0,2}[\w.`*]+ *(?:\([^()]*(?:\([^()]*\)[^()]*)*\))? *: +(?=[A-Za-z`:])")
NUMPY_ENTRY = re.compile(r"^[\w.*`, ]+ : |^\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*$")
BULLET = re.compile(r"^(?:[-*+•]|\(?\d{1,2}[.)]|\(?[a-zA-Z][.)])\s+")
SIGNATURE = re.compile(r"^[\w.]+\(.*\)(?: *->.*)?$")
_TABLE_LINE = re.compile(r"^[\s|+=\-]*$|\|.*\||^\s*={3,} +={3,}")
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|(?<!\{)\{\w*\}(?!\})")

INLINE = (
    (re.compile(r":\w+(?::\w+)?:`([^`<]+?)\s*<[^`<>]*>`"), r"\1"),  # :func:`text <a.b.c>`
    (re.compile(r":math:`([^`]*)`"), r"\1"),
    (re.compile(r":[\w+-]+(?::[\w+-]+)?:`~?([^`]*)`"), r"\1"),  # :class:`a.b.C`, :py:class:`...`
    (re.compile(r"`([^`<>]+?)\s*<[^`<>]*>`_{0,2}"), r"\1"),  # `text <link>`_
    (re.compile(r"\[([^\[\]]+)\]\((?:https?|/|#)[^()\s]*\)"), r"\1"),  # [text](link)
    (re.compile(r"`~[\w.]*?(\w+)`"), r"\1"),  # `~a.b.C`
    (re.compile(r"\s?\[(?:\d+|[A-Z][\w+]*\d+)\]_"), ""),  # a citation
    (re.compile(r"``?([^`]+)``?_{0,2}"), r"\1"),
    (re.compile(r"(?<![\w*])\*{1,2}([^\s*][^*]*?)\*{1,2}(?![\w*])"), r"\1"),
    (re.compile(r"\\(?:mathbb|mathcal|mathrm|text|operatorname|left|right|bf)\b"), ""),
    (re.compile(r"\\([A-Za-z]+|.)"), r"\1"),
    (re.compile(r"\{\{|\}\}"), ""),
    (re.compile(r"\s+"), " "),
)
MARKUP = re.compile(r"[`\[*\\{}]")


def prose(docstring: str) -> list[str]:
    """Returns the paragraphs of a docstring (reStructuredText, numpydoc or Google style) that are sentences."""
    return [text for text in map(strip_markup, paragraphs(docstring)) if is_prose(text)]


def paragraphs(docstring: str) -> Iterator[str]:
    """Yields the explaining paragraphs, with markup, without code, signatures, tables, headings and references."""
    lines = inspect.cleandoc(docstring.expandtabs()).split("\n")
    paragraph: list[str] = []
    skip_deeper: int | None = None  # indentation of what opened a literal block or a left-out directive
    entries: int | None = None  # indentation of the Google-style heading ("Args:") we are under
    doctest = fenced = left_out = False
    for number, line in enumerate(lines):
        text, indent = line.strip(), len(line) - len(line.lstrip())
        below = lines[number + 1] if number + 1 < len(lines) else ""
        if text.startswith("```"):
            fenced = not fenced
            continue
        if not text:
            doctest = False
            yield from flush(paragraph)
            continue
        heading = bool(UNDERLINE.match(below)) and len(text) < 80 and not UNDERLINE.match(line)
        if heading or GOOGLE_SECTION.match(text) or re.match(r"#+ ", text):
            yield from flush(paragraph)
            left_out = bool(LEFT_OUT_SECTION.match(text.rstrip(":")))
            skip_deeper, entries = (indent, None) if text.endswith("::") else (None, None if heading else indent)
            continue
        if skip_deeper is not None and indent > skip_deeper:
            continue
        skip_deeper = None
        if entries is not None and indent <= entries:
            entries, left_out = None, False
        doctest = doctest or text.startswith((">>>", "In [", "$ "))
        if (
            fenced
            or doctest
            or left_out
            or _TABLE_LINE.search(text)
            or UNDERLINE.match(line)
            or PLACEHOLDER.fullmatch(text)
        ):
            yield from flush(paragraph)
            continue
        if directive := DIRECTIVE.match(line):
            yield from flush(paragraph)
            if directive["name"] not in PROSE_DIRECTIVES:
                skip_deeper = indent
                continue
            text = line[directive.end() :].strip()
        if text.endswith("::"):
            skip_deeper, text = indent, text[:-1]
        starts, text = parse_entry(text, google=entries is not None, inside=bool(paragraph))
        if starts:
            yield from flush(paragraph)
        if text:
            paragraph.append(text)
    yield from flush(paragraph)


def flush(paragraph: list[str]) -> Iterator[str]:
    """Returns the collected lines as one paragraph and clears them."""
    if paragraph:
        yield " ".join(paragraph)
        paragraph.clear()


def parse_entry(text: str, *, google: bool, inside: bool) -> tuple[bool, str]:
    """A line without the bullet, or the name and type, it begins with -> (whether it opens a paragraph, what is left).

    `google`: under a heading such as "Args:". `inside`: within a paragraph, where a lone word is text and no name.
    """
    if field := _FIELD.match(text):
        return True, "" if field["kind"] in {"type", "rtype", "vartype"} else field["text"]
    if SIGNATURE.match(text) or (NUMPY_ENTRY.match(text) and not text.endswith(".") and (not inside or " : " in text)):
        return True, ""
    if google and (described := GOOGLE_ENTRY.match(text)):
        return True, text[described.end() :]
    if bullet := BULLET.match(text):
        return True, text[bullet.end() :]
    return False, text


def strip_markup(paragraph: str) -> str:
    """Returns a paragraph without inline markup."""
    if MARKUP.search(paragraph) is None:  # most have none; every pattern of INLINE but the last needs one of these
        return PLACEHOLDER.sub("", " ".join(paragraph.split())).strip()
    for pattern, replacement in INLINE:
        paragraph = pattern.sub(replacement, paragraph)
    return PLACEHOLDER.sub("", paragraph).strip()


def is_prose(text: str) -> bool:
    """Returns whether a paragraph is prose: a few words, most of them of letters."""
    words = text.split()
    wordlike = sum(word.strip(".,;:!?()'\"").replace("-", "").replace("'", "").isalpha() for word in words)
    return len(words) >= 4 and wordlike >= 0.7 * len(words)
