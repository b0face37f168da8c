"""The family of docs/add-a-family.md, installed by pip, gives the numbers of `transformers`, with every head. It is
fine-tuned, predicts, is served and exported."""

import json
from pathlib import Path

import pytest

from packages import answer_of_server, blocks, install, python, run

pytest.importorskip("transformers")
PAGE = Path(__file__).parents[2] / "docs" / "add-a-family.md"
TWINS = Path(__file__).parents[1] / "twins"
HEADS = ["Model", "ForMaskedLM", "ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification",
         "ForQuestionAnswering"]  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (code,), (pyproject,) = blocks(PAGE, "python"), blocks(PAGE, "toml")
    return install(pyproject, code, tmp_path_factory.mktemp("package"))


def test_same_numbers(site: Path, tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(TWINS)!r}, {str(TWINS.parent)!r}]
import parity, transformers
from bertie.models import families
names = [f"RobertaPreLayerNorm{{name}}" for name in {HEADS!r}]
assert list(families.VARIANTS["roberta-prelayernorm"].architectures) == names
config = transformers.RobertaPreLayerNormConfig(**parity.TINY, type_vocab_size=1)
for name in names:
    parity.check(name, config, Path({str(tmp_path)!r}) / name)
    print(name)
"""
    assert python(site, script).count("RobertaPreLayerNorm") >= len(HEADS)


def test_its_tokenizer_is_that_of_its_entry_point(site: Path) -> None:
    asked = (
        "from bertie.text import formats; print(formats.BY_FAMILY['roberta-prelayernorm'] is formats.ROBERTA_FORMAT)"
    )
    assert python(site, asked).strip() == "True"


START = """
from pathlib import Path
from bertie.models import families
from bertie.text import vocabulary, formats
words = vocabulary.count_words(open({texts!r}, encoding="utf-8"))
tokenizer = vocabulary.train_vocabulary(words, size=300, family=formats.BY_FAMILY["roberta-prelayernorm"])
config = families.VARIANTS["roberta-prelayernorm"].base.replace(
    vocab_size=tokenizer.vocab_size, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
    max_position_embeddings=66,
)
families.save(families.build(config, variant="roberta-prelayernorm"), Path({folder!r}), tokenizer=tokenizer)
"""


def test_it_is_fine_tuned_predicts_is_served_and_exported(site: Path, tmp_path: Path) -> None:
    rows = [f"{'good soup' if n % 2 else 'cold soup'} number {n % 7},{'yes' if n % 2 else 'no'}" for n in range(80)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    start, model = tmp_path / "start", tmp_path / "run" / "model"
    python(site, START.format(texts=str(tmp_path / "rows.csv"), folder=str(start)))
    options = (
        "--epochs",
        8,
        "--lr",
        3e-3,
        "--batch-size",
        8,
        "--max-length",
        32,
        "label_check=none",
        "--precision",
        "fp32",
    )
    run(site, "finetune", start, "--train", tmp_path / "rows.csv", "-o", tmp_path / "run", *options)
    assert json.loads((model / "config.json").read_text())["model_type"] == "roberta-prelayernorm"
    (tmp_path / "new.txt").write_text("good soup number 3\ncold soup number 3\n")
    run(site, "export", model, "-o", tmp_path / "onnx", fresh=True)
    for place in (model, tmp_path / "onnx"):
        lines = run(site, "predict", place, tmp_path / "new.txt", "-q").splitlines()
        assert [json.loads(line)["label"] for line in lines] == ["yes", "no"]
        assert answer_of_server(site, place, "good soup number 3") == "yes"
    assert "model_type is 'roberta-prelayernorm', which is not supported" in run(
        None, "predict", model, tmp_path / "new.txt", code=3
    )
