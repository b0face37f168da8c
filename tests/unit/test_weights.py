"""Model folders: names in both directions, and files that are damaged, hostile or of two models."""

import json
import pickle
import random
import resource
import signal

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertie.errors import BertieError, DataError, UsageError
from bertie.models import families
from bertie.models.codec import WeightTable
from bertie.models.heads.sequence import PairHead, SequenceHead
from bertie.models.heads.vocabulary import MaskedLMHead
from bertie.models.saving import check_vocabulary
from toys import toy_writer

SIZES = {"vocab_size": 50, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}


def build(heads=None):
    return families.build("bert-tiny", heads=heads, max_position_embeddings=16, **SIZES)


def classifier(config):
    return {"sequence": SequenceHead(config, 3)}


@pytest.fixture
def folder(tmp_path):
    build().save_pretrained(tmp_path)
    return tmp_path


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_table_reads_both_ways():
    table = WeightTable(
        rows=(("layers.{}.qkv.*", ("old.{}.q.*", "old.{}.k.*")), ("norm.*", "top.LayerNorm.*")),
        old=((r"\.gamma$", ".weight"),),
        ignored=(r"\.ids$",),
    )
    assert table.public("layers.7.qkv.bias") == ("old.7.q.bias", "old.7.k.bias")
    assert table.public("norm.weight") == ("top.LayerNorm.weight",)
    assert table.today("top.LayerNorm.gamma") == "top.LayerNorm.weight"
    assert table.today("top.ids") is None
    with pytest.raises(KeyError):
        table.public("layers.x.qkv.bias")


def test_labels_and_unknown_keys_survive_a_round_trip(tmp_path):
    build(classifier).save_pretrained(tmp_path / "a", labels=("좋음", "bad", "so-so"))
    edit(tmp_path / "a", something_new={"kept": [1, 2]}, problem_type="single_label_classification")
    model, report = families.load(tmp_path / "a")
    assert model.labels == ("좋음", "bad", "so-so")
    assert not report.fresh
    model.save_pretrained(tmp_path / "b")
    read = {name: json.loads((tmp_path / name / "config.json").read_text()) for name in "ab"}
    assert read["a"] == read["b"]
    assert read["b"]["label2id"]["좋음"] == 0
    assert read["b"]["architectures"] == ["BertForSequenceClassification"]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert weights[0] == weights[1]


def test_the_report_says_what_is_fresh_and_what_is_unused(tmp_path):
    build(lambda c: {"mlm": MaskedLMHead(c), "pair": PairHead(c)}).save_pretrained(tmp_path)
    model, report = families.load(tmp_path, heads=classifier, seed=3)
    assert set(report.fresh) == {"heads.sequence.classifier.weight", "heads.sequence.classifier.bias"}
    assert "cls.predictions.bias" in report.unused
    assert len(report.loaded) == len(list(model.encoder.parameters()))
    assert "start fresh" in str(report)
    again, _ = families.load(tmp_path, heads=classifier, seed=3)
    assert torch.equal(again.heads["sequence"].classifier.weight, model.heads["sequence"].classifier.weight)
    assert not model.training


def test_a_folder_without_its_parts_says_what_it_lacks(tmp_path, folder):
    with pytest.raises(DataError, match="not a folder"):
        families.load(tmp_path / "nowhere")
    (folder / "config.json").unlink()
    with pytest.raises(DataError, match=r"it has no config\.json"):
        families.load(folder)
    build().save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"has no model.safetensors"):
        families.load(folder)
    (folder / "onnx").mkdir()
    with pytest.raises(DataError, match="is an ONNX export"):
        families.load(folder)


class Malicious:
    def __reduce__(self):
        return open, ("marker", "w")


