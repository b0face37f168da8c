"""What models and families are: `bertie.info`, `bertie.presets` and `bertie.list_families`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

from bertie.errors import arguments
from bertie.files import Json
from bertie.models import count, families
from bertie.models.config import EncoderConfig
from bertie.registry import Later
from bertie.runs.models import model_folder
from bertie.runs.planning import extra_flops
from bertie.text.formats import TOKENIZER_FILES
from bertie.text.tokenizer import Tokenizer

MEMORY_AT_USE = Later[Callable[[EncoderConfig, int, int, int], Mapping[str, float]]](
    "bertie.apps.plan.memory", "known_memory_at_use"
)
_FIELDS_SHOWN = (
    10  # fields of EncoderConfig that are always shown; of the others, those in which a model is not plain BERT
)


@dataclass(frozen=True)
class Preset:
    """A published shape of a family.

    Attributes:
        preset: Its name.
        model_type: Its family.
        layers: Number of layers.
        hidden_size: Numbers of a state.
        heads: Attention heads of a layer.
        vocab_size: Entries of the vocabulary.
        parameters: Number of weights.
    """

    preset: str
    model_type: str
    layers: int
    hidden_size: int
    heads: int
    vocab_size: int
    parameters: int


@dataclass(frozen=True)
class FamilyInfo:
    """A supported architecture.

    Attributes:
        model_type: Its name.
        about: What it changed in BERT.
        source: The paper.
        tokenizer: Its tokenizer.
        heads: The heads that its public classes have.
        presets: Its published shapes.
        parameters: The number of weights of each preset.
    """

    model_type: str
    about: str
    source: str
    tokenizer: str
    heads: Sequence[str]
    presets: Sequence[str]
    parameters: Sequence[int]


@dataclass(frozen=True)
class ModelInfo:
    """The architecture, size and cost of a model.

    Attributes:
        model: Its name or folder.
        architecture: The public classes that open it; None for a preset, and so are the next three.
        labels: The names of its labels.
        weights: What was loaded.
        tokenizer: vocab_size, special and fingerprint; None without a tokenizer.
        config: The settings of the encoder.
        parameters: Part -> number of weights, and their total.
        memory_bytes: Use -> bytes of weights, gradients and moments; of prediction, of the whole process.
        flops_per_token: The operations of a token.
    """

    model: str
    architecture: Sequence[str] | None
    labels: Sequence[str] | None
    weights: str | None
    tokenizer: Mapping[str, object] | None
    config: Mapping[str, object]
    parameters: Mapping[str, int]
    memory_bytes: Mapping[str, int]
    flops_per_token: Mapping[str, object]

    def to_dict(self) -> dict[str, object]:
        """Returns the facts as JSON values; those of a folder only for one."""
        facts = asdict(self)
        if self.weights is None:
            return {name: value for name, value in facts.items() if value is not None}
        return facts

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yields the lines of `bertie info`: what, and its value."""
        yield self.model, ", ".join(self.architecture or ())
        if self.labels:
            yield "labels", ", ".join(self.labels)
        if self.weights is not None:
            yield "weights", self.weights
        usual = EncoderConfig().flat()
        for place, (name, value) in enumerate(self.config.items()):
            if value != usual.get(name) or (place < _FIELDS_SHOWN and value is not None):
                yield f"  {name}", str(value)
        yield "parameters", f"{self.parameters['total']:,}"
        yield from ((f"  {name}", f"{number:,}") for name, number in self.parameters.items() if name != "total")
        yield "memory", "MB"
        yield from ((f"  {name}", f"{size / 1e6:,.0f}") for name, size in self.memory_bytes.items())
        flops: Json = self.flops_per_token
        yield f"operations per token, length {flops['length']}", "MFLOP"
        yield "  forward, encoder", f"{flops['forward'] / 1e6:,.1f}"
        predicted = f"{flops['predicted']:.0%} {'written' if self.config['num_decoder_layers'] else 'predicted'}"
        if extra := flops["in addition, forward and backward"]:
            predicted = " and ".join(extra)
        yield f"  pre-training step, {predicted}", f"{flops['pretraining'] / 1e6:,.1f}"
        tokenizer: Json | None = self.tokenizer
        if tokenizer:
            yield "tokenizer", f"{tokenizer['vocab_size']:,} tokens"
            yield "  special", " ".join(f"{name}={i}" for name, i in tokenizer["special"].items())
            yield "  fingerprint", tokenizer["fingerprint"]

    def __repr__(self) -> str:
        return f"ModelInfo({self.model!r}, {self.parameters['total']:,} parameters)"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in self.rows())
        return f"<table>{rows}</table>"


