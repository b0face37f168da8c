"""Grown, extended, trimmed: what a function says stays the same stays the same."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import ByteLevelBPETokenizer

from bertie.errors import UsageError
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.models.surgery import deeper, take_layers, with_positions, with_vocabulary
from bertie.models.widen import wider
from bertie.nn.layout import Packed
from bertie.text.formats import GPT2_FORMAT
from bertie.text.normalize import Normalizer
from bertie.text.resize import add_tokens, trim_tokenizer
from bertie.text.tokenizer import Tokenizer
from bertie.text.vocabulary import count_words, train_vocabulary

TEXTS = """The nurse gave the patient a drug and wrote a note.
A chemist weighed the powder; the scale was old, but true.
등대지기는 매일 밤 불을 켠다. 배는 길을 잃지 않았다!
Die Straße führt zum Meer, naïve Gäste im café.
one two three four five six seven eight nine ten 1 2 3""".split("\n")
DOMAIN = ["chemotherapy", "pharmacist", "등대지기", "patient"]
NEW = "The pharmacist wrote chemotherapy notes."
SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 40,
    "initializer_range": 0.3,
}


def tokenizer_of(kind: str, folder: Path) -> Tokenizer:
    words = count_words(TEXTS * 3)
    if kind in ("wordpiece", "unigram"):
        return train_vocabulary(words, size=260, algorithm=kind, normalizer=Normalizer(lowercase=True))
    if kind == "sentencepiece":
        sentencepiece = pytest.importorskip("sentencepiece")
        with open(folder / "sentencepiece.bpe.model", "wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(TEXTS * 3),
                model_writer=file,
                vocab_size=160,
                hard_vocab_limit=False,
                minloglevel=2,
            )
        (folder / "config.json").write_text('{"model_type": "xlm-roberta"}')
        return Tokenizer.load(folder)
    engine = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    engine.train_from_iterator(TEXTS * 3, vocab_size=330, special_tokens=special, show_progress=False)
    engine.save_model(str(folder))
    (folder / "config.json").write_text('{"model_type": "roberta"}')
    return Tokenizer.load(folder)


KINDS = ["wordpiece", "unigram", "byte-bpe", "sentencepiece"]


def model_of(tokenizer: Tokenizer, head: str = "mlm", preset: str = "") -> TorchModel:
    preset = preset or ("roberta-base" if "mask" in tokenizer.special_tokens["mask"] else "bert-tiny")
    sizes = {"vocab_size": tokenizer.vocab_size, "pad_token_id": tokenizer.pad_id}
    return made(preset, head, **sizes)


def made(preset: str, head: str, **sizes: Any) -> TorchModel:
    config = families.config(preset, **{**SMALL, "vocab_size": 99, **sizes})
    torch.manual_seed(5)
    heads = {head: HEADS[head](config, 3)} if head else {}
    model = families.build(config, heads=heads, variant=families.family(preset).model_type, seed=1).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def run(model: TorchModel, ids: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    layout = Packed.from_lengths(torch.tensor([len(row) for row in ids]))
    with torch.no_grad():
        output = model.encoder(torch.tensor([i for row in ids for i in row]), layout=layout)
        logits = [model.logits(name, output) for name, head in model.heads.items()]
    return output.last_hidden_state, logits[0] if logits else output.last_hidden_state


def encoded(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [encoding.ids[:38] for encoding in tokenizer.encode_batch(texts)]


# Vocabulary ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_extended_words_are_one_piece_and_start_as_their_pieces(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    before = tokenizer.ids([f"a {word}" for word in DOMAIN])
    resized = add_tokens(tokenizer, [*DOMAIN, "two words", "a"])
    new = resized.tokenizer
    assert set(resized.left_out) >= {"two words", "a"}
    vocabulary = new.engine.get_vocab()
    assert all(vocabulary[piece] == i for piece, i in tokenizer.engine.get_vocab().items())  # old ids stay
    for word, old in zip(DOMAIN, before, strict=True):
        if word in resized.left_out:
            continue
        *first, i = new.ids([f"a {word}"])[0]
        assert i >= tokenizer.vocab_size, word
        assert [*first, *resized.rows[i]] == old, word
    assert sum(word not in resized.left_out for word in DOMAIN) >= 2
    new.save(tmp_path / "new")
    again = Tokenizer.load(tmp_path / "new")
    assert again.ids([NEW, *TEXTS]) == new.ids([NEW, *TEXTS])
    assert [e.ids for e in again.encode_batch([NEW, *TEXTS])] == [e.ids for e in new.encode_batch([NEW, *TEXTS])]

    model = model_of(tokenizer)
    grown = with_vocabulary(model, resized)
    assert grown.tokenizer is new
    assert grown.config.vocab_size == new.vocab_size
    for table, bias in ((model, grown),):
        assert torch.equal(bias.word_embeddings[: tokenizer.vocab_size], table.word_embeddings)
    for i, row in enumerate(resized.rows):
        torch.testing.assert_close(grown.word_embeddings[i], model.word_embeddings[list(row)].mean(0))
        torch.testing.assert_close(grown.heads["mlm"].bias[i], model.heads["mlm"].bias[list(row)].mean())
    ids = encoded(tokenizer, TEXTS)
    a, b = run(model, ids), run(grown, ids)
    assert torch.equal(a[0], b[0])
    torch.testing.assert_close(a[1], b[1][:, : tokenizer.vocab_size])
    grown.save_pretrained(tmp_path / "model")
    loaded, report = families.load(tmp_path / "model")
    assert report.fresh == ()
    assert torch.equal(loaded.word_embeddings, grown.word_embeddings)


@pytest.mark.parametrize("kind", KINDS)
def test_trimmed_to_texts_gives_them_the_same_numbers(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    covered = TEXTS[:2]
    resized = trim_tokenizer(tokenizer, covered)
    new = resized.tokenizer
    assert new.vocab_size < tokenizer.vocab_size - 20
    assert [new.id_to_token(i) for i in range(new.vocab_size)] == [
        tokenizer.id_to_token(old) for (old,) in resized.rows
    ]
    assert new.special_tokens == tokenizer.special_tokens
    old_ids = [[resized.rows[i][0] for i in row] for row in new.ids(covered)]
    assert old_ids == tokenizer.ids(covered)
    assert [e.tokens for e in new.encode_batch(covered)] == [e.tokens for e in tokenizer.encode_batch(covered)]
    model = model_of(tokenizer)
    small = with_vocabulary(model, resized)
    a, b = run(model, encoded(tokenizer, covered)), run(small, encoded(new, covered))
    assert torch.equal(a[0], b[0])
    torch.testing.assert_close(a[1][:, [old for (old,) in resized.rows]], b[1])
    assert small.word_embeddings.numel() < model.word_embeddings.numel()
    assert small.config.pad_token_id == new.pad_id
    small.save_pretrained(tmp_path / "small")
    assert Tokenizer.load(tmp_path / "small").ids(covered) == new.ids(covered)
    assert torch.equal(run(families.load(tmp_path / "small")[0], encoded(new, covered))[0], b[0])
    if kind == "byte-bpe":  # nothing becomes unreadable
        assert new.decode(new.ids([TEXTS[2]])[0]).strip() == TEXTS[2]


def test_ids_of_special_tokens_follow_a_trimmed_vocabulary(tmp_path: Path) -> None:
    """The end of a text is the last of GPT-2's pieces, and its first, an exclamation mark, is what padding was."""
    words = count_words(["! the cat sat on the mat, a lazy dog lay there"] * 5)
    tokenizer = train_vocabulary(words, size=320, family=GPT2_FORMAT)
    eos = tokenizer.special_id("eos")
    model = made("gpt2", "lm", vocab_size=tokenizer.vocab_size, eos_token_id=eos)
    model.public = {"bos_token_id": eos, "eos_token_id": eos}
    resized = trim_tokenizer(tokenizer, ["the cat sat!"])
    new = resized.tokenizer
    assert new.vocab_size < tokenizer.vocab_size
    trimmed = with_vocabulary(model, resized)
    trimmed.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["eos_token_id"] == saved["bos_token_id"] == new.special_id("eos")
    assert saved["pad_token_id"] == new.pad_id
    assert families.load(tmp_path)[0].config.eos_token_id == new.special_id("eos")


