"""`bertie explain`: which words a prediction rests on."""

from pathlib import Path
from typing import Annotated

import typer

from bertie import platform
from bertie.apps import explain as app
from bertie.apps.cli.shared import option
from bertie.apps.cli.tables import comma_names
from bertie.apps.explain.texts import OneOrTwoTexts, check_one_or_two
from bertie.platform import console

_BAR_WIDTH = 24  # characters of the longest bar


def explain_command(
    model: Annotated[Path, option("model")],
    texts: OneOrTwoTexts,
    methods: Annotated[
        str, typer.Option("--methods", help="Methods, comma-separated: ig, gradient, occlusion.")
    ] = "ig",
    label: Annotated[
        str, typer.Option("--target", help="Label or masked word to explain. Default: the prediction.")
    ] = "",
    word: Annotated[
        int | None,
        typer.Option("--word-number", min=1, help="For a tagger: number of the word. Default: the first entity."),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option("--max-length", min=4, help="Maximum number of tokens. Default: of the model.")
    ] = None,
    output: Annotated[Path | None, option("page")] = None,
    card: Annotated[bool, option("card")] = False,
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Show which words of a text a prediction rests on.

    Works for labels, numbers, tags, answers in a text, and masked words. ig is integrated gradients, the only method
    whose values add up to the change of the logit; gradient is gradient x input; occlusion masks one token at a time.
    For each method, Bertie also measures how far the probability falls without the most important words.

    \b
    Examples:
      bertie explain runs/reviews/model "The plot is thin, but the actors are wonderful."
      bertie explain runs/reviews/model "A dull film." --methods ig,occlusion -o explanation.html
      bertie explain runs/questions/model "Who wrote it?" "The book was written by Jane Austen."
      bertie explain models/bert "Paris is the capital of [MASK]." --target france
    """
    from rich.cells import cell_len, set_cell_size

    platform.ModelCard(model).check(card)
    check_one_or_two(texts)
    if output is not None:
        platform.File(output).check_new(overwrite=overwrite)
    chosen = [app.attribution.method(name) for name in comma_names(methods)]  # before the model is opened
    loaded = platform.ModelFolder(model).load()
    loaded.eval().requires_grad_(False)
    explained = app.targets.question_of(loaded, texts, label=label, word=word, max_length=max_length)
    if explained.cut:
        console.warn(f"The text is too long: {explained.cut:,} tokens are not read.")
    question = explained.question
    results = []
    for method in chosen:
        one = method(question)
        results.append((one, app.attribution.faithfulness(question, one.values)))
    if output is not None:
        app.page.render_explanation_page(explained, results, str(model)).save(output)
    if card:
        platform.ModelCard(model).put(
            "An explained prediction", *app.page.render_explanation_section(explained, results)
        )
    for one, faithful in results:
        if console.verbosity.json:
            console.emit(app.api.describe_attribution(explained, one, faithful))
            continue
        words = app.attribution.by_word(question.encoding, one.values, explained.texts)
        console.show(f"{explained.about}: logit {one.value:z.3f}, without the words {one.baseline:z.3f} ({one.method})")
        special = {
            token for token, at in zip(question.encoding.tokens, question.encoding.word_ids, strict=True) if at is None
        }
        most = max(abs(value) for _, value in words) or 1.0
        longest = min(30, max(cell_len(text) for text, _ in words))
        for text, value in words:
            if not value and text in special:
                continue
            bar = ("+" if value > 0 else "-") * round(_BAR_WIDTH * abs(value) / most)
            console.show(f"  {set_cell_size(text, longest)}  {value:+z8.3f}  {bar}".rstrip())
        console.say(f"{app.page.completeness(one)} {app.page.trust(faithful)}".lstrip())
    if output is not None:
        console.say(f"Page: {output}")
