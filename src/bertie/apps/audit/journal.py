"""OUT/scores.jsonl: the scores of an audit as they are computed, from which a stopped audit resumes."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bertie.apps.audit.base import Score
from bertie.platform import File, console


class Journal:
    """Scores by name, in chunks, one per line. path: the file; None: nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._done: dict[tuple[str, int], list[Score]] = {}
        for row in File(path).read_journal() if path else ():
            self._done[row["name"], row["first"]] = row["scores"]

    def scores(
        self, name: str, items: Sequence[Any], compute: Callable[[Sequence[Any]], list[Score]], size: int, unit: str
    ) -> list[Score]:
        """Returns one score for each item, computed in chunks of `size`. Chunks of an earlier call are read."""
        scores, first = list[Score](), 0
        done = sum(len(part) for (known, _), part in self._done.items() if known == name)
        with console.progress(name, len(items), done=done, unit=unit) as advance:
            for chunk in (items[start : start + size] for start in range(0, len(items), size)):
                part = self._done.get((name, first))
                if part is None:
                    part = compute(chunk)
                    self._write(name, first, part)
                    advance(len(chunk))
                scores += part
                first += len(chunk)
        return scores

    def _write(self, name: str, first: int, scores: list[Score]) -> None:
        if self.path is None:
            return
        line = json.dumps({"name": name, "first": first, "scores": scores}, ensure_ascii=False)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