def test_a_bert_with_more_words_needs_no_key_of_ours(tmp_path: Path) -> None:
    """Its separator has the tokenizer's id, 3, which a config.json of BERT has no key for, and no layer reads."""
    tokenizer = tokenizer_of("wordpiece", tmp_path)
    for change in (add_tokens(tokenizer, DOMAIN), trim_tokenizer(tokenizer, TEXTS)):
        changed = with_vocabulary(model_of(tokenizer), change)
        families.save(changed, tmp_path / "changed")
        saved = json.loads((tmp_path / "changed" / "config.json").read_text())
        assert saved["model_type"] == "bert"
        assert "bertie" not in saved


def test_transformers_opens_an_extended_and_a_trimmed_tokenizer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    for kind in KINDS:
        for name, change in (("extend", add_tokens), ("trim", trim_tokenizer)):
            folder = tmp_path / kind / name
            folder.mkdir(parents=True)
            tokenizer = tokenizer_of(kind, folder)
            new = change(tokenizer, DOMAIN if change is add_tokens else TEXTS).tokenizer
            out = folder / "out"
            new.save(out)
            model_type = json.loads((folder / "config.json").read_text()) if (folder / "config.json").exists() else {}
            (out / "config.json").write_text(json.dumps(model_type or {"model_type": "bert"}))
            theirs = transformers.AutoTokenizer.from_pretrained(out)
            for text in [*TEXTS, NEW]:
                assert theirs(text)["input_ids"] == new.encode(text).ids, (kind, name)


