"""XLNet against `transformers`: one stream and two, every head, both directions, gradients.

B sequences · S longest sequence · M predictions a sequence
"""

from pathlib import Path
from typing import Any

import parity
import pytest
import torch
import transformers
from parity import close
from torch import Tensor

from bertie.errors import UsageError
from bertie.families.xlnet import XLNET
from bertie.models import families
from bertie.models.model import TorchModel
from bertie.models.weights import public_state
from bertie.nn.layout import Packed

TINY: dict[str, Any] = {
    "vocab_size": 99,
    "d_model": 32,
    "n_layer": 3,
    "n_head": 4,
    "d_inner": 48,
    "dropout": 0.0,
    "summary_last_dropout": 0.0,
    "initializer_range": 0.1,
}
SUMMED_UP = ("XLNetForSequenceClassification", "XLNetForMultipleChoice")


@pytest.mark.parametrize("architecture", XLNET.architectures)
def test_same_numbers(architecture: str, tmp_path: Path) -> None:
    """`transformers` takes the last column for a sequence's summary, which is the last token where none is padded."""
    lengths = (9, 9, 9, 9) if architecture in SUMMED_UP else parity.LENGTHS
    parity.check(architecture, transformers.XLNetConfig(**TINY), tmp_path, lengths=lengths)


def test_texts_padded_on_the_left(tmp_path: Path) -> None:
    """As XLNet's own tokenizer pads them: distances do not know of it, and the last column is the last token."""
    ours, theirs = pair("XLNetForSequenceClassification", tmp_path)
    lengths = [11, 3, 8, 1]
    batch = parity.inputs(ours.config, lengths=tuple(lengths))
    left = {
        name: torch.stack([row.roll(11 - n) for row, n in zip(x, lengths, strict=True)]) for name, x in batch.items()
    }
    with torch.no_grad():
        close(ours(**batch)["sequence"], theirs(**left).logits, "logits")


@pytest.mark.parametrize("lengths", [(7, 7), (9, 4, 6)])
@pytest.mark.parametrize("segments", [True, False])
def test_two_streams(lengths: tuple[int, ...], segments: bool, tmp_path: Path) -> None:
    ours, theirs = pair("XLNetLMHeadModel", tmp_path)
    batch = parity.inputs(ours.config, lengths=lengths)
    if not segments:
        del batch["token_type_ids"]
    perm_mask, targets = permuted(lengths, predictions=3)
    ours.train(), theirs.train()
    mine = ours.encoder(
        **batch, perm_mask=perm_mask, target_positions=targets, output_hidden_states=True, output_attentions=True
    )
    other = theirs(
        **batch,
        perm_mask=perm_mask.float(),
        target_mapping=torch.nn.functional.one_hot(targets, max(lengths)).float(),
        output_hidden_states=True,
        output_attentions=True,
    )
    real, size = batch["attention_mask"].bool(), max(lengths)
    streams = zip(
        other.hidden_states[::2], other.hidden_states[1::2], strict=True
    )  # one after the other, layer by layer
    for i, (x, (tokens, queries)) in enumerate(zip(mine.hidden_states, streams, strict=True)):
        close(x[:, :size][real], tokens[real], f"tokens {i}")
        close(x[:, size:], queries, f"queries {i}")
    for i, (probs, (tokens, queries)) in enumerate(zip(mine.attentions, other.attentions, strict=True)):
        close(probs[:, :, :size].transpose(1, 2)[real], tokens.transpose(1, 2)[real], f"attention of tokens {i}")
        rows = targets[:, None, :, None].expand(-1, probs.shape[1], -1, size)
        close(probs[:, :, size:], queries.gather(2, rows), f"attention of queries {i}")
    logits = ours.heads["plm"].logits(mine.last_hidden_state, ours.word_embeddings)
    close(logits, other.logits, "logits")
    weights = torch.linspace(-1, 1, logits.numel()).view_as(logits)
    ((logits + other.logits) * weights).sum().backward()
    same_gradients(ours, theirs)


def test_an_order_on_one_stream(tmp_path: Path) -> None:
    ours, theirs = pair("XLNetModel", tmp_path)
    batch = parity.inputs(ours.config, lengths=(7, 5))
    perm_mask, _ = permuted((7, 5), predictions=2)
    with torch.no_grad():
        mine, other = ours.encoder(**batch, perm_mask=perm_mask), theirs(**batch, perm_mask=perm_mask.float())
    real = batch["attention_mask"].bool()
    close(mine.last_hidden_state[real], other.last_hidden_state[real], "last_hidden_state")


