"""bertie.json: what a model folder records of its training."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bertie as library
from bertie.errors import DataError
from bertie.models import families
from bertie.runs.weights import load_model as load_module
from bertie.tasks import with_task
from bertie.tasks.sequence import SequenceTask
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import FILE, FeatureConfig, TrainingFacts, read_training_facts, write_training_facts
from toys import TOY_TEXTS, TOY_WORDS, CommandLine, toy_model


@pytest.fixture
def bertie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capsys)


NUMBERS = st.integers() | st.floats(allow_nan=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
FEATURES = st.builds(
    FeatureConfig,
    column=st.text(),
    patch_size=st.integers(1, 99),
    picture_size=st.none() | st.integers(1, 999),
    skip_plain=st.booleans(),
    kind=st.sampled_from(["regions", "frames"]),
)
FACTS = st.builds(
    TrainingFacts,
    max_length=st.none() | st.integers(4, 1 << 20),
    too_long=st.sampled_from([None, "truncate", "window", "error"]),
    texts=st.none() | st.integers(1, 9),
    text_columns=st.lists(st.text()).map(tuple),
    label_column=st.text(),
    label_separator=st.text(),
    encoding=st.text(),
    features=st.none() | FEATURES,
    task=st.text(),
    task_options=st.dictionaries(st.text(), VALUES),
)


@given(FACTS)
def test_what_is_written_is_read(facts: TrainingFacts) -> None:
    with TemporaryDirectory() as place:
        write_training_facts(Path(place), facts)
        assert read_training_facts(Path(place)) == facts


def test_a_folder_without_the_file_knows_nothing(tmp_path: Path) -> None:
    assert read_training_facts(tmp_path) == TrainingFacts()
    write_training_facts(tmp_path, TrainingFacts(texts=2))
    write_training_facts(tmp_path, TrainingFacts())  # as of a model that was trained for no task
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "EOF"),
        ("[]", "is damaged"),
        ('{"max_length": "long"}', "max_length: Input should be a valid integer"),
        ('{"max_length": 3}', "max_length: Input should be greater"),
        ('{"too_long": "cut"}', "too_long: Input should be 'truncate', 'window' or 'error'"),
        ('{"texts": true}', "texts: Input should be a valid integer"),
        ('{"features": {"column": "a", "patch": 3}}', "features.patch: Extra inputs"),
        ('{"lenght": 3}', "lenght: Unexpected keyword"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, bertie: CommandLine, text: str, message: str) -> None:
    folder = toy_model(tmp_path / "model", TOY_WORDS)
    (folder / FILE).write_text(text)
    code, _, err = bertie("predict", folder, "-", stdin="a text")
    assert code == 3
    assert FILE in err
    assert message in " ".join(err.split())
    with pytest.raises(DataError, match=FILE):
        load_module(folder)


@pytest.mark.parametrize(
    "command",
    [
        "convert model --precision bfloat16",
        "grow model --layers 2",
        "vocabulary trim model texts.txt",
        "compress model --texts texts.txt",
        "export model --to onnx --texts texts.txt",
    ],
)
def test_a_folder_keeps_its_facts(tmp_path: Path, bertie: CommandLine, command: str) -> None:
    """Whatever is made of it. tokenizer_config.json has only the length, which `transformers` reads."""
    task = SequenceTask(("no", "yes"), scale=(0.5, 0.5))
    model, _ = families.load(toy_model(tmp_path / "start", TOY_WORDS), heads=task.heads)
    model.tokenizer, model.labels = Tokenizer.load(tmp_path / "start"), task.labels
    model.training_facts = with_task(TrainingFacts(max_length=20, texts=1, label_column="stars"), task)
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(TOY_TEXTS))
    bertie.good(*command.split(), "-o", "made")
    assert read_training_facts(tmp_path / "made") == model.training_facts
    settings = json.loads((tmp_path / "made" / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 20
    assert "stars" not in json.dumps(settings)
    predictor = library.load(tmp_path / "made").predictor()
    assert (predictor.task, predictor.max_length, predictor.pipeline.texts) == (task, 20, 1)