# Positions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["bert-tiny", "roberta-base", "albert-base-v2", "gpt2"])
def test_more_positions(preset: str) -> None:
    model = made(preset, "")
    short, most = [[7, 8, 9, 10] * 5], model.config.max_length
    longer = with_positions(model, 100)
    assert longer.config.max_length == 100
    assert torch.equal(run(model, short)[0], run(longer, short)[0])
    assert torch.isfinite(run(longer, [[7] * 100])[0]).all()
    offset, table = model.config.position_offset, longer.state_dict()["encoder.embeddings.position.weight"]
    assert torch.equal(table[offset + most : offset + 2 * most], table[offset : offset + most])
    stretched = with_positions(model, 2 * most - 1, fill="interpolate")
    between = stretched.state_dict()["encoder.embeddings.position.weight"][offset:]
    old = model.state_dict()["encoder.embeddings.position.weight"][offset:]
    torch.testing.assert_close(between[::2], old)
    torch.testing.assert_close(between[1::2], (old[1:] + old[:-1]) / 2)
    with pytest.raises(UsageError, match="already"):
        with_positions(model, most)
    with pytest.raises(UsageError, match="interpolate"):
        with_positions(model, 100, fill="interpolated")  # type: ignore[arg-type]


# Depth ---------------------------------------------------------------------------------------------------------------


def layer(model: TorchModel, i: int) -> torch.Tensor:
    return model.get_parameter(f"encoder.layers.{i}.up.weight")


def test_layers_are_copied_in_the_order_asked_for(tmp_path: Path) -> None:
    model = made("bert-tiny", "mlm")
    for how, source in (("stack", [0, 1, 2, 0, 1, 2]), ("interleave", [0, 0, 1, 1, 2, 2])):
        grown = deeper(model, 6, how=how)
        for i, taken in enumerate(source):
            assert torch.equal(layer(grown, i), layer(model, taken))
        grown.save_pretrained(tmp_path / how)
        again, _ = families.load(tmp_path / how)
        assert again.config.num_hidden_layers == 6
    assert len(model.encoder.layers) == 3
    with pytest.raises(UsageError, match="stack or --how interleave"):
        deeper(model, 4, how="identity")
    with pytest.raises(UsageError, match="not 3"):
        deeper(model, 3)


