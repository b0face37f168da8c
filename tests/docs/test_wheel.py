"""A wheel of the checkout, installed where the source is not, has everything: command, recipes, types, version."""

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_wheel_in_an_empty_environment_works(tmp_path: Path):
    """Its dependencies are those of the running environment, which only a .pth file shares: PyTorch is large."""

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: object) -> str:
        done = subprocess.run(
            list(map(str, command)), cwd=tmp_path, env=environment,
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", ROOT, "--no-deps", "--quiet", "--wheel-dir", "dist")
    (wheel,) = (tmp_path / "dist").glob("bertie-*.whl")
    venv.create(tmp_path / "empty", with_pip=False)
    python = tmp_path / "empty" / "bin" / "python"
    run(*pip, "--python", python, "install", "--quiet", "--no-deps", wheel)
    (site,) = (tmp_path / "empty" / "lib").glob("python*/site-packages")
    # An .egg-link or a .pth of an editable checkout is not followed from here, so bertie can only be the wheel's.
    shared = next(path for path in map(Path, sys.path) if (path / "torch").is_dir())
    (site / "shared.pth").write_text(f"{shared}\n")

    bertie = tmp_path / "empty" / "bin" / "bertie"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run(bertie, "--version").strip() == f"bertie {version}"
    assert Path(run(python, "-c", "import bertie; print(bertie.__file__)").strip()).is_relative_to(site)
    run(bertie, "sample", "reviews", "-o", "reviews.csv")
    run(bertie, "corpus", "reviews.csv", "-o", "corpus")
    run(bertie, "tokenizer", "train", "corpus", "-o", "tokenizer", "--size", "300")
    plan = ("--corpus", "corpus", "--tokenizer", "tokenizer", "-o", "run", "--dry-run", "train.batch_size=8")
    run(bertie, "pretrain", "-c", "pretrain-ten-minutes", *plan)  # the recipes are in the wheel
    assert (site / "bertie" / "py.typed").exists()
