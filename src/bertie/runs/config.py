"""The settings of a pre-training run and of a fine-tuning run.

The end of a field's docstring, from "Source:" on, says where its default comes from. The configuration reference shows
it as a column, and --help leaves it out.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field

from bertie.models.head_config import Pooled
from bertie.settings import Config
from bertie.train.config import MOST_SEQUENCES, OptimConfig, TrainConfig
from bertie.training_facts import FeatureConfig, Markup

_MAX_EPOCHS = 100_000
HELD_OUT_SHARE = 0.1  # of the training examples, where there is no dev file
FITTED = ("optimize", "costs", "calibrate")  # with folds, on the out-of-fold answers, and not in each run
OF_FOLDS = {"held_out": 0.0, "select_on": "dev", "label_check": "none", "baselines": False}  # what each run of them has
EPOCHS_HINT = "The number of epochs decides train.steps in fine-tuning. Set epochs=N instead."


def null_is(empty: object) -> BeforeValidator:
    """Reads null, with which a command line removes a setting of a recipe, as an empty value."""
    return BeforeValidator(lambda value: empty if value is None else value)


def split_names(value: object) -> object:
    """Reads a text as names that are separated by commas: *.embeddings.* is no list in YAML."""
    return tuple(name.strip(" '\"") for name in value.strip("[]").split(",")) if isinstance(value, str) else value


ALSO_CALLED = {  # by transformers, sentence-transformers and scikit-learn
    "learning_rate": "optim.lr",
    "learning_rate_init": "optim.lr",
    "lr_scheduler_type": "optim.decay",
    "lr_scheduler": "optim.decay",
    "scheduler": "optim.decay",
    "warmup_ratio": "optim.warmup",
    "warmup_steps": "optim.warmup",
    "num_warmup_steps": "optim.warmup",
    "optimizer": "optim.name",
    "solver": "optim.name",
    "adam_epsilon": "optim.eps",
    "adam_beta1": "optim.betas",
    "adam_beta2": "optim.betas",
    "gradient_clip_val": "optim.max_grad_norm",
    "per_device_train_batch_size": "train.batch_size",
    "train_batch_size": "train.batch_size",
    "gradient_accumulation_steps": "train.micro_batch_size",
    "max_steps": "train.steps",
    "num_train_steps": "train.steps",
    "logging_steps": "train.log_every",
    "eval_steps": "train.eval_every",
    "evaluation_steps": "train.eval_every",
    "save_steps": "train.save_every",
    "save_total_limit": "train.keep",
    "random_state": "train.seed",
    "bf16": "train.precision",
    "fp16": "train.precision",
    "dataloader_num_workers": "train.workers",
    "use_cpu": "train.device",
    "gradient_checkpointing": "train.gradient_checkpointing",
    "max_seq_length": "max_length",
    "max_len": "max_length",
    "model_name_or_path": "model",
    "tokenizer_name": "tokenizer",
    "mlm_probability": "objectives.mlm.rate",
}
OPTIONS = {
    **dict.fromkeys(("output_dir", "out_dir", "save_dir", "output", "run", "run_dir"), ("-o FOLDER", "run")),
    **dict.fromkeys(("overwrite", "overwrite_output_dir"), ("--overwrite", "overwrite")),
    **dict.fromkeys(("resume", "resume_from_checkpoint"), ("--resume CHECKPOINT", "resume")),
}
NOT_TUNED = ("train.steps", "tokenizer", "objectives.mlm.rate")  # settings of pre-training alone


class CorpusShare(Config):
    """One of several corpora."""

    path: str
    """Folder written by `bertie corpus`."""
    weight: float | None = Field(None, gt=0)
    """Sampling weight relative to the other corpora. Not set, for all corpora: by size, see corpus_exponent."""


class PhaseConfig(Config):
    """A phase of a pre-training run with other batches. Settings that a phase omits are inherited from the run."""

    steps: float | None = Field(None, gt=0)
    """Steps of the phase, or below 1 a fraction of train.steps. One phase may omit it and takes the remaining steps."""
    max_length: int | None = Field(None, ge=8)
    """Tokens per instance."""
    batch_size: int | None = Field(None, ge=1, le=MOST_SEQUENCES)
    """Sequences per step."""
    micro_batch_size: int | None = Field(None, ge=1, le=MOST_SEQUENCES)
    """Sequences per forward pass."""
    objectives: dict[str, dict[str, object]] = {}
    """Options of the run's objectives that differ in this phase: {mlm: {max_predictions: 77}}."""


