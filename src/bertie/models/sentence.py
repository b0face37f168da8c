"""The settings of `sentence-transformers` next to a model, read from its folder. Imports no torch.

    modules.json                        Transformer, Pooling, then Dense and Normalize: how a text becomes a vector
    config_sentence_transformers.json   prompts, truncate_dim, similarity; the activation of a cross-encoder
    sentence_bert_config.json ...       the longest text

A module or a setting that is not known here is refused: the vectors would be others.

B texts · I, O widths of a vector · H hidden size
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from bertie.errors import DataError, MissingFile
from bertie.files import JsonObject, check_readable, read_json
from bertie.text.formats import length_file

if TYPE_CHECKING:
    from torch import Tensor

    from bertie.models.encoder import EncoderOutput

MODULES, POOLING, SETTINGS = "modules.json", "1_Pooling/config.json", "config_sentence_transformers.json"
MODES = {  # ours -> the public name, and that of older folders after "pooling_mode_"
    "cls": ("cls", "cls_token"),
    "max": ("max", "max_tokens"),
    "mean": ("mean", "mean_tokens"),
    "mean_sqrt_len": ("mean_sqrt_len_tokens", "mean_sqrt_len_tokens"),
    "weighted_mean": ("weightedmean", "weightedmean_tokens"),
    "last": ("lasttoken", "lasttoken"),
}
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
Float = NDArray[np.float32]


def _gelu(x: Float) -> Float:
    from scipy.special import erf

    return np.asarray(0.5 * x * (1 + erf(x / np.sqrt(2))), np.float32)


ACTIVATIONS: Mapping[str, Callable[[Float], Float]] = {  # the last part of torch's name -> what it computes
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "GELU": _gelu,
    "Sigmoid": lambda x: np.asarray(1 / (1 + np.exp(-x)), np.float32),
}
_SCORE_ACTIVATIONS = {  # of cross-encoders, by their names in torch
    "Identity": "torch.nn.modules.linear.Identity",
    "Sigmoid": "torch.nn.modules.activation.Sigmoid",
}
NESTED, OLDER = "sentence_transformers", "sbert_ce_default_activation_function"  # keys of config.json that name one


@dataclass(frozen=True)
class Dense:
    """A matrix on a pooled vector. weight (O, I), bias (O,)."""

    weight: Float
    bias: Float | None
    activation: str

    def __call__(self, vectors: Float) -> Float:
        """(B, I) -> (B, O)"""
        product = vectors @ self.weight.T
        return ACTIVATIONS[self.activation](product if self.bias is None else product + self.bias)


@dataclass(frozen=True)
class SentenceModules:
    """The settings that turn texts into vectors, and pairs into scores.

    pooling: one way or several, whose vectors are joined; empty where the model makes no vectors (a cross-encoder).
    dense, normalize, truncate_dim: what follows, in this order. prompts: texts to put before a text, by name.
    activation: of a cross-encoder's score, "Identity" or "Sigmoid"; None where nothing is said.
    """

    pooling: tuple[str, ...] = ()
    dense: tuple[Dense, ...] = ()
    normalize: bool = False
    truncate_dim: int | None = None
    similarity: str = "cosine"
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str = ""
    max_length: int | None = None
    activation: str | None = None


def read_sentence(folder: Path, public: Mapping[str, object]) -> SentenceModules:
    """Returns the settings of a folder, or of its parent (the layout of 2020). public: its config.json.

    Raises DataError for unknown or damaged settings, and for a default prompt of a cross-encoder.
    """
    inner, folder = folder, folder.parent if first_module(folder.parent) == folder else folder
    settings = _object(folder / SETTINGS)
    activation = _activation(folder, public, settings)
    if not (folder / MODULES).is_file():
        return SentenceModules(activation=activation)
    pooling, include_prompt, dense, normalize = _chain(folder)
    prompts = {name: text for name, text in (settings.get("prompts") or {}).items() if isinstance(text, str)}
    if any(prompts.values()) and not include_prompt:
        raise DataError(f"{folder}: include_prompt=false is not supported.")
    default, length = settings.get("default_prompt_name"), _object(length_file(inner)).get("max_seq_length")
    similarity, dim = settings.get("similarity_fn_name") or "cosine", settings.get("truncate_dim")
    if similarity not in SIMILARITIES:
        raise DataError(
            f"{folder / SETTINGS}: similarity_fn_name is {str(similarity)[:80]!r}. Known: {', '.join(SIMILARITIES)}."
        )
    if default is not None and default not in prompts:
        raise DataError(
            f"{folder / SETTINGS}: default_prompt_name is {str(default)[:80]!r}, which is not the name of a prompt."
        )
    if not pooling and default is not None and prompts[default]:
        raise DataError(
            f"{folder / SETTINGS}: the default prompt {default[:80]!r} of a cross-encoder is not supported. Set "
            "default_prompt_name to null, and start the first text of each pair with the prompt."
        )
    if dim is not None and (type(dim) is not int or dim < 1):
        raise DataError(f"{folder / SETTINGS}: truncate_dim is {str(dim)[:80]!r}; it must be a number from 1.")
    return SentenceModules(
        pooling,
        dense,
        normalize,
        dim,
        similarity,
        prompts,
        "" if default is None else prompts[default],
        length if type(length) is int and length > 0 else None,
        activation,
    )


def module_folders(folder: Path) -> list[Path]:
    """Returns the folders of a sentence model's modules; `folder` itself where a module has none of its own."""
    listed = read_json(folder / MODULES) if (folder / MODULES).is_file() else None
    modules = [module for module in listed if isinstance(module, dict)] if isinstance(listed, list) else []
    return [folder / Path(str(module.get("path") or "")).name for module in modules]


