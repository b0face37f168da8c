"""Files of a model folder that change its answers elsewhere: each is read, or refused by name in every command."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import bertie as package
from bertie.errors import DataError
from bertie.runs.weights import load_model as load_module
from serving import make_models
from toys import CommandLine

LORA = {"peft_type": "LORA", "base_model_name_or_path": "made/base", "task_type": "SEQ_CLS"}
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_LSTM", "type": "sentence_transformers.models.LSTM"},
]
REFUSED: dict[str, tuple[str, str, Any, str]] = {  # -> model, file, content, what the error names
    "an adapter of peft": ("sequence", "adapter_config.json", LORA, r"adapter of 'made/base' beside.*merge_and_unload"),
    "weights of an adapter": ("sequence", "adapter_model.safetensors", {}, r"adapter beside.*merge_and_unload"),
    "an adapter of the library adapters": (
        "sequence",
        "config.json",
        {"adapters": {"adapters": {"x": "seq_bn"}, "config_map": {}}},
        r"library adapters.*merge_adapter",
    ),
    "custom code": ("sequence", "config.json", {"auto_map": {"AutoModel": "modeling_x.X"}}, "custom code"),
    "unknown modules": ("embed", "modules.json", MODULES, "unknown modules: LSTM"),
    "generation": ("text2text", "generation_config.json", {"num_beams": 4, "no_repeat_ngram_size": 3}, "num_beams=4"),
    "another end": ("text2text", "generation_config.json", {"eos_token_id": [0, 9]}, "eos_token_id"),
}
NEUTRAL = {"_from_model_config": True, "num_beams": 1, "max_length": 20, "transformers_version": "5.0"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_models(tmp_path_factory.mktemp("models"), ("sequence", "embed", "text2text"))


def beside(folder: Path, home: Path, file: str, content: Any) -> Path:
    """A copy of a model with a file more, or with more keys in its config.json."""
    shutil.copytree(folder, home / "model")
    path = home / "model" / file
    before = json.loads(path.read_text()) if path.exists() and isinstance(content, dict) else {}
    path.write_text(json.dumps({**before, **content} if isinstance(content, dict) else content))
    return home / "model"


@pytest.mark.parametrize(("task", "file", "content", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_read_is_refused(
    models: dict[str, Path], tmp_path: Path, bertie: CommandLine, task: str, file: str, content: Any, said: str
) -> None:
    model = beside(models[task], tmp_path, file, content)
    with pytest.raises(DataError, match=said):
        load_module(model)
    command = "embed" if task == "embed" else "predict"
    for arguments in (
        (command, model),
        ("convert", model, "-o", tmp_path / "new"),
        ("export", model, "-o", tmp_path / "x"),
    ):
        code, _, err = bertie(*arguments, stdin="a b\n")
        assert (code, bool(re.search(said, " ".join(err.split())))) == (3, True), (arguments, err)
    assert not (tmp_path / "new").exists()


def test_an_adapter_alone(tmp_path: Path, bertie: CommandLine) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(LORA))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"x")
    table = tmp_path / "x.csv"
    table.write_text("text,label\n" + "".join(f"text {i},{i % 2}\n" for i in range(20)))
    for arguments in (
        ("predict", tmp_path),
        ("info", tmp_path),
        ("finetune", tmp_path, "--train", table, "-o", tmp_path / "r"),
    ):
        code, _, err = bertie(*arguments)
        assert (code, "is an adapter of 'made/base', which is not here" in " ".join(err.split())) == (3, True), err


def test_settings_that_change_nothing_are_let_be(models: dict[str, Path], tmp_path: Path) -> None:
    public = json.loads((models["text2text"] / "config.json").read_text())
    ids = {name: public[name] for name in ("eos_token_id", "pad_token_id") if name in public}
    assert load_module(beside(models["text2text"], tmp_path, "generation_config.json", NEUTRAL | ids))
    other = tmp_path / "other"
    other.mkdir()
    encoder = beside(models["sequence"], other, "generation_config.json", {"num_beams": 4})
    assert package.predict(encoder, ["a"]), "an encoder generates nothing"
