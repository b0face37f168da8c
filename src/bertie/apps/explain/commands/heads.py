"""`bertie heads`: what the attention heads of a model do, over texts, parsed sentences or labeled examples."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertie import platform
from bertie.apps import explain as app
from bertie.apps.cli.shared import option
from bertie.platform import UsageError, console

if TYPE_CHECKING:
    from bertie.apps.explain.attention import HeadStatistics
    from bertie.apps.explain.heads import Removal
    from bertie.platform import TorchModel

_ROWS_SHOWN = 15  # rows in the terminal
_LENGTH = 512  # tokens of a text, at most


_POINTS = 24


def heads_command(
    model: Annotated[Path, option("model")],
    texts: Annotated[
        Path | None, typer.Option("--texts", help="Texts, one per line: what each head attends to on average.")
    ] = None,
    parsed: Annotated[
        Path | None,
        typer.Option("--parsed", help="Parsed sentences (.conllu or KLUE-DP): heads beside dependency relations."),
    ] = None,
    dev: Annotated[
        Path | None,
        typer.Option("--dev", help="Labeled examples of the model's task: which heads it needs."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=2, help="Maximum number of texts, sentences or examples that are read.")
    ] = 2000,
    points: Annotated[
        int | None,
        typer.Option(
            "--points", min=1, help="With --dev: how many numbers of removed heads are measured.", show_default="24"
        ),
    ] = None,
    text: Annotated[list[str] | None, option("text")] = None,
    label: Annotated[str, option("label")] = "",
    max_length: Annotated[int | None, option("max-length")] = None,
    output: Annotated[Path | None, option("page")] = None,
    card: Annotated[bool, option("card")] = False,
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Measure attention heads over a file: statistics, syntax, importance.

    --texts prints statistics of each head: entropy, distance, and attention to itself, its neighbors and special
    tokens. --parsed compares each head with dependency relations, beside the best fixed offset, random weights and a
    control task. --dev ranks the heads by their importance for the model's task, and measures the model as they are
    removed.

    \b
    Examples:
      bertie heads models/bert --texts texts.txt -o heads.html
      bertie heads models/bert --parsed en_ewt-ud-dev.conllu -o heads.html
      bertie heads runs/reviews/model --dev dev.csv --points 12
    """

    platform.ModelCard(model).check(card)
    if not (texts or parsed or dev):
        raise UsageError("Pass at least one file: --texts, --parsed or --dev.")
    if (text or label) and dev is None:
        raise UsageError("--text and --label name columns of labeled examples. Pass --dev FILE too, or omit them.")
    if points is not None and dev is None:
        raise UsageError("--points counts measurements with labeled examples. Pass --dev FILE too, or omit it.")
    if output is not None:
        platform.File(output).check_new(overwrite=overwrite)
    loaded = platform.ModelFolder(model).load()
    loaded.training_facts.check_texts_decide("bertie heads")
    loaded.eval().requires_grad_(False)
    sections: dict[str, Any] = {}
    if texts is not None:
        sections["statistics"] = _statistics(loaded, texts, limit, max_length)
    if parsed is not None:
        sections["relations"] = _relations(loaded, parsed, limit, max_length)
    if dev is not None:
        sections["removal"] = _removal(loaded, dev, limit, points or _POINTS, tuple(text or ()), label, max_length)
    if output is not None:
        app.heads_page.render_heads_page(str(model), **sections).save(output)
        console.say(f"Page: {output}")
    if card:
        platform.ModelCard(model).put("Attention heads", *app.heads_page.render_heads_section(**sections))


def _first(read: list[Any], most: int, file: Path) -> list[Any]:
    if len(read) > most:
        console.warn(f"{file}: the first {most:,} of {len(read):,} are read. Read more with --limit.")
    return read[:most]


def _length(model: "TorchModel", max_length: int | None) -> int:
    most = min(model.config.max_length, _LENGTH)
    if max_length is not None and not 4 <= max_length <= most:
        raise UsageError(f"--max-length is {max_length}; it must be 4 to {most} for this model.")
    return max_length or most


