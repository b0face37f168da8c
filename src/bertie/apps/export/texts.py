"""Default texts for comparing an exported graph with its model."""

from bertie.apps.pydocs import PythonPackage

COUNT, SHORTEST = 600, 20  # paragraphs; characters


def list_documentation_paragraphs() -> list[str]:
    """Returns paragraphs of the documentation of Python's standard library, whose first modules have enough."""
    texts = dict[str, None]()
    for module in PythonPackage("stdlib"):
        for passage in module.passages:
            texts |= dict.fromkeys(text for text in passage.paragraphs if len(text) >= SHORTEST)
        if len(texts) >= COUNT:
            break
    return [*texts][:COUNT]
