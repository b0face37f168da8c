"""Writing equals `transformers`' generate token for token, and reading with a cache equals reading everything again."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from parity import close

from bertie.errors import DataError, UsageError
from bertie.infer.generate import GenerationConfig, generate
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.nn.attention import Cache
from bertie.nn.layout import Padded

LENGTHS = (7, 3, 5)
SEEDS = range(4)


def t5(folder: Path, seed: int) -> tuple[TorchModel, Any]:
    torch.manual_seed(seed)
    config = transformers.T5Config(
        vocab_size=30, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    return _random(transformers.T5ForConditionalGeneration(config), folder, 0.6)


def gpt2(folder: Path, seed: int) -> tuple[TorchModel, Any]:
    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=30, n_embd=16, n_layer=2, n_head=4, n_positions=40, pad_token_id=0, eos_token_id=1, bos_token_id=1
    )
    return _random(transformers.GPT2LMHeadModel(config), folder, 0.5)


def _random(theirs: Any, folder: Path, std: float) -> tuple[TorchModel, Any]:
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn_like(parameter) * std)
    theirs.eval().save_pretrained(folder)
    return families.load(folder)[0], theirs


def prompts() -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None]
    return torch.randint(2, 30, mask.shape).masked_fill(~mask, 0), mask.long()


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Token for token; except for the padding after the end of a text: theirs fills with the end where pad is 0."""
    length = max(ours.shape[1], theirs.shape[1])
    a, b = (torch.nn.functional.pad(x, (0, length - x.shape[1])) for x in (ours, theirs))
    a, b = (x.masked_fill((x == 1).cumsum(1) > 0, 1) for x in (a, b))
    assert torch.equal(a, b), f"\n{a}\n{b}"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_beams": 4},
        {"num_beams": 4, "length_penalty": 2.0},
        {"num_beams": 3, "length_penalty": 0.0},
        {"num_beams": 4, "early_stopping": True},
        {"num_beams": 2, "length_penalty": -1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", SEEDS)
def test_t5_writes_the_same(options: dict[str, Any], seed: int, tmp_path: Path) -> None:
    ours, theirs = t5(tmp_path, seed)
    ids, mask = prompts()
    expected = theirs.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False, **options)
    same(generate(ours, ids, mask, GenerationConfig(max_new_tokens=12, **options)), expected[:, 1:])


@pytest.mark.parametrize("options", [{}, {"num_beams": 4}, {"num_beams": 3, "early_stopping": True}], ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_gpt2_writes_the_same(options: dict[str, Any], seed: int, tmp_path: Path) -> None:
    """Ours reads prompts padded on the right, theirs on the left."""
    ours, theirs = gpt2(tmp_path, seed)
    ids, mask = prompts()
    left = torch.stack([row.roll(len(row) - length) for row, length in zip(ids, LENGTHS, strict=True)])
    expected = theirs.generate(left, attention_mask=(left != 0).long(), max_new_tokens=12, do_sample=False, **options)
    same(generate(ours, ids, mask, GenerationConfig(max_new_tokens=12, **options)), expected[:, left.shape[1] :])


@pytest.mark.parametrize(
    ("preset", "settings"),
    [
        *(("gpt2", {}), ("openai-gpt", {}), ("bert-base-ltr", {})),
        ("bert-base-ltr", {"positions_after_pad": True}),
        ("bert-base-ltr", {"bottleneck_size": 8}),
        ("bert-base-ltr", {"attention_window": 4}),
        ("bert-base-ltr", {"positions": "rotary", "attention": "alternating", "local_attention": 4}),
    ],
)
def test_cached_reading_is_reading_again(preset: str, settings: dict[str, Any]) -> None:
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 30}
    model = families.build(preset, **sizes, **settings, num_hidden_layers=2, initializer_range=0.3).eval()
    ids, mask = prompts()
    later = torch.randint(2, 30, (3, 4))
    cache = Cache()
    with torch.no_grad():
        model.encoder(ids, attention_mask=mask, cache=cache)
        first = model.encoder(later[:, :1], layout=Padded(torch.ones(3, 1).bool()), cache=cache)
        rest = model.encoder(later[:, 1:], layout=Padded(torch.ones(3, 3).bool()), cache=cache)
        for i, length in enumerate(LENGTHS):
            whole = model.encoder(torch.cat([ids[i, :length], later[i]])[None]).last_hidden_state[0, length:]
            close(first.last_hidden_state[i], whole[:1], "first")
            close(rest.last_hidden_state[i], whole[1:], "rest")


def test_a_causal_model_has_no_trigrams() -> None:
    """They would show it the token that it predicts."""
    with pytest.raises(DataError, match="reads the next token"):
        families.config("bert-base-ltr", trigram_embeddings=True)


def test_drawing(tmp_path: Path) -> None:
    ours, _ = gpt2(tmp_path, 0)
    ids, mask = prompts()
    seeded = [
        generate(ours, ids, mask, GenerationConfig(do_sample=True), generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    ]
    assert torch.equal(seeded[0], seeded[1])
    assert not torch.equal(seeded[0][:, :3], seeded[2][:, :3])
    greedy = generate(ours, ids, mask)
    for narrow in (GenerationConfig(do_sample=True, top_k=1), GenerationConfig(do_sample=True, top_p=1e-6)):
        assert torch.equal(generate(ours, ids, mask, narrow), greedy)


def test_the_share_of_what_is_drawn() -> None:
    """top_p keeps the fewest of the likeliest that reach it: of 0.5, 0.3, 0.15, 0.05 the first two make 0.7."""
    from bertie.infer.generate import _draw

    logits = torch.tensor([[0.15, 0.5, 0.05, 0.3]]).log().expand(4000, 4)
    draws = _draw(logits, GenerationConfig(do_sample=True, top_p=0.7), torch.Generator().manual_seed(0)).bincount(
        minlength=4
    )
    assert draws[[0, 2]].sum() == 0
    assert abs(draws[1] / 4000 - 0.5 / 0.8) < 0.03


def test_who_cannot_write_says_so() -> None:
    model = families.build("bert-tiny", heads=lambda config: {"mlm": HEADS["mlm"](config, 0)})
    with pytest.raises(UsageError, match="cannot generate text"):
        generate(model, torch.ones(1, 3, dtype=torch.int64))
    refused = ({"max_new_tokens": 0}, {"temperature": 0.0}, {"temperature": 1e-40}, {"length_penalty": float("nan")})
    for wrong in (*refused, {"top_p": 2.0}, {"num_beams": 2, "do_sample": True}):
        with pytest.raises(UsageError):
            GenerationConfig(**wrong)
