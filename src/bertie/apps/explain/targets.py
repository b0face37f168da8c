"""The number of a prediction to explain: a label's logit, a tag's, an answer's, a masked word's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bertie import Tokenizer
from bertie.apps.explain.attribution import ExplainedOutput, Target
from bertie.apps.explain.words import NO_ANSWER, NO_WORDS, text_words
from bertie.platform import DataError, Encoding, ModelInternals, TorchModel, UsageError, nearest

_SPAN = 2  # outputs of a head for answers: start, end
UNEXPLAINED = ("several", "pattern", "choice", "text2text")  # tasks whose prediction is not one of one head's logits
_MULTI_LABEL = "multi_label_classification"
Decisions = Callable[[Tensor], list[Tensor]]
"""The logits that a prediction is chosen from, (K, choices): one decision, or the start and the end of an answer."""


@dataclass(frozen=True)
class Explained:
    """A question to attribute, and what it asks in words: "label positive", "word 3 (Paris): B-LOC"."""

    question: ExplainedOutput
    about: str
    texts: tuple[str, ...]
    cut: int  # tokens that the model does not read


def question_of(
    model: TorchModel, texts: Sequence[str], *, label: str = "", word: int | None = None, max_length: int | None = None
) -> Explained:
    """Returns the question for a text or a pair of texts.

    label: the label or masked word to explain; the predicted one by default. word: for a tagger, the number of the
    word, from 1. Raises UsageError for a model without a tokenizer or a head that can be explained, and for an
    unknown label. Raises UsageError too for a label or word where there is none to choose. Raises DataError for a text
    without words.
    """
    if isinstance(texts, str) or len(texts) not in (1, 2) or not all(isinstance(one, str) for one in texts):
        raise UsageError("texts must be a list of one text, or of two texts for a pair.")
    tokenizer = model.text_tokenizer
    facts = model.training_facts
    facts.check_texts_decide("bertie explain")
    if facts.task in UNEXPLAINED:
        raise UsageError(
            f"This model has the task {facts.task}, whose predictions cannot be explained. Labels, tags, answers, "
            "numbers and masked words can.",
            code="wrong-model",
        )
    head = _head(model)
    if facts.texts not in (None, len(texts)):
        wants, got = ("pairs of texts", "two texts") if facts.texts == 2 else ("single texts", "one text")
        raise UsageError(f"The model was trained on {wants}. Pass {got}.")
    length = max_length or min(
        facts.max_length or tokenizer.max_length, model.config.max_length
    )  # what `predict` reads
    inside = ModelInternals(model)
    texts = inside.pipeline.plain_texts(texts)  # as `predict` reads them
    encoding = tokenizer.encode(texts[0], *texts[1:2], max_length=length)
    if inside.predicts_tokens(head) and tokenizer.special_id("mask") is not None:
        encoding = inside.pipeline.as_filled(texts, encoding, length)
    if all(sequence is None for sequence in encoding.sequence_ids):
        raise DataError(NO_WORDS)
    ids = torch.tensor([encoding.ids], device=model.device)
    pad = tokenizer.pad_id
    mask = tokenizer.special_id("mask")
    place = _place_of_mask(head, encoding, tokenizer) if inside.predicts_tokens(head) else None
    plain = ExplainedOutput(model, encoding, head, place, torch.ravel, pad, mask)
    with torch.no_grad():
        logits = plain.logits(ids)[0]
        if place is not None:
            kind, (decisions, at, about) = "words", _masked(logits, tokenizer, label)
        else:
            if logits.dim() < 2:
                kind = "labels" if logits.numel() > 1 else "number"
                decisions, at, about = _sequence(model, logits, label)
            elif logits.shape[-1] == _SPAN and not model.labels:
                kind, (decisions, at, about) = "answer", _span(logits, plain, texts)
            else:
                kind, (decisions, at, about) = "tags", _tag(model, logits, plain, texts, label, word)
    if word is not None and kind != "tags":
        raise UsageError("--word-number names the word of a tag, and this model has no tags. Omit it.")
    if label and kind in ("number", "answer"):
        raise UsageError(f"--target chooses among labels, and this model predicts {kind}s. Omit it.")
    chance = None if kind == "number" else _probability(decisions, at, model.problem_type == _MULTI_LABEL)
    question = replace(plain, target=_sum(decisions, at), chance=chance)
    return Explained(question, about, tuple(texts), encoding.overflow)


def _sum(decisions: Decisions, at: Sequence[int]) -> Target:
    def target(logits: Tensor) -> Tensor:
        chosen = [one[:, i] for one, i in zip(decisions(logits), at, strict=True)]
        return torch.stack(chosen).sum(0)

    return target


def _probability(decisions: Decisions, at: Sequence[int], several: bool) -> Target:
    """several: each label has a probability of its own."""

    def probability(logits: Tensor) -> Tensor:
        shares = [one.sigmoid() if several else one.softmax(-1) for one in decisions(logits)]
        return torch.stack([share[:, i] for share, i in zip(shares, at, strict=True)]).prod(0)

    return probability


def _head(model: TorchModel) -> str:
    known = [name for name in model.heads if name not in ("pair", "nsp", "sop", "rtd", "bilm", "decoder", "parse")]
    if not known:
        raise UsageError(
            "This model has no head whose predictions can be explained: it makes only vectors or pairs.",
            code="wrong-model",
        )
    return next((name for name in known if not ModelInternals(model).predicts_tokens(name)), known[0])


def _choose(model: TorchModel, logits: Tensor, label: str) -> int:
    names = model.labels or tuple(str(number) for number in range(len(logits)))
    if label and label not in names:
        raise UsageError(f"Unknown label {label!r}. {nearest(label, names)}")
    if label:
        return names.index(label)
    choose = getattr(
        ModelInternals(model).pipeline.task_or_none, "choose", None
    )  # with its threshold, where it has one
    return int(choose(logits.float().cpu().numpy()) if choose else logits.argmax())


def _sequence(model: TorchModel, logits: Tensor, label: str) -> tuple[Decisions, tuple[int, ...], str]:
    size = logits.numel()  # 1: a number, or the score of one of several choices
    at = 0 if size == 1 else _choose(model, logits, label)
    name = model.labels[at] if len(model.labels) > at else str(at)
    about = "the score" if size == 1 and not model.labels else f"label {name}"
    return (lambda logits: [logits.reshape(-1, size)]), (at,), about


def _span(logits: Tensor, plain: ExplainedOutput, texts: Sequence[str]) -> tuple[Decisions, tuple[int, ...], str]:
    allowed = torch.tensor([sequence == len(texts) - 1 for sequence in plain.encoding.sequence_ids])
    if not allowed.any():
        raise DataError(NO_ANSWER)
    starts, ends = (logits[:, side].cpu().float().masked_fill(~allowed, -torch.inf).numpy() for side in (0, 1))
    first, last = ModelInternals(plain.model).best_span(starts, ends)
    offsets = plain.encoding.offsets
    answer = texts[-1][offsets[first][0] : offsets[last][1]]

    return (lambda logits: list(logits.unbind(-1))), (first, last), f"answer {answer!r}"


def _tag(
    model: TorchModel, logits: Tensor, plain: ExplainedOutput, texts: Sequence[str], label: str, word: int | None
) -> tuple[Decisions, tuple[int, ...], str]:
    words = plain.encoding.word_ids
    numbers = list(dict.fromkeys(number for number in words if number is not None))
    outside = model.labels.index("O") if "O" in model.labels else -1
    if word is None:  # the first word that is not O
        tagged = [number for number in numbers if int(logits[words.index(number)].argmax()) != outside]
        word = numbers.index((tagged or numbers)[0]) + 1
    if not 1 <= word <= len(numbers):
        raise UsageError(f"--word-number is {word}; the text has words 1 to {len(numbers)}.")
    place = words.index(numbers[word - 1])
    at = _choose(model, logits[place], label)
    _, start, end, _ = [one for one in text_words(plain.encoding) if one.text is not None][word - 1]
    name = model.labels[at] if model.labels else str(at)
    about = f"word {word} ({texts[0][start:end]}): {name}"
    return (lambda logits: [logits[:, place]]), (at,), about


def _place_of_mask(name: str, encoding: Encoding, tokenizer: Tokenizer) -> int:
    """Returns the first mask of a text. Raises UsageError where there is none, and for a model that generates text."""
    mask, ids = tokenizer.special_id("mask"), encoding.ids
    if name == "lm":
        raise UsageError(
            "This model generates text, and only labels, tags, answers and masked words can be explained. Fine-tune an "
            "encoder for the task, such as --task sequence.",
            code="wrong-model",
        )
    if mask is not None and mask not in ids and encoding.overflow:
        raise UsageError(
            f"The text has no {tokenizer.special_tokens.get('mask', '[MASK]')} in the {len(ids)} tokens that are read. "
            "Pass only the part around the mask."
        )
    if mask is None or mask not in ids:
        raise UsageError(
            f"This model has no task head, so the text needs a mask: {tokenizer.special_tokens.get('mask', '[MASK]')}. "
            "Or fine-tune the model first.",
            code="wrong-model",
        )
    return ids.index(mask)


def _masked(logits: Tensor, tokenizer: Tokenizer, label: str) -> tuple[Decisions, tuple[int, ...], str]:
    if label:
        ids = tokenizer.ids([label])[0]
        if len(ids) != 1:
            raise UsageError(f"--target {label!r} is {len(ids)} tokens; a masked word is one token.")
        at = int(ids[0])
        if at == tokenizer.special_id("unk"):
            raise UsageError(f"--target {label!r} is not in the vocabulary. Choose a word that is one token.")
    else:
        at = int(logits.argmax())

    return (lambda logits: [logits]), (at,), f"masked word {tokenizer.id_to_token(at)!r}"
