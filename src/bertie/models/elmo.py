"""ELMo: words from their characters, two LSTM language models, and a weighted sum of all layers that the task learns.

    words -> characters -> CNN  ------------------------.
                            |-> LSTMs, both ways -> + --|-> gamma * sum of softmax(s) x layer = a word's vector
                                    |-> LSTMs -> + -----'

It has the interface of `Encoder`, with words instead of subwords, and is used for its vectors of words. Task models
read the weighted sum; its own objective, `bilm`, reads the top layer. Peters et al. 2018, arXiv:1802.05365.

B sequences · T words of the batch · S longest sequence · C characters per word · H = 2 P hidden size · V vocabulary
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn, ones, zeros

from bertie.errors import DataError, UsageError
from bertie.models.config import ENCODER_CHOICES, EncoderConfig
from bertie.models.count import forward_flops, parameters, predictions_per_token
from bertie.models.encoder import EncoderOutput
from bertie.models.head_config import HeadConfigs, SequenceConfig
from bertie.models.kinds import MAX_SETTING, NoPositions, Positions, within
from bertie.nn.characters import CHARACTER_IDS, CharacterCNN, character_ids
from bertie.nn.dropout import dropout
from bertie.nn.layout import Layout, Packed, Padded
from bertie.nn.recurrent import BiLSTM, mirror
from bertie.text.tokenizer import Tokenizer

MOST_FILTERS = 100  # kinds of them


@dataclass(frozen=True, kw_only=True)
class ElmoConfig(EncoderConfig):
    """hidden_size: both directions together; intermediate_size: cells per direction; vocab_size: words of the softmax.

    The defaults are those of the published original (options.json).
    """

    unread: ClassVar = frozenset(
        {*ENCODER_CHOICES, "num_attention_heads", "hidden_act", "layer_norm_eps", "attention_probs_dropout_prob"}
    )

    vocab_size: int = 793_471
    hidden_size: int = 1024
    num_hidden_layers: int = 2
    num_attention_heads: int = 1  # there is no attention
    intermediate_size: int = 4096
    type_vocab_size: int = 0
    embedding_size: int | None = 16  # of a character
    positions: Positions = NoPositions()  # an LSTM reads on and on
    pooler: bool = False
    heads: HeadConfigs = field(default=HeadConfigs(sequence=SequenceConfig(sequence_act="tanh")))
    char_vocab_size: int = CHARACTER_IDS
    max_characters_per_token: int = 50
    filters: tuple[tuple[int, int], ...] = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    num_highway_layers: int = 2
    cell_clip: float = 3.0  # 0: none
    state_clip: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        within("char_vocab_size", self.char_vocab_size, CHARACTER_IDS, MAX_SETTING)
        within("max_characters_per_token", self.max_characters_per_token, 3, 10_000)
        within("num_highway_layers", self.num_highway_layers, 0, 1_000)
        within("number of filters", len(self.filters), 1, MOST_FILTERS)
        for width, count in self.filters:
            within("filter width", width, 1, self.max_characters_per_token)
            within("filter count", count, 1, MAX_SETTING)
        for name in ("cell_clip", "state_clip"):
            within(name, getattr(self, name), 0.0, 1e6)
        if self.embedding_size is None:
            raise DataError("embedding_size is null; it must be the size of a character vector, for example 16.")
        if self.hidden_size % 2:
            raise DataError(f"hidden_size ({self.hidden_size}) must be even, for two directions of equal size.")


class LayerMix(nn.Module):
    """gamma times the average of all layers, weighted by a softmax. Peters et al. 2018, equation 1."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(ones(1))
        self.scores = nn.ParameterList(nn.Parameter(zeros(1)) for _ in range(layers))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """(..., H) of each layer -> (..., H)"""
        shares = torch.cat(list(self.scores)).softmax(0).to(layers[0].dtype)
        mixed = sum((share * layer for share, layer in zip(shares, layers, strict=True)), start=zeros(()))
        return self.gamma.to(mixed.dtype) * mixed


