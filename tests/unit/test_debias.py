"""Removal of a concept: the properties of each map, and the folded weights against the maps on hidden states."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_audit_masked import WORDS, pretrained

import bertie as package
from bertie.apps.audit.base import Subject
from bertie.apps.audit.erase import HOW, inlp, leace, probe_accuracy, sentence
from bertie.apps.audit.figures import differences
from bertie.apps.audit.pairs import CrowsPairs, SentencePair
from bertie.apps.audit.remedy import check_removable, fold, remove_concept
from bertie.apps.audit.stereoset import InsideSentence, StereoContext
from bertie.apps.perturb.swaps import Swaps
from bertie.console import console
from bertie.errors import DataError, UsageError
from bertie.infer.torch_engine import TorchEngine
from bertie.metrics.base import Float
from bertie.models import families
from bertie.models.convert import convert_folder
from bertie.nn.linear import Linear
from bertie.runs.weights import load_model as load_module
from bertie.tasks.embed import EmbedTask
from toys import CommandLine, toy_model

SIZES = Swaps.of([("tall", "short"), ("old", "young")])
TEXTS = [
    f"{article} {size} {who} {does} {what}."
    for article in ("the", "a")
    for size in ("tall", "short", "old", "young")
    for who in ("baker", "farmer", "child")
    for does in ("reads", "writes")
    for what in ("every day", "a letter", "bread")
]


def pairs(count: int = 400, size: int = 12) -> tuple[Float, Float]:
    """Vectors in pairs, whose first three numbers tell the side of each, and which are correlated."""
    rng = np.random.default_rng(0)
    base = np.repeat(rng.normal(size=(count, size)) @ rng.normal(size=(size, size)), 2, axis=0)
    sides = np.stack([first := rng.integers(0, 2, count), 1 - first], -1).reshape(-1).astype(np.float64)
    base[:, :3] += 4 * (sides[:, None] - 0.5)
    return base + rng.normal(size=base.shape) * 0.3 + 5, sides


def covariance(vectors: Float, sides: Float) -> float:
    return float(np.abs((vectors - vectors.mean(0)).T @ (sides - sides.mean())).max())


def test_leace_leaves_no_covariance_and_is_the_smallest_change() -> None:
    vectors, sides = pairs()
    erasure = leace(vectors, sides)
    after = erasure(vectors)
    assert covariance(after, sides) <= 1e-6 * covariance(vectors, sides)
    assert erasure.rank == 1
    right, majority = probe_accuracy(vectors, sides)
    assert right > majority + 0.2
    left, majority = probe_accuracy(after, sides)
    assert left <= majority + 0.08  # 160 held-out vectors; exact on the vectors of the map
    oracle = pytest.importorskip("concept_erasure")
    fitter = oracle.LeaceFitter.fit(torch.from_numpy(vectors), torch.from_numpy(sides), shrinkage=False)
    assert np.abs(after - fitter.eraser(torch.from_numpy(vectors)).numpy()).max() <= 1e-5


def test_inlp_is_a_projection_that_its_classifiers_do_not_survive() -> None:
    vectors, sides = pairs()
    erasure = inlp(vectors, sides)
    kept = np.eye(vectors.shape[1]) - erasure.removed
    assert np.abs(kept @ kept - kept).max() <= 1e-6
    assert erasure.rank == round(np.trace(erasure.removed)) >= 1
    assert probe_accuracy(erasure(vectors), sides)[0] < probe_accuracy(vectors, sides)[0] - 0.2


def test_sentence_removes_the_direction_of_the_pairs() -> None:
    vectors, sides = pairs()
    erasure = sentence(vectors, sides)
    direction = np.linalg.eigh(erasure.removed)[1][:, -1]
    assert np.abs(erasure(vectors) @ direction).max() <= 1e-9
    assert abs(direction[:3]).sum() > abs(direction[3:]).sum()


@pytest.mark.parametrize("how", HOW)
def test_a_folded_layer_reads_what_the_map_leaves(how: str) -> None:
    vectors, sides = pairs()
    erasure = HOW[how](vectors, sides)
    layer = Linear(12, 5)
    x = torch.from_numpy(vectors).float()
    with torch.no_grad():
        layer.weight.normal_()
        layer.bias.normal_()
        wanted = layer(torch.from_numpy(erasure(vectors)).float())
        fold(layer, erasure)
        assert float((layer(x) - wanted).abs().max()) <= 1e-4
    bare = Linear(12, 5, bias=False)
    if how == "leace":
        with pytest.raises(UsageError, match="no bias"):
            fold(bare, erasure)


def test_the_folded_model_is_the_map_on_hidden_states_and_opens_elsewhere(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = pretrained(tmp_path / "m")
    plain, model = load_module(folder), load_module(folder)
    assert model.tokenizer is not None
    told, maps = remove_concept(model, Subject(TorchEngine(model), model.tokenizer), TEXTS, SIZES, "leace")
    assert [one.place for one in told] == ["masked-LM head", "pooler"]
    for one in told:
        assert one.covariance_after <= 1e-6 * one.covariance_before
        assert one.accuracy_after <= one.accuracy_before
    ids = torch.tensor([model.tokenizer.encode("the tall baker [MASK] a letter.").ids])
    with torch.no_grad():
        states = plain.run_encoder(ids, torch.zeros_like(ids), package_padded(ids)).last_hidden_state
        erased = torch.from_numpy(maps[0][1](states.double().numpy())).float()
        head = plain.heads["mlm"]
        wanted = head.logits(erased, plain.word_embeddings)  # type: ignore[operator]
        found = model(ids, token_type_ids=torch.zeros_like(ids))["mlm"]
        assert float((found - wanted).abs().max()) <= 1e-4
        model.save_pretrained(tmp_path / "out")
        other = transformers.BertForPreTraining.from_pretrained(tmp_path / "out").eval()
        assert float((other(ids).prediction_logits - found).abs().max()) <= 1e-4


def package_padded(ids: torch.Tensor) -> object:
    from bertie.nn.layout import Padded

    return Padded.of(ids, None)


def test_too_few_texts_and_unknown_ways_are_refused(tmp_path: Path) -> None:
    model = load_module(pretrained(tmp_path / "m"))
    assert model.tokenizer is not None
    subject = Subject(TorchEngine(model), model.tokenizer)
    with pytest.raises(DataError, match="At least 40"):
        remove_concept(model, subject, TEXTS[:10] + ["a tall short child."] * 50, SIZES, "leace")
    with pytest.raises(UsageError, match="Did you mean 'leace'"):
        remove_concept(model, subject, TEXTS, SIZES, "leac")


def rows_of(folder: Path) -> Path:
    """A table of texts, labeled by their verb."""
    rows = [f"{text}\t{'reads' in text}" for text in TEXTS]
    (folder / "rows.tsv").write_text("\n".join(["text\tlabel", *rows]), "utf-8")
    return folder / "rows.tsv"


def test_the_command_writes_a_folder_and_tells_before_and_after(
    bertie: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, shown = list[str](), console.progress

    def progress(description: str, *arguments: Any, **options: Any) -> Any:
        if "perplexity" in description:
            seen.append(description)
        return shown(description, *arguments, **options)

    monkeypatch.setattr(console, "progress", progress)
    variant, folder, texts = families.family(pretrained(tmp_path / "m")), tmp_path / "half", tmp_path / "texts.txt"
    convert_folder(variant, tmp_path / "m", folder, precision="float16")
    texts.write_text("\n".join(TEXTS), "utf-8")
    own = tmp_path / "own.yaml"
    own.write_text(
        "swaps: {sizes: [[tall, short], [old, young]]}\n"
        "templates:\n- name: size\n  groups: {tall: [tall], short: [short]}\n"
        '  templates: ["the {group} {attribute} reads.", "a {group} {attribute} writes."]\n'
        "  attributes: {tall: [baker, child], short: [farmer, letter]}\n",
        "utf-8",
    )
    out, page, tuned = tmp_path / "out", tmp_path / "page.html", tmp_path / "reading.yaml"
    tuned.write_text(f"train_file: {rows_of(tmp_path)}\nmax_length: 16\nepochs: 0.2\n", "utf-8")
    asked = ("--pairs", own, "--files", own, "--finetune", tuned, "--seeds", "2", "--page", page)
    said = bertie.good("debias", folder, texts, *asked, "-o", out, "--json")
    found = json.loads(said)
    assert {one["place"] for one in found["removed"]} == {"masked-LM head", "pooler"}
    assert found["pseudo_perplexity"]["after"] > 1
    assert seen == ["pseudo-perplexity before", "pseudo-perplexity after"]
    gap = next(one for one in found["figures"] if one["name"] == "size: gap")
    assert gap["difference"]["value"] == pytest.approx(gap["after"]["value"] - gap["before"]["value"])
    assert gap["difference"]["low"] <= gap["difference"]["value"] <= gap["difference"]["high"]
    (price,) = found["fine_tuned"]
    assert (price["set"], price["metric"], price["seeds"]) == ("reading", "accuracy", 2)
    assert price["difference"]["value"] == pytest.approx(price["after"] - price["before"])
    assert price["difference"]["low"] <= price["difference"]["value"] <= price["difference"]["high"]
    card = (out / "README.md").read_text("utf-8")
    for wanted in ("## Removed concept", "size: gap", "pseudo-perplexity per word", "reading, accuracy, 2 seeds"):
        assert wanted in card
        assert wanted in page.read_text("utf-8") or wanted.startswith("##")
    bertie.good("verify", out)
    assert json.loads((out / "config.json").read_text("utf-8"))["dtype"] == "float16"
    assert load_module(out).tokenizer is not None
    code, _, err = bertie("debias", folder, texts, "--pairs", own, "-o", out)
    assert (code, "--overwrite" in err) == (2, True)
    code, _, err = bertie("debias", folder, texts, "-o", tmp_path / "new")  # no gender words in these texts
    assert (code, "At least 40" in err) == (3, True)
    assert not (tmp_path / "new").exists()
    assert len(seen) == 2  # refused before the pseudo-perplexity is computed


def test_a_layer_without_bias_is_named_before_anything_is_computed(tmp_path: Path) -> None:
    model = load_module(pretrained(tmp_path / "m"))
    model.heads["mlm"].get_submodule("dense").register_parameter("bias", None)
    with pytest.raises(UsageError, match="The masked-LM head of this model has no bias"):
        check_removable(model, TEXTS, SIZES, "leace")
    check_removable(model, TEXTS, SIZES, "inlp")


def test_sentence_vectors_get_a_dense_module(bertie: CommandLine, tmp_path: Path) -> None:
    peers = pytest.importorskip("sentence_transformers")
    folder, out, texts = toy_model(tmp_path / "m", WORDS), tmp_path / "out", tmp_path / "texts.txt"
    for name, content in EmbedTask(normalize=True).files(families.config(folder), 32).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content), "utf-8")
    texts.write_text("\n".join(TEXTS), "utf-8")
    own = tmp_path / "own.yaml"
    own.write_text(
        "swaps: {sizes: [[tall, short], [old, young]]}\n"
        "tests:\n- name: t\n  X: {a: [tall, old]}\n  Y: {b: [short, young]}\n  A: {c: [reads, bread]}\n"
        "  B: {d: [day, child]}\n",
        "utf-8",
    )
    tuned = tmp_path / "tuned.yaml"
    tuned.write_text(f"train_file: {rows_of(tmp_path)}\n", "utf-8")
    code, _, err = bertie("debias", folder, texts, "--pairs", own, "--finetune", tuned, "-o", out)
    assert (code, "bertie evaluate" in err, out.exists()) == (2, True, False)
    code, _, err = bertie("debias", folder, texts, "--how", "pca", "-o", out)
    assert (code, "Unknown remedy 'pca'" in err) == (2, True)
    found = json.loads(bertie.good("debias", folder, texts, "--pairs", own, "--files", own, "-o", out, "--json"))
    assert [one["place"] for one in found["removed"]] == ["sentence vectors"]
    ours = package.embed(out, TEXTS[:4])
    assert np.abs(ours - package.embed(folder, TEXTS[:4])).max() > 1e-3
    theirs = peers.SentenceTransformer(str(out), device="cpu").encode(TEXTS[:4])
    assert np.abs(ours - theirs).max() <= 1e-5


def test_paired_differences_are_of_the_same_units() -> None:
    rng = np.random.default_rng(0)
    pairs = [SentencePair(f"a {i}", f"b {i}", True, "x") for i in range(300)]
    first = [{"shared": [float(x), 0.0], "differing": None} for x in rng.normal(size=300)]
    second = [{"shared": [one["shared"][0] - 0.5, 0.0], "differing": None} for one in first]  # type: ignore[index]
    name = "shared tokens (official): all pairs"
    same = differences(CrowsPairs(), (pairs, first), (pairs, first))[name]
    assert (same.value, same.low, same.high) == (0, 0, 0)
    apart = differences(CrowsPairs(), (pairs, first), (pairs[::-1], second[::-1]))[name]
    lost = np.mean([0 < one["shared"][0] <= 0.5 for one in first])  # type: ignore[index]
    assert apart.value == pytest.approx(-100 * lost)
    half = 196 * (lost * (1 - lost) / 300) ** 0.5  # of the pairs that changed, and not of two independent sets
    assert (apart.high - apart.low) / 2 == pytest.approx(half, rel=0.2)


def test_a_term_that_is_drawn_twice_counts_twice() -> None:
    rng = np.random.default_rng(0)
    contexts = [StereoContext("race", f"term {i // 8}", f"BLANK {i}", ("a", "b", "c")) for i in range(320)]
    rates_T = rng.random((2, 40))
    wins = rng.random((2, 320)) < rates_T.repeat(8, 1)
    before, after = [[[float(win), 0.5, 0.1] for win in row] for row in wins.tolist()]
    found = differences(InsideSentence(), (contexts, before), (contexts, after))["race: ss"]
    apart_T = 100 * (wins[1].astype(float) - wins[0]).reshape(40, 8).mean(1)
    assert found.value == pytest.approx(apart_T.mean())
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * apart_T.std() / 40**0.5, rel=0.12)


def test_counterfactual_texts_are_written_in_both_forms(bertie: CommandLine, tmp_path: Path) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "both.jsonl"
    texts.write_text("He met his father.\nIt rains.\n\nShe and Mary left.\n", "utf-8")
    assert "2 of 3 texts have a second form. 4 words were exchanged, 400.0 of 1,000." in bertie.good(
        "counterfactual", texts, "-o", out
    )
    assert [json.loads(line)["text"] for line in out.read_text("utf-8").splitlines()] == [
        *("He met his father.", "She met her mother.", "It rains.", "She and Mary left.", "He and Mary left."),
    ]
    code, _, err = bertie("counterfactual", texts, "-o", out)
    assert (code, "--overwrite" in err) == (2, True)
    code, _, err = bertie("counterfactual", texts, "-o", tmp_path / "x.jsonl", "--pair-list", "gender")
    assert (code, "gender words" in err) == (2, True)
    code, _, err = bertie("counterfactual", texts, "-o", tmp_path / "both.txt")
    assert (code, "Use .jsonl." in " ".join(err.split())) == (2, True)
    texts.write_text("\n\n", "utf-8")
    code, _, err = bertie("counterfactual", texts, "-o", tmp_path / "y.jsonl")
    assert (code, (tmp_path / "y.jsonl").exists()) == (3, False), err
