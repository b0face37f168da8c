"""The table of families: every row is a model that can be built, and changes of words are where they are said to be."""

from pathlib import Path
from random import Random

import pytest

from benchmarks.families import SIZES, Table
from benchmarks.replaced_words import CHANGES, changed
from bertie.errors import UsageError
from bertie.models import families


@pytest.mark.parametrize("size", SIZES)
def test_every_row_has_the_sizes_of_the_table(size, monkeypatch, tmp_path):
    monkeypatch.setattr(Table, "tokenizer", lambda self, preset: tmp_path)
    table = Table("corpus", tmp_path, tmp_path, size)
    rows = table.rows(0)
    assert len({row.name for row in rows}) == len(rows)
    layers, width = SIZES[size]
    for row in rows:
        config = table.config(row, 0, 4e-3, 9)
        shape = families.config(config.model, **config.model_overrides)
        depth = {"distilbert": layers // 2, "mobilebert": 2 * layers}.get(
            families.family(row.preset).model_type, layers
        )
        assert (shape.num_hidden_layers, shape.hidden_size) == (depth, width // 2 if row.name == "ELMo" else width)
        assert any(options is not None for options in config.objectives.values())


@pytest.mark.parametrize(
    ("settings", "message"), [({"size": "huge"}, "Unknown size"), ({"tasks": ("x",)}, "Unknown task")]
)
def test_names_that_there_are_not(settings, message):
    with pytest.raises(UsageError, match=message):
        Table("corpus", Path(), Path(), **settings)


@pytest.mark.parametrize("kind", CHANGES)
def test_changed_words_begin_where_it_is_said(kind):
    text = "Some words of this sentence, however, become others after a while and again."
    new, places = changed(text, kind, Random(1), ["banana", "window"])
    same = changed(text, kind, Random(1), ["banana", "window"])
    assert (new, places) == same
    assert new != text
    words = {new[place:].split()[0].strip(",.") for place in places}
    assert words
    assert not words & set(text.replace(",", "").replace(".", "").split())