class PretrainConfig(Config):
    """All settings of one pre-training run.

    Example:
        >>> config = bertie.PretrainConfig(
        ...     corpus="corpora/notes", tokenizer="tokenizers/notes", model="bert-tiny", max_length=32,
        ...     train={"steps": 2, "batch_size": 4},
        ... )
        >>> run = bertie.pretrain(config=config)
    """

    also_called = ALSO_CALLED
    options = OPTIONS

    corpus: str = ""
    """Folder written by `bertie corpus`; with features.column, a table of texts and feature vectors."""
    features: FeatureConfig = FeatureConfig()
    corpora: tuple[CorpusShare, ...] = ()
    """Several corpora to mix, instead of corpus: [{path: domain, weight: 9}, {path: general, weight: 1}]."""
    corpus_exponent: float = Field(0.3, ge=0, le=1)
    """Corpora without weights are sampled in proportion to their size to this power: 1 is by size, 0 is equal shares.
    Source: Conneau et al. 2020, 3.1 (XLM-R)."""
    tokenizer: str = ""
    """Folder with tokenizer.json or vocab.txt. Default: the model's own tokenizer."""
    model: str = "bert-tiny"
    """A preset (see `bertie info --presets`), or a model folder to continue from. Source: Turc et al. 2019 for the
    small presets."""
    model_overrides: Annotated[dict[str, object], null_is({})] = {}
    """EncoderConfig fields that differ from the preset: {num_hidden_layers: 4}. null or {}: none."""
    objectives: dict[str, dict[str, object] | None] = {"mlm": {}, "nsp": {}}
    """Objective name -> its options. The losses of all objectives are added. null removes one: objectives.nsp=null.
    Source: Devlin et al. 2018, 3.1."""
    max_length: int = Field(128, ge=8)
    """Tokens per instance, including [CLS] and [SEP]. Source: Devlin et al. 2018, A.2: 128, then 512."""
    packing: Literal["doc_sentences", "full_sentences"] | None = None
    """Content of a sequence without pairs: doc_sentences has complete sentences of one document; full_sentences
    continues into the next documents after a separator. Not set: doc_sentences. Source: Liu et al. 2019, 4.2."""
    pseudo_perplexity: int = Field(0, ge=0)
    """When a run continues from a model folder: held-out sentences per corpus whose pseudo-perplexity is measured
    before and after. 0: no measurement. Source: Salazar et al. 2020."""
    phases: Annotated[tuple[PhaseConfig, ...], null_is(())] = ()
    """Consecutive phases, for example short texts and then long texts: [{steps: 0.9}, {max_length: 512}]. null or []:
    none. Source: Devlin et al. 2018, A.2; growing batches: Geiping and Goldstein 2022."""
    optim: OptimConfig = OptimConfig()
    train: TrainConfig = TrainConfig()

    @classmethod
    def kind_of(cls, path: list[str], tree: Mapping[str, object]) -> tuple[object, list[str]]:
        """Returns the class of an objective for `objectives.NAME`, otherwise the type of the field."""
        if path[0] != "objectives" or len(path) < 2:
            return super().kind_of(path, tree)
        from bertie.objectives import OBJECTIVES

        return (OBJECTIVES[path[1]] if path[1] in OBJECTIVES else None), path[2:]  # noqa: SIM401  (which raises)


LabelName = Annotated[str, Field(coerce_numbers_to_str=True)]  # in YAML, 0 is a number


