"""`bertie predict` on standard input: one JSON object on one line for every row, whatever the bytes."""

import io
import json
import sys
from pathlib import Path

import pytest

from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS
from bertie.program import main
from bertie.text.tokenizer import Tokenizer
from toys import SPECIAL

OPEN = b'"' + b"x y " * 75_000  # 300 kB
ROWS = {  # bytes, options -> records, how many of them are errors
    "empty lines": (b"\n" * 3000, (), 3000, 3000),
    "empty lines of a csv": (b"text\n" + b"\n" * 3000, ("--format", "csv"), 3000, 3000),
    "carriage returns": (b"text\ra\rb\rc", ("--format", "csv"), 3, 0),
    "carriage returns, lines": (b"a\rb\rc\r", (), 3, 0),
    "carriage returns within quotation marks": (b'text\r"a\rb"\rc\r', ("--format", "csv"), 2, 0),
    "one carriage return": (b"text\na\rb\nc\n", ("--format", "csv"), 2, 1),
    "an open quotation mark": (b"text\n" + OPEN, ("--format", "csv"), 1, 1),
    "a mark that opens over many lines": (b"text\n" + OPEN[:600] + b"\na line\nanother\n", ("--format", "csv"), 3, 1),
    "an open mark, then more": (b"text\n" + OPEN + b"\nafter\n", ("--format", "csv"), 2, 1),
    "an open mark in a tsv": (b"text\n" + OPEN + b"\nafter\n", ("--format", "tsv"), 2, 0),
    "an open mark in a line": (OPEN + b"\nafter\n", (), 2, 0),
    "not UTF-8": (b"\xff\xfa\nafter\n", (), 2, 1),
    "NUL and separators": ("a\0b\nc\u2028d\u0085e\x0cf\n".encode(), (), 2, 0),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *"abcxy"]), encoding="utf-8")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = EncoderConfig(vocab_size=10, max_position_embeddings=16, **sizes)
    built = families.build(config, heads={"sequence": HEADS["sequence"](config, 2)})
    families.save(built, folder, tokenizer=Tokenizer.load(folder), labels=("bad", "good"))
    return folder


@pytest.mark.parametrize("case", ROWS)
def test_every_row_is_a_line_of_json(case: str, model: Path, monkeypatch, capfdbinary) -> None:
    data, options, records, errors = ROWS[case]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))
    monkeypatch.setattr(sys, "argv", ["bertie", "predict", str(model), *options])
    with pytest.raises(SystemExit) as end:
        main()
    out, _ = capfdbinary.readouterr()
    assert end.value.code == 0
    assert out.endswith(b"\n")
    found = [json.loads(line) for line in out[:-1].split(b"\n")]
    assert [record["row"] for record in found] == [*range(1, records + 1)]
    assert sum("error" in record for record in found) == errors
    assert all(("label" in record) != ("error" in record) for record in found)
    assert not any(
        "csv" in record.get("error", "") or "universal-newline" in record.get("error", "") for record in found
    )
