"""Default texts for comparing an exported graph with its model."""

from itertools import chain, islice

from bertie.apps.pydocs import PythonPackage

COUNT, SHORTEST = 600, 20  # paragraphs; characters


def list_documentation_paragraphs() -> list[str]:
    """Returns paragraphs of the documentation of Python's standard library."""
    modules = PythonPackage("stdlib")
    paragraphs = chain.from_iterable(passage.paragraphs for module in modules for passage in module.passages)
    return list(islice((text for text in dict.fromkeys(paragraphs) if len(text) >= SHORTEST), COUNT))
