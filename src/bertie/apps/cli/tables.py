"""Options for tables of examples, shared by finetune, evaluate and predict."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from bertie import platform
from bertie.platform import UsageError

TextFile = Annotated[str, typer.Argument(help="Texts: csv, tsv, xlsx, jsonl, parquet, txt (one per line); - is stdin.")]
TextColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--text", help="Column of the text, or a template: '{title}. {body}'; twice for a pair. Default: recognized."
    ),
]
LabelColumn = Annotated[str, typer.Option("--label", help="Column of the label. Default: recognized.")]
LabelNamesOption = Annotated[
    str, typer.Option("--label-names", help="Names for the labels of the file: 0=negative,1=positive.")
]
ColumnNames = Annotated[
    str, typer.Option("--columns", help="Column names of a file without a header line: source,label,text.")
]
EncodingOption = Annotated[str, typer.Option("--encoding", help="Text encoding of the files: utf-8, cp949 ...")]
FormatOption = Annotated[
    str, typer.Option("--format", help="csv, tsv, xlsx, jsonl, parquet or lines. Default: inferred from the file.")
]
LabelSeparator = Annotated[
    str, typer.Option("--label-separator", help="What separates several labels in a cell. Default: as in training.")
]
WeightColumn = Annotated[
    str, typer.Option("--weight", help="Column of the weight of a row in the metrics. Default: all weigh 1.")
]
OnlyAnswers = Annotated[
    bool, typer.Option("--only-answers", help="Omit the input columns: write only line, id and result.")
]
Excel = Annotated[bool, typer.Option("--excel", help="Write .csv or .tsv for Excel: UTF-8 with a byte order mark.")]
OutputEncoding = Annotated[str, typer.Option("--output-encoding", help="Text encoding of the output: utf-8, cp949 ...")]
TrafficLog = Annotated[
    Path | None,
    typer.Option(
        "--log", help="File to add counts of texts and answers to, for bertie drift.", rich_help_panel="Output"
    ),
]
DataSet = Annotated[str, typer.Option("--data", help="Published data set: sst2, mrpc, nsmc ... (with --data-dir).")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder with the published files of --data.")]
MaxLength = Annotated[
    int | None, typer.Option("--max-length", help="Maximum tokens per text. Default: as in training.")
]
Pattern = Annotated[
    str,
    typer.Option(
        "--pattern", help="Classify by a language model: text with [MASK], after each input or with {} for it."
    ),
]
HeadOption = Annotated[str, typer.Option("--head", help="Name of a task, of a model of several tasks. Default: all.")]
WordsOption = Annotated[str, typer.Option("--words", help="With --pattern, a word per label: good=great,bad=terrible.")]
Demonstrations = Annotated[
    str,
    typer.Option("--demonstrations", help="With --pattern, labeled examples that a causal model (GPT) reads first."),
]
Shots = Annotated[
    int | None, typer.Option("--shots", min=0, help="Demonstrations of each label, drawn from the file. Default: all.")
]
CalibratePrompt = Annotated[
    bool, typer.Option("--calibrate-prompt", help="With --pattern, subtract what the model says to an empty text.")
]
Threshold = Annotated[
    float | None,
    typer.Option("--threshold", help="Probability from which on a label is predicted. Default: as chosen in training."),
]
Abstain = Annotated[
    float | None,
    typer.Option(
        "--abstain", help="Probability below which a row gets no label, but a reason. Default: as in training."
    ),
]
TooLongOption = Annotated[
    str | None,
    typer.Option("--too-long", help="Handling of longer texts: truncate, window or error. Default: as in training."),
]
EnsembleModels = Annotated[
    list[Path] | None,
    typer.Option("--ensemble", metavar="MODEL", help="Another model: the mean of the logits decides. Repeatable."),
]
PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision", help="fp32; bf16 (may change the third digit); auto: bf16 where it is faster on this machine."
    ),
]
EngineOption = Annotated[
    str, typer.Option("--engine", help="On a CPU: native (C++), torch, or auto: the one measured faster here.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", help="cpu, cuda, cuda:1 or mps; auto: the fastest available device.")
]


def resolved(model: Path | str | None) -> Path | str | None:
    """Returns the model folder that an argument names, which may be a run or a checkpoint. Presets are returned
    unchanged."""
    return None if model is None else type(model)(platform.ModelFolder(model).path)


def kind_of_output(output: Path | None, kinds: Iterable[str]) -> str:
    """Returns the extension of an output file, one of `kinds`; .jsonl where there is no file."""
    kind, known = output.suffix.lower() if output else ".jsonl", tuple(kinds)
    if kind not in known:
        has = f"has the extension {kind!r}" if kind else "has no extension"
        raise UsageError(f"{output} {has}. Use {'one of ' * (len(known) > 1)}{', '.join(known)}.")
    return kind


def ending(*kinds: str) -> Callable[[Path | None], Path | None]:
    """Returns the callback of an option for an output file: it refuses other extensions, before anything is done."""

    def checked(output: Path | None) -> Path | None:
        if output is not None:
            kind_of_output(output, kinds)
        return output

    return checked


ModelArgument = Annotated[Path, typer.Argument(help="Name or folder of a model, run or checkpoint.", callback=resolved)]
Card = Annotated[bool, typer.Option("--card", help="Write the main figures into the model's card, README.md.")]


PageFile = Annotated[
    Path | None, typer.Option("--output", "-o", help="HTML page to write: FILE.html.", callback=ending(".html"))
]


def comma_names(text: str) -> tuple[str, ...]:
    """ "a, b" -> ("a", "b")."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_pairs(text: str, option: str = "--label-names", example: str = "0=negative,1=positive") -> dict[str, str]:
    """ "a=b, c=d", or the mapping "{a: b, c: d}" in YAML or JSON -> {"a": "b", "c": "d"}.

    Raises UsageError for a part without both, and for a repeated name.
    """
    if text.startswith("{"):
        return {name: str(value) for name, value in _parse_mapping(text, option, example).items()}
    names = dict[str, str]()
    for left, _, right in (map(str.strip, part.partition("=")) for part in comma_names(text)):
        if not left or not right:
            raise UsageError(f"{option} {text!r} must consist of pairs, separated by commas: {example}.")
        if left in names:
            raise UsageError(f"{option} has {left!r} twice. Name it once.")
        names[left] = right
    return names


