"""RoBERTa, XLM-R and CamemBERT against `transformers`."""

from pathlib import Path

import parity
import pytest
import torch
import transformers

from bertie.families.roberta import CAMEMBERT, ROBERTA, XLMR
from bertie.models import families
from bertie.nn.layout import Packed

CONFIGS = {
    "roberta": transformers.RobertaConfig,
    "xlm-roberta": transformers.XLMRobertaConfig,
    "camembert": transformers.CamembertConfig,
}
CASES = [(v.model_type, name) for v in (ROBERTA, XLMR, CAMEMBERT) for name in v.architectures]


@pytest.mark.parametrize(("model_type", "architecture"), CASES)
def test_same_numbers(model_type: str, architecture: str, tmp_path: Path) -> None:
    config = CONFIGS[model_type](**parity.TINY, type_vocab_size=1, layer_norm_eps=1e-5)
    parity.check(architecture, config, tmp_path)


def test_positions_start_after_the_pad_token_wherever_it_is(tmp_path: Path) -> None:
    config = transformers.RobertaConfig(**parity.TINY, type_vocab_size=2, pad_token_id=4, hidden_act="relu")
    model = parity.check("RobertaForMaskedLM", config, tmp_path)
    assert model.config.max_length == parity.TINY["max_position_embeddings"] - 5


def test_a_pad_token_inside_a_text_has_no_position_of_its_own(tmp_path: Path) -> None:
    """A text may spell <pad>; what follows it is counted on, there as here, packed or padded."""
    theirs = transformers.RobertaModel(transformers.RobertaConfig(**{**parity.TINY, "initializer_range": 0.5})).eval()
    theirs.save_pretrained(tmp_path)
    ours, _ = families.load(tmp_path)
    batch = parity.inputs(ours.config)
    batch["input_ids"][0, [2, 3, 7]] = batch["input_ids"][1, 2] = 1
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        mine = ours.encoder(**batch).last_hidden_state[real]
        parity.close(mine, theirs(**batch).last_hidden_state[real], "padded")
        layout = Packed.from_lengths(real.sum(1))
        packed = ours.encoder(batch["input_ids"][real], batch["token_type_ids"][real], layout)
    parity.close(packed.last_hidden_state, mine, "packed")


def test_sizes() -> None:
    """As `transformers` counts the published models, pooler included."""
    assert parity.parameters("roberta-base", pooler=True) == 124_645_632
    assert parity.parameters("roberta-large", pooler=True) == 355_359_744
    assert parity.parameters("distilroberta-base", pooler=True) == 82_118_400
    assert parity.parameters("xlm-roberta-base", pooler=True) == 278_043_648
    assert parity.parameters("xlm-roberta-large", pooler=True) == 559_890_432
    assert parity.parameters("camembert-base", pooler=True) == 110_621_952


def recorded(layers: int, hidden: int, vocab: int) -> dict[str, tuple[int, ...]]:
    """FacebookAI/roberta-base and xlm-roberta-base, as their files name things: buffers, and a copy of the decoder.

    Newer safetensors leave out the copy. Sources: docs/families.md.
    """
    layer = {
        **{
            k: v
            for p in ("query", "key", "value")
            for k, v in parity.both(f"attention.self.{p}", hidden, hidden).items()
        },
        **parity.both("attention.output.dense", hidden, hidden),
        **parity.both("attention.output.LayerNorm", hidden),
        **parity.both("intermediate.dense", 4 * hidden, hidden),
        **parity.both("output.dense", hidden, 4 * hidden),
        **parity.both("output.LayerNorm", hidden),
    }
    return {
        "roberta.embeddings.position_ids": (1, 514),
        "roberta.embeddings.word_embeddings.weight": (vocab, hidden),
        "roberta.embeddings.position_embeddings.weight": (514, hidden),
        "roberta.embeddings.token_type_embeddings.weight": (1, hidden),
        **parity.both("roberta.embeddings.LayerNorm", hidden),
        **{f"roberta.encoder.layer.{i}.{name}": shape for i in range(layers) for name, shape in layer.items()},
        **parity.both("roberta.pooler.dense", hidden, hidden),
        "lm_head.bias": (vocab,),
        **parity.both("lm_head.dense", hidden, hidden),
        **parity.both("lm_head.layer_norm", hidden),
        "lm_head.decoder.weight": (vocab, hidden),
    }


def test_published_names() -> None:
    parity.published("roberta", "roberta-base", ("mlm",), recorded(12, 768, 50_265), pooler=True)
    parity.published("xlm-roberta", "xlm-roberta-base", ("mlm",), recorded(12, 768, 250_002), pooler=True)
