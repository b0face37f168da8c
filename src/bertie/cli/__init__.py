"""The command line of Bertie: see app.py for the conventions, and one file per command group."""

from bertie.cli.commands import main

__all__ = ["main"]