class ElmoEncoder(nn.Module):
    """Has the interface of `Encoder`. last_hidden_state: the weighted sum; hidden_states: the CNN's vector twice, each
    layer."""

    layered: ClassVar[bool] = True

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.compute_dtype: torch.dtype | None = None  # as of Encoder
        self.characters = CharacterCNN(
            config.hidden_size // 2,
            characters=config.char_vocab_size,
            character_size=config.embedding_size or 0,  # which its config refuses
            filters=config.filters,
            highways=config.num_highway_layers,
        )
        self.layers = nn.ModuleList(
            BiLSTM(
                config.hidden_size // 2,
                config.intermediate_size,
                cell_clip=config.cell_clip,
                state_clip=config.state_clip,
            )
            for _ in range(config.num_hidden_layers)
        )
        self.mix = LayerMix(config.num_hidden_layers + 1)
        self.spelling: Tensor | None = None

    def spell(self, words: Iterable[str]) -> None:
        """Stores the characters of the words of a vocabulary, so that their ids can be used as input."""
        self.spelling = character_ids(words, length=self.config.max_characters_per_token)

    def spell_vocabulary(self, tokenizer: Tokenizer) -> None:
        """Stores the characters of a tokenizer's vocabulary, with sentence boundaries instead of [CLS] and [SEP]."""
        marks = {tokenizer.cls_id: "<S>", tokenizer.sep_id: "</S>"}
        self.spell(marks.get(i) or tokenizer.id_to_token(i) for i in range(tokenizer.vocab_size))

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        layout: Layout | None = None,
        *,
        attention_mask: Tensor | None = None,
        output_hidden_states: bool = True,
        output_attentions: bool = False,
    ) -> EncoderOutput:
        """input_ids: characters, (T, C) packed or (B, S, C) padded; or, after `spell`, ids of words, (T,) or (B, S).

        Segments are ignored. Hidden states are always returned, and attentions never. Raises UsageError for ids of
        words whose characters are not known.
        """
        if layout is None:
            layout = Padded.of(input_ids, attention_mask)
        characters = self._characters(input_ids, layout)
        word = self.characters(characters, self.compute_dtype)
        hidden, mirror_BS = torch.cat([word, word], -1), mirror(layout)
        hidden_states = [hidden]
        for i, layer in enumerate(self.layers):
            read = dropout(hidden, self.config.hidden_dropout_prob, self.training)
            hidden = layer(read, layout, mirror_BS)
            hidden = hidden + read if i else hidden  # the first reads what is no state
            hidden_states.append(hidden)
        return EncoderOutput(self.mix(hidden_states), layout, hidden_states=tuple(hidden_states))

    def word_vectors(
        self, sentences: Sequence[Sequence[str]], *, layers: bool = False, batch_size: int = 32
    ) -> list[Tensor]:
        """Returns a vector for every word of every sentence: the weighted sum (words, H), or with `layers` each layer
        (L + 1, words, H).

        Sentences are lists of words. Sentence boundaries are added and removed.
        """
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))  # alike in length, little padding
        vectors: dict[int, Tensor] = {}
        device, training = self.mix.gamma.device, self.training
        self.eval()
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            marked = [["<S>", *sentences[i], "</S>"] for i in chosen]
            words, lengths = [word for words in marked for word in words], [len(words) for words in marked]
            characters = character_ids(words, length=self.config.max_characters_per_token).to(device)
            with torch.inference_mode():
                output = self(characters, layout=Packed.from_lengths(torch.tensor(lengths)).to(device))
            states = torch.stack(output.hidden_states) if layers else output.last_hidden_state[None]
            for i, part in zip(chosen, states.split(lengths, 1), strict=True):
                vectors[i] = part[:, 1:-1] if layers else part[0, 1:-1]
        self.train(training)
        return [vectors[i] for i in range(len(sentences))]

    def _characters(self, input_ids: Tensor, layout: Layout) -> Tensor:
        if input_ids.ndim == (2 if isinstance(layout, Packed) else 3):
            return input_ids
        if self.spelling is None:
            raise UsageError("ELMo reads characters. Pass the ids of nn.characters.character_ids, or call spell first.")
        self.spelling = self.spelling.to(input_ids.device)
        return self.spelling[input_ids]


def _filters(config: ElmoConfig) -> int:
    return sum(count for _, count in config.filters)


@parameters.register
def _(config: ElmoConfig) -> dict[str, int]:
    p, c, f, e = config.hidden_size // 2, config.intermediate_size, _filters(config), config.embedding_size or 0
    return {
        "character embeddings": config.char_vocab_size * e,
        "convolutions": sum(count * (e * width + 1) for width, count in config.filters),
        "highway layers": config.num_highway_layers * (f * 2 * f + 2 * f),
        "projection": f * p + p,
        "LSTMs": config.num_hidden_layers * 2 * (2 * p * 4 * c + 4 * c + c * p),
        "layer mix": config.num_hidden_layers + 2,
    }


@forward_flops.register
def _(config: ElmoConfig, *, length: float, predicted: float = 0.0) -> dict[str, float]:
    """Returns the operations of a word that is new in the batch; others skip the convolutions. predicted: predictions
    per word, 2 in training."""
    p, c, f, e = config.hidden_size // 2, config.intermediate_size, _filters(config), config.embedding_size or 0
    places = config.max_characters_per_token
    return {
        "convolutions": 2.0 * sum(count * e * width * (places - width + 1) for width, count in config.filters),
        "highway layers": 2 * config.num_highway_layers * f * 2 * f,
        "projection": 2 * f * p,
        "LSTMs": 2 * config.num_hidden_layers * 2 * (2 * p * 4 * c + c * p),
        "biLM head": 2 * predicted * p * config.vocab_size,
    }


@predictions_per_token.register
def _(config: ElmoConfig) -> float:
    return 2.0  # from either side
