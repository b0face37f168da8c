"""The table of commands, and the program made from it. A command is imported when it runs or when its help is shown.

Exit codes: 0 done, 1 failure, 2 usage, 3 data problem, 75 stopped but resumable, 130 Ctrl-C.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core

from bertie.apps.cli.app import Commands
from bertie.apps.cli.parsing import config_of
from bertie.platform import console


@dataclass(frozen=True)
class CommandRow:
    """A command. target: "module:name" of its function, or of a `Commands` with commands below it."""

    name: str
    target: str
    help: str


# fmt: off
GROUPS: dict[str, tuple[CommandRow, ...]] = {
    "Start here": (
        CommandRow("demo", "bertie.apps.demo.command:demo_command", "Run the whole pipeline on sample text, from corpus to report."),
        CommandRow("download", "bertie.apps.transfer.hub:download_command", "Download models of the Hugging Face Hub, for use by name."),
        CommandRow("finetune", "bertie.apps.cli.finetune:finetune_command", "Fine-tune a pre-trained model for a task."),
        CommandRow("predict", "bertie.apps.cli.predict:predict_command", "Predict labels for texts from a file or standard input."),
        CommandRow("evaluate", "bertie.apps.cli.evaluate:evaluate_command", "Evaluate a model on labeled examples."),
        CommandRow("serve", "bertie.apps.serve.commands.serve:serve_command", "Serve models over HTTP, with a page for the browser."),
        CommandRow("help", "bertie.apps.pages.command:help_command", "Show a page of the documentation, or list the pages."),
    ),
    "Data and text": (
        CommandRow("sample", "bertie.apps.sample.command:sample_command", "Write a small table of generated examples."),
        CommandRow("data", "bertie.apps.describe.data:data_command", "List supported data sets, or check downloaded files."),
        CommandRow("corpus", "bertie.apps.cli.corpus:corpus_command", "Build a training corpus: clean, split and deduplicate text files."),
        CommandRow("tokenizer", "bertie.apps.cli.tokenizer:group", "Train and inspect tokenizers."),
        CommandRow("vary", "bertie.apps.vary.command:vary_command", "Augment a text file for distillation: each text plus noisy copies."),
        CommandRow("cloze", "bertie.apps.cloze.command:cloze_command", "Make cloze questions about a corpus, to practice question answering without labels."),
        CommandRow("counterfactual", "bertie.apps.audit.commands.debias:counterfactual_command", "Write texts together with their counterfactual forms, for continued pre-training."),
        CommandRow("submission", "bertie.apps.submission.command:submission_command", "Create or validate a GLUE submission."),
    ),
    "Pre-train and tune": (
        CommandRow("pretrain", "bertie.apps.cli.pretrain:pretrain_command", "Pre-train a model on a corpus."),
        CommandRow("tune", "bertie.apps.cli.tune:tune_command", "Search fine-tuning hyperparameters."),
        CommandRow("plan", "bertie.apps.plan.command:plan_command", "Estimate the cost of a run: operations, memory, time, energy, CO2 and money."),
        CommandRow("vocabulary", "bertie.apps.cli.grow:vocabulary", "Extend or trim the vocabulary of a model."),
    ),
    "Runs": (
        CommandRow("report", "bertie.apps.describe.runs:report_command", "Write the HTML report of a run: RUN/report.html."),
        CommandRow("compare", "bertie.apps.cli.runs:compare_command", "Compare runs: metrics, cost, and the settings that differ."),
        CommandRow("verify", "bertie.apps.describe.runs:verify_command", "Check the integrity of a folder that Bertie wrote."),
        CommandRow("export-checkpoint", "bertie.apps.transfer.checkpoint:export_checkpoint_command", "Write a model folder from a checkpoint of a run."),
    ),
    "Use a model": (
        CommandRow("embed", "bertie.apps.embed.command:embed_command", "Compute sentence embeddings."),
        CommandRow("index", "bertie.apps.search.commands.index:index_command", "Index documents for search, or bring an index up to date."),
        CommandRow("search", "bertie.apps.search.commands.search:search_command", "Search an index: ranked passages, with the answer or the words of the question marked."),
        CommandRow("evaluate-search", "bertie.apps.search.commands.evaluate:evaluate_search_command", "Evaluate a search on questions whose documents are known, stage by stage."),
        CommandRow("negatives", "bertie.apps.search.commands.negatives:negatives_command", "Mine hard negatives: passages that a search ranks high and that do not answer."),
        CommandRow("write", "bertie.apps.pretrained.write:write_command", "Generate text from a text."),
        CommandRow("fill-mask", "bertie.apps.pretrained.fill_mask:fill_mask_command", "Predict masked tokens."),
        CommandRow("detect", "bertie.apps.pretrained.detect:detect_command", "Find words that look wrong in a text."),
        CommandRow("next-sentence", "bertie.apps.pretrained.next_sentence:next_sentence_command", "Predict whether one text follows another."),
        CommandRow("perplexity", "bertie.apps.pretrained.perplexity:perplexity_command", "Compute the perplexity of a language model on texts."),
        CommandRow("drift", "bertie.apps.drift.command:drift_command", "Compare a model's texts and answers in use with its training."),
        CommandRow("reload", "bertie.apps.serve.commands.reload:reload_command", "Load the models of a running server again, and wait for the outcome."),
        CommandRow("switch", "bertie.apps.serve.commands.switch:switch_command", "Send all requests of a running server to one of two versions of a model."),
        CommandRow("upload", "bertie.apps.transfer.hub:upload_command", "Upload a model folder to the Hugging Face Hub, with its tokenizer and card."),
    ),
    "Understand a model": (
        CommandRow("explain", "bertie.apps.explain.commands.explain:explain_command", "Show which words of a text a prediction rests on."),
        CommandRow("attention", "bertie.apps.explain.commands.attention:attention_command", "Show what the heads of a model attend to in a text."),
        CommandRow("heads", "bertie.apps.explain.commands.heads:heads_command", "Measure attention heads over a file: statistics, syntax, importance."),
        CommandRow("probe", "bertie.apps.probe.commands.probe:probe_command", "Measure what each layer knows: parts of speech, syntax, names, word order, sentence length."),
        CommandRow("words", "bertie.apps.probe.commands.words:words_command", "Compare the vectors of a word in several texts, layer by layer."),
        CommandRow("audit", "bertie.apps.audit.commands.audit:audit_command", "Audit a model for preferences between groups of people."),
        CommandRow("trace", "bertie.apps.trace.command:trace_command", "Trace a text through a model, with the shape of every array."),
        CommandRow("info", "bertie.apps.describe.info:info_command", "Show a model's architecture, parameters, memory, operations and tokenizer."),
        CommandRow("families", "bertie.apps.describe.families:families_command", "List supported model architectures, or describe one."),
    ),
    "Change a model": (
        CommandRow("compress", "bertie.apps.compress.command:compress_command", "Make a model smaller and faster."),
        CommandRow("export", "bertie.apps.export.command:export_command", "Export a model as an ONNX graph."),
        CommandRow("convert", "bertie.apps.transfer.convert:convert_command", "Rewrite a model folder with the current weight names."),
        CommandRow("grow", "bertie.apps.cli.grow:grow_command", "Add layers, width or positions to a model."),
        CommandRow("shrink", "bertie.apps.cli.grow:shrink_command", "Initialize a smaller student model from a model's layers."),
        CommandRow("debias", "bertie.apps.audit.commands.debias:debias_command", "Remove a concept, such as gender, from the vectors of a model."),
    ),
}
# fmt: on
"""Heading of --help -> its commands, in the order of the list."""
COMMAND_ROWS = {row.name: row for rows in GROUPS.values() for row in rows}


@cache
def list_groups() -> Mapping[str, tuple[CommandRow, ...]]:
    """Returns GROUPS, and the commands of installed packages below a heading of their own."""
    from importlib.metadata import entry_points

    more = [
        CommandRow(one.name, one.value, f"Of the package {one.dist.name}." if one.dist else "")
        for one in entry_points(group="bertie.commands")
    ]
    more = [row for row in more if row.name not in COMMAND_ROWS]  # a name that exists keeps its meaning
    return {**GROUPS, "Of installed packages": tuple(more)} if more else GROUPS


def rows() -> dict[str, CommandRow]:
    """Returns all commands by name."""
    return {row.name: row for rows in list_groups().values() for row in rows}


FIRST_STEPS = """\
Bertie trains and uses BERT-style models, from raw text to predictions. Three commands to begin with:

  bertie finetune starter-en --train reviews.csv -o runs/reviews    train on a table with a text and a label column
  bertie predict runs/reviews/model new.txt                         label new texts
  bertie serve runs/reviews/model                                   answer over HTTP, with a page to try it

