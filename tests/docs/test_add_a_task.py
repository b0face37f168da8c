"""The task that docs/add-a-task.md shows works as the page says: installed by pip, it trains, is saved and used."""

import json
import random
import string
from pathlib import Path

import pytest

from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.text.tokenizer import Tokenizer
from packages import answer_of_server, blocks, install, python, run

PAGE = Path(__file__).parents[2] / "docs" / "add-a-task.md"
SETTINGS = ("optim.lr=3e-3", "max_length=24", "train.precision=fp32", "task_options.needed=0.45")


def pretrained(folder: Path) -> Path:
    folder.mkdir()
    letters = [*string.ascii_lowercase, *("##" + c for c in string.ascii_lowercase)]
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]))
    tokenizer = Tokenizer.load(folder)
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        initializer_range=0.1,
    )
    families.save(families.build(config), folder, tokenizer=tokenizer)
    return folder


@pytest.fixture(scope="module")
def stars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pre-trained model and a table: the more z, the more stars."""
    folder, rng = tmp_path_factory.mktemp("stars"), random.Random(0)
    rows = []
    for number in range(240):
        letters = ["z"] * (number % 3) + [rng.choice("abcd") for _ in range(4)]
        rng.shuffle(letters)
        rows.append(f"{' '.join(letters)}\t{number % 3 + 1}\n")
    (folder / "stars.tsv").write_text("text\tlabel\n" + "".join(rows))
    (folder / "new.txt").write_text("a b c d\na z c z b d\n")
    pretrained(folder / "pretrained")
    return folder


def test_the_package_of_the_page(stars: Path) -> None:
    (module,), (pyproject,) = blocks(PAGE, "python"), blocks(PAGE, "toml")
    site = install(pyproject, module, stars / "package")
    train = (
        "--task",
        "ordinal",
        "--train",
        stars / "stars.tsv",
        "-o",
        stars / "run",
        "--epochs",
        12,
        "--batch-size",
        16,
    )
    run(site, "finetune", stars / "pretrained", *train, *SETTINGS, "task_options.main=macro_f1")
    results = json.loads((stars / "run" / "results.json").read_text())
    assert results["dev"]["accuracy"] > 0.8
    assert "ece" not in results["dev"]  # its answers have no probability
    facts = json.loads((stars / "run" / "model" / "bertie.json").read_text())
    assert (facts["task"], facts["task_package"]) == ("ordinal", "bertie-ordinal")
    assert facts["task_options"] == {"needed": 0.45, "main": "macro_f1"} | facts["task_options"]

    labels = run(site, "predict", stars / "run" / "model", stars / "new.txt", "-q", fresh=True)
    assert [json.loads(line)["label"] for line in labels.splitlines()] == ["1", "3"]
    model = str(stars / "run" / "model")
    asked = f"import bertie; print(bertie.load({model!r}).predict(['a b c d', 'a z c z b d']).labels)"
    assert python(site, asked).strip().endswith("['1', '3']")
    run(site, "export", stars / "run" / "model", "-o", stars / "onnx")
    labels = run(site, "predict", stars / "onnx", stars / "new.txt", "-q")
    assert [json.loads(line)["label"] for line in labels.splitlines()] == ["1", "3"]
    assert [answer_of_server(site, stars / place, "a z c z b d") for place in ("run/model", "onnx")] == ["3", "3"]

    told = run(None, "predict", stars / "run" / "model", stars / "new.txt", code=3)
    assert "trained for the task 'ordinal'" in told
    assert "pip install bertie-ordinal" in told


def test_the_task_of_the_page_in_a_script(stars: Path) -> None:
    (module,) = blocks(PAGE, "python")
    script = f"""
import bertie, json
bertie.register("task", "ordinal", OrdinalTask)
run = bertie.finetune({str(stars / "pretrained")!r}, {str(stars / "stars.tsv")!r}, task="ordinal", epochs=12,
    batch_size=16, lr=3e-3, max_length=24, precision="fp32", settings={{"task_options.needed": 0.45}})
assert run.scores["accuracy"] > 0.8
print(run.model.predict(["a b c d", "a z c z b d"]).labels)
try:
    bertie.register("task", "ordinal", OrdinalTask)
except bertie.errors.UsageError as error:
    print(error)
"""
    printed = python(None, f"import bertie.errors\n{module}\n{script}")
    assert "['1', '3']" in printed
    assert "There is a task 'ordinal' already" in printed
