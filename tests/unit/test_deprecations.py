"""Old names that still work: each warns, does what the new name does, and the changelog says when it goes."""

import inspect
from pathlib import Path

import pytest

import bertie
from bertie.errors import renamed

CHANGES = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")


def test_an_old_keyword_warns_and_is_passed_on() -> None:
    @renamed(watch="callback")
    def run(folder: str, *, callback: int = 0) -> tuple[str, int]:
        return folder, callback

    with pytest.warns(DeprecationWarning, match=r"`watch` of run\(\) is now `callback`.* version 0\.3\.0"):
        assert run("here", watch=7) == ("here", 7)  # type: ignore[call-arg]
    assert run("here", callback=8) == ("here", 8)


@pytest.mark.parametrize(
    ("function", "names"), [("pretrain", {"callback", "reference_run"}), ("finetune", {"callback"})]
)
def test_the_new_keywords_are_there(function: str, names: set[str]) -> None:
    assert names <= inspect.signature(getattr(bertie, function)).parameters.keys()


@pytest.mark.parametrize("name", ["bertie[search]", "watch=", "like="])
def test_the_changelog_says_when_an_old_name_goes(name: str) -> None:
    (line,) = [line for line in CHANGES.splitlines() if f"`{name}" in line and "0.3.0" in line]
    assert "stops working in 0.3.0" in line
