"""A last layer that computes some tokens alone gives them the states, losses and gradients of one that computes all."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.encoder import Encoder
from bertie.models.heads import HEADS
from bertie.models.model import SUMMARY, TorchModel
from bertie.nn.init import initialize
from bertie.nn.layout import Packed, Padded
from bertie.objectives.base import Objective
from bertie.objectives.mlm import MaskedLM
from bertie.objectives.pair import NextSentence
from tests.twins.test_attention_kinds import KINDS, SMALL

LENGTHS = torch.tensor([13, 29, 5, 22])
MORE: dict[str, dict[str, Any]] = {
    "convolution, one layer": {
        "positions": "disentangled",
        "max_relative_positions": 256,
        "num_hidden_layers": 1,
        "conv_kernel_size": 3,
    },
    "alternating": {"positions": "rotary", "attention": "alternating", "local_attention": 8, "norm": "pre"},
    "learned relative": {"positions": "learned_relative"},
    "disentangled": {"positions": "disentangled", "max_relative_positions": 256},
    "rotary": {"positions": "rotary"},
    "relative, pre-norm": {"positions": "relative", "norm": "pre", "norm_type": "rms"},
    "pre-norm": {"norm": "pre", "pooler": True},
    "post-norm": {"pooler": True},
}


def model_of(changes: Mapping[str, Any], layout: Packed | Padded) -> tuple[TorchModel, Batch]:
    config = SMALL.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **changes)
    heads = {name: HEADS[name](config, 3) for name in ("mlm", "sequence")}
    model = TorchModel(Encoder(config), heads).double().train()
    initialize(model, std=0.2, seed=0)
    drawn = torch.Generator().manual_seed(7)
    shape = (int(LENGTHS.sum()),) if isinstance(layout, Packed) else layout.mask().shape
    ids = torch.randint(5, config.vocab_size, shape, generator=drawn)
    return model, Batch(ids, torch.zeros_like(ids), layout, torch.arange(len(LENGTHS)))


def layouts() -> dict[str, Packed | Padded]:
    mask = torch.arange(int(LENGTHS.max()))[None] < LENGTHS[:, None]
    return {"packed": Packed.from_lengths(LENGTHS), "padded": Padded(mask)}


def gradients(model: TorchModel, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


def assert_equal(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, found in ours.items():
        torch.testing.assert_close(
            found, theirs[name], atol=1e-9, rtol=1e-9, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("kind", [*KINDS, *MORE])
def test_the_tokens_that_are_read(kind: str, layout: str) -> None:
    model, batch = model_of({**KINDS, **MORE}[kind], layouts()[layout])
    places = torch.tensor([1, 4, 30, 40, 41])
    found = {}
    for read in (places, None):
        output = model.encode(batch, read=read)
        states, summary = output.last_hidden_state.flatten(0, -2)[places], output.summary()
        pooled = summary if output.pooler_output is None else output.pooler_output
        grads = gradients(model, states.cos().sum() + summary.sin().sum() + pooled.cos().sum())
        found[read is None] = {
            "states": states.detach(),
            "summary": summary.detach(),
            "pooled": pooled.detach(),
            **grads,
        }
    assert_equal(found[False], found[True])


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_a_head_on_the_summary_tokens(layout: str) -> None:
    model, batch = model_of(MORE["post-norm"], layouts()[layout])
    assert model.summary_only("sequence")
    assert not model.summary_only("mlm")
    found = [gradients(model, model.logits("sequence", output).cos().sum()) for output in (
        model.encode_for("sequence", batch), model.encode(batch)
    )]  # fmt: skip
    assert_equal(*found)


@pytest.mark.parametrize(
    "changes",
    [{"label_pooling": "mean"}, {"label_pooling": "cls_layers"}, {"label_lstm": 8}, {"label_pooling": "attention"}],
    ids=str,
)
def test_a_head_on_all_tokens_reads_all(changes: dict[str, Any]) -> None:
    model, _ = model_of(changes, layouts()["packed"])
    assert not model.summary_only("sequence")


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("kind", [*KINDS, *MORE])
def test_the_last_layer_computes_no_other_token(kind: str, layout: str) -> None:
    model, batch = model_of({**KINDS, **MORE}[kind], layouts()[layout])
    rows: list[int] = []
    *_, last = model.encoder.in_order()
    of_layer = lambda _module, inputs, _output: rows.append(inputs[0].flatten(0, -2).shape[0])  # noqa: E731
    last.down.register_forward_hook(of_layer)
    last.attention.output.register_forward_hook(of_layer)

    def computed(**which: Any) -> list[int]:  # by attention's output and by the feed-forward network
        rows.clear()
        model.encode(batch, **which)
        return rows[-2:]

    places = torch.tensor([1, 4])  # besides the four [CLS]
    assert computed(read=SUMMARY) == [4, 4]
    assert computed(read=places) == [6, 6]
    whole = 72 if layout == "packed" else 4 * 29  # 69 tokens run as 72
    assert computed() == [whole, whole]
    assert computed(read=SUMMARY, output_hidden_states=True) == [whole, whole]


@pytest.mark.parametrize("objective", [MaskedLM(), MaskedLM() + NextSentence()], ids=lambda one: one.name)
def test_objectives_have_the_loss_of_all_tokens(objective: Objective) -> None:
    model, batch = model_of(MORE["post-norm"], layouts()["packed"])
    model.heads["pair"] = HEADS["pair"](model.config).double()
    places = torch.tensor([3, 17, 33, 50])
    batch = batch.with_labels(
        mlm_positions=places, mlm_targets=batch.input_ids[places], nsp_labels=torch.tensor([0, 1, 1, 0])
    )
    found = []
    for output in (objective.forward(model, batch), model.encode(batch)):
        report = objective.loss(model, output, batch)
        found.append(gradients(model, torch.stack([part.total for part in report.values()]).sum()))
    assert_equal(*found)


def test_a_decoder_reads_every_state_of_the_encoder() -> None:
    sizes = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    heads = {"sequence": lambda config: {"sequence": HEADS["sequence"](config, 3)}}["sequence"]
    model = families.build("t5-small", heads=heads, seed=0, **sizes, intermediate_size=24).double().eval()
    batch = Batch(
        torch.arange(5, 17), torch.zeros(12).long(), Packed.from_lengths(torch.tensor([7, 5])), torch.arange(2)
    )
    read, whole = (model.logits("sequence", one) for one in (model.encode_for("sequence", batch), model.encode(batch)))
    torch.testing.assert_close(read, whole)
