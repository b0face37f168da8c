"""Typed run configs: a YAML file with `extends:`, dotted overrides, and one clear answer to an unknown key.

`load(PretrainConfig, "recipes/tiny.yaml", ["optim.lr=3e-4"])` reads the file, what it extends, then the overrides. The
resolved config is saved with the run as run.yaml and can be run again. Help text is each field's docstring.
"""

import copy
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bertie.errors import UsageError, nearest
from bertie.files import write_bytes


class Config(BaseModel):
    """The base of every run config: frozen, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _over_defaults(cls, given: Any) -> Any:
        """A section given in part lies over this config's own default: fine-tuning's optim.lr leaves its warm-up."""
        if not isinstance(given, Mapping):
            return given
        sections = {
            name: field.default for name, field in cls.model_fields.items() if isinstance(field.default, Config)
        }
        return {
            name: merge(sections[name].model_dump(), value)
            if name in sections and isinstance(value, Mapping)
            else value
            for name, value in given.items()
        }


class OptimConfig(Config):
    """The optimizer and its learning-rate schedule (Devlin et al. 2018, A.2)."""

    name: Literal["adamw", "bert_adam", "lamb", "muon"] = "adamw"
    """adamw; bert_adam, without bias correction, as released; lamb, for huge batches; muon for matrices, adamw else."""
    lr: float = Field(1e-4, gt=0)
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's decay rates of the first and second moment."""
    momentum: float = Field(0.95, ge=0, lt=1)
    """Muon's decay rate of its one moment."""
    eps: float = Field(1e-6, gt=0)
    """Adam's denominator offset; 1e-6 is the BERT release's."""
    weight_decay: float = Field(0.01, ge=0)
    """Decoupled weight decay; never on biases and norms."""
    layer_decay: float = Field(1.0, gt=0, le=1)
    """Each layer's learning rate is this share of that of the layer above; 0.8 to 0.95 spare the lower ones."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Gradients of a larger global norm are scaled down to it."""
    warmup: float = Field(0.01, ge=0)
    """Steps of linear warm-up; below 1, a share of all steps. The paper: 10,000 of 1,000,000."""
    decay: Literal["linear", "constant", "cosine"] = "linear"
    """How the rate falls after warm-up: to zero at the last step, or not at all."""


class TrainConfig(Config):
    """How long, how much at once, and what is kept along the way. A step is an optimizer step."""

    steps: int = Field(10_000, ge=1)
    """Optimizer steps of the whole run."""
    batch_size: int = Field(256, ge=1)
    """Sequences per step, over all micro-batches and ranks."""
    micro_batch_size: int | None = Field(None, ge=1)
    """Sequences per forward pass; None: all of a rank's share at once. Changes memory, not the result."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Compute precision; master weights stay float32. auto: bf16 where the machine is quicker in it."""
    device: str = "auto"
    """cpu, cuda, cuda:1, mps; auto: the best there is."""
    shard: Literal["none", "full"] = "none"
    """Among several processes: each has the whole model; or (full) a part of its weights, gradients, moments: FSDP2."""
    compile: bool = False
    """Compile the encoder (torch.compile): the same losses and gradients; on a CPU slower, on a GPU not measured."""
    seed: int = Field(0, ge=0)
    """Seed of weights, data order, masks and dropout."""
    log_every: int = Field(10, ge=1)
    """Steps between lines of metrics.jsonl."""
    eval_every: int = Field(500, ge=1)
    """Steps between validations; one more at the end."""
    save_every: int = Field(500, ge=1)
    """Steps between checkpoints; one more at the end."""
    keep: int = Field(2, ge=1)
    """Checkpoints kept; older ones are deleted once a newer one is whole."""
    workers: int = Field(1, ge=0)
    """Threads that prepare batches ahead; any number gives the same batches."""
    tensorboard: bool = False
    """Mirror the metrics for TensorBoard in RUN/tensorboard; needs the extra [track]."""


class CorpusShare(Config):
    """One of several corpora."""

    path: str
    """Folder that `bertie corpus` wrote."""
    weight: float | None = Field(None, gt=0)
    """Its share of the samples, relative to the others'. None, for all of them: by their sizes, see corpus_exponent."""


