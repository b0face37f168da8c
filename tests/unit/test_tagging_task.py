"""The token that represents each word, compared with a simple version for one word at a time."""

import itertools
import random
import string
from pathlib import Path

import numpy as np
import pytest
import torch

import bertie
from bertie.errors import DataError
from bertie.io.lines import BadRecord
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.io.words import TaggedExample, spaced
from bertie.tasks.source import TaskSource
from bertie.tasks.tagging import TaggingTask, words_of
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from toys import toy_model

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [
    *string.ascii_lowercase,
    *("##" + c for c in string.ascii_lowercase),
    ".",
    "ab",
    "##cd",
    "한나",
    "##가",
    "왔",
    "##다",
]
TAGS = ("O", "B-PER", "I-PER")
TASK = TaggingTask(TAGS)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("vocabulary")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *PIECES]), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"strip_accents": false}')
    return Tokenizer.load(folder)


def encode(task: TaggingTask, examples: list[Example], tokenizer: Tokenizer, max_length: int = 64) -> Sequences:
    return task.encode(examples, tokenizer, max_length=max_length, too_long="window")


def random_examples(seed: int, count: int = 25) -> list[TaggedExample]:
    rng = random.Random(seed)
    letters = string.ascii_lowercase + ".한X"
    examples = []
    for number in range(count):
        words = ["".join(rng.choices(letters, k=rng.randint(1, 5))) for _ in range(rng.randint(1, 30))]
        spaces = [rng.random() < 0.7 for _ in words]
        examples.append(spaced(words, rng.choices(TAGS, k=len(words)), number, spaces))
    return examples


def answers_of(encoded: Sequences, targets) -> torch.Tensor:
    """Logits that say the target where one is asked, and a wrong tag everywhere else."""
    asked = torch.from_numpy(targets.token["weight"]) > 0
    tags = torch.from_numpy(targets.token["tag"])
    return torch.nn.functional.one_hot(torch.where(asked, tags, (tags + 1) % len(TAGS)), len(TAGS)).float() * 9


def plain_rows(example: TaggedExample, encoded: Sequences, number: int) -> dict[int, int]:
    """word -> row of T: the piece with the word's first character, in the window where most stands around it."""
    found = {}
    for word, (start, end) in enumerate(example.spans):
        best = None
        for window in range(encoded.windows[number], encoded.windows[number + 1]):
            rows = [
                r for r in range(encoded.starts[window], encoded.starts[window + 1]) if encoded.places["text"][r] == 0
            ]
            for i, row in enumerate(rows):
                if encoded.places["end"][row] > start and encoded.places["start"][row] < end:
                    around = min(i, len(rows) - 1 - i) + 0.01 * len(rows)
                    piece = int(encoded.places["piece"][row])
                    if best is None or piece < best[0] or (piece == best[0] and around > best[1]):
                        best = (piece, around, row)
                    break
        if best is not None:
            found[word] = best[2]
    return found


@pytest.mark.parametrize("max_length", [8, 13, 64])
def test_each_word_is_asked_once_where_most_stands_around_it(tokenizer, max_length):
    examples = random_examples(max_length)
    encoded = encode(TASK, examples, tokenizer, max_length)
    targets = TASK.targets(examples, encoded).token
    expected: dict[int, str] = {}
    for number, example in enumerate(examples):
        for word, row in plain_rows(example, encoded, number).items():
            expected.setdefault(row, example.label[word])
    assert np.flatnonzero(targets["weight"]).tolist() == sorted(expected)
    assert [TAGS[targets["tag"][row]] for row in sorted(expected)] == [expected[row] for row in sorted(expected)]


@pytest.mark.parametrize("max_length", [8, 13, 64])
def test_right_answers_are_right_for_every_word(tokenizer, max_length):
    rng = random.Random(0)
    examples = [spaced(["ab" * rng.randint(1, 4) for _ in range(40)], rng.choices(TAGS, k=40), i) for i in range(10)]
    encoded = encode(TASK, examples, tokenizer, max_length)
    predicted = TASK.decode(answers_of(encoded, TASK.targets(examples, encoded)).numpy(), encoded, examples)
    assert [answer.label for answer in predicted] == [example.label for example in examples]
    scores = TASK.scores()
    scores.add([e.label for e in examples], [a.label for a in predicted])
    assert scores.compute()["f1"] == 1.0


