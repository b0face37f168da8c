"""The program `bertie`, and `python -m bertie`."""

import sys


def main() -> None:
    """Runs the command line. Ctrl-C during its imports ends the program without a traceback, as it does later."""
    try:
        from bertie.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
