"""What heads read, and where each family's drop out, which no comparison without dropout can see."""

from dataclasses import fields

import pytest
import torch

from bertie.errors import DataError, UsageError
from bertie.files import read_json, write_json
from bertie.models import families
from bertie.models.encoder import EncoderOutput
from bertie.models.flat import UNIONS
from bertie.models.head_config import HeadConfigs
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.models.sentence import pool
from bertie.nn.layout import Packed, Padded

transformers = pytest.importorskip("transformers")

PLACES = [  # preset, head, dropout before the head's dense layer, before its last layer (transformers' own classes)
    ("bert-base", "pair", 0.0, 0.0),
    ("bert-base", "sequence", None, 0.1),
    ("bert-base", "choice", None, 0.1),
    ("roberta-base", "sequence", 0.1, 0.1),
    ("roberta-base", "choice", None, 0.1),
    ("albert-base-v2", "pair", None, 0.1),
    ("albert-base-v2", "sequence", None, 0.1),
    ("distilbert-base-uncased", "sequence", 0.0, 0.2),
    ("distilbert-base-uncased", "choice", 0.0, 0.2),
    ("electra-small-discriminator", "sequence", 0.1, 0.1),
    ("electra-small-discriminator", "choice", 0.0, 0.1),
    ("t5-small", "sequence", 0.0, 0.0),
]


@pytest.mark.parametrize(("preset", "name", "first_p", "last_p"), PLACES)
def test_dropout_of_heads_on_sequences(preset, name, first_p, last_p):
    head = HEADS[name](families.config(preset), 3)
    assert head.last_p == last_p
    assert head.dense is None or head.first_p == first_p


@pytest.mark.parametrize(  # of RoBERTa's and BigBird's choice heads `transformers` lets no classifier_dropout speak
    ("preset", "last_p"),
    [
        *(("bert-base", 0.4), ("mobilebert-uncased", 0.4), ("albert-base-v2", 0.4)),
        *(("roberta-base", 0.3), ("xlm-roberta-base", 0.3), ("camembert-base", 0.3), ("longformer-base-4096", 0.3)),
        *(("bigbird-roberta-base", 0.3), ("electra-small-discriminator", 0.1), ("xlnet-base-cased", 0.1)),
    ],
)
def test_which_dropout_a_choice_has(preset, last_p):
    config = families.config(preset, hidden_dropout_prob=0.3, classifier_dropout=0.4)
    assert HEADS["choice"](config, 1).last_p == last_p


@pytest.mark.parametrize(
    ("preset", "token_p", "span_p"),
    [("bert-base", 0.1, 0.0), ("albert-base-v2", 0.1, 0.0), ("distilbert-base-uncased", 0.1, 0.1)],
)
def test_dropout_of_heads_on_tokens(preset, token_p, span_p):
    config = families.config(preset)
    assert HEADS["token"](config, 3).dropout_p == token_p
    assert HEADS["span"](config, 0).dropout_p == span_p


def test_dropout_runs_in_training_alone():
    config = families.config("distilbert-base-uncased", hidden_size=96, sequence_dropout=0.5)
    head = HEADS["sequence"](config, 4)
    output = EncoderOutput(torch.randn(8, 3, 96), Padded(torch.ones(8, 3, dtype=torch.bool)))
    assert not torch.equal(head(output), head(output))
    head.eval()
    assert torch.equal(head(output), head(output))


# Left to right -------------------------------------------------------------------------------------------------------

CAUSAL = {  # preset -> what makes it read left to right
    "bert-base-ltr": {},
    "roberta-base": {"causal": True},
    "openai-gpt": {},
    "gpt2": {},
}
NANO = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 30,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout": 0.0,
    "initializer_range": 0.2,
}


def causal(preset: str, name: str) -> TorchModel:
    config = families.config(preset, **NANO, **CAUSAL[preset])
    if config.embedding_dropout is not None:
        config = config.replace(embedding_dropout=0.0)
    heads = lambda config: {name: HEADS[name](config, 3)}  # noqa: E731
    return families.build(config, heads=heads, variant=families.family(preset).model_type, seed=1)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ["sequence", "pair", "choice"])
