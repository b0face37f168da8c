"""Small runs end where they did when their curves were kept (tests/golden/curves.py)."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "golden"))

from curves import RUNS, TOLERANCE, curve, kept


@pytest.mark.skipif(torch.__version__ < (2, 12), reason="PyTorch draws other first weights before 2.12")
@pytest.mark.parametrize("name", RUNS)
def test_losses_are_those_that_were_kept(name: str) -> None:
    found, expected = curve(name), kept(name)
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key] == pytest.approx(values, rel=TOLERANCE), key
