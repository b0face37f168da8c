"""The text of a cell without its markup: HTML or Markdown.

What is escaped in a text, such as &lt;b&gt;, is markup too, so that nothing changes when a text is read twice.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from html.parser import HTMLParser
from typing import TYPE_CHECKING

from bertie.training_facts import Markup

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

INLINE_TAGS = frozenset(
    (
        *("a", "abbr", "b", "bdi", "bdo", "cite", "code", "del", "dfn", "em", "font", "i", "ins", "kbd", "mark"),
        *("q", "s", "samp", "small", "span", "strong", "sub", "sup", "u", "var"),
    )
)
HIDDEN = frozenset(("script", "style", "template", "noscript"))
DEEPEST = 8  # escapes within escapes


class _Text(HTMLParser):
    """The text of an HTML fragment. Tags between blocks are spaces."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts, self.hidden = list[str](), 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.hidden += tag in HIDDEN
        self.parts.append("" if tag in INLINE_TAGS else " ")

    def handle_endtag(self, tag: str) -> None:
        self.hidden = max(0, self.hidden - (tag in HIDDEN))
        self.parts.append("" if tag in INLINE_TAGS else " ")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.parts.append(data)


def _without_html(text: str) -> str:
    if "<" not in text and "&" not in text:
        return text
    parser = _Text()
    parser.feed(text)
    parser.close()
    return " ".join("".join(parser.parts).split())


@cache
def _markdown() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _without_markdown(text: str) -> str:
    return " ".join(_without_html(" ".join(_texts(_markdown().parse(text)))).split())


def _texts(tokens: "list[Token]") -> Iterator[str]:
    """Yields the text of each block."""
    for token in tokens:
        if token.children is not None:
            yield "".join(" " if one.type in ("softbreak", "hardbreak") else one.content for one in token.children)
        elif token.content:
            yield token.content


_REMOVE: Mapping[str, Callable[[str], str]] = {"html": _without_html, "markdown": _without_markdown}


def without_markup(text: str, markup: Markup) -> str:
    """Returns a text without markup, its white space as single spaces; the text itself where there is none."""
    if not markup:
        return text
    for _ in range(DEEPEST):
        plain = _REMOVE[markup](text)
        if plain == text:
            break
        text = plain
    return text
