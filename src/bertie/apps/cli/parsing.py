"""`Command`: the parsing and the help of a command: settings as options, and options below headings.

Any setting of a run can be written as an option too: --optim.weight-decay 0.1 is optim.weight_decay=0.1.
"""

from typing import Any

import typer.core

import bertie

PANELS = {
    "Data": "train dev data data-dir split task text label label-names label-separator weight group time tabular "
    "markup columns "
    "encoding format features corpus tokenizer",
    "Training": "model epochs steps lr batch-size max-length seed device precision patience metric config weight-decay "
    "warmup lora class-weights sampling loss focal-gamma label-smoothing positive optimize costs calibrate abstain "
    "coverage",
    "Model": "too-long head pattern words demonstrations shots calibrate-prompt threshold engine ensemble prompt "
    "prefix pooling truncate-dim normalize",
    "Run": "resume dry-run trial track",
    "Output": "output only-answers excel output-encoding overwrite report card json quiet verbose help",
}
"""Heading -> the options of several commands, in the order of the help: what most people change comes first.

An option of one command names its heading by `rich_help_panel`, and comes last there."""
PLACES = {name: place for place, name in enumerate(" ".join(PANELS.values()).split())}
MAX_UNGROUPED_OPTIONS = 12  # options that a reader takes in without headings


class Command(typer.core.TyperCommand):
    """A command whose help has headings, and whose `overrides` can be written as options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses arguments, after options that are settings were rewritten as KEY=VALUE."""
        settings = {one.name for one in self.params} >= {"overrides", "config"}
        return super().parse_args(ctx, self._with_settings(ctx, args) if settings else args)

    def _with_settings(self, ctx: Any, args: list[str]) -> list[str]:
        declared = {name for one in self.get_params(ctx) for name in (*one.opts, *one.secondary_opts)}
        options, overrides, rest = list[str](), list[str](), iter(args)
        for word in rest:
            name, equals, value = word.partition("=")
            if word == "--":
                return [*options, *overrides, word, *rest]
            if not name.startswith("--") or name in declared or not self._is_setting(key := _key(name)):
                options.append(word)
                continue
            value = value if equals else next(rest, "--")
            if value.startswith("--"):
                ctx.fail(f"{name} needs a value: {name} VALUE.")
            overrides.append(f"{key}={value}")
        return [*options, *overrides]

    def _is_setting(self, key: str) -> bool:
        return "." in key or key in config_of(self.name).model_fields

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the arguments, and the options below their headings."""
        arguments, panels = list[tuple[str, str]](), dict[str, list[tuple[str, str]]]()
        parameters = self.get_params(ctx)
        trains = any(one.name in ("train", "corpus") for one in parameters)
        names = {one: max(one.opts, key=len).lstrip("-") for one in parameters}
        for one in sorted(parameters, key=lambda one: PLACES.get(names[one], len(PLACES))):
            if (record := one.get_help_record(ctx)) is None:
                continue
            if one.param_type_name == "argument":
                arguments.append(record)
            else:
                panel = getattr(one, "rich_help_panel", None) or _panel(names[one], trains=trains)
                panels.setdefault(panel if len(parameters) > MAX_UNGROUPED_OPTIONS else "Options", []).append(record)
        order = {name: number for number, name in enumerate(PANELS)}
        sections = sorted(panels.items(), key=lambda one: order.get(one[0], -1))
        for heading, records in [("Arguments", arguments), *sections]:
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def config_of(command: str | None) -> "type[bertie.FinetuneConfig | bertie.PretrainConfig]":
    """Returns the class of the settings of a command that trains."""
    return bertie.PretrainConfig if command == "pretrain" else bertie.FinetuneConfig


def _key(option: str) -> str:
    """--optim.weight-decay -> optim.weight_decay."""
    return option.removeprefix("--").replace("-", "_")


def _panel(name: str, *, trains: bool) -> str:
    """Returns the heading of an option. trains: whether the command trains, rather than uses a model."""
    heading = next((heading for heading, names in PANELS.items() if name in names.split()), "Options")
    return "Model" if heading == "Training" and not trains else heading
