"""Models of `transformers` in memory, both ways: the same weights to the last bit, and the same outputs."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bertie
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.text.tokenizer import Tokenizer
from toys import toy_model

SMALL = {"vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
MORE = {"intermediate_size": 64, "max_position_embeddings": 80, "pad_token_id": 0}
MODELS = {
    "BertForSequenceClassification": transformers.BertConfig(**SMALL, **MORE, num_labels=3),
    "BertForMaskedLM": transformers.BertConfig(**SMALL, **MORE),
    "RobertaForTokenClassification": transformers.RobertaConfig(**SMALL, **MORE, num_labels=5),
    "ElectraForQuestionAnswering": transformers.ElectraConfig(**SMALL, **MORE, embedding_size=16),
    "AlbertForSequenceClassification": transformers.AlbertConfig(**SMALL, **MORE, embedding_size=16),
    "DistilBertForMaskedLM": transformers.DistilBertConfig(
        vocab_size=120, dim=32, n_layers=2, n_heads=4, hidden_dim=64
    ),
    "ModernBertForSequenceClassification": transformers.ModernBertConfig(
        **SMALL, **MORE, cls_token_id=2, sep_token_id=3
    ),
    "GPT2LMHeadModel": transformers.GPT2Config(vocab_size=120, n_embd=32, n_layer=2, n_head=4, n_positions=80),
}
IDS = torch.tensor([[2, 17, 40, 3], [2, 5, 3, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


def their_logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        output = model(input_ids=IDS, attention_mask=MASK)
    spans = getattr(output, "start_logits", None)
    return output.logits if spans is None else torch.stack([spans, output.end_logits], -1)


@pytest.mark.parametrize("name", MODELS)
def test_there_and_back_the_weights_are_the_same_bits(name: str) -> None:
    torch.manual_seed(0)
    theirs = getattr(transformers, name)(MODELS[name]).eval()
    model = bertie.Model.from_transformers(theirs)
    again, tokenizer = model.to_transformers()
    assert (type(again), tokenizer) == (type(theirs), None)
    before, after = theirs.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert before["".join([*before][:1])].data_ptr() != after["".join([*before][:1])].data_ptr()  # a copy
    with torch.no_grad():
        (ours,) = model.module(IDS, MASK).values()
    expected, real = their_logits(theirs), MASK.bool() if ours.dim() == 3 else slice(None)
    torch.testing.assert_close(ours[real], expected[real], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(their_logits(again), expected, atol=0, rtol=0)


def test_a_model_with_its_tokenizer_predicts_and_is_saved(tmp_path: Path) -> None:
    encoder = toy_model(tmp_path / "encoder", "abcdefghijkl")
    ours = families.build(families.config(encoder), heads=lambda config: {"sequence": HEADS["sequence"](config, 2)})
    families.save(ours, tmp_path / "m", tokenizer=Tokenizer.load(encoder), labels=("bad", "good"))
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "m").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    model = bertie.Model.from_transformers(theirs, tokenizer)
    assert (model.labels, model.task, model.folder) == (("bad", "good"), "sequence", None)
    texts = ["a b c", "d"]
    expected = bertie.predict(tmp_path / "m", texts, engine="torch")
    assert model.predict(texts) == expected
    model.save(tmp_path / "saved")
    assert bertie.predict(tmp_path / "saved", texts, engine="torch") == expected
    back, reads = model.to_transformers()
    assert reads is not None
    with torch.no_grad():
        logits = back(**reads(texts, return_tensors="pt", padding=True)).logits
    np.testing.assert_allclose(logits.softmax(-1).numpy(), expected.probabilities, atol=1e-5)


def test_what_cannot_be_taken_is_said() -> None:
    other = transformers.SqueezeBertModel(
        transformers.SqueezeBertConfig(**SMALL, embedding_size=32, intermediate_size=64)
    )
    with pytest.raises(UsageError, match="'squeezebert', which is not supported"):
        bertie.Model.from_transformers(other)
    wrong = transformers.BertModel(transformers.BertConfig(**SMALL, **MORE))
    wrong.config.hidden_size = 64
    with pytest.raises(DataError, match=r"in the weights, but .* in config\.json"):
        bertie.Model.from_transformers(wrong)
