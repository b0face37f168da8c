"""Pictures of two shapes, drawn by rule, with a sentence that says what they are and how they lie, or with a question.

A picture is 32 by 32 pixels, in the row itself (a data URL). A shape fills one of its 16 patches of 8 by 8.
"""

import base64
import io
import random

PICTURE_COLORS = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (40, 70, 220),
    "yellow": (235, 205, 40),
    "white": (250, 250, 250),
    "purple": (150, 50, 180),
}
_SHAPES = ("square", "circle", "triangle", "cross", "ring")
CELLS, SIDE = 4, 8  # patches of a side, pixels of a patch's side
GROUND = (70, 70, 70)


Thing = tuple[str, str]  # its color, its shape
_PLACES = ("left of", "right of", "above", "below")


def make_picture(index: int, rng: random.Random) -> dict[str, str]:
    """A sentence and its picture."""
    (one, here), (two, there), picture = _drawn(rng)
    return {"text": f"a {' '.join(one)} {_where(here, there)} a {' '.join(two)}", "image": picture}


def side_statement(index: int, rng: random.Random) -> dict[str, str]:
    """A sentence that says on which side of the middle one of two things lies, and their picture."""
    (one, here), _, picture = _drawn(rng)
    across = "left of" if here % CELLS < CELLS / 2 else "right of"
    down = "above" if here // CELLS < CELLS / 2 else "below"
    return {"text": f"a {' '.join(one)} {rng.choice((across, down))} the middle", "image": picture}


def question(index: int, rng: random.Random) -> dict[str, str]:
    """A question, its picture and the answer, a word: a color, a shape, yes or no."""
    (one, here), (two, there), picture = _drawn(rng)
    where = _where(here, there)
    questions = [(f"is the {' '.join(one)} {place} the {' '.join(two)}?", "yes" if place == where else "no")
             for place in (where, _PLACES[_PLACES.index(where) ^ 1])]  # fmt: skip
    choices = [rng.choice(questions)]
    if one[1] != two[1]:
        choices.append((f"what color is the {one[1]}?", one[0]))
    if one[0] != two[0]:
        choices.append((f"what shape is {one[0]}?", one[1]))
    text, answer = rng.choice(choices)
    return {"text": text, "image": picture, "label": answer}


def _drawn(rng: random.Random) -> tuple[tuple[Thing, int], tuple[Thing, int], str]:
    """Two things, each with its patch, and their picture as a data URL."""
    from PIL import Image

    (one, two), (here, there) = _things(rng), rng.sample(range(CELLS * CELLS), 2)
    picture = Image.new("RGB", (CELLS * SIDE, CELLS * SIDE), GROUND)
    for (color, shape), cell in ((one, here), (two, there)):
        _draw(picture, shape, PICTURE_COLORS[color], cell % CELLS * SIDE, cell // CELLS * SIDE)
    out = io.BytesIO()
    picture.save(out, "BMP")  # whose bytes are the same with every version of a library
    url = f"data:image/bmp;base64,{base64.b64encode(out.getvalue()).decode()}"
    return (one, here), (two, there), url


def _where(here: int, there: int) -> str:
    """Where a patch lies from another."""
    across, down = there % CELLS - here % CELLS, there // CELLS - here // CELLS
    if abs(across) >= abs(down):
        return "left of" if across > 0 else "right of"
    return "above" if down > 0 else "below"


def _things(rng: random.Random) -> tuple[Thing, Thing]:
    one, two = rng.sample([(color, shape) for color in PICTURE_COLORS for shape in _SHAPES], 2)
    return one, two


def _draw(picture: object, shape: str, color: tuple[int, int, int], left: int, top: int) -> None:
    from PIL import Image

    assert isinstance(picture, Image.Image)
    for y in range(SIDE):
        for x in range(SIDE):
            if _inside(shape, x, y):
                picture.putpixel((left + x, top + y), color)


def _inside(shape: str, x: int, y: int) -> bool:
    """Whether a pixel of a patch is of the shape, which leaves a border of one pixel."""
    half = (SIDE - 1) / 2
    away = (x - half) ** 2 + (y - half) ** 2
    return {
        "square": 1 <= x <= 6 and 1 <= y <= 6,
        "circle": away <= 9.5,
        "triangle": 1 <= y <= 6 and abs(x - half) <= (y + 1) / 2,
        "cross": 1 <= x <= 6 and 1 <= y <= 6 and (x in (3, 4) or y in (3, 4)),
        "ring": 4 < away <= 12.5,
    }[shape]
