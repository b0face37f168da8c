"""`ModelHandle`: what an opened model is, apart from what one can do with it."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from bertie.errors import UsageError, WrongModel
from bertie.folders import new_folder
from bertie.infer.fill import mask_head
from bertie.infer.onnx_engine import OnnxEngine
from bertie.infer.perplexity import language_head
from bertie.infer.predict import Predictor, as_engine
from bertie.models.files import MODEL_FOLDER
from bertie.runs.models import model_folder
from bertie.runs.opening import open_engine
from bertie.tasks import task_name, task_of
from bertie.tasks.capabilities import Embeds, Generates
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from bertie.api.describe import ModelInfo
    from bertie.api.interop import TheirModel, TheirSentenceModel, TheirTokenizer
    from bertie.infer.engine import Engine
    from bertie.models.model import TorchModel
    from bertie.text.tokenizer import Tokenizer

Handle = TypeVar("Handle", bound="ModelHandle")
SHORT_PRECISIONS = {"float32": "fp32", "bfloat16": "bf16"}  # of an engine -> what `load` calls it
LACKS = {  # what a model can do -> what it lacks where it cannot, and what to do
    "predict": (
        "This model has no task head: it is a pre-trained model.",
        "Fine-tune it first: bertie finetune MODEL --train FILE -o RUN",
    ),
    "fill_mask": ("This model has no masked-LM head.", "Use the folder of a pre-trained masked language model."),
    "perplexity": (
        "This model has no head for the tokens of a text.",
        "Use a pre-trained language model: BERT, GPT, ELMo, XLNet. One with a decoder, as T5, predicts a second text.",
    ),
    "write": (
        "This model generates no text.",
        "`bertie write` needs a model with a next-token head, such as GPT-2 or T5.",
    ),
    "next_sentence": (
        "This model has no language-model head and no head for pairs of texts.",
        "Use a pre-trained model. Fine-tuned models have no such head.",
    ),
    "rank": ("This model cannot rank.", "It needs one score or two labels for a pair of texts, or sentence vectors."),
}
LACKS |= {"evaluate": LACKS["predict"]}


@dataclass(frozen=True)
class Where:
    """Where and how models are opened. The values are those of `load`."""

    device: str = "auto"
    precision: str = "fp32"
    engine: str = "auto"


class ModelHandle:
    """What a model is, whatever engine runs it: where it runs, what it can do, its tokenizer and its module.

    Args:
        engine: A model in torch, or any engine.
        tokenizer: Its tokenizer. Default: that of the model in torch.
        folder: The folder that it was opened from.
        where: How it was opened.

    Attributes:
        folder: The folder, or None.
    """

    def __init__(
        self,
        engine: "TorchModel | Engine",
        tokenizer: "Tokenizer | None" = None,
        *,
        folder: Path | None = None,
        where: Where = Where(),
    ) -> None:
        self._engine = as_engine(engine)
        self._tokenizer = tokenizer or getattr(engine, "tokenizer", None)
        self.folder, self.where = folder, where
        self._module: TorchModel | None = None  # once it was taken out
        self._files: object = None  # a temporary folder, which lasts as long

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[object, ...]]:
        """Pickles and copies the path of the folder, which is opened again, or a module that was taken out."""
        module = self.folder is None or self._module is not None
        engine = (self.module, self.tokenizer) if module else (None, None)
        return _again, (type(self), *engine, self.folder, self.where)

    @classmethod
    def open(cls, folder: str | Path, where: Where = Where()) -> Self:
        """Opens a model. `load` has the arguments and the errors.

        Example:
            >>> bertie.Model.open("runs/reviews").labels
            ('bad', 'good')
        """
        folder = model_folder(folder)
        engine = open_engine(folder, device=where.device, precision=where.precision, engine=where.engine)
        return cls(engine.engine, engine.tokenizer, folder=folder, where=where)

    @classmethod
    def from_transformers(cls, model: "TheirModel", tokenizer: "TheirTokenizer | None" = None) -> Self:
        """Makes a model of one of `transformers`, with a copy of its weights, which pass through no file.

        Args:
            model: A model of a supported family: `BertForSequenceClassification` ...
            tokenizer: Its tokenizer. Default: none, so the model reads no texts.

        Raises:
            DataError: The weights are not those that the config describes.
            UsageError: The family is not supported.

        Example:
            >>> theirs, tokenizer = model.to_transformers()
            >>> bertie.Model.from_transformers(theirs, tokenizer).predict(["the soup was cold"]).labels
            ['bad']
        """
        from bertie.api.interop import module_from

        return cls(module_from(model, tokenizer))

    def to_transformers(self) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase | None]":
        """Returns the model and its tokenizer as those of `transformers`, with a copy of the weights.

        Raises UsageError without `transformers`, and for a model that only Bertie can run.

        Example:
            >>> theirs, tokenizer = model.to_transformers()
            >>> type(theirs).__name__
            'ModernBertForSequenceClassification'
        """
        from bertie.api.interop import their_model, their_tokenizer

        return their_model(self.module), self._tokenizer and their_tokenizer(self._tokenizer)

    @classmethod
    def from_sentence_transformers(cls, model: "TheirSentenceModel") -> Self:
        """Makes a model of a `SentenceTransformer` or a `CrossEncoder`, which leaves no files behind.

        Args:
            model: The model, with its tokenizer, prompts and modules: pooling, Dense, Normalize.

        Raises:
            DataError: It has modules that are not known.
            UsageError: The family is not supported.

        Example:
            >>> theirs = bertie.load("runs/vectors").to_sentence_transformers()
            >>> bertie.Model.from_sentence_transformers(theirs).embed(["a text"]).shape
            (1, 128)
        """
        from bertie.api.interop import sentence_folder

        with sentence_folder(model) as files:
            return cls.open(files.name).lasting(files)

    def to_sentence_transformers(self) -> "SentenceTransformer | CrossEncoder":
        """Returns the model as a `SentenceTransformer`, or a `CrossEncoder` where it scores pairs of texts.

        Raises UsageError without `sentence-transformers`, and for a model that it cannot open.

        Example:
            >>> theirs = bertie.load("runs/vectors").to_sentence_transformers()
            >>> theirs.encode(["a text"]).shape
            (1, 128)
        """
        from bertie.api.interop import their_sentence_model

        scores = "rank" in self.can and not isinstance(task_of(self._engine.facts), Embeds)
        return their_sentence_model(self.save, scores=scores)

    @property
    def runner(self) -> "Engine":
        """The engine, for those who make batches themselves."""
        return self._engine

    @property
    def engine(self) -> str:
        """What runs the model: native, onnx or torch."""
        return str(getattr(self._engine, "name", type(self._engine).__name__))

    @property
    def device(self) -> str:
        """The device of the weights: cpu, cuda:0 ..."""
        return self._engine.facts.device

    @property
    def precision(self) -> str:
        """The precision that is computed in: fp32, bf16 ..."""
        precision = self._engine.facts.precision.split()[0]  # the native library adds its instructions
        return SHORT_PRECISIONS.get(precision, precision)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels, in the order of the logits; empty for a model without labels."""
        return self._engine.facts.labels

    @property
    def task(self) -> str | None:
        """The name of the task: sequence, tagging, span ...; None for a pre-trained model."""
        task = task_of(self._engine.facts)
        return None if task is None else task_name(task)

    @property
    def prompts(self) -> Mapping[str, str]:
        """The texts that `embed` puts before a text, by the name of the prompt; empty for a model without prompts."""
        return self._engine.facts.sentence.prompts

    @property
    def max_length(self) -> int:
        """The number of tokens at which texts are cut or divided: that of training."""
        return self.predictor().max_length

    @property
    def tokenizer(self) -> "Tokenizer":
        """The tokenizer. Raises UsageError for a folder without one."""
        return self.predictor().tokenizer

    @property
    def module(self) -> "TorchModel":
        """The model as a module of torch, for loops of your own.

        If torch runs the model, this is the module that answers, also while it is trained. Otherwise it is loaded at
        the first use, and `Model(module)` answers with its weights. Raises UsageError for a graph, which has none.
        """
        if self._module is None:
            self._module = getattr(self._engine, "model", None)
        if self._module is None:
            if self.folder is None or isinstance(self._engine, OnnxEngine):
                raise WrongModel(f"{self!r} has no weights for torch. Open the model folder that it was made from.")
            from bertie.runs.weights import open_model

            self._module = open_model(self.folder, device=self.where.device, precision=self.where.precision)
        return self._module

    @property
    def can(self) -> tuple[str, ...]:
        """The names of the methods that the model can answer."""
        facts, task = self._engine.facts, task_of(self._engine.facts)
        scores = task is not None and len(task.labels) in (1, 2) and facts.training_facts.texts != 1
        able = {
            "predict": task is not None,
            "evaluate": task is not None,
            "embed": facts.training_facts.features is None,
            "similarity": facts.training_facts.features is None,
            "rank": isinstance(task, Embeds) or scores,
            "fill_mask": mask_head(facts) is not None,
            "perplexity": language_head(facts) is not None,
            "write": isinstance(task, Generates),
            "next_sentence": "pair" in facts.heads or language_head(facts) is not None,
        }
        return tuple(name for name, can in able.items() if can)

    def predictor(self, *, max_length: int | None = None, too_long: TooLong | None = None, head: str = "") -> Predictor:
        """Returns what predicts rows of a stream, with the options of `predict`.

        Example:
            >>> predictor = model.predictor(max_length=64)
            >>> [answer.label for answer in predictor.predict(["the soup was cold"])]
            ['bad']
        """
        return Predictor(self._engine, self._tokenizer, max_length=max_length, too_long=too_long, head=head)

    def info(self, *, length: int = 128) -> "ModelInfo":
        """Returns the architecture, the size and the operations per token, as `bertie info`.

        Raises UsageError for a model without a folder, which `save` gives it.

        Example:
            >>> model.info().parameters["total"]
            13608962
        """
        from bertie.api.describe import info

        if self.folder is None:
            raise UsageError(
                "This model has no folder yet. Save it, and open the folder: bertie.load(model.save(FOLDER))."
            )
        return info(self.folder, length=length)

    def lasting(self, files: object) -> Self:
        """Keeps a temporary folder of the model for as long as the model lasts.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> files = TemporaryDirectory()
            >>> model = bertie.load(model.save(files.name + "/model")).lasting(files)
        """
        self._files = files
        return self

    def check(self, name: str) -> None:
        """Raises UsageError where the model cannot answer a method.

        Example:
            >>> model.check("predict")
            >>> model.check("write")
            Traceback (most recent call last):
            bertie.errors.WrongModel: This model generates no text. ...
        """
        if name not in (can := self.can):
            reason, advice = LACKS[name]
            raise WrongModel(f"{reason} It can {', '.join(can)}. {advice}")

    def __repr__(self) -> str:
        kind = self.task or ", ".join(self._engine.facts.heads) or "encoder"
        labels = f", {len(self.labels):,} labels" if self.labels else ""
        name = "" if self.folder is None else f"{str(self.folder)!r}, "
        return f"Model({name}{kind}{labels}, {self.engine}, {self.device}, {self.precision})"

    def _repr_html_(self) -> str:
        facts = {
            "model": str(self.folder or ""),
            "task": self.task or "",
            "labels": ", ".join(self.labels),
            "can": ", ".join(self.can),
            "max_length": f"{self.max_length:,}",
            "runs in": f"{self.engine}, {self.device}, {self.precision}",
        }
        rows = "".join(f"<tr><th>{name}</th><td>{escape(value)}</td></tr>" for name, value in facts.items() if value)
        return f"<table>{rows}</table>"

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Writes the model to a folder for `load`, and returns the folder.

        A module that was taken out, and may have been trained, is written as it is now. Otherwise, the files are
        copied. Raises UsageError for a folder with files.

        Example:
            >>> folder = model.save("out/stars")
            >>> bertie.load(folder).predict(["the soup was cold"]).labels
            ['bad']
        """
        from bertie.models.convert import save_like

        with new_folder(Path(folder), MODEL_FOLDER, overwrite=overwrite) as target:
            if self._module is None and self.folder is not None:
                shutil.copytree(self.folder, target, dirs_exist_ok=True)
            elif self.folder is not None:
                save_like(self.module, target, self.folder)
            else:
                self.module.save_pretrained(target, tokenizer=self.tokenizer, packed=self.module.packed)
        return Path(folder)


def _again(
    kind: type[Handle], module: "TorchModel | None", tokenizer: "Tokenizer | None", folder: Path | None, where: Where
) -> Handle:
    """Returns a model of a pickle or a copy."""
    if module is not None:
        return kind(module, tokenizer, folder=folder, where=where)
    if folder is None:
        raise UsageError("The model was neither loaded nor saved. Open its folder with bertie.load.")
    return kind.open(folder, where)