class LabeledFiles(Config):
    """The task of a fine-tuning run, or of a part of it, and the files of its examples."""

    task: str = "sequence"
    """Task: sequence (single-label classification), regression, tagging ... A published data set has its own."""
    train_file: str = ""
    """Labeled training examples: csv, tsv, jsonl or parquet."""
    dev_file: str | None = None
    """Labeled examples to evaluate on. Default: a share of the training examples (held_out), the same for all seeds."""
    held_out: float = Field(HELD_OUT_SHARE, ge=0, lt=1)
    """Share of the training examples that are evaluated on instead of a dev file. 0: the model learns from all, and its
    scores are those of training examples."""
    text: tuple[str, ...] = ()
    """Column of the text, or a template of columns ("{title}. {body}"); two for a pair. Default: recognized."""
    label: str = ""
    """Column of the label. Default: recognized."""
    weight: str = ""
    """Column of the weight of a row, a number of 0 or more, in the loss and in the metrics. Default: all weigh 1."""
    group: str = ""
    """Column of groups, such as the author of a text: rows of one group are never on both sides of a split. Default:
    rows with the same text are a group."""
    time: str = ""
    """Column of when a row was written, a number or a date: the latest rows are held out. Default: any rows are."""
    tabular: Annotated[tuple[str, ...], BeforeValidator(split_names)] = ()
    """Columns of numbers and categories that a classification or a regression reads beside the text: price, region.
    Default: none."""
    markup: Markup = ""
    """Markup that is removed from texts, html or markdown. Default: none is."""
    label_names: dict[LabelName, LabelName] = {}
    """Names for the labels of the files, in the order of the model's outputs: 0=negative,1=positive. Labels with the
    same name become one."""
    positive: str = ""
    """Label of a classification whose F1 is the main metric. Default: macro F1 where a label is rare, otherwise
    accuracy."""
    columns: tuple[str, ...] = ()
    """Column names of files without a header line."""
    encoding: str = "utf-8"
    """Text encoding of the files: utf-8 (with or without a byte order mark), cp949 ..."""
    format: str = ""
    """Format of the files: csv, tsv, xlsx, jsonl, parquet ... Default: by their names."""
    label_separator: str = ""
    """What separates several labels in a cell, under task=multilabel: #, ; or |. Default: a comma."""
    features: FeatureConfig = FeatureConfig()
    data: str = ""
    """Published data set, instead of a training file: sst2, nsmc ... Its files must be as published."""
    data_dir: str = ""
    """Folder with the files of the published data set."""


class LoraConfig(Config):
    """Low-rank adaptation: small matrices are trained, whose products are added to frozen ones."""

    rank: int | None = Field(None, ge=1)
    """Rank of the matrices that LoRA trains beside frozen ones. Not set: all weights are trained. Source: Hu et al.
    2021."""
    alpha: float | None = Field(None, gt=0)
    """Their product is multiplied by alpha / rank. Not set: 2 * rank."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the inputs of the matrices that a forward pass leaves out, the same ones for all its tokens."""
    targets: tuple[Literal["attention", "feed_forward", "embeddings"], ...] = ("attention", "feed_forward")
    """Matrices that are changed: those of attention, of the feed-forward networks, the word embeddings."""


class TaskShare(LabeledFiles):
    """One of several tasks that are trained together: sequence or regression, or all text to text."""

    name: str = Field(min_length=1)
    """Its name: of its head, and in reports."""
    template: str = ""
    """Under task=text2text: the text that the model reads, with {} for each text column."""


# Options of the task embed that people look for among the settings
EMBED_OPTIONS = (
    "loss_kind",
    "margin",
    "scale",
    "temperature",
    "symmetric",
    "matryoshka",
    "guide",
    "teacher",
    "prompts",
)


