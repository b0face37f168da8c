"""Text generation with a causal model or an encoder-decoder, token by token.

    prompt -> next-token logits -> choose (the most probable, a random one, or beam search) -> ... -> the end

Each token is computed once: keys and values are kept in a cache. Options have the names and meanings of `transformers`,
whose greedy and beam search give the same tokens.

B prompts · N beams per prompt · R = B N rows · V vocabulary · L tokens
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from bertie.errors import UsageError, WrongModel
from bertie.models.encoder import EncoderOutput
from bertie.models.generation import GenerationConfig
from bertie.models.model import TorchModel
from bertie.models.seq2seq import NEXT_TOKEN, Seq2Seq, writes
from bertie.nn.attention import Cache
from bertie.nn.layout import Padded

__all__ = ["GenerationConfig", "generate", "stream"]

LOWEST = -1e9  # of a score, as good as never; scores below would make -inf - -inf


@torch.inference_mode()
def generate(
    model: TorchModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    writing: GenerationConfig | None = None,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Generates tokens. input_ids, attention_mask (B, S), padded on the right -> (B, L) int64.

    L is at most max_new_tokens. A text that is complete ends with eos_token_id, followed by pad_token_id. The prompt,
    or the decoder's start token, is not included. Raises UsageError for a model that cannot generate text.
    """
    writing = writing or GenerationConfig()
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    reader = _Reader(model, input_ids, mask.bool(), writing)
    if writing.num_beams == 1:
        return torch.stack([*_one_by_one(reader, writing, generator)], 1)
    return _beams(reader, writing)


@torch.inference_mode()
def stream(
    model: TorchModel, input_ids: Tensor, writing: GenerationConfig | None = None, *, generator: Generator | None = None
) -> Iterator[int]:
    """Yields the tokens of one text as they are generated, without the end token. input_ids (S,).

    With several beams, the text is known only at the end, so its tokens come at once. Raises UsageError as `generate`.
    """
    writing, end = writing or GenerationConfig(), model.config.eos_token_id
    mask = torch.ones_like(input_ids[None], dtype=torch.bool)
    reader = _Reader(model, input_ids[None], mask, writing)
    steps = (
        iter(_beams(reader, writing).unbind(1)) if writing.num_beams > 1 else _one_by_one(reader, writing, generator)
    )
    for tokens_R in steps:
        if (token := int(tokens_R[0])) == end:
            return
        yield token


class _Reader:
    """Adds tokens to the cache and returns next-token logits, for both kinds of model."""

    def __init__(self, model: TorchModel, input_ids: Tensor, mask: Tensor, writing: GenerationConfig) -> None:
        num_beams, most = writing.num_beams, writing.max_new_tokens
        if not writes(model):
            raise WrongModel(
                "This model cannot generate text. It needs the head 'lm', and causal attention or a decoder, "
                "as GPT-2 and T5 have."
            )
        head = model.vocabulary_head(NEXT_TOKEN)
        if not isinstance(model, Seq2Seq) and (longest := input_ids.shape[1] + most - 1) > model.config.max_length:
            raise UsageError(
                f"The text and its continuation may have {longest:,} tokens, and the model has "
                f"{model.config.max_length:,} positions. Lower max_new_tokens (--max-new-tokens; in training "
                "task_options.max_target_length), or pass a shorter text."
            )
        self.model, self.head, self.cache = model, head, Cache()
        self.rows, self.beams = len(input_ids), num_beams
        self.memory: EncoderOutput | None = None
        if isinstance(model, Seq2Seq):
            memory = model.encoder(input_ids, attention_mask=mask)
            self.memory = EncoderOutput(
                memory.last_hidden_state.repeat_interleave(num_beams, 0), Padded(mask.repeat_interleave(num_beams, 0))
            )
            input_ids = torch.full_like(input_ids[:, :1], model.config.decoder_start_token_id)
            mask = torch.ones_like(input_ids, dtype=torch.bool)
        self.first = self._read(input_ids.repeat_interleave(num_beams, 0), mask.repeat_interleave(num_beams, 0))

    def next(self, tokens: Tensor) -> Tensor:
        """Adds one token to each row, (R,). -> logits of the next (R, V) float32"""
        return self._read(tokens[:, None], torch.ones_like(tokens[:, None], dtype=torch.bool))

    def _read(self, ids: Tensor, mask: Tensor) -> Tensor:
        layout = Padded(mask)
        if isinstance(self.model, Seq2Seq) and self.memory is not None:
            output = self.model.decode(self.memory, ids, layout=layout, cache=self.cache)
        else:
            output = self.model.encoder(ids, layout=layout, cache=self.cache)
        return self.head.logits(layout.last(output.last_hidden_state), self.model.word_embeddings).float()


