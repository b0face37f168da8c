"""The demo's task: which library does a passage of documentation describe?

    modules -> held out or not -> passages of prose -> revealing names masked -> examples

Whole modules are held out, so that no test passage's module is in the training or pre-training text. Names of libraries
are masked, so that a model must use the rest of the passage.
"""

import inspect
import json
import os
import platform
import random
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import xxhash

from bertie.apps.pydocs import Module, PythonPackage
from bertie.platform import BertieError, File, console

LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "matplotlib", "stdlib")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")  # the user's, as the XDG specification names it
_TEST_SHARE = 0.2  # share of the modules that only the test sees
_LIBRARY_NAMES = (
    "torch pytorch numpy np scipy sp sklearn scikit scikits matplotlib mpl plt pyplot pylab python cpython stdlib"
)
NAME = "name"  # replaces the name of a library
TELLING_SHARE = 0.9  # a name of one library is telling when nine in ten of its occurrences are there
FEWEST_WORDS, MOST_WORDS = 25, 50  # of a passage; longer ones are cut, so that nearly all fit 64 tokens
MOST_NAMES = 0.3  # passages that are mostly hidden names say nothing

LIBRARIES_ABOUT = (
    "The task: which of {libraries} libraries does a passage document? Revealing names are masked: the names "
    "of the libraries, everything that looks like code, and words that occur in only one library. The same "
    "network is fine-tuned on the same {train} labeled passages with the same settings, once from the "
    "pre-trained weights and once from random weights. It is tested on {test} passages from modules that "
    "pre-training did not read. Bag of words is tf-idf with logistic regression on the same passages."
)


@dataclass(frozen=True)
class LabelledPassage:
    """A passage with its revealing names masked, its library, and its module."""

    text: str
    label: str
    module: str

    def row(self) -> dict[str, str]:
        """Returns a row of a table of examples."""
        return {"text": self.text, "label": self.label, "where": self.module}


def read_libraries(libraries: Sequence[str] = LIBRARIES, *, workers: int = 1) -> list[Module]:
    """Returns every documented module of the libraries in order, for any number of processes.

    The result is stored in the user's cache folder until a file of the libraries changes.
    """
    files = [(path, library) for library in libraries for path in PythonPackage(library).files()]
    cache, key = CACHE.expanduser() / "bertie" / "documentation.jsonl", _key(files)
    if (passages := _kept(cache, key)) is not None:
        return passages
    modules = []
    with console.progress("reading documentation", len(files), unit="files") as advance, ExitStack() as stack:
        pool = stack.enter_context(ProcessPoolExecutor(workers)) if workers > 1 else None
        for module in map(_read, files) if pool is None else pool.map(_read, files, chunksize=32):
            advance()
            if module is not None:
                modules.append(module)
    rows = [[m.package, m.name, [[p.name, p.paragraphs] for p in m.passages]] for m in modules]
    with suppress(OSError, BertieError):  # a home that cannot be written: they are read again next time
        cache.parent.mkdir(parents=True, exist_ok=True)
        with File(cache).write() as file:
            file.write("".join(json.dumps(row) + "\n" for row in ({"key": key}, *rows)).encode())
    return modules


