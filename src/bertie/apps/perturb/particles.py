"""Korean particles that depend on the last sound of the word before them: 딸이, but 아들이 and 누나가."""

import re

_CHOICES = (
    ("으로", "로"),  # before shorter ones, so that 으로 is not read as 로
    ("이라고", "라고"),
    ("이라는", "라는"),
    ("이라", "라"),
    ("이랑", "랑"),
    ("이나", "나"),
    ("이며", "며"),
    ("이에요", "예요"),
    ("이었", "였"),
    ("이야", "야"),
    ("은", "는"),
    ("이", "가"),
    ("을", "를"),
    ("과", "와"),
    ("아", "야"),
)
"""After a consonant, after a vowel."""
_NEITHER = (
    *("의", "에게서", "에게", "에서", "에", "께서", "께", "한테서", "한테", "도", "만", "까지", "부터", "처럼", "보다"),
    *(
        "마다",
        "조차",
        "뿐",
        "들",
        "님",
        "씨",
        "입니다",
        "이다",
        "다",
        "인데",
        "인",
        "일",
        "고",
        "지만",
        "하고",
        "끼리",
        "답게",
    ),
    *("같은", "같이", "밖에", "대로", "만큼"),
)
"""Particles and endings with one form."""
_FIRST, _LAST, _FINALS = 0xAC00, 0xD7A3, 28
_RIEUL = 8  # 으로 is 로 after this final consonant
_WRITTEN = re.compile(r"(\w)(?:(을|은|이|과)[(/](를|는|가|와)\)?|\((으|이)\)(?=[가-힣]))")
_FORMS = sorted({*(form for pair in _CHOICES for form in pair), *_NEITHER}, key=len, reverse=True)
_ENDINGS = re.compile(f"(?:{'|'.join(_FORMS)}){{0,3}}")
_NICKNAME = re.compile(r"이(?=가|는|를|와|도|의|에게|한테|랑|네)")


def final(word: str) -> int:
    """Returns the number of the final consonant of a word's last syllable; 0 for a vowel or another script."""
    last = ord(word[-1]) if word else 0
    return (last - _FIRST) % _FINALS if _FIRST <= last <= _LAST else 0


def fitting(word: str, after_consonant: str, after_vowel: str) -> str:
    """Returns the form of a particle that follows a word."""
    letter = final(word)
    vowel = not letter or (letter == _RIEUL and after_consonant == "으로")
    return after_vowel if vowel else after_consonant


def followed(word: str, rest: str) -> str:
    """Returns the rest of a Korean word after `word`, with the particle at its beginning in the fitting form."""
    if _NICKNAME.match(rest):  # 지영이가, 민수가
        return rest if final(word) else rest[1:]
    for pair in _CHOICES:
        for form in pair:
            if rest.startswith(form):
                return fitting(word, *pair) + rest[len(form) :]
    return rest


def is_ending(rest: str) -> bool:
    """Returns whether the rest of a Korean word is nothing, or consists of known particles and endings."""
    return bool(_ENDINGS.fullmatch(rest))


def resolve_particles(text: str) -> str:
    """Returns a text whose choices of particles, 을(를) or 을/를, are replaced by the fitting form."""

    def choose(match: re.Match[str]) -> str:
        word, consonant, vowel, optional = match.groups()
        if optional == "으":
            return word + fitting(word, "으로", "로").removesuffix("로")
        return word + (fitting(word, "이", "") if optional else fitting(word, consonant, vowel))

    return _WRITTEN.sub(choose, text)
