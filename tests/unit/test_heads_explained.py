"""Heads beside dependency relations, on sentences whose answer is known; heads cut from a model, against real cuts."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bertie.apps.explain import relations
from bertie.apps.explain.heads import by_layer, least_important, removal
from bertie.apps.explain.relations import control_heads, count_relations, guess_words, list_relations, word_attention
from bertie.compression.importance import HEADS, importance, judged, without_heads
from bertie.errors import DataError, UsageError
from bertie.io.tables import Example
from bertie.models import families
from bertie.models.surgery import rebuilt
from bertie.tasks.sequence import SequenceTask
from bertie.text.tokenizer import Tokenizer
from toys import toy_model

LETTERS = [*"abcdefgh", *("##" + c for c in "abcdefgh")]
TASK = SequenceTask(("no", "yes"))


def test_attention_between_words_is_a_sum_to_and_a_mean_from_their_tokens() -> None:
    """[CLS] a b ##b [SEP], by loops."""
    probs = np.random.default_rng(0).dirichlet(np.ones(5), (2, 3, 5))
    tokens = [[1], [2, 3]]
    found = word_attention(probs, np.array([1, 2]), np.array([1, 3]))
    for i, j in np.ndindex(2, 2):
        wanted = np.mean([probs[..., a, tokens[j]].sum(-1) for a in tokens[i]], 0)
        assert found[..., i, j] == pytest.approx(wanted)
    among = np.array([[[[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.6, 0.4, 0.0]]]])
    assert guess_words(among)[:, 0, 0].tolist() == [[1, 2, 0], [2, 2, 1]]  # rows; columns, without the diagonal


def conllu(folder: Path, sentences: int) -> Path:
    """`b a` and `b c a`: a is the root, b depends on the last word, c on the word before. b is split for odd ones."""
    rows, rng = [], np.random.default_rng(0)
    for _ in range(sentences):
        b = "bc" if rng.random() < 0.5 else "b"
        words = [(b, 2, "to")] if rng.random() < 0.7 else [(b, 3, "to"), ("c", 1, "back")]
        words.append(("a", 0, "root"))
        for number, (word, head, relation) in enumerate(words, 1):
            rows.append("\t".join([str(number), word, *"____", str(head), relation, "_", "_"]))
        rows.append("")
    file = folder / "s.conllu"
    file.write_text("\n".join([*rows, ""]), encoding="utf-8")
    return file


def read(file: Path) -> list[Any]:
    from bertie.io.conll import trees
    from bertie.io.table_format import TableFormat

    return list(trees(file, TableFormat()))


def test_relations_of_a_head_that_knows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Head 1.1 attends to the last word, 1.2 to the token before. Offsets know half of the first relation."""
    toy_model(tmp_path / "m", LETTERS)
    tokenizer = Tokenizer.load(tmp_path / "m")

    def made_up(model: Any, ids: list[int], types: list[int]) -> Any:
        size = len(ids)
        return np.stack([np.tile(np.eye(size)[-2], (size, 1)), np.eye(size, k=-1)])[None]

    monkeypatch.setattr(relations, "attentions", made_up)
    examples = read(conllu(tmp_path, 300))
    found = count_relations(SimpleNamespace(text_tokenizer=tokenizer), examples, max_length=16)  # type: ignore[arg-type]
    rows = {row["relation"]: row for row in list_relations(found, found, least=50)}
    assert found.sentences == 300
    assert rows["to"]["words"] == 300
    assert (rows["to"]["head"], rows["to"]["way"], rows["to"]["accuracy"]) == ("1.1", "to its head", 1.0)
    shorter = sum(len(example.label) == 2 for example in examples)
    assert rows["to"]["offset_accuracy"] == pytest.approx(max(shorter, 300 - shorter) / 300)
    assert rows["back"]["accuracy"] == rows["back"]["offset_accuracy"] == 1.0
    assert (rows["back"]["head"], rows["back"]["offset"]) == ("1.2", -1)
    assert rows["all"]["words"] == 300 + 300 - shorter
    assert rows["to"]["interval_95"][0] > 0.98
    with pytest.raises(UsageError, match="No relation has 900 words"):
        list_relations(found, found, least=900)


def test_the_control_deals_the_distances_of_a_relation_to_its_words(tmp_path: Path) -> None:
    examples = read(conllu(tmp_path, 200))
    true, drawn, moved = [], [], 0
    for example, heads in zip(examples, control_heads(examples), strict=True):
        for place, ((head, relation), to) in enumerate(zip(example.label, heads.tolist(), strict=True)):
            assert to == -1 or (head and 0 <= to < len(heads))
            if relation == "to":
                true.append(head - 1 - place)
                drawn.append(to - place if to != -1 else 2)  # only two words ahead is ever outside
                moved += true[-1] != drawn[-1]
    assert sorted(true) == sorted(drawn)
    assert moved > 20


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model of two layers and four heads, and labeled examples."""
    folder = tmp_path_factory.mktemp("m")
    toy_model(folder, LETTERS, num_hidden_layers=2, num_attention_heads=4)
    model = families.load(folder, heads=TASK.heads, seed=1)[0].eval()
    model.tokenizer, model.labels = Tokenizer.load(folder), TASK.labels
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice([*"abcdefgh", " "], size=rng.integers(6, 40))) + " a" for _ in range(40)]
    return model, [Example((text,), ("no", "yes")[text.count("a") > 2], i) for i, text in enumerate(texts)]