def test_a_deeper_pre_norm_model_computes_the_same() -> None:
    model, ids = made("gpt2", "lm"), [[5, 6, 7, 8, 9]]
    same, other = deeper(model, 5, how="identity"), deeper(model, 5)
    for a, b in zip(run(model, ids), run(same, ids), strict=True):
        torch.testing.assert_close(a, b)
    assert not torch.allclose(run(model, ids)[0], run(other, ids)[0], atol=1e-2)


TINY: dict[str, Any] = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


def test_identity_needs_layers_of_their_own() -> None:
    model = families.build("albert-base-v2", heads={}, seed=1, **TINY, embedding_size=8)
    with pytest.raises(UsageError, match="shares its layers"):
        deeper(model, 4, how="identity")


def test_a_convolution_stays_in_its_place() -> None:
    sizes = {**TINY, "num_hidden_layers": 3}
    model = families.build("deberta-v2-xlarge", heads={}, seed=1, **sizes)
    name = next(name for name in model.state_dict() if ".conv" in name)
    for found in (deeper(model, 6), take_layers(model, [1, 2])):
        assert torch.equal(found.state_dict()[name], model.state_dict()[name])
        assert sum(".conv." in key for key in found.state_dict()) == sum(".conv." in key for key in model.state_dict())


@pytest.mark.parametrize("preset", ["nomic-bert-2048", "ModernBERT-base"])
def test_rotary_positions_continue(preset: str) -> None:
    model = made(preset, "mlm", max_position_embeddings=16)
    with pytest.raises(UsageError, match="no table"):
        with_positions(model, 40, fill="interpolate")
    with pytest.raises(UsageError, match="16 positions already"):
        with_positions(model, 16)
    longer = with_positions(model, 40)
    assert longer.config.max_length == 40
    ids = torch.randint(5, 50, (2, 16))
    assert torch.equal(longer(ids)["mlm"], model(ids)["mlm"])
    assert longer(torch.randint(5, 50, (2, 40)))["mlm"].isfinite().all()


def test_the_layers_of_an_elmo_and_the_positions_of_pictures() -> None:
    elmo = families.build("elmo-small", heads={}, seed=1)
    for change in (lambda: deeper(elmo, 6), lambda: take_layers(elmo, [0])):
        with pytest.raises(UsageError, match="weighted sum of all its layers"):
            change()
    model = families.build("visualbert-tiny", heads={}, seed=1, max_position_embeddings=16)
    table = with_positions(model, 40).state_dict()["encoder.embeddings.features.position.weight"]
    assert table.shape[0] == 40


def test_the_norm_before_the_first_attention_follows_its_place(tmp_path: Path) -> None:
    """The first layer of ModernBERT has none, since it reads the normalized embeddings."""
    model = made("ModernBERT-base", "mlm")
    norm = "encoder.layers.{}.attention_norm.weight"
    grown = deeper(model, 6)
    assert norm.format(0) not in grown.state_dict()
    old = model.get_parameter("encoder.embeddings.norm.weight")
    assert torch.equal(grown.get_parameter(norm.format(3)), old)
    assert torch.equal(grown.get_parameter(norm.format(4)), model.get_parameter(norm.format(1)))
    small = take_layers(model, [2])
    assert norm.format(0) not in small.state_dict()
    for number, one in enumerate((grown, small)):
        one.save_pretrained(tmp_path / str(number))
        again, report = families.load(tmp_path / str(number))
        assert not report.fresh
        torch.testing.assert_close(run(again, [[5, 6, 7]])[0], run(one, [[5, 6, 7]])[0])


def test_shared_layers_cost_nothing_and_windows_follow_their_layers() -> None:
    shared = made("albert-base-v2", "")
    assert sum(p.numel() for p in deeper(shared, 9).parameters()) == sum(p.numel() for p in shared.parameters())
    windowed = made("longformer-base-4096", "", attention_window=(2, 4, 6), attention_dilation=1)
    assert deeper(windowed, 6).config.get("attention_window") == (2, 4, 6, 2, 4, 6)
    assert deeper(windowed, 6, how="interleave").config.get("attention_window") == (2, 2, 4, 4, 6, 6)


