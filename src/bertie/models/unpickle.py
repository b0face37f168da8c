"""python -m bertie.models.unpickle IN.bin OUT.safetensors: the numbers of a pickle, and nothing else of it.

The one place that opens a pickle, in a process of its own: `weights_only` lets it build tensors and plain containers
and refuses whatever else a pickle may ask for. `bertie convert --unsafe` starts it.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor


def main(source: Path, out: Path) -> None:
    """Read `source` and write its tensors. Exits with a message that says why when it is not a dictionary of them."""
    try:
        state = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # the ways a file can be wrong are many; all of them end this process alone
        sys.exit(f"it contains more than weights ({str(error).splitlines()[0]})")
    tensors = dict(state) if isinstance(state, dict) else {}
    if not tensors or not all(isinstance(n, str) and isinstance(t, Tensor) for n, t in tensors.items()):
        sys.exit("it is not a dictionary of names and tensors")
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