def _key(files: Sequence[tuple[Path, str]]) -> str:
    """Returns a hash of what the modules depend on: every file's size and time, the Python version, and the reader."""
    digest = xxhash.xxh3_128(f"{platform.python_version()} {File(inspect.getfile(Module)).hash}".encode())
    for path, library in files:
        status = path.stat()
        digest.update(f"{library} {path} {status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()


def _kept(cache: Path, key: str) -> list[Module] | None:
    """Returns the modules in the cache; None where there are none, or those of other files."""
    try:
        with open(cache, encoding="utf-8") as lines:
            if json.loads(next(lines, "{}")).get("key") != key:
                return None
            return [Module.stored(package, name, passages) for package, name, passages in map(json.loads, lines)]
    except (OSError, ValueError, TypeError, AttributeError):  # no such file, or a damaged one
        return None


def _read(file: tuple[Path, str]) -> Module | None:
    with warnings.catch_warnings(action="ignore"):  # other people's invalid escapes are not the reader's concern
        return PythonPackage(file[1]).read(file[0])


def library_rows(modules: Iterable[Module]) -> list[list[object]]:
    """Returns a row per library: name, version, modules, words, modules held out."""
    rows: dict[str, list[Any]] = {}
    for module in modules:
        library = module.package
        if library not in rows:
            release = platform.python_version() if library == "stdlib" else version(library)
            rows[library] = [library, release, 0, 0, 0]
        row = rows[library]
        row[2] += 1
        row[3] += len(module.text.split())
        row[4] += is_held_out(module)
    return list(rows.values())


def is_held_out(module: Module) -> bool:
    """Returns whether a module is held out for the test: a fixed draw by its name, the same on every machine."""
    return xxhash.xxh3_64_intdigest(module.name.encode()) < _TEST_SHARE * 2**64


def labelled_passages(modules: Iterable[Module]) -> tuple[list[LabelledPassage], list[LabelledPassage]]:
    """Returns passages for training and for testing, from different modules, without common paragraphs.

    A paragraph that is in several modules ("The figure to draw on.") is removed from all of them.
    """
    modules = list(modules)
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for module in modules:
        for passage in module.passages:
            for paragraph in passage.paragraphs:
                owners[paragraph.lower()].add(module.name)
    telling = telling_words(modules)
    train: list[LabelledPassage] = []
    test: list[LabelledPassage] = []
    for module in modules:
        for passage in module.passages:
            words = " ".join(p for p in passage.paragraphs if len(owners[p.lower()]) == 1).split()
            if len(words) < FEWEST_WORDS:
                continue
            text = hide_names(" ".join(words[:MOST_WORDS]), telling)
            if len(re.findall(rf"\b{NAME}\b", text)) <= MOST_NAMES * len(text.split()):
                (test if is_held_out(module) else train).append(LabelledPassage(text, module.package, module.name))
    return train, test


def telling_words(modules: Iterable[Module]) -> frozenset[str]:
    """Returns words that reveal a library, in lower case.

    These are the libraries' names and short names, and names of modules, classes or functions of only one library (also
    in the plural). Names of the second kind occur in prose almost only in that library: "tensor" and "estimator",
    but not "module".
    """
    named_in: defaultdict[str, set[str]] = defaultdict(set)
    occurrences: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for module in modules:
        for passage in module.passages:
            for part in passage.name.lower().split("."):
                named_in[part.strip("_")].add(module.package)
            for word in re.findall(r"[a-z]+", " ".join(passage.paragraphs).lower()):
                occurrences[word][module.package] += 1
    telling = set(_LIBRARY_NAMES.split())
    for word, where in occurrences.items():
        libraries = named_in.get(word) or named_in.get(word.removesuffix("s")) or set()
        if len(libraries) == 1 and where[min(libraries)] >= TELLING_SHARE * where.total():
            telling.add(word)
    return frozenset(telling)


IDENTIFIER = re.compile(
    r"https?:\S+"
    r"|[A-Za-z_]\w*(?:\.\w+)+(?:\(\))?"  # dotted: a.b.c
    r"|\w*_\w+(?:\(\))?"  # snake_case
    r"|\b[A-Za-z]*[a-z][A-Z]\w*"  # CamelCase
    r"|\b\w+\(\)"
    r"|\b[A-Za-z]+\d\w*|\b\d+[A-Za-z_]\w*"  # float32
)


def hide_names(text: str, telling: frozenset[str]) -> str:
    """Returns the text with code-like identifiers and revealing words replaced by one ordinary word."""
    text = IDENTIFIER.sub(NAME, text)
    text = re.sub(r"[A-Za-z]+", lambda match: NAME if match[0].lower() in telling else match[0], text)
    return re.sub(rf"\b{NAME}(?:[ -]+{NAME}\b)+", NAME, text)


def draw_passages(passages: Sequence[LabelledPassage], per_label: int, *, seed: int) -> list[LabelledPassage]:
    """Returns the same number of passages of each label, drawn by `seed`, in random order."""
    rng = random.Random(seed)
    by_label: defaultdict[str, list[LabelledPassage]] = defaultdict(list)
    for passage in passages:
        by_label[passage.label].append(passage)
    drawn = [p for label in sorted(by_label) for p in rng.sample(by_label[label], min(per_label, len(by_label[label])))]
    rng.shuffle(drawn)
    return drawn


def bag_of_words(train: Sequence[LabelledPassage], test: Sequence[LabelledPassage]) -> float:
    """Returns the accuracy of a bag of words: tf-idf and logistic regression, without order and context."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(TfidfVectorizer(sublinear_tf=True), LogisticRegression(C=10.0, max_iter=1000))
    model.fit([p.text for p in train], [p.label for p in train])
    return float(model.score([p.text for p in test], [p.label for p in test]))
