"""Short reviews that are positive or negative, in English and Korean."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

REVIEW_LABELS = ("positive", "negative")


@dataclass(frozen=True)
class Grammar:
    """The grammar of one language.

    topics: a place and the things to judge there. words: label -> predicates. patterns: sentences with gaps for the
    {place}, for predicates of the label ({a}, {b}) and for one of the other label ({other}), which is never last.
    closing: label -> optional last sentences.
    """

    topics: Mapping[str, tuple[str, ...]]
    words: Mapping[str, tuple[str, ...]]
    patterns: tuple[str, ...]
    closing: Mapping[str, tuple[str, ...]]


_ENGLISH = Grammar(
    topics={
        "the restaurant by the station": ("the soup", "the bread", "the waiter", "the dessert"),
        "this hotel": ("the room", "the breakfast", "the receptionist", "the bathroom"),
        "the new film": ("the story", "the music", "the ending", "the main actor"),
        "her second book": ("the plot", "the ending", "the first chapter", "the translation"),
        "this phone": ("the screen", "the battery", "the camera", "the keyboard"),
        "the evening course": ("the teacher", "the homework", "the classroom", "the first lesson"),
    },
    words={
        "positive": (
            *("was lovely", "was excellent", "was wonderful", "was perfect", "was charming", "was great"),
            *("was better than ever", "made my day"),
        ),
        "negative": (
            *("was awful", "was dreadful", "was disappointing", "was terrible", "was horrible", "was poor"),
            *("was worse than ever", "ruined my day"),
        ),
    },
    patterns=(
        *("{place}: {a}.", "in short, {a}.", "{a}, as always.", "as for {place}, {a}."),
        *("{a} and {b}.", "{place}: {a}, and {b}.", "{a}, and even {b}."),
        *("{other}, but {a} and {b}.", "{place}: {other}, yet {a} and {b}."),
    ),
    closing={
        "positive": ("", "", "", " I will come back.", " What a lovely surprise!", " I recommend it."),
        "negative": ("", "", "", " Never again.", " What a waste of money.", " I want a refund."),
    },
)

_KOREAN = Grammar(
    topics={
        "역 앞 식당": ("국물이", "빵이", "점원이", "후식이"),
        "이 호텔": ("방이", "아침 식사가", "직원이", "욕실이"),
        "이번 영화": ("이야기가", "음악이", "결말이", "주연 배우가"),
        "작가의 두 번째 책": ("줄거리가", "결말이", "첫 장이", "번역이"),
        "이 휴대폰": ("화면이", "배터리가", "카메라가", "자판이"),
        "저녁 강좌": ("선생님이", "숙제가", "교실이", "첫 수업이"),
    },
    words={  # past stems: endings follow
        "positive": (
            "훌륭했",
            "정말 좋았",
            "완벽했",
            "기대보다 나았",
            "마음에 들었",
            "만족스러웠",
            "인상 깊었",
            "최고였",
        ),
        "negative": (
            "형편없었",
            "정말 나빴",
            "엉망이었",
            "기대보다 못했",
            "실망스러웠",
            "불만스러웠",
            "끔찍했",
            "최악이었",
        ),
    },
    patterns=(
        *("{place}: {a}다.", "한마디로 {a}다.", "{place}에 대해 말하자면 {a}어요.", "역시 {a}습니다."),
        *("{a}고 {b}다.", "{place}: {a}고 {b}어요.", "{a}고 {b}습니다."),
        *("{other}지만 {a}고 {b}다.", "{place}: {other}지만 {a}고 {b}어요."),
    ),
    closing={
        "positive": ("", "", "", " 또 오고 싶다.", " 추천합니다!", " 고마운 경험이었다."),
        "negative": ("", "", "", " 다시는 안 간다.", " 돈이 아깝다.", " 환불받고 싶다."),
    },
)

GRAMMARS = {"en": _ENGLISH, "ko": _KOREAN}


def make_review(grammar: Grammar, index: int, rng: random.Random) -> dict[str, str]:
    """A review and its label; the labels take turns."""
    label = REVIEW_LABELS[index % 2]
    place = rng.choice(list(grammar.topics))
    things = rng.sample(grammar.topics[place], 3)
    a, b = rng.sample(grammar.words[label], 2)
    other = rng.choice(grammar.words[REVIEW_LABELS[1 - REVIEW_LABELS.index(label)]])
    text = rng.choice(grammar.patterns).format(
        place=place, a=f"{things[0]} {a}", b=f"{things[1]} {b}", other=f"{things[2]} {other}"
    )
    return {"text": text[0].upper() + text[1:] + rng.choice(grammar.closing[label]), "label": label}


LANGUAGES = {language: partial(make_review, grammar) for language, grammar in GRAMMARS.items()}
