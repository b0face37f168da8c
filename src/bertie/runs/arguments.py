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
_OF_LABELS = (  # settings that are named as their arguments
    *("task", "data", "data_dir", "text", "label", "label_names", "weight", "group", "time", "tabular", "markup"),
    *("class_weights", "sampling", "loss", "focal_gamma", "label_smoothing"),
    *("optimize", "costs", "calibrate", "abstain", "coverage", "epochs"),
)
FINETUNE = {**{name: name for name in _OF_LABELS}, "lora": "lora.rank", **COMMON}
NAMED_SETTINGS = {"pretrain": PRETRAIN, "finetune": FINETUNE}
"""Command -> its settings that have a name."""
