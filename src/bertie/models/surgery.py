"""A trained model with another vocabulary, more positions or more layers. Each function returns a new model.

The docstring of a function says what remains the same, and tests/unit/test_surgery.py tests it. Width: models/widen.py.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from bertie.errors import DataError, UnknownName, UsageError, nearest
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS
from bertie.models.heads.base import Head
from bertie.models.kinds import Groups, Rotary
from bertie.models.model import TorchModel
from bertie.models.partial import LAYER_NAME
from bertie.models.seq2seq import assembled
from bertie.models.variant import Variant
from bertie.models.weights import WORD_EMBEDDINGS
from bertie.nn.init import shapes_only
from bertie.text.resize import Resized, trim_tokenizer

Fill = Literal["tile", "interpolate"]
DepthMethod = Literal["stack", "interleave", "identity"]
_SHARED_SETTINGS = (  # of the configs of two families, when one's layers go into the other
    *("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "hidden_act", "max_position_embeddings"),
    *("pad_token_id", "initializer_range", "layer_norm_eps", "hidden_dropout_prob", "attention_probs_dropout_prob"),
    "mlm_tied",
)
_COMPUTING_SETTINGS = (  # settings that change what the same weights compute
    *("attention", "causal", "norm", "norm_type", "attention_head_size", "scale_attention", "rescale_embeddings"),
    "mlm_act",
)
POSITION = "encoder.embeddings.position.weight"
SEGMENT, OF_FEATURES = "encoder.embeddings.segment.weight", "encoder.embeddings.features.position.weight"
CONVOLUTION = re.compile(r"encoder\.layers\.0\.conv")


def rebuilt(model: TorchModel, config: EncoderConfig, state: Mapping[str, Tensor]) -> TorchModel:
    """Returns a model of the same family and heads with another config and these weights, by our names."""
    if model.variant is None:
        raise UsageError("This model belongs to no family. Make it with families.build or families.load.")
    weights = (state.get(f"heads.{name}.classifier.weight") for name in model.heads)
    outputs = [0 if weight is None else len(weight) for weight in weights]
    with shapes_only():
        heads = {name: HEADS[name](config, n) for name, n in zip(model.heads, outputs, strict=True)}
        new = assembled(model.variant.encoder(config), heads, variant=model.variant, public=model.public)
    new.load_state_dict({name: tensor.detach().clone() for name, tensor in state.items()}, assign=True)
    new.labels, new.problem_type, new.tokenizer = model.labels, model.problem_type, model.tokenizer
    new.training_facts = model.training_facts
    return new.train(model.training)


def with_vocabulary(model: TorchModel, resized: Resized) -> TorchModel:
    """Returns the model for an extended or trimmed tokenizer. Each row is the mean of the old rows of its tokens.

    Texts with the same tokens as before have the same hidden states, and the same logits for these tokens. Raises
    UsageError for a model that does not read tokens.
    """
    state, config = dict(model.state_dict()), model.config
    if WORD_EMBEDDINGS not in state:
        raise UsageError(f"A model without {WORD_EMBEDDINGS} reads no tokens, so it has no vocabulary to change.")
    most = max(max(row) for row in resized.rows)
    if most >= config.vocab_size:
        raise DataError(
            f"The tokenizer has a token {most:,}, but the model's vocabulary has {config.vocab_size:,} rows."
        )
    heads = [(name, head) for name, head in model.heads.items() if isinstance(head, Head)]
    of_heads = {f"heads.{name}.{weight}": axis for name, head in heads for weight, axis in head.vocabulary.items()}
    for name, axis in {WORD_EMBEDDINGS: 0, **of_heads}.items():
        if name in state:
            state[name] = _means(state[name].movedim(axis, 0), resized.rows).movedim(0, axis).contiguous()
    moved = {row[0]: i for i, row in reversed(list(enumerate(resized.rows))) if len(row) == 1}

    def now(key: str, old: int) -> int:
        """Returns the id of a special token by its key in config.json: the tokenizer's, or the new index of its row."""
        token = resized.tokenizer.special_id(key.removesuffix("_token_id"))
        return moved.get(old, old) if token is None else token

    said_of = model.variant.keys if model.variant else ()  # other ids are not in config.json, and nothing reads them
    keys = ("pad_token_id", "sep_token_id", "eos_token_id", "decoder_start_token_id")
    ids = {key: now(key, old) for key in keys if key in said_of and (old := getattr(config, key)) is not None}
    if config.position_offset and ids["pad_token_id"] != config.pad_token_id:
        raise UsageError(
            "The id of the pad token would change, and positions are counted from it. Keep all ids up to the pad token."
        )
    new = rebuilt(model, config.replace(vocab_size=len(resized.rows), **ids), state)
    said = {key: now(key, i) for key, i in new.public.items() if key.endswith("_token_id") and type(i) is int}
    new.public = {**new.public, **said}
    new.tokenizer = resized.tokenizer
    return new


