"""The list of commands: importing a file here adds its commands to the app, in this order."""

from bertie.cli import tokenizer

__all__ = ["tokenizer"]
