"""The classes of docs/evaluation.md let mteb measure models of Bertie."""

import csv
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

import bertie
from toys import toy_model

mteb = pytest.importorskip("mteb")

PAGE = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8").partition("## With mteb")[2]
META: dict[str, Any] = {
    **{"description": "Rows of a test.", "reference": None, "modalities": ["text"], "eval_splits": ["test"]},
    **{"eval_langs": ["eng-Latn"], "date": ("2020-01-01", "2020-12-31"), "domains": ["Written"], "task_subtypes": []},
    **{"license": "not specified", "annotations_creators": "derived", "dialect": [], "sample_creation": "found"},
    **{"bibtex_citation": "", "category": "t2t", "dataset": {"path": "local/rows", "revision": "1"}},
}
WORDS = "abcdefgh"
TEXTS = [" ".join(WORDS[(i * 3 + j * (1 + i % 3)) % 8] for j in range(3 + i % 4)) for i in range(24)]


@pytest.fixture(scope="module")
def classes() -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], found)  # of the page of this repository
    return found


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("model") / "encoder", WORDS, max_position_embeddings=128)


def evaluated(model: object, task: object) -> float:
    return (
        mteb.evaluate(model, [task], cache=None, encode_kwargs={}, show_progress_bar=False).task_results[0].get_score()
    )


def sts(rows: list[tuple[str, str, float]]) -> object:
    from datasets import Dataset, DatasetDict
    from mteb.abstasks import AbsTaskSTS

    class Rows(AbsTaskSTS):
        metadata = mteb.TaskMetadata(name="LocalSTS", type="STS", main_score="cosine_spearman", **META)
        min_score, max_score = 0, 5

        def load_data(self, **_: object) -> None:
            columns = dict(zip(("sentence1", "sentence2", "score"), map(list, zip(*rows, strict=True)), strict=True))
            self.dataset, self.data_loaded = DatasetDict({"test": Dataset.from_dict(columns)}), True

    return Rows()


def retrieval(kind: str, top: dict[str, list[str]] | None = None) -> object:
    from datasets import Dataset
    from mteb.abstasks import AbsTaskRetrieval

    class Rows(AbsTaskRetrieval):
        metadata = mteb.TaskMetadata(name=f"Local{kind}", type=kind, main_score="ndcg_at_10", **META)

        def load_data(self, **_: object) -> None:
            ids = [str(i) for i in range(len(TEXTS))]
            split = {
                "corpus": Dataset.from_dict({"id": ids, "title": [""] * len(ids), "text": TEXTS}),
                "queries": Dataset.from_dict({"id": ids[:4], "text": [text.replace("a", "b") for text in TEXTS[:4]]}),
                "relevant_docs": {i: {i: 1} for i in ids[:4]},
                "top_ranked": top,
            }
            self.dataset, self.data_loaded = {"default": {"test": split}}, True

    return Rows()


def spearman(model: bertie.Model, rows: list[tuple[str, str, float]]) -> float:
    first, second = (model.embed([row[i] for row in rows], normalize=True) for i in (0, 1))
    return float(spearmanr((first * second).sum(1), [row[2] for row in rows]).statistic)


def test_encoders_are_measured(classes: dict[str, Any], encoder: Path) -> None:
    rows = [(TEXTS[i], TEXTS[i + 1], float(i * 7 % 6)) for i in range(20)]
    model = classes["Encoder"](encoder)
    assert isinstance(model, mteb.EncoderProtocol)
    assert evaluated(model, sts(rows)) == pytest.approx(spearman(model.model, rows), abs=1e-4)
    assert 0 < evaluated(model, retrieval("Retrieval")) <= 1


def test_cross_encoders_rerank(classes: dict[str, Any], encoder: Path, tmp_path: Path) -> None:
    rows = [{"sentence1": TEXTS[i], "sentence2": TEXTS[i + 1], "score": i % 5 / 4} for i in range(20)]
    bertie.finetune(encoder, rows, task="regression", epochs=1, output=tmp_path / "run")
    model = classes["CrossEncoder"](tmp_path / "run")
    assert isinstance(model, mteb.CrossEncoderProtocol)
    top = {str(i): [str(j) for j in range(8)] for i in range(4)}
    assert 0 < evaluated(model, retrieval("Reranking", top)) <= 1


@pytest.mark.slow
def test_published_pairs_have_the_spearman_of_bertie(classes: dict[str, Any]) -> None:
    file = Path(os.environ.get("BERTIE_DATA", "")) / "glue" / "STS-B" / "dev.tsv"
    if not file.is_file():
        pytest.skip("STS-B is not there")
    table = csv.DictReader(file.open(encoding="utf-8"), delimiter="\t", quoting=csv.QUOTE_NONE)
    rows = [(row["sentence1"], row["sentence2"], float(row["score"])) for row in table]
    model = classes["Encoder"]("starter-en")
    score = evaluated(model, sts(rows))
    assert score == pytest.approx(spearman(model.model, rows), abs=1e-4)
    assert np.round(score, 2) == 0.81
