"""VisualBERT against `transformers`: text alone by the shared walk, and text with regions in every way theirs reads it.

B sequences · S longest text · R regions of a sequence · D numbers of a region · A aligned words
"""

from pathlib import Path
from typing import Any

import parity
import pytest
import torch
import transformers
from torch import Tensor

from bertie.families.visual_bert import VISUAL_BERT
from bertie.models import families
from bertie.models.model import TorchModel
from bertie.models.weights import public_state
from bertie.nn.features import Features
from bertie.nn.layout import Packed, Padded

TINY: dict[str, Any] = {**parity.TINY, "visual_embedding_dim": 7}
SIZES, REGIONS = (9, 4, 6), (5, 1, 3)  # tokens and regions of each sequence


@pytest.mark.parametrize("architecture", VISUAL_BERT.architectures)
def test_same_numbers_without_regions(architecture: str, tmp_path: Path) -> None:
    """The walk that every family takes; in it the sequences are texts, as BERT reads them."""
    if architecture == "VisualBertModel":
        parity.check(architecture, transformers.VisualBertConfig(**TINY), tmp_path)
        return
    theirs = _theirs(architecture)
    theirs.save_pretrained(tmp_path / "theirs")
    ours, report = families.load(tmp_path / "theirs")
    assert report.fresh + report.unused == ()
    ours.save_pretrained(tmp_path / "ours")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes(), name
    _, info = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info


