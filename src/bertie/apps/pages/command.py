"""`bertie help`: the pages of the documentation, or one of them."""

import re
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from bertie.platform import UsageError, console, nearest

PAGE_FOLDERS = (Path(__file__).parents[2] / "pages", Path(__file__).parents[4] / "docs")  # as installed; in a checkout
NO_PAGES = ("decisions", "project", "reference")  # folders of a checkout that no wheel has
INDEX_ENTRY = re.compile(
    r"^(?:## (?P<group>.+)|\* \[(?P<title>[^\]]+)\]\((?P<page>[\w./-]+)\)(?:: (?P<about>.+))?)$", re.M
)


def help_command(
    topic: Annotated[str | None, typer.Argument(help="Page, such as search or tutorials/names.")] = None,
    language: Annotated[Literal["en", "ko"], typer.Option("--language", help="Language of the page.")] = "en",
) -> None:
    """Show a page of the documentation, or list the pages.

    On a terminal the page is formatted; in a pipe or file it is Markdown.

    \b
    Examples:
      bertie help
      bertie help rare-labels
      bertie help tutorials/names --language ko
    """
    folder = next(place for place in PAGE_FOLDERS if place.is_dir())
    end = ".ko.md" if language == "ko" else ".md"
    if topic is None:
        _list_pages(folder, end)
        return
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob(f"*{end}"))}
    pages = {
        place.removesuffix(end): path
        for place, path in files.items()
        if not place.startswith(("_", *(f"{one}/" for one in NO_PAGES))) and (language == "ko" or ".ko." not in place)
    }
    name = topic.removeprefix("docs/").removesuffix(".md").removesuffix(".ko")
    path = pages.get(name) or next((path for key, path in pages.items() if key.endswith(f"/{name}")), None)
    if path is None:
        raise UsageError(f"There is no page {topic!r}. {nearest(name, pages)}")
    text = path.read_text(encoding="utf-8")
    if console.verbosity.json:
        console.emit({"page": name, "text": text})
    elif sys.stdout.isatty():
        from rich.markdown import Markdown

        console.show(Markdown(text, hyperlinks=False))
    else:
        sys.stdout.write(text)


def _list_pages(folder: Path, end: str) -> None:
    """Prints the pages by group, as the index of the documentation has them."""
    entries = [*INDEX_ENTRY.finditer((folder / f"README{end}").read_text(encoding="utf-8"))]
    rows = [one for one in entries if one["group"] or one["page"].endswith(".md")]
    if console.verbosity.json:
        pages = (one for one in rows if one["page"])
        console.emit(
            [{"page": one["page"].removesuffix(end), "title": one["title"], "about": one["about"]} for one in pages]
        )
        return
    for one in rows:
        if one["group"]:
            console.show(f"\n{one['group']}")
        else:
            console.show(f"  {one['page'].removesuffix(end):<28} {one['about'] or one['title']}")