def test_a_factor_of_zero_is_the_head_cut_out(trained: Any) -> None:
    """Against a model whose matrices lack these heads."""
    model, examples = trained
    batch = judged(TASK, examples, model.tokenizer, max_length=64)[0]
    kept, size = [0, 2], model.config.head_size
    features = torch.cat([torch.arange(head * size, (head + 1) * size) for head in kept])
    state = dict(model.state_dict())
    rows = torch.cat([features + part * model.config.attention_size for part in range(3)])
    for layer in range(2):
        base = f"encoder.layers.{layer}.attention."
        for end in ("weight", "bias"):
            state[f"{base}qkv.{end}"] = state[f"{base}qkv.{end}"][rows]
        state[f"{base}output.weight"] = state[f"{base}output.weight"][:, features]
    small = rebuilt(model, model.config.replace(attention_head_size=size, num_attention_heads=2), state)
    with torch.no_grad():
        whole = TASK.logits(model, model.encode(batch))
        with without_heads(model, [(layer, head) for layer in range(2) for head in (1, 3)]):
            found = TASK.logits(model, model.encode(batch))
        wanted = TASK.logits(small, small.encode(batch))
        assert torch.allclose(found, wanted, atol=1e-5)
        assert not torch.allclose(found, whole, atol=1e-2)
        assert torch.equal(TASK.logits(model, model.encode(batch)), whole), "the gates are gone afterwards"


