"""Statements about scenes of three boxes, true or false, in the manner of NLVR (Suhr et al. 2017), by rule.

The items of a scene are a tower in each box, or lie anywhere. A scene has the form of NLVR's `structured_rep`: for each
box a list of items with type, color, size, x_loc and y_loc, in a box of 100 by 100 whose y grows downwards. `regions`
makes it feature vectors, also the scenes of NLVR's files.

A statement is drawn before its scene, and the scene decides whether it is true. So the text alone tells nothing.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

_Item = dict[str, Any]
Box = list[_Item]
Scene = list[Box]
Test = Callable[[Box], bool]

_COLORS = {"Yellow": "yellow", "Black": "black", "#0099ff": "blue"}
_SHAPES = ("square", "circle", "triangle")
_SIZES = {10: "small", 20: "medium", 30: "big"}
BLOCK_LEVELS = (80, 59, 38, 17)  # y_loc of the blocks of a tower, from its base
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven")
ORDINALS = ("first", "second", "third", "fourth")
TOUCHES, NEAR = 1, 8
_TRIES = 60  # scenes drawn for a statement, before another one is drawn
TOWERS = 0.6
"""Fraction of the scenes with towers. NLVR's dev and hidden files have 1,347 of 1,974."""


def make_statement(index: int, rng: random.Random) -> dict[str, Any]:
    """A statement about towers or lying items, its scene and its truth."""
    return _row(rng, _about_towers, _about_items)


def item_statement(index: int, rng: random.Random) -> dict[str, object]:
    """A statement that there is an item of a color, or of a color and a shape: to begin with."""
    return _row(rng, _simple("block"), _simple("item"))