class PhaseConfig(Config):
    """A stretch of a pre-training run that reads other batches; what is left out is as in the run."""

    steps: float | None = Field(None, gt=0)
    """Steps of the phase; below 1, a share of train.steps. One phase may leave it out: it takes the rest."""
    max_length: int | None = Field(None, ge=8)
    """Tokens per instance."""
    batch_size: int | None = Field(None, ge=1)
    """Sequences per step."""
    micro_batch_size: int | None = Field(None, ge=1)
    """Sequences per forward pass."""
    objectives: dict[str, dict[str, Any]] = {}
    """Options of the run's objectives that differ: {mlm: {max_predictions: 77}}."""


class PretrainConfig(Config):
    """One pre-training run."""

    corpus: str = ""
    """Folder that `bertie corpus` wrote."""
    corpora: tuple[CorpusShare, ...] = ()
    """Several corpora, mixed, in place of corpus: [{path: domain, weight: 9}, {path: general, weight: 1}]."""
    corpus_exponent: float = Field(0.3, ge=0, le=1)
    """Corpora without weights are read by size to this power: 1 as they are, 0 all alike. 0.3: XLM-R."""
    tokenizer: str = ""
    """Folder that `bertie tokenizer train` wrote, or any with tokenizer.json or vocab.txt. Empty: the model's own."""
    model: str = "bert-tiny"
    """A preset (see `bertie info --presets`) or a model folder whose weights are the start."""
    model_overrides: dict[str, Any] = {}
    """EncoderConfig fields changed on top of the preset: {num_hidden_layers: 4}."""
    objectives: dict[str, dict[str, Any] | None] = {"mlm": {}, "nsp": {}}
    """Objective name -> its options; several add up. null leaves one out: objectives.nsp=null."""
    max_length: int = Field(128, ge=8)
    """Tokens per instance, [CLS] and [SEP] included."""
    pseudo_perplexity: int = Field(0, ge=0)
    """Going on from a model folder: held-out sentences of each corpus to measure it on, before and after. 0: none."""
    phases: tuple[PhaseConfig, ...] = ()
    """Phases in turn, as short texts then long ones: [{steps: 0.9}, {max_length: 512}]. Empty: all steps are alike."""
    optim: OptimConfig = OptimConfig()
    train: TrainConfig = TrainConfig()


class FinetuneConfig(Config):
    """One fine-tuning run (defaults: Devlin et al. 2018, A.3)."""

    model: str
    """Folder of the pre-trained model."""
    task: str = "sequence"
    """What is learnt, by name: sequence (one label for a text or a pair) ... A published set has its own."""
    task_options: dict[str, Any] = {}
    """Settings of the task, which are saved with the model: task_options.threshold=0.4."""
    train_file: str = ""
    """Labelled examples: csv, tsv, jsonl or parquet."""
    dev_file: str | None = None
    """Examples to validate on; None: a tenth of train_file is held out, the same for every seed."""
    text: tuple[str, ...] = ()
    """Column(s) of the text: one, or two for a pair. Empty: recognised by name."""
    label: str = ""
    """Column of the label. Empty: recognised by name."""
    columns: tuple[str, ...] = ()
    """Names of the columns of files that have no header line."""
    encoding: str = "utf-8"
    """Text encoding of the files: utf-8 (a BOM is no matter), cp949 ..."""
    data: str = ""
    """A published data set by name, in place of train_file: sst2, nsmc ... (its files as they were published)."""
    data_dir: str = ""
    """Folder that holds the files of `data`."""
    max_length: int = Field(128, ge=8)
    """Tokens per example, [CLS] and [SEP] included."""
    too_long: Literal["truncate", "window", "error"] | None = None
    """What to do with longer examples: cut and count, read windows that overlap, or refuse. None: as the task does."""
    from_scratch: bool = False
    """Start from random weights of the same architecture: the baseline pre-training is measured against."""
    freeze: int | None = Field(None, ge=0)
    """What is not trained: 0, the embeddings; n, those and the lowest n layers. None: everything is."""
    reinit: int = Field(0, ge=0)
    """Layers from the top, with the pooler, that start from random weights (Zhang et al. 2021)."""
    epochs: float = Field(3.0, gt=0)
    """Passes over the training examples; sets train.steps."""
    select: Literal["last", "best"] = "last"
    """Which weights become the model: those after the last step (as published), or the best on dev."""
    optim: OptimConfig = OptimConfig(lr=3e-5, warmup=0.1)
    train: TrainConfig = TrainConfig(batch_size=32, steps=1, eval_every=100, save_every=200)


C = TypeVar("C", bound=Config)
RECIPES = (Path(__file__).parent / "recipes", Path(__file__).parents[2] / "recipes")  # as installed; in a checkout


