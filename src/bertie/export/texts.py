"""Texts to compare two forms of a model on, where the user gives none."""

from itertools import chain, islice

from bertie.data import pydocs

COUNT, SHORTEST = 600, 20  # paragraphs; characters


def documentation() -> list[str]:
    """Paragraphs of the documentation of Python's standard library, the same ones each time."""
    modules = pydocs.modules(pydocs.STDLIB)
    paragraphs = chain.from_iterable(passage.paragraphs for module in modules for passage in module.passages)
    return list(islice((text for text in dict.fromkeys(paragraphs) if len(text) >= SHORTEST), COUNT))
