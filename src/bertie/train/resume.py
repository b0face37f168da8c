"""Resuming a run, and the check that its settings are the same.

The fingerprint of a run (`identity`) is a flat table: every setting by its dotted key, and the hashes of its inputs. It
is saved with each checkpoint. A run with another fingerprint is not resumed.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import xxhash

from bertie.errors import OtherSettings, OutputExists, UnknownName, UsageError, nearest
from bertie.settings import flatten
from bertie.train import checkpoint, log
from bertie.train.checkpoint import Checkpoint

# Settings that change no number a run computes, or (shard) no more of it than the last digit.
FREE_SETTINGS = frozenset(
    f"train.{key}"
    for key in ("keep", "keep_checkpoints", "workers", "save_every", "eval_every", "log_every", "track", "shard")
) | {"corpora", "baselines", "label_check"}  # where corpora are, as what they hold, and their shares, is under "corpus"


def is_free(key: str, identity: Mapping[str, object]) -> bool:
    """Returns whether a setting may change when a run is resumed, since it changes no result."""
    looks = identity.get("select") == "best" or identity.get("train.patience") is not None
    return key in FREE_SETTINGS and not (key == "train.eval_every" and looks)


def find_checkpoint(run: Path, resume: str) -> Checkpoint | None:
    """Returns the checkpoint to resume from: the newest intact one (auto), none (never), or the one in the folder
    `resume`.

    A checkpoint of another run starts a new run with its history, and the same call resumes that run when it was
    stopped. Raises UsageError when this would mix two runs in one folder, or `check_resume` does; DataError for damaged
    checkpoints.
    """
    check_resume(resume)
    newest = None if resume == "never" else checkpoint.latest(run)
    if resume == "auto":
        return newest
    if resume == "never":
        if any(run.glob("checkpoint-*")) or (run / log.METRICS).exists():
            raise OutputExists(
                f"{run} contains a run. Choose another folder, resume it (--resume auto), or replace it (--overwrite)."
            )
        return None
    chosen = checkpoint.verify_checkpoint(Path(resume))
    if chosen.belongs_to(run):
        if newest is not None and newest.step > chosen.step:
            raise OutputExists(
                f"{run} has the later {newest.folder.name}. Resuming from {chosen.folder.name} there would "
                f"mix two runs. Use another folder: -o NEW --resume {chosen.folder}"
            )
    elif newest is not None:
        if not _has_history(run, chosen):
            raise OutputExists(f"{run} has its own checkpoints. Choose another folder, or --resume auto.")
        return newest
    return chosen


def _has_history(run: Path, start: Checkpoint) -> bool:
    """Returns whether the metrics of a run begin with those of the checkpoint `start`, times included."""
    position, path = start.state["metrics_bytes"], run / log.METRICS
    before = path.read_bytes()[:position] if path.exists() else b""
    return bool(xxhash.xxh3_128_hexdigest(before) == start.state["metrics_xxh3_128"])


def check_resume(resume: str) -> None:
    """Raises UsageError for what is neither auto, never nor a folder."""
    if resume not in ("auto", "never") and not Path(resume).is_dir():
        raise UsageError(f"--resume {resume}: there is no such folder. Pass auto, never, or RUN/checkpoint-N.")


def check_identity(
    saved: Checkpoint,
    identity: Mapping[str, object],
    allow_change: Collection[str] | None = (),
) -> None:
    """Raises UsageError with the differences unless the fingerprints are equal except for the keys in `allow_change`.

    "optim" allows all of optim's keys. An unknown key in `allow_change` is a UsageError too. None is for a command
    without --allow-change.
    """
    before = saved.state["identity"]
    for key in allow_change or ():
        if not any(_covers(key, known) for known in identity.keys() | before.keys()):
            raise UnknownName(f"--allow-change {key}: there is no such setting. {nearest(key, identity)}")
    if changed := changes(before, identity, allow_change or ()):
        raise OtherSettings(
            f"{saved.folder} belongs to a run with other settings or data:{change_lines(changed)}\n"
            + ways_on(changed, allow_change, "Choose another folder", "restore what changed")
        )


def check_unchanged(
    folder: Path,
    what: str,
    before: Mapping[str, object],
    now: Mapping[str, object],
    allow_change: Collection[str] | None = None,
) -> None:
    """Raises UsageError with the differences where a folder has results of other settings or data. what: "an audit"."""
    if changed := changes(flatten(before), flatten(now), allow_change or ()):
        raise OtherSettings(
            f"{folder} contains {what} with other settings or data:{change_lines(changed)}\n"
            + ways_on(changed, allow_change, "Choose another folder", "pass --overwrite")
        )


def change_lines(changed: Mapping[str, str]) -> str:
    """Returns what `changes` found, one line each."""
    return "".join(f"\n  {row}" for row in changed.values())


def ways_on(changed: Collection[str], allow_change: Collection[str] | None, *ways: str) -> str:
    """Returns the advice of an error: the ways on, and --allow-change where the command has it."""
    if allow_change is not None:
        options = " ".join(f"--allow-change {key}" for key in changed)
        return f"{', '.join(ways)}, or continue with the change: {options}"
    return f"{', '.join(ways[:-1])} or {ways[-1]}."


def changes(before: Mapping[str, object], now: Mapping[str, object], allowed: Collection[str] = ()) -> dict[str, str]:
    """Returns "key: before -> now" for keys that matter, are not allowed to differ, and do."""
    return {
        key: f"{key}: {before.get(key)} -> {now.get(key)}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and not is_free(key, now) and not any(_covers(part, key) for part in allowed)
    }


def _covers(allowed: str, key: str) -> bool:
    return key == allowed or key.startswith(allowed + ".")
