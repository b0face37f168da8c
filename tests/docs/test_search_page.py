"""The commands and the Python of docs/search.md run as they are printed, beside a copy of the documentation."""

import shutil
import sqlite3
from pathlib import Path

from test_readme import ROOT, run


def test_the_page_about_search_runs(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for page in ("promises.md", "change-a-model.md", "serving.md", "runs.md"):
        shutil.copy(ROOT / "docs" / page, tmp_path / "docs" / page)
    run("docs/search.md", tmp_path)
    for folder, least in (("index", 3), ("packages", 50)):
        with sqlite3.connect(tmp_path / folder / "index.sqlite") as db:
            assert db.execute("SELECT count(*) FROM documents").fetchone()[0] >= least
