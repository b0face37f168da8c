"""python -m bertie.models.unpickle IN.bin OUT.safetensors: converts the numbers of a pickle.

This is the only place that opens a pickle, in a separate process. `weights_only` accepts tensors and plain containers
and refuses everything else. `bertie convert --unsafe` starts it.
"""

import re
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor


def convert_pickle(source: Path, out: Path) -> None:
    """Reads `source` and writes its tensors. Exits with a message when it is not a dictionary of tensors."""
    try:
        state = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # the ways a file can be wrong are many; all of them end this process alone
        # Torch's message advises to open the file anyway; of it, only the name of what the file calls is of use
        if name := re.search(r"(?:GLOBAL|class) ([\w.]{1,100})", str(error)):
            sys.exit(f"it contains more than weights: {name[1]}, which can run code")
        sys.exit("it is damaged, or contains more than weights")
    tensors = dict(state) if isinstance(state, dict) else {}
    if not tensors or not all(isinstance(n, str) and isinstance(t, Tensor) for n, t in tensors.items()):
        sys.exit("it is not a dictionary of names and tensors")
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, out)


if __name__ == "__main__":
    convert_pickle(Path(sys.argv[1]), Path(sys.argv[2]))
