"""Sentence embeddings of a stream of texts, written as they are computed.

N texts · H hidden size
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertie.errors import UnknownName, UsageError, WrongModel, nearest
from bertie.infer.pipeline import TextCount
from bertie.infer.predict import Predictor
from bertie.infer.texts import TextRow
from bertie.io.lines import BadRecord
from bertie.io.tables import SkipReport
from bertie.models.sentence import MODES
from bertie.tasks.capabilities import Embeds
from bertie.tasks.embed import EmbedTask

if TYPE_CHECKING:
    from bertie.infer.engine import Engine
    from bertie.models.model import TorchModel
    from bertie.text.tokenizer import Tokenizer

Vector = NDArray[np.float32]


def make_embedder(
    model: "TorchModel | Engine",
    tokenizer: "Tokenizer | None" = None,
    *,
    max_length: int | None = None,
    prompt: str | None = None,
    prefix: str | None = None,
    pooling: str | Sequence[str] | None = None,
    normalize: bool = False,
    truncate_dim: int | None = None,
) -> Predictor:
    """Returns a predictor of vectors, as trained by Bertie or `sentence-transformers`, or the mean of the tokens.

    prompt: the name of a prompt in the folder; prefix: a text before every text. normalize: vectors are
    made of length one. Raises UsageError for a prompt or a way of pooling that there is not, and for more dimensions
    than a vector has.
    """
    predictor = Predictor(model, tokenizer, max_length=max_length, too_long="truncate")
    predictor.pipeline.facts.training_facts.check_reads_texts("an embedding")
    sentence = predictor.pipeline.facts.sentence
    trained = predictor.pipeline.task_or_none
    own = (trained if isinstance(trained, Embeds) else EmbedTask.told(sentence)) or EmbedTask()
    prompts = sentence.prompts
    if prompt is not None and prefix is not None:
        raise UsageError("prompt and prefix exclude each other. Pass one of them.")
    if prompt is not None and prompt not in prompts:
        if not prompts:
            raise WrongModel("The model has no prompts. Pass the text with --prefix (prefix=TEXT).")
        raise UnknownName(f"The model has no prompt {prompt!r}. {nearest(prompt, prompts)}")
    alone = isinstance(pooling, str) or not isinstance(pooling, Sequence)
    for way in () if pooling is None else (pooling,) if alone else pooling:
        if way not in MODES:
            raise UnknownName(f"Unknown pooling {way!r}. {nearest(str(way), MODES)}")
    if pooling is not None and own.dense:
        raise UsageError("The dense layers of this model need its own pooling. Omit pooling.")
    options: dict[str, object] = {
        "prompt": prefix if prompt is None else prompts[prompt],
        "pooling": pooling,
        "unit_length": normalize or None,
        "truncate_dim": truncate_dim,
    }
    chosen = {name: value for name, value in options.items() if value is not None}
    task = replace(EmbedTask.make((), {**own.settings(), **chosen}), dense=own.dense)
    whole, cut = task.whole_width(predictor.pipeline.facts.hidden_size), task.truncate_dim
    if truncate_dim is not None and cut is not None and cut > whole:
        raise UsageError(f"truncate_dim is {cut:,}, but vectors of this model have {whole:,} dimensions.")
    return predictor.replace(task_or_none=task)


def embed_rows(
    predictor: Predictor,
    rows: Iterable[TextRow],
    skipped: SkipReport,
    long: TextCount | None = None,
    *,
    eager: bool = False,
) -> Iterator[tuple[TextRow, Vector | BadRecord]]:
    """Yields each row with its vector (H,), or with the reason why it has none, in order. long: counts truncated
    texts."""
    for row, answer in predictor.stream(rows, eager=eager, count=long):
        skipped.count(answer)
        yield row, answer if isinstance(answer, BadRecord) else np.array(answer.label, np.float32)


def width_of(predictor: Predictor) -> int:
    """Returns the dimensions of a model's vectors. Raises UsageError for a model that makes no vectors."""
    task = predictor.task
    if not isinstance(task, Embeds):
        raise WrongModel("The model makes no vectors of texts.")
    return task.width(predictor.pipeline.facts.hidden_size)


def write_npy(
    predictor: Predictor, rows: Iterable[TextRow], out: IO[bytes], skipped: SkipReport, long: TextCount | None = None
) -> None:
    """Writes one float32 array (N, H). The number of rows is written into the header at the end."""
    size, count = width_of(predictor), 0
    out.write(_header(0, size))
    for _, vector in embed_rows(predictor, rows, skipped, long):
        out.write((np.full(size, np.nan, np.float32) if isinstance(vector, BadRecord) else vector).tobytes())
        count += 1
    out.seek(0)
    out.write(_header(count, size))


def _header(rows: int, size: int) -> bytes:
    """Returns the header of a .npy file, with space for a larger number of rows."""
    header = io.BytesIO()
    facts = {"descr": np.lib.format.dtype_to_descr(np.dtype("<f4")), "fortran_order": False, "shape": (rows, size)}
    np.lib.format.write_array_header_1_0(header, facts)
    return header.getvalue()
