"""The command line of Bertie: see app.py for the conventions, and one file per command group."""

from bertie.cli.app import main

__all__ = ["main"]
