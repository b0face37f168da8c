"""A model folder without a concept, with the audits before and after and what the change cost."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import bertie
from bertie import FinetuneConfig
from bertie.apps.audit.base import Subject
from bertie.apps.audit.erase import remedy
from bertie.apps.audit.figures import Scored, differences
from bertie.apps.audit.flips import SWAPS_FILE, read_lists
from bertie.apps.audit.price import fine_tuned
from bertie.apps.audit.remedy import VectorPlace, check_removable, list_places, remove_concept, write_dense
from bertie.apps.audit.remedy_page import add_remedy_to_card
from bertie.apps.audit.run import Asked, audit
from bertie.apps.audit.sets import SETS
from bertie.apps.perturb.swaps import Swaps
from bertie.platform import FolderKind, ModelFolder, ModelInternals, TorchModel, UsageError, console, nearest

LIST = "gender words"
_SEEDS = 3  # of each fine-tuned set: the fewest that give an interval of use
PRICED = 200  # texts of the pseudo-perplexity


def pairs_of(path: Path | None, name: str) -> Swaps:
    """Returns a list of pairs of a YAML file, or of the built-in ones. Raises UsageError for an unknown name."""
    lists = read_lists(path or SWAPS_FILE)
    chosen = name or (LIST if path is None else next(iter(lists)))
    if chosen not in lists:
        raise UsageError(f"There is no list {chosen!r} of pairs. {nearest(chosen, lists)}")
    return lists[chosen]


def write_debiased_model(
    model: Path | str,
    texts: Sequence[str],
    out: Path,
    *,
    how: str = "leace",
    swaps: Swaps,
    request: Asked | None = None,
    tuned: Mapping[str, FinetuneConfig] | None = None,
    seeds: int = _SEEDS,
    overwrite: bool = False,
    device: str | None = None,
) -> dict[str, Any]:
    """Writes a model without the concept of the pairs, and returns what was removed, both audits and the price.

    tuned: fine-tuning runs by name, which are run from both models with some seeds. Raises UsageError for a model
    without a part that can be changed, DataError for too few texts.
    """
    remedy(how)
    source, request = ModelFolder(model), request or Asked(controls=False)
    folder = source.path
    FolderKind.named("model").check(out, overwrite=overwrite, new=True)
    source.load(trainable=True)
    loaded = bertie.load(folder, device or "auto", engine="torch").module
    loaded.training_facts.check_reads_texts("bertie debias")
    if loaded.tokenizer is None:
        raise UsageError(f"{folder} has no tokenizer. Copy its files (tokenizer.json or vocab.txt) into the folder.")
    if tuned and not any(_reads(config, place) for config in tuned.values() for place in list_places(loaded)):
        changed = ", ".join(place.name for place in list_places(loaded))
        raise UsageError(
            f"What changes here ({changed}) is not read in fine-tuning, so its scores would be the same. Omit "
            "--finetune, and compare the vectors: bertie evaluate."
        )
    for config in (tuned or {}).values():
        bertie.plan_finetune(config=config, trial=0)  # what cannot be read is reported now, and not after the audits
    check_removable(loaded, texts, swaps, how)
    before = _price(loaded, texts, "before")
    subject = Subject(ModelInternals(loaded).engine("auto"), loaded.tokenizer)
    removed, maps = remove_concept(loaded, subject, texts, swaps, how, seed=request.seed)
    with FolderKind.named("model").new(out, overwrite=overwrite) as out_folder:
        source.write_like(loaded, out_folder)
        for place, erasure in maps:
            if place.weights is None:
                write_dense(out_folder, erasure)
    scores: list[dict[str, Scored]] = [{}, {}]
    audits = [audit(one, request, device=device, keep=into) for one, into in zip((folder, out), scores, strict=True)]
    results = {
        "model": str(model),
        "how": how,
        "removed": [asdict(one) for one in removed],
        "pseudo_perplexity": {"before": before, "after": _price(loaded, texts, "after")},
        "fine_tuned": fine_tuned(folder, out, tuned or {}, seeds=seeds),
        "figures": _both(*audits, *scores),
    }
    add_remedy_to_card(out, results)
    return results


def _reads(config: FinetuneConfig, place: VectorPlace) -> bool:
    """Whether a fine-tuning run starts from the weights of a place: the pooler, or the masked-LM head for patterns."""
    return place.weights is not None and place.vectors == ("tokens" if config.task == "pattern" else "cls")


def _price(model: TorchModel, texts: Sequence[str], when: str) -> float | None:
    """Returns the pseudo-perplexity per word; None for a model without a language-model head."""
    if "perplexity" not in bertie.Model(model).can:
        return None
    priced = texts[:PRICED]
    with console.progress(f"pseudo-perplexity {when}", len(priced), unit="texts") as advance:
        return bertie.Model(model).perplexity(_counted(priced, advance)).per_word


def _counted(texts: Sequence[str], advance: Callable[..., None]) -> Iterator[str]:
    for text in texts:
        yield text
        advance(1)


def _both(
    before: dict[str, Any], after: dict[str, Any], scores: dict[str, Scored], later_scores: dict[str, Scored]
) -> list[dict[str, Any]]:
    """Returns every figure before and after, and the paired difference."""
    rows, keys = list[dict[str, object]](), ("value", "low", "high", "items")
    later = {(one["name"], each["name"]): each for one in after["sets"] for each in one["figures"]}
    for one in before["sets"]:
        name = one["name"]
        apart = differences(SETS[name], scores[name], later_scores[name], seed=before["seed"])
        for first in one["figures"]:
            if (second := later.get((name, first["name"]))) and first["name"] in apart:
                rows.append(
                    {
                        "set": one["title"],
                        "name": first["name"],
                        "unit": first["unit"],
                        "detail": first["detail"],
                        "before": {key: first[key] for key in keys},
                        "after": {key: second[key] for key in keys},
                        "difference": asdict(apart[first["name"]]),
                    }
                )
    return rows