@pytest.mark.promise("hostile-files")
def test_a_pickle_is_refused_and_never_opened(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(DataError, match="can run code"):
        families.load(folder)
    assert not (folder / "marker").exists()


def test_config_and_weights_of_two_models_are_told_apart(folder):
    for key, value in {"vocab_size": 28996, "num_hidden_layers": 3, "intermediate_size": 32, "hidden_size": 32}.items():
        before = (folder / "config.json").read_text()
        edit(folder, **{key: value})
        with pytest.raises(
            DataError, match=key if key in ("vocab_size", "num_hidden_layers") else "belong to different models"
        ):
            families.load(folder)
        (folder / "config.json").write_text(before)
    state = load_file(folder / "model.safetensors")
    del state["encoder.layer.1.output.dense.bias"]
    save_file(state, folder / "model.safetensors")
    with pytest.raises(DataError, match=r"have no bert\.encoder\.layer\.1\.output\.dense\.bias"):
        families.load(folder)


@pytest.mark.promise("hostile-files")
@pytest.mark.parametrize(
    "changes",
    [
        {"vocab_size": 10**30},
        {"vocab_size": 2**31 - 1},
        {"hidden_size": 2**30},
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": -1},
        {"num_attention_heads": 0},
        {"num_attention_heads": 3},
        {"intermediate_size": "24"},
        {"intermediate_size": 24.5},
        {"hidden_size": True},
        {"hidden_size": [16]},
        {"hidden_dropout_prob": 1.5},
        {"hidden_dropout_prob": float("nan")},
        {"layer_norm_eps": float("inf")},
        {"layer_norm_eps": -1.0},
        {"hidden_act": "__import__('os')"},
        {"hidden_act": {"a": 1}},
        {"auto_map": {"AutoModel": "evil.py--Model"}},
        {"model_type": "no-such"},
        {"model_type": None, "type_vocab_size": 1},
        {"position_embedding_type": "relative_key"},
        {"is_decoder": 1},
        {"add_cross_attention": True},
        {"type_vocab_size": 5},
        {"max_position_embeddings": 10**15},
    ],
)
def test_a_hostile_config_is_one_clear_error(folder, changes):
    edit(folder, **changes)
    with pytest.raises((DataError, UsageError)) as caught:
        families.load(folder)
    assert len(str(caught.value)) < 2000


@pytest.mark.promise("hostile-files")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "\x00",
        '"x"',
        "[" * 200_000,
        '{"a":' * 100_000,
        '{"vocab_size": ' + "9" * 10_000 + "}",
        '{"model_type": "bert", "architectures": {"a": 1}, "id2label": [1]}',
    ],
)
def test_a_config_that_is_no_config_is_one_clear_error(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(DataError):
        families.load(folder)


@pytest.mark.parametrize(
    "labels", [{"0": "a"}, {"0": "a", "1": "a", "2": "b"}, {"0": 1, "1": 2, "2": 3}, {"x": "a"}, [7]]
)
def test_labels_that_do_not_fit_are_refused(tmp_path, labels):
    build(classifier).save_pretrained(tmp_path)
    edit(tmp_path, id2label=labels)
    with pytest.raises(DataError, match="id2label"):
        families.load(tmp_path)


def mutations(data, n, seed=0):
    """Bytes flipped, cut, repeated, inserted; most of them in the header, where a reader can be misled."""
    rng = random.Random(seed)
    header = 8 + int.from_bytes(data[:8], "little")
    for _ in range(n):
        out = bytearray(data)
        kind = rng.randrange(5)
        at = rng.randrange(header if rng.random() < 0.9 else len(data))
        if kind == 0:
            out[at] = rng.randrange(256)
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            out[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        elif kind == 3:
            del out[at : at + rng.randrange(1, 30)]
        else:
            out[:8] = rng.choice([0, 1, header, 2**31, 2**40, 2**63, 2**64 - 1]).to_bytes(8, "little")
        yield bytes(out)


@pytest.mark.promise("hostile-files")
def test_mutated_weights_never_crash_or_hang(folder):
    """2,000 damaged files: each loads (the damage hit a number) or is one DataError; memory stays where it was."""
    data = (folder / "model.safetensors").read_bytes()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for mutant in mutations(data, 2000):
        (folder / "model.safetensors").write_bytes(mutant)
        try:
            families.load(folder)
        except DataError:
            refused += 1
    assert refused > 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_numbers_that_are_not_finite_are_refused(folder):
    state = load_file(folder / "model.safetensors")
    state["pooler.dense.weight"][3, 3] = float("nan")
    save_file(state, folder / "model.safetensors")
    with pytest.raises(DataError, match=r"pooler\.dense\.weight contains numbers that are not finite"):
        families.load(folder)


def test_an_index_cannot_name_files_outside_its_folder(folder):
    (folder / "model.safetensors").rename(folder / "x.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../x.safetensors"}}))
    with pytest.raises(DataError, match="outside"):
        families.load(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "gone.safetensors"}}))
    with pytest.raises(DataError, match="gone"):
        families.load(folder)


