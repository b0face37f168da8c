"""Korean sentences with names, questions about two events, and what pairs of sentences say."""

import random
import re
from itertools import product

VILLAGE_STARTS = ("가람", "달빛", "새벽", "솔", "은하", "한결", "미르", "온새", "해든", "푸른")
VILLAGE_ENDS = ("골", "나루", "들", "마루", "뫼", "벌", "샘", "여울", "재", "터")
VILLAGES = tuple(map("".join, product(VILLAGE_STARTS, VILLAGE_ENDS)))  # villages, and parts of the names of firms
SURNAMES = ("강", "김", "남", "박", "서", "유", "이", "임", "정", "최")
FORENAMES = ("가은", "나래", "다온", "도윤", "민재", "보라", "서준", "세아", "유진", "지호", "찬영", "하늘")
TRADES = ("제과", "해운", "철도", "출판사", "박물관", "은행")
NAME_SENTENCES = (
    "{PER} 씨는 지난봄에 {LOC} 마을에서 {LOC} 마을로 이사했다.",
    "{LOC} 마을에 사는 {PER} 씨는 {ORG} 직원이다.",
    "{ORG} 측은 {LOC} 마을에 새 사무실을 열었다.",
    "{LOC} 이장은 {PER} 씨와 {ORG} 측에 고마움을 전했다.",
    "{PER} 씨가 {ORG} 지분을 {PER} 씨에게 팔았다.",
    "어제 {LOC} 역에서 출발한 기차가 또 늦었다.",
    "{PER} 씨와 {PER} 씨는 {LOC} 시장에서 만났다.",
    "{ORG} 발표에 따르면 가격이 내릴 것이라고 한다.",
    "이웃인 {PER} 씨는 {LOC} 항구를 그린다.",
    "{LOC} 사람들은 아무도 {ORG} 소식을 몰랐다.",
    "강가의 길은 오늘 막혀 있다.",
    "한 주 내내 비가 와서 시장이 텅 비었다.",
)
WEEKDAYS = ("월요일", "화요일", "수요일", "목요일", "금요일", "토요일", "일요일")
DEEDS = (  # stem of the past, what it is done to
    ("고쳤", ("낡은 다리", "성당 시계", "고깃배", "정원 담장")),
    ("칠했", ("마을 회관", "파란 대문", "학교 울타리", "항구 창고")),
    ("팔았", ("빵집", "빨간 트랙터", "오래된 피아노", "모퉁이 집")),
    ("찾았", ("잃어버린 개", "은반지", "사라진 지도", "첫 판본")),
    ("열었", ("새 도서관", "작은 박물관", "여름 장터", "스케이트장")),
)
EVENT_SENTENCES = (
    "{day} 아침에 {person} 씨가 {place} 마을에서 {thing} 하나를 {did}다.",
    "{person} 씨는 {day} 저녁에 {place} 마을에서 {thing} 하나를 {did}다.",
)
QUESTION_FORMS = {
    "person": "누가 {thing} 하나를 {did}나요?",
    "thing": "{person} 씨는 무엇을 {did}나요?",
    "place": "{person} 씨는 어느 마을에서 {thing} 하나를 {did}나요?",
    "day": "{person} 씨는 무슨 요일에 {thing} 하나를 {did}나요?",
}
WORDINGS = {  # what may be said, in two wordings each
    "who": (
        ("아이들이", "꼬마들이"),
        ("의사가", "병원 선생님이"),
        ("농부가", "밭 주인이"),
        ("학생 두 명이", "두 학생이"),
        ("기장이", "비행기 조종사가"),
    ),
    "what": (
        ("자전거를", "두발자전거를"),
        ("낡은 차를", "오래된 자동차를"),
        ("돌 몇 개를", "돌멩이를 여러 개"),
        ("소파를", "긴 의자를"),
        ("큰 배를", "커다란 선박을"),
    ),
    "where": (
        ("숲에서", "나무가 우거진 곳에서"),
        ("가게 근처에서", "상점 옆에서"),
        ("바닷가에서", "해변에서"),
        ("시내에서", "도시 한가운데에서"),
        ("집 뒤에서", "집 뒤편에서"),
    ),
    "does": (
        ("고칠 것이다", "수리할 것이다"),
        ("살 것이다", "구입할 것이다"),
        ("찾을 것이다", "찾아다닐 것이다"),
        ("사진으로 찍을 것이다", "촬영할 것이다"),
        ("나를 것이다", "운반할 것이다"),
    ),
}
WORD_ORDERS = ("{who} {where} {what} {does}.", "{where} {who} {what} {does}.")


def name_row(index: int, rng: random.Random) -> dict[str, object]:
    """A sentence and the characters of its names."""
    text, entities = "", []
    for part in re.split(r"(\{\w+\})", rng.choice(NAME_SENTENCES)):
        label = part.strip("{}")
        if part != label:
            part = _korean_name(label, rng)
            entities.append({"start": len(text), "end": len(text) + len(part), "label": label})
        text += part
    return {"text": text, "entities": entities}


def _korean_name(label: str, rng: random.Random) -> str:
    if label == "PER":
        return rng.choice(SURNAMES) + rng.choice(FORENAMES)
    place = rng.choice(VILLAGES)
    return place if label == "LOC" else place + rng.choice(TRADES)


def two_people(rng: random.Random) -> list[str]:
    """The names of two people, whose forenames differ."""
    return [rng.choice(SURNAMES) + first for first in rng.sample(FORENAMES, 2)]
