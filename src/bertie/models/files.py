"""The files of a model folder. Imports no torch.

config.json, model.safetensors     written last (models/saving.py)
1_Pooling, modules.json ...        of sentence-transformers (models/sentence.py)
"""

import shutil
from pathlib import Path

import xxhash

from bertie.errors import DataError, MissingFile, cache_hint
from bertie.files import check_readable, file_hash, read_json
from bertie.folders import ANYTHING, FolderKind
from bertie.models.sentence import module_folders
from bertie.models.variant import CONFIG, read_public
from bertie.text.formats import LENGTH_KEYS
from bertie.text.vocabulary import TOKENIZER_FOLDER
from bertie.training_facts import FILE, TRAFFIC

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"  # names the shard of every weight, where there are several files
FOREIGN = {  # formats we do not open, and why
    "pytorch_model.bin": "is a pickle, which can run code when it is opened",
    "pytorch_model.bin.index.json": "names pickles, which can run code when they are opened",
    "tf_model.h5": "is TensorFlow's",
    "flax_model.msgpack": "is Flax's",
}

MODEL_FOLDER = FolderKind(
    "model",
    begins=(WEIGHTS, WEIGHTS_INDEX),
    files=(
        *(CONFIG, WEIGHTS, WEIGHTS_INDEX, "model-*.safetensors", "README.md", FILE, TRAFFIC),
        *("modules.json", "sentence_*_config.json", "config_sentence_transformers.json", "score.json"),
        *TOKENIZER_FOLDER.files,
    ),
    folders={
        "1_Pooling": FolderKind("pooling", ("",), ("config.json",)),
        "2_Dense": FolderKind("dense", ("",), (CONFIG, WEIGHTS)),
        **dict.fromkeys(("2_Normalize", "3_Normalize"), ANYTHING),
        "onnx": ANYTHING,
        "adapter": ANYTHING,
    },
    use="bertie info {}",
)

BESIDE = ("modules.json", *LENGTH_KEYS, "config_sentence_transformers.json")
"""What sentence-transformers reads next to a model."""


def has_weights(folder: Path) -> bool:
    """Returns whether a folder contains weights in safetensors format."""
    return (folder / WEIGHTS).is_file() or (folder / WEIGHTS_INDEX).is_file()


def weight_files(folder: Path) -> list[Path]:
    """Returns the weight files of a folder.

    Raises DataError when there are none in safetensors format, and for one that may not be read.
    """
    files = _weight_files(folder)
    for path in files:
        check_readable(path)
    return files


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / WEIGHTS_INDEX).is_file():
        index = read_json(folder / WEIGHTS_INDEX)
        shards = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(shards, dict) or not shards or not all(isinstance(name, str) for name in shards.values()):
            raise DataError(f"{folder / WEIGHTS_INDEX} has no weight_map from weight names to file names.")
        names = sorted(set(shards.values()))
        if any(Path(name).name != name for name in names):
            raise DataError(f"{folder / WEIGHTS_INDEX} names files outside its folder: {', '.join(names)}.")
        return [folder / name for name in names]
    for name, reason in FOREIGN.items():
        if (folder / name).exists():
            raise DataError(f"{folder / name} {reason}. Bertie does not open it. {_way_out(folder, name)}")
    if is_export(folder):
        raise DataError(
            f"{folder} is an ONNX export and has no {WEIGHTS}. Pass the model folder that the export was made from."
        )
    raise MissingFile(f"{folder} has no {WEIGHTS}. Check that it is a model folder.{cache_hint(folder)}")


def is_export(folder: Path) -> bool:
    """Returns whether a folder has ONNX graphs and no weights."""
    return (folder / "onnx").is_dir() and not any(
        (folder / name).exists() for name in (WEIGHTS, WEIGHTS_INDEX, *FOREIGN)
    )


def _way_out(folder: Path, name: str) -> str:
    if name.startswith("pytorch_model"):
        return f"If you trust the file, convert it once; only numbers are read: bertie convert --unsafe {folder} -o NEW"
    way = 'transformers.AutoModel.from_pretrained("...").save_pretrained("...")'
    return f"If you trust the file, convert it to {WEIGHTS} on another machine: {way}."


def copy_other_files(source: Path, target: Path) -> None:
    """Copies the files of sentence-transformers: the list of modules, and the settings and weights of each.

    And what is known of the training's texts, which bertie drift compares with.
    """
    folders = (path for path in module_folders(source) if path != source)
    modules = [f"{path.name}/{name}" for path in folders for name in (CONFIG, WEIGHTS)]
    for name in (*BESIDE, TRAFFIC, *modules):
        if (source / name).is_file():
            (target / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(source / name, target / name)


def hash_model_folder(folder: Path) -> str:
    """Returns a hash of the weights and the config of a folder. Raises DataError where there are none."""
    read_public(folder)
    return xxhash.xxh3_128_hexdigest(" ".join(map(file_hash, [folder / CONFIG, *weight_files(folder)])).encode())
