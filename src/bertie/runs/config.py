"""The settings of a pre-training run and of a fine-tuning run."""

from typing import Any, Literal

from pydantic import Field

from bertie.settings import Config
from bertie.train.config import MOST_SEQUENCES, OptimConfig, TrainConfig

MOST_EPOCHS = 100_000


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
    batch_size: int | None = Field(None, ge=1, le=MOST_SEQUENCES)
    """Sequences per step."""
    micro_batch_size: int | None = Field(None, ge=1, le=MOST_SEQUENCES)
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
    """Folder of `bertie tokenizer train`, or any with tokenizer.json or vocab.txt. Left out: the model's own."""
    model: str = "bert-tiny"
    """A preset (see `bertie info --presets`) or a model folder whose weights are the start."""
    model_overrides: dict[str, Any] = {}
    """EncoderConfig fields changed on top of the preset: {num_hidden_layers: 4}."""
    objectives: dict[str, dict[str, Any] | None] = {"mlm": {}, "nsp": {}}
    """Objective name -> its options; several add up. null leaves one out: objectives.nsp=null."""
    max_length: int = Field(128, ge=8)
    """Tokens per instance, [CLS] and [SEP] included."""
    packing: Literal["doc_sentences", "full_sentences"] | None = None
    """What fills a sequence where no pairs are read: sentences of one document, or on into the next, with a separator
    between (RoBERTa). None: doc_sentences."""
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
    """Examples to measure on. Left out: a tenth of train_file is held out, the same for every seed."""
    text: tuple[str, ...] = ()
    """Columns of the text: one, or two for a pair. Left out: recognised by name."""
    label: str = ""
    """Column of the label. Left out: recognised by name."""
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
    epochs: float = Field(3.0, gt=0, le=MOST_EPOCHS)
    """Passes over the training examples; sets train.steps."""
    select: Literal["last", "best"] = "last"
    """Which weights become the model: those after the last step (as published), or the best on dev."""
    baselines: bool = True
    """Also measure answers without a model on the dev examples, such as tf-idf with logistic regression: seconds."""
    optim: OptimConfig = OptimConfig(lr=3e-5, warmup=0.1)
    """The optimizer. Without optim.lr the rate suits the model's width: 3e-5 for BERT-base, 5e-4 for bert-tiny."""
    train: TrainConfig = TrainConfig(batch_size=32, steps=1, eval_every=100, save_every=200)