# Width ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "head"),
    [
        ("bert-tiny", "mlm"),
        ("bert-tiny", "sequence"),
        ("bert-tiny", "pair"),
        ("bert-tiny", "span"),
        ("roberta-base", "sequence"),
        ("roberta-base", "mlm"),
        ("distilbert-base-uncased", "mlm"),
        ("distilbert-base-uncased", "token"),
        ("electra-small-discriminator", "rtd"),
        ("electra-small-generator", "mlm"),
        ("gpt2", ""),
    ],
)
@pytest.mark.parametrize(
    "size", [{"times": 2}, {"times": 3, "intermediate_size": 130}, {"intermediate_size": 57}], ids=str
)
def test_a_wider_model_computes_the_same(preset: str, head: str, size: dict[str, int], tmp_path: Path) -> None:
    model = made(preset, head, **({"embedding_size": 16} if "electra" in preset else {}))
    grown, ids = wider(model, **size), [[5, 6, 7, 8, 9], [11, 12]]
    times = size.get("times", 1)
    hidden, logits = run(model, ids)
    new_hidden, new_logits = run(grown, ids)
    scale = float(hidden.abs().max())
    torch.testing.assert_close(new_hidden, torch.cat([hidden] * times, -1), atol=2e-5 * scale, rtol=0)
    if head:
        torch.testing.assert_close(new_logits, logits, atol=2e-5 * float(logits.abs().max()), rtol=0)
    assert grown.config.num_attention_heads == 4 * times
    grown.save_pretrained(tmp_path, labels=("x", "y", "z") if head in ("sequence", "token") else ())
    again, report = families.load(tmp_path)
    assert report.fresh + report.unused == ()
    stored, state = again.state_dict(), grown.state_dict()
    assert stored.keys() == state.keys()
    assert all(torch.equal(stored[name], state[name]) for name in state)


def test_noise_tells_copies_apart() -> None:
    model = made("bert-tiny", "mlm")
    still, moved = wider(model, times=2), wider(model, times=2, noise=0.01)
    up = layer(still, 0)
    assert torch.equal(up[:40], up[40:])
    assert not torch.equal(layer(moved, 0)[:40], layer(moved, 0)[40:])
    a, b = run(model, [[5, 6, 7]])[1], run(moved, [[5, 6, 7]])[1]
    assert 0 < float((a - b).abs().max()) < 0.3 * float(a.abs().max())


@pytest.mark.parametrize("preset", ["mobilebert-uncased", "longformer-base-4096", "bert-tiny"])
def test_what_cannot_be_widened_says_so(preset: str) -> None:
    sizes = {"bottleneck_size": 16, "embedding_size": 16} if "mobile" in preset else {}
    with pytest.raises(UsageError, match=r"widened|The new model would have the same size"):
        wider(made(preset, "", **sizes), times=1 if preset == "bert-tiny" else 2)


# Shallower -----------------------------------------------------------------------------------------------------------


def bert() -> TorchModel:
    make = HEADS["mlm"], HEADS["pair"]
    return families.build(
        "bert-tiny", heads=lambda c: {"mlm": make[0](c, 0), "pair": make[1](c, 0)}, seed=4, vocab_size=50, **SMALL
    ).eval()


def test_layers_that_are_taken_are_those_of_the_teacher() -> None:
    model = bert()
    taken = take_layers(model, [0, 2])
    assert taken.config.num_hidden_layers == 2
    assert set(taken.heads) == {"mlm", "pair"}
    ids = torch.randint(5, 50, (3, 12))
    del model.encoder.layers[1]
    ours, theirs = taken(ids), model(ids)
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name])


