"""Model families by name: each is one file of families/ that holds a `Variant`, and one row here.

`config("bert-tiny")` is a preset's or a folder's shape, `build` makes a model with random weights, `load` opens a model
folder, `save` writes one.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bertie.errors import BertieError, DataError, UnknownName, UsageError, hub_hint, nearest, speech
from bertie.models.codec import model_type
from bertie.models.config import EncoderConfig
from bertie.models.variant import CONFIG, UnknownHeads, Variant, read_public
from bertie.registry import Later, Registry

if TYPE_CHECKING:
    from bertie.models.folder import Heads
    from bertie.models.model import TorchModel
    from bertie.models.saving import save_model as save
    from bertie.models.weights import LoadReport

    PRESETS: Registry[EncoderConfig]

__all__ = ["PRESETS", "VARIANTS", "build", "changed_config", "config", "family", "load", "save"]

_HOMES = {
    "bert": "bert.BERT",
    "roberta": "roberta.ROBERTA",
    "xlm-roberta": "roberta.XLMR",
    "camembert": "roberta.CAMEMBERT",
    "albert": "albert.ALBERT",
    "distilbert": "distilbert.DISTILBERT",
    "electra": "electra.ELECTRA",
    "mobilebert": "mobilebert.MOBILEBERT",
    "longformer": "longformer.LONGFORMER",
    "big_bird": "bigbird.BIGBIRD",
    "openai-gpt": "gpt.OPENAI_GPT",
    "gpt2": "gpt.GPT2",
    "t5": "t5.T5",
    "modernbert": "modernbert.MODERNBERT",
    "mpnet": "mpnet.MPNET",
    "deberta-v2": "deberta.DEBERTA",
    "nomic_bert": "nomic_bert.NOMIC_BERT",
    "visual_bert": "visual_bert.VISUAL_BERT",
    "static": "static.STATIC",
    "elmo": "elmo.ELMO",
    "xlnet": "xlnet.XLNET",
    "vilbert": "vilbert.VILBERT",
    "lxmert": "lxmert.LXMERT",
}
"""model_type -> the file in families/, and the name of the `Variant` in it."""
VARIANTS: Registry[Variant] = Registry(
    "model_type",
    [
        (name, Later[Variant](f"bertie.families.{file}", variant))
        for name, (file, variant) in ((name, home.split(".")) for name, home in _HOMES.items())
    ],
    group="bertie.families",
)


def __getattr__(name: str) -> object:
    if name == "PRESETS":
        rows = [row for _, variant in VARIANTS.items() for row in variant.presets.items()]
        globals()[name] = Registry("preset", rows)
    elif name == "save":
        from bertie.models import saving

        globals()[name] = saving.save_model
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]


def _find(name: str | Path) -> tuple[Variant, EncoderConfig]:
    """The variant and config of a preset or a model folder; a folder is what has a config.json."""
    if (Path(name) / CONFIG).is_file():
        public = read_public(Path(name))
        variant = _of_folder(Path(name), public)
        return variant, variant.config(public, str(Path(name) / CONFIG))
    for _, variant in VARIANTS.items():
        if str(name) in variant.presets:
            return variant, variant.presets[str(name)]
    if Path(name).is_dir():
        read_public(Path(name))  # says what is wrong with it
    presets = [preset for _, variant in VARIANTS.items() for preset in variant.presets]
    hint = hub_hint(name).strip() or nearest(name, [*presets, *speech.model_names()])
    raise UnknownName(f"{str(name)!r} is neither a model folder, nor the name of a model or a preset. {hint}")


def _of_folder(folder: Path, public: Mapping[str, object]) -> Variant:
    kind = model_type(public)
    if kind not in VARIANTS:
        raise DataError(
            f"{folder / CONFIG}: model_type is {str(kind)[:80]!r}, which is not supported. "
            f"{nearest(kind, VARIANTS)} `bertie families` lists all supported types."
        )
    return VARIANTS[kind]


def family(name: str | Path) -> Variant:
    """The family of a preset or of a model folder."""
    return _find(name)[0]


def config(name: str | Path, **overrides: Any) -> EncoderConfig:
    """The config of a preset or of a model folder, with fields changed: config("bert-tiny", vocab_size=8000)."""
    return changed_config(_find(name)[1], overrides)


def changed_config(shape: EncoderConfig, overrides: Mapping[str, object]) -> EncoderConfig:
    """A config with fields changed. Raises UsageError that names the preset most like it that can be changed so."""
    try:
        return shape.replace(**overrides)
    except UsageError as error:
        raise UsageError(f"{error}{_nearest(shape, lambda _, preset: preset.replace(**overrides))}") from None


def _nearest(shape: EncoderConfig, can: Callable[[Variant, EncoderConfig], object]) -> str:
    """A sentence that names the preset with the most settings in common for which `can` raises no error, if any."""
    flat = shape.flat()
    presets = [(variant, name, preset) for _, variant in VARIANTS.items() for name, preset in variant.presets.items()]
    presets.sort(key=lambda row: -len(flat.items() & row[2].flat().items()))
    for variant, name, preset in presets:
        with suppress(BertieError):
            can(variant, preset)
            return f" The nearest preset that can: {name}."
    return ""


def build(
    what: str | Path | EncoderConfig, *, heads: "Heads" = None, seed: int = 0, variant: str = "bert", **overrides: Any
) -> "TorchModel":
    """A model with random weights, from a preset, a folder's config.json, or an EncoderConfig of the family `variant`.

    heads: by name, or what makes them from a config. The same seed gives the same encoder, whatever its heads.
    """
    from bertie.models import folder as folders

    chosen, shape = (VARIANTS[variant], what) if isinstance(what, EncoderConfig) else _find(what)
    shape = changed_config(shape, overrides)
    try:
        return folders.build_variant_model(chosen, shape, heads=heads, seed=seed)
    except UnknownHeads as error:
        lacking = error.heads
        able = _nearest(shape, lambda variant, _: variant.architecture(lacking, {}))
        raise UnknownHeads(f"{error}{able}", lacking) from None


def load(
    folder: str | Path,
    *,
    heads: "Heads" = None,
    seed: int = 0,
    fresh_heads: bool = False,
    overrides: Mapping[str, Any] = MappingProxyType({}),
) -> "tuple[TorchModel, LoadReport]":
    """The model in a folder, in evaluation mode, and a report of what was loaded, starts fresh, was not used.

    heads None: those the folder was saved with. fresh_heads: they start fresh, whatever the folder has.
    Raises DataError and UsageError as `models.folder.load` does.
    """
    from bertie.models import folder as folders

    variant = _of_folder(Path(folder), read_public(Path(folder)))
    return folders.load_variant_model(
        variant, Path(folder), heads=heads, seed=seed, fresh_heads=fresh_heads, overrides=overrides
    )
