"""The list of commands: importing a file here adds its commands to the app, in this order."""

from bertie.cli import corpus, tokenizer, pretrain, finetune, evaluate, predict, fill_mask, info, demo  # noqa: I001 (the order of --help)

__all__ = ["corpus", "demo", "evaluate", "fill_mask", "finetune", "info", "predict", "pretrain", "tokenizer"]
