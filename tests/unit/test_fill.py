"""Letters right after a mask continue its word, as the token in its place would be continued."""

import numpy as np
import pytest

import bertie
from bertie.apps.explain.targets import question_of
from bertie.apps.explain.words import text_words
from bertie.infer.fill import Masked
from bertie.models.names import bundled
from bertie.runs.weights import load_model
from bertie.text.tokenizer import Tokenizer


@pytest.mark.parametrize(
    ("model", "text", "token"),
    [
        ("starter-ko", "대한민국의 수도는 [MASK]이다.", "서울"),
        ("starter-ko", "[MASK]은 크다. 수도인 [MASK]에서 열렸다!", "서울"),
        ("starter-ko", "정말 [MASK] 영화였다.", "좋은"),
        ("starter-ko", "그것은 [MASK]이다", "서울"),
        ("starter-en", "She was [MASK]ing, the [MASK]'s end.", "prepar"),
        ("starter-en", "In [MASK], it was (a) [MASK] day.", "war"),
        ("starter-en", "[MASK]", "war"),
    ],
)
def test_a_mask_is_read_like_the_token_in_its_place(model: str, text: str, token: str) -> None:
    tokenizer = Tokenizer.load(bundled()[model])
    masked = Masked.of(tokenizer, text, max_length=64)
    expected = tokenizer.encode(text.replace("[MASK]", token))
    filled = np.where(masked.ids.input_ids == tokenizer.mask_id, tokenizer.token_to_id(token), masked.ids.input_ids)
    assert filled.tolist() == expected.ids
    assert masked.ids.token_type_ids.tolist() == expected.type_ids
    assert [text[slice(*spot)] for spot in masked.spots] == ["[MASK]"] * text.count("[MASK]")
    assert (masked.ids.input_ids[masked.ids.positions] == tokenizer.mask_id).all()


def test_what_the_vocabulary_lacks_stays_as_the_tokenizer_reads_it() -> None:
    tokenizer = Tokenizer.load(bundled()["starter-ko"])
    text = "[MASK]☃는 [MASK]𒀀"
    assert Masked.of(tokenizer, text, max_length=64).ids.input_ids.tolist() == tokenizer.encode(text).ids
    assert tokenizer.continuation("𒀀") is None


def test_what_is_explained_is_what_is_predicted() -> None:
    model = load_model("starter-ko").eval()
    text = "그는 [MASK]에서 태어났다."
    ((best,),) = bertie.fill_mask(model, text, top=1)
    explained = question_of(model, [text])
    assert explained.about == f"masked word {best.token!r}"
    words = [text[one.start : one.end] for one in text_words(explained.question.encoding) if one.text is not None]
    assert words == ["그는", "[MASK]", "에서", "태어났다", "."]
    cut = question_of(model, [text], max_length=4)  # [CLS] 그는 [MASK] [SEP]: nothing of the word after it is read
    assert cut.question.encoding.tokens == ["[CLS]", "그는", "[MASK]", "[SEP]"]
