"""Perplexity of every head over the vocabulary, against the loss of `transformers`, or the formula by hand.

S tokens of a text · V vocabulary
"""

import json
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import parity
import pytest
import torch
import transformers
from torch import Tensor
from typer.testing import CliRunner

import bertie
from bertie.apps.cli.table import app
from bertie.errors import UsageError
from bertie.infer.perplexity import text_perplexity
from bertie.models import families
from bertie.models.elmo import ElmoConfig
from bertie.models.model import TorchModel
from bertie.objectives import build_objective
from bertie.text.formats import BERT_FORMAT, BY_FAMILY, Format
from bertie.text.tokenizer import Tokenizer
from bertie.text.vocabulary import count_words, train_vocabulary
from toys import toy_writer

TEXTS = [
    "The old cat sees a bird.",
    "A small dog likes the red house near the river, and the old cat likes it too.",
    "Over and under.",
]
FIRST = [1, 1, 1]  # tokens of the first words
SIZES: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "initializer_range": 0.2}


def tokenizer_of(format_: Format, size: int = 320) -> Tokenizer:
    return train_vocabulary(count_words(TEXTS * 3), size=size, family=format_, limit_alphabet=60, up_to=True)


def theirs_and_ours(architecture: str, config: Any, folder: Path, tokenizer: Tokenizer) -> tuple[Any, TorchModel]:
    """One random model, there and here."""
    torch.manual_seed(1)
    theirs = getattr(transformers, architecture)(config).eval()
    theirs.save_pretrained(folder)
    ours, report = families.load(folder)
    assert report.fresh + report.unused == ()
    families.save(ours, folder, tokenizer=tokenizer)
    ours.tokenizer = tokenizer
    return theirs, ours


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe"])
@pytest.mark.parametrize("architecture", ["GPT2LMHeadModel", "OpenAIGPTLMHeadModel"])
def test_gpts_is_their_loss(architecture: str, kind: str, tmp_path: Path) -> None:
    """With [CLS] before a text, every token is predicted; without, all but the first. [SEP] is no word."""
    tokenizer = tokenizer_of(BERT_FORMAT if kind == "wordpiece" else BY_FAMILY["gpt2"])
    config = {"GPT2LMHeadModel": transformers.GPT2Config, "OpenAIGPTLMHeadModel": transformers.OpenAIGPTConfig}
    theirs, ours = theirs_and_ours(
        architecture, config[architecture](vocab_size=tokenizer.vocab_size, **SIZES), tmp_path, tokenizer
    )
    nats, tokens = 0.0, 0
    for text in TEXTS:
        ids = torch.tensor([tokenizer.encode(text).ids])
        targets = ids.masked_fill(torch.isin(ids, torch.tensor(sorted(tokenizer.special_ids))), -100)
        count = int((targets[:, 1:] != -100).sum())
        with torch.no_grad():
            nats += float(theirs(ids, labels=targets).loss) * count
        tokens += count
    scores = text_perplexity(ours, TEXTS)
    assert (scores.head, scores.tokens, scores.name) == ("lm", tokens, "perplexity")
    assert scores.per_token == pytest.approx(exp(nats / tokens), rel=1e-5)
    if kind == "byte-bpe":  # the first word of two texts is a token, which nothing predicts
        assert [len(tokenizer.encode(text.split()[0]).ids) for text in TEXTS] == FIRST
    assert scores.words == sum(len(text.split()) for text in TEXTS) - (FIRST.count(1) if kind == "byte-bpe" else 0)
    assert bertie.perplexity(tmp_path, TEXTS, device="cpu").per_token == pytest.approx(scores.per_token, rel=1e-5)


