"""`bertie detect`: the probabilities of the replaced-token head, by word, compared with `transformers`."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import bertie as package
from bertie.apps.pretrained.detect import read_words
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.objectives import build_objective
from bertie.text.tokenizer import Tokenizer
from serving import LETTERS
from toys import CommandLine, toy_model

TEXT = "abc de, f"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("detect")
    tokenizer = Tokenizer.load(toy_model(home / "start", [*LETTERS, ","]))
    sizes = {"vocab_size": tokenizer.vocab_size, "hidden_size": 16, "embedding_size": 8, "num_hidden_layers": 2}
    shape = families.config("electra-small-discriminator", num_attention_heads=2, intermediate_size=32, **sizes)
    model = families.build(shape, heads=build_objective({"rtd": {}}).heads, seed=1, variant="electra")
    torch.manual_seed(0)
    with torch.no_grad():  # so that the probabilities differ
        for name, tensor in model.named_parameters():
            if "heads.rtd" in name:
                tensor.normal_(0, 0.5)
    families.save(model, home / "electra", tokenizer=tokenizer)
    return home / "electra"


def test_a_word_has_the_highest_probability_of_its_tokens(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
    encoded = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        logits = transformers.ElectraForPreTraining.from_pretrained(folder).eval()(**encoded).logits[0]
    expected: dict[int, float] = {}
    for word, probability in zip(encoded.word_ids(), logits.sigmoid().tolist(), strict=True):
        if word is not None:
            expected[word] = max(probability, expected.get(word, 0.0))
    words = read_words(package.load(folder), TEXT)
    assert [(word.word, word.start, word.end) for word in words] == [
        ("abc", 0, 3),
        ("de", 4, 6),
        (",", 6, 7),
        ("f", 8, 9),
    ]
    assert [word.probability for word in words] == pytest.approx(list(expected.values()), abs=1e-5)
    assert len({round(word.probability, 4) for word in words}) > 1


def test_the_command_prints_the_words_above_the_threshold(
    folder: Path, bertie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = read_words(package.load(folder), TEXT)
    middle = sorted(word.probability for word in words)[1] + 1e-6
    shown = json.loads(bertie.good("detect", folder, TEXT, "--threshold", f"{middle:.7f}", "--json"))
    assert [word["word"] for word in shown["words"]] == [one.word for one in words if one.probability >= middle]
    lines = bertie.good("detect", folder, TEXT, "--threshold", "0").splitlines()
    assert [line.split()[1:] for line in lines] == [[f"{word.start}-{word.end}", word.word] for word in words]


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ("  ", {}, DataError, "has no words"),
        ("abc de " * 300, {}, DataError, "more than the maximum of 512"),
        ("abc", {"max_length": 10_000}, UsageError, "max_length"),
    ],
)
def test_bad_texts(folder: Path, text: str, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_words(package.load(folder), text, **options)


def test_a_masked_language_model_hides_each_word(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tokens of a word are hidden at once. A text of several batches gives the same as one batch."""
    start = folder.parent / "start"
    model, _ = families.load(start, heads=build_objective({"mlm": {}}).heads, seed=3)
    families.save(model, tmp_path / "mlm", tokenizer=Tokenizer.load(start))
    loaded = package.load(tmp_path / "mlm", engine="torch")
    words = read_words(loaded, TEXT)
    encoding = loaded.tokenizer.encode(TEXT)
    ids = torch.tensor(encoding.ids)
    places = [i for i, word in enumerate(encoding.word_ids) if word == encoding.word_ids[1]]  # of abc
    hidden = ids.clone()
    hidden[places] = loaded.tokenizer.mask_id
    with torch.no_grad():
        output = model.eval().encoder(hidden[None])
        logits = model.heads["mlm"].logits(output.last_hidden_state[0], model.word_embeddings)
    expected = logits.log_softmax(-1)[places, ids[places]].mean().exp().item()
    assert len(places) == 3
    monkeypatch.setattr("bertie.models.facts.BATCH_TOKENS", 2 * len(ids))
    small = package.load(tmp_path / "mlm", engine="torch")
    assert small.runner.facts.batch_tokens == 2 * len(ids)  # two words at once
    assert [word.probability for word in read_words(small, TEXT)] == pytest.approx(
        [word.probability for word in words], abs=1e-6
    )
    assert words[0].probability == pytest.approx(1 - expected, abs=1e-6)
    assert [word.word for word in words] == ["abc", "de", ",", "f"]


def test_a_model_without_the_heads_is_refused(folder: Path, bertie: CommandLine) -> None:
    code, out, err = bertie("detect", folder.parent / "start", "abc")
    assert (code, out) == (2, "")
    assert "no head for replaced tokens" in err