@pytest.mark.parametrize("preset", CAUSAL)
def test_what_a_left_to_right_model_says_of_a_text_depends_on_all_of_it(preset, name, training):
    """On each token, packed or padded; on nothing after it."""
    if not any(name in heads for heads in families.family(preset).architectures.values()):
        pytest.skip("a head that the family does not have")
    model = causal(preset, name).train(training)
    lengths, ids = torch.tensor([7, 4]), torch.randint(5, 50, (2, 7), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(7) < lengths[:, None]
    logits = model(ids, mask)[name]
    packed = model(ids[mask], layout=Packed.from_lengths(lengths))[name]
    torch.testing.assert_close(logits, packed, rtol=0, atol=1e-5)
    for row, column in mask.nonzero().tolist():
        changed = ids.clone()
        changed[row, column] = (changed[row, column] - 5 + 1) % 45 + 5
        apart = (model(changed, mask)[name] - logits).abs().view(2, -1).amax(1)
        assert apart[row] > 1e-6, f"token {column} of {row}"
        assert apart[1 - row] == 0
    behind = ids.clone()
    behind[1, 4:] = 9
    torch.testing.assert_close(model(behind, mask)[name], logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["sequence", "pair", "choice"])
def test_a_left_to_right_berts_classifier_opens_here_alone(tmp_path, name):
    """The public classes would read its first token, whose state is the same for every text."""
    model = causal("bert-base-ltr", name).eval()
    model.save_pretrained(tmp_path / "ours")
    public = read_json(tmp_path / "ours" / "config.json")
    assert (public["model_type"], public["bertie"]) == ("bertie-bert", {"causal": True})
    assert "causal=True" in (tmp_path / "ours" / "README.md").read_text()
    with pytest.raises(ValueError, match="bertie-bert"):
        transformers.AutoModel.from_pretrained(tmp_path / "ours")
    ids = torch.tensor([[5, 6, 7, 8]])
    again, _ = families.load(tmp_path / "ours")
    assert torch.equal(again(ids)[name], model(ids)[name])
    again.save_pretrained(tmp_path / "again")
    assert read_json(tmp_path / "again" / "config.json") == public

    write_json(tmp_path / "ours" / "config.json", {**public, "model_type": "bert", "is_decoder": True, "bertie": {}})
    with pytest.raises(DataError, match="trained on the first token"):
        families.load(tmp_path / "ours")
    heads = lambda config: {name: HEADS[name](config, 3)}  # noqa: E731
    fresh, _ = families.load(tmp_path / "ours", heads=heads, fresh_heads=True)
    assert fresh.config.causal


def test_without_a_classifier_it_opens_everywhere(tmp_path):
    model = causal("bert-base-ltr", "lm").eval()
    model.save_pretrained(tmp_path / "lm")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "lm").eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    torch.testing.assert_close(theirs(ids).logits, model(ids)["lm"], rtol=0, atol=1e-5)
    tuned, _ = families.load(tmp_path / "lm", heads=lambda config: {"sequence": HEADS["sequence"](config, 3)})
    tuned.save_pretrained(tmp_path / "tuned")
    bare, _ = families.load(tmp_path / "tuned", heads=lambda config: {"lm": HEADS["lm"](config, 0)})
    assert bare.config.causal


@pytest.mark.parametrize("preset", ["bert-base-ltr", "gpt2"])
def test_the_vector_of_a_left_to_right_text_is_its_last_token(preset):
    model = causal(preset, "token").eval()
    output = model.encoder(torch.tensor([[5, 6, 7, 8]]))
    assert torch.equal(pool(output, "cls"), output.last_hidden_state[:, -1])
    both = families.build("bert-tiny", **NANO).eval().encoder(torch.tensor([[5, 6, 7, 8]]))
    assert torch.equal(pool(both, "cls"), both.last_hidden_state[:, 0])


def test_settings_of_heads_go_by_flat_names():
    assert families.config("bert-tiny", mlm_act="relu").heads.mlm.mlm_act == "relu"
    assert families.config("bert-tiny").replace(mlm_act="relu").flat()["mlm_act"] == "relu"
    with pytest.raises(UsageError, match=r"no field 'mlm_akt'. Did you mean 'mlm_act'"):
        families.config("bert-tiny", mlm_akt="relu")
    with pytest.raises(UsageError, match="no field 'heads'"):
        families.config("bert-tiny", heads={})
    with pytest.raises(DataError, match=r"choice_dropout is 1.5"):
        families.config("bert-tiny", choice_dropout=1.5)


def test_no_two_settings_have_one_name():
    """Else an override would not say where it belongs."""
    of_heads = [one.name for part in fields(HeadConfigs) for one in fields(part.default)]
    others = [name for name in families.config("bert-tiny").flat() if name not in of_heads]
    of_kinds = [one.name for members in UNIONS.values() for member in members for one in fields(member)]
    assert len(set(of_heads)) == len(of_heads)
    assert not set(of_heads) & {*others, *of_kinds}


def test_a_next_token_head_needs_word_embeddings_of_the_hidden_size():
    config = families.config("gpt2", hidden_size=32, num_attention_heads=4, embedding_size=10)
    with pytest.raises(UsageError, match="Omit embedding_size"):
        HEADS["lm"](config, 0)
    assert HEADS["lm"](config.replace(lm_tied=False), 0).weight.shape == (config.vocab_size, 32)
