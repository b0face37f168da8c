"""The family of docs/add-a-family.md, installed by pip, gives the numbers of `transformers`, with every head."""

from pathlib import Path

import pytest

from packages import blocks, install, python

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
from bertie import families
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
