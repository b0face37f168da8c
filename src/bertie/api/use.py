"""One Python function for each command that uses a model, with the names and options of the command.

`model` is a loaded model (`bertie.load`), or the folder of a model, a run or a checkpoint. A folder is opened on
`device` and computed in `precision`, as by the command.

N, A, B texts · W numbers of a vector
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from bertie.api.results import Predictions, Scores
from bertie.data import memory
from bertie.data.tables import InvalidRow, TableFormat
from bertie.errors import UsageError, arguments
from bertie.infer.candidates import choose_from, fill_in
from bertie.infer.embed import Vector, embedder
from bertie.infer.engine import check_names
from bertie.infer.fill import MaskPrediction
from bertie.infer.layers import TokenVectors, layers_of, token_vectors
from bertie.infer.predict import Predictor
from bertie.infer.texts import check_text, check_top, each_row, tell_unread
from bertie.runs.opening import open_engine, open_model
from bertie.tasks import Prediction
from bertie.tasks.capabilities import Embeds
from bertie.tasks.embed import similarity as alike
from bertie.tasks.sequence import with_positive

READS = ("tokenizer", "max_length", "too_long", "head")  # options of a `Predictor`
VECTORS = ("tokenizer", "max_length", "prompt", "prefix", "pooling", "normalize", "truncate_dim")  # of an `embedder`
WHERE = ("device", "precision")
THEIRS: dict[str, str] = {  # arguments of sentence-transformers and transformers
    "normalize_embeddings": "normalize",
    "prompt_name": "prompt",
    "max_seq_length": "max_length",
    "candidate_labels": "candidates",
    "hypothesis_template": "hypothesis",
    "multi_label": "multi",
    "torch_dtype": "precision",
    "dtype": "precision",
}

if TYPE_CHECKING:
    from bertie.infer.engine import Engine
    from bertie.infer.pseudo import PseudoPerplexity
    from bertie.models.model import TorchModel

    Usable = TorchModel | Engine | str | Path


def runner_of(
    model: "Usable", device: str | None, precision: str | None, options: dict[str, Any]
) -> "tuple[TorchModel | Engine, dict[str, Any]]":
    """Returns what computes a model, and the options with its tokenizer.

    For a folder, it is the engine that the command would take.
    """
    if not isinstance(model, str | PathLike):
        return in_place(model, device, precision), options
    opened = open_engine(model, device=device or "auto", precision=precision or "fp32")
    return opened.engine, {**options, "tokenizer": options.get("tokenizer") or opened.tokenizer}


def module_of(model: "TorchModel | str | Path", device: str | None, precision: str | None) -> "TorchModel":
    """Returns a model in torch, whose modules are used; see `runner_of`."""
    if isinstance(model, str | PathLike):
        return open_model(model, device=device or "auto", precision=precision or "fp32")
    return in_place(model, device, precision)  # type: ignore[return-value] # its functions say what an engine lacks


def in_place(model: "TorchModel | Engine", device: str | None, precision: str | None) -> "TorchModel | Engine":
    """Returns a loaded model on a device (default: where it is) and in a precision (default: its own).

    Raises UsageError for an unknown precision, and where the model is an engine or compiled, for a device or a
    precision.
    """
    import torch

    from bertie.infer.engine import Engine
    from bertie.models.model import TorchModel
    from bertie.train.precision import choose_device, choose_dtype

    check_names(precision or "fp32")
    if not isinstance(model, TorchModel):
        fixed = isinstance(model, Engine) or hasattr(model, "_orig_mod")  # which torch.compile wraps
        if fixed and {device or "auto", precision or "auto"} != {"auto"}:
            raise UsageError(
                f"This {type(model).__name__} has a device and a precision already. Omit device and precision, "
                "or pass what bertie.load returns."
            )
        if not fixed:
            raise UsageError(f"model is {model!r:.60}; a folder or what bertie.load returns was expected.")
        return model
    if device:
        model = model.to(choose_device(device))
    if precision:
        int8 = precision == "auto" and model.int8 and model.device.type == "cpu"
        dtype = choose_dtype("fp32" if int8 else precision, model.device)
        model = copy(model)  # the same weights in a model whose precision can differ
        model._modules = {**model._modules, "encoder": copy(model.encoder)}
        model.compute_dtype = None if dtype == torch.float32 else dtype
    return model


@arguments(*READS, **THEIRS)
def predict(
    model: "Usable",
    texts: Any,
    *,
    text: str | Sequence[str] = (),
    candidates: Sequence[str] | None = None,
    hypothesis: str | None = None,
    multi: bool = False,
    pattern: str = "",
    words: Mapping[str, str] | None = None,
    device: str | None = None,
    precision: str | None = None,
    **options: Any,
) -> Predictions:
    """Predicts labels for texts.

    Args:
        model: A fine-tuned model, or its folder.
        texts: Texts, or tuples of texts for tasks on pairs; or rows with columns: a DataFrame, an Arrow table, a data
            set, dicts, or the path of a file.
        text: Column of the text, or two columns for a pair. Default: as in training, or recognized by name.
        candidates: Labels that the model was not trained on (zero-shot classification).
        hypothesis: With candidates, a sentence with {} for the label: "This text is about {}."
        multi: With candidates, whether each is judged separately, so that several can apply.
        pattern: A text with [MASK], for a masked language model, with `words`: "It was [MASK]."
        words: The word of each label at the mask: {"good": "great", "bad": "terrible"}.
        device: cpu, cuda, cuda:1, mps or auto.
        precision: fp32, bf16 or auto.
        **options: tokenizer, max_length, too_long, head; with candidates only the first two.

    Returns:
        One `Prediction` per text: label, probability and the probabilities of all labels; `to_pandas()` has the columns
        of the rows too. The prediction of a text that is missing (None, NaN) or empty has an `error` instead, and a
        warning tells how many there are.

    Raises:
        DataError: No text can be read, or one is a pair where the model reads single texts, or the reverse.
        UsageError: The model has no task head, or options exclude each other.
    """
    if sum(map(bool, (candidates is not None, pattern or words, options.get("head")))) > 1:
        raise UsageError("candidates, pattern and head exclude each other. Pass one of them.")
    if candidates is None and (hypothesis is not None or multi):
        raise UsageError("hypothesis and multi need candidates.")
    if pattern or words:
        runner, options = runner_of(model, device, precision, options)
        return _answers(fill_in(runner, pattern, words or {}, **options), texts, text)
    if candidates is not None:
        if options.pop("too_long", None):
            raise UsageError("too_long has no effect with candidates, which truncate long texts. Omit too_long.")
        runner, options = runner_of(model, device, precision, options)
        return _answers(choose_from(runner, candidates, hypothesis=hypothesis, multi=multi, **options), texts, text)
    runner, options = runner_of(model, device, precision, options)
    return _answers(Predictor(runner, **options), texts, text)


def _answers(predictor: Predictor, texts: Any, text: str | Sequence[str]) -> Predictions:
    """Returns the predictions for texts, or for rows with columns, of which `text` names those of the text."""
    columns, names = predictor.task.table_columns, (text,) if isinstance(text, str) else tuple(text)
    if not memory.has_columns(texts):
        if names:
            raise UsageError("text names a column, and the texts have none. Omit text.")
        return Predictions(tuple(predictor.predict(texts)), columns=columns)
    with memory.open_as("texts", texts, labeled=False) as path:
        kind = "jsonl" if memory.in_memory(path) else ""
        format = TableFormat(names, kind=kind, labelled=False, keep=True)
        rows = predictor.task.rows(path, predictor.pipeline.reading(format))
        pairs = [*predictor.stream(rows)]
    unread = [answer for _, answer in pairs if isinstance(answer, InvalidRow)]
    tell_unread(unread, len(pairs))
    answers = (Prediction(None, error=one.reason) if isinstance(one, InvalidRow) else one for _, one in pairs)
    return Predictions(tuple(answers), tuple(row.source for row, _ in pairs), columns)


@arguments(*READS, **THEIRS)
def evaluate(
    model: "Usable",
    examples: Any = None,
    *,
    data: str = "",
    data_dir: Path | str | None = None,
    split: str = "dev",
    text: str | Sequence[str] = (),
    label: str = "",
    label_names: Mapping[str, str] = {},
    weight: str = "",
    positive: str = "",
    columns: Sequence[str] = (),
    encoding: str = "utf-8",
    format: str | TableFormat = "",
    label_separator: str = "",
    device: str | None = None,
    precision: str | None = None,
    **options: Any,
) -> Scores:
    """Computes the metrics of a model on labeled examples.

    Args:
        model: A fine-tuned model, or its folder.
        examples: Labeled examples: the path of a file (csv, tsv, jsonl, parquet ...), a DataFrame, an Arrow table, a
            data set, dicts, tuples (text, label), or a tuple of two lists (texts, labels).
        data: A published data set, instead of `examples`.
        data_dir: Folder of the files of `data`.
        split: Split of `data`.
        text: Column of the text, or two columns for a pair. Default: recognized by name.
        label: Column of the label. Default: recognized by name.
        label_names: Names for the labels of the file: {"0": "negative"}.
        weight: Column of the weight of a row in the metrics.
        positive: Label of a classification whose F1 is the main metric.
        columns: Column names of a file without a header line.
        encoding: Text encoding of the file.
        format: Format of the file. Default: by its suffix.
        label_separator: What separates several labels in a cell. Default: as in training.
        device: cpu, cuda, cuda:1, mps or auto.
        precision: fp32, bf16 or auto.
        **options: tokenizer, max_length, too_long, head.

    Returns:
        Every metric with its 95% interval, as `bertie evaluate --json` prints them.

    Raises:
        UsageError: Both or neither of examples and data are given.
    """
    from bertie.metrics.confusion import leading
    from bertie.runs.published import published, scored_as_published

    given = examples is not None and not (memory.is_path(examples) and not str(examples))
    if given == bool(data):
        raise UsageError("Give either examples, or data and data_dir.")
    told = format
    if not isinstance(told, TableFormat):
        told = TableFormat(
            (text,) if isinstance(text, str) else tuple(text),
            label,
            tuple(columns),
            encoding,
            told,
            label_names={str(label): str(name) for label, name in label_names.items()},
            weight=weight,
            label_separator=label_separator,
        )
    source: Any = examples
    if data:
        source, told = published(data, split, data_dir, told)
    runner, options = runner_of(model, device, precision, options)
    predictor = Predictor(runner, **options)
    task = predictor.task
    if data:
        task, _ = scored_as_published(task, data)
    predictor = predictor.replace(task_or_none=with_positive(task, positive))
    with memory.open_as("examples", source) as path:
        told = replace(told, kind="jsonl") if memory.in_memory(path) else told
        report = predictor.score(path, told)
    return Scores(report, leading(predictor.task.metrics, report))


@overload
def embed(model: "Usable", texts: Iterable[str], *, tokens: Literal[False] = False, **options: Any) -> Vector: ...
@overload
def embed(
    model: "Usable", texts: Iterable[str], *, tokens: Literal[True], **options: Any
) -> list[TokenVectors | None]: ...
@arguments(*VECTORS, **THEIRS)
def embed(
    model: "Usable",
    texts: Iterable[str],
    *,
    tokens: bool = False,
    layers: str | Sequence[int] = "",
    device: str | None = None,
    precision: str | None = None,
    **options: Any,
) -> Vector | list[TokenVectors | None]:
    """Computes a vector for each text, or for each of its tokens.

    Args:
        model: A model, or its folder; folders of sentence-transformers too.
        texts: The texts.
        tokens: Whether to return the vectors of the tokens.
        layers: With tokens: "all", or layer numbers; 0 is the embeddings. Default: the last layer.
        device: cpu, cuda, cuda:1, mps or auto.
        precision: fp32, bf16 or auto.
        **options: prompt, prefix, pooling, normalize, truncate_dim and max_length, as for `bertie embed`. With tokens
            only max_length.

    Returns:
        (N, W) float32, one row per text; with tokens, a `TokenVectors` per text. Of a text that is missing (None, NaN)
        or empty, the row is NaN, or None with tokens, and a warning tells how many there are.

    Raises:
        DataError: No text can be read.
        UsageError: There is no such layer, layers without tokens, or options of texts with tokens.
    """
    asked = layers if isinstance(layers, str | None) else [*layers]
    if asked and not tokens:
        raise UsageError("layers chooses vectors of tokens. Pass tokens=True, or omit layers.")
    if tokens and (given := [name for name in options if name != "max_length" and options[name] not in (None, False)]):
        raise UsageError(f"{', '.join(given)}: these options change vectors of texts. Omit them with tokens=True.")
    runner, options = runner_of(model, device, precision, options)
    found = embedder(runner, **options)
    if tokens:
        chosen, read = layers_of(asked or "-1", found.engine.facts), readable_texts(texts)
        chunks = token_vectors(found.engine, found.tokenizer, read, chosen, max_length=found.max_length)
        return [text for chunk in chunks for text in chunk.texts()]
    return _vectors(found, texts, "texts")


def readable_texts(texts: Iterable[Any], name: str = "texts") -> list[str | None]:
    """Returns the texts, with None for one that is missing or empty, after a warning. name: of the argument.

    Raises DataError where none can be read.
    """
    rows = [*each_row(texts, name)]
    tell_unread([row for row in rows if isinstance(row, InvalidRow)], len(rows))
    return [None if isinstance(row, InvalidRow) else row for row in rows]


def _vectors(predictor: Predictor, texts: Iterable[str], name: str) -> Vector:
    """Returns the vector of each text; NaN for one that cannot be read. (N, W) name: of the argument, for messages."""
    assert isinstance(predictor.task, Embeds)
    read = readable_texts(texts, name)
    width = predictor.task.width(predictor.engine.facts.hidden_size)
    vectors_NW = np.full((len(read), width), np.nan, np.float32)
    if filled := {number: text for number, text in enumerate(read) if text is not None}:
        vectors_NW[[*filled]] = [answer.label for answer in predictor.predict(filled.values())]
    return vectors_NW


@arguments(*VECTORS, *WHERE, **THEIRS)
def similarity(model: "Usable", first: Iterable[str], second: Iterable[str], **options: Any) -> Vector:
    """Computes the similarity of each text of `first` to each text of `second`.

    Args:
        model: A model of sentence vectors, or its folder.
        first: A texts.
        second: B texts.
        **options: Options of `embed`.

    Returns:
        (A, B) float32: cosines, or what the folder names. Distances are negative, so a higher number is more similar.
    """
    runner, options = runner_of(model, options.pop("device", None), options.pop("precision", None), options)
    found = embedder(runner, **options)
    assert isinstance(found.task, Embeds)
    a_AH, b_BH = _vectors(found, first, "first"), _vectors(found, second, "second")
    return alike(a_AH, b_BH, found.task.similarity)


@dataclass(frozen=True)
class Ranked:
    """A passage of a ranking.

    Attributes:
        index: Its position in the input.
        score: Higher is better.
        text: The passage.
    """

    index: int
    score: float
    text: str


@arguments(*READS, *VECTORS, *WHERE, **THEIRS)
def rank(
    model: "Usable", query: str, passages: Iterable[str], *, top: int | None = None, **options: Any
) -> list[Ranked]:
    """Ranks passages by relevance to a query.

    A cross-encoder reads the query and a passage together. A model of sentence vectors compares their vectors.

    Args:
        model: A model of either kind, or its folder.
        query: The query.
        passages: The passages.
        top: Number of passages to return. Default: all.
        **options: Options of `predict`, or of `embed`.

    Returns:
        The passages, best first. Equal scores keep the order of the input. A passage that is missing (None, NaN) or
        empty is the last, with the score NaN and a warning.

    Raises:
        UsageError: The model gives neither scores nor vectors, or top is negative.
    """
    check_text(query, "query")
    check_top(top)
    read = readable_texts(passages, "passages")
    passages = [text or "" for text in read]
    filled = [number for number, text in enumerate(read) if text is not None]
    runner, options = runner_of(model, options.pop("device", None), options.pop("precision", None), options)
    usual = Predictor(runner, options.get("tokenizer"))
    if isinstance(usual.pipeline.task_or_none, Embeds):
        some = similarity(runner, [query], [passages[number] for number in filled], **options)[0].tolist()
    else:
        predictor = Predictor(runner, **options)
        answers = predictor.predict([(query, passages[number]) for number in filled])
        some = [_score(answer, predictor.labels) for answer in answers]
    scores = dict.fromkeys(range(len(passages)), math.nan) | dict(zip(filled, some, strict=True))
    order = sorted(scores, key=lambda index: -scores[index] if scores[index] == scores[index] else math.inf)
    return [Ranked(index, scores[index], passages[index]) for index in order[:top]]


def _score(answer: Prediction, labels: Sequence[str]) -> float:
    """Returns a number, or the probability of the second of two labels."""
    if isinstance(answer.label, float):
        return answer.label
    if len(labels) != 2 or not answer.scores:
        raise UsageError("The model cannot rank: it needs one score, two labels, or sentence vectors.")
    return answer.label_probabilities[labels[-1]]


@arguments("tokenizer", "max_length", **THEIRS)
def fill_mask(
    model: "Usable",
    text: str,
    *,
    top: int = 5,
    device: str | None = None,
    precision: str | None = None,
    **options: Any,
) -> list[list[MaskPrediction]]:
    """Predicts masked tokens.

    Args:
        model: A model with a masked-LM head, or its folder.
        text: A text with one or more mask tokens.
        top: Number of predictions per mask.
        device: cpu, cuda, cuda:1, mps or auto.
        precision: fp32, bf16 or auto.
        **options: tokenizer, max_length.

    Returns:
        For each mask, the most probable tokens, best first.

    Raises:
        DataError: The text has no mask.
    """
    runner, options = runner_of(model, device, precision, options)
    return Predictor(runner, **options).fill_mask(text, top=top)


def write(
    model: "TorchModel | str | Path",
    texts: Iterable[str],
    *,
    seed: int = 0,
    max_length: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    **options: Any,
) -> list[str | None]:
    """Generates a text for each text.

    Args:
        model: A model that generates text (T5, GPT-2 ...), or its folder.
        texts: The texts. A fine-tuned model reads them in the template of its training.
        seed: Seed of random draws, with do_sample.
        max_length: Maximum number of tokens of a text. Default: as in training.
        device: cpu, cuda, cuda:1, mps or auto.
        precision: fp32, bf16 or auto.
        **options: max_new_tokens, num_beams, length_penalty, early_stopping, do_sample, temperature, top_k and top_p,
            as `transformers` names them. Default: as trained.

    Returns:
        The generated texts; None for a text that is missing (None, NaN) or empty, with a warning.

    Raises:
        UsageError: The model generates no text, or an option is unknown.
        DataError: No text can be read.
    """
    from bertie.infer.write import pieces, writer

    read = readable_texts(texts)
    found = module_of(model, device, precision)
    predictor, writing = writer(found, max_length=max_length, **options)
    return [None if text is None else "".join(pieces(found, predictor, text, writing, seed=seed)) for text in read]


@arguments(**THEIRS)
def perplexity(
    model: "TorchModel | str | Path",
    texts: Iterable[str],
    *,
    max_length: int | None = None,
    device: str | None = None,
    precision: str | None = None,
) -> "PseudoPerplexity":
    """Computes the pseudo-perplexity of texts: each token is masked in turn. Salazar et al. 2020.

    Args:
        model: A model with a masked-LM head, or its folder.
        texts: The texts.
        max_length: Longer texts are left out. Default: the maximum of the model.
        device: cpu, cuda, cuda:1, mps or auto.
        precision: fp32, bf16 or auto.

    Returns:
        per_word, per_token, and counts.
    """
    from bertie.infer.pseudo import pseudo_perplexity

    rows = ("" if isinstance(row, InvalidRow) else row for row in each_row(texts))
    return pseudo_perplexity(module_of(model, device, precision), rows, max_length=max_length)