def test_characters_go_on_with_the_piece_they_are_in(tokenizer):
    """KLUE-NER: the tag of a piece's first character is learnt; B is followed by I within a piece, [UNK] too."""
    text, tags = "한나가 왔다 XY!", ("B-PER", "I-PER", "O", "O", "O", "B-PER", "I-PER", "O")
    spans = tuple((i, i + 1) for i, character in enumerate(text) if character != " ")
    example = TaggedExample((text,), tags, spans=spans)
    task = TaggingTask.from_examples([example], TAGS, {})
    assert task.unit == "character"
    encoded = encode(task, [example], tokenizer)
    assert [tokenizer.id_to_token(i) for i in encoded.input_ids[1:-1]] == [
        "한나",
        "##가",
        "왔",
        "##다",
        "x",
        "##y",
        "[UNK]",
    ]
    (answer,) = task.decode(answers_of(encoded, task.targets([example], encoded)).numpy(), encoded, [example])
    assert answer.label == tags
    raw = Example((text,))
    assert words_of(raw, task.unit) == spans
    unknown = TaggedExample(("한국이",), ("B-PER", "I-PER", "O"), spans=((0, 1), (1, 2), (2, 3)))  # one [UNK]
    encoded = encode(task, [unknown], tokenizer)
    (answer,) = task.decode(answers_of(encoded, task.targets([unknown], encoded)).numpy(), encoded, [unknown])
    assert answer.label == ("B-PER", "I-PER", "I-PER")


def test_words_without_a_piece_are_kept(tokenizer):
    example = spaced(["ab", "\u200b", "ab", "\u200d"], ("B-PER", "O", "B-PER", "O"), 1)
    encoded = encode(TASK, [example], tokenizer)
    (answer,) = TASK.decode(answers_of(encoded, TASK.targets([example], encoded)).numpy(), encoded, [example])
    assert answer.label == ("B-PER", "O", "B-PER", "O")
    only = spaced(["\u200b"], ("O",), 1)
    encoded = encode(TASK, [only], tokenizer)
    (answer,) = TASK.decode(torch.zeros(len(encoded.input_ids), 3).numpy(), encoded, [only])
    assert answer.label == ("O",)


def test_the_loss_is_that_of_the_asked_tokens(tokenizer):
    examples = random_examples(3, 6)
    encoded = encode(TASK, examples, tokenizer, 16)
    targets = TASK.targets(examples, encoded)
    source = TaskSource(encoded, targets, batch_size=6, micro_batch_size=2, seed=0)
    count = 0
    for batch in source.batches(0):
        logits = torch.randn(batch.tokens, 3)
        part = TASK.losses(logits, batch)["tag"]
        asked = batch.labels["weight"] > 0
        expected = torch.nn.functional.cross_entropy(logits[asked], batch.labels["tag"][asked], reduction="sum")
        torch.testing.assert_close(part.total, expected)
        assert part.correct is not None
        assert int(part.correct) == int((logits.argmax(-1) == batch.labels["tag"])[asked].sum())
        count += part.count
    assert count == int(targets.token["weight"].sum())


def test_tags_that_are_not_known_do_not_teach(tokenizer):
    example = spaced(["ab", "ab"], ("B-LOC", "O"), 1)
    encoded = encode(TASK, [example], tokenizer)
    assert TASK.targets([example], encoded).token["weight"].sum() == 1
    assert "B-LOC" in TASK.notes([], [example])[0]


def test_a_scheme_is_learnt_and_scored(tokenizer):
    example = spaced(["ab", "ab", "ab"], ("I-PER", "I-PER", "O"), 1)
    task = TaggingTask.from_examples([example], (), {"scheme": "bioes"})
    assert task.labels == ("O", "B-PER", "E-PER")
    encoded = encode(task, [example], tokenizer)
    (answer,) = task.decode(answers_of(encoded, task.targets([example], encoded)).numpy(), encoded, [example])
    assert answer.label == ("B-PER", "E-PER", "O")
    scores = task.scores()
    scores.add([example.label], [answer.label])
    assert scores.compute()["f1"] == scores.compute()["accuracy"] == 1.0


