"""Models of `transformers` and of `sentence-transformers`, both ways. No file is left behind.

The weights of `transformers` touch no file, and its tokenizer passes through its small ones. A `SentenceTransformer`
has modules that only its files describe, so it passes through a temporary folder.

The libraries are imported only by those who have a model of them, or ask for one.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

import torch

from bertie.errors import DataError, NoPackage, UnknownName, UsageError, nearest
from bertie.models.families import VARIANTS
from bertie.models.folder import load_variant_model
from bertie.models.model import TorchModel
from bertie.models.saving import check_vocabulary, public_config
from bertie.models.weights import public_state
from bertie.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class TheirConfig(Protocol):
    """Protocol of a config of `transformers`."""

    def to_json_string(self) -> str:
        """Returns config.json."""
        ...


class TheirModel(Protocol):
    """Protocol of a model of `transformers`."""

    @property
    def config(self) -> TheirConfig:
        """The config."""
        ...

    def state_dict(self) -> Mapping[str, torch.Tensor]:
        """Returns the weights by name."""
        ...


class TheirTokenizer(Protocol):
    """Protocol of a tokenizer of `transformers`."""

    def save_pretrained(self, save_directory: str) -> object:
        """Writes the files of the tokenizer."""
        ...


class TheirSentenceModel(Protocol):
    """Protocol of a `SentenceTransformer` or a `CrossEncoder`."""

    def save_pretrained(self, path: str, *, create_model_card: bool) -> object:
        """Writes a folder."""
        ...


@contextmanager
def sentence_folder(model: TheirSentenceModel) -> Iterator["TemporaryDirectory[str]"]:
    """Context with a temporary folder of a model of `sentence-transformers`, which stays. Errors name the model."""
    files = TemporaryDirectory(prefix="bertie-model-")
    model.save_pretrained(files.name, create_model_card=False)
    try:
        yield files
    except DataError as error:
        name = type(model).__name__
        raise DataError(error.message.replace(f"{files.name}/", f"{name}: ").replace(files.name, name)) from None


def their_sentence_model(save: Callable[[Path], object], *, scores: bool) -> "SentenceTransformer | CrossEncoder":
    """Returns a model as one of `sentence-transformers`. save: writes it to a folder; scores: whether it reads pairs.

    Raises UsageError without `sentence-transformers`.
    """
    try:
        import sentence_transformers as theirs
    except ImportError:
        raise NoPackage(
            "sentence-transformers is not installed. Install it: pip install sentence-transformers"
        ) from None
    with TemporaryDirectory(prefix="bertie-model-") as folder:
        save(Path(folder) / "model")
        kind = theirs.CrossEncoder if scores else theirs.SentenceTransformer
        return kind(str(Path(folder) / "model"), device="cpu", model_kwargs={"dtype": "float32"})


def module_from(model: TheirModel, tokenizer: TheirTokenizer | None) -> TorchModel:
    """Returns a model of `transformers`, with a copy of its weights, as a module of Bertie.

    Raises DataError for weights that its config does not describe, UsageError for a family that is not supported.
    """
    name = type(model).__name__
    public = json.loads(model.config.to_json_string()) | {"architectures": [name]}
    kind = public.get("model_type")
    if kind not in VARIANTS:
        raise UnknownName(f"{name} has the model_type {kind!r}, which is not supported. {nearest(kind, VARIANTS)}")
    module, _ = load_variant_model(VARIANTS[kind], Path(name), public=public, tensors=model.state_dict())
    if tokenizer is not None:
        with TemporaryDirectory(prefix="bertie-tokenizer-") as folder:
            tokenizer.save_pretrained(folder)
            own = Tokenizer.load(folder)
        check_vocabulary(own, module.config, Path(name))
        module.tokenizer = own
    return module


def their_model(module: TorchModel) -> "PreTrainedModel":
    """Returns a module as a model of `transformers`, in evaluation mode, with a copy of its weights.

    Raises UsageError without `transformers`, and for a model that only Bertie can run.
    """
    try:
        import transformers
    except ImportError:
        raise NoPackage("transformers is not installed. Install it: pip install transformers") from None
    public, variant = public_config(module, module.labels, None, module.tokenizer)
    name = public["architectures"][0]
    if not hasattr(transformers, name):
        raise UsageError(f"transformers has no class {name}. Save the model: `model.save(FOLDER)`.")
    kind = getattr(transformers, name)
    config = kind.config_class.from_dict(public)
    parts = public_state(module.own_parameters(), variant.table, base=variant.based(public))
    state = {key: part.float().cpu().clone().contiguous() for key, part in parts}
    model = kind(config)
    lacks = model.load_state_dict(state, strict=False)
    tied = {*(getattr(model, "all_tied_weights_keys", None) or ())}
    if lacks.unexpected_keys or (missing := [one for one in lacks.missing_keys if one not in tied]):
        raise DataError(f"{name} has other weights: {', '.join([*lacks.unexpected_keys, *missing][:5])}")
    model.tie_weights()
    return model.eval()


def their_tokenizer(tokenizer: Tokenizer) -> "PreTrainedTokenizerBase":
    """Returns a tokenizer as one of `transformers`."""
    import transformers

    with TemporaryDirectory(prefix="bertie-tokenizer-") as folder:
        tokenizer.save(folder)
        return transformers.AutoTokenizer.from_pretrained(folder)
