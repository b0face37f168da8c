"""An ensemble: the mean of the logits of its models, refused where they do not fit together."""

import json

import numpy as np
import pytest

from bertie.errors import UsageError
from bertie.infer.choose import engine_of
from bertie.infer.engine import Ensemble
from bertie.infer.predict import Predictor
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.runs.weights import load_model
from bertie.tasks import with_task
from bertie.tasks.sequence import SequenceTask
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import FeatureConfig, TrainingFacts

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["a b", "b a c", "c"]


def folder(path, seed, labels=("neg", "pos"), pieces="abc", features=None):
    """A classifier with random weights. features: the settings that its folder names."""
    path.mkdir()
    (path / "vocab.txt").write_text("\n".join([*SPECIAL, *pieces]), encoding="utf-8")
    tokenizer = Tokenizer.load(path)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = EncoderConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=32, initializer_range=0.5, **sizes)
    task = SequenceTask(labels)
    model = families.build(config, heads=task.heads, seed=seed)
    model.training_facts = with_task(
        TrainingFacts(max_length=32, too_long="truncate", texts=1, features=features), task
    )
    families.save(model, path, tokenizer=tokenizer, labels=labels, problem_type=task.problem_type)
    return path


def predictor(*paths):
    models = [load_model(path) for path in paths]
    engine = Ensemble([engine_of(model) for model in models], [model.tokenizer for model in models])
    return Predictor(engine, models[0].tokenizer)


def logits(scores):
    return np.log([scores["neg"], scores["pos"]])


def test_the_mean_of_the_logits_decides(tmp_path):
    paths = [folder(tmp_path / str(seed), seed) for seed in range(3)]
    alone = [Predictor(load_model(path)).predict(TEXTS) for path in paths]
    together = predictor(*paths).predict(TEXTS)
    for number, found in enumerate(together):
        mean = np.mean([logits(answers[number].scores) for answers in alone], axis=0)
        expected = np.exp(mean) / np.exp(mean).sum()  # a softmax does not see what each model adds to both logits
        assert [found.scores["neg"], found.scores["pos"]] == pytest.approx(expected, abs=1e-5)
    assert predictor(paths[0], paths[0]).predict(TEXTS)[0].scores == pytest.approx(alone[0][0].scores, abs=1e-6)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"labels": ("no", "yes")}, "the same labels"),
        ({"pieces": "cab"}, "the same tokenizers"),
        ({"features": FeatureConfig(column="image")}, "the same settings of features"),
    ],
)
def test_models_that_do_not_fit_are_refused(tmp_path, other, message):
    with pytest.raises(UsageError, match=message):
        predictor(folder(tmp_path / "a", 0), folder(tmp_path / "b", 1, **other))


def test_the_commands_take_more_models(tmp_path, bertie):
    a, b = folder(tmp_path / "a", 0), folder(tmp_path / "b", 1)
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": text, "label": "pos"}) + "\n" for text in TEXTS))
    written = [
        json.loads(line) for line in bertie.good("predict", a, tmp_path / "t.jsonl", "--ensemble", b).splitlines()
    ]
    assert len(written) == 3
    expected = predictor(a, b).predict(TEXTS)
    assert [row["probability"] for row in written] == pytest.approx([one.probability for one in expected], abs=2e-6)
    found = json.loads(bertie.good("evaluate", a, tmp_path / "t.jsonl", "--ensemble", b, "--against", a, "--json"))
    assert "accuracy" in found["against"]


def test_a_metric_that_is_not_defined_has_no_difference(tmp_path, bertie):
    a, b = folder(tmp_path / "a", 0), folder(tmp_path / "b", 1)
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": text, "label": "pos"}) + "\n" for text in TEXTS))
    found = json.loads(
        bertie.good("evaluate", a, tmp_path / "t.jsonl", "--against", b, "--perturb", "uppercase", "--json")
    )
    assert "mcc" in found["undefined"]
    for differences in (found["against"], found["perturbed"]["uppercase"]["differences"]):
        assert "accuracy" in differences
        assert "mcc" not in differences