def _one_by_one(reader: _Reader, writing: GenerationConfig, generator: Generator | None) -> Iterator[Tensor]:
    """Yields the next token of every row (R,), until all have ended."""
    config, logits_RV = reader.model.config, reader.first
    ended_R = torch.zeros(reader.rows, dtype=torch.bool, device=logits_RV.device)
    for number in range(1, writing.max_new_tokens + 1):
        tokens_R = _draw(logits_RV, writing, generator) if writing.do_sample else logits_RV.argmax(-1)
        tokens_R = tokens_R.masked_fill(ended_R, config.pad_token_id)
        yield tokens_R
        if config.eos_token_id is not None:
            ended_R = ended_R | (tokens_R == config.eos_token_id)
        if number == writing.max_new_tokens or bool(ended_R.all()):
            return
        logits_RV = reader.next(tokens_R)


def _draw(logits_RV: Tensor, writing: GenerationConfig, generator: Generator | None) -> Tensor:
    logits_RV = logits_RV / writing.temperature
    if writing.top_k is not None:
        kth = logits_RV.topk(min(writing.top_k, logits_RV.shape[1]))[0][:, -1:]
        logits_RV = logits_RV.masked_fill(logits_RV < kth, -torch.inf)
    if writing.top_p is not None:
        probs, order = logits_RV.softmax(-1).sort(descending=True)
        beyond = probs.cumsum(-1) - probs >= writing.top_p  # never the first
        logits_RV = logits_RV.masked_fill(torch.zeros_like(beyond).scatter(1, order, beyond), -torch.inf)
    return torch.multinomial(logits_RV.softmax(-1), 1, generator=generator)[:, 0]


def _beams(reader: _Reader, writing: GenerationConfig) -> Tensor:
    """Returns the best of N beams per prompt. Each step keeps the N best open texts, and the N best complete texts."""
    config, beams, most = reader.model.config, writing.num_beams, writing.max_new_tokens
    logits_RV, device = reader.first, reader.first.device
    prompts, vocab = reader.rows, logits_RV.shape[1]
    first_row_B1 = torch.arange(prompts, device=device)[:, None] * beams
    open_BNL = torch.full((prompts, beams, most), config.pad_token_id, device=device)
    open_score_BN = torch.zeros(prompts, beams, device=device)
    open_score_BN[:, 1:] = LOWEST  # the beams start equal: only one of them counts
    done_BNL, done_score_BN = open_BNL.clone(), torch.full_like(open_score_BN, LOWEST)
    is_done_BN = torch.zeros(prompts, beams, dtype=torch.bool, device=device)
    hopeful_B1 = torch.ones(prompts, 1, dtype=torch.bool, device=device)  # an open text may still beat the ended ones
    for length in range(1, most + 1):
        score_BNV = F.log_softmax(logits_RV, -1).view(prompts, beams, vocab) + open_score_BN[..., None]
        # twice as many as beams, so that N stay open should N end
        score_BK, place_BK = score_BNV.flatten(1).topk(2 * beams)
        beam_BK, token_BK = place_BK // vocab, place_BK % vocab
        text_BKL = _pick(open_BNL, beam_BK)
        text_BKL[..., length - 1] = token_BK
        ends_BK = (
            token_BK == config.eos_token_id if config.eos_token_id is not None else torch.zeros_like(beam_BK).bool()
        )
        ends_BK = ends_BK | (length == most)

        ended_BK = ends_BK & (torch.arange(2 * beams, device=device) < beams)  # only what is among the best N counts
        shut_B1 = ~hopeful_B1 | (is_done_BN.all(1, keepdim=True) & writing.early_stopping)
        final_BK = score_BK / length**writing.length_penalty
        final_BK = final_BK + LOWEST * (~ended_BK).float() + LOWEST * shut_B1.float()
        done_score_BN, best_BN = torch.cat([done_score_BN, final_BK], 1).topk(beams)
        done_BNL = _pick(torch.cat([done_BNL, text_BKL], 1), best_BN)
        is_done_BN = torch.cat([is_done_BN, ended_BK], 1).gather(1, best_BN)

        open_score_BN, kept_BN = (score_BK + LOWEST * ends_BK.float()).topk(beams)
        open_BNL = _pick(text_BKL, kept_BN)

        hope_B1 = open_score_BN[:, :1] / length**writing.length_penalty
        worst_B1 = done_score_BN.min(1, keepdim=True)[0].where(is_done_BN, LOWEST)
        hopeful_B1 = hopeful_B1 & (hope_B1 > worst_B1).any(1, keepdim=True)
        full = writing.early_stopping and bool(is_done_BN.all())
        if length == most or full or not bool(hopeful_B1.any()):
            break
        reader.cache.reorder((first_row_B1 + beam_BK.gather(1, kept_BN)).flatten())
        logits_RV = reader.next(token_BK.gather(1, kept_BN).flatten())
    return _trim(done_BNL[:, 0], config.pad_token_id, config.eos_token_id)


def _pick(text_BNL: Tensor, which_BK: Tensor) -> Tensor:
    return text_BNL.gather(1, which_BK[..., None].expand(-1, -1, text_BNL.shape[2]))


def _trim(text_BL: Tensor, pad: int, eos: int | None) -> Tensor:
    """Removes the columns after the longest text."""
    if eos is None:
        return text_BL
    ended_BL = (text_BL == eos).cumsum(1) - (text_BL == eos).long() > 0  # after the end of a text
    return text_BL.masked_fill(ended_BL, pad)[:, : max(1, int((~ended_BL).sum(1).max()))]