def test_what_is_told_of_a_text(tokenizer):
    text = "ab  cd. ef"
    encoded = encode(TASK, [Example((text,))], tokenizer)
    logits = torch.zeros(len(encoded.input_ids), 3)
    logits[1, 1] = logits[2, 2] = 5.0  # ab cd
    (answer,) = TASK.decode(logits.numpy(), encoded, [Example((text,))])
    record = answer.as_json()
    assert [text[w["start"] : w["end"]] for w in record["words"]] == ["ab", "cd", ".", "ef"]
    assert record["words"][0]["label"] == "B-PER"
    assert record["words"][0]["probability"] == pytest.approx(0.986703, abs=1e-5)
    assert record["entities"] == [{"type": "PER", "text": "ab  cd", "start": 0, "end": 6}]


def test_rows_from_files(tmp_path: Path):
    (tmp_path / "a.txt").write_text("Ada B-PER\nrows O\n")
    (example,) = TaggingTask.rows(tmp_path / "a.txt", TableFormat())
    assert example.label == ("B-PER", "O")
    (line, _) = TaggingTask.rows(tmp_path / "a.txt", TableFormat.of(labelled=False))
    assert line.texts == ("Ada B-PER",)
    (example,) = TaggingTask.rows(tmp_path / "a.txt", TableFormat.of(labelled=False, kind="conll"))
    assert example.spans == ((0, 3), (4, 8))
    (tmp_path / "b.jsonl").write_text('{"tokens": ["Ada"]}\n{"text": "Ada rows"}\n')
    assert [type(row) for row in TaggingTask.rows(tmp_path / "b.jsonl", TableFormat())] == [BadRecord, BadRecord]
    words, text = TaggingTask.rows(tmp_path / "b.jsonl", TableFormat.of(labelled=False))
    assert words.texts == ("Ada",)
    assert text.texts == ("Ada rows",)


def test_one_tag_alone_is_refused():
    with pytest.raises(DataError, match="two tags"):
        TaggingTask.from_examples([spaced(["ab"], ("O",), 1)], (), {})


DOCUMENTS = "-DOCSTART- -X- O O\n\na B-X\nb O\n\nc O\n\nd B-X\ne O\n\n-DOCSTART- O\n\nf O\n"


def test_the_document_fills_the_window(tmp_path: Path) -> None:
    """Tokens of neighboring sentences are of no word: targets and tags are those of the sentence alone."""
    (tmp_path / "x.conll").write_text(DOCUMENTS)
    examples = [one for one in TaggingTask.rows(tmp_path / "x.conll", TableFormat.of()) if isinstance(one, Example)]
    folder = toy_model(tmp_path / "m", "abcdefgh")
    tokenizer = Tokenizer.load(folder)

    def windows(context: str, most: int) -> list[str]:
        task = TaggingTask.from_examples(examples, (), {"context": context})
        encoded = task.encode(examples, tokenizer, max_length=most, too_long="window")
        assert int(task.targets(examples, encoded).token["weight"].sum()) == 6  # a word each
        tokens = [tokenizer.id_to_token(i) for i in encoded.input_ids.tolist()]
        marked = [t.upper() if text == 0 else t for t, text in zip(tokens, encoded.places["text"], strict=True)]
        return ["".join(marked[a:b]) for a, b in itertools.pairwise(encoded.starts.tolist())]

    assert windows("document", 32) == [f"[CLS]{one}[SEP]" for one in ("ABcde", "abCde", "abcDE", "F")]
    assert windows("document", 6) == [f"[CLS]{one}[SEP]" for one in ("ABcd", "bCde", "bcDE", "F")]
    assert windows("sentence", 32) == [f"[CLS]{one}[SEP]" for one in ("AB", "C", "DE", "F")]
    settings = {"task_options.context": "document"}
    data = tmp_path / "x.conll"
    run = bertie.finetune(folder, data, data, task="tagging", max_length=32, settings=settings)
    predictions = run.model.predict(tmp_path / "x.conll")
    assert [len(one.label) for one in predictions] == [2, 1, 2, 1]
    assert [len(one.label) for one in run.model.predict(["a b c"])] == [3]  # a text alone


def test_context_needs_documents(tmp_path: Path) -> None:
    (tmp_path / "x.conll").write_text("a B-X\n\nb O\n")
    with pytest.raises(DataError, match="-DOCSTART-"):
        bertie.finetune(
            toy_model(tmp_path / "m", "ab"),
            tmp_path / "x.conll",
            task="tagging",
            settings={"task_options.context": "document"},
        )
