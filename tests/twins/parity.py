"""A family's numbers against `transformers`, both directions: what tests/twins/test_<family>.py share.

B sequences · S longest sequence · T real tokens
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.models.weights import public_state
from bertie.nn.layout import Packed

# Sums in another order, as each processor has its own; relative to a tensor's largest number where that is above 1.
# A sum of n numbers is off by some eps * sqrt(n): 1e-6 and 2e-15 for the longest ones here, which a badly conditioned
# layer makes a hundred times larger. What is compared with float64 allows no mistake in a formula to hide.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
FLOAT32 = 1e-3  # float32 compared with float64: three random layers make rounding a thousand times larger
LENGTHS = (11, 3, 8, 1)
LOGITS = {  # our head -> where `transformers` puts its logits, in one class or another
    "mlm": ("prediction_logits", "logits"),
    "pair": ("seq_relationship_logits", "sop_logits", "logits"),
}
TINY: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 20,
    "initializer_range": 0.1,  # large enough that every part of the model shows in the logits
}


def close(ours: Tensor, theirs: Tensor, what: str, *, least_scale: float = 1.0) -> None:
    """Assert that two tensors are the same numbers."""
    scale = max(least_scale, float(theirs.detach().abs().max()) if theirs.numel() else 1.0)
    atol = TOLERANCE[theirs.dtype] * scale
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=0, msg=lambda text: f"{what}: {text}")


def inputs(config: EncoderConfig, *, lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> dict[str, Tensor]:
    """A padded batch of random tokens, none of them the pad token; a few are global where attention is windowed."""
    torch.manual_seed(seed)
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    ids = torch.randint(5, config.vocab_size, mask.shape).masked_fill(~mask, config.pad_token_id)
    batch = {"input_ids": ids, "attention_mask": mask.long()}
    if config.type_vocab_size > 1:
        batch["token_type_ids"] = torch.randint(config.type_vocab_size, mask.shape) * mask
    if config.get("attention_window") is not None:
        batch["global_attention_mask"] = (torch.rand(mask.shape) < 0.2).long() * mask
    return batch


def check(
    architecture: str,
    config: transformers.PretrainedConfig,
    folder: Path,
    *,
    lengths: tuple[int, ...] = LENGTHS,
    dtype: torch.dtype = torch.float64,
    stored: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda gradients: gradients,
) -> TorchModel:
    """Everything a class of `transformers` promises holds here, for one random model of it. Returns ours.

    stored: their gradients by the names in their files, where a loaded model has others.
    dtype: to compare in; float32 where theirs computes parts in it (Longformer's softmax, XLNet's sines) in any case.
    """
    torch.manual_seed(1)
    config.num_labels = 2 if "QuestionAnswering" in architecture or architecture.endswith("PreTraining") else 3
    config._attn_implementation = "eager"  # the one that shows attentions
    theirs = getattr(transformers, architecture)(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # their biases are 0 and their norms 1, which would hide a mix-up
            parameter.add_(torch.randn_like(parameter) * 0.1)
        for module in theirs.modules():  # the values at padding are zero, as at initialization
            if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx] = 0
    theirs.save_pretrained(folder / "theirs")
    ours, report = families.load(folder / "theirs")
    assert report.fresh + report.unused == (), str(report)
    variant = ours.variant
    assert variant is not None
    assert tuple(ours.heads) == variant.architectures[architecture]

    batch = inputs(ours.config, lengths=lengths)
    with computing_in(dtype, ours, theirs):
        _same_encoder(ours, theirs, batch)
        _same_logits_and_gradients(ours, theirs, batch, stored)
        _packed_as_padded(ours, batch)
        exact = _hidden(ours, batch)
    _same_folder(ours, theirs, folder)
    quick, scale = _hidden(ours, batch), max(1.0, float(exact.abs().max()))
    torch.testing.assert_close(quick.double(), exact.double(), atol=FLOAT32 * scale, rtol=0)
    return ours


@contextmanager
def computing_in(dtype: torch.dtype, *models: torch.nn.Module) -> Iterator[None]:
    """In float64 the order of summation, each processor's own, hardly shows."""
    for model in models:
        model.to(dtype)
    yield
    for model in models:
        model.float()  # the very bits they had


def _hidden(ours: TorchModel, batch: Mapping[str, Tensor]) -> Tensor:
    with torch.no_grad():
        hidden: Tensor = ours.encoder(**batch).last_hidden_state[batch["attention_mask"].bool()]
    return hidden


def _same_encoder(ours: TorchModel, theirs: Any, batch: Mapping[str, Tensor]) -> None:
    real, flags = batch["attention_mask"].bool(), {"output_hidden_states": True, "output_attentions": True}
    with torch.no_grad():
        mine, other = ours.encoder(**batch, **flags), theirs.base_model(**batch, **flags)
    close(mine.last_hidden_state[real], other.last_hidden_state[real], "last_hidden_state")
    for i, (a, b) in enumerate(zip(mine.hidden_states, other.hidden_states, strict=True)):
        close(a[real], b[real], f"hidden state {i}")
    for i, (a, b) in enumerate(zip(mine.attentions, other.attentions, strict=True)):
        close(a.transpose(1, 2)[real], b.transpose(1, 2)[real], f"attention {i}")
    if other.get("global_attentions") is not None:
        counts = batch["global_attention_mask"].sum(1)
        for i, (a, b) in enumerate(zip(mine.global_attentions, other.global_attentions, strict=True)):
            for row, (n, length) in enumerate(zip(counts, real.sum(1), strict=True)):
                close(a[row, :, :length, :n], b[row, :, :length, :n], f"global attention {i}")
    if other.get("pooler_output") is not None:
        close(mine.pooler_output, other.pooler_output, "pooler_output")