def first_module(folder: Path) -> Path | None:
    """Returns the folder of a sentence model's encoder, where the encoder has its own."""
    return next((path for path in module_folders(folder)[:1] if path != folder), None)


def check_modules(folder: Path) -> None:
    """Raises DataError for a folder with modules that are not known, without which its vectors would be others."""
    if (folder / MODULES).is_file():
        _kinds(folder, read_json(folder / MODULES))


def _kinds(folder: Path, listed: object) -> list[str]:
    """The kinds of the modules of modules.json. Raises DataError for unknown ones."""
    if not isinstance(listed, list) or not all(isinstance(module, dict) for module in listed):
        raise DataError(f"{folder / MODULES} is not a list of modules.")
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in listed]
    if unknown := sorted(set(kinds) - {"Transformer", "Pooling", "Dense", "Normalize"}):
        raise DataError(f"{folder / MODULES} has unknown modules: {', '.join(unknown)}.")
    return kinds


def _chain(folder: Path) -> tuple[tuple[str, ...], bool, tuple[Dense, ...], bool]:
    """The modules of modules.json: ways of pooling, whether they see prompts, matrices, whether a norm follows."""
    listed = read_json(folder / MODULES)
    kinds = _kinds(folder, listed)
    steps = " ".join(kinds).removeprefix("Transformer").removeprefix(" Pooling").removesuffix(" Normalize").split()
    if kinds[:1] != ["Transformer"] or (kinds[1:] and kinds[1] != "Pooling") or set(steps) - {"Dense"}:
        raise DataError(
            f"{folder / MODULES}: the modules are {', '.join(kinds)}. Known: Transformer, Pooling, any number of "
            "Dense, and Normalize, in this order."
        )
    places = [folder / Path(str(module.get("path", ""))).name for module in listed]
    pooling, include_prompt = _pooling(places[1]) if len(kinds) > 1 else ((), True)
    dense = tuple(_dense(place) for kind, place in zip(kinds, places, strict=True) if kind == "Dense")
    return pooling, include_prompt, dense, kinds[-1] == "Normalize"


def _pooling(folder: Path) -> tuple[tuple[str, ...], bool]:
    """The ways of pooling in the order in which their vectors are joined, and whether they see a prompt."""
    path = folder / "config.json"
    settings = _object(path)
    mode = settings.get("pooling_mode")
    modes = [mode] if isinstance(mode, str) else list(mode) if isinstance(mode, list) else []
    old = {f"pooling_mode_{old}": public for public, old in MODES.values()}
    if not modes:
        on = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True]
        modes = [public for name, public in old.items() if name in on] + [name for name in on if name not in old]
    ours = {public: name for name, (public, _) in MODES.items()}
    if not modes:
        raise DataError(f'{path} names no way of pooling. Add one: "pooling_mode": "mean". Known: {", ".join(ours)}.')
    if any(mode not in ours for mode in modes):
        raise DataError(f"{path}: pooling is {', '.join(map(str, modes))}. Known: {', '.join(ours)}.")
    return tuple(ours[mode] for mode in modes), settings.get("include_prompt", True) is not False


