"""The settings that have a name of their own: an argument in Python, and the option of that name in commands.

Name -> dotted setting. Every other setting is written out: `settings={"optim.eps": 1e-8}`, `optim.eps=1e-8`.
"""

COMMON = {  # of pretrain, finetune and tune
    "lr": "optim.lr",
    "batch_size": "train.batch_size",
    "max_length": "max_length",
    "weight_decay": "optim.weight_decay",
    "warmup": "optim.warmup",
    "seed": "train.seed",
    "device": "train.device",
    "precision": "train.precision",
    "patience": "train.patience",
    "metric": "train.metric",
    "track": "train.track",
}
PRETRAIN = {"model": "model", "steps": "train.steps", **COMMON}
FINETUNE = {
    "task": "task",
    "data": "data",
    "data_dir": "data_dir",
    "text": "text",
    "label": "label",
    "label_names": "label_names",
    "weight": "weight",
    "group": "group",
    "time": "time",
    "tabular": "tabular",
    "markup": "markup",
    "class_weights": "class_weights",
    "sampling": "sampling",
    "loss": "loss",
    "focal_gamma": "focal_gamma",
    "label_smoothing": "label_smoothing",
    "optimize": "optimize",
    "costs": "costs",
    "calibrate": "calibrate",
    "abstain": "abstain",
    "coverage": "coverage",
    "epochs": "epochs",
    "lora": "lora.rank",
    **COMMON,
}
NAMED_SETTINGS = {"pretrain": PRETRAIN, "finetune": FINETUNE}
"""Command -> its settings that have a name."""