class FinetuneConfig(LabeledFiles):
    """All settings of one fine-tuning run. The defaults are from Devlin et al. 2018, A.3.

    Example:
        >>> config = bertie.FinetuneConfig(model="runs/tiny", train_file="reviews.csv", text=("review",), label="stars")
        >>> run = bertie.finetune(config=config)
    """

    also_called = {
        **{name: ours for name, ours in ALSO_CALLED.items() if ours not in NOT_TUNED},
        "num_train_epochs": "epochs",
        "num_epochs": "epochs",
        "max_epochs": "epochs",
        "max_iter": "epochs",
        "max_steps": "epochs",
        "num_train_steps": "epochs",
        "load_best_model_at_end": "select",
        "label_column": "label",
        "text_column": "text",
        "freeze_layers": "freeze",
        "lora_r": "lora.rank",
        "lora_alpha": "lora.alpha",
        "target_modules": "lora.targets",
        **{name: f"task_options.{name}" for name in EMBED_OPTIONS},
    }
    options = OPTIONS

    model: str
    """Folder of the pre-trained model; or lstm, gru, cnn or bag, which start from random weights."""
    tokenizer: str = ""
    """Model or folder whose vocabulary lstm, gru, cnn and bag have. Default: one learned from the training texts."""
    vectors: str = ""
    """File of word vectors from which lstm, gru, cnn and bag start: word2vec, GloVe or fastText (.vec)."""
    task_options: dict[str, object] = {}
    """Options of the task, which are saved with the model: task_options.threshold=0.4."""
    per_label: int | None = Field(None, ge=1)
    """Number of training examples of each label, drawn by train.seed: for learning curves. Not set: all."""
    mix: tuple[TaskShare, ...] = ()
    """Several tasks that are trained together, under task=several (a head each) or task=text2text, each with its own
    files: [{name: rte, data: rte, data_dir: glue}, {name: mine, train_file: mine.csv}]. Source: Liu et al. 2019
    (MT-DNN)."""
    mix_exponent: float = Field(1.0, ge=0, le=1)
    """Tasks are sampled in proportion to their size to this power: 1 is by size, 0 is equal shares, 1/T is T5's
    temperature T. Source: Raffel et al. 2020, 3.5.2."""
    mix_cap: int | None = Field(None, ge=1)
    """Size at which a task counts at most. Not set: no limit. Source: Raffel et al. 2020, 3.5.2: 2**16 to 2**21."""
    max_length: int = Field(128, ge=8)
    """Tokens per example, including [CLS] and [SEP]. Source: google-research/bert, run_classifier.py."""
    too_long: Literal["truncate", "window", "error"] | None = None
    """Handling of longer examples: truncate, window (overlapping windows) or error. Not set: as the task defines."""
    pooling: Pooled | None = None
    """Vector of a text that a classification head reads: cls (the first token, through the pooler), first (without),
    mean, max, last, cls_layers or attention. Not set: as in the model. Source: Behrendt et al. 2025 (last two)."""
    lstm: int | None = Field(None, ge=0)
    """Layers of a bidirectional LSTM that is trained between the encoder and the head. Not set: as in the model.
    Source: Devlin et al. 2018, 5.1 (left to right, with a BiLSTM)."""
    from_scratch: bool = False
    """Start from random weights of the same architecture, as a baseline for pre-training."""
    freeze: int | None = Field(None, ge=0)
    """Number of encoder layers to freeze, from the bottom. The embeddings are frozen too: 0 freezes only them. Not set:
    everything is trained."""
    freeze_names: Annotated[tuple[str, ...], BeforeValidator(split_names)] = ()
    """Weights to freeze, by name: *.embeddings.*, *.layer.0.*; as in model.safetensors, * is any text."""
    lora: LoraConfig = LoraConfig()
    reinit: int = Field(0, ge=0)
    """Number of layers to reinitialize, from the top, together with the pooler. Source: Zhang et al. 2021."""
    epochs: float = Field(3.0, gt=0, le=_MAX_EPOCHS)
    """Passes over the training examples; sets train.steps. Source: Devlin et al. 2018, A.3: 2 to 4."""
    select: Literal["last", "best"] | None = None
    """Weights of the final model: those after the last step, or those of the best evaluation. Not set: best with
    train.patience, otherwise last. Source: google-research/bert, run_classifier.py."""
    select_on: Literal["auto", "dev", "train"] = "auto"
    """Rows that select weights and stop the run: dev, whose scores are then optimistic, or a share (held_out) of the
    training rows, which are not learned from. auto: train with 1,000 training rows or more of your own."""
    class_weights: Literal["balanced"] | dict[LabelName, float] | None = None
    """Weight of each label in the loss: balanced (in inverse proportion to its examples), or {spam: 10, ham: 1}. Not
    set: 1."""
    sampling: Literal["natural", "balanced"] = "natural"
    """Examples of an epoch: natural (each once), or balanced (as many in all, and equally many of each label; those of
    rare labels repeat)."""
    loss: Literal["usual", "focal", "function"] = "usual"
    """Loss of a classification: usual (cross-entropy), or focal, which leaves easy examples aside. function: one of
    Python, passed to bertie.finetune. Source: Lin et al. 2017, 3."""
    focal_gamma: float = Field(2.0, ge=0)
    """Power of 1 - p in the focal loss; 0: cross-entropy. Source: Lin et al. 2017, 3.2."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of a target that all labels have in equal parts. Source: Szegedy et al. 2016, 7: 0.1."""
    optimize: str = ""
    """Choose the threshold of a label's probability on held-out examples for f1, f2, recall@precision=0.9,
    precision@recall=0.95 or cost: of positive, of the second of two labels, or of each of several. Default: none."""
    costs: dict[LabelName, dict[LabelName, float]] = {}
    """With optimize=cost, the cost of a predicted label by the true one: {spam: {ham: 10}}. Default: 1 for each wrong
    label, 0 for the right one."""
    abstain: float | None = Field(None, ge=0, le=1)
    """Probability below which the trained model gives no label, but a reason. Not set: it always gives one."""
    coverage: float | None = Field(None, gt=0, lt=1)
    """Share of texts whose prediction set has the true label, promised by held-out rows (split conformal prediction).
    Not set: no sets. Source: Vovk et al. 2005."""
    calibrate: Literal["temperature", "vector"] | None = None
    """Calibrate the probabilities on held-out examples: temperature (a factor), or vector (a factor and
    a shift for each label). The weights of the head then contain it. Not set: none. Source: Guo et al. 2017, 4.2."""
    label_check: Literal["none", "words", "folds"] = "words"
    """List training rows whose labels are probably wrong, in RUN/label_check.csv: words (tf-idf of words and
    characters; seconds), folds (five models fine-tuned on four fifths each) or none. Source: Northcutt et al. 2021."""
    baselines: bool = True
    """Also evaluate baselines without a model, such as tf-idf with logistic regression. Takes seconds."""
    optim: OptimConfig = OptimConfig(lr=3e-5, warmup=0.1)
    """The optimizer. Without optim.lr, the learning rate depends on the model's width: 3e-5 for BERT-base, 5e-4 for
    bert-tiny."""
    train: TrainConfig = TrainConfig(batch_size=32, steps=1, eval_every=100, save_every=200)
    """The loop. Without train.eval_every, a run of more than 1,000 steps is evaluated ten times."""

    @classmethod
    def kind_of(cls, path: list[str], tree: Mapping[str, object]) -> tuple[object, list[str]]:
        """Returns the class of the task for `task_options`, otherwise the type of the field."""
        if path[0] != "task_options":
            return super().kind_of(path, tree)
        from bertie.tasks import TASKS
        from bertie.tasks.datasets import DATASETS

        usual = cls.model_fields["task"].default
        name, data = str(tree.get("task", usual)), str(tree.get("data", ""))
        name = DATASETS[data].task if name == usual and data in DATASETS else name
        return (TASKS[name] if name in TASKS else None), path[1:]  # noqa: SIM401  (which raises)

    @property
    def keeps_best(self) -> bool:
        """Whether the final model has the weights of the best evaluation."""
        return (self.select or ("last" if self.train.patience is None else "best")) == "best"

    @property
    def rate_is_set(self) -> bool:
        """Whether optim.lr was given, so that the model's width does not decide it."""
        return "optim" in self.model_fields_set and "lr" in self.optim.model_fields_set

    def with_rate_of_recipe(self) -> Self:
        """Returns the config with its optim.lr as that of a recipe, which was not given."""
        optim = self.optim
        unset = type(optim).model_construct(optim.model_fields_set - {"lr"}, **dict(optim))
        return self.model_copy(update={"optim": unset})


def choose_config_class(settings: Mapping[str, object]) -> type[PretrainConfig] | type[FinetuneConfig]:
    """Returns which run some settings are of: fine-tuning where one of them only fine-tuning has."""
    only = FinetuneConfig.model_fields.keys() - PretrainConfig.model_fields.keys()
    return FinetuneConfig if only & settings.keys() else PretrainConfig
