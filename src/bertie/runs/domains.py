"""The effect of continued pre-training: the pseudo-perplexity of a model on each corpus before and after.

It is measured on sentences of held-out documents, the same for both models.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from bertie.console import console
from bertie.data.plans import choose_held_out
from bertie.data.shards import Shards
from bertie.errors import DataError
from bertie.files import Json, JsonObject
from bertie.infer.perplexity import text_perplexity
from bertie.models.model import TorchModel
from bertie.order import key
from bertie.text.tokenizer import Tokenizer

_SEED = 0x5EED  # never the run's: all runs on a corpus are measured on the same sentences


def before_and_after(
    start: TorchModel | None,
    model: TorchModel,
    tokenizer: Tokenizer,
    corpora: Mapping[str, tuple[Path, Shards]],
    *,
    sentences: int,
) -> dict[str, object]:
    """Corpus -> {"before": pseudo-perplexity of `start`, "after": of `model`}.

    corpora: name -> folder, token ids. sentences: maximum number per corpus. start None: its head was untrained, so
    only the values after training are reported.
    """
    texts = {name: held_out_sentences(folder, ids, sentences) for name, (folder, ids) in corpora.items()}
    results: JsonObject = {}
    with console.progress("pseudo-perplexity", 2 * len(texts), unit="looks") as advance:
        for name, lines in texts.items():
            results[name] = {}
            for when, one in (("before", start), ("after", model)):
                if one is None:
                    continue
                one.to(model.device)
                results[name][when] = asdict(text_perplexity(one, lines, tokenizer=tokenizer))
                advance(1)
    return results


def held_out_sentences(folder: Path, ids: Shards, count: int) -> list[str]:
    """Returns some sentences of a corpus's held-out documents. Raises DataError when there are none."""
    bounds = ids.document_bounds()
    out = choose_held_out(ids.sentence_lengths(), bounds)
    numbers = np.concatenate([np.arange(bounds[i], bounds[i + 1]) for i in np.flatnonzero(out)] or [np.zeros(0, int)])
    if not len(numbers):
        raise DataError(
            f"{folder} is too small to hold out documents, so there is no text to measure on. Set pseudo_perplexity=0."
        )
    chosen = np.sort(numbers[np.argsort(key(_SEED, numbers))[:count]])
    text = Shards.open(folder, verify=False)
    return [bytes(text.sentence(int(i))).decode() for i in chosen]


def format_domains(results: Json) -> str:
    """Returns the values as lines of text, per word and per token."""
    width = max(len("pseudo-perplexity"), *map(len, results))
    rows = [f"{'pseudo-perplexity':<{width}}  {'per word':>21}  {'per token':>21}"]
    for name, both in results.items():
        cells = [
            (f"{both['before'][k]:>9.4g} -> " if "before" in both else "") + f"{both['after'][k]:>8.4g}"
            for k in ("per_word", "per_token")
        ]
        rows.append(f"{name:<{width}}  {cells[0]:>21}  {cells[1]:>21}")
    if any("before" not in both for both in results.values()):
        rows.append("The values before training are omitted: the model had no trained language-model head.")
    return "\n".join(rows)
