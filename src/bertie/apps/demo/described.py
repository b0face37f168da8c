"""The description of a demo run for its page: the text, the settings, the machine, the versions."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch

from bertie.apps.demo import settings


def describe_run(text: str | None) -> dict[str, object]:
    """Returns the description of a run: the text, the settings, the machine, the versions."""
    packages = ("bertie", "torch", "tokenizers", "numpy", "scikit-learn")
    return {
        "about": "the documentation inside installed Python packages" if text is None else text,
        "settings": settings.describe_settings(),
        "machine": {
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "processor": processor(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "versions": {"Python": platform.python_version(), **{name: version(name) for name in packages}},
    }


def processor() -> str:
    """Returns the processor's name, where the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
