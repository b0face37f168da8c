"""Builds models from a config, and opens them from a folder in Hugging Face format. models/saving.py writes them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from bertie.console import console
from bertie.errors import DataError, UsageError
from bertie.models.codec import OWN_KEY, check_public_names
from bertie.models.config import EncoderConfig
from bertie.models.generation import DECODER
from bertie.models.heads import HEADS, labelled
from bertie.models.heads.base import Head
from bertie.models.kinds import Unshared
from bertie.models.model import TorchModel
from bertie.models.seq2seq import assembled
from bertie.models.variant import CONFIG, PROBLEM_TYPES, Variant, read_labels, read_public
from bertie.models.weights import WORD_EMBEDDINGS, LoadReport, WeightsFolder, load_weights
from bertie.nn.init import shapes_only
from bertie.training_facts import TrainingFacts, read_training_facts

Heads = Mapping[str, nn.Module] | Callable[[EncoderConfig], Mapping[str, nn.Module]] | None
"""Heads by name, or a function that makes them from a config (an objective's or task's `heads`)."""

MAY_BE_FRESH = r"heads\.|encoder\.pooler\."  # all else must be in the file
_FEATURES = r"|encoder\.embeddings\.features\."  # but for a model of texts that is to read feature vectors too


def build_variant_model(variant: Variant, config: EncoderConfig, *, heads: Heads = None, seed: int = 0) -> TorchModel:
    """Returns a model with random weights. The same seed gives the same encoder with any heads.

    Raises UsageError for a model that the family's format cannot store.
    """
    modules = _make(variant, heads, config)
    config = config.replace(pooler=config.pooler or _read_pooler(modules))
    model = assembled(variant.encoder(config), modules, variant=variant)
    if _read_pooler(modules) and config.pooler_dense and getattr(model.encoder, "pooler", None) is None:
        raise UsageError(
            f"A head reads the pooler, which a {variant.model_type} does not have. Set sequence_act=tanh, or "
            "label_pooling=first."
        )
    variant.check(config)
    if modules:
        variant.architecture(tuple(model.heads), {})
    check_public_names((name for name, _ in model.named_parameters()), variant.table, variant.model_type)
    model.initialize(seed)
    return model


def load_variant_model(
    variant: Variant,
    folder: Path,
    *,
    heads: Heads = None,
    seed: int = 0,
    fresh_heads: bool = False,
    overrides: Mapping[str, Any] = MappingProxyType({}),
    public: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Tensor] | None = None,
) -> tuple[TorchModel, LoadReport]:
    """Returns the model of a folder in evaluation mode, and a report of which weights were loaded, initialized or not
    used.

    heads None: those of the folder's class. fresh_heads: whether heads are initialized (by `seed`) even if they are
    stored, for another task with the same names. A decoder is always loaded. Only heads and the pooler may be missing.
    public, tensors: config.json and the weights in memory, of a folder that is only a name.
    Raises DataError when files are missing or damaged, or config.json and weights contradict each other, UsageError for
    heads that the family's format cannot store. Nothing is allocated before these checks.
    """
    public, where = read_public(folder) if public is None else public, str(folder / CONFIG)
    config = variant.config(public, where)
    with WeightsFolder(folder, variant.table, tensors) as weights:
        config = _agree(variant, config, weights, where).replace(**overrides)
        labels = read_labels(public, where)
        with shapes_only():
            heads_or_own = _own_heads(variant, public, weights, labels, where) if heads is None else heads
            modules = _make(variant, heads_or_own, config)
            # A new head that does not read the pooler leaves it behind, as the classes of transformers do
            has_pooler = _stored(variant, "encoder.pooler.weight", weights) and not (fresh_heads and modules)
            config = config.replace(pooler=_read_pooler(modules) or has_pooler)
            if heads is None and _read_pooler(modules):
                _check_pooled(variant, config, public, where)
            model = assembled(variant.encoder(config), modules, variant=variant, public=public)
        check_public_names((name for name, _ in model.named_parameters()), variant.table, variant.model_type)
        fill = partial(model.initialize, seed)
        dropped = _without_heads(model, variant, weights) if fresh_heads else []
        reads_more = config.feature_size is not None and variant.config(public, where).feature_size is None
        may_be_fresh = MAY_BE_FRESH + (_FEATURES if reads_more else "")
        report = load_weights(model, weights, may_be_fresh=may_be_fresh, fill=fill)
        _warn_of_unread(variant, weights, report, where)
        stored = {name: weights.fused(variant.table.public(name)) for name in report.loaded}
        model.packed = {name: weight for name, weight in stored.items() if weight is not None}
    if heads is None:
        model.labels = labels
        model.problem_type = _problem_type(public, where)
        model.training_facts = read_training_facts(folder) if tensors is None else TrainingFacts()
    return model.eval(), replace(report, dropped=tuple(dropped))


def _warn_of_unread(variant: Variant, weights: WeightsFolder, report: LoadReport, where: str) -> None:
    """Warns about weights of the encoder, not a decoder, that no part reads: it may not be the model of the file."""
    base, unused = variant.table.base, {*report.unused}
    names = [copies[0].name for public, copies in weights.stored.items() if base and public.startswith(base)]
    if unread := [name for name in names if name in unused and "pooler" not in name and name.split(".")[0] != DECODER]:
        shown = ", ".join(unread[:3]) + (f" ... ({len(unread):,} in all)" if len(unread) > 3 else "")
        console.warn(f"{where}: the encoder does not read these weights, so its answers may be wrong: {shown}")


def _without_heads(model: TorchModel, variant: Variant, weights: WeightsFolder) -> list[str]:
    """Removes the weights of the model's heads from the stored ones, and returns their names.

    The head of pre-training may share weights with them (ModernBERT's `head.*`). Without any others, they stay.
    """
    names = [f"heads.{name}" for name, _ in model.heads.named_parameters() if not name.startswith("decoder.")]
    publics = {public for name in names for public in variant.table.public(name) if public in weights}
    pretrained = [theirs for ours, theirs in variant.table.rows if ours.startswith("heads.mlm.")]
    if all(any(fnmatchcase(public, str(name)) for name in pretrained) for public in publics):
        return []
    for public in publics:
        del weights.stored[public]
    return sorted(publics)


def _make(variant: Variant, heads: Heads, config: EncoderConfig) -> Mapping[str, nn.Module]:
    modules = heads(config) if callable(heads) else heads or {}
    return {DECODER: HEADS[DECODER](config), **modules} if variant.needs_decoder(modules) else modules


def _read_pooler(heads: Mapping[str, nn.Module]) -> bool:
    return any(head.needs.pooler for head in heads.values() if isinstance(head, Head))


def _check_pooled(variant: Variant, config: EncoderConfig, public: Mapping[str, Any], where: str) -> None:
    """Raise DataError for a classifier that was trained on what our pooler does not read."""
    if lost := variant.unpooled & variant.own(config).keys() - public.get(OWN_KEY, {}).keys():
        raise DataError(
            f"{where}: the classifier of this {', '.join(lost)} model was trained on the first token, which sees no "
            "other token. Its answers do not depend on the text. Fine-tune the model again; its head starts fresh."
        )


def _public(variant: Variant, name: str) -> str:
    return variant.table.public(name)[0]


def _stored(variant: Variant, name: str, weights: WeightsFolder) -> bool:
    try:
        return _public(variant, name) in weights
    except KeyError:  # of a head that the family has not
        return False


def _agree(variant: Variant, config: EncoderConfig, weights: WeightsFolder, where: str) -> EncoderConfig:
    """Compares the sizes in config.json with those of the weights before the model is built."""
    base = variant.table.base
    if weights.stored and not any(name.startswith(base) for name in weights.stored):
        raise DataError(
            f"{where}: a {variant.model_type!r} has weights with names like {base}*, but this folder has "
            f"{min(weights.stored)}. Set model_type to the family of the weights."
        )
    if isinstance(config.sharing, Unshared):
        _agree_on(
            config, "num_hidden_layers", _count(variant, f"encoder.layers.{{}}.{config.layer.mark}", weights), where
        )
    else:
        _agree_on(config, "num_hidden_groups", _count(variant, "encoder.layers.{}.0.down.weight", weights), where)
        _agree_on(config, "inner_group_num", _count(variant, "encoder.layers.0.{}.down.weight", weights), where)
    if config.num_decoder_layers is not None:
        count = _count(variant, "heads.decoder.layers.{}.down.weight", weights)
        if count:  # 0: an encoder alone, whose config.json still speaks of the decoder it came from
            _agree_on(config, "num_decoder_layers", count, where)
    stored = _stored(variant, WORD_EMBEDDINGS, weights)
    if stored and (rows := weights.shape(_public(variant, WORD_EMBEDDINGS))[:1]) != (config.vocab_size,):
        raise DataError(
            f"{where}: vocab_size is {config.vocab_size:,}, but the weights have {rows[0] if rows else 0:,} "
            "rows. Use the config.json that was saved with the weights."
        )
    tied = {"mlm_tied": config.heads.mlm.mlm_tied}
    if not config.heads.lm.lm_transform:  # else the next-token head is built as the masked-LM head
        tied["lm_tied"] = config.heads.lm.lm_tied
    return config.replace(
        **{name: _tied(variant, name.removesuffix("_tied"), said, weights) for name, said in tied.items()}
    )


def _tied(variant: Variant, head: str, said: bool, weights: WeightsFolder) -> bool:
    """Whether a head's matrix is the word embeddings: where the file has one for the head, that decides."""
    decoder = f"heads.{head}.weight"
    if not _stored(variant, decoder, weights):
        return said
    if weights.has_own_matrix(head):
        if head == "mlm":
            weights.use_decoder_bias()
        return False
    weights.stored[_public(variant, WORD_EMBEDDINGS)] += weights.stored.pop(_public(variant, decoder))  # a copy
    return True


def _count(variant: Variant, name: str, weights: WeightsFolder) -> int:
    return next(i for i in count() if not _stored(variant, name.format(i), weights))


def _agree_on(config: EncoderConfig, field: str, count: int, where: str) -> None:
    if (said := config.get(field)) != count:
        if not count:
            raise DataError(f"{where}: no weight has the name of a layer. Check model_type and the names of weights.")
        raise DataError(f"{where}: {field} is {said:,}, but the weights have {count:,}.")


def _own_heads(
    variant: Variant, public: Mapping[str, object], weights: WeightsFolder, labels: tuple[str, ...], where: str
) -> Heads:
    """Returns the heads of the class in config.json, or, for an unknown class, those with stored weights."""
    names = variant.heads(public)
    if names is None:
        names = () if public.get("architectures") else _guessed_heads(variant, weights)
    outputs = 0
    for name in set(labelled()) & set(names):
        weight = _public(variant, f"heads.{name}.classifier.weight")
        if weight not in weights:
            raise DataError(f"{where} names a classifier, but the weights have none ({weight}).")
        outputs = weights.shape(weight)[0] if weights.shape(weight) else 0
        if labels and len(labels) != outputs:
            raise DataError(
                f"{where}: id2label has {len(labels):,} labels, but the classifier has {outputs:,} outputs."
            )
    return lambda config: {name: HEADS[name](config, outputs) for name in names}


def _guessed_heads(variant: Variant, weights: WeightsFolder) -> tuple[str, ...]:
    """Returns the heads with stored weights. Of those with the same names (classifiers), the first one."""
    names: dict[str, str] = {}
    for name, _ in HEADS.items():
        for mark in (f"heads.{name}.classifier.weight", f"heads.{name}.bias"):
            if _stored(variant, mark, weights):
                names.setdefault(_public(variant, mark), name)
    return tuple(names.values())


def _problem_type(public: Mapping[str, object], where: str) -> str | None:
    kind = public.get("problem_type")
    if kind is not None and kind not in PROBLEM_TYPES:
        raise DataError(f"{where}: problem_type is {str(kind)[:80]!r}. Known: {', '.join(PROBLEM_TYPES)}.")
    return kind