def _statistics(model: "TorchModel", file: Path, most: int, max_length: int | None) -> "HeadStatistics":
    length, tokenizer = _length(model, max_length), model.text_tokenizer
    read = _first(platform.SourceFile(file).lines(), most, file)
    if not read:
        raise platform.DataError(f"{file} has no texts.")
    statistics = app.attention.HeadStatistics(tokenizer)
    for encoding in tokenizer.encode_batch(read, max_length=length):
        statistics.add(app.attention.attentions(model, encoding.ids, encoding.type_ids), encoding.ids)
    records = statistics.as_json()
    if console.verbosity.json:
        console.emit({"statistics": records, "texts": statistics.texts, "tokens": statistics.tokens})
        return statistics
    console.show(f"{statistics.tokens:,} tokens of {statistics.texts:,} texts")
    names = [name for name in records[0] if name not in ("layer", "head", "kind")]
    console.show("head   " + "  ".join(f"{name:>9}" for name in names))
    for row in records:
        cells = "  ".join(f"{row[name]:z9.3f}" for name in names)
        console.show(f"{row['layer']}.{row['head']:<4} {cells}  {row['kind']}".rstrip())
    for name, ones in app.attention_page.kinds(records).items():
        console.say(f"{name}: {', '.join(ones)}")
    return statistics


def _relations(model: "TorchModel", file: Path, most: int, max_length: int | None) -> list[dict[str, object]]:
    length = _length(model, max_length)
    examples, skipped = platform.SkipReport.collect(platform.SourceFile(file).annotated().trees(), str(file))
    if skipped.total:
        console.warn(f"{file}: {skipped}")
    examples = _first(examples, most, file)
    counts = app.relations.count_relations(model, examples, max_length=length)
    console.say("The same for random weights.")
    untrained = model.randomized().eval()
    rows = app.relations.list_relations(counts, app.relations.count_relations(untrained, examples, max_length=length))
    if console.verbosity.json:
        console.emit({"relations": rows, "sentences": counts.sentences})
        return rows
    console.show(f"{counts.sentences:,} sentences")
    console.show(f"{'relation':14} {'words':>6}  {'head':19} right  offset        random  control")
    for row in rows:
        random = "      " if row["random_accuracy"] is None else f"{row['random_accuracy']:z6.3f}"
        console.show(
            f"{row['relation']:14} {row['words']:6,}  {row['head']:5} {row['way']:13} {row['accuracy']:z.3f}  "
            f"{row['offset_accuracy']:z.3f} ({row['offset']:+3d})  {random}  {row['control_accuracy']:z.3f}"
        )
    return rows


def _removal(
    model: "TorchModel", file: Path, most: int, points: int, text: tuple[str, ...], label: str, max_length: int | None
) -> "Removal":
    predictor = app.heads.predictor_of(model)
    rows = predictor.task.rows(file, predictor.pipeline.reading(platform.TableFormat.of(text, label)))
    examples, skipped = platform.SkipReport.collect(rows, str(file))
    if skipped.total:
        console.warn(f"{file}: {skipped}")
    curve = app.heads.removal(model, _first(examples, most, file), points=points, max_length=max_length)
    if console.verbosity.json:
        console.emit({"removal": curve.as_json()})
        return curve
    order = [f"{layer + 1}.{head + 1}" for layer, head in curve.order()]
    console.show(f"least important: {', '.join(order[:_ROWS_SHOWN])}")
    console.show(f"most important: {', '.join(order[::-1][:_ROWS_SHOWN])}")
    console.show(f"removed  {curve.metric}  random order")
    for place, (removed, score) in enumerate(curve.points):
        mean = sum(one[place][1] for one in curve.random) / len(curve.random)
        console.show(f"{removed:7}  {score:z{len(curve.metric)}.4f}  {mean:z.4f}")
    return curve
