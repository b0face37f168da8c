"""Pages and the texts of the program keep to the house style: standard terms, short sentences, no empty table heads.

NOT_YET lists the pages that were written before the style was agreed on. When you have rewritten one, delete its line
and run this file: the test then holds the page to the rules. A line that is no longer needed fails, so that the list
shrinks.
"""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_WORDS = 25
NOT_YET: set[str] = set()
FREE = {"CHANGELOG.md"}  # a list of what was done, in many hands

# The coined terms of the old pages whose only reading is the wrong one, and what to write.
TERMS = {
    r"hidden (word|piece)s?": "masked token",
    r"the (whole )?road": "pipeline",
    r"plain twins?": "reference implementation",
    r"what (every word )?hangs on": "dependency parsing",
    r"likeness": "similarity",
    r"of like length": "of similar length",
    r"first (weights|values)": "initialization",
    r"masks? anew": "dynamic masking",
    r"in place of": "instead of",
    r"processor seconds": "CPU seconds",
    r"the public (layout|folder)": "the Hugging Face format",
    r"relatives|kin": "model families",
    r"as it comes|at its best": "with default settings, with tuned settings",
    r"gone? on with|going on": "resume, or continue",
    r"torn": "partially written",
    r"chatter": "messages",
    r"knobs?": "setting",
    r"learnt": "learned",
    r"quicker": "faster",
    r"shall": "must, or should",
    r"looks? over": "verify",
    r"\d %": "a percent sign without a space",
}
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if not re.search(r"docs/(reference/|project/|_build/|index(\.ko)?\.md)", str(path))
}


def test_a_number_that_rounds_to_zero_has_no_sign():
    """Scores and differences are formatted with Python's `z`: "0.000" and "+0.000", never "-0.000"."""
    spec = re.compile(r"\{[^{}\n]*:(?!\+?z)(?:\+[\d{\w.()}]*\.\d|[\d{\w.()}]*\.[345])f\}")
    for path in (ROOT / "src").rglob("*.py"):
        assert not spec.findall(path.read_text(encoding="utf-8")), f"{path}: write :z.3f"


def test_comments_of_recipes_name_files_that_exist():
    for path in [*(ROOT / "recipes").glob("*.yaml"), *(ROOT / "src").rglob("*.yaml")]:
        for name in re.findall(r"(?:docs|benchmarks|recipes)/[\w/-]+\.\w+", path.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{path} names {name}"


def prose(text: str) -> str:
    """A page without code, links' targets, pictures and comments."""
    text = re.sub(r"```.*?```|<!--.*?-->|`[^`\n]+`", " X ", text, flags=re.DOTALL)
    text = re.sub(r"^ {4,}\S.*$", "", text, flags=re.MULTILINE)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def faults(text: str, terms: Mapping[str, str] = TERMS) -> list[str]:
    """Returns what violates the style in a page, or in another text."""
    found = [f"table without a head: {row}" for row in re.findall(r"^\|[ |]*\|\n\|[ :|-]+\|$", text, re.MULTILINE)]
    text = prose(text)
    for term, better in terms.items():
        found += [f"{hit[0]!r}: write {better}" for hit in re.finditer(rf"(?<![\w-])({term})(?![\w-])", text, re.I)]
    text = re.sub(r"^\s*(\||#).*$", "\n\n", text, flags=re.MULTILINE)  # tables and headings have fragments
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:[*-]|\d+\.) ", text):
        for sentence in re.split(r"(?<=[.!?:;])[\"')*_]*\s+", " ".join(paragraph.split())):
            if len(words := re.findall(r"\w[\w'-]*", sentence)) > MOST_WORDS:
                found.append(f"{len(words)} words: {sentence[:80]} ...")
    return found


@pytest.mark.prose
@pytest.mark.parametrize("page", sorted(PAGES.keys() - FREE))
def test_a_page_keeps_to_the_style(page: str):
    found = faults(PAGES[page])
    if page in NOT_YET:
        assert found, f"{page} keeps to the style now: delete its line in NOT_YET"
    else:
        assert not found, f"{page}:\n" + "\n".join(found)


def test_the_check_finds_what_it_looks_for():
    assert faults("| | |\n|---|---|\n| a | b |\n")
    assert faults("The plain twin learnt 95 % of it.")[:3] != []
    assert len(faults("It walks the whole road.")) == 1
    assert faults("Word " * 26 + ".")
    assert not faults("Word " * 25 + ".\n\n" + "`the whole road`\n\n```\nlearnt\n```\n\n" + "word " * 25)


# The source code: help texts, messages, docstrings, headings of reports -----------------------------------------------

CODE_TERMS = TERMS | {
    r"hidden pieces?": "masked token",
    r"goes? on where": "resumes, or continues where",
    r"every how manieth": "the distance between two",
    r"Where (to|shall)\b.*\?": "a statement that says what to type",
    r"stands? behind": "comes after",
    r"of like": "of similar",
    r"every word hangs on": "the head of every word",
    r"anew": "again, or new",
    r"stands? (for|before|behind|in)": "means, precedes, follows, or is in",
    r"every so manieth": "every n-th",
    r"(goes|go|went) on": "continues, or is resumed",
    r"colours?|recognis\w+|utilis\w+": "the American spelling",
}


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, text) of docstrings, and of strings that a call is given: messages, help texts, headings."""
    for node in ast.walk(tree):
        given = [node.value] if isinstance(node, ast.Expr) else []
        if isinstance(node, ast.Call):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
        for one in given:
            parts = one.values if isinstance(one, ast.JoinedStr) else [one]
            texts = [part.value if isinstance(part, ast.Constant) else "X" for part in parts]
            if all(isinstance(text, str) for text in texts) and len(text := "".join(texts)) > 1:
                yield one.lineno, re.sub(r"\x08\nExamples?:\n(?: .*\n?)*", "", inspect.cleandoc(text))  # command lines


def code_faults(source: str) -> list[str]:
    return [f"line {line}: {fault}" for line, text in strings(ast.parse(source)) for fault in faults(text, CODE_TERMS)]


@pytest.mark.prose
def test_the_words_of_the_program_keep_to_the_style():
    paths = set((ROOT / "src/bertie").rglob("*.py")) - {ROOT / "src/bertie/text/sentences.py"}  # lists of abbreviations
    found = {path: code_faults(path.read_text(encoding="utf-8")) for path in paths}
    assert not any(found.values()), "\n".join(f"{path}: {fault}" for path in found for fault in found[path])


@pytest.mark.prose
def test_the_files_that_pages_show_keep_to_the_style():
    """A reader who saves them has them checked too."""
    for path in (ROOT / "docs").glob("add-a-*.md"):
        for shown in re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
            assert not code_faults(shown), path


def test_the_check_of_code_finds_docstrings_messages_and_help():
    assert code_faults('def f():\n    """The knob of it."""\n')
    assert code_faults('raise UsageError(f"{x} shall not {y}.")')
    assert code_faults('Option("-o", help="Say chatter.")')
    assert code_faults(f'say("{"word " * 26}")')
    assert not code_faults('KEY = "shall"\nsay("A token is masked.")')
