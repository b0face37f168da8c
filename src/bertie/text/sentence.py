"""The file of `sentence-transformers` next to a tokenizer: the longest text, and whether letters are made lowercase."""

from pathlib import Path

LENGTH_KEYS = tuple(  # in the order in which `sentence-transformers` looks for them; it writes the first
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)


def length_file(folder: Path) -> Path:
    """Returns the path of the file in a folder; that of the usual name where there is none."""
    return next((folder / name for name in LENGTH_KEYS if (folder / name).is_file()), folder / LENGTH_KEYS[0])
