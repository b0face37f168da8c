"""LXMERT against `transformers`: hidden states, logits and gradients with padded texts and regions, and both folders.

B sequences · S longest text · R regions of a sequence
"""

from pathlib import Path
from typing import Any

import parity
import pytest
import torch
import transformers
from test_visual_bert import REGIONS, SIZES
from torch import Tensor

from bertie.families.lxmert import LXMERT
from bertie.models import families
from bertie.models.model import TorchModel
from bertie.models.weights import public_state
from bertie.nn.features import Features
from bertie.nn.layout import Packed, Padded

TINY: dict[str, Any] = {name: value for name, value in parity.TINY.items() if name != "num_hidden_layers"} | {
    "l_layers": 2,
    "r_layers": 1,
    "x_layers": 2,
    "visual_feat_dim": 7,
    "task_obj_predict": False,
    "task_qa": False,
    "num_qa_labels": 3,
}


def _theirs(architecture: str) -> Any:
    torch.manual_seed(1)
    theirs = getattr(transformers, architecture)(transformers.LxmertConfig(**TINY)).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return theirs


def inputs() -> dict[str, Tensor]:
    """Theirs: texts padded to the longest, and regions padded to the most. The last four numbers are the location."""
    torch.manual_seed(0)
    text_BS = torch.arange(max(SIZES))[None] < torch.tensor(SIZES)[:, None]
    region_BR = torch.arange(max(REGIONS))[None] < torch.tensor(REGIONS)[:, None]
    return {
        "input_ids": torch.randint(5, 99, text_BS.shape) * text_BS,
        "attention_mask": text_BS.long(),
        "token_type_ids": torch.randint(2, text_BS.shape) * text_BS,
        "visual_feats": torch.randn(*region_BR.shape, 7),
        "visual_pos": torch.rand(*region_BR.shape, 4),
        "visual_attention_mask": region_BR.long(),
    }


def packed(batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, Packed, Features]:
    """The same, packed: each text, and its regions right after it."""
    ids, types, rows, vectors, start = [], [], list[int](), [], 0
    both = torch.cat([batch["visual_feats"], batch["visual_pos"]], -1)
    for b, (size, count) in enumerate(zip(SIZES, REGIONS, strict=True)):
        ids += [batch["input_ids"][b, :size], torch.zeros(count, dtype=torch.long)]
        types += [batch["token_type_ids"][b, :size], torch.zeros(count, dtype=torch.long)]
        rows += range(start + size, start + size + count)
        vectors.append(both[b, :count])
        start += size + count
    layout = Packed.from_lengths(torch.tensor(SIZES) + torch.tensor(REGIONS))
    return torch.cat(ids), torch.cat(types), layout, Features(torch.tensor(rows), torch.cat(vectors))


def _rows(text_BSH: Tensor, regions_BRH: Tensor) -> Tensor:
    parts = zip(SIZES, REGIONS, text_BSH, regions_BRH, strict=True)
    return torch.cat([one for size, count, a, b in parts for one in (a[:size], b[:count])])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("architecture", LXMERT.architectures)
def test_same_numbers_and_gradients(architecture: str, training: bool, tmp_path: Path) -> None:
    theirs = _theirs(architecture)
    theirs.save_pretrained(tmp_path)
    ours, report = families.load(tmp_path)
    assert report.fresh + report.unused == ()
    batch = inputs()
    ids, types, layout, features = packed(batch)
    ours.train(training), theirs.train(training)
    with parity.computing_in(torch.float64, ours, theirs):
        doubled = {name: x.double() if x.is_floating_point() else x for name, x in batch.items()}
        bare = theirs if architecture == "LxmertModel" else theirs.lxmert
        encoded = bare(**doubled, output_hidden_states=True)
        mine = ours.run_encoder(ids, types, layout, features=features, output_hidden_states=True)
        parity.close(mine.last_hidden_state, _rows(encoded.language_output, encoded.vision_output), "last hidden state")
        text = torch.ones(len(ids), dtype=torch.bool).index_fill(0, features.rows, value=False)
        assert mine.hidden_states is not None
        for a, b in zip(mine.hidden_states[1:], encoded.language_hidden_states, strict=True):
            parity.close(a[text], torch.cat([x[:size] for x, size in zip(b, SIZES, strict=True)]), "hidden state")
        pairs = [(mine.last_hidden_state, _rows(encoded.language_output, encoded.vision_output))]
        if architecture != "LxmertModel":
            assert mine.pooler_output is not None
            parity.close(mine.pooler_output, encoded.pooled_output, "pooled")
            other, logits = theirs(**doubled), ours.all_logits(mine)
        if architecture == "LxmertForPreTraining":
            scores = torch.cat([x[:size] for x, size in zip(other.prediction_logits, SIZES, strict=True)])
            pairs = [(logits["mlm"][text], scores), (logits["pair"], other.cross_relationship_score)]
        if architecture == "LxmertForQuestionAnswering":
            pairs = [(logits["sequence"], other.question_answering_score)]
        loss = torch.zeros(())
        for a, b in pairs:
            parity.close(a, b, "logits")
            loss = loss + ((a + b) * torch.linspace(-1, 1, a.numel()).view_as(a)).sum()
        loss.backward()
        _same_gradients(ours, theirs)


def _same_gradients(ours: TorchModel, theirs: Any) -> None:
    expected = {LXMERT.table.today(name): p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    gradients = {name: p.grad for name, p in ours.named_parameters() if p.grad is not None}
    around = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in public_state(gradients, LXMERT.table, base=True):
        wanted = expected.pop(name, torch.zeros_like(gradient))  # of what no loss reads there
        if "embeddings." in name and "LayerNorm" not in name:
            wanted[0] = gradient[0]  # theirs gives none to [PAD], and none to the first position and segment
        parity.close(gradient, wanted, f"gradient of {name}", least_scale=around)
    unused = {name for name in expected if not float(expected[name].abs().max())}
    assert not expected.keys() - unused, f"no gradient here for {', '.join(expected)}"


@pytest.mark.parametrize("architecture", LXMERT.architectures)
def test_same_folder(architecture: str, tmp_path: Path) -> None:
    theirs = _theirs(architecture)
    theirs.save_pretrained(tmp_path / "theirs")
    ours, _ = families.load(tmp_path / "theirs")
    ours.save_pretrained(tmp_path / "ours")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes(), name
    _, info = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info


def test_an_own_folder_opens_there(tmp_path: Path) -> None:
    """With the number of answers under the key that their class reads."""
    heads = lambda config: {"sequence": families_head(config)}  # noqa: E731
    ours = families.build("lxmert-tiny", heads=heads, vocab_size=99)
    ours.labels = ("red", "blue")
    ours.save_pretrained(tmp_path)
    _, info = transformers.LxmertForQuestionAnswering.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info


def families_head(config: Any) -> torch.nn.Module:
    """A head of two answers."""
    from bertie.models.heads import HEADS

    return HEADS["sequence"](config, 2)


def test_packed_as_padded() -> None:
    model = families.build("lxmert-tiny", vocab_size=99, visual_feat_dim=7).eval()
    ids, types, layout, features = packed(inputs())
    cells = torch.arange(layout.mask().numel()).view_as(layout.mask())[layout.mask()]
    moved = Features(cells[features.rows], features.vectors)
    padded = Padded(layout.mask())
    with torch.no_grad():
        a = model.run_encoder(ids, types, layout, features=features).last_hidden_state
        b = model.run_encoder(layout.rectangle(ids), layout.rectangle(types), padded, features=moved).last_hidden_state
    torch.testing.assert_close(a, b[layout.mask()], atol=1e-5, rtol=0)
