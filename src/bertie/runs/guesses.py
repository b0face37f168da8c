"""RUN/guesses.jsonl: predictions during training for some masked tokens of held-out text.

One line per evaluation, as runs/page.py draws it:
{"step", "examples": [{"text": [[text, kind, note], ...], "answer", "guesses": [[token, probability], ...]}]}
"""

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from bertie.errors import BadFile
from bertie.files import JsonObject, write_bytes
from bertie.models.batch import Batch
from bertie.models.heads.vocabulary import VocabularyHead
from bertie.models.model import TorchModel
from bertie.report.page import BLANK, MASKED, RANDOM
from bertie.runs.folder import GUESSES
from bertie.text.tokenizer import Tokenizer
from bertie.train.rendezvous import is_main

EXAMPLES, TOP, AROUND = 6, 2, 10  # masked tokens; predictions for each; tokens shown on either side


@torch.no_grad()
def write_guesses(model: TorchModel, batch: Batch, tokenizer: Tokenizer, *, step: int, run: Path) -> None:
    """Predicts some masked tokens of a corrupted batch, and appends the predictions to guesses.jsonl.

    Lines of later steps, which a resumed run repeats, are dropped. Does nothing for a model without a masked-LM head.
    """
    head = dict(model.heads).get("mlm")
    if not isinstance(head, VocabularyHead) or "mlm_positions" not in batch.labels:
        return
    ids, starts = batch.input_ids.tolist(), torch.cumsum(batch.layout.mask().sum(1), 0).tolist()
    places, originals = batch.labels["mlm_positions"].tolist(), batch.labels["mlm_targets"].tolist()
    targets = dict(zip(places, originals, strict=True))
    chosen: dict[int, int] = {}  # sequence -> the first place that shows the mask
    for place in places:
        if ids[place] == tokenizer.mask_id:
            chosen.setdefault(next(i for i, end in enumerate(starts) if place < end), place)
    some = sorted(chosen.items())[:EXAMPLES]
    if not some:
        return
    device = model.device
    hidden = model.encode(batch.to(device)).last_hidden_state[[place for _, place in some]]
    top = head.logits(hidden, model.word_embeddings).float().softmax(-1).topk(TOP)
    if not is_main():  # which only helped to look: a model in parts takes all ranks
        return
    rows = []
    for (sequence, place), p, best in zip(some, top.values.tolist(), top.indices.tolist(), strict=True):
        window = range(max([0, *starts][sequence], place - AROUND), min(starts[sequence], place + 1 + AROUND))
        rows.append(
            {
                "text": show_masked_text(ids, targets, window, place, tokenizer),
                "answer": tokenizer.id_to_token(targets[place]),
                "guesses": [[tokenizer.id_to_token(i), round(q, 4)] for i, q in zip(best, p, strict=True)],
            }
        )
    lines_before = [line for line in read_guesses(run) if line["step"] < step]
    lines = [json.dumps(line, ensure_ascii=False) + "\n" for line in [*lines_before, {"step": step, "examples": rows}]]
    write_bytes(run / GUESSES, "".join(lines).encode())


def show_masked_text(
    ids: list[int], targets: Mapping[int, int], window: range, place: int, tokenizer: Tokenizer
) -> list[list[str]]:
    """Returns the tokens of a window as [text, kind, note] with spaces: `place` is blank, other corrupted ones are
    marked.

    The spaces are those of the original text, from the offsets of the tokens.
    """
    places = [i for i in window if ids[i] not in (tokenizer.special_id("cls"), tokenizer.special_id("pad"))]
    originals = [targets.get(i, ids[i]) for i in places]
    whole = tokenizer.decode(originals, skip_special_tokens=False)
    begins = [0]
    for n in range(1, len(originals)):
        before = tokenizer.decode(originals[:n], skip_special_tokens=False)
        begins.append(max(begins[-1], _shared(before, whole)))
    stretches: list[list[str]] = []
    for i, original, begin, end in zip(places, originals, begins, [*begins[1:], len(whole)], strict=True):
        written = whole[begin:end]
        space = written[: len(written) - len(written.lstrip())]
        if i == place:
            stretches.append([space, BLANK, ""])
        elif i in targets and ids[i] == tokenizer.mask_id:
            stretches.append([space + tokenizer.id_to_token(ids[i]), MASKED, ""])
        elif ids[i] != original:
            note = f"random token; original: {tokenizer.id_to_token(original)}"
            stretches.append([space + tokenizer.written(ids[i]), RANDOM, note])
        elif stretches and not stretches[-1][1]:
            stretches[-1][0] += written
        else:
            stretches.append([written, "", ""])
    return stretches


def _shared(a: str, b: str) -> int:
    """Returns the length of the common prefix of two texts."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def read_guesses(run: Path) -> list[JsonObject]:
    """Returns the lines of a run's guesses.jsonl, or none without the file. Raises DataError for a damaged line."""
    path = run / GUESSES
    try:
        lines = [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
    except ValueError as error:
        raise BadFile(f"{path} has a line that is not JSON ({error}).") from None
    return lines
