"""Documentation is read from syntax trees: what explains is kept, code and markup go, nothing is run."""

import sys
from pathlib import Path

import pytest

from bertie.apps import pydocs
from bertie.errors import DataError

SOURCE = '''
"""Tools for keeping bees in tidy boxes.

This module counts them every evening.
"""

raise SystemExit("reading must not run this")

if True:
    class Hive:
        """A wooden box where bees live together.

        Parameters
        ----------
        size : int
            How many frames the box can hold.
        name, owner : str
            Who to call when the bees swarm.

        Examples
        --------
        Open a hive with ten frames.

        >>> Hive(10)
        <Hive of ten frames and no bees at all>

        See Also
        --------
        Swarm : Bees that left the box behind them.
        """

        def smoke(self, puffs):
            r"""Calm the bees with :class:`~apiary.Smoker` before opening ``Hive``, see `the guide <https://x.y>`_.

            Args:
                puffs (int): Number of puffs to give, with two being plenty.
                wait (float, optional): Seconds to wait between
                    two puffs of smoke.

            .. math:: bees = \\frac{a}{b}

            .. note:: Bees dislike sudden movements near them.
            .. versionadded:: 1.2
               The number of puffs can now be chosen.

            A list of rules::

                smoke(first and then wait a little while)

            :param puffs: the same number in another style of writing
            :type puffs: int or a very large int perhaps
            """

add_docstr(bees.count, """
count(hive) -> int

Return the number of bees that came home today, {placeholder}
""")
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "beekeeping"
    (folder / "tests").mkdir(parents=True)
    (folder / "__init__.py").write_text(SOURCE)
    (folder / "broken.py").write_text("def (:\n")
    (folder / "binary.py").write_bytes(b'"""\xff\xfe not UTF-8 at all, sadly."""')
    (folder / "guide.md").write_text(
        "# Guide\n\nBees need *water* and a quiet place.\n\n```\ncode is not prose here\n```\n"
    )
    (folder / "tests" / "test_hive.py").write_text('"""A test is not documentation of the package."""')
    monkeypatch.syspath_prepend(str(tmp_path))
    pydocs.locate.cache_clear()
    return folder


def test_prose_is_kept_and_markup_is_not(package: Path):
    modules = {module.name: module for module in pydocs.modules("beekeeping")}
    assert list(modules) == ["beekeeping", "beekeeping.guide"]
    passages = {passage.name: list(passage.paragraphs) for passage in modules["beekeeping"].passages}
    assert passages == {
        "beekeeping": ["Tools for keeping bees in tidy boxes.", "This module counts them every evening."],
        "beekeeping.Hive": [
            "A wooden box where bees live together.",
            "How many frames the box can hold.",
            "Who to call when the bees swarm.",
            "Open a hive with ten frames.",
        ],
        "beekeeping.Hive.smoke": [
            "Calm the bees with apiary.Smoker before opening Hive, see the guide.",
            "Number of puffs to give, with two being plenty.",
            "Seconds to wait between two puffs of smoke.",
            "Bees dislike sudden movements near them.",
            "A list of rules:",
            "the same number in another style of writing",
        ],
        "beekeeping.bees.count": ["Return the number of bees that came home today,"],
    }
    assert modules["beekeeping.guide"].text == "Bees need water and a quiet place."
    assert "beekeeping" not in sys.modules, "reading documentation must not import the package"


def test_reading_is_repeatable_and_ordered(package: Path):
    assert list(pydocs.modules("beekeeping")) == list(pydocs.modules("beekeeping"))


def test_the_standard_library_is_a_package_and_knows_its_distribution_names():
    assert (pydocs.locate("stdlib") / "json").is_dir()
    assert pydocs.locate("scikit-learn") == pydocs.locate("sklearn")
    json = pydocs.read_module(pydocs.locate("stdlib") / "json" / "decoder.py", "stdlib", pydocs.locate("stdlib"))
    assert json is not None
    assert json.name == "json.decoder"
    assert "json.decoder.JSONDecoder" in [passage.name for passage in json.passages]


def test_an_unknown_package_is_answered_with_a_near_one():
    with pytest.raises(DataError, match=r"'nunpy' is not installed. Did you mean 'numpy'"):
        pydocs.locate("nunpy")


@pytest.mark.parametrize("text", ["x : int", "foo(a, b) -> c", "=====  =====", "a_b c_d e_f g_h i_j"])
def test_what_is_no_sentence_is_dropped(text: str):
    assert pydocs.prose(text) == []