@pytest.mark.parametrize("name", ["albert-base-v2", "mobilebert-uncased", "t5-small", "longformer-base-4096"])
def test_importance_is_the_slope_of_the_loss_in_every_kind_of_layer(name: str) -> None:
    """With shared layers each use counts for itself, and a layer without positions before it has gradients too."""
    sizes = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    extra = {"mobilebert-uncased": {"embedding_size": 8}, "albert-base-v2": {"embedding_size": 8}}.get(name, {})
    model = families.build(
        name, heads=TASK.heads, seed=2, **sizes, intermediate_size=24, initializer_range=0.1, **extra
    ).double()
    ids = torch.tensor([2, 7, 8, 9, 10, 3])
    from bertie.models.batch import Batch
    from bertie.nn.layout import Packed

    layout = Packed.from_lengths(torch.tensor([6]))
    labels = {"label": torch.tensor([1]), "weight": torch.ones(1)}
    batch = Batch(ids, torch.zeros_like(ids), layout, ids[:1], labels)
    found = importance(model, TASK, [batch], parts=(HEADS,)).of_heads()
    assert found.shape == (2, 2)

    def loss() -> float:
        with torch.no_grad():
            logits = TASK.logits(model.eval(), TASK.forward(model, batch))
            return float(torch.nn.functional.cross_entropy(logits, batch.labels["label"]))

    step = 1e-4
    for layer, head in np.ndindex(2, 2):
        values = []
        for factor in (1 + step, 1 - step):
            calls = iter(range(2))

            def scale(module: Any, inputs: Any, calls: Any = calls, factor: float = factor, layer: int = layer) -> Any:
                x = inputs[0].clone()
                if next(calls) == layer:
                    x[..., head * x.shape[-1] // 2 : (head + 1) * x.shape[-1] // 2] *= factor  # noqa: B023
                return (x,)

            modules = dict.fromkeys(one.attention.output for one in model.encoder.in_order())
            handles = [module.register_forward_pre_hook(scale) for module in modules]
            if name == "albert-base-v2":
                assert len(handles) == 1
            values.append(loss())
            for handle in handles:
                handle.remove()
        slope = abs(values[0] - values[1]) / (2 * step)
        assert float(found[layer, head]) == pytest.approx(slope, rel=0.01, abs=1e-7)


def test_the_order_is_that_of_the_norms_within_a_layer() -> None:
    given = np.array([[3.0, 4.0], [0.06, 0.08]])
    assert by_layer(given) == pytest.approx(np.array([[0.6, 0.8], [0.6, 0.8]]))
    assert least_important(np.array([[3.0, 4.0], [0.01, 0.1]])) == [(1, 0), (0, 0), (0, 1), (1, 1)]


def test_the_curve_begins_with_the_whole_model_and_ends_without_heads(trained: Any) -> None:
    model, examples = trained
    found = removal(model, examples, points=4)
    assert [removed for removed, _ in found.points] == [0, 2, 4, 6, 8]
    assert found.examples == (20, 20)
    assert {one[0][1] for one in found.random} == {found.points[0][1]}
    assert {one[-1] for one in found.random} == {found.points[-1]}
    assert len(found.as_json()["heads"]) == 8
    assert removal(model, examples * 2, points=1).examples == (40, 40), "also those that fill no batch"
    with pytest.raises(DataError, match="pass more"):
        removal(model, examples[:1], points=4)


def test_heads_that_have_no_matrix_of_their_own_are_refused() -> None:
    sizes = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = families.build("xlnet-base-cased", **sizes, intermediate_size=24)
    with pytest.raises(UsageError, match="heads of xlnet models"), without_heads(model, [(0, 0)]):
        pass


def test_the_command(tmp_path: Path, bertie: Any, trained: Any) -> None:
    model, examples = trained
    model.save_pretrained(tmp_path / "m")
    (tmp_path / "t.txt").write_text("ab c\nabc 영화 <b>\n", encoding="utf-8")
    lines = [f"{example.texts[0]},{example.label}" for example in examples]
    (tmp_path / "d.csv").write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    file, out = conllu(tmp_path, 120), tmp_path / "page.html"
    given = ("--texts", tmp_path / "t.txt", "--parsed", file, "--dev", tmp_path / "d.csv", "--points", 2)
    found = [
        json.loads(line) for line in bertie.good("heads", tmp_path / "m", *given, "-o", out, "--json").splitlines()
    ]
    assert [next(iter(one)) for one in found] == ["statistics", "relations", "removal"]
    assert len(found[0]["statistics"]) == 8
    assert found[1]["relations"][0]["relation"] == "all"
    html = out.read_text(encoding="utf-8")
    assert all(title in html for title in ("Dependency relations", "Heads that matter", "What the heads attend to"))
    assert "<script" not in html
    said = bertie.good("heads", tmp_path / "m", *given, "--card")
    assert "least important" in said
    card = (tmp_path / "m" / "README.md").read_text("utf-8").partition("## Attention heads")[2]
    assert all(title in card for title in ("**Dependency relations**", "**Heads that the task needs**"))
    bare = tmp_path / "bare.conllu"
    bare.write_text("\n".join("\t".join([str(n), "a", *"________"]) for n in (1, 2)) + "\n\n", encoding="utf-8")
    for arguments, code, words in (
        ((), 2, "--texts, --parsed or --dev"),
        (("--parsed", bare), 3, "a head that is not a word"),
        (("--parsed", tmp_path / "none.conllu"), 3, "none.conllu"),
        (("--texts", tmp_path / "t.txt", "--max-length", 900), 2, "--max-length is 900"),
        (("--texts", tmp_path / "t.txt", "-o", out), 2, "--overwrite"),
    ):
        found_code, _, err = bertie("heads", tmp_path / "m", *arguments)
        assert found_code == code, err
        assert words in err
    toy_model(tmp_path / "plain", LETTERS)
    code, _, err = bertie("heads", tmp_path / "plain", "--texts", tmp_path / "d.csv", "--points", 3)
    assert (code, "--points counts" in err) == (2, True)
    code, _, err = bertie("heads", tmp_path / "plain", "--dev", tmp_path / "d.csv")
    assert code == 2
    assert "no task head" in err
