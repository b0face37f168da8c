"""Padding follows the tokens. A batch that is padded on the left is refused."""

import pytest
import torch

from bertie.errors import UsageError
from bertie.models import families
from bertie.nn.layout import Padded

LEFT = [[0, 0, 1, 1], [1, 1, 1, 1]]
SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16}


@pytest.mark.parametrize("mask", [LEFT, [[1, 0, 1, 1], [1, 1, 1, 1]]], ids=["left", "a hole"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_padding_before_a_token_is_refused(mask: list[list[int]], dtype: torch.dtype) -> None:
    with pytest.raises(UsageError, match="padding before a token"):
        Padded(torch.tensor(mask, dtype=dtype))


@pytest.mark.parametrize("preset", ["bert-tiny", "xlnet-base-cased", "elmo-small", "gpt2"])
@pytest.mark.parametrize("training", [False, True])
def test_every_family_refuses_it(preset: str, training: bool) -> None:
    heads = {} if preset == "elmo-small" else {"num_attention_heads": 2}
    model = families.build(preset, **SIZES, **heads).train(training)
    ids = torch.randint(5, 50, (2, 4, 50) if preset == "elmo-small" else (2, 4))
    for read in (model, model.encoder):
        with pytest.raises(UsageError, match="padding before a token"):
            read(ids, attention_mask=torch.tensor(LEFT))


def test_the_right_side_and_empty_rows_are_fine() -> None:
    assert Padded(torch.tensor([[1, 1, 0], [0, 0, 0], [1, 1, 1]])).max_seqlen == 3
    assert Padded(torch.ones(2, 0)).max_seqlen == 0


def test_the_meta_device_has_no_numbers_to_look_at() -> None:
    assert Padded(torch.ones(2, 3, device="meta")).max_seqlen == 3
