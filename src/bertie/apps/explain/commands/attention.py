"""`bertie attention`: what the heads of a model attend to in a text."""

from pathlib import Path
from typing import Annotated

import typer

from bertie import platform
from bertie.apps import explain as app
from bertie.apps.cli.shared import option
from bertie.apps.explain.texts import OneOrTwoTexts, check_one_or_two
from bertie.platform import console

_BAR_WIDTH = 24  # characters of the longest bar


def attention_command(
    model: Annotated[Path, option("model")],
    texts: OneOrTwoTexts,
    head: Annotated[
        str,
        typer.Option(
            "--attention-head", help="LAYER.HEAD to show with words. Default: the strongest links between words."
        ),
    ] = "",
    max_length: Annotated[
        int | None, typer.Option("--max-length", min=4, help="Maximum number of tokens, at most 128.")
    ] = None,
    norms: Annotated[
        bool, typer.Option("--norms", help="Multiply attention by the length of the vector that is read.")
    ] = False,
    output: Annotated[
        Path | None,
        option("output", ".html", ".npz", help="Page or arrays to write: FILE.html or FILE.npz."),
    ] = None,
    card: Annotated[bool, option("card")] = False,
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Show what the heads of a model attend to in a text.

    Prints one head word by word, and the rollout: the share of each word in the token that represents the text. The
    page has a picture of every head, rollout, flow, and statistics of the heads. An npz file has the probabilities.
    Many heads attend to special tokens whose vectors are short; --norms shows what is really read. For what a
    prediction rests on, use bertie explain.

    \b
    Examples:
      bertie attention models/bert "The cat sat on the mat because it was tired." -o attention.html
      bertie attention models/bert "The cat sat on the mat." --attention-head 8.11
      bertie attention models/bert "Who sat?" "The cat sat on the mat." -o attention.npz
    """
    import io

    import numpy as np
    from rich.cells import cell_len, set_cell_size

    platform.ModelCard(model).check(card)
    check_one_or_two(texts)
    if output is not None:
        platform.File(output).check_new(overwrite=overwrite)
    loaded = platform.ModelFolder(model).load()
    loaded.eval().requires_grad_(False)
    result = app.attention_page.TextAttention.of(loaded, tuple(texts), head=head, max_length=max_length, norms=norms)
    if result.encoding.overflow:
        console.warn(f"The text is too long: only its first {len(result.encoding)} tokens are read.")
    if output is not None and output.suffix.lower() == ".html":
        app.attention_page.render_attention_page(result, str(model)).save(output)
    elif output is not None:
        file = io.BytesIO()
        np.savez_compressed(file, **result.arrays())  # type: ignore[arg-type]
        with platform.File(output).write() as written:
            written.write(file.getvalue())
    if card:
        platform.ModelCard(model).put("Attention in a text", *app.attention_page.render_attention_section(result))
    if console.verbosity.json:
        console.emit(result.as_json())
        return
    tokens = result.encoding.tokens
    console.show(f"head {result.name}")
    longest = min(30, max(map(cell_len, tokens)))
    for i, j, share in result.links():
        console.show(f"  {set_cell_size(tokens[i], longest)}  {share:z.3f}  {tokens[j]}")
    console.show(f"rollout to {tokens[result.summary]}")
    words = result.shares(result.rollout)
    most = max(value for _, value in words)
    for word, value in words:
        console.show(
            f"  {set_cell_size(word, longest)}  {value:z.3f}  {'+' * round(_BAR_WIDTH * value / most)}".rstrip()
        )
    for name, heads in app.attention_page.kinds(result.statistics.as_json()).items():
        console.say(f"{name}: {', '.join(heads)}")
    if output is not None:
        console.say(f"Written: {output}")
