"""`python -m benchmarks`, in the root of a clone."""

from benchmarks.commands import neighbor, plan, reproduce, search, serve, speed, text  # noqa: F401 (they add commands)
from benchmarks.commands.app import bench
from bertie.program import run

if __name__ == "__main__":
    run(bench)