def test_two_streams_packed(tmp_path: Path) -> None:
    ours, _ = pair("XLNetModel", tmp_path)
    lengths = (9, 4, 6)
    batch = parity.inputs(ours.config, lengths=lengths)
    order: dict[str, Any] = dict(zip(("perm_mask", "target_positions"), permuted(lengths, predictions=3), strict=True))
    real = batch["attention_mask"].bool()
    layout = Packed.from_lengths(torch.tensor(lengths))
    with torch.no_grad():
        padded = ours.encoder(**batch, **order).last_hidden_state
        packed = ours.encoder(
            batch["input_ids"][real], batch["token_type_ids"][real], layout, **order
        ).last_hidden_state
    close(packed, padded, "queries")


def test_a_query_does_not_know_its_token(tmp_path: Path) -> None:
    """Nor what comes after it in the order; what comes before it, it knows."""
    ours, _ = pair("XLNetLMHeadModel", tmp_path)
    order = [3, 0, 4, 1, 2]  # position 3 is predicted first
    rank = torch.tensor(order).argsort()
    perm_mask = (rank[:, None] <= rank[None])[None]
    ids = torch.tensor([[10, 11, 12, 13, 14]])
    targets = torch.tensor([[4]])

    def at(position: int) -> Tensor:
        changed = ids.clone()
        changed[0, position] = 50
        with torch.no_grad():
            return ours.encoder(changed, perm_mask=perm_mask, target_positions=targets).last_hidden_state

    base = at(4)  # its own token
    assert torch.equal(base, at(1))
    assert torch.equal(base, at(2))
    assert not torch.allclose(base, at(3))
    assert not torch.allclose(base, at(0))


def test_targets_need_an_order() -> None:
    ours = families.build(XLNET.base.replace(vocab_size=99, num_hidden_layers=1), variant="xlnet")
    with pytest.raises(UsageError, match="perm_mask"):
        ours.encoder(torch.ones(1, 4, dtype=torch.long), target_positions=torch.tensor([[1]]))


def test_sizes() -> None:
    """As `transformers` counts the published models, without heads."""
    for preset, shape in (
        ("xlnet-base-cased", {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072}),
        ("xlnet-large-cased", {}),
    ):
        with torch.device("meta"):
            theirs = transformers.XLNetModel(transformers.XLNetConfig(**shape))
        assert parity.parameters(preset) == sum(p.numel() for p in theirs.parameters())


def test_published_names() -> None:
    """Those of xlnet/xlnet-base-cased, as the conversion script of `transformers` names them."""
    layer = dict.fromkeys("qkvor", (768, 12, 64))
    layer |= dict.fromkeys(("r_r_bias", "r_s_bias", "r_w_bias"), (12, 64)) | {"seg_embed": (2, 12, 64)}
    recorded: dict[str, tuple[int, ...]] = {
        "transformer.mask_emb": (1, 1, 768),
        "transformer.word_embedding.weight": (32_000, 768),
        "lm_loss.weight": (32_000, 768),
        "lm_loss.bias": (32_000,),
    }
    for i in range(12):
        stem = f"transformer.layer.{i}"
        recorded |= {f"{stem}.rel_attn.{name}": shape for name, shape in layer.items()}
        recorded |= parity.both(f"{stem}.rel_attn.layer_norm", 768) | parity.both(f"{stem}.ff.layer_norm", 768)
        recorded |= parity.both(f"{stem}.ff.layer_1", 3072, 768) | parity.both(f"{stem}.ff.layer_2", 768, 3072)
    parity.published("xlnet", "xlnet-base-cased", ("plm",), recorded, pooler=False)


def pair(architecture: str, folder: Path) -> tuple[TorchModel, Any]:
    """One random model, here and there."""
    torch.manual_seed(1)
    config = transformers.XLNetConfig(**TINY, attn_implementation="eager")
    theirs = getattr(transformers, architecture)(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    theirs.save_pretrained(folder)
    ours, report = families.load(folder)
    assert report.fresh + report.unused == ()
    return ours, theirs


def permuted(lengths: tuple[int, ...], *, predictions: int) -> tuple[Tensor, Tensor]:
    """A random order for each sequence: perm_mask (B, S, S), and the positions of the last few in it, (B, M)."""
    torch.manual_seed(5)
    perm_mask = torch.zeros(len(lengths), max(lengths), max(lengths), dtype=torch.bool)
    targets = torch.zeros(len(lengths), predictions, dtype=torch.long)
    for row, n in enumerate(lengths):
        order = torch.randperm(n)
        rank = order.argsort()
        known = rank < n - predictions  # these see one another, and are not predicted
        perm_mask[row, :n, :n] = (rank[:, None] <= rank[None]) & ~known
        targets[row] = order[n - predictions :]
    return perm_mask, targets


def same_gradients(ours: TorchModel, theirs: Any) -> None:
    table = XLNET.table
    expected = {table.today(name): p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    gradients = {name: p.grad for name, p in ours.named_parameters() if p.grad is not None}
    for name, gradient in public_state(gradients, table, base=True):
        close(gradient, expected.pop(name), f"gradient of {name}")
    assert not expected