bertie --help lists all commands, and bertie COMMAND --help explains one."""


@cache
def load_command(row: CommandRow) -> Any:
    """Returns the click command of a row."""
    module, _, name = row.target.partition(":")
    target = getattr(import_module(module), name)
    if not isinstance(target, Commands):
        command, target = target, Commands()
        target.command(row.name)(command)
    loaded = typer.main.get_command(target)
    loaded.name = row.name
    return loaded


class _Table(Mapping[str, object]):
    """Name -> click command, imported when it is asked for."""

    def __getitem__(self, name: str) -> object:
        return load_command(COMMAND_ROWS.get(name) or rows()[name])

    def __iter__(self) -> Iterator[str]:
        return iter(rows())

    def __len__(self) -> int:
        return len(rows())


class _Root(typer.core.TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Table()  # type: ignore[assignment]  # click asks for names and items alone

    def format_commands(self, ctx: object, formatter: Any) -> None:
        """Writes the commands below the headings of GROUPS."""
        width = max(map(len, rows()))
        for heading, commands in list_groups().items():
            with formatter.section(heading):
                formatter.write_dl([(row.name.ljust(width), row.help) for row in commands])

    def list_commands(self, ctx: object) -> list[str]:
        return list(rows())

    def invoke(self, ctx: Any) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # typer would exit without a word
            console.stderr().print("interrupted", style="yellow")
            raise typer.Exit(130) from None
        except Exception as error:
            _add_how_to_pass_settings(error)
            raise


def _add_how_to_pass_settings(error: Any) -> None:
    """Adds to an error about an unknown option the setting that other programs call so: --learning-rate is --optim.lr.

    By the version of typer, the class of the error is click's or typer's own, so it is recognized by its fields.
    """
    name, ctx = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if name and ctx and "overrides" in {one.name for one in ctx.command.params}:
        key = name.lstrip("-").replace("-", "_")
        kind = config_of(ctx.command.name)
        if key in kind.options:
            error.message += f". {kind.passed_as(key)}"
            return
        if key in kind.also_called:
            error.message += f". The setting is --{kind.also_called[key].replace('_', '-')} VALUE."


app = Commands(
    name="bertie",
    cls=_Root,
    help="Train and use BERT-style models, from raw text to predictions.",
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"bertie {version('bertie')}")
        raise typer.Exit


@app.callback()
def _root(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if ctx.invoked_subcommand is None:
        print(FIRST_STEPS)
