"""Text to text: the model generates the target text, for any pair of texts. Raffel et al. 2020, 2.4.

    encoder-decoder   encoder: source </s>        decoder: target </s>, each token from those before it
    causal model      source target </s>          the loss counts the target

The loss is teacher forcing on packed batches. The engine generates answers token by token.

E examples · B sequences of a batch · Q tokens of all targets of a batch · L maximum number of tokens of an answer
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from bertie.errors import UsageError, WrongModel, WrongValue
from bertie.io.columns import LookAhead, find_columns, no_rows
from bertie.io.table_format import Columns
from bertie.io.tables import Example
from bertie.metrics.written import MEASURES, WrittenScores, available
from bertie.models.config import EncoderConfig
from bertie.models.facts import BATCH_TOKENS, Facts
from bertie.models.generation import DECODER, GenerationConfig, written_output
from bertie.models.heads import HEADS
from bertie.models.loss import LossReport, LossTerm
from bertie.tasks.answerer import Logits, Prediction
from bertie.tasks.base import Reader, Task
from bertie.tasks.source import Targets, batch_of_examples, encode_examples
from bertie.text.sequences import Sequences, ranges, token_budget
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertie.models.batch import Batch
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import TorchModel

SOURCE, TARGET = "source", "target"  # column names that are recognized


@dataclass(frozen=True)
class Text2TextTask(Task):
    """`Example.label` is the target text.

    Attributes:
        template: The text that the model reads, with {} for each text of an example: "summarize: {}". Not set: the
            texts, with a space between two.
        max_target_length: Maximum number of tokens of a target and of an answer, including the end.
        label_smoothing: Share of a target's probability that all tokens have in equal parts, in training only.
        num_beams: Beams of the search; 1 takes the most probable token each time.
        length_penalty: A beam's score is its log-probability divided by its length to this power.
        metric: The main metric.
        continues: The answer continues the text, with no special token between them, as in the pre-training of a
            causal model. Models without a decoder do so until they are fine-tuned.
    """

    template: str = ""
    max_target_length: int = 128
    label_smoothing: float = 0.0
    num_beams: int = 1
    length_penalty: float = 1.0
    metric: Literal["exact_match", "space_f1", "bleu", "chrf", "rouge1", "rouge2", "rougeL"] = "exact_match"
    continues: bool = False

    head = "lm"
    input_texts = range(1, sys.maxsize)
    no_windows = "Text to text does not support windows"
    keeps_head = True
    baselines: ClassVar[tuple[str, ...]] = ("majority", "copy")
    csv_columns = ("label",)
    tokens: ClassVar[Tokenizer]
    """The tokenizer of targets and answers."""

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise WrongValue(f"label_smoothing is {self.label_smoothing}; it must be at least 0 and below 1.")
        if self.max_target_length < 2:
            raise WrongValue(f"max_target_length is {self.max_target_length}; it must be 2 or more.")
        _ = self.writing

    @property
    def metrics(self) -> tuple[str, ...]:  # type: ignore[override]
        """The main metric, and the usual others whose libraries are installed."""
        others = (name for name, one in MEASURES.items() if not one.chosen and available(name))
        return (self.metric, *(name for name in others if name != self.metric))

    @classmethod
    def generated(cls, options: Mapping[str, object]) -> int:
        """The maximum length of a target."""
        return cls.make((), options).max_target_length

    @property
    def writing(self) -> GenerationConfig:
        """The settings of generation."""
        return GenerationConfig(
            max_new_tokens=self.max_target_length, num_beams=self.num_beams, length_penalty=self.length_penalty
        )

    @property
    def output(self) -> str:
        """The generated tokens."""
        return written_output(self.writing)

    def tokens_of(self, tokenizer: Tokenizer) -> Tokenizer:
        """Returns the tokenizer, for targets and answers."""
        return tokenizer

    # Reading

    @classmethod
    def reads_sets_of(cls, own: type[Reader]) -> bool:
        """Returns True, since any label is a text."""
        return True

    @classmethod
    def columns(cls, names: Sequence[str], columns: Columns, where: str, look: LookAhead = no_rows) -> Columns:
        """Returns the columns of the source and of the target; `source` and `target` are recognized too."""
        if SOURCE in names and not columns.text:
            columns = replace(columns, text=(SOURCE,))
        if TARGET in names and columns.label == "":
            columns = replace(columns, label=TARGET)
        return find_columns(names, columns, where, look)

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Sequences:
        """Returns one sequence per example. Raises UsageError for windows: a text has one answer."""
        self.check_windows(too_long)
        texts = [Example((self.source(example.texts),)) for example in examples]
        encoded = encode_examples(texts, tokenizer, max_length=max_length, too_long=too_long)
        return encoded.without_last(len(tokenizer.frames[0].gaps[-1])) if self.continues else encoded

    def source(self, texts: Sequence[str]) -> str:
        """Returns the text that the model reads. Raises UsageError for another number of texts than {} in template."""
        if not self.template:
            return " ".join(texts)
        parts = self.template.split("{}")
        if len(parts) != len(texts) + 1:
            raise UsageError(
                f"template needs one {{}} for each text: {self.template!r} has {len(parts) - 1}, and the examples "
                f"have {len(texts)}."
            )
        return parts[0] + "".join(text + part for text, part in zip(texts, parts[1:], strict=True))

    # Learning

    def heads(self, config: EncoderConfig) -> "dict[str, nn.Module]":
        """Returns the next-token head, with a decoder where the family has one.

        Raises UsageError for a model that generates no text.
        """
        decodes = config.num_decoder_layers is not None
        if not (decodes or config.causal) or config.eos_token_id is None:
            raise WrongModel(
                "Text to text needs a model that generates text and ends it: one with a decoder (t5-small), or a "
                "causal one with an end token (gpt2)."
            )
        decoder = {DECODER: HEADS[DECODER](config)} if decodes else {}
        return {**decoder, self.head: HEADS[self.head](config)}

    def targets(self, examples: Sequence[Example], encoded: Sequences) -> Targets:
        """Returns "target" (W, longest) int32, whose first "target_length" (W,) int64 tokens are real, the last one the
        end."""
        tokenizer = self.tokens
        ends = (tokenizer.special_id("eos"), tokenizer.special_id("sep"))
        end = next((i for i in ends if i is not None), None)
        if end is None:
            raise UsageError("The tokenizer has no token that ends a text (eos or sep).")
        texts = ["" if example.label is None else str(example.label) for example in examples]
        rows = [[*ids[: self.max_target_length - 1], end] for ids in tokenizer.ids(texts)]
        length_E = np.array([len(row) for row in rows], np.int64)
        target_EQ = np.zeros((len(rows), length_E.max(initial=0)), np.int32)
        target_EQ[np.arange(target_EQ.shape[1]) < length_E[:, None]] = np.concatenate([np.zeros(0, np.int32), *rows])
        return Targets(sequence={"target": target_EQ, "target_length": length_E})

    def cut_targets(self, examples: Sequence[Example], targets: Targets) -> str:
        """Returns a note on the targets longer than `max_target_length`, of which the model learns the beginning."""
        full = np.flatnonzero(targets.sequence["target_length"] == self.max_target_length)
        ids = self.tokens.ids([str(examples[i].label) for i in full.tolist()])
        cut = sum(len(one) >= self.max_target_length for one in ids)
        note = f"{cut:,} of {len(examples):,} targets are longer than {self.max_target_length} tokens with the end"
        return f"{note}: truncated (task_options.max_target_length)" if cut else ""

    def counts(self, batch: "Batch") -> dict[str, int]:
        """Returns the number of target tokens."""
        return {"target": int(batch.labels["target_length"].sum())}

    def written(self, targets: Targets) -> int:
        """Returns the number of target tokens."""
        return int(targets.sequence["target_length"].sum())

    def forward(self, model: "TorchModel", batch: "Batch") -> "EncoderOutput":
        """Runs the encoder on the sources, or a causal model on sources with their targets."""
        from bertie.models.seq2seq import Seq2Seq

        return model.encode(batch if isinstance(model, Seq2Seq) else _continued(batch, model.config.max_length))

    def loss(self, model: "TorchModel", output: "EncoderOutput", batch: "Batch") -> LossReport:
        """Returns the cross-entropy of the targets, each token given the source and the tokens before it."""
        import torch

        from bertie.models.seq2seq import Seq2Seq

        target_Q, length_B = _flat_targets(batch.host), batch.host.labels["target_length"]
        target_Q, device = target_Q.to(model.device), model.device
        if isinstance(model, Seq2Seq):
            hidden_QH = model.teach(output, target_Q, length_B).last_hidden_state
        else:  # a target begins after the last token of its source
            ends_B = (batch.host.layout.mask().sum(1) + length_B - 1).cumsum(0).numpy()
            at_Q = torch.from_numpy(ranges(ends_B - length_B.numpy(), ends_B))
            hidden_QH = output.last_hidden_state[at_Q.to(device)]
        head = model.vocabulary_head(self.head)
        smoothing = self.label_smoothing if model.training else 0.0
        total, correct = head.loss(hidden_QH, model.word_embeddings, target_Q, smoothing=smoothing)
        return {"target": LossTerm(total, len(target_Q), correct)}

    def losses(self, logits: "Tensor", batch: "Batch") -> LossReport:
        """Returns nothing: generated tokens have no loss. `dev_losses` computes that of the targets."""
        return {}

    def dev_losses(self, model: "TorchModel", encoded: Sequences, targets: Targets, logits: "Tensor") -> LossReport:
        """Returns the losses of dev examples by teacher forcing, in batches of similar length."""
        import torch

        lengths = encoded.lengths + targets.sequence["target_length"]
        total, count = torch.zeros((), device=model.device), 0.0
        with torch.inference_mode():
            for sequences in token_budget(lengths, max_tokens=BATCH_TOKENS):
                batch = batch_of_examples(encoded, sequences, targets).to(model.device)
                part = self.loss(model, self.forward(model, batch), batch)["target"]
                total, count = total + part.total, count + part.count
        return {"target": LossTerm(total, count)}

    # Answering

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the generated texts. logits (E, L): tokens, -1 after the end"""
        return [Prediction(self.tokens.decode(row[row >= 0].astype(np.int64).tolist())) for row in logits]

    def slices(self, example: Example, prediction: Prediction, tokens: int, long: bool) -> dict[str, str]:
        """Returns the subgroups of an example, with its task where several are learned together."""
        share = {"task": example.share} if example.share else {}
        return {**share, **super().slices(example, prediction, tokens, long)}

    def scores(self) -> WrittenScores:
        """Returns a counter of target texts and answers."""
        return WrittenScores(self.metrics)

    @classmethod
    def of_model(cls, facts: Facts, settings: Any) -> Self | None:
        """Returns the task of a model that generates text."""
        return cls.make((), settings or {"continues": DECODER not in facts.heads}) if facts.writes else None


def _flat_targets(batch: "Batch") -> "Tensor":
    """Returns the targets of a batch, concatenated. -> (Q,) int64"""
    import torch

    target_BQ, length_B = batch.labels["target"], batch.labels["target_length"]
    return target_BQ[torch.arange(target_BQ.shape[1])[None] < length_B[:, None]].long()


def _continued(batch: "Batch", most: int) -> "Batch":
    """Returns the packed batch of sources, each with its target but for the end, which nothing follows.

    most: the positions of the model. Raises UsageError for a longer sequence.
    """
    import torch

    host = batch.host
    source_B, length_B = host.layout.mask().sum(1), host.labels["target_length"]
    longest = int((source_B + length_B - 1).max())
    if longest > most:
        raise UsageError(
            f"A text with its target has {longest:,} tokens, and the model has {most:,} positions. Lower max_length, "
            "or task_options.max_target_length."
        )
    sources = torch.split(host.input_ids, source_B.tolist())
    targets = torch.split(_flat_targets(host), length_B.tolist())
    ids_T = torch.cat([part for pair in zip(sources, targets, strict=True) for part in (pair[0], pair[1][:-1])])
    return host.of_tokens(ids_T, source_B + length_B - 1).to(batch.input_ids.device)
