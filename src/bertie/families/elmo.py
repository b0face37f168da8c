"""ELMo: its sizes, the names of its weights, and its published files. Peters et al. 2018, arXiv:1802.05365.

Folders have the names of AllenNLP's module. The published files are `*_options.json` and `*_weights.hdf5`, which
`read_published` opens: TensorFlow's layout, with transposed matrices and gates in another order.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertie.errors import BadFile, DataError, NoPackage
from bertie.files import read_json
from bertie.models import folder
from bertie.models.codec import WeightTable
from bertie.models.elmo import ElmoConfig, ElmoEncoder
from bertie.models.model import TorchModel
from bertie.models.variant import Variant, same

_BASE = ElmoConfig()
Array = NDArray[np.float32]
EMBEDDER, LSTM = "_elmo_lstm._token_embedder", "_elmo_lstm._elmo_lstm"


def _both_ways(part: str) -> tuple[str, str]:
    return f"{LSTM}.forward_layer_{{}}.{part}.*", f"{LSTM}.backward_layer_{{}}.{part}.*"


_TABLE = WeightTable(
    rows=(
        ("encoder.characters.embedding.weight", f"{EMBEDDER}._char_embedding_weights"),
        ("encoder.characters.convolutions.{}.*", f"{EMBEDDER}.char_conv_{{}}.*"),
        ("encoder.characters.highways.{}.*", f"{EMBEDDER}._highways._layers.{{}}.*"),
        ("encoder.characters.projection.*", f"{EMBEDDER}._projection.*"),
        ("encoder.layers.{}.up.*", _both_ways("input_linearity")),
        ("encoder.layers.{}.state.*", _both_ways("state_linearity")),
        ("encoder.layers.{}.down.*", _both_ways("state_projection")),
        ("encoder.mix.gamma", "scalar_mix_0.gamma"),
        ("encoder.mix.scores.{}", "scalar_mix_0.scalar_parameters.{}"),
        ("heads.bilm.weight", "softmax.weight"),
        ("heads.bilm.bias", "softmax.bias"),
        ("heads.sequence.dense.*", "classifier.dense.*"),
        ("heads.sequence.classifier.*", "classifier.out_proj.*"),
        ("heads.token.classifier.*", "classifier.*"),
    ),
    ignored=(r"\._(beginning|end)_of_sentence_characters$",),
)

ELMO = Variant(
    model_type="elmo",
    about="Bidirectional LSTM language models on characters, the model that BERT was compared with. Not a transformer.",
    source="Peters et al. 2018, arXiv:1802.05365",
    tokenizer="characters",
    base=_BASE,
    presets={
        "elmo-small": replace(_BASE, intermediate_size=1024, hidden_size=256, num_highway_layers=1),
        "elmo-medium": replace(_BASE, intermediate_size=2048, hidden_size=512, num_highway_layers=1),
        "elmo-original": _BASE,
    },
    table=_TABLE,
    architectures={
        "Elmo": (),
        "ElmoForLanguageModeling": ("bilm",),
        "ElmoForSequenceClassification": ("sequence",),
        "ElmoForTokenClassification": ("token",),
    },
    keys=same(
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "intermediate_size",
        "embedding_size",
        "hidden_dropout_prob",
        "classifier_dropout",
        "initializer_range",
        "char_vocab_size",
        "max_characters_per_token",
        "filters",
        "num_highway_layers",
        "cell_clip",
        "state_clip",
    ),
    fixed={},
    recipe={  # release file bin/train_elmo.py: 10 epochs of the 1 Billion Word Benchmark; Adagrad at 0.2, no warm-up
        "objectives": {"mlm": None, "nsp": None, "bilm": {}},
        "max_length": 128,
        "optim": {"lr": 1e-3, "weight_decay": 0.0, "warmup": 0.0},
        "train": {"batch_size": 384},
    },
    encoder=ElmoEncoder,
)


def read_published(options: Path | str, weights: Path | str) -> TorchModel:
    """Returns the model in AllenNLP's two files, `*_options.json` and `*_weights.hdf5`. Needs h5py.

    The weights of the layer sum are equal, as in a new task. Raises DataError when files are missing, damaged, or
    belong to different models.
    """
    config = _options(Path(options))
    model = folder.build_variant_model(ELMO, config)
    ours = dict(model.encoder.named_parameters())
    with _Published(Path(weights)) as file, torch.no_grad():
        ours["characters.embedding.weight"].zero_()  # row 0, padding, is not in the file
        file.fill(ours["characters.embedding.weight"][1:], "char_embed")
        for i in range(len(config.filters)):
            file.fill(ours[f"characters.convolutions.{i}.weight"], f"CNN/W_cnn_{i}", lambda x: x[0].transpose(2, 1, 0))
            file.fill(ours[f"characters.convolutions.{i}.bias"], f"CNN/b_cnn_{i}")
        for i in range(config.num_highway_layers):
            new, gate = ours[f"characters.highways.{i}.weight"].chunk(2)
            new_bias, gate_bias = ours[f"characters.highways.{i}.bias"].chunk(2)
            file.fill(new, f"CNN_high_{i}/W_transform", np.transpose)
            file.fill(new_bias, f"CNN_high_{i}/b_transform")
            # their gate says how much is new, ours how much is kept: sigmoid(-x) = 1 - sigmoid(x)
            file.fill(gate, f"CNN_high_{i}/W_carry", lambda x: -x.T)
            file.fill(gate_bias, f"CNN_high_{i}/b_carry", np.negative)
        file.fill(ours["characters.projection.weight"], "CNN_proj/W_proj", np.transpose)
        file.fill(ours["characters.projection.bias"], "CNN_proj/b_proj")
        for i, direction in product(range(config.num_hidden_layers), (0, 1)):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            up, state, down, bias = (
                ours[f"layers.{i}.{part}"].chunk(2)[direction]
                for part in ("up.weight", "state.weight", "down.weight", "state.bias")
            )
            fused = torch.empty(len(up), up.shape[1] + state.shape[1])
            file.fill(fused, f"{cell}/W_0", lambda x: _gates(x.T))
            up.copy_(fused[:, : up.shape[1]])
            state.copy_(fused[:, up.shape[1] :])
            file.fill(bias, f"{cell}/B", _gates)
            bias.chunk(4)[1].add_(1.0)  # TensorFlow's cell adds this to the forget gate as it runs
            file.fill(down, f"{cell}/W_P_0", np.transpose)
    return model.eval()


def _gates(x: Array) -> Array:
    """Converts TensorFlow's order of gates, input, new, forget, output, to torch's: input, forget, new, output."""
    enter, new, forget, leave = np.split(x, 4)
    return np.concatenate([enter, forget, new, leave])


def _options(path: Path) -> ElmoConfig:
    """options.json -> ElmoConfig"""
    options = read_json(path)
    try:
        lstm, cnn = options["lstm"], options["char_cnn"]
        if cnn["activation"] != "relu" or not lstm["use_skip_connections"]:
            raise DataError(f"{path}: only activation 'relu' with use_skip_connections is supported.")
        public = {
            "hidden_size": 2 * lstm["projection_dim"],
            "intermediate_size": lstm["dim"],
            "num_hidden_layers": lstm["n_layers"],
            "cell_clip": lstm.get("cell_clip") or 0.0,
            "state_clip": lstm.get("proj_clip") or 0.0,
            "embedding_size": cnn["embedding"]["dim"],
            "char_vocab_size": cnn["n_characters"],
            "max_characters_per_token": cnn["max_characters_per_token"],
            "filters": cnn["filters"],
            "num_highway_layers": cnn["n_highway"],
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not an options file of ELMo: {type(error).__name__}: {error}.") from None
    config = ELMO.config(public, str(path))
    assert isinstance(config, ElmoConfig)
    return config


class _Published:
    """An HDF5 file of weights. Links to other files are refused, and shapes are checked before numbers are read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> "_Published":
        try:
            import h5py
        except ImportError:
            raise NoPackage(
                "ELMo's published weights are HDF5 files, which need h5py: pip install 'bertie[elmo]'"
            ) from None
        try:
            self.file: Any = h5py.File(self.path, "r")
        except OSError as error:
            raise BadFile(f"{self.path} is not a complete HDF5 file ({error}). The file may be truncated.") from None
        self.inside: Any = h5py.HardLink
        self.dataset: Any = h5py.Dataset
        return self

    def __exit__(self, *exception: object) -> None:
        self.file.close()

    def fill(self, parameter: Tensor, name: str, lay: Callable[[Array], Array] = lambda x: x) -> None:
        """Copies a dataset into a parameter, converted by `lay`."""
        here: Any = self.file
        for part in name.split("/"):
            link = here.get(part, getlink=True) if hasattr(here, "get") else None
            if not isinstance(link, self.inside):
                raise DataError(f"{self.path} has no {name}. Check that it belongs to this options file.")
            here = here[part]
        if not isinstance(here, self.dataset) or here.external or here.is_virtual or here.dtype.kind != "f":
            raise DataError(f"{self.path}: {name} is not an array of floating-point numbers.")
        # as many numbers, or what is read would not fit in the memory that options.json calls for
        laid = lay(here[...].astype(np.float32)) if here.size == parameter.numel() else None
        if laid is None or laid.shape != tuple(parameter.shape):
            raise DataError(f"{self.path}: {name} has the shape {here.shape}, which contradicts the options file.")
        if not np.isfinite(laid).all():
            raise DataError(f"{self.path}: {name} contains numbers that are not finite. The file may be damaged.")
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(laid)))