def test_xlnets_is_that_of_every_token_hidden_from_all(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(BY_FAMILY["xlnet"])
    config = transformers.XLNetConfig(
        vocab_size=tokenizer.vocab_size, d_model=32, n_layer=2, n_head=4, d_inner=48, initializer_range=0.2
    )
    theirs, ours = theirs_and_ours("XLNetLMHeadModel", config, tmp_path, tokenizer)
    nats, tokens = 0.0, 0
    for text in TEXTS:
        encoding = tokenizer.encode(text)
        ids, types = torch.tensor([encoding.ids]), torch.tensor([encoding.type_ids])
        for place, token in enumerate(encoding.ids):
            if token in tokenizer.special_ids:
                continue
            logits_V = permuted_logits(theirs, ids, types, [place])[0]
            nats -= float(logits_V.log_softmax(-1)[token])
            tokens += 1
    scores = text_perplexity(ours.train(), TEXTS)
    assert ours.training
    assert (scores.head, scores.tokens, scores.name) == ("plm", tokens, "pseudo-perplexity")
    assert scores.per_token == pytest.approx(exp(nats / tokens), rel=1e-5)
    model = bertie.load(tmp_path, device="cpu")
    text = f"The {tokenizer.special_tokens['mask']} cat sees a {tokenizer.special_tokens['mask']}."
    encoding = tokenizer.encode(text)
    places = [place for place, token in enumerate(encoding.ids) if token == tokenizer.mask_id]
    logits_NV = permuted_logits(theirs, torch.tensor([encoding.ids]), torch.tensor([encoding.type_ids]), places)
    for mask, probabilities_V in zip(model.fill_mask(text, top=2), logits_NV.softmax(-1), strict=True):
        assert mask[0].probability == pytest.approx(float(probabilities_V.max()), rel=1e-4)
        assert mask[0].token == tokenizer.id_to_token(int(probabilities_V.argmax()))


def permuted_logits(theirs: Any, ids: Tensor, types: Tensor, places: list[int]) -> Tensor:
    """Returns the logits of places to which no token attends, (N, V)."""
    perm_mask = torch.zeros(1, ids.shape[1], ids.shape[1])
    perm_mask[:, :, places] = 1.0
    mapping = torch.zeros(1, len(places), ids.shape[1])
    mapping[0, range(len(places)), places] = 1.0
    with torch.no_grad():
        logits: Tensor = theirs(ids, token_type_ids=types, perm_mask=perm_mask, target_mapping=mapping).logits[0]
    return logits


def test_elmos_is_the_mean_of_both_directions(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(BERT_FORMAT)
    shape = {"hidden_size": 12, "intermediate_size": 10, "embedding_size": 4, "filters": ((1, 3), (2, 4))}
    config = ElmoConfig(vocab_size=tokenizer.vocab_size, **shape)
    model = families.build(config, heads=build_objective({"bilm": {}}).heads, variant="elmo")
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            torch.manual_seed(number)
            parameter.copy_(torch.randn_like(parameter) * 0.4)
    model.tokenizer = tokenizer
    model.eval()
    nats, tokens = np.zeros(2), 0
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        with torch.no_grad():
            log_p = model(torch.tensor([ids]))["bilm"][0].log_softmax(-1)
        for place in range(1, len(ids) - 1):
            nats -= [float(log_p[place - 1, 0, ids[place]]), float(log_p[place + 1, 1, ids[place]])]
            tokens += 1
    scores = text_perplexity(model, TEXTS)
    assert (scores.head, scores.tokens, scores.name) == ("bilm", tokens, "perplexity")
    assert scores.per_token == pytest.approx(float(np.exp(nats / tokens).mean()), rel=1e-5)
    assert abs(nats[0] - nats[1]) > 1, "the directions differ, so their order shows"


def test_a_left_to_right_bert_is_exact(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(BERT_FORMAT)
    config = transformers.BertConfig(
        **parity.TINY | {"vocab_size": tokenizer.vocab_size, "max_position_embeddings": 64}, is_decoder=True
    )
    theirs, ours = theirs_and_ours("BertLMHeadModel", config, tmp_path, tokenizer)
    ids = torch.tensor([tokenizer.encode(TEXTS[1]).ids])
    with torch.no_grad():
        loss = float(theirs(ids, labels=ids.masked_fill(ids == tokenizer.sep_id, -100)).loss)
    assert text_perplexity(ours, TEXTS[1:2]).per_token == pytest.approx(exp(loss), rel=1e-5)


def test_the_command_says_which_it_is(tmp_path: Path) -> None:
    folder, file = toy_writer(tmp_path / "gpt", "gpt2"), tmp_path / "texts.txt"
    file.write_text("a cat sat\non a mat\n", encoding="utf-8")
    shown = CliRunner().invoke(app, ["perplexity", str(folder), str(file), "--device", "cpu"])
    assert "\nperplexity per word" in shown.stdout
    values = json.loads(
        CliRunner().invoke(app, ["perplexity", str(folder), str(file), "--device", "cpu", "--json"]).stdout
    )
    assert values["head"] == "lm"
    assert values["per_token"] == pytest.approx(
        text_perplexity(bertie.load(folder, device="cpu").module, ["a cat sat", "on a mat"]).per_token, rel=1e-5
    )


def test_a_decoder_is_refused(tmp_path: Path) -> None:
    """T5 predicts a second text."""
    folder = toy_writer(tmp_path / "t5")
    model = bertie.load(folder, device="cpu")
    assert "perplexity" not in model.can
    with pytest.raises(UsageError, match="second text"):
        model.perplexity(["a cat"])
    with pytest.raises(UsageError, match="without a decoder"):
        text_perplexity(model.module, ["a cat"])


def test_a_text_of_one_token_has_nothing_to_predict(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(BY_FAMILY["gpt2"])
    config = transformers.GPT2Config(vocab_size=tokenizer.vocab_size, **SIZES)
    _, ours = theirs_and_ours("GPT2LMHeadModel", config, tmp_path, tokenizer)
    scores = text_perplexity(ours, ["a", TEXTS[0]])
    assert (scores.texts, scores.left_out) == (1, 1)
    with torch.no_grad():
        ours.word_embeddings.zero_()  # every token is as probable as any
    assert text_perplexity(ours, TEXTS).per_token == pytest.approx(exp(log(tokenizer.vocab_size)), rel=1e-5)
