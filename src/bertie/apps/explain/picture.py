"""Pictures of matrices: PNG files of a few bits per cell, inside the page as data URIs, on a light or a dark ground."""

import base64
import io
from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from bertie.platform import Html

SHADES = 16  # 4 bits per cell
BLUE = (62, 124, 230)  # read on both grounds


def png(matrix: NDArray[np.floating]) -> str:
    """Returns a matrix of numbers from 0 to 1 as a data URI, one pixel per cell: transparent at 0, blue at 1.

    The shade is the square root of the number, so that small numbers are visible.
    """
    from PIL import Image

    shades = np.rint(np.sqrt(np.clip(matrix, 0, 1)) * (SHADES - 1)).astype(np.uint8)
    image = Image.frombytes("P", shades.shape[::-1], shades.tobytes())
    image.putpalette(BLUE * SHADES)
    file = io.BytesIO()
    alpha = bytes(255 * shade // (SHADES - 1) for shade in range(SHADES))
    image.save(file, "PNG", bits=4, transparency=alpha, optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def small(matrix: NDArray[np.floating], caption: str) -> str:
    """Returns a picture with a caption."""
    text = escape(caption, quote=True)
    return f'<figure><img src="{png(matrix)}" alt="{text}"><figcaption>{text}</figcaption></figure>'


def with_words(matrix: NDArray[np.floating], words: Sequence[str], about: str) -> Html:
    """Returns a large picture of a square matrix with the words beside the rows and above the columns."""
    spans = "".join(f"<span>{escape(word)}</span>" for word in words)
    return Html(
        f'<div class="scroll"><div class="cells" style="--cells: {len(words)}"><div></div>'
        f'<div class="above">{spans}</div><div class="beside">{spans}</div>'
        f'<img src="{png(matrix)}" alt="{escape(about, quote=True)}"></div></div>'
    )


def heat_table(matrix: NDArray[np.floating], rows: Sequence[str], columns: Sequence[str], *, most: float) -> Html:
    """Returns a table of numbers whose cells are darker for larger ones; `most` and above are darkest."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr><th>{escape(name)}</th>"
        + "".join(f'<td class="hit" style="--share:{min(50.0, 50 * abs(x) / most):.0f}%">{_short(x)}</td>' for x in row)
        + "</tr>"
        for name, row in zip(rows, matrix.tolist(), strict=True)
    )
    table = f'<table class="heat"><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>'
    return Html(f'<figure class="table"><div class="scroll">{table}</div></figure>')


def _short(x: float) -> str:
    return f"{x:.2f}" if abs(x) < 10 else f"{x:.1f}"
