"""Heads and relations: KLUE-DP's and UD's files, KLUE's metrics against scikit-learn's, a toy that is learnt."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from bertie.errors import UsageError
from bertie.infer.predict import Predictor
from bertie.io.conll import is_tree, trees
from bertie.io.lines import BadRecord
from bertie.io.table_format import TableFormat
from bertie.io.words import TaggedExample, spaced
from bertie.metrics.parsing import ParseScores
from bertie.models.biaffine import COMPARED_WIDTH, RELATION_RANK, arc_scores, relation_scores
from bertie.runs.weights import load_model
from bertie.tasks.datasets import DATASETS
from bertie.tasks.parse import LAST, ParsePrediction, ParseTask
from bertie.tasks.source import batch_of_examples
from bertie.text.tokenizer import Tokenizer
from toys import FAST, CommandLine, toy_model

KLUE = TableFormat.of(kind="klue-dp")
HEADER = "## tokens: \\t\n## columns: INDEX\tWORD_FORM\tLEMMA\tPOS\tHEAD\tDEPREL\n"


def klue(sentence: list[tuple[str, int, str]], number: int = 0) -> str:
    lines = [f"## made-up-{number}\t{' '.join(word for word, _, _ in sentence)}"]
    lines += [f"{i}\t{word}\t{word}\tNNG\t{head}\t{relation}" for i, (word, head, relation) in enumerate(sentence, 1)]
    return "\n".join(lines) + "\n\n"


def write(path: Path, *blocks: str) -> Path:
    path.write_text("".join(blocks), encoding="utf-8")
    return path


def test_klue_dp_is_read_as_published(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.tsv", HEADER, klue([("나는", 2, "NP_SBJ"), ("간다.", 0, "VP")]))
    (found,) = trees(path, KLUE)
    assert found == TaggedExample(("나는 간다.",), ((2, "NP_SBJ"), (0, "VP")), 4, spans=((0, 2), (3, 6)))


def test_a_treebank_is_read_with_its_text(tmp_path: Path) -> None:
    rows = [
        ("1-2", "can't", "_", "SpaceAfter=No"),
        ("1", "ca", "0", "_"),
        ("2", "n't", "1", "_"),
        ("2.1", "go", "_", "_"),
        ("3", ".", "1", "_"),
    ]
    lines = [f"{i}\t{w}\t_\t_\t_\t_\t{head}\tdep\t_\t{misc}" for i, w, head, misc in rows]
    (found,) = trees(write(tmp_path / "x.conllu", "# text = can't.\n", "\n".join(lines), "\n\n"), TableFormat())
    assert isinstance(found, TaggedExample)
    assert found.texts == ("can't.",)
    assert [found.texts[0][a:b] for a, b in found.spans] == ["ca", "n't", "."]
    assert found.label == ((0, "dep"), (1, "dep"), (1, "dep"))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1\tw\tl\tp\t7\tNP", "a head that is not a word of the sentence"),
        ("1\tw\tl\tp\tx\tNP", "a head that is not a word of the sentence"),
        ("1\tw\tl\tp\t1\tNP", "heads that form a cycle"),
        ("2\tw\tl\tp\t0\tNP", "words that are not numbered 1, 2, 3 ..."),
        ("1\tw\tl\tp\t0", "not 6 columns, the first a number"),
        ("x-y\tw\tl\tp\t0\tNP", "not 6 columns, the first a number"),
        ("1\t \tl\tp\t0\tNP", "a word that is empty"),
        ("1\tw\tl\tp\t0\t ", "a word without its relation"),
    ],
)
def test_damaged_sentences_are_told_and_the_rest_is_read(tmp_path: Path, row: str, reason: str) -> None:
    path = write(tmp_path / "dev.tsv", row, "\n\n", klue([("나는", 2, "NP_SBJ"), ("간다.", 0, "VP")]))
    bad, good = trees(path, KLUE)
    assert bad == BadRecord(1, reason)
    assert isinstance(good, TaggedExample)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6))
def test_a_tree_is_one_where_every_word_comes_to_the_root(heads: list[int]) -> None:
    def comes(word: int, steps: int) -> bool:
        return word == 0 or (steps > 0 and word <= len(heads) and comes(heads[word - 1], steps - 1))

    assert is_tree([*heads]) == all(comes(word, len(heads)) for word in range(1, len(heads) + 1))


# Metrics --------------------------------------------------------------------------------------------------------------


def drawn(sentences: int, seed: int) -> tuple[list[list[tuple[int, str]]], list[list[tuple[int, str]]]]:
    """True arcs and answers, six in ten of them right."""
    rng = random.Random(seed)
    truth, given = [], []
    for _ in range(sentences):
        words = rng.randint(1, 9)
        true, other = ([(rng.randint(0, words), f"r{rng.randrange(20)}") for _ in range(words)] for _ in range(2))
        truth.append(true)
        given.append([t if rng.random() < 0.6 else o for t, o in zip(true, other, strict=True)])
    return truth, given


def klue_baseline(truth, given, labels: tuple[str, ...], frequent: int) -> tuple[float, float]:
    """klue_dp_uas_macro_f1 and klue_dp_las_macro_f1 over flat lists, with the numbers they use."""
    number = {label: i for i, label in enumerate(labels)}
    true_heads, heads = ([head for s in arcs for head, _ in s] for arcs in (truth, given))
    true_types, types = (np.array([number[r] for s in arcs for _, r in s]) for arcs in (truth, given))
    true_types[true_types >= frequent] = -3
    types[types >= frequent] = -3
    types[np.array(true_heads) != np.array(heads)] = -2
    return f1_score(true_heads, heads, average="macro"), f1_score(true_types, types, average="macro", zero_division=0)


@pytest.mark.parametrize("seed", range(3))
def test_metrics_are_klues_and_a_plain_count(seed: int) -> None:
    labels = tuple(f"r{i}" for i in range(20))
    truth, answers = drawn(60, seed)
    scores = ParseScores(labels, frequent=15)
    scores.add(truth, answers)
    found = scores.compute()
    uas, las = klue_baseline(truth, answers, labels, 15)
    assert found["uas_macro_f1"] == pytest.approx(uas, abs=1e-12)
    assert found["las_macro_f1"] == pytest.approx(las, abs=1e-12)
    pairs = [(t, a) for one, other in zip(truth, answers, strict=True) for t, a in zip(one, other, strict=True)]
    assert found["uas"] == pytest.approx(sum(t[0] == a[0] for t, a in pairs) / len(pairs))
    assert found["las"] == pytest.approx(sum(t == a for t, a in pairs) / len(pairs))
    report = scores.report()
    assert report["words"] == len(pairs)
    for name in ("las", "uas", "las_macro_f1", "uas_macro_f1"):
        low, high = report["interval_95"][name]
        assert low <= high


def test_words_that_were_not_read_and_relations_never_learnt_are_errors() -> None:
    scores = ParseScores(("a", "b"))
    scores.add([[(0, "a"), (1, "c")]], [[(0, "a"), (None, None)]])
    assert scores.compute()["uas"] == scores.compute()["las"] == 0.5
    assert scores.report()["unknown_labels"] == {"c": 1}


# The task -------------------------------------------------------------------------------------------------------------


def test_products_are_the_biaffine_form() -> None:
    """arc_scores and relation_scores compared with the same sums word by word."""
    labels = 3
    dependents, heads = torch.randn(2, 4, 2 * COMPARED_WIDTH + labels * (1 + 2 * RELATION_RANK))
    arcs, relations = arc_scores(dependents, heads), relation_scores(dependents, heads)
    for n in range(4):
        for m in range(4):
            plain = sum(float(dependents[n, i] * heads[m, COMPARED_WIDTH + i]) for i in range(COMPARED_WIDTH))
            assert float(arcs[n, m]) == pytest.approx(plain, abs=1e-3)
        query, key = (
            dependents[n, 2 * COMPARED_WIDTH + labels : -labels * RELATION_RANK],
            heads[n, -labels * RELATION_RANK :],
        )
        for label in range(labels):
            part = slice(label * RELATION_RANK, (label + 1) * RELATION_RANK)
            plain = dependents[n, 2 * COMPARED_WIDTH + label] + (query[part] * key[part]).sum()
            assert float(relations[n, label]) == pytest.approx(float(plain), abs=1e-4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("toy"), [*"abcdefgh", *(f"##{c}" for c in "abcdefgh"), "."])


def test_words_are_their_first_and_last_piece(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    example = spaced(["abc", "d", "ef."], [(2, "x"), (0, "y"), (2, "x")], 1)
    task = ParseTask(("x", "y"))
    encoded = task.encode([example], tokenizer, max_length=32, too_long="truncate")
    assert tokenizer.engine.decode(encoded.input_ids.tolist(), skip_special_tokens=False).startswith("[CLS] abc d ef")
    #                                      [CLS] a ##b ##c  d  e ##f  . [SEP]
    assert encoded.extra[LAST].tolist() == [0, 2, -1, -1, 0, 2, -1, -1, -1]
    targets = task.targets([example], encoded).token
    assert targets["head"].tolist() == [0, 4, 0, 0, 0, 4, 0, 0, 0]
    assert targets["weighs"].tolist() == [0, 1, 0, 0, 1, 1, 0, 0, 0]
    assert encoded.part(0, 1).extra[LAST].tolist() == encoded.extra[LAST].tolist()


def test_a_sentence_that_does_not_fit_teaches_what_is_there(folder: Path) -> None:
    tokenizer, task = Tokenizer.load(folder), ParseTask(("x",))
    example = spaced(["a", "b", "c", "d"], [(2, "x"), (0, "x"), (4, "x"), (2, "x")], 1)
    encoded = task.encode([example], tokenizer, max_length=5, too_long="truncate")  # [CLS] a b c [SEP]
    assert encoded.too_long.tolist() == [0]
    assert task.targets([example], encoded).token["weighs"].tolist() == [
        0,
        1,
        1,
        0,
        0,
    ]  # the head of c is d, which is truncated
    (answer,) = task.decode(torch.zeros(5, 2 * COMPARED_WIDTH + 1 + 2 * RELATION_RANK).numpy(), encoded, [example])
    assert answer.label[3] == (None, None)
    assert answer.as_json()["words"][3]["head"] is None
    with pytest.raises(UsageError, match="windows"):
        task.encode([example], tokenizer, max_length=5, too_long="window")


def test_wrong_arcs_are_shown() -> None:
    task, example = ParseTask(("x", "y")), spaced(["ab", "cd"], [(2, "x"), (0, "y")], 1)
    answer = ParsePrediction(((0, "x"), (0, "y")), None, {}, "ab cd", example.spans)
    shown = task.render(example, answer)
    assert task.error_score(example, answer) == 1
    assert (shown.truth, shown.answer, shown.note) == ("ab → cd (x)", "ab → root (x)", "1 of 2 words")
    assert [(part.text, bool(part.kind)) for part in shown.texts[0]] == [("ab", True), (" cd", False)]


def test_loss_is_the_plain_sum_over_words(folder: Path) -> None:
    """Beside a loop over sentences and words; a word is no candidate for its own head, nor are later pieces."""
    tokenizer, task = Tokenizer.load(folder), ParseTask(("x", "y"))
    examples = [
        spaced(["abc", "d"], [(2, "x"), (0, "y")], 1),
        spaced(["a", "bc", "d", "."], [(3, "x"), (1, "never seen"), (0, "y"), (3, "x")], 2),
    ]
    encoded = task.encode(examples, tokenizer, max_length=32, too_long="truncate")
    batch = batch_of_examples(encoded, np.arange(2), task.targets(examples, encoded))
    logits = torch.randn(len(encoded.input_ids), 2 * COMPARED_WIDTH + 2 * (1 + 2 * RELATION_RANK)) / 10
    plain = {"head": 0.0, "relation": 0.0}
    for rows, example in (([0, 1, 4], examples[0]), ([6, 7, 8, 10, 11], examples[1])):
        for word, (head, relation) in enumerate(example.label, 1):
            others = [i for i in range(len(rows)) if i != word]
            scores = arc_scores(logits[rows[word]][None], logits[[rows[i] for i in others]])[0]
            plain["head"] -= float(scores.log_softmax(-1)[others.index(head)])
            if relation in task.labels:
                kinds = relation_scores(logits[rows[word]], logits[rows[head]])
                plain["relation"] -= float(kinds.log_softmax(-1)[task.labels.index(relation)])
    report = task.losses(logits, batch)
    for name, count in (("head", 6), ("relation", 5)):
        assert float(report[name].total) == pytest.approx(plain[name], rel=1e-5)
        assert report[name].count == task.counts(batch)[name] == count


def toy_sentences(count: int, seed: int) -> list[list[tuple[str, int, str]]]:
    """Letters that hang on the next h, or on the root where none follows; the letter says how."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        letters = [rng.choice("abch") for _ in range(rng.randint(2, 8))]
        sentence = []
        for i, letter in enumerate(letters):
            head = next((j for j in range(i + 1, len(letters)) if letters[j] == "h"), -1) + 1
            sentence.append((letter, head, {"h": "VP", "a": "NP_SBJ"}.get(letter, "NP")))
        found.append(sentence)
    return found


