"""The models that come with Bertie, as they are in the repository."""

from pathlib import Path

import pytest
import torch
import transformers

import bertie
from batches import pack
from bertie.checksums import check_files
from bertie.files import read_json
from bertie.models import names
from bertie.runs.weights import load_model

MB = 2**20
TEXTS = [
    "배우들의 연기가 훌륭하고 이야기도 재미있다.",
    "시간이 아깝다. 다시는 안 본다.",
    "서울은 대한민국의 수도이다.",
    "An old film.",
]


def test_they_are_there():
    assert {"starter-en", "starter-ko", "names-en", "questions-en", "sentiment-ko"} <= set(names.bundled())


@pytest.mark.parametrize("name", sorted(names.bundled()))
def test_a_folder_is_small_and_whole(name: str):
    folder = names.bundled()[name]
    assert sum(file.stat().st_size for file in folder.iterdir()) < (32 if name.startswith("starter") else 16) * MB
    assert check_files(folder).damage == []
    assert (folder / "README.md").read_text(encoding="utf-8").count("\n## ") >= 5  # its card


@pytest.mark.parametrize("name", sorted(names.bundled()))
def test_a_folder_opens_in_transformers(name: str, tmp_path: Path, request: pytest.FixtureRequest):
    folder = names.bundled()[name]
    if "quantization_config" in read_json(folder / "config.json"):
        request.getfixturevalue("bertie").good("compress", name, "--float", "-o", tmp_path / "float")
        folder = tmp_path / "float"
    model, tokenizer = load_model(folder), transformers.AutoTokenizer.from_pretrained(folder)
    peer = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    for encoded in model.tokenizer.encode_batch(TEXTS):
        with torch.inference_mode():
            expected = peer(input_ids=torch.tensor([encoded.ids])).last_hidden_state[0]
            found = model.encode(pack([encoded])).last_hidden_state
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)
    assert tokenizer(TEXTS)["input_ids"] == [one.ids for one in model.tokenizer.encode_batch(TEXTS)]


def test_names_are_found_in_english():
    (found,) = bertie.predict("names-en", ["Angela Merkel met Emmanuel Macron in Berlin."])
    entities = [(entity.type, found.text[entity.start : entity.end]) for entity in found.entities]
    assert entities == [("person", "Angela Merkel"), ("person", "Emmanuel Macron"), ("location", "Berlin")]


def test_sentiment_is_told_from_the_words():
    good, bad, *_ = bertie.predict("sentiment-ko", TEXTS)
    assert (good.label, bad.label) == ("positive", "negative")


def test_answers_are_found_in_english():
    context = (
        "Our library is open from 9 am to 8 pm on weekdays. On Saturdays it closes at 5 pm, and is closed on Sundays. "
        "Members may borrow ten books for three weeks."
    )
    questions = ["What time does the library close on Saturdays?", "How many books may a member borrow?"]
    found = bertie.predict("questions-en", [(question, context) for question in questions])
    assert [one.answer for one in found] == ["5 pm", "ten"]
