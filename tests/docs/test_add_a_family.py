"""The family of docs/add-a-family.md gives the numbers of `transformers`, with every head."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "twins"))
import parity

from bertie import families
from bertie.models.variant import Variant
from bertie.registry import Registry

transformers = pytest.importorskip("transformers")
PAGE = Path(__file__).parents[2] / "docs" / "add-a-family.md"


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path_factory.mktemp("variant") / "roberta_prelayernorm.py"
    path.write_text(shown, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("roberta_prelayernorm", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


ARCHITECTURES = [
    f"RobertaPreLayerNorm{name}"
    for name in ("Model", "ForMaskedLM", "ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification",
                 "ForQuestionAnswering")
]  # fmt: skip


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_same_numbers(architecture: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    new: Variant = module.ROBERTA_PRELAYERNORM
    assert list(new.architectures) == ARCHITECTURES
    rows = [*((v.model_type, v) for v in families.FAMILIES), (new.model_type, new)]
    monkeypatch.setattr(families, "VARIANTS", Registry("model_type", rows))
    config = transformers.RobertaPreLayerNormConfig(**parity.TINY, type_vocab_size=1)
    parity.check(architecture, config, tmp_path)