def _dense(folder: Path) -> Dense:
    path, settings = folder / "model.safetensors", _object(folder / "config.json")
    activation = _named_activation(settings.get("activation_function", "Tanh"), ACTIVATIONS, folder / "config.json")
    inputs, outputs = (settings.get(key, "sentence_embedding") for key in ("module_input_name", "module_output_name"))
    if settings.get("use_residual") or (inputs, outputs or inputs) != ("sentence_embedding",) * 2:
        raise DataError(f"{folder / 'config.json'}: this Dense module has other inputs than the vector of the text.")
    if not path.is_file():
        raise MissingFile(
            f"{folder} has no model.safetensors. A pytorch_model.bin is a pickle, which can run code, and is never "
            f"opened here. If you trust it, convert it once, which only reads numbers: bertie convert --unsafe "
            f"{folder.parent} -o NEW"
        )
    check_readable(path)
    try:
        weights = load_file(path)
        weight, bias = weights["linear.weight"].astype(np.float32), weights.get("linear.bias")
    except (SafetensorError, KeyError, OSError, TypeError) as error:
        raise DataError(f"{path} holds no Dense module ({error}).") from None
    if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]) or not np.isfinite(weight).all():
        raise DataError(f"{path}: linear.weight and linear.bias are of no Dense module. Is the file damaged?")
    return Dense(weight, None if bias is None else bias.astype(np.float32), activation)


def _activation(folder: Path, public: Mapping[str, object], settings: Mapping[str, object]) -> str | None:
    """The activation of a cross-encoder's score, in any of the three places where it has been written."""
    nested = public.get(NESTED)
    places = (
        settings.get("activation_fn"),
        nested.get("activation_fn") if isinstance(nested, dict) else None,
        public.get(OLDER),
    )
    activation = next((name for name in places if name is not None), None)
    return None if activation is None else _named_activation(activation, _SCORE_ACTIVATIONS, folder)


def with_activation(public: Mapping[str, object], activation: str | None) -> dict[str, object]:
    """Returns a config.json that names this activation of a cross-encoder's score; None: it names none."""
    rest = {name: value for name, value in public.items() if name not in (NESTED, OLDER)}
    return rest | ({} if activation is None else {NESTED: {"activation_fn": _SCORE_ACTIVATIONS[activation]}})


def _named_activation(activation: object, known: Mapping[str, object], where: Path) -> str:
    last = str(activation).rpartition(".")[2]
    if last not in known:
        raise DataError(f"{where}: the activation is {str(activation)[:80]!r}. Known: {', '.join(known)}.")
    return last


def _object(path: Path) -> JsonObject:
    content = read_json(path) if path.is_file() else {}
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__}; an object of settings was expected.")
    return content


def pool(output: "EncoderOutput", pooling: str) -> "Tensor":
    """Returns the hidden states of each sequence as one vector. pooling: a key of MODES. -> (B, H)

    mean_sqrt_len: the sum over the root of the length; weighted_mean: the tokens weigh 1, 2, 3 ... Reimers and
    Gurevych 2019, 3; Muennighoff 2022. S longest
    """
    layout = output.layout
    if pooling == "cls":
        return output.summary()
    if pooling == "last":
        return layout.last(output.last_hidden_state)
    hidden_BSH, mask_BS1 = layout.rectangle(output.last_hidden_state.float()), layout.mask()[..., None]
    if pooling == "max":
        return hidden_BSH.masked_fill(~mask_BS1, float("-inf")).amax(1)
    weight_BS1 = mask_BS1.cumsum(1) * mask_BS1 if pooling == "weighted_mean" else mask_BS1
    sum_BH, whole_B1 = (hidden_BSH * weight_BS1).sum(1), weight_BS1.sum(1)
    return sum_BH / (whole_B1.sqrt() if pooling == "mean_sqrt_len" else whole_B1)
