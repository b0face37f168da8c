"""The size of a model on the disk."""

from pathlib import Path


def weight_bytes(folder: Path) -> int:
    """Returns the bytes of a model folder's weights."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