def regions(scene: Sequence[Iterable[_Item]]) -> list[list[float]]:
    """Returns a scene of NLVR as vectors: each box, followed by its items. -> (1 to 3 + items, 27)

    An item has its box, color, shape and size, of 3 numbers each, one of which is 1. Then follow x and y, from 0 to 1.
    Four numbers tell whether it touches left, top, right and bottom, and four whether it is near them. Four more are
    its level in a tower. The last number is 1 for a box.
    """
    vectors = []
    for number, box in enumerate(scene):
        place = _one_hot(number, 3)
        vectors.append([*place, *[0.0] * 23, 1.0])
        for item in box:
            sides = _distances(item).values()
            vectors.append(
                [
                    *place,
                    *_one_hot(list(_COLORS).index(item["color"]), 3),
                    *_one_hot(_SHAPES.index(item["type"]), 3),
                    *_one_hot(item["size"] // 10 - 1, 3),
                    item["x_loc"] / 100,
                    item["y_loc"] / 100,
                    *(float(side <= TOUCHES) for side in sides),
                    *(float(side <= NEAR) for side in sides),
                    *(float(item["y_loc"] == level) for level in BLOCK_LEVELS),
                    0.0,
                ]
            )
    return vectors


Statement = tuple[str, Callable[[Scene], bool]]


def _row(
    rng: random.Random, towers: Callable[[random.Random], Statement], items: Callable[[random.Random], Statement]
) -> dict[str, object]:
    high, truth = rng.random() < TOWERS, rng.random() < 0.5
    while True:
        text, true = (towers if high else items)(rng)
        scenes: dict[bool, Scene] = {}
        for _ in range(_TRIES):
            scene = [(_tower if high else _lying)(rng) for _ in range(3)]
            scenes.setdefault(true(scene), scene)
            if len(scenes) == 2:  # a statement that is hardly ever true, or false, would tell its truth
                return {"text": text, "label": str(truth).lower(), "image": regions(scenes[truth])}


def _tower(rng: random.Random) -> Box:
    colors = rng.choice((list(_COLORS), rng.sample(list(_COLORS), 2)))
    return [
        {"type": "square", "color": rng.choice(colors), "size": 20, "x_loc": 40, "y_loc": level}
        for level in BLOCK_LEVELS[: rng.randint(1, 4)]
    ]


def _lying(rng: random.Random) -> Box:
    colors = rng.choice((list(_COLORS), rng.sample(list(_COLORS), 2), rng.sample(list(_COLORS), 1)))
    box = []
    for _ in range(rng.randint(1, 7)):
        size = rng.choice(list(_SIZES))
        x, y = rng.randint(0, 100 - size), rng.randint(0, 100 - size)
        side = rng.choice((None, None, None, "x", "y", "xy"))
        x = rng.choice((0, 100 - size)) if side in ("x", "xy") else x
        y = rng.choice((0, 100 - size)) if side in ("y", "xy") else y
        color, shape = rng.choice(colors), rng.choice(_SHAPES)
        box.append({"type": shape, "color": color, "size": size, "x_loc": x, "y_loc": y})
    return box


def _distances(item: _Item) -> dict[str, int]:
    """Returns how far an item is from the sides of its box."""
    x, y, size = item["x_loc"], item["y_loc"], item["size"]
    return {"left": x, "top": y, "right": 100 - x - size, "bottom": 100 - y - size}


def _one_hot(index: int, size: int) -> list[float]:
    return [float(index == number) for number in range(size)]


def _simple(noun: str) -> Callable[[random.Random], Statement]:
    def about(rng: random.Random) -> Statement:
        color, shape = rng.choice(list(_COLORS)), rng.choice(_SHAPES)
        shaped = noun == "item" and rng.random() < 0.5

        def test(item: _Item) -> bool:
            return bool(item["color"] == color) and (not shaped or item["type"] == shape)

        text = f"there is a {_COLORS[color]} {shape if shaped else noun}"
        return text, lambda scene: any(test(item) for box in scene for item in box)

    return about


def _counted(rng: random.Random, one: str, many: str, count: Callable[[Scene], int]) -> Statement:
    """A sentence on how many there are."""
    kind, n = rng.choice(("a", "a", "at least", "exactly", "only", "")), rng.choice((1, 1, 2, 3))
    if kind == "a":
        return f"there is a {one}", lambda scene: count(scene) >= 1
    words = ["there", "is" if n == 1 else "are", kind, _number(n, rng), one if n == 1 else many]
    least = kind == "at least" or (not kind and n == 1)
    return " ".join(filter(None, words)), lambda scene: count(scene) >= n if least else count(scene) == n


def _number(n: int, rng: random.Random) -> str:
    return rng.choice((_NUMBERS[n], str(n)))


def _blocks(n: int) -> str:
    return "block" if n == 1 else "blocks"


def _about_towers(rng: random.Random) -> Statement:
    """A statement on towers, or on blocks in them."""
    color = rng.choice(list(_COLORS))
    word, kind = _COLORS[color], rng.random()
    if kind < 0.08:
        return _counted(
            rng, f"{word} block", f"{word} blocks", lambda scene: sum(i["color"] == color for b in scene for i in b)
        )
    if kind < 0.16:
        n, end = rng.randint(1, 4), rng.choice(("top", "base"))
        at = -1 if end == "top" else 0
        text = f"the tower with {_number(n, rng)} {_blocks(n)} has a {word} block at the {end}"

        def these(scene: Scene) -> bool:
            boxes = [box for box in scene if len(box) == n]
            return bool(boxes) and all(box[at]["color"] == color for box in boxes)

        return text, these
    text, test = _of_a_tower(rng)
    one, many = text.replace("{s}", ""), text.replace("{s}", "s")
    if kind < 0.21:
        return f"each box contains a {one}", lambda scene: all(map(test, scene))
    if kind < 0.27:
        n = rng.choice((1, 2))
        text = f"{_number(n, rng)} of the three {f'is a {one}' if n == 1 else f'are {many}'}"
        return text, lambda scene: sum(map(test, scene)) == n
    return _counted(rng, one, many, lambda scene: sum(map(test, scene)))


def _of_a_tower(rng: random.Random) -> tuple[str, Test]:
    """What a tower can be, {s} for the plural, and its test."""
    color, other = rng.sample(list(_COLORS), 2)
    word, second = _COLORS[color], _COLORS[other]
    n, k = rng.randint(1, 4), rng.randint(1, 3)
    many, some, exact = (
        f"{_number(n, rng)} {_blocks(n)}",
        f"{_number(k, rng)} {word} {_blocks(k)}",
        rng.choice(("", "exactly ")),
    )
    end, over = rng.choice(("top", "base")), rng.choice(("over", "above", "under", "below", "on top of"))

    def colors(box: Box) -> list[str]:
        return [item["color"] for item in box]

    def ends(box: Box) -> bool:
        return colors(box)[-1 if end == "top" else 0] == color

    def stacked(box: Box) -> bool:
        pair = (color, other) if over in ("under", "below") else (other, color)
        return pair in zip(colors(box), colors(box)[1:], strict=False)

    def nth(box: Box) -> bool:
        return len(box) >= n and (colors(box)[::-1] if end == "top" else colors(box))[n - 1] == color

    return rng.choice(
        (
            (f"tower{{s}} with {exact}{many}", lambda box: len(box) == n),
            (f"tower{{s}} with a {word} block at the {end}", ends),
            (f"tower{{s}} that has a {word} {end}", ends),
            (f"{word} block{{s}} as the {end} of a tower", ends),
            (f"{word} block{{s}} as the {end} of a tower with {many}", lambda box: len(box) == n and ends(box)),
            (f"tower{{s}} with {many} with a {word} block at the {end}", lambda box: len(box) == n and ends(box)),
            (f"tower{{s}} with a {word} block {over} a {second} block", stacked),
            (f"{word} block{{s}} {over} a {second} block", stacked),
            (f"tower{{s}} with {exact}{many} having a {word} block {over} a {second} block",
             lambda box: len(box) == n and stacked(box)),
            (f"tower{{s}} with only {word} blocks", lambda box: set(colors(box)) == {color}),
            (f"tower{{s}} which has blocks of {word} color only", lambda box: set(colors(box)) == {color}),
            (f"tower{{s}} with at least {some}", lambda box: colors(box).count(color) >= k),
            (f"tower{{s}} with {some}", lambda box: colors(box).count(color) >= k),
            (f"tower{{s}} with exactly {some}", lambda box: colors(box).count(color) == k),
            ("tower{s} having the blocks of all three colors", lambda box: len(set(colors(box))) == 3),
            ("tower{s} with blocks of two different colors", lambda box: len(set(colors(box))) == 2),
            ("tower{s} with the same color at the top and the base", lambda box: colors(box)[0] == colors(box)[-1]),
            (f"tower{{s}} where the {ORDINALS[n - 1]} block from the {end} is {word}", nth),
        )
    )  # fmt: skip


def _about_items(rng: random.Random) -> Statement:
    """A statement on lying items, or on the boxes that have them."""
    kind = rng.random()
    if kind < 0.45:
        text, item_test = _of_an_item(rng)
        one, many = text.replace("{s}", ""), text.replace("{s}", "s")
        if kind < 0.05:
            none = rng.choice((f"there are no {many}", f"there is no {one}"))
            return none, lambda scene: not any(item_test(item) for box in scene for item in box)
        return _counted(rng, one, many, lambda scene: sum(item_test(item) for box in scene for item in box))
    text, test = _of_a_box(rng)
    if kind < 0.55:
        return f"each grey box contains {text}", lambda scene: all(map(test, scene))
    if kind < 0.62:
        return f"exactly one of the grey boxes contains {text}", lambda scene: sum(map(test, scene)) == 1
    return _counted(rng, f"box with {text}", f"boxes with {text}", lambda scene: sum(map(test, scene)))


SIDES: dict[str, Callable[[set[str]], bool]] = {
    "touching the edge": bool,
    "touching the wall": bool,
    "not touching the edge": lambda sides: not sides,
    "touching the corner": lambda sides: len(sides) >= 2,
    "closely touching a corner": lambda sides: len(sides) >= 2,
    "touching the top": lambda sides: "top" in sides,
    "closely touching the bottom of a box": lambda sides: "bottom" in sides,
    "closely touching right wall of a box": lambda sides: "right" in sides,
    "closely touching left wall of a box": lambda sides: "left" in sides,
}


def _of_an_item(rng: random.Random) -> tuple[str, Callable[[_Item], bool]]:
    """What an item can be, {s} for the plural, and its test."""
    color, shape = rng.choice((None, *_COLORS)), rng.choice((None, *_SHAPES))
    size = rng.choice((None, None, None, None, None, *_SIZES))
    place = rng.choice((None, rng.choice(list(SIDES)), rng.choice(list(SIDES))))
    noun = shape or rng.choice(("object", "item"))
    words = (_SIZES[size] if size else "", _COLORS[color] if color else "", f"{noun}{{s}}", place)

    def test(item: _Item) -> bool:
        if any(value not in (None, item[key]) for key, value in (("color", color), ("type", shape), ("size", size))):
            return False
        return place is None or SIDES[place]({side for side, away in _distances(item).items() if away <= TOUCHES})

    return " ".join(filter(None, words)), test


def _of_a_box(rng: random.Random) -> tuple[str, Test]:
    """What a box can contain, and its test."""
    color, other = rng.sample(list(_COLORS), 2)
    word, second = _COLORS[color], _COLORS[other]
    shape, shape_2 = rng.choice(_SHAPES), rng.choice(_SHAPES)
    n, k = rng.randint(2, 7), rng.randint(1, 3)
    text, test = _of_an_item(rng)
    s = "" if k == 1 else "s"

    def colors(box: Box) -> set[str]:
        return {item["color"] for item in box}

    def count(box: Box, **values: str) -> int:
        return sum(all(item[key] == value for key, value in values.items()) for item in box)

    return rng.choice(
        (
            (f"{_number(n, rng)} items", lambda box: len(box) == n),
            (f"at least {_number(k, rng)} {word} item{s}", lambda box: count(box, color=color) >= k),
            (f"{_number(k, rng)} {word} item{s}", lambda box: count(box, color=color) >= k),
            (f"exactly {_number(k, rng)} {shape}{s}", lambda box: count(box, type=shape) == k),
            (f"only {word} items", lambda box: colors(box) == {color}),
            (f"a {word} {shape} and a {second} {shape_2}",
             lambda box: count(box, color=color, type=shape) > 0 and count(box, color=other, type=shape_2) > 0),
            ("items of only two colors", lambda box: len(colors(box)) == 2),
            ("items of all three colors", lambda box: len(colors(box)) == 3),
            (f"{_number(n, rng)} items and the colors are {word} and {second}",
             lambda box: len(box) == n and colors(box) == {color, other}),
            (f"{_number(k, rng)} {text.replace('{s}', s)}", lambda box: sum(map(test, box)) >= k),
            (f"a {text.replace('{s}', '')}", lambda box: any(map(test, box))),
        )
    )  # fmt: skip
