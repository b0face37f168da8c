"""The list of commands: importing a file here adds its commands to the app, in this order."""

from bertie.cli import (  # noqa: I001 (the order of --help)
    corpus,
    tokenizer,
    pretrain,
    runs,
    data,
    finetune,
    evaluate,
    predict,
    submission,
    fill_mask,
    info,
    families,
    convert,
    grow,
    demo,
    bench,
)

__all__ = [
    "bench",
    "convert",
    "corpus",
    "data",
    "demo",
    "evaluate",
    "families",
    "fill_mask",
    "finetune",
    "grow",
    "info",
    "predict",
    "pretrain",
    "runs",
    "submission",
    "tokenizer",
]
