"""Files that are no regular ones, too large, or made to break what reads them: one clear error, at once."""

import base64
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from sentencepiece import SentencePieceTrainer
from tokenizers import normalizers

from bertie.errors import BertieError, DataError, UsageError
from bertie.files import read_json, read_small, write_bytes
from bertie.settings import read_yaml
from bertie.text.engine import read_engine, read_vocabulary
from bertie.text.sentencepiece import check_charsmap, read_model
from bertie.text.tokenizer import Tokenizer
from bertie.text.vocabulary import count_words, train_vocabulary

READERS: dict[str, Callable[[Path], object]] = {
    "json": read_json,
    "yaml": read_yaml,
    "vocabulary": read_vocabulary,
    "engine": read_engine,
    "sentencepiece": read_model,
}


@pytest.mark.promise("hostile-files")
@pytest.mark.parametrize("name", READERS)
def test_only_regular_files_are_opened(name: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # opened as usual it would wait for a writer
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(BertieError, match=r"is a pipe or a device"):
            READERS[name](path)


def test_a_file_beyond_its_bound_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # takes no space on the disk
    for read in READERS.values():
        with pytest.raises(BertieError, match=r"has 1,099,511,627,776 bytes, more than the maximum of"):
            read(path)
    with pytest.raises(DataError, match="is a folder"):
        read_small(tmp_path)


def test_half_a_surrogate_pair_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"id2label": {"0": "\\ud83d\\ude00", "1": "\\uac00"}}')
    assert read_json(path)["id2label"]["0"] == "😀"
    path.write_text('{"id2label": {"0": "\\ud83d"}}')
    with pytest.raises(DataError, match=r"config\.json is not readable JSON"):
        read_json(path)


def test_a_vocabulary_of_millions_of_lines_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"a\n" * 2_000_001)
    with pytest.raises(DataError, match="2,000,001 lines, more than the maximum of 2,000,000"):
        read_vocabulary(path)


def test_a_yaml_file_with_a_mark_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfmax_length: 64\n")
    assert read_yaml(tmp_path / "a.yaml") == {"max_length": 64}
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not readable YAML"):
        read_yaml(tmp_path / "b.yaml")


@pytest.fixture(scope="module")
def charsmap(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The normalization rules of SentencePiece's release."""
    folder = tmp_path_factory.mktemp("sentencepiece")
    (folder / "text").write_text("a cat sat on a mat\n" * 50)
    SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "spiece"), vocab_size=12, minloglevel=2
    )
    return read_model(folder / "spiece.model").charsmap


def test_the_published_rules_pass_the_check(charsmap: bytes) -> None:
    assert len(charsmap) > 100_000
    check_charsmap(charsmap)


@pytest.mark.promise("hostile-files")
def test_rules_that_pass_the_check_read_any_text(charsmap: bytes) -> None:
    """Damaged at random, they are refused, or the engine comes to no harm by them."""
    rng = random.Random(0)
    text = "".join(chr(code) for code in range(1, 0x3400)) + "".join(chr(code) for code in range(0xF900, 0x10000))
    refused = 0
    size = int.from_bytes(charsmap[:4], "little")
    for number in range(60):
        damaged = bytearray(charsmap)
        low, high = (4, 4 + size) if number % 2 else (4, 4 + 4096)
        for _ in range(1 if number < 30 else 50):
            damaged[rng.randrange(low, high)] ^= 1 << rng.randrange(8)
        try:
            check_charsmap(bytes(damaged))
        except ValueError:
            refused += 1
        else:
            normalizers.Precompiled(bytes(damaged)).normalize_str(text)
    assert refused > 10


JUNK = {
    "zeros": bytes(4),
    "one unit": (4).to_bytes(4, "little") + bytes(4),
    "beyond its end": (1024).to_bytes(4, "little") + b"\xff" * 1024,
    "short": b"\x01",
    "not UTF-8": (1024).to_bytes(4, "little") + bytes(1024) + b"\xff",
}


@pytest.mark.parametrize("name", JUNK)
def test_junk_for_rules_is_refused_before_the_engine_reads_it(name: str, tmp_path: Path) -> None:
    normalizer = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(JUNK[name]).decode()}
    tree = json.loads(tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")).to_str())
    tree["normalizer"] = {"type": "Sequence", "normalizers": [normalizer]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    with pytest.raises(DataError, match=r"tokenizer\.json is not a valid tokenizer file"):
        read_engine(tmp_path / "tokenizer.json")


def template(*parts: dict[str, dict[str, object]]) -> dict[str, object]:
    names = {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}
    pair = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]
    return {
        "type": "TemplateProcessing",
        "single": list(parts),
        "pair": pair,
        "special_tokens": {"[CLS]": names, "[SEP]": {**names, "id": "[SEP]", "ids": [1 << 31], "tokens": ["[SEP]"]}},
    }


CLS: dict[str, dict[str, object]] = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
A: dict[str, dict[str, object]] = {"Sequence": {"id": "A", "type_id": 0}}
TEMPLATES = {
    "no text": (template(CLS), "has 0 texts"),
    "two texts": (template(A, A), "text A as text 2"),
    "the second text": (template({"Sequence": {"id": "B", "type_id": 0}}), "text B as text 1"),
    "many parts": (template(A, *[CLS] * 100_000), "100,003 parts"),
    "a huge segment": (template({"Sequence": {"id": "A", "type_id": (1 << 32) - 1}}), "segment 4,294,967,295"),
    "an id that is not there": (
        template(A, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}),
        "id 2,147,483,648, which is not in the vocabulary",
    ),
}


@pytest.mark.promise("hostile-files")
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_no_model_can_read_is_refused(name: str, tmp_path: Path) -> None:
    post, message = TEMPLATES[name]
    train_vocabulary(count_words(["the cat sat"] * 3), size=100).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "post_processor": post}))
    with pytest.raises(DataError, match=message):
        Tokenizer.load(tmp_path)


def test_a_file_that_cannot_be_written_is_named_by_its_own_name(tmp_path):
    path = tmp_path / ("a" * 250)  # the temporary name is longer than a name may be
    with pytest.raises(OSError, match="name too long") as error:
        write_bytes(path, b"")
    assert error.value.filename == str(path)


def test_a_regular_expression_that_explodes_is_an_error_of_the_tokenizer(tmp_path: Path) -> None:
    train_vocabulary(count_words(["the cat sat"] * 3), size=100).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    (tmp_path / "vocab.txt").unlink()
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    path.write_text(json.dumps({**json.loads(path.read_text()), "pre_tokenizer": split}))
    tokenizer = Tokenizer.load(tmp_path)
    for read in (tokenizer.encode, lambda text: tokenizer.ids([text]), lambda text: tokenizer.flat_ids([text])):
        assert read("the cat") is not None
        with pytest.raises(DataError, match="The tokenizer cannot read a text"):
            read("a" * 50 + "b")


def test_rules_that_multiply_a_text_are_refused(tmp_path: Path) -> None:
    """Twelve replacements of one letter by ten would make a terabyte of it."""
    train_vocabulary(count_words(["the cat sat"] * 3), size=100).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    rules = {"type": "Sequence", "normalizers": [replace] * 12}
    path.write_text(json.dumps({**json.loads(path.read_text()), "normalizer": rules}))
    with pytest.raises(DataError, match="can make a text 1e\\+12 times as long"):
        Tokenizer.load(tmp_path)