class Vocabulary:
    def __init__(self, size):
        self.vocab_size = size

    def save(self, folder, *, segments=None, max_length=None):
        (folder / "saved").touch()


def test_a_vocabulary_of_another_model_is_named(tmp_path):
    model = build()
    check_vocabulary(Vocabulary(50), model.config, tmp_path)
    config = families.config("bert-base")
    with pytest.raises(DataError, match="28,996 entries, but the weights have 30,522 rows"):
        check_vocabulary(Vocabulary(28996), config, tmp_path)
    with pytest.raises(DataError, match="30,523 entries"):
        check_vocabulary(Vocabulary(30523), config, tmp_path)
    model.save_pretrained(tmp_path, tokenizer=Vocabulary(50))
    assert (tmp_path / "saved").exists()


def test_the_card_has_a_yaml_header(folder):
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: bertie\n")
    assert "BertModel" in card


def test_heads_no_public_class_has_together_are_refused(tmp_path):
    with pytest.raises(BertieError, match="BertForMaskedLM"):  # before any training
        build(lambda c: {"mlm": MaskedLMHead(c), **classifier(c)})
    model = build(lambda c: {"mlm": MaskedLMHead(c)})
    model.heads["sequence"] = classifier(model.config)["sequence"]
    with pytest.raises(BertieError, match="BertForMaskedLM"):
        model.save_pretrained(tmp_path)


def test_a_folder_of_another_family_is_named(tmp_path):
    build(lambda config: {"mlm": MaskedLMHead(config)}).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    good = json.loads(path.read_text())
    path.write_text(json.dumps({**good, "model_type": "roberta", "architectures": ["RobertaForMaskedLM"]}))
    with pytest.raises(DataError, match=r"names like roberta\.\*, but this folder has bert\."):
        families.load(tmp_path)
    path.write_text(json.dumps({**good, "model_type": "llama"}))
    with pytest.raises(DataError, match=r"config\.json: model_type is 'llama', which is not supported"):
        families.load(tmp_path)


def test_a_pointer_of_git_lfs_is_named(folder):
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(DataError, match="git lfs pull"):
        families.load(folder)


def test_weights_of_the_encoder_that_nothing_reads_are_told(folder, capsys):
    """They may make it another model than config.json says."""
    tensors = load_file(folder / "model.safetensors")
    (name, weight), *_ = [item for item in tensors.items() if item[0].endswith("layer.0.attention.self.key.weight")]
    save_file({**tensors, name.replace("key", "pos_key"): weight.clone()}, folder / "model.safetensors")
    families.load(folder)
    assert "the encoder does not read these weights" in " ".join(capsys.readouterr().err.split())


def test_a_decoder_is_no_part_of_the_encoder(tmp_path, capsys):
    """T5's tags and vectors are those of its encoder alone."""
    families.load(toy_writer(tmp_path / "t5", "t5"), heads={})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("names", [[], ["module." * 200_000], ["model.module._orig_mod.x"], ["model"], ["", "model."]])
def test_names_without_an_encoder_are_refused_in_time(folder, names):
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it does not end"))
    signal.alarm(60)
    try:
        save_file({name: torch.zeros(1) for name in names}, folder / "model.safetensors")
        with pytest.raises(DataError):
            families.load(folder)
    finally:
        signal.alarm(0)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    with pytest.raises(DataError, match="has no weight_map"):
        families.load(folder)