def load(kind: type[C], path: str | Path | None = None, overrides: Iterable[str] = (), **values: Any) -> C:
    """A config from a YAML file (optional), then keyword values that are not None, then "dotted.key=value" overrides.

    Raises UsageError: missing or unsafe YAML, an unknown key (the nearest one is named), a value of the wrong type.
    """
    tree = read_yaml(Path(path)) if path else {}
    merge(tree, {k: v for k, v in values.items() if v is not None})
    for override in overrides:
        dotted, equals, text = override.partition("=")
        if not equals:
            raise UsageError(f"{override!r} is not an override. Write key=value, as in optim.lr=1e-4.")
        root = dotted.split(".")[0]
        default = kind.model_fields[root].default if root in kind.model_fields else None
        if isinstance(default, dict):  # objectives.mlm.rate=0.2 changes the default objectives, not replaces them
            tree.setdefault(root, copy.deepcopy(default))
        branch: Any = scalar(text)
        for part in reversed(dotted.split(".")):
            branch = {part: branch}
        merge(tree, branch)
    return build(kind, tree)


def build(kind: type[C], tree: Mapping[str, Any]) -> C:
    """Validate a tree of values into a config, answering the first fault in one line."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        errors = error.errors()  # an unknown key first: it is often why another is missing
        first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
        where = [str(part) for part in first["loc"]]
        if first["type"] == "extra_forbidden":
            holder = _section(kind, where[:-1])
            raise UsageError(f"Unknown key {'.'.join(where)!r}. {nearest(where[-1], holder.model_fields)}") from None
        if first["type"] == "missing":
            raise UsageError(f"{'.'.join(where)} is missing: {_help(kind, where)}") from None
        given = f"{'.'.join(where)}: {first['msg']} (given: {first['input']!r})."
        raise UsageError(f"{given} {_help(kind, where)}") from None


def _section(kind: type[Config], path: list[str]) -> type[Config]:
    for part in path:
        if part.isdigit():  # a place in a list of sections
            continue
        annotation = kind.model_fields[part].annotation
        kind = next(i for i in (annotation, *get_args(annotation)) if isinstance(i, type) and issubclass(i, Config))
    return kind


def _help(kind: type[Config], where: list[str]) -> str:
    try:
        return _section(kind, where[:-1]).model_fields[where[-1]].description or ""
    except (KeyError, StopIteration):  # a key of a mapping: the mapping says what belongs there
        return _help(kind, where[:-1]) if len(where) > 1 else ""


def save(config: Config, path: Path) -> None:
    """Write the resolved config as YAML that `load` reads back to an equal value."""
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    write_bytes(path, text.encode())


def read_yaml(path: Path, *, _seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A YAML mapping with its `extends:` merged below it. Safe YAML only.

    `extends:` names a file, seen from this one, or a recipe, as `path` may: pretrain-bert-base.
    """
    path = next((folder / f"{path}.yaml" for folder in RECIPES if (folder / f"{path}.yaml").is_file()), path)
    if path.resolve() in _seen:
        raise UsageError(f"{path} extends itself, through {' -> '.join(map(str, _seen))}.")
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        recipes = (file.stem for folder in RECIPES for file in folder.glob("*.yaml"))
        raise UsageError(f"{path} is no file, and no recipe. {nearest(path.stem, recipes)}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not readable YAML: {error}") from None
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise UsageError(f"{path} holds a {type(tree).__name__}; a run config is a mapping of keys to values.")
    parent = tree.pop("extends", None)
    if parent is None:
        return tree
    beside = path.parent / str(parent)
    base = read_yaml(beside if beside.is_file() else Path(str(parent)), _seen=(*_seen, path.resolve()))
    return merge(base, tree)


def merge(base: dict[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Lay `top` over `base`, mappings key by key, and return `base`."""
    for name, value in top.items():
        if isinstance(value, Mapping) and isinstance(base.get(name), dict):
            merge(base[name], value)
        else:
            base[name] = dict(value) if isinstance(value, Mapping) else value
    return base


def scalar(text: str) -> Any:
    """A command-line value as YAML reads it, except that 1e-4 is a number (YAML 1.1 wants 1.0e-4)."""
    if "e" in text.lower():
        with suppress(ValueError):
            return float(text)
    try:
        return yaml.safe_load(text)
    except (ValueError, yaml.YAMLError):
        return text