def _same_logits_and_gradients(
    ours: TorchModel,
    theirs: Any,
    batch: Mapping[str, Tensor],
    stored: Callable[[dict[str, Tensor]], dict[str, Tensor]],
) -> None:
    """In training mode, without dropout."""
    ours.train(), theirs.train()
    mine = ours(**batch) if ours.heads else {"hidden": ours.encoder(**batch).last_hidden_state}
    if "choice" in ours.heads:
        batch_BCS = {name: x.unflatten(0, (2, -1)) for name, x in batch.items()}  # as many choices as questions
        other = {"choice": theirs(**batch_BCS).logits.flatten()}
    else:
        output = theirs(**batch)
        other = {name: _logits(name, output) for name in mine}
    loss = torch.zeros(())
    for name in mine:
        a, b = (_real(logits[name], batch) for logits in (mine, other))
        close(a, b, f"logits of {name}")
        weights = torch.linspace(-1, 1, a.numel()).view_as(a)
        loss = loss + ((a + b) * weights).sum()  # one backward pass for both
    loss.backward()
    table = ours.variant.table  # type: ignore[union-attr]
    found = stored({name: p.grad for name, p in theirs.named_parameters() if p.grad is not None})
    expected = {table.today(name): gradient for name, gradient in found.items()}
    word = table.public("encoder.embeddings.word.weight")[0]
    for name in ("heads.mlm.weight", "heads.lm.weight"):  # some classes call what is tied by its other name
        if name in table and table.public(name)[0] in expected and name not in dict(ours.named_parameters()):
            expected[word] = expected.pop(table.public(name)[0])
    gradients = {name: p.grad for name, p in ours.named_parameters() if p.grad is not None}
    # the gradient of a key's bias is 0 but for the rounding of what cancels, which is as large as what is around it
    around = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in public_state(gradients, table, base=True):
        close(gradient, expected.pop(name), f"gradient of {name}", least_scale=around if "key.bias" in name else 1.0)
    assert not expected, f"no gradient here for {', '.join(expected)}"
    ours.eval(), theirs.eval()


def _real(x: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """The values at tokens, without padding."""
    return x[batch["attention_mask"].bool()] if x.shape[:2] == batch["input_ids"].shape else x


def _logits(head: str, output: Any) -> Tensor:
    if head == "span":
        return torch.stack([output.start_logits, output.end_logits], -1)
    if head == "hidden":
        return output.last_hidden_state
    return next(output[key] for key in LOGITS.get(head, ("logits",)) if key in output)


def _packed_as_padded(ours: TorchModel, batch: Mapping[str, Tensor]) -> None:
    real = batch["attention_mask"].bool()
    layout = Packed.from_lengths(real.sum(1))
    flat = {name: x[real] for name, x in batch.items() if name != "attention_mask"}
    with torch.no_grad():
        packed = ours.encoder(**flat, layout=layout)
        padded = ours.encoder(**batch)
    close(packed.last_hidden_state, padded.last_hidden_state[real], "packed")
    expected = ours.all_logits(padded)
    for name, logits in ours.all_logits(packed).items():
        close(logits, _real(expected[name], batch), f"packed {name}")


def _same_folder(ours: TorchModel, theirs: Any, folder: Path) -> None:
    """What was read is written back as it was, and opens there with nothing missing and nothing left over."""
    ours.save_pretrained(folder / "ours")
    for name in ("config.json", "model.safetensors"):
        assert (folder / "ours" / name).read_bytes() == (folder / "theirs" / name).read_bytes(), name
    again, info = type(theirs).from_pretrained(folder / "ours", output_loading_info=True)
    assert not any(info.values()), info
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def published(
    model_type: str, preset: str, heads: tuple[str, ...], recorded: Mapping[str, tuple[int, ...]], *, pooler: bool
) -> None:
    """The names and shapes recorded of a published file are exactly those of our model; nothing is allocated.

    The records were written down and then held against listings that others made of the published files, where such
    were found: docs/families.md says which. The tests open no such file.
    """
    variant = families.VARIANTS[model_type]
    config = variant.presets[preset].replace(pooler=pooler)
    with torch.device("meta"):
        model = TorchModel(variant.encoder(config), {name: HEADS[name](config, 2) for name in heads})
    ours = {name: tuple(x.shape) for name, x in public_state(dict(model.named_parameters()), variant.table, base=True)}
    today = {variant.table.today(name): shape for name, shape in recorded.items()}
    today.pop(None, None)
    for name in ("heads.mlm.weight", "heads.lm.weight"):  # copies of what is tied
        if name in variant.table:
            today.pop(variant.table.public(name)[0], None)
    assert today == ours


def parameters(preset: str, **changes: Any) -> int:
    """How many the bare encoder of a preset has."""
    variant = families.family(preset)
    with torch.device("meta"):
        return sum(p.numel() for p in variant.encoder(families.config(preset, **changes)).parameters())


def both(name: str, *shape: int) -> dict[str, tuple[int, ...]]:
    """A recorded linear layer or norm: weight of this shape, and its bias."""
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
