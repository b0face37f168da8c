"""The pseudo-perplexity of rows in any form."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from bertie.api.predicting import TextSource
from bertie.console import console
from bertie.errors import DataError
from bertie.infer.engine import Engine
from bertie.infer.pseudo import PseudoPerplexity, pseudo_perplexity
from bertie.infer.texts import each_row
from bertie.io.lines import BadRecord
from bertie.io.tables import Example, SkipReport, stream_examples
from bertie.text.tokenizer import Tokenizer


def perplexity_of(
    engine: Engine, tokenizer: Tokenizer, source: TextSource, limit: int | None, max_length: int | None
) -> PseudoPerplexity:
    """Returns the pseudo-perplexity of texts, with the rows that were skipped by reason. limit: of the rows."""
    if not source.check_texts():
        rows = ("" if isinstance(row, BadRecord) else str(row) for row in each_row(source.rows))  # type: ignore[arg-type]
        return pseudo_perplexity(engine, islice(rows, limit), tokenizer=tokenizer, max_length=max_length)
    skipped = SkipReport()
    with source.table(keep=False) as (path, format):
        try:
            texts = _texts(stream_examples(path, format), limit, skipped)
            scores = pseudo_perplexity(engine, texts, tokenizer=tokenizer, max_length=max_length)
        except DataError as error:
            raise DataError(f"{error} {skipped}." if skipped.total else str(error)) from None
    if skipped.total:
        console.warn(str(skipped))
    return replace(scores, skipped=skipped.counts)


def _texts(rows: Iterator[Example | BadRecord], limit: int | None, skipped: SkipReport) -> Iterator[str]:
    """Yields the texts of rows, with progress."""
    with console.progress("perplexity", limit, unit="texts") as advance:
        for row in islice(rows, limit):
            skipped.count(row)
            if isinstance(row, Example):
                yield " ".join(row.texts)
            advance(1)
