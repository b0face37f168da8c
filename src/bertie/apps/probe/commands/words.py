"""`bertie words`: a word in several texts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bertie import platform
from bertie.apps import probe as app
from bertie.apps.cli.shared import option
from bertie.platform import console


def words_command(
    model: Annotated[Path, option("model")],
    texts: Annotated[
        list[str], typer.Argument(metavar="TEXT TEXT...", help="Texts, in which *the word* may be marked.")
    ],
    word: Annotated[
        str, typer.Option("--word", help="Word of the texts without a mark. Default: the only word they share.")
    ] = "",
    baseline: Annotated[
        str, typer.Option("--baseline", help="File of texts for random words. Default: sample reviews.")
    ] = "",
    pooling: Annotated[
        str, typer.Option("--pooling", help="Vector of a word from its tokens: mean or first.")
    ] = "mean",
    output: Annotated[Path | None, option("page")] = None,
    card: Annotated[bool, option("card")] = False,
    precision: Annotated[str, option("precision")] = "fp32",
    device: Annotated[str, option("device")] = "auto",
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Compare the vectors of a word in several texts, layer by layer.

    The similarity is the cosine. Random different words are similar, too, so their mean cosine is shown beside it.
    Korean words match at their beginning: 배 in 배를.

    \b
    Examples:
      bertie words models/bert "She ate an apple." "He made an apology."
      bertie words models/bert "the bank of the river" "a bank account" --word bank -o bank.html
      bertie words models/bert "the *bank* of the river" "the *shore* of the lake"
    """

    platform.ModelCard(model).check(card)
    if output is not None:
        platform.File(output).check_new(overwrite=overwrite)
    others = baseline_texts(baseline) if baseline else None
    contexts = app.api.words(
        model, texts, word=word, baseline=others, pooling=pooling, precision=precision, device=device
    )
    content: Mapping[str, Any] = contexts.results
    if output is not None:
        app.contexts_page.render_contexts_page(content, str(model)).save(output)
    if card:
        platform.ModelCard(model).put("A word in several texts", *app.contexts_page.render_contexts_section(content))
    if console.verbosity.json:
        console.emit(contexts.to_dict())
    else:
        for number, one in enumerate(content["contexts"], 1):
            console.show(f"{number}. {one['text'][: one['start']]}*{one['word']}*{one['text'][one['end'] :]}")
        shown = app.contexts_page.list_text_pairs(content)
        columns = "".join(f"  {i + 1} and {j + 1}" for i, j in shown) if len(content["contexts"]) > 2 else ""
        console.show(f"layer  similarity  random words  difference{columns}")
        for one in content["layers"]:
            each = "".join(f"{one['similarity'][i][j]:z9.3f}" for i, j in shown) if columns else ""
            same, others, more = one["mean_similarity"], one["baseline"], one["adjusted"]
            console.show(f"{one['layer']:5}  {same:z10.3f}  {others:z12.3f}  {more:+z10.3f}{each}")
        console.say(f"random words: the mean cosine of {content['baseline']} different words of different texts")
    if output is not None:
        console.say(f"Page: {output}")


def baseline_texts(path: str) -> list[str]:
    """Returns the lines of a file. Raises DataError for an empty file or one that cannot be read."""

    lines = platform.SourceFile(path).lines()
    if not lines:
        raise platform.DataError(f"{path} has no text.")
    return lines
