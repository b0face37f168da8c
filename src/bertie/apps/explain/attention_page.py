"""The page of the attention of one text: a head with words, rollout, flow, and a small picture of every head."""

from dataclasses import dataclass
from functools import cached_property
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertie.apps.explain.attention import (
    FLOW_TOKENS,
    MEASURES,
    Floats,
    HeadStatistics,
    attentions,
    flow,
    read_vectors,
    rollout,
    telling,
    with_norms,
)
from bertie.apps.explain.attribution import by_word
from bertie.apps.explain.page import heat
from bertie.apps.explain.picture import heat_table, small, with_words
from bertie.platform import DataError, Encoding, ModelInternals, Report, TorchModel, UsageError, quantity

_MAX_TOKENS = 128
PICTURES = 1_700_000  # bytes of all heads; the page stays below 2 MB
_LINKS_SHOWN = 20  # links of a table
_HOW_TO_READ = (
    "Attention shows where a head reads from. It does not show that the prediction rests on these words: bertie "
    "explain measures that. Many heads attend to special tokens when they have nothing to add."
)


def most_tokens(model: TorchModel) -> int:
    """Returns the longest text whose page stays below 2 MB: a cell of a head needs 4 bits, and 4/3 of it as text."""
    heads = model.config.num_hidden_layers * model.config.num_attention_heads
    return min(_MAX_TOKENS, model.config.max_length, isqrt(PICTURES * 3 // (2 * max(1, heads))))


@dataclass(frozen=True)
class TextAttention:
    """A text, its attention (L, N, S, S), and the head (from 0) that is shown with words."""

    texts: tuple[str, ...]
    encoding: Encoding
    probs: Floats
    statistics: HeadStatistics
    head: tuple[int, int]
    summary: int  # the token that represents the text
    norms: bool = False  # whether attention is multiplied by the length of what is read

    @classmethod
    def of(
        cls,
        model: TorchModel,
        texts: tuple[str, ...],
        *,
        head: str = "",
        max_length: int | None = None,
        norms: bool = False,
    ) -> "TextAttention":
        """Computes the attention of a text or a pair. head: "3.7", layer and head from 1; "" chooses one.

        norms: multiplies it by the length of what is read (`with_norms`).

        Raises UsageError for a model without tokenizer or attention, an unknown head or a length that the page cannot
        show; DataError for a text without words.
        """
        tokenizer = model.text_tokenizer
        model.training_facts.check_reads_texts("bertie attention")
        most = most_tokens(model)
        if max_length is not None and not 4 <= max_length <= most:
            raise UsageError(f"--max-length is {max_length}; it must be 4 to {most} for the attention of this model.")
        texts = ModelInternals(model).pipeline.plain_texts(texts)
        encoding = tokenizer.encode(texts[0], *texts[1:2], max_length=max_length or most)
        words = np.array([sequence is not None for sequence in encoding.sequence_ids])
        if not words.any():
            raise DataError("The text has no words.")
        probs = attentions(model, encoding.ids, encoding.type_ids)
        if norms:
            probs = with_norms(probs, read_vectors(model, encoding.ids, encoding.type_ids))
        statistics = HeadStatistics(tokenizer)
        statistics.add(probs, encoding.ids)
        cls_id, last = tokenizer.special_id("cls"), len(words) - 1
        summary = encoding.ids.index(cls_id) if cls_id in encoding.ids else last if model.config.causal else 0
        chosen = _numbers(head, probs.shape) if head else telling(probs, words)
        return cls(texts, encoding, probs, statistics, chosen, summary, norms)

    @property
    def name(self) -> str:
        """The name of the head: "3.7"."""
        return f"{self.head[0] + 1}.{self.head[1] + 1}"

    @cached_property
    def rollout(self) -> Floats:
        """The rollout of the top layer (S, S)."""
        matrix: Floats = rollout(self.probs)[-1]
        return matrix

    @cached_property
    def flow(self) -> Floats | None:
        """The flow (S, S), or None for a long text."""
        return flow(self.probs) if len(self.encoding) <= FLOW_TOKENS else None

    def links(self) -> list[tuple[int, int, float]]:
        """Returns for each token of the texts the token that the head attends to most: (from, to, probability)."""
        matrix = self.probs[self.head]
        best = matrix.argmax(-1)
        inside = [i for i, sequence in enumerate(self.encoding.sequence_ids) if sequence is not None]
        return [(i, int(best[i]), float(matrix[i, best[i]])) for i in inside]

    def shares(self, matrix: Floats) -> list[tuple[str, float]]:
        """Returns the words of the texts with their share in the token that represents the text; no special tokens."""
        inside = np.array([sequence is not None for sequence in self.encoding.sequence_ids])
        pairs = by_word(self.encoding, np.where(inside, matrix[self.summary], 0.0), self.texts)
        return [(word, share) for word, share in pairs if share]

    def as_json(self) -> dict[str, Any]:
        """Returns the tokens, the statistics of every head, rollout and flow of the summary token, and the links."""
        tokens = self.encoding.tokens
        whole = self.flow
        return {
            "tokens": tokens,
            "cut": self.encoding.overflow,
            "norms": self.norms,
            "heads": self.statistics.as_json(),
            "summary": tokens[self.summary],
            "rollout": _rounded(self.rollout[self.summary]),
            "flow": None if whole is None else _rounded(whole[self.summary]),
            "head": self.name,
            "links": [{"from": i, "to": j, "attention": round(p, 6)} for i, j, p in self.links()],
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the arrays of an npz file: tokens (S,), attention (L, N, S, S), rollout (S, S), and flow (S, S)."""
        arrays: dict[str, NDArray[Any]] = {
            "tokens": np.array(self.encoding.tokens),
            "attention": self.probs,
            "rollout": self.rollout,
        }
        return arrays if self.flow is None else {**arrays, "flow": self.flow}


def _numbers(head: str, shape: tuple[int, ...]) -> tuple[int, int]:
    layer, _, number = head.partition(".")
    if not (layer.isdecimal() and number.isdecimal() and 1 <= int(layer) <= shape[0] and 1 <= int(number) <= shape[1]):
        raise UsageError(
            f"--attention-head is {head!r}; it must be LAYER.HEAD, from 1.1 to {shape[0]}.{shape[1]} for this model."
        )
    return int(layer) - 1, int(number) - 1


def _rounded(values: Floats) -> list[float]:
    return [round(float(value), 6) for value in values]


def render_attention_page(attention: TextAttention, model: str) -> Report:
    """Returns the page of the attention of one text."""
    layers, heads, size, _ = attention.probs.shape
    tokens = attention.encoding.tokens
    report = Report("Attention", f"{model}: {' / '.join(attention.texts)[:200]}")
    cut = f"{attention.encoding.overflow:,} more were cut" if attention.encoding.overflow else "all of the text"
    report.tiles([("tokens", str(size), cut), ("heads", str(layers * heads), f"in {layers} layers")])
    report.section(
        f"Head {attention.name}",
        f"Layer {attention.head[0] + 1}, head {attention.head[1] + 1}. "
        "Each row is a token, and the shades of its row show "
        "which tokens it attends to. A row adds up to 1. The shade is the square root of the number."
        + " Attention is multiplied by the length of the vector that is read, on the whole page."
        * attention.norms,
    )
    report.html(with_words(attention.probs[attention.head], tokens, f"Attention of head {attention.name}"))
    links = sorted(attention.links(), key=lambda row: -row[2])[:_LINKS_SHOWN]
    report.table(["token", "attends most to", "attention"], [[tokens[i], tokens[j], f"{p:z.3f}"] for i, j, p in links])
    _paths(report, attention)
    report.section(
        "Every head",
        "Rows and columns as above. The words below a picture say what the head mostly attends to.",
    )
    records = attention.statistics.as_json()
    for layer in range(layers):
        of_layer = records[layer * heads : (layer + 1) * heads]
        pictures = [
            small(matrix, f"{layer + 1}.{row['head']} {row['kind']}".strip())
            for matrix, row in zip(attention.probs[layer], of_layer, strict=True)
        ]
        report.html(
            f'<details><summary>Layer {layer + 1}</summary><div class="small">{"".join(pictures)}</div></details>'
        )
    statistics_section(report, attention.statistics)
    report.section(
        "How to read this",
        _HOW_TO_READ,
    )
    return report.footer(docs="attention")


def render_attention_section(attention: TextAttention) -> list[object]:
    """Returns the section of the model's card: the kinds of heads, and the rollout."""
    token = attention.encoding.tokens[attention.summary]
    words = sorted(attention.shares(attention.rollout), key=lambda row: -row[1])[:_LINKS_SHOWN]
    return [
        f"> {' / '.join(attention.texts)}",
        kinds_in_words(attention.statistics.as_json()),
        f"Rollout: the share of each word in the top layer's {token}.",
        (["word", "share"], [(word, f"{share:z.3f}") for word, share in words]),
        _HOW_TO_READ,
    ]


def kinds_in_words(records: list[dict[str, Any]]) -> str:
    """Returns the heads of each kind as a Markdown list."""
    return "\n".join(f"- {name}: {', '.join(heads)}" for name, heads in kinds(records).items())


def _paths(report: Report, attention: TextAttention) -> None:
    token = attention.encoding.tokens[attention.summary]
    for name, matrix, text in (
        ("Rollout", attention.rollout, "Rollout multiplies the attention of all layers"),
        ("Flow", attention.flow, "Flow is the maximum flow through the attention of all layers"),
    ):
        if matrix is None:
            continue
        report.section(
            name,
            f"{text}, with the residual connections. The words are colored by their share in the top layer's {token}, "
            "which represents the text. The picture has a row for every token of the top layer.",
        )
        shares = attention.shares(matrix)
        report.html(heat(shares))
        report.text(f"The words have {sum(share for _, share in shares):.1%}, and the special tokens have the rest.")
        report.html(
            f"<details><summary>All tokens</summary>{with_words(matrix, attention.encoding.tokens, name)}</details>"
        )


def statistics_section(report: Report, statistics: HeadStatistics) -> None:
    """Adds the statistics of all heads, one table per measure."""
    report.section(
        "What the heads attend to",
        f"Means over {statistics.tokens:,} tokens of {quantity(statistics.texts, 'text')}. Rows "
        "are layers, columns are heads.",
    )
    rows = [f"layer {layer + 1}" for layer in range(len(next(iter(statistics.means().values()))))]
    for place, (name, matrix) in enumerate(statistics.means().items()):
        columns = [str(head + 1) for head in range(matrix.shape[1])]
        most = 1.0 if name not in ("entropy", "distance") else max(float(matrix.max()), 1e-9)
        table = heat_table(matrix, rows, columns, most=most)
        is_open = " open" * (place == 0)
        report.html(f"<details{is_open}><summary>{MEASURES[name].capitalize()}</summary>{table}</details>")


def kinds(records: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Returns the names of the heads of each kind."""
    heads_by_kind: dict[str, list[str]] = {}
    for row in records:
        if row["kind"]:
            heads_by_kind.setdefault(row["kind"], []).append(f"{row['layer']}.{row['head']}")
    return heads_by_kind
