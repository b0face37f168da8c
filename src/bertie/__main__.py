"""The program `bertie`, and `python -m bertie`."""

import signal
import sys


def main() -> None:
    """Runs the command line. Ctrl-C during its imports ends the program without a traceback, as it does later.

    SIGHUP tells a server to load its models again. Before it has loaded them, there is nothing to do.
    """
    if sys.argv[1:2] == ["serve"]:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        from bertie.program import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
