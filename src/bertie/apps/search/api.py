"""The functions `bertie.build_index` and `bertie.open_index`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, get_args

import bertie
from bertie import Model
from bertie.apps.search import embedded, index, remote
from bertie.apps.search.engine import STORES
from bertie.apps.search.index import Changes, IndexConfig, checked_embedder, stored_config
from bertie.apps.search.models import Embedder
from bertie.apps.search.neighbors import VectorSearch
from bertie.apps.search.rows import LazyDocuments, as_files
from bertie.apps.search.searcher import SearchDepth, Searcher
from bertie.apps.search.terms import English, Korean, Terms
from bertie.platform import DataError, ModelFolder, UsageError, checked_arguments, nearest

AnyModel = Model | str | Path


class WhereModels(NamedTuple):
    """Where the models of a search run."""

    precision: str = "fp32"
    engine: str = "auto"
    device: str = "auto"


@checked_arguments
def build_index(
    documents: str | Path | Iterable[object] | LazyDocuments,
    output: str | Path,
    *,
    embed: AnyModel | None = None,
    text: str | None = None,
    title: str | None = None,
    encoding: str | None = None,
    passage_words: int | None = None,
    english: str | None = None,
    korean: str | None = None,
    word_splitter: str | None = None,
    vectors: VectorSearch = "auto",
    store: str = "sqlite",
    url: str = "",
    overwrite: bool = False,
    precision: str = "fp32",
    engine: str = "auto",
    device: str = "auto",
) -> Searcher:
    """Indexes documents for search, or brings an index up to date.

    Args:
        documents: Files, folders and globs, or "python:PACKAGE,...", the documentation of installed packages; or rows
            in memory: a DataFrame, a data set, dicts, or an iterator of texts. A list of texts names files.
        output: The folder of the index. Files with the same content are skipped, and changed ones replaced.
        embed: A model of sentence embeddings, for search by meaning beside words.
        text: Column of the text of tables. Default: recognized by name.
        title: Column of the title of tables.
        encoding: Encoding of text files. Default: utf-8.
        passage_words: Maximum number of words of a passage. Default: 180.
        english: stems, or words, which are left unchanged. Default: stems.
        korean: pairs (of syllables), kiwi (also morphemes), or words. Default: pairs.
        word_splitter: A word splitter, such as one of a package, whose words are terms too. Default: none.
        vectors: exact, approximate, or auto: approximate from a million passages.
        store: What keeps a copy of the index: sqlite (none), opensearch or qdrant, with `url`.
        url: Address of that server.
        overwrite: Whether to replace the index.
        precision: fp32, bf16 or auto, of the model.
        engine: native, torch or auto: what computes the model on a CPU.
        device: cpu, cuda, cuda:1, mps or auto.

    Returns:
        The open index; `changes` is what was done.

    Raises:
        DataError: A document does not exist, or nothing in it can be read.
        UsageError: The folder contains other files, or an index with other settings.

    Example:
        >>> index = bertie.build_index("notes.txt", "out/notes-index")
        >>> index.search("rain", top=3).hits[0].passage.text[:16]
        'Note 0 is short.'
    """
    folder, where = Path(output), WhereModels(precision, engine, device)
    copy, model = server_of(folder, store, url), None if embed is None else embedder_of(embed, where)
    own = (None if overwrite else stored_config(folder)) or IndexConfig()
    reading = {"text": text, "title": title, "encoding": encoding}
    config = IndexConfig(
        _terms(
            english or own.terms.english,
            korean or own.terms.korean,
            own.terms.word_splitter if word_splitter is None else word_splitter,
        ),
        replace(own.reading, **{name: value for name, value in reading.items() if value is not None}),
        passage_words or own.passage_words,
    )
    with as_files(documents) as files:
        changes = index.index(files, folder, config, embedder=model, vectors=vectors, overwrite=overwrite)
    changes.copy = publish_copy(folder, copy, overwrite=overwrite)
    return Searcher(STORES[store](folder, url), embedder=model, changes=changes)


@checked_arguments
def open_index(
    folder: str | Path,
    *,
    embed: AnyModel | None = None,
    rerank: AnyModel | None = None,
    answer: AnyModel | None = None,
    no_embed: bool = False,
    no_words: bool = False,
    fusion: str = "scores",
    first: int | None = None,
    rerank_top: int = 50,
    rerank_alone: bool = False,
    read_top: int = 3,
    store: str = "sqlite",
    url: str = "",
    precision: str = "fp32",
    engine: str = "auto",
    device: str = "auto",
) -> Searcher:
    """Opens an index for search.

    Args:
        folder: The folder of an index, or its name on a server.
        embed: The model of the index's vectors, if it is no longer where the index was made.
        rerank: A model that re-ranks passages (task rank or choice).
        answer: A model that finds the answer in passages (task span), such as "questions-en".
        no_embed: Whether only words are searched.
        no_words: Whether only vectors are searched.
        fusion: How words and vectors are joined: scores (the mean of both) or ranks (reciprocal).
        first: Number of passages from words, and from vectors. Default: 100, or `top` if higher.
        rerank_top: Number of passages to re-rank.
        rerank_alone: Whether the re-ranking model alone decides the order.
        read_top: Number of passages in which an answer is looked for.
        store: What keeps the index: sqlite (its folder), opensearch or qdrant, with `url`.
        url: Address of the search engine.
        precision: fp32, bf16 or auto, of the models.
        engine: native, torch or auto: what computes the models on a CPU.
        device: cpu, cuda, cuda:1, mps or auto.

    Returns:
        The open index, with `search(question, top)`.

    Raises:
        DataError: The folder is no index, or damaged, or the model of its vectors is gone.
        UsageError: The index has no vectors, or a model cannot do its part.

    Example:
        >>> with bertie.open_index("docs-index", answer="questions-en") as index:
        ...     found = index.search("What does json.loads return?", top=3)
        >>> len(found.hits), found.answer is not None
        (3, True)
    """
    folder, where = Path(folder), WhereModels(precision, engine, device)
    index = STORES[store](folder, url)
    stored = index.get("embedder")
    if embed is not None and not stored:
        raise UsageError(f"{index.where} has no vectors. Make them: bertie index -o {folder} --embed {_folder(embed)}")
    embedder = None
    if stored and not no_embed:
        place = Path(stored["folder"]) if embed is None else _folder(embed)
        if not place.is_dir():
            raise DataError(
                f"The model of the vectors of {index.where} was at {place}. Pass where it is now "
                "(--embed MODEL), or --no-embed."
            )
        model = embedder_of(place if embed is None else embed, where)
        checked_embedder(index, model)
        embedder = model.load()
    return Searcher(
        index,
        embedder=embedder,
        ranker=None if rerank is None else _opened(rerank, where).predictor(),
        reader=None if answer is None else _opened(answer, where).predictor(),
        depth=SearchDepth(first, rerank_top, read_top),
        words=not no_words,
        fusion=fusion,
        rerank_alone=rerank_alone,
    )


def embedder_of(model: AnyModel, where: WhereModels) -> Embedder:
    """Returns a model of vectors, which is loaded when it is needed."""
    return Embedder.of(_folder(model), lambda: _opened(model, where).embedder())


def server_of(folder: Path, store: str, url: str) -> "remote.RemoteIndex | None":
    """Returns the copy of an index on a server; None for the index of a folder alone. Raises for an unknown store."""
    if store == "sqlite":
        embedded.no_url(url)
        return None
    copy = STORES[store](folder, url)
    assert isinstance(copy, remote.RemoteIndex)
    copy.settings()
    return copy


def publish_copy(folder: Path, copy: "remote.RemoteIndex | None", *, overwrite: bool = False) -> dict[str, object]:
    """Brings the copy on a server up to date, where there is one. -> what was done"""
    if copy is None:
        return {}
    done = remote.publish_index(folder, copy, overwrite=overwrite)
    copy.close()
    return {"where": copy.where, **done}


def remove_documents(names: Sequence[str], folder: Path, store: str = "sqlite", url: str = "") -> Changes:
    """Removes the documents of files from an index, and from its copy on a server."""
    copy = server_of(folder, store, url)
    changes = index.drop_documents(names, folder)
    changes.copy = publish_copy(folder, copy)
    return changes


def _opened(model: AnyModel, where: WhereModels) -> Model:
    if isinstance(model, Model):
        return model
    return bertie.load(model, where.device, where.precision, where.engine)


def _folder(model: AnyModel) -> Path:
    if not isinstance(model, Model):
        return ModelFolder(Path(model)).path
    if model.folder is None:
        raise UsageError("The model has no folder, which an index stores. Save it: model.save(FOLDER).")
    return model.folder


def _terms(english: str, korean: str, word_splitter: str) -> Terms:
    for name, value, kind in (("english", english, English), ("korean", korean, Korean)):
        if value not in (choices := get_args(kind)):
            raise UsageError(f"Unknown value {value!r} of `{name}`. {nearest(value, choices)}")
    return Terms(english, korean, word_splitter)  # type: ignore[arg-type]
