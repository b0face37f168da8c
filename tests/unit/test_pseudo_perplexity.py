"""Pseudo-perplexity, against hiding one token after the other by hand; continued pre-training on a domain."""

import math

import pytest
import torch
from test_pretrain import documents, home, make_corpus, settings, thread

from bertie import settings as configs
from bertie.errors import DataError, UsageError
from bertie.infer.perplexity import text_perplexity
from bertie.models.surgery import with_vocabulary
from bertie.runs.config import PretrainConfig
from bertie.runs.domains import format_domains
from bertie.runs.pretrain import run_pretrain
from bertie.runs.weights import load_model
from bertie.text.resize import add_tokens

assert home
assert thread  # fixtures

TEXTS = ["The old cat sees a bird.", "A small dog likes the red house near the river.", "Over and under."]


@pytest.fixture(scope="module")
def start(home, tmp_path_factory):
    """A model that has read the first corpus for a while."""
    run = tmp_path_factory.mktemp("start") / "run"
    run_pretrain(settings(home, "train.steps=60", "optim.lr=2e-3", "train.batch_size=16"), run)
    return run / "model"


def by_hand(model, text):
    """-> nats, tokens: a forward pass of the rectangle for every token; 8 bits per byte of an unknown word."""
    encoding = model.tokenizer.encode(text)
    nats, tokens = 0.0, 0
    for i, (token, (start, end)) in enumerate(zip(encoding.ids, encoding.offsets, strict=True)):
        name = model.tokenizer.id_to_token(token)
        if name in ("[CLS]", "[SEP]"):
            continue
        if name == "[UNK]":
            nats += math.log(256) * len(text[start:end].encode())
        ids = torch.tensor([encoding.ids])
        ids[0, i] = model.tokenizer.mask_id
        with torch.no_grad():
            logits = model(ids, token_type_ids=torch.zeros_like(ids))["mlm"]
        nats -= float(logits[0, i].log_softmax(-1)[token])
        tokens += 1
    return nats, tokens


def test_it_is_the_mean_of_hiding_each_token_by_itself(start):
    model = load_model(start)
    found = text_perplexity(model.train(), TEXTS)
    assert model.training  # left as it came
    model.eval()
    nats, tokens = (sum(column) for column in zip(*[by_hand(model, text) for text in TEXTS], strict=True))
    assert found.tokens == tokens
    assert found.words == sum(len(text.split()) for text in TEXTS)
    assert found.per_token == pytest.approx(math.exp(nats / tokens), rel=1e-4)
    assert found.per_word == pytest.approx(math.exp(nats / found.words), rel=1e-4)
    assert text_perplexity(model, ["over and near a river."]).per_token < 60  # better than guessing


def test_a_model_of_known_probabilities_has_a_known_perplexity(start):
    """Whatever is hidden, this one says each piece of the vocabulary with the same probability as ever."""
    model = load_model(start)
    share_V = torch.linspace(1, 9, model.config.vocab_size).double()
    share_V = share_V / share_V.sum()
    with torch.no_grad():
        model.word_embeddings.zero_()
        model.heads["mlm"].bias.copy_(share_V.log())
    texts = ["over a river", "and near a red river."]
    ids = [id for text in texts for id in model.tokenizer.encode(text).ids]
    said = [float(share_V[id]) for id in ids if model.tokenizer.id_to_token(id) not in ("[CLS]", "[SEP]")]
    found = text_perplexity(model, texts)
    assert "[UNK]" not in {model.tokenizer.id_to_token(id) for id in ids}
    assert found.tokens == len(said)
    assert found.per_token == pytest.approx(math.prod(1 / p for p in said) ** (1 / len(said)), rel=1e-5)