@arguments()
def info(model: str | Path, *, length: int = 128, batch: int | None = None) -> ModelInfo:
    """Returns a model's architecture, parameters, memory, operations and tokenizer.

    Args:
        model: Name of a preset, or name or folder of a model, a run or a checkpoint.
        length: Sequence length in tokens, for the operations per token and for `batch`.
        batch: Texts in one call: adds the peak memory of a process that predicts, in float32 on a CPU, by engine.

    Raises:
        DataError: The folder is damaged.
        UsageError: There is no such model or preset, or the memory of its prediction is not known.

    Example:
        >>> facts = bertie.info("bert-base", length=512)
        >>> facts.parameters["total"]
        109482240
    """
    folder = model_folder(model)
    config, architecture, labels, weights, tokenizer = families.config(folder), None, None, None, None
    parts = count.parameters(config) | count.decoder_parameters(config)
    if (folder / "config.json").is_file():
        loaded, report = families.load(folder)
        config = loaded.config if "decoder" in loaded.heads else loaded.config.replace(num_decoder_layers=None)
        heads = {f"{name} head": sum(one.numel() for one in head.parameters()) for name, head in loaded.heads.items()}
        parts = count.parameters(config) | heads
        architecture, labels, weights = loaded.public.get("architectures"), [*loaded.labels], str(report)
        tokenizer = _tokenizer(folder)
    total = sum(parts.values())
    # weights and gradients in float32 and AdamW's two moments; activations come on top
    memory = {"inference float32": 4 * total, "inference bf16": 2 * total, "training AdamW": 16 * total}
    if batch is not None:
        sizes = MEMORY_AT_USE.found()(config, total, length, batch)
        memory |= {f"prediction, {engine}": round(size) for engine, size in sizes.items()}
    length = min(length, config.max_length)
    extra = extra_flops(folder, config, length)
    predicted = 0.0 if extra else count.predictions_per_token(config)
    flops = count.forward_flops(config, length=length, predicted=predicted)
    forward = (number for part, number in flops.items() if not part.startswith("decoder") and "head" not in part)
    return ModelInfo(
        str(folder),
        architecture,
        labels,
        weights,
        tokenizer,
        config.flat(),
        parts | {"total": total},
        memory,
        {
            "length": length,
            "forward": sum(forward),
            "predicted": predicted,
            "pretraining": 3 * sum(flops.values()) + sum(extra.values()),
            "by part, forward": flops,
            "in addition, forward and backward": extra,
        },
    )


def presets() -> list[Preset]:
    """Returns every preset with its sizes.

    Example:
        >>> next(preset.layers for preset in bertie.presets() if preset.preset == "bert-tiny")
        2
    """
    return [
        Preset(
            name,
            model_type,
            config.num_hidden_layers,
            config.hidden_size,
            config.num_attention_heads,
            config.vocab_size,
            sum((count.parameters(config) | count.decoder_parameters(config)).values()),
        )
        for model_type, variant in families.VARIANTS.items()
        for name, config in variant.presets.items()
    ]


@arguments()
def list_families(name: str | None = None) -> list[FamilyInfo]:
    """Returns every supported architecture, or the one of a name.

    Raises:
        UsageError: There is no such architecture.

    Example:
        >>> [family.model_type for family in bertie.list_families()][:1]
        ['bert']
        >>> bertie.list_families("electra")[0].presets[0]
        'electra-small-discriminator'
    """
    sizes = {row.preset: row.parameters for row in presets()}
    chosen = families.VARIANTS.items() if name is None else [(name, families.VARIANTS[name])]
    return [
        FamilyInfo(
            model_type,
            variant.about,
            variant.source,
            variant.tokenizer,
            [*dict.fromkeys(head for heads in variant.architectures.values() for head in heads)],
            [*variant.presets],
            [sizes[preset] for preset in variant.presets],
        )
        for model_type, variant in chosen
    ]


def _tokenizer(folder: Path) -> dict[str, object] | None:
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return None
    tokenizer = Tokenizer.load(folder)
    special = {tokenizer.id_to_token(i): i for i in sorted(tokenizer.special_ids)}
    return {"vocab_size": tokenizer.vocab_size, "special": special, "fingerprint": tokenizer.fingerprint}
