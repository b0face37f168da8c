"""The files of a run folder that others read too: where its model is."""

from pathlib import Path

MODEL, OUTLINE, CONFIG, SETTINGS = "model", "outline", "config.json", "run.yaml"
BEST, SCORE = "best", "score.json"


def is_checkpoint(folder: Path) -> bool:
    """Returns whether a folder is a checkpoint of a run."""
    return folder.resolve().name.startswith("checkpoint-") and (folder / "manifest.json").is_file()