def test_words_the_vocabulary_does_not_know_make_it_worse(start):
    model = load_model(start)
    known = "over a river and near a red river"
    words = known.split()
    figures = []
    for count in (0, 1, 3, 6):
        text = " ".join(["\u4e00\u9f8d" if i < count else word for i, word in enumerate(words)])
        found = text_perplexity(model, [text])
        figures.append(found.per_word)
        assert (found.words, found.unknown) == (8, 2 * count)  # each of the two characters is an [UNK]
    assert figures == sorted(figures)
    assert figures[1] > figures[0] * math.exp(6 * math.log(256) / 8 - 3)  # its 6 bytes, less what the word had cost
    assert text_perplexity(model, ["q" * 200]).per_word == math.exp(700)  # which JSON can say


def test_what_cannot_be_scored_is_left_out_and_counted(start):
    model = load_model(start)
    found = text_perplexity(model, [*TEXTS, "", "the cat " * 100], max_length=40)
    assert (found.texts, found.left_out) == (3, 2)
    with pytest.raises(DataError, match="None of the 2 texts"):
        text_perplexity(model, ["", " "])
    del model.heads["mlm"]
    with pytest.raises(UsageError, match="language-model head"):
        text_perplexity(model, TEXTS)


def domain(home, start, *overrides, **values):
    short = ["max_length=32", "train.steps=40", "train.batch_size=16", "train.device=cpu", "optim.lr=2e-3"]
    return configs.load_config(PretrainConfig, None, [*short, *overrides], model=str(start), **values)


def test_a_domain_is_learned_and_the_table_says_so(home, start, tmp_path):
    """With a vocabulary that was extended by a word of the domain, and a replay of the first corpus."""
    texts = [text.replace("cat", "aardvark").replace("sees", "bird bird") for text in documents(60, seed=3)]
    other = make_corpus(tmp_path / "domain", texts)
    model = load_model(start)
    grown = with_vocabulary(model, add_tokens(model.tokenizer, ["aardvark"]))
    grown.save_pretrained(tmp_path / "grown", tokenizer=grown.tokenizer)
    mix = f"corpora=[{{path: {other}, weight: 3}}, {{path: {home / 'corpus'}, weight: 1}}]"
    results = run_pretrain(domain(home, tmp_path / "grown", mix, "pseudo_perplexity=8"), tmp_path / "run")
    found = results["pseudo_perplexity"]
    assert found["domain"]["after"]["per_token"] < 0.8 * found["domain"]["before"]["per_token"]
    assert found["corpus"]["after"]["tokens"] == found["corpus"]["before"]["tokens"]
    assert found["corpus"]["after"]["texts"] == 8
    assert format_domains(found).splitlines()[1].startswith("domain")
    after = load_model(tmp_path / "run" / "model")
    assert after.tokenizer.encode("aardvark").tokens[1] == "aardvark"


def test_a_left_to_right_model_is_measured_before_and_after(home, tmp_path):
    """By its exact perplexity, which the setting measures as it does that of a masked model."""
    causal = ("model_overrides.causal=true", "objectives={mlm: null, nsp: null, ltr: {}}")
    run_pretrain(settings(home, *causal, "train.steps=40", "optim.lr=2e-3", "train.batch_size=16"), tmp_path / "start")
    other = make_corpus(tmp_path / "domain", documents(60, seed=3))
    config = domain(home, tmp_path / "start" / "model", causal[1], "pseudo_perplexity=8", corpus=str(other))
    measured = run_pretrain(config, tmp_path / "run")["pseudo_perplexity"]["domain"]
    assert measured["before"]["head"] == measured["after"]["head"] == "lm"
    assert measured["after"]["per_token"] < measured["before"]["per_token"]


def test_what_is_missing_is_said(home, start, tmp_path):
    small = make_corpus(tmp_path / "small", documents(2, sentences=150))
    with pytest.raises(DataError, match="too small to hold out documents"):
        run_pretrain(domain(home, start, "pseudo_perplexity=8", corpus=str(small)), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="tokenizer is missing"):
        run_pretrain(settings(home, tokenizer=""), tmp_path / "run")
    with pytest.raises(UsageError, match="bert-tiny is a preset"):
        run_pretrain(settings(home, "pseudo_perplexity=5"), tmp_path / "run")
