"""`TorchModel`: one encoder and its heads, together with a tokenizer and the names of the labels."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from bertie.errors import UsageError, WrongModel
from bertie.models.config import EncoderConfig
from bertie.models.encoder import Encoder, EncoderOutput
from bertie.models.heads.base import Head, Needs, seen_by_all
from bertie.models.heads.vocabulary import VocabularyHead
from bertie.models.int8 import Int8Weight, PackedWeight
from bertie.models.kinds import Window
from bertie.models.saving import save_model
from bertie.models.sentence import SentenceModules
from bertie.models.variant import Variant
from bertie.nn.init import initialize
from bertie.nn.layer import Layer
from bertie.nn.layout import Layout, Padded, moved
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TrainingFacts

M = TypeVar("M", bound=nn.Module)
SUMMARY = torch.empty(0, dtype=torch.int64)
"""What `TorchModel.encode` is given to `read` for the states of the summary tokens alone."""


class EncoderInputs(Protocol):
    """The part of a batch that an encoder reads."""

    @property
    def input_ids(self) -> Tensor:
        """Token ids, (T,) packed or (B, S) padded."""
        ...

    @property
    def token_type_ids(self) -> Tensor:
        """Segment ids, same shape as input_ids."""
        ...

    @property
    def layout(self) -> Layout:
        """The positions of the sequences in input_ids."""
        ...


@runtime_checkable
class Spells(Protocol):
    """Protocol of an encoder that reads the characters of tokens."""

    def spell_vocabulary(self, tokenizer: Tokenizer) -> None:
        """Stores the characters of every token."""
        ...


class TorchModel(nn.Module):
    """An encoder and its heads by name: "mlm", "sequence" ... (models/heads/).

    Attributes:
        labels: Names in the order of the classifier's logits.
        variant: The family, which defines the names of weights and the format of config.json.
        public: config.json as it was read, so that unknown keys are written back.
        training_facts: What the folder records of its training.
        companions: Modules that an objective trains with the model. They are not heads and are not saved.
    """

    def __init__(
        self,
        encoder: Any,
        heads: Mapping[str, nn.Module] | None = None,
        *,
        variant: Variant | None = None,
        public: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = nn.ModuleDict(dict(heads or {}))
        self.companions = nn.ModuleDict()
        self.variant = variant
        self.public = dict(public or {})
        self._tokenizer: Tokenizer | None = None
        self.labels: tuple[str, ...] = ()
        self.problem_type: str | None = None
        self._computes_all = False
        self.sentence = SentenceModules()
        self.training_facts = TrainingFacts()
        self.packed: dict[str, PackedWeight] = {}  # parameters that the folder holds in 4 or 8 bits a number
        if self.frozen:
            encoder.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """Sets training mode as for any module. An encoder that a head needs frozen stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the model. It can be set; an encoder that reads characters then stores its vocabulary."""
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        if tokenizer is not None and isinstance(self.encoder, Spells):
            self.encoder.spell_vocabulary(tokenizer)

    @property
    def text_tokenizer(self) -> Tokenizer:
        """The tokenizer, for those who read texts. Raises UsageError for a model without one."""
        return known_tokenizer(self.tokenizer)

    @property
    def config(self) -> EncoderConfig:
        """The config of the encoder."""
        config: EncoderConfig = self.encoder.config
        return config

    @property
    def int8(self) -> dict[str, Int8Weight]:
        """The int8 weights that an engine can multiply as they are: none beside weights of 4 bits."""
        weights = {name: weight for name, weight in self.packed.items() if isinstance(weight, Int8Weight)}
        return weights if len(weights) == len(self.packed) else {}

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    @property
    def word_embeddings(self) -> Tensor:
        """The word embedding matrix (V, H), which is also the masked-LM decoder."""
        weight: Tensor = self.encoder.embeddings.word.weight
        return weight

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """The dtype of everything after the embeddings, or None for that of the weights. It can be set."""
        dtype: torch.dtype | None = self.encoder.compute_dtype
        return dtype

    @compute_dtype.setter
    def compute_dtype(self, dtype: torch.dtype | None) -> None:
        self.encoder.compute_dtype = dtype

    def initialize(self, seed: int = 0, only: set[str] | None = None) -> None:
        """Draws the weights, or those named in `only`, as a new model of the family starts.

        Raises UsageError without a family.
        """
        if self.variant is None:
            raise UsageError("This model belongs to no family, so its initialization is unknown.")
        std, stds = self.config.initializer_range, self.variant.stds(self.config)
        initialize(self, std=std, stds=stds, seed=seed, only=only)
        weights = dict(self.named_parameters())
        for name, source in self.variant.copied.items():
            if name in weights and (only is None or name in only):
                with torch.no_grad():
                    weights[name].copy_(weights[source])

    def draw_companion(self, name: str, seed: int) -> None:
        """Draws the weights of a companion, but for those that it shares with the model."""
        own = {key for key, _ in self.named_parameters() if key.startswith(f"companions.{name}.")}
        initialize(self, std=self.config.initializer_range, seed=seed, only=own)

    def randomized(self, seed: int = 0) -> Self:
        """Returns a copy with random weights, as a new model of its family starts. Raises UsageError without one."""
        model = copy.deepcopy(self, {id(self.tokenizer): self.tokenizer})  # shared: it is not changed
        model.packed = {}
        model.initialize(seed)
        return model

    def check_trainable(self, folder: str | Path) -> None:
        """Raises UsageError for quantized weights, which cannot be trained. folder: of the model."""
        if self.packed:
            raise WrongModel(
                f"{folder} has quantized weights, which cannot be trained. Train the float model that it was made "
                f"from, or write a float copy: bertie compress {folder} --float -o NEW"
            )

    def own_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters of encoder and heads by name, as in a model folder."""
        return {name: one for name, one in self.named_parameters() if not name.startswith("companions.")}

    @property
    def needs(self) -> tuple[Needs, ...]:
        """The requirements of each head."""
        return tuple(head.needs for head in self.heads.values() if isinstance(head, Head))

    @property
    def frozen(self) -> bool:
        """Whether a head needs an encoder that is not trained."""
        return any(needs.frozen_encoder for needs in self.needs)

    @property
    def is_plain(self) -> bool:
        """Whether a pass consists of BERT's layers and nothing else: no hook, window or measurement of inner states."""
        encoder, config = self.encoder, self.config
        plain = type(encoder) is Encoder and config.attends_to_all and not self._computes_all
        plain = plain and not any(need.hidden_states for need in self.needs)
        hooked = any(part._forward_hooks or part._forward_pre_hooks for part in self.modules())
        return plain and not hooked and all(type(layer) is Layer for layer in encoder.in_order())

    def encode(self, batch: EncoderInputs, *, read: Tensor | None = None, **flags: Any) -> EncoderOutput:
        """Runs the encoder on a batch.

        Args:
            batch: Token ids, segments and layout.
            read: Flattened positions (N,) in `batch.positions` of the tokens whose last hidden states are needed,
                besides those of the summary tokens; the other states mean nothing. None: all.
            **flags: Other arguments of `Encoder.forward`.
        """
        if (features := getattr(batch, "features", None)) is not None:
            flags["features"] = features
        if read is not None and getattr(self.encoder, "computes_part", False) and not self._computes_all:
            tokens = getattr(batch, "positions", batch).layout.ends(last=self.config.summary_last)
            tokens = torch.cat([tokens, read]) if len(read) else tokens
            fixed = getattr(batch, "fixed", False)  # has no repeats
            flags["read"] = tokens if fixed else moved(torch.unique(tokens), batch.input_ids.device)
        return self.run_encoder(batch.input_ids, batch.token_type_ids, batch.layout, **flags)

    @contextmanager
    def computing_all(self) -> Iterator[None]:
        """While it is on, the last layer computes all tokens, for those who measure or change what layers compute."""
        before, self._computes_all = self._computes_all, True
        try:
            yield
        finally:
            self._computes_all = before

    def encode_for(self, head: str, batch: EncoderInputs) -> EncoderOutput:
        """Runs the encoder for one head. The last layer computes only the states that the head reads."""
        return self.encode(batch, read=SUMMARY if self.summary_only(head) else None)

    def summary_only(self, head: str) -> bool:
        """Whether a head reads nothing but the states of the summary tokens."""
        module = dict(self.heads).get(head)
        return isinstance(module, Head) and module.needs.summary_only

    def head(self, name: str, kind: type[M]) -> M:
        """Returns a head of a kind. Raises UsageError for a model without it."""
        return _of_kind(self.heads, name, kind)

    def vocabulary_head(self, name: str) -> VocabularyHead:
        """Returns a head with a row per token of the vocabulary. Raises UsageError for a model without it."""
        return self.head(name, VocabularyHead)

    def companion(self, name: str, kind: type[M]) -> M:
        """Returns a module that an objective trains with the model. Raises UsageError for a model without it."""
        return _of_kind(self.companions, name, kind)

    def logits(self, name: str, output: EncoderOutput) -> Tensor:
        """Returns the logits of one head for the output of `encode`."""
        head: Head = self.head(name, Head)
        logits: Tensor = head(output, self.word_embeddings) if head.needs.word_embeddings else head(output)
        return logits

    def all_logits(self, output: EncoderOutput) -> dict[str, Tensor]:
        """Returns the logits of every head by head name."""
        return {name: self.logits(name, output) for name, head in self.heads.items() if isinstance(head, Head)}

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **inputs: Any) -> dict[str, Tensor]:
        """Computes the logits of every head, for inspection and export.

        Training and inference call `encode` and then the one head that they need.

        Args:
            input_ids: Token ids (B, S).
            attention_mask: (B, S), 1 for real tokens.
            **inputs: Other arguments of `Encoder.forward`.

        Returns:
            Head name -> logits. "mlm" has all positions, (B, S, V).
        """
        layout = inputs.pop("layout", None)
        if layout is None:
            layout = Padded.of(input_ids, attention_mask)
        return self.all_logits(self.run_encoder(input_ids, inputs.pop("token_type_ids", None), layout, **inputs))

    def run_encoder(
        self, input_ids: Tensor, token_type_ids: Tensor | None, layout: Layout | None = None, **flags: Any
    ) -> EncoderOutput:
        """Returns the encoder's output with everything that the heads need. layout: None for sequences of one length.

        For windowed attention without a global_attention_mask, the heads choose the global tokens.
        """
        layout = Padded.of(input_ids, None) if layout is None else layout
        if isinstance(self.config.attention, Window) and flags.get("global_attention_mask") is None:
            flags["global_attention_mask"] = self.global_tokens(input_ids, layout)
        if any(needs.hidden_states for needs in self.needs):
            flags["output_hidden_states"] = True
        output: EncoderOutput = self.encoder(input_ids, token_type_ids, layout, **flags)
        return output

    def global_tokens(self, input_ids: Tensor, layout: Layout | None = None) -> Tensor | None:
        """Returns the tokens that have global attention in windowed attention -> bool, as input_ids; None: no token."""
        layout = Padded.of(input_ids, None) if layout is None else layout
        rules = [needs.global_tokens for needs in self.needs if needs.global_tokens is not None]
        return seen_by_all(rules, input_ids, layout, self.config.sep_token_id)

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Writes a model folder in Hugging Face format. `options` are those of `models.saving.save`."""
        save_model(self, Path(folder), **options)


def known_tokenizer(tokenizer: Tokenizer | None) -> Tokenizer:
    """Returns the tokenizer of a model. Raises UsageError where there is none."""
    if tokenizer is None:
        raise UsageError(
            "The model has no tokenizer, so it cannot read text. Copy the files of its tokenizer (tokenizer.json or "
            "vocab.txt) into its folder, and open the folder with bertie.load."
        )
    return tokenizer


def _of_kind(modules: nn.ModuleDict, name: str, kind: type[M]) -> M:
    module = dict(modules).get(name)
    if not isinstance(module, kind):
        raise UsageError(f"The model has no {kind.__name__} named {name!r}; it has {', '.join(modules) or 'none'}.")
    return module
