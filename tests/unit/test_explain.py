"""Attributions against captum, against a planted word, and by the command line."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from rich.cells import cell_len

from bertie.apps.explain.attribution import METHODS, by_word, faithfulness, integrated_gradients, occlusion
from bertie.apps.explain.page import render_explanation_page
from bertie.apps.explain.targets import question_of
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.nn.layout import Padded
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TrainingFacts
from toys import SPECIAL

WORDS = "the film is good bad long short we saw it today in paris with two actors and a dog 영화 좋다".split()
PLANTED = ("good", "bad", "none")
TEXT = "we saw the film today in paris"


def model(head: str, labels: tuple[str, ...] = (), std: float = 0.2) -> TorchModel:
    with TemporaryDirectory() as folder:  # every word is one token
        (Path(folder) / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS, "<", ">", "/", "b"]), encoding="utf-8")
        tokenizer = Tokenizer.load(Path(folder))
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    shape = families.config("bert-tiny", vocab_size=tokenizer.vocab_size, initializer_range=std, **sizes)
    built = families.build(shape, heads={head: HEADS[head](shape, len(labels))}, seed=3, variant="bert").eval()
    built.tokenizer, built.labels = tokenizer, labels
    return built.requires_grad_(False)


def test_integrated_gradients_are_captums() -> None:
    captum = pytest.importorskip("captum.attr")
    ours = model("sequence", ("no", "yes")).double()
    question = question_of(ours, [TEXT], label="yes").question
    found = integrated_gradients(question)
    ids = torch.tensor([question.encoding.ids])
    blank = torch.where(torch.from_numpy(question.words), question.pad_id, ids)

    def forward(ids_BS: torch.Tensor) -> torch.Tensor:
        output = ours.run_encoder(ids_BS, torch.zeros_like(ids_BS), Padded.of(ids_BS, None))
        return ours.logits("sequence", output)[:, 1]

    oracle = captum.LayerIntegratedGradients(forward, ours.encoder.embeddings.word)
    wanted = oracle.attribute(ids, blank, n_steps=found.nodes, method="gausslegendre").sum(-1)[0].numpy()
    assert np.abs(found.values - wanted).max() <= 1e-6 * np.abs(wanted).max()
    assert found.value == pytest.approx(float(forward(ids)[0]), abs=1e-9)
    assert found.error is not None
    assert found.error <= 0.05
    assert found.values.sum() == pytest.approx(found.value - found.baseline, rel=0.05)


def test_occlusion_is_one_forward_pass_for_each_token() -> None:
    ours = model("sequence", ("no", "yes"))
    question = question_of(ours, [TEXT], label="no").question
    found = occlusion(question)
    for place in (0, 3):
        changed = list(question.encoding.ids)
        changed[place] = question.mask_id if place else changed[place]
        ids = torch.tensor([changed])
        output = ours.run_encoder(ids, torch.zeros_like(ids), Padded.of(ids, None))
        wanted = found.value - float(ours.logits("sequence", output)[0, 0])
        assert found.values[place] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("method", ["ig", "occlusion"])  # gradient x input saturates: it finds half of them
def test_a_planted_word_comes_first(method: str) -> None:
    """The label is the planted word of a text, or none. [PAD] and [MASK] occur in training, as for a real model."""
    ours = model("sequence", PLANTED, std=0.1).requires_grad_(True)
    assert ours.tokenizer is not None
    rng = np.random.default_rng(0)
    others = [word for word in WORDS if word not in PLANTED]

    def text(word: str) -> str:
        words = list(rng.choice(others, 6))
        words.insert(rng.integers(7), word if word in WORDS else "the")
        return " ".join(words)

    optimizer = torch.optim.AdamW(ours.parameters(), lr=3e-3)
    planted = torch.tensor([one[0] for one in ours.tokenizer.ids(PLANTED[:2])])
    for _ in range(200):
        labels = rng.integers(0, 3, 32)
        ids = torch.tensor([one.ids for one in ours.tokenizer.encode_batch([text(PLANTED[label]) for label in labels])])
        hidden = torch.from_numpy(rng.random(ids.shape) < rng.random((len(ids), 1))) & ~torch.isin(ids, planted)
        hidden[:, [0, -1]] = False
        blank = torch.from_numpy(rng.integers(0, 2, (len(ids), 1))) * SPECIAL.index("[MASK]")  # or [PAD], which is 0
        ids = torch.where(hidden, blank, ids)
        output = ours.run_encoder(ids, torch.zeros_like(ids), Padded.of(ids, None))
        loss = torch.nn.functional.cross_entropy(ours.logits("sequence", output), torch.from_numpy(labels))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 0.05
    ours.requires_grad_(False)
    right, faithful = 0, []
    for number in range(20):
        word = PLANTED[number % 2]
        explained = question_of(ours, [text(word)])
        found = METHODS[method](explained.question)
        words = by_word(explained.question.encoding, found.values, explained.texts)
        right += max(words, key=lambda row: row[1])[0] == word
        faithful.append(faithfulness(explained.question, found.values))
    assert right >= 19
    assert {one.of for one in faithful} == {"probability"}
    gaps = [one.comprehensiveness - one.random_comprehensiveness for one in faithful]
    assert np.mean(gaps) > 1.96 * np.std(gaps, ddof=1) / len(gaps) ** 0.5


@pytest.mark.parametrize(
    ("head", "labels", "texts", "about"),
    [
        ("sequence", ("a", "b", "c"), (TEXT,), "label "),
        ("token", ("O", "B-X", "I-X"), (TEXT,), "word "),
        ("span", (), ("where", TEXT), "answer "),
        ("mlm", (), ("we saw the [MASK] today",), "masked word "),
    ],
)
def test_every_kind_of_prediction(head: str, labels: tuple[str, ...], texts: tuple[str, ...], about: str) -> None:
    explained = question_of(model(head, labels), texts)
    assert explained.about.startswith(about)
    found = integrated_gradients(explained.question, nodes=100)
    assert found.converged
    assert np.all(found.values[~explained.question.words] == 0)
    assert np.abs(found.values).max() > 0


def test_faithfulness_is_the_fall_of_the_probability_in_a_plain_loop() -> None:
    ours = model("sequence", ("no", "yes"), std=0.5)
    question = question_of(ours, [TEXT], label="yes").question
    values = integrated_gradients(question).values
    found = faithfulness(question, values)

    def probability(hidden: set[int]) -> float:
        assert question.mask_id is not None
        ids = [question.mask_id if i in hidden else token for i, token in enumerate(question.encoding.ids)]
        output = ours.run_encoder(
            torch.tensor([ids]), torch.zeros(1, len(ids), dtype=torch.long), Padded.of(torch.tensor([ids]), None)
        )
        return float(ours.logits("sequence", output)[0].softmax(-1)[1])

    places = list(range(1, 8))  # between [CLS] and [SEP]
    order = sorted(places, key=lambda i: -values[i])
    gone, alone = [], []
    for share in (0.01, 0.05, 0.1, 0.2, 0.5):
        top = set(order[: max(1, round(share * len(places)))])
        gone.append(probability(set()) - probability(top))
        alone.append(probability(set()) - probability(set(places) - top))
    assert found.comprehensiveness == pytest.approx(np.mean(gone), abs=1e-6)
    assert found.sufficiency == pytest.approx(np.mean(alone), abs=1e-6)
    low, high = found.random_comprehensiveness_95
    assert low <= found.random_comprehensiveness <= high


@pytest.mark.parametrize(("head", "labels"), [("sequence", ("score",)), ("choice", ())])
def test_a_number_has_no_probability(head: str, labels: tuple[str, ...]) -> None:
    explained = question_of(model(head, labels), [TEXT, TEXT])
    found = integrated_gradients(explained.question)
    assert faithfulness(explained.question, found.values).of == "number"


def test_words_keep_their_hangul_and_markup() -> None:
    explained = question_of(model("sequence", ("a", "b")), ["영화 <b>좋다</b>"])
    found = integrated_gradients(explained.question)
    words = [word for word, _ in by_word(explained.question.encoding, found.values, explained.texts)]
    assert "영화" in words
    assert "좋다" in words
    html = str(
        render_explanation_page(explained, [(found, faithfulness(explained.question, found.values))], "m").render()
    )
    assert "<script" not in html
    assert "<b>좋다" not in html
    assert "http:" not in html.replace("http://www.w3.org", "")


def test_the_command(tmp_path: Path, bertie: Any) -> None:
    model("sequence", ("neg", "pos")).save_pretrained(tmp_path / "m")
    out = tmp_path / "page.html"
    code, stdout, _ = bertie(
        "explain", tmp_path / "m", TEXT, "--methods", "ig,occlusion", "-o", out, "--json", "--card"
    )
    assert code == 0
    code, _, _ = bertie("explain", tmp_path / "m", TEXT, "--card")  # replaces the section
    assert code == 0
    card = (tmp_path / "m" / "README.md").read_text("utf-8")
    assert card.count("## An explained prediction") == 1
    assert "Occlusion" not in card
    code, _, _ = bertie("verify", tmp_path / "m")
    assert code == 0
    rows = [json.loads(line) for line in stdout.splitlines()]
    assert [row["method"] for row in rows] == ["integrated gradients", "occlusion"]
    assert [row["text"] for row in rows[0]["words"]][1:-1] == TEXT.split()
    assert out.stat().st_size < 2e6
    code, stdout, _ = bertie("explain", tmp_path / "m", TEXT, "--target", "pos")
    assert code == 0
    assert "label pos" in stdout
    _, stdout, _ = bertie("explain", tmp_path / "m", "영화 the film")
    lines = stdout.splitlines()[1:]
    assert len({cell_len(line[: line.index(".")]) for line in lines}) == 1, "Korean letters are two columns wide"
    for arguments, said in (
        ((TEXT, "--methods", "lime"), "ig"),
        ((TEXT, "--target", "poss"), "pos"),
        (("a", "b", "c"), "3 texts"),
        ((TEXT, "-o", out), "--overwrite"),
        (("   ",), "no words"),
    ):
        code, _, err = bertie("explain", tmp_path / "m", *arguments)
        assert code in (2, 3), err
        assert said in err


def test_what_is_read_is_what_the_model_was_trained_on() -> None:
    """Not a later part of the text, which `predict` truncates."""
    tuned = model("sequence", ("a", "b"))
    tuned.training_facts = TrainingFacts(max_length=6)
    found = question_of(tuned, [TEXT])
    assert (len(found.question.encoding.ids), found.cut) == (6, 3)
    assert question_of(tuned, [TEXT], max_length=9).cut == 0
    for task in ("several", "pattern", "choice"):
        tuned.training_facts = TrainingFacts(texts=1, task=task)
        with pytest.raises(UsageError, match=f"task {task}"):
            question_of(tuned, [TEXT])


def test_what_cannot_be_explained() -> None:
    with pytest.raises(UsageError, match="needs a mask"):
        question_of(model("mlm"), [TEXT])
    with pytest.raises(UsageError, match="not in the vocabulary"):
        question_of(model("mlm"), [f"{TEXT} [MASK]"], label="프랑스")
    with pytest.raises(UsageError, match="1 to 7"):
        question_of(model("token", ("O", "B-X")), [TEXT], word=9)
    with pytest.raises(DataError, match="no words"):
        question_of(model("sequence", ("a", "b")), ["  "])
    with pytest.raises(UsageError, match="no tags"):
        question_of(model("sequence", ("a", "b")), [TEXT], word=2)
    for texts in (TEXT, [], [5], ["a", "b", "c"]):
        with pytest.raises(UsageError, match="a list of one text"):
            question_of(model("sequence", ("a", "b")), texts)  # type: ignore[arg-type]
    tuned = model("sequence", ("a", "b"))
    tuned.training_facts = TrainingFacts(texts=1)
    with pytest.raises(UsageError, match="trained on single texts"):
        question_of(tuned, [TEXT, TEXT])
    with pytest.raises(UsageError, match="predicts numbers"):
        question_of(model("sequence", ("score",)), [TEXT], label="b")
    with pytest.raises(UsageError, match="in the 5 tokens that are read"):
        question_of(model("mlm"), [f"{TEXT} [MASK]"], max_length=5)
    with pytest.raises(UsageError, match="answers"):
        question_of(model("span"), ["where", TEXT], label="paris")
    with pytest.raises(DataError, match="no answer to explain"):
        question_of(model("span"), ["where", "\u200b"])