def test_a_distilbert_of_all_layers_is_the_bert(tmp_path: Path) -> None:
    import transformers

    model = bert()
    student = take_layers(model, [0, 1, 2], variant=families.VARIANTS["distilbert"])
    assert set(student.heads) == {"mlm"}
    ids = torch.randint(5, 50, (3, 12))
    torch.testing.assert_close(student(ids)["mlm"], model(ids)["mlm"])
    student.save_pretrained(tmp_path)
    there = transformers.DistilBertForMaskedLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(there(input_ids=ids).logits, student(ids)["mlm"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("source", "family"), [("roberta-base", "distilbert"), ("bert-tiny", "roberta")])
def test_positions_of_another_family_begin_elsewhere(source: str, family: str) -> None:
    """The first position of RoBERTa is the row after the padding token's; that of BERT and DistilBERT is row 0."""
    model = made(source, "mlm").eval()
    student = take_layers(model, range(model.config.num_hidden_layers), variant=families.VARIANTS[family]).eval()
    assert student.config.max_length == model.config.max_length
    ids = torch.randint(5, 50, (3, 12))
    torch.testing.assert_close(student.encoder(ids).last_hidden_state, model.encoder(ids).last_hidden_state)


@pytest.mark.parametrize("source", ["mpnet-base", "longformer-base-4096", "bigbird-roberta-base"])
def test_what_another_family_lacks_is_not_lost_in_silence(source: str) -> None:
    with pytest.raises(UsageError, match="Cannot initialize a distilbert"):
        take_layers(made(source, "mlm"), [0, 1], variant=families.VARIANTS["distilbert"])


def test_an_output_matrix_of_its_own_goes_into_another_family() -> None:
    model = made("bert-tiny", "mlm", mlm_tied=False)
    student = take_layers(model, [0, 1, 2], variant=families.VARIANTS["distilbert"]).eval()
    ids = torch.randint(5, 50, (3, 12))
    torch.testing.assert_close(student(ids)["mlm"], model(ids)["mlm"])


@pytest.mark.parametrize(
    ("source", "family", "setting"),
    [
        ("bert-tiny", "distilbert", {"scale_attention": False}),
        ("roberta-base", "distilbert", {"hidden_act": "relu"}),  # that of its head is gelu all the same
        ("bigbird-roberta-base", "bert", {"attention": "full", "rescale_embeddings": True}),
    ],
)
def test_a_setting_that_another_family_lacks_is_refused(source: str, family: str, setting: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"the setting (scale_attention|mlm_act|rescale_embeddings)"):
        take_layers(made(source, "mlm", **setting), [0, 1, 2], variant=families.VARIANTS[family])


def test_layers_that_cannot_be_taken() -> None:
    for layers in ([], [3], [-1]):
        with pytest.raises(UsageError, match="layers 0 to 2"):
            take_layers(bert(), layers)
    with pytest.raises(UsageError, match="share one set of weights"):
        take_layers(made("albert-base-v2", "", embedding_size=16), [0])
    with pytest.raises(UsageError, match="Cannot initialize a gpt2"):
        take_layers(bert(), [0], variant=families.VARIANTS["gpt2"])


# The commands --------------------------------------------------------------------------------------------------------


def test_the_commands(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from bertie.apps.cli.table import app

    tokenizer = tokenizer_of("wordpiece", tmp_path)
    model_of(tokenizer).save_pretrained(tmp_path / "model", tokenizer=tokenizer)
    (tmp_path / "words.txt").write_text("chemotherapy\ntwo words\n\n", encoding="utf-8")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:2]), encoding="utf-8")

    def call(*arguments: str) -> dict[str, Any]:
        done = CliRunner().invoke(app, [*arguments, "--json"])
        assert done.exit_code == 0, (done.output, done.exception)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    folder = str(tmp_path / "model")
    grown = call("grow", folder, "-o", str(tmp_path / "a"), "--layers", "5", "--times", "2", "--positions", "80")
    assert (grown["layers"], grown["hidden_size"], grown["max_length"]) == (5, 64, 80)
    more = call("vocabulary", "extend", folder, str(tmp_path / "words.txt"), "-o", str(tmp_path / "b"))
    assert (more["vocab_size"], list(more["left_out"])) == (tokenizer.vocab_size + 1, ["two words"])
    (tmp_path / "texts.txt.gz").write_bytes(gzip.compress((tmp_path / "texts.txt").read_bytes()))
    less = call("vocabulary", "trim", folder, str(tmp_path / "texts.txt.gz"), "-o", str(tmp_path / "c"))
    assert less["vocab_size"] < tokenizer.vocab_size
    assert families.load(tmp_path / "c")[0].config.vocab_size == less["vocab_size"]
    student = call("shrink", folder, "-o", str(tmp_path / "e"), "--family", "distilbert")
    assert (student["layers"], student["taken"]) == (2, [0, 2])
    for wrong in ("one", "0,9"):
        refused = CliRunner().invoke(app, ["shrink", folder, "-o", str(tmp_path / "f"), "--from-layers", wrong])
        assert isinstance(refused.exception, UsageError)
    (tmp_path / "korean.txt").write_bytes("안녕하세요\n".encode("cp949"))
    (tmp_path / "korean.jsonl").write_text(json.dumps({"text": TEXTS[2]}))
    table = CliRunner().invoke(app, ["vocabulary", "trim", folder, str(tmp_path / "korean.jsonl"), "-o", folder + "2"])
    assert "is a file of jsonl, not of lines of text" in str(table.exception)
    korean = CliRunner().invoke(app, ["vocabulary", "trim", folder, str(tmp_path / "korean.txt"), "-o", folder + "2"])
    assert "can be read as CP949" in str(korean.exception)
    nothing = CliRunner().invoke(app, ["grow", folder, "-o", str(tmp_path / "d")])
    assert isinstance(nothing.exception, UsageError)
    smaller = CliRunner().invoke(app, ["grow", folder, "-o", str(tmp_path / "d"), "--intermediate", "3"])
    assert "--intermediate 3 is less than the 40" in str(smaller.exception)