def test_klue_dp_from_files_to_answers(tmp_path: Path, folder: Path, bertie: CommandLine) -> None:
    for split, count in (("train", 200), ("dev", 40)):
        sentences = toy_sentences(count, seed=count)
        write(tmp_path / f"klue-dp-v1.1_{split}.tsv", HEADER, *(klue(s, i) for i, s in enumerate(sentences)))
    assert [checked.examples for checked in DATASETS["klue-dp"].check(tmp_path)] == [200, 40]
    data = ("--data", "klue-dp", "--data-dir", tmp_path)
    bertie.good("finetune", folder, *data, "-o", tmp_path / "run", "--seeds", 1, "epochs=8", "max_length=32", *FAST)
    saved = tmp_path / "run/model"
    report = json.loads(bertie.good("evaluate", saved, *data, "--json"))
    assert report["las"] > 0.9
    assert report == {**report, **json.loads((tmp_path / "run/results.json").read_text())["dev"]}
    (answer,) = map(json.loads, bertie.good("predict", saved, stdin="a b h c\n").splitlines())
    assert [(word["head"], word["relation"]) for word in answer["words"]] == [
        (3, "NP_SBJ"),
        (3, "NP"),
        (0, "VP"),
        (0, "NP"),
    ]
    assert answer["tree"] is True
    out = bertie.good("predict", saved, tmp_path / "klue-dp-v1.1_dev.tsv", "--format", "klue-dp")
    assert len(out.splitlines()) == 40
    predictor = Predictor(load_model(saved))
    alone = predictor.predict(["a b h c"])[0]
    together = predictor.predict(["h a", "a b h c", "c b a b c h h"])[1]
    assert alone.label == together.label