def _parse_mapping(text: str, option: str, example: str) -> dict[str, object]:
    """Returns a mapping of YAML or JSON, by names as they are written."""
    try:
        names = platform.parse_yaml(text)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, dict) or None in names.values():
        raise UsageError(f"{option} {text!r} is no mapping of names. Write pairs, separated by commas: {example}.")
    return {str(name).lower() if isinstance(name, bool) else str(name): value for name, value in names.items()}


def class_weights(text: str) -> str | dict[str, str]:
    """ "balanced", or "spam=10, ham=1" -> {"spam": "10", "ham": "1"}."""
    return text if text == "balanced" else parse_pairs(text, "--class-weights", "spam=10,ham=1")


def costs(text: str) -> dict[str, object]:
    """ "spam:ham=10, ham:spam=1" -> {"spam": {"ham": "10"}, "ham": {"spam": "1"}}."""
    option, example = "--costs", "spam:ham=10,ham:spam=1"
    if text.startswith("{"):
        return _parse_mapping(text, option, example)
    matrix: dict[str, dict[str, str]] = {}
    for labels, cost in parse_pairs(text, option, example).items():
        truth, _, predicted = labels.partition(":")
        if not truth or not predicted:
            raise UsageError(f"--costs {text!r} must name a true and a predicted label: spam:ham=10.")
        matrix.setdefault(truth, {})[predicted] = cost
    return {**matrix}
