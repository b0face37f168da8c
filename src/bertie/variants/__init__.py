"""The family: one file per model, presets and weight table; load and save of model folders."""