def _theirs(architecture: str) -> Any:
    torch.manual_seed(1)
    config = transformers.VisualBertConfig(**TINY, num_labels=3)
    config._attn_implementation = "eager"
    theirs = getattr(transformers, architecture)(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return theirs


def _inputs(aligned: bool) -> dict[str, Tensor]:
    """Theirs: texts padded to the longest, then regions padded to the most."""
    torch.manual_seed(0)
    text_BS = torch.arange(max(SIZES))[None] < torch.tensor(SIZES)[:, None]
    region_BR = torch.arange(max(REGIONS))[None] < torch.tensor(REGIONS)[:, None]
    batch = {
        "input_ids": torch.randint(5, 99, text_BS.shape).masked_fill(~text_BS, 1),
        "attention_mask": text_BS.long(),
        "token_type_ids": torch.randint(2, text_BS.shape) * text_BS,
        "visual_embeds": torch.randn(*region_BR.shape, 7),
        "visual_attention_mask": region_BR.long(),
    }
    if aligned:  # some regions have no word, some have two
        batch["image_text_alignment"] = torch.randint(-1, min(SIZES), (*region_BR.shape, 2))
    return batch


def _ours(batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, Packed, Features]:
    """The same, packed: each text, and its regions right after it."""
    ids, types, rows, vectors, aligned = [], [], list[int](), [], []
    for b, (size, count) in enumerate(zip(SIZES, REGIONS, strict=True)):
        ids += [batch["input_ids"][b, :size], torch.full((count,), 1)]
        types += [batch["token_type_ids"][b, :size], torch.zeros(count, dtype=torch.long)]
        start = sum(SIZES[:b]) + sum(REGIONS[:b]) + size
        rows += range(start, start + count)
        vectors.append(batch["visual_embeds"][b, :count])
        if "image_text_alignment" in batch:
            aligned.append(batch["image_text_alignment"][b, :count])
    lengths = torch.tensor(SIZES) + torch.tensor(REGIONS)
    features = Features(torch.tensor(rows), torch.cat(vectors), torch.cat(aligned) if aligned else None)
    return torch.cat(ids), torch.cat(types), Packed.from_lengths(lengths), features


def _rows(theirs_BSH: Tensor) -> Tensor:
    """Real tokens and regions of theirs, sequence by sequence, as ours are packed."""
    most = max(SIZES)
    parts = [
        part
        for b, (size, count) in enumerate(zip(SIZES, REGIONS, strict=True))
        for part in (theirs_BSH[b, :size], theirs_BSH[b, most : most + count])
    ]
    return torch.cat(parts)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("architecture", ["VisualBertForPreTraining", "VisualBertForVisualReasoning"])
def test_same_logits_and_gradients_with_regions(
    architecture: str, aligned: bool, training: bool, tmp_path: Path
) -> None:
    theirs = _theirs(architecture)
    theirs.save_pretrained(tmp_path)
    ours, _ = families.load(tmp_path)
    batch = _inputs(aligned)
    ids, types, layout, features = _ours(batch)
    ours.train(training), theirs.train(training)
    with parity.computing_in(torch.float64, ours, theirs):
        doubled = {name: x.double() if x.is_floating_point() else x for name, x in batch.items()}
        other = theirs(**doubled, output_hidden_states=True)
        mine = ours.run_encoder(ids, types, layout, features=features, output_hidden_states=True)
        for a, b in zip(mine.hidden_states or (), other.hidden_states, strict=True):
            parity.close(a, _rows(b), "hidden state")
        logits = ours.all_logits(mine)
        if architecture.endswith("PreTraining"):
            pairs = [
                (logits["mlm"], _rows(other.prediction_logits)),
                (logits["pair"], other.seq_relationship_logits),
            ]
        else:
            pairs = [(logits["sequence"], other.logits)]
        loss = torch.zeros(())
        for a, b in pairs:
            parity.close(a, b, "logits")
            loss = loss + ((a + b) * torch.linspace(-1, 1, a.numel()).view_as(a)).sum()
        loss.backward()
        _same_gradients(ours, theirs)
    quick = ours.all_logits(ours.run_encoder(ids, types, layout, features=features))
    for a, b in zip(quick.values(), (b for _, b in pairs), strict=True):
        torch.testing.assert_close(a.double(), b, atol=parity.FLOAT32 * max(1.0, float(b.abs().max())), rtol=0)


def _same_gradients(ours: TorchModel, theirs: Any) -> None:
    expected = {VISUAL_BERT.table.today(name): p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    gradients = {name: p.grad for name, p in ours.named_parameters() if p.grad is not None}
    around = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in public_state(gradients, VISUAL_BERT.table, base=True):
        wanted = expected.pop(name)
        if name.endswith("word_embeddings.weight"):
            wanted[1] = gradient[1]  # theirs gives the padding no gradient, ours has none to give: its row is a label
        parity.close(gradient, wanted, f"gradient of {name}", least_scale=around)
    assert not expected, f"no gradient here for {', '.join(expected)}"


def test_without_regions_exactly_bert(tmp_path: Path) -> None:
    """The same weights under BERT's names give the same bits."""
    bert = families.build("bert-tiny", seed=3, vocab_size=99).eval()
    regions = families.build("visualbert-tiny", seed=5, vocab_size=99).eval()
    shared = dict(bert.named_parameters())
    with torch.no_grad():
        for name, parameter in regions.named_parameters():
            if name in shared:
                parameter.copy_(shared[name])
    ids, layout = torch.randint(5, 99, (20,)), Packed.from_lengths(torch.tensor([12, 8]))
    a, b = (model.run_encoder(ids, None, layout) for model in (bert, regions))
    assert torch.equal(a.last_hidden_state, b.last_hidden_state)
    assert a.pooler_output is not None
    assert b.pooler_output is not None
    assert torch.equal(a.pooler_output, b.pooler_output)


def test_new_tables_start_as_those_of_the_text() -> None:
    model = families.build("visualbert-tiny", vocab_size=99)
    embeddings = model.encoder.embeddings
    assert torch.equal(embeddings.features.position.weight, embeddings.position.weight)
    assert torch.equal(embeddings.features.segment.weight, embeddings.segment.weight)


def test_regions_of_one_example_change_no_other() -> None:
    model = families.build("visualbert-tiny", vocab_size=99, visual_embedding_dim=7).eval()
    ids, types, layout, features = _ours(_inputs(aligned=False))
    changed = features.vectors.clone()
    changed[: REGIONS[0]] += 3
    with torch.no_grad():
        a = model.run_encoder(ids, types, layout, features=features).last_hidden_state
        b = model.run_encoder(ids, types, layout, features=Features(features.rows, changed)).last_hidden_state
    first = SIZES[0] + REGIONS[0]
    assert float((a[:first] - b[:first]).abs().max()) > 1e-2
    torch.testing.assert_close(a[first:], b[first:], atol=1e-6, rtol=0)


def test_packed_as_padded() -> None:
    model = families.build("visualbert-tiny", vocab_size=99, visual_embedding_dim=7).eval()
    ids, types, layout, features = _ours(_inputs(aligned=False))
    padded = Padded(layout.mask())
    cells = torch.arange(layout.mask().numel()).view_as(layout.mask())[layout.mask()]
    moved = Features(cells[features.rows], features.vectors)
    with torch.no_grad():
        a = model.run_encoder(ids, types, layout, features=features).last_hidden_state
        b = model.run_encoder(layout.rectangle(ids), layout.rectangle(types), padded, features=moved).last_hidden_state
    torch.testing.assert_close(a, b[layout.mask()], atol=1e-5, rtol=0)
