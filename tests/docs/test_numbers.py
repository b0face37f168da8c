"""Numbers in the pages that the code knows are those of the code."""

import re
from pathlib import Path

import pytest

from bertie.apps.demo import libraries, settings
from bertie.apps.sample import SAMPLE_TABLES
from bertie.objectives import OBJECTIVES

ROOT = Path(__file__).parents[2]
WORDS = dict(zip("two three four five six seven eight nine ten eleven".split(), range(2, 12), strict=True))
NUMBERS = [  # page, the text around the number, the number
    ("docs/get-started/quick-start.md", r"has (\w+) short reviews", SAMPLE_TABLES["reviews"].rows),
    ("docs/get-started/quick-start.ko.md", r"짧은 리뷰 (\d+)개", SAMPLE_TABLES["reviews"].rows),
    ("docs/get-started/quick-start.md", r"here (\w+) reviews", SAMPLE_TABLES["reviews"].rows // 10),
    ("docs/research.md", r"masked language modeling and (\w+) others", len(OBJECTIVES) - 1),
    ("docs/demo.md", r"There are (\w+) libraries", len(libraries.LIBRARIES)),
    ("docs/demo.md", r"vocabulary of ([\d,]+) tokens", settings.VOCABULARY_SIZE),
    ("docs/demo.md", r"random weights, (\w+) seeds each", len(settings.DEMO_SEEDS)),
    ("docs/demo.md", r"down to (\w+) on a slow", settings.FEWEST_SEEDS),
    ("docs/demo.md", r"trial of (\w+) steps", settings.TRIAL_STEPS),
]


@pytest.mark.parametrize(("page", "around", "number"), NUMBERS)
def test_the_number_is_that_of_the_code(page: str, around: str, number: int):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    found = re.findall(around, text)
    assert found, f"{page} has no {around!r}"
    for one in found:
        assert WORDS.get(one) == number or one.replace(",", "") == str(number), f"{page}: {one}, not {number}"