@pytest.mark.parametrize("key", ["embedding_dimension", "word_embedding_dimension"])
def test_the_precision_and_the_pooling_of_the_source_are_kept(key: str, tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file
    from typer.testing import CliRunner

    from bertie.apps.cli.table import app
    from bertie.models.convert import convert_folder

    tokenizer = tokenizer_of("wordpiece", tmp_path)
    model = model_of(tokenizer)
    model.save_pretrained(tmp_path / "model", tokenizer=tokenizer)
    assert model.variant is not None
    convert_folder(model.variant, tmp_path / "model", half := tmp_path / "half", precision="float16")
    modules = [{"path": path, "type": f"sentence_transformers.models.{path[2:]}"} for path in ("", "1_Pooling")]
    modules[0]["type"] += "Transformer"
    (half / "modules.json").write_text(json.dumps(modules))
    (half / "1_Pooling").mkdir()
    pooling = {key: 32, "pooling_mode_mean_tokens": True}
    (half / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (tmp_path / "words.txt").write_text("chemotherapy", encoding="utf-8")
    commands = (
        ("grow", str(half), "--layers", "4", "--times", "2"),
        ("shrink", str(half)),
        ("vocabulary", "extend", str(half), str(tmp_path / "words.txt")),
        ("vocabulary", "trim", str(half), str(tmp_path / "words.txt")),
    )
    for number, command in enumerate(commands):
        out = tmp_path / str(number)
        done = CliRunner().invoke(app, [*command, "-o", str(out)])
        assert done.exit_code == 0, (done.output, done.exception)
        with safe_open(out / "model.safetensors", "numpy") as file:
            assert {file.get_slice(name).get_dtype() for name in file.keys()} == {"F16"}  # noqa: SIM118
        assert json.loads((out / "config.json").read_text())["dtype"] == "float16"
        assert (out / "modules.json").is_file()
        width = 32 if number else 64
        assert json.loads((out / "1_Pooling" / "config.json").read_text()) == {**pooling, key: width}
    dense = {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    (half / "modules.json").write_text(json.dumps([*modules, dense]))
    (half / "2_Dense").mkdir()
    (half / "2_Dense" / "config.json").write_text('{"in_features": 32, "out_features": 8}')
    save_file({"linear.weight": torch.zeros(8, 32)}, half / "2_Dense" / "model.safetensors")
    refused = CliRunner().invoke(app, ["grow", str(half), "--times", "2", "-o", str(tmp_path / "wide")])
    assert "a matrix after its pooling (2_Dense)" in str(refused.exception)
    assert not (tmp_path / "wide").exists()
