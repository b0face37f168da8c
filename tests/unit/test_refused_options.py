"""Options that would be ignored or would mislead are refused, before a model is opened and before a file is written."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from bertie.errors import UsageError
from bertie.io.table_format import TableFormat
from bertie.runs.config import EMBED_OPTIONS, FinetuneConfig, PretrainConfig
from bertie.settings import Config, load_config
from bertie.tasks.datasets import DATASETS
from bertie.tasks.embed import EmbedTask
from toys import CommandLine, toy_model


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("explain", "M", "a b", "-o", "x.txt"), "x.txt has the extension '.txt'. Use .html."),
        (("explain", "M", "a b", "-o", "x"), "x has no extension. Use .html."),
        (("attention", "M", "a b", "-o", "x.pdf"), "Use one of .html, .npz."),
        (("heads", "M", "--texts", "t.txt", "-o", "x.json"), "Use .html."),
        (("words", "M", "a b", "a c", "-o", "x.csv"), "Use .html."),
        (("plan", "model=bert-tiny", "-o", "x.txt"), "Use .html."),
        (("compare", "M", "M", "-o", "x.md"), "Use .html."),
        (("evaluate", "M", "t.csv", "-o", "x.txt"), "Use .json."),
        (("evaluate", "M", "t.csv", "--report", "x.json"), "Use .html."),
        (("debias", "M", "t.txt", "-o", "out", "--page", "x.txt"), "Use .html."),
        (("debias", "M", "t.txt", "-o", "out", "--page", "old.html"), "old.html exists"),
        (("negatives", "index", "--questions", "q.jsonl", "-o", "x.csv"), "Use .jsonl."),
        (("submission", "x.txt", "cola=M"), "Use .zip."),
        (("predict", "M", "t.txt", "--text", "review"), "t.txt is read as one text per line, without columns. Omit"),
        (("embed", "M", "t.txt", "--text", "review", "-o", "x.npy"), "Omit --text review"),
        (("embed", "M", "t.txt", "--truncate-dim", "33"), "truncate_dim is 33, but vectors of this model have 32"),
        (("embed", "M", "t.txt", "--pooling", ","), "pooling is empty"),
        (("info", "M", "--presets"), "but not both"),
        (("download", "people/none", "--list"), "but not both"),
        (("perplexity", "M", "t.txt", "--text", "review"), "Omit --text review"),
        (("counterfactual", "t.txt", "--text", "review", "-o", "x.jsonl"), "Omit --text review"),
        (("compress", "M", "--texts", "t.txt", "--text", "review", "-o", "out"), "Omit --text review"),
        (("heads", "M", "--texts", "t.txt", "--text", "review"), "Pass --dev FILE too, or omit them."),
        (("evaluate", "M", "--data", "nsmc"), "--data nsmc needs --data-dir"),
        (("evaluate", "M", "--data", "nsmc", "--data-dir", ".", "--text", "a"), "--text and --data exclude each other"),
        (("evaluate", "M", "--data", "nsmc", "--data-dir", ".", "--format", "csv"), "Omit --format."),
        (("finetune", "M", "--data", "nsmc", "--data-dir", ".", "--text", "a", "-o", "out"), "Omit --text."),
        (("finetune", "M", "--data", "nsmc", "--data-dir", ".", "--label", "a", "-o", "out"), "Omit --label."),
        (("finetune", "M", "--train", "n.conll", "-o", "out"), "n.conll has tags for words. Pass --task tagging."),
        (("finetune", "M", "--train", "n.txt", "-o", "out"), "n.txt has tags for words. Pass --task tagging."),
        (("finetune", "M", "--train", "n.conllu", "-o", "out"), "--task tagging, or --task parse for its trees."),
        (("finetune", "M", "--train", "t.csv", "-o", "out", "batch_size=16"), "Did you mean 'train.batch_size'?"),
        (("finetune", "M", "-c", "c.yaml", "-o", "out"), "Unknown key 'batch_size'. Did you mean 'train.batch_size'?"),
        (("finetune", "M", "--learning-rate", "1"), "The setting is --optim.lr VALUE."),
        (("finetune", "M", "-o", "out", "learning_rate=1"), "Did you mean 'optim.lr'?"),
        (("finetune", "M", "-o", "out", "per_device_train_batch_size=8"), "Did you mean 'train.batch_size'?"),
        (("tune", "M", "-o", "out", "num_train_epochs=3"), "Did you mean 'epochs'?"),
        (("finetune", "M", "-o", "out", "max_steps=100"), "Did you mean 'epochs'?"),
        (("pretrain", "-o", "out", "warmup_ratio=0.1"), "Did you mean 'optim.warmup'?"),
        (("finetune", "M", "--train", "t.csv", "-o", "out", "--freeze"), "--freeze needs a value: --freeze VALUE."),
        (("finetune", "M", "--freeze", "--train", "t.csv", "-o", "out"), "--freeze needs a value: --freeze VALUE."),
        (
            ("finetune", "M", "--train", "t.csv", "-o", "out", "--optim.weigth-decay", "1"),
            "Did you mean 'weight_decay'?",
        ),
        (("finetune", "M", "--lr", "1e-4", "optim.lr=2e-4", "-o", "out"), "optim.lr is given twice"),
        (("finetune", "M", "--max-length", "32", "max_length=16", "-o", "out"), "max_length is given twice"),
        (("finetune", "M", "--lr", "1e-4", "--optim.lr", "2e-4", "-o", "out"), "optim.lr is given twice"),
        (("finetune", "M", "--frieze", "2", "-o", "out"), "No such option: --frieze"),
    ],
)
def test_what_would_be_ignored_is_refused(
    words: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bertie: CommandLine
) -> None:
    monkeypatch.chdir(tmp_path)
    toy_model(Path("M"), "abc")
    Path("t.txt").write_text("a b\nb c\n")
    Path("t.csv").write_text("text,label\na b,x\nb c,y\n")
    Path("old.html").write_text("mine")
    Path("c.yaml").write_text("batch_size: 16\n")
    for name in ("n.conll", "n.txt"):
        Path(name).write_text("a B-X\nb O\n\nc O\n")
    Path("n.conllu").write_text("1\ta\t_\tX\t_\t_\t0\troot\t_\t_\n\n")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    code, out, err = bertie(*words)
    assert (code, out) == (2, ""), err
    assert told in " ".join(err.split())
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_columns_that_mean_something_are_read(tmp_path: Path, bertie: CommandLine) -> None:
    """Of lines with tabs, --columns names them and --text chooses; beside --data FILE, --text is of the examples."""
    model = toy_model(tmp_path / "M", "abc")
    (tmp_path / "t.txt").write_text("a b|one\nb c|two\n".replace("|", "\t"))
    out = bertie.good("embed", model, tmp_path / "t.txt", "--columns", "review,name", "--text", "review", "--format",
                      "lines")  # fmt: skip
    assert out.startswith('{"review": "a b", "name": "one"')
    DATASETS["nsmc"].check_format(TableFormat.of(label_names={"0": "negative"}))
    with pytest.raises(UsageError, match="Omit --encoding"):
        DATASETS["nsmc"].check_format(TableFormat.of(encoding="cp949"))


@pytest.mark.parametrize(
    ("kind", "override", "told"),
    [
        (FinetuneConfig, "output_dir=runs/a", "'output_dir'. Pass the option -o FOLDER .in Python, the argument run"),
        (PretrainConfig, "resume_from_checkpoint=a", "Pass the option --resume CHECKPOINT "),
        (FinetuneConfig, "lr=1", "Did you mean 'optim.lr'[?]$"),
        (FinetuneConfig, "matryoshka=[64]", "Did you mean 'task_options.matryoshka'[?]$"),
        (FinetuneConfig, "train.epochs=1", "Did you mean 'epochs'[?]$"),
        (PretrainConfig, "steps=1", "Did you mean 'train.steps'[?]$"),
        (PretrainConfig, "train.stepps=1", "Did you mean 'steps'[?] Choices: batch_size, "),
    ],
)
def test_a_setting_of_another_section_is_named(kind: type[FinetuneConfig], override: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        load_config(kind, None, [override], model="bert-tiny")


@pytest.mark.parametrize("config", [FinetuneConfig, PretrainConfig])
def test_names_of_other_programs_lead_to_settings_that_exist(config: type[Config]) -> None:
    for ours in config.also_called.values():
        kind: Any = config
        for name in ours.split("."):
            assert name in kind.model_fields, ours
            kind = kind.model_fields[name].annotation
            if not (isinstance(kind, type) and issubclass(kind, Config)):  # objectives have settings by their names
                break


def test_options_of_sentence_embeddings_that_are_suggested_exist() -> None:
    assert {*EMBED_OPTIONS} <= {field.name for field in fields(EmbedTask)}


def test_a_mistyped_name_of_a_model_names_the_nearest(bertie: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("text,label\n" + "a,x\nb,y\n" * 10)
    commands = (("finetune", "stater-en", "--train", tmp_path / "x.csv", "-o", tmp_path / "run"), ("info", "starteren"))
    for command in (*commands, ("predict", "stater-en", tmp_path / "x.csv")):
        assert "Did you mean 'starter-en'?" in bertie(*command)[2]
