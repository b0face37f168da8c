"""Files beside a model that change its answers in other programs and are not read here: refused by name.

    adapter_config.json       an adapter of peft (LoRA and others), which `transformers` applies when it opens it
    config.json, "adapters"   an adapter of the library `adapters`
    generation_config.json    settings of generation, of a model that generates text

Custom code (auto_map) is refused with config.json, unknown modules of sentence-transformers with modules.json. Imports
no torch.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from bertie.errors import DataError
from bertie.files import read_json

ADAPTER, GENERATION = "adapter_config.json", "generation_config.json"
ADAPTERS = (ADAPTER, "adapter_model.safetensors", "adapter_model.bin", "pytorch_adapter.bin")
NEUTRAL: Mapping[str, tuple[object, ...]] = {  # settings that change a greedy answer -> the values that do not
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "do_sample": (False,),
    "repetition_penalty": (1, 1.0),
    "encoder_repetition_penalty": (1, 1.0),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "bad_words_ids": ([],),
    "force_words_ids": ([],),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "sequence_bias": ({},),
    "exponential_decay_length_penalty": (),
    "guidance_scale": (1, 1.0),
}
_IDS = ("eos_token_id", "pad_token_id", "decoder_start_token_id")


def check_adapter(folder: Path) -> None:
    """Raises DataError for a folder with an adapter, alone or beside a model."""
    name = next((name for name in ADAPTERS if (folder / name).is_file()), "")
    if not name:
        return
    adapter = read_json(folder / ADAPTER) if (folder / ADAPTER).is_file() else {}
    base = adapter.get("base_model_name_or_path") if isinstance(adapter, dict) else None
    raise refused_adapter(str(folder), name, str(base or "")[:200], alone=not (folder / "config.json").is_file())


def base_of(folder: Path, find: Callable[[str], Path]) -> Path:
    """Returns the folder of the base that an adapter names. find: the folder of a model by its name.

    Raises DataError where it is not here.
    """
    public = read_json(folder / ADAPTER)
    base = str(public.get("base_model_name_or_path") or "") if isinstance(public, dict) else ""
    place = find(base) if base else Path()
    if not base or not (place / "config.json").is_file():
        raise DataError(
            f"{folder} is an adapter of {base or 'a model that it does not name'!r}, which is not here. Pass its base: "
            f"bertie convert BASE --adapter {folder} -o NEW."
        )
    return place


def refused_adapter(where: str, name: str, base: str = "", *, alone: bool) -> DataError:
    """Returns the error about an adapter. where: its folder or repository; name: its file; base: the model it is of."""
    of = f" of {base!r}" if base else ""
    why = f"{where} is an adapter{of} without its model" if alone else f"{where} has an adapter{of} beside the model"
    return DataError(
        f"{why} ({name}). Adapters are not read: the answers would be those of the model without it. Merge it into the "
        "model with peft, and use that folder: PeftModel.from_pretrained(model, "
        f"{where!r}).merge_and_unload().save_pretrained(NEW)."
    )


def check_own_adapters(public: Mapping[str, object], where: str) -> None:
    """Raises DataError for a config.json with adapters of the library `adapters`."""
    adapters = public.get("adapters")
    if isinstance(adapters, dict) and adapters.get("adapters"):
        raise DataError(
            f"{where} names adapters of the library adapters, which are not read. Merge one into the model there: "
            "model.merge_adapter(NAME), and save it without adapters."
        )


def check_generation(folder: Path, public: Mapping[str, object]) -> None:
    """Raises DataError where a folder's settings of generation would change the answers of a model. public: its
    config.json."""
    if not (folder / GENERATION).is_file():
        return
    settings = read_json(folder / GENERATION)
    if not isinstance(settings, dict):
        raise DataError(f"{folder / GENERATION} holds a {type(settings).__name__}; an object of settings was expected.")
    odd = [
        name for name, neutral in NEUTRAL.items() if settings.get(name) is not None and settings[name] not in neutral
    ]
    odd += [
        name for name in _IDS if None not in (settings.get(name), public.get(name)) and settings[name] != public[name]
    ]
    if odd:
        shown = ", ".join(f"{name}={str(settings[name])[:40]}" for name in odd[:5])
        raise DataError(
            f"{folder / GENERATION} sets {shown}, which is not read. Remove the file, and pass what you need as "
            "options of bertie write, such as --beams 4."
        )