def trim_to_texts(model: TorchModel, texts: Iterable[str]) -> TorchModel:
    """Returns the model with the tokens of some texts alone. See `with_vocabulary`."""
    return with_vocabulary(model, trim_tokenizer(model.text_tokenizer, texts))


def _means(table: Tensor, rows: Sequence[Sequence[int]]) -> Tensor:
    """(V, ...) -> (len(rows), ...): each row is the mean of some old rows. A single row is copied exactly."""
    counts = torch.tensor([len(row) for row in rows])
    owners = torch.repeat_interleave(torch.arange(len(rows)), counts)
    chosen = table[torch.tensor([i for row in rows for i in row])]
    sums = torch.zeros(len(rows), *table.shape[1:], dtype=table.dtype).index_add_(0, owners, chosen)
    return sums / counts.view(-1, *[1] * (table.dim() - 1))


def with_positions(model: TorchModel, length: int, *, fill: Fill = "tile") -> TorchModel:
    """Returns the model for sequences of up to `length` tokens, for further training.

    "tile" repeats the position embeddings, as in Longformer (Beltagy et al. 2020, 5); the output for sequences of the
    old length does not change. "interpolate" stretches them. Rotary positions have no embeddings, and continue. Raises
    UsageError for a model without a maximum length, or a length that it already has.
    """
    if fill not in get_args(Fill):
        raise UnknownName(f"Unknown fill {fill!r}. {nearest(fill, get_args(Fill))}")
    state, config = dict(model.state_dict()), model.config
    rotary = isinstance(config.positions, Rotary)
    if POSITION not in state and not rotary:
        raise UsageError("This family has no position embeddings, so it has no maximum length to extend.")
    if length <= config.max_length:
        raise UsageError(f"The model has {config.max_length:,} positions already. Choose a larger number.")
    if rotary:
        if fill != "tile":
            raise UsageError("Rotary positions have no table that --fill could interpolate. Omit --fill.")
        return rebuilt(model, config.replace(max_position_embeddings=length), state)
    for table in (POSITION, OF_FEATURES):
        if table not in state:
            continue
        first, body = state[table].tensor_split([config.position_offset])
        if fill == "tile":
            body = body.repeat(-(-length // len(body)), 1)[:length]
        else:
            body = F.interpolate(body.T[None], size=length, mode="linear", align_corners=True)[0].T
        state[table] = torch.cat([first, body])
    return rebuilt(model, config.replace(max_position_embeddings=len(state[POSITION])), state)


def deeper(model: TorchModel, layers: int, *, how: DepthMethod = "stack") -> TorchModel:
    """Returns the model with more layers, for further training.

    "stack" puts copies of all layers on top (0 1 2 0 1 2; Gong et al. 2019), and "interleave" copies each layer next to
    itself (0 0 1 1 2 2). "identity" adds layers that do not change the output, which is possible for pre-norm models
    only. Shared layers are repeated more often. Raises UsageError for fewer layers, or a family that does not support
    it.
    """
    if how not in get_args(DepthMethod):
        raise UnknownName(f"Unknown way {how!r}. {nearest(how, get_args(DepthMethod))}")
    state, config = dict(model.state_dict()), model.config
    old = config.num_hidden_layers
    if layers <= old or not old:
        raise UsageError(f"The model has {old} layers and can only get more, not {layers}.")
    _check_mixed(state)
    if how == "identity" and (config.layer.norm != "pre" or isinstance(config.sharing, Groups)):
        kind = "shares its layers" if isinstance(config.sharing, Groups) else "is post-norm"
        raise UsageError(
            f"--how identity needs a pre-norm model with layers of their own; this model {kind}. Use --how stack or "
            "--how interleave."
        )
    if isinstance(config.sharing, Groups):
        return rebuilt(model, config.replace(num_hidden_layers=layers), state)
    source = [i % old if how == "stack" else i * old // layers for i in range(layers)]
    if how == "identity":
        source = [min(i, old - 1) for i in range(layers)]
    grown = _with_layers(state, source)
    if how == "identity":
        for name in grown:
            last = re.fullmatch(r"encoder\.layers\.(\d+)\..*(attention\.output|down)\.(weight|bias)", name)
            if last and int(last[1]) >= old:
                grown[name] = torch.zeros_like(grown[name])
    return rebuilt(model, _of_layers(config, source), _with_norms(grown, config, layers))


def _with_layers(state: Mapping[str, Tensor], layers: Sequence[int]) -> dict[str, Tensor]:
    """Returns the state with these layers, in this order. A convolution is of the first place, not of its layer
    (DeBERTa)."""
    tensors = {name: tensor for name, tensor in state.items() if not LAYER_NAME.match(name) or CONVOLUTION.match(name)}
    for i, layer in enumerate(layers):
        prefix = f"encoder.layers.{layer}."
        for name in state:
            if name.startswith(prefix) and not CONVOLUTION.match(name):
                tensors[f"encoder.layers.{i}.{name.removeprefix(prefix)}"] = state[name]
    return tensors


def _check_mixed(state: Mapping[str, Tensor]) -> None:
    """Raises UsageError for ELMo, which has weights for the number of its layers."""
    if any(name.startswith("encoder.mix.") for name in state):
        raise UsageError("The vector of an ELMo is a weighted sum of all its layers, so their number cannot change.")


def _with_norms(state: dict[str, Tensor], config: EncoderConfig, layers: int) -> dict[str, Tensor]:
    """Returns the state of layers in another order, with the norms that their places have.

    The first layer of some pre-norm models reads the normalized embeddings, and has no norm of attention: one that
    comes first loses its norm, and a copy of the first one gets the norm of the embeddings.
    """
    if getattr(config.layer, "first_attention_norm", True):
        return state
    name = "encoder.layers.{}.attention_norm.weight"
    norms = {name.format(i): state["encoder.embeddings.norm.weight"] for i in range(1, layers)}
    return {key: tensor for key, tensor in (norms | state).items() if key != name.format(0)}


def _of_layers(config: EncoderConfig, layers: Sequence[int]) -> EncoderConfig:
    """Returns the config with these of its layers, and their settings per layer."""
    each = {
        name: value
        for name in ("attention_window", "attention_dilation")
        if isinstance(value := config.get(name), tuple)
    }
    chosen = {name: tuple(value[layer] for layer in layers) for name, value in each.items()}
    return config.replace(num_hidden_layers=len(layers), **chosen)


def take_layers(model: TorchModel, layers: Sequence[int], *, variant: Variant | None = None) -> TorchModel:
    """Returns a model with some of the layers, in that order: the initialization of a student (Sanh et al. 2019, 3).

    variant: the family of the student, such as DistilBERT for BERT; it keeps only the vocabulary head. Where this
    family has no segments, the first segment's embedding is added to the positions, so that single texts have the same
    embeddings. Raises UsageError for unknown layers, shared layers, or families whose weights differ.
    """
    state, config = dict(model.state_dict()), model.config
    if isinstance(config.sharing, Groups):
        raise UsageError("The layers of this model share one set of weights, so layers cannot be selected.")
    if not layers or not all(0 <= layer < config.num_hidden_layers for layer in layers):
        raise UsageError(
            f"Layers {list(layers)} are out of range: the model has layers 0 to {config.num_hidden_layers - 1}."
        )
    _check_mixed(state)
    weights = _with_layers(state, layers)
    if variant is None or variant == model.variant:
        return rebuilt(model, _of_layers(config, layers), _with_norms(weights, config, len(layers)))
    shape = variant.base.replace(num_hidden_layers=len(layers), **{name: config.get(name) for name in _SHARED_SETTINGS})
    if POSITION in weights:  # the first token's is row 0, or the row after that of the padding token
        rows = weights[POSITION][config.position_offset :]
        if SEGMENT in weights and not shape.type_vocab_size:
            rows = rows + weights.pop(SEGMENT)[0]
        weights[POSITION] = torch.cat([rows.new_zeros(shape.position_offset, rows.shape[1]), rows])
        shape = shape.replace(max_position_embeddings=len(weights[POSITION]))
    if SEGMENT in weights:
        weights[SEGMENT] = weights[SEGMENT][: shape.type_vocab_size]
    heads = [name for name in model.heads if f"heads.{name}.bias" in variant.table]
    with shapes_only():
        new = TorchModel(variant.encoder(shape), {name: HEADS[name](shape, 0) for name in heads}, variant=variant)
    shapes = {name: tensor.shape for name, tensor in new.state_dict().items()}
    cannot = f"Cannot initialize a {variant.model_type} from this model:"
    if lacking := [name for name, shape in shapes.items() if name not in weights or weights[name].shape != shape]:
        raise UsageError(f"{cannot} weight {lacking[0]} is missing or has a different shape.")
    parts = [name for name in weights if name.startswith("encoder.") and not name.startswith("encoder.pooler.")]
    if left := [name for name in parts if name not in shapes]:
        raise UsageError(f"{cannot} a {variant.model_type} has no {left[0]}.")
    ours, theirs = (one.flat() | {"mlm_act": one.heads.mlm.mlm_act or one.hidden_act} for one in (config, shape))
    if other := [name for name in _COMPUTING_SETTINGS if ours.get(name) != theirs.get(name)]:
        raise UsageError(f"{cannot} the setting {other[0]} of the two families differs.")
    new.load_state_dict({name: weights[name].detach().clone() for name in shapes}, assign=True)
    new.tokenizer = model.tokenizer
    return new.train(model.training)
