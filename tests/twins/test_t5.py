"""T5 against `transformers`: encoder, decoder, heads, both directions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import parity
import pytest
import torch
import transformers
from parity import close

from bertie.families.t5 import T5
from bertie.models import families
from bertie.models.encoder import Encoder
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.models.seq2seq import Seq2Seq
from bertie.models.weights import public_state
from bertie.nn.layout import Packed
from bertie.nn.positions import relative_buckets

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "d_model": 32,
    "d_kv": 6,
    "d_ff": 48,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
}
WRITTEN = (5, 7, 2, 4)  # tokens of the decoder's sequences


def theirs_of(architecture: str, folder: Path, *, untied: bool = False, **changes: Any) -> Any:
    torch.manual_seed(1)
    config = transformers.T5Config(**SIZES | changes)
    config._attn_implementation = "eager"
    model = getattr(transformers, architecture)(config).eval()
    if untied:
        model.lm_head.weight = torch.nn.Parameter(torch.randn(99, 32))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5).add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return model


def batch_of(model: TorchModel) -> dict[str, torch.Tensor]:
    batch = parity.inputs(model.config)
    written = torch.tensor(WRITTEN)
    mask = torch.arange(max(WRITTEN))[None] < written[:, None]
    ids = torch.randint(5, 99, mask.shape).masked_fill(~mask, 0)
    ids[:, 0] = 0
    return {**batch, "decoder_input_ids": ids, "decoder_attention_mask": mask.long()}


@pytest.mark.parametrize("feed_forward", ["relu", "gated-gelu", "gated-silu", "gelu"])
def test_the_encoder(feed_forward: str, tmp_path: Path) -> None:
    theirs = theirs_of("T5EncoderModel", tmp_path / "theirs", feed_forward_proj=feed_forward)
    ours, report = families.load(tmp_path / "theirs")
    assert not report.fresh + report.unused
    batch = parity.inputs(ours.config)
    real, flags = batch["attention_mask"].bool(), {"output_hidden_states": True, "output_attentions": True}
    with torch.no_grad():
        mine, other = ours.encoder(**batch, **flags), theirs(**batch, **flags)
    _same(mine.hidden_states, other.hidden_states, real)
    _same([x.transpose(1, 2) for x in mine.attentions], [x.transpose(1, 2) for x in other.attentions], real)
    packed = ours.encoder(batch["input_ids"][real], layout=Packed.from_lengths(real.sum(1)))
    close(packed.last_hidden_state, mine.last_hidden_state[real], "packed")
    _same_folder(ours, theirs, tmp_path)


@pytest.mark.parametrize("feed_forward", ["relu", "gated-gelu"])
@pytest.mark.parametrize("architecture", ["T5Model", "T5ForConditionalGeneration"])
def test_encoder_and_decoder(architecture: str, feed_forward: str, tmp_path: Path) -> None:
    theirs = theirs_of(architecture, tmp_path / "theirs", feed_forward_proj=feed_forward)
    ours, report = families.load(tmp_path / "theirs")
    assert not report.fresh + report.unused
    _same_numbers(ours, theirs)
    _same_folder(ours, theirs, tmp_path)


def test_a_decoder_matrix_of_its_own(tmp_path: Path) -> None:
    """Version 1.1: not tied, not scaled. Which of the two a file is, its weights say."""
    theirs = theirs_of("T5ForConditionalGeneration", tmp_path / "theirs", untied=True, tie_word_embeddings=False)
    ours, report = families.load(tmp_path / "theirs")
    assert not report.fresh + report.unused
    assert not ours.config.heads.lm.lm_tied
    assert not ours.config.heads.lm.lm_scale
    _same_numbers(ours, theirs)
    ours.save_pretrained(tmp_path / "ours")
    again = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / "ours")
    assert torch.equal(again.lm_head.weight, theirs.lm_head.weight)
    assert families.config(tmp_path / "ours") == ours.config


def test_a_whole_folder_opens_as_an_encoder(tmp_path: Path) -> None:
    theirs = theirs_of("T5ForConditionalGeneration", tmp_path / "theirs")
    ours, report = families.load(tmp_path / "theirs", heads={})
    assert not report.fresh
    assert all(name.startswith("decoder.") for name in report.unused)
    ours.save_pretrained(tmp_path / "ours")
    again, info = transformers.T5EncoderModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    batch = parity.inputs(ours.config)
    with torch.no_grad():
        alone = again.eval()(**batch).last_hidden_state
        close(alone, theirs.encoder(**batch).last_hidden_state, "saved")
        close(ours.encoder(**batch).last_hidden_state, alone, "opened")
    assert not isinstance(ours, Seq2Seq)


@pytest.mark.parametrize(
    ("architecture", "head"),
    [
        ("T5ForSequenceClassification", "sequence"),
        ("T5ForTokenClassification", "token"),
        ("T5ForQuestionAnswering", "span"),
    ],
)
def test_heads_that_label(architecture: str, head: str, tmp_path: Path) -> None:
    """The decoder reads the text the encoder has read; its last token, </s>, represents the sequence."""
    theirs = theirs_of(architecture, tmp_path / "theirs", num_labels=2 if head == "span" else 3)
    ours, report = families.load(tmp_path / "theirs")
    assert not report.fresh + report.unused
    assert tuple(ours.heads) == T5.architectures[architecture]
    batch = parity.inputs(ours.config)
    real = batch["attention_mask"].bool()
    batch["input_ids"][torch.arange(len(real)), real.sum(1) - 1] = 1
    ours.train(), theirs.train()
    mine, output = ours(**batch)[head], theirs(**batch)
    other = torch.stack([output.start_logits, output.end_logits], -1) if head == "span" else output.logits
    at_tokens = mine.shape[:2] == real.shape
    mine, other = (x[real] if at_tokens else x for x in (mine, other))
    close(mine, other, "logits")

    weights = torch.linspace(-1, 1, mine.numel()).view_as(mine)
    ((mine + other) * weights).sum().backward()
    expected = {T5.table.today(name): p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    gradients = {name: p.grad for name, p in ours.named_parameters() if p.grad is not None}
    for name, gradient in public_state(gradients, T5.table, base=True):
        close(gradient, expected.pop(name), f"gradient of {name}")
    assert not expected

    packed = Inputs(batch["input_ids"][real], None, Packed.from_lengths(real.sum(1)))
    close(ours.heads[head](ours.encode(packed)), mine, "packed")
    ours.eval(), theirs.eval()
    _same_folder(ours, theirs, tmp_path)


@dataclass
class Inputs:
    input_ids: torch.Tensor
    token_type_ids: Any
    layout: Packed


def test_a_task_finds_the_decoder_it_needs(tmp_path: Path) -> None:
    """A classifier on T5 reads the decoder, which comes from the file; a tagger does without."""
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "attention_head_size": 8, "intermediate_size": 48}
    writes = lambda config: {name: HEADS[name](config, 0) for name in ("decoder", "lm")}  # noqa: E731
    families.build("t5-small", heads=writes, **sizes, vocab_size=99, num_hidden_layers=2).save_pretrained(tmp_path)
    model, report = families.load(tmp_path, heads=lambda config: {"sequence": HEADS["sequence"](config, 3)})
    assert tuple(model.heads) == ("decoder", "sequence")
    assert all(name.startswith("heads.sequence.") for name in report.fresh)
    model.save_pretrained(tmp_path / "b", labels=("x", "y", "z"))
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "b")
    assert type(theirs).__name__ == "T5ForSequenceClassification"
    model, report = families.load(tmp_path, heads=lambda config: {"token": HEADS["token"](config, 3)})
    assert tuple(model.heads) == ("token",)
    assert all(name.startswith("decoder.") for name in report.unused)


def _same_numbers(ours: TorchModel, theirs: Any) -> None:
    batch = batch_of(ours)
    real, written = batch["attention_mask"].bool(), batch["decoder_attention_mask"].bool()
    flags = {"output_hidden_states": True, "output_attentions": True}
    other = theirs(**batch, **flags)
    memory = ours.encoder(batch["input_ids"], attention_mask=batch["attention_mask"], **flags)
    mine = ours.decode(memory, batch["decoder_input_ids"], attention_mask=batch["decoder_attention_mask"], **flags)
    _same(memory.hidden_states, other.encoder_hidden_states, real)
    _same(mine.hidden_states, other.decoder_hidden_states, written)
    for ours_, theirs_ in (
        (mine.attentions, other.decoder_attentions),
        (mine.cross_attentions, other.cross_attentions),
    ):
        _same([x.transpose(1, 2) for x in ours_], [x.transpose(1, 2) for x in theirs_], written)

    packed_memory = ours.encoder(batch["input_ids"][real], layout=Packed.from_lengths(real.sum(1)))
    layout = Packed.from_lengths(written.sum(1))
    packed = ours.decode(packed_memory, batch["decoder_input_ids"][written], layout=layout)
    close(packed.last_hidden_state, mine.last_hidden_state[written], "packed")

    ours.train(), theirs.train()
    logits = ours(**batch)
    output = theirs(**batch)
    a, b = (logits["lm"], output.logits) if "lm" in logits else (logits["decoder"], output.last_hidden_state)
    close(a[written], b[written], "logits")
    weights = torch.linspace(-1, 1, a[written].numel()).view_as(a[written])
    ((a + b)[written] * weights).sum().backward()
    table = ours.variant.table  # type: ignore[union-attr]
    expected = {table.today(name): parameter.grad for name, parameter in theirs.named_parameters()}
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    for name, gradient in public_state(gradients, table, base=True):
        close(gradient, expected.pop(name), f"gradient of {name}")
    assert not expected


def _same(ours: Any, theirs: Any, real: torch.Tensor) -> None:
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        close(a[real], b[real], f"layer {i}")


def _same_folder(ours: TorchModel, theirs: Any, folder: Path) -> None:
    ours.save_pretrained(folder / "ours")
    for name in ("config.json", "model.safetensors"):
        assert (folder / "ours" / name).read_bytes() == (folder / "theirs" / name).read_bytes(), name
    again, info = type(theirs).from_pretrained(folder / "ours", output_loading_info=True)
    assert not any(info.values()), info
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def test_what_we_build_opens_there(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "attention_head_size": 8, "intermediate_size": 48}
    for preset in ("t5-small", "t5-v1_1-small"):
        ours = families.build(
            preset,
            heads=lambda config: {name: HEADS[name](config, 0) for name in ("decoder", "lm")},
            **sizes,
            vocab_size=99,
            initializer_range=0.2,
        ).eval()
        ours.save_pretrained(tmp_path / preset)
        theirs, info = transformers.T5ForConditionalGeneration.from_pretrained(
            tmp_path / preset, output_loading_info=True
        )
        assert not any(info.values()), info
        batch = batch_of(ours)
        with torch.no_grad():
            a, b = ours(**batch)["lm"], theirs.eval()(**batch).logits
        written = batch["decoder_attention_mask"].bool()
        close(a[written], b[written], preset)


@pytest.mark.parametrize("preset", ["t5-small", "t5-v1_1-small"])
def test_first_values_deviate_as_there(preset: str) -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 8, "attention_head_size": 16, "intermediate_size": 256}
    heads = lambda config: {name: HEADS[name](config, 0) for name in ("decoder", "lm")}  # noqa: E731
    ours = families.build(preset, heads=heads, **sizes, vocab_size=1000, num_hidden_layers=2, num_decoder_layers=2)
    named = dict(public_state(dict(ours.named_parameters()), T5.table, base=True))
    config = transformers.T5Config(**T5.public(ours.config, {}))
    theirs = {T5.table.today(name): x for name, x in transformers.T5ForConditionalGeneration(config).named_parameters()}
    for name, mine in named.items():
        if name == "lm_head.weight":  # `transformers` 5 ties it, the release has it as the word embeddings
            assert float(mine.std()) == pytest.approx(1, rel=0.02)
        elif mine.ndim == 2:
            spread = 0.2 if "relative" in name else 0.05  # of few numbers
            assert float(mine.std()) == pytest.approx(float(theirs[name].detach().std()), rel=spread), name
        else:
            assert torch.equal(mine, theirs[name]), name


@pytest.mark.parametrize(("both_sides", "buckets", "distance"), [(True, 32, 128), (False, 32, 128), (True, 8, 12)])
def test_buckets(both_sides: bool, buckets: int, distance: int) -> None:
    apart = torch.arange(-300, 301)
    attention = transformers.models.t5.modeling_t5.T5Attention
    expected = attention._relative_position_bucket(apart, both_sides, buckets, distance)
    ours = relative_buckets(apart, both_sides=both_sides, num_buckets=buckets, max_distance=distance)
    assert torch.equal(ours, expected)


def _built(preset: str, heads: tuple[str, ...]) -> TorchModel:
    config = families.config(preset)
    with torch.device("meta"):
        return TorchModel(Encoder(config), {name: HEADS[name](config, 0) for name in heads})


def test_sizes() -> None:
    """As `transformers` counts the published models."""
    sizes = {
        "t5-small": 60_506_624,
        "t5-base": 222_903_552,
        "t5-large": 737_668_096,
        "t5-3b": 2_851_598_336,
        "t5-v1_1-small": 76_961_152,
        "t5-v1_1-base": 247_577_856,
        "t5-v1_1-large": 783_150_080,
        "t5-v1_1-xl": 2_849_757_184,
        "flan-t5-xxl": 11_135_332_352,
    }
    for preset, size in sizes.items():
        model = _built(preset, ("decoder", "lm"))
        assert sum(parameter.numel() for parameter in model.parameters()) == size, preset


def test_published_names() -> None:
    """google-t5/t5-small: names and shapes of its file, with the table that nobody reads."""
    inner = {f"{part}.weight": (512, 512) for part in "qkvo"}
    norm = {"layer_norm.weight": (512,)}
    feed_forward = {"DenseReluDense.wi.weight": (2048, 512), "DenseReluDense.wo.weight": (512, 2048), **norm}
    attention = {f"SelfAttention.{name}": shape for name, shape in inner.items()} | norm
    cross = {f"EncDecAttention.{name}": shape for name, shape in inner.items()} | norm
    sides = {"encoder": (attention, feed_forward), "decoder": (attention, cross, feed_forward)}
    recorded: dict[str, tuple[int, ...]] = {"shared.weight": (32_128, 512)}
    for side, halves in sides.items():
        recorded |= {
            f"{side}.block.{i}.layer.{j}.{name}": shape
            for i in range(6)
            for j, half in enumerate(halves)
            for name, shape in half.items()
        }
        recorded[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = (32, 8)
        recorded[f"{side}.final_layer_norm.weight"] = (512,)
        recorded[f"{side}.embed_tokens.weight"] = (32_128, 512)
    recorded["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = (32, 8)
    model = _built("t5-small", ("decoder", "lm"))
    ours = {name: tuple(x.shape) for name, x in public_state(dict(model.named_parameters()), T5.table, base=True)}
    today = {T5.table.today(name): shape for name, shape in recorded.items()}
    today.pop(None)
    assert today == ours
