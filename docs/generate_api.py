"""The page of the Python API, made of signatures and docstrings."""

import inspect
import re
import textwrap
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any

from generate_tables import dataclass_table, page, plain, table

TOPICS = {  # the public names, in the order in which they are used
    "Fine-tune": ("finetune", "finetune_against", "plan_finetune", "tune", "FinetuneConfig", "Run", "Scores"),
    "Use a model": (
        *("load", "Model", "predict", "Predictions", "evaluate", "embed", "similarity", "rank", "fill_mask"),
        *("write", "perplexity", "next_sentence"),
    ),
    "Search, serve, and watch what is served": ("build_index", "open_index", "serve", "drift"),
    "Watch a run": (
        "Callback",
        "StopTraining",
        "EarlyStopping",
        "TensorBoard",
        "MLflow",
        "WandB",
        "Trackio",
        "progress",
    ),
    "Pre-train": (
        *("build_corpus", "Corpus", "train_tokenizer", "load_tokenizer", "report_tokenizer", "Tokenizer"),
        *("pretrain", "plan_pretrain", "PretrainConfig", "EncoderConfig"),
    ),
    "Runs": ("compare", "verify", "write_report", "export_checkpoint"),
    "Change a model": ("convert", "grow", "shrink", "extend_vocabulary", "trim_vocabulary"),
    "Understand a model": ("probe", "words"),
    "Names": ("info", "presets", "list_families", "list_models", "data_sets", "download", "upload", "register"),
}
RESULTS = (
    *("bertie.tasks.answerer.Prediction", "bertie.api.results.Ranked", "bertie.api.results.Explanation"),
    "bertie.api.results.Written",
    *("bertie.apps.drift.api.Drift", "bertie.apps.drift.compare.QuantityDrift", "bertie.apps.drift.api.UnlikeRow"),
    *("bertie.infer.fill.MaskPrediction", "bertie.infer.layers.TokenVectors", "bertie.infer.predict.Predictor"),
    *(
        "bertie.api.run.Plan",
        "bertie.api.tune.Search",
        "bertie.api.folders.Comparison",
        "bertie.runs.verify.Verification",
    ),
    *("bertie.apps.search.searcher.Searcher", "bertie.apps.search.searcher.Found", "bertie.apps.serve.api.Server"),
    *("bertie.api.corpus.CorpusPlan", "bertie.text.encoding.Encoding", "bertie.apps.tokens.report.TokenizerReport"),
    *("bertie.models.convert.Converted", "bertie.api.change.ChangedModel"),
    *("bertie.apps.probe.api.ProbeResults", "bertie.apps.probe.api.WordContexts"),
    *("bertie.api.describe.ModelInfo", "bertie.api.describe.Preset", "bertie.api.describe.FamilyInfo"),
    *("bertie.train.callbacks.TrainingRun",),
    *("bertie.models.names.NamedModel", "bertie.tasks.datasets.PublishedSet", "bertie.apps.transfer.api.Uploaded"),
    *("bertie.apps.transfer.api.Downloaded", "bertie.apps.transfer.api.Remote", "bertie.tasks.datasets.CheckedFile"),
    *("bertie.runs.forecast.RunForecast", "bertie.apps.tokens.report.ScriptCounts"),
    *("bertie.tasks.render.RenderedExample", "bertie.tasks.render.TextSpan"),
)
"""What public functions return that has no name in `bertie`."""
WORLD = """\
The examples start from these values and files, and print what they show. A test runs each of them.

```python
import bertie, pandas

reviews = pandas.read_csv("reviews.csv")  # 36 rows with the columns review and stars (good or bad)
run = bertie.finetune("starter-en", reviews, text="review", label="stars", epochs=3, output="runs/reviews")
model = run.model
texts = [...]  # 288 sentences
```

`notes.txt` has 40 short documents, and `corpora/notes` and `tokenizers/notes` were made of it. `runs/tiny` is a model
that was pre-trained on it for two steps, `runs/other` a classifier of that, and `runs/vectors` its sentence embeddings.
"""
# Functions and classes of the Python API outside `import bertie`, which the pages use.
MORE_API = (
    *("bertie.data.corpus.build_shards", "bertie.data.corpus.texts", "bertie.apps.sample.table"),
    *("bertie.text.vocabulary.count_words", "bertie.text.vocabulary.train_vocabulary"),
    "bertie.infer.engine.Engine",
)


def python_api() -> str:
    """Every public name of `bertie` and `bertie.sklearn` by topic, and what they return."""
    import bertie
    import bertie.sklearn

    topics = {
        **TOPICS,
        "In scikit-learn": tuple(f"sklearn.{name}" for name in bertie.sklearn.__all__),
    }
    listed = [f"bertie.{name}" for names in topics.values() for name in names]
    if lacking := [name for name in bertie.__all__ if f"bertie.{name}" not in listed]:
        raise ValueError(f"TOPICS in docs/generate.py lacks {', '.join(lacking)}.")
    parts = [WORLD]
    for title, names in (*topics.items(), ("What functions return", RESULTS), ("Other modules", MORE_API)):
        paths = [name if name.startswith("bertie.") else f"bertie.{name}" for name in names]
        rows = ((f"[`{_short(path)}`](#{path.lower().replace('.', '-')})", plain(_first(path))) for path in paths)
        parts += [f"## {title}\n", table(("name", "what it is"), rows)]
        for path in paths:
            parts += [f"({path.lower().replace('.', '-')})=\n", f"### {_short(path)}\n", _described(path)]
    return page("Python API", "Public classes and functions. Names not listed here may change in any version.", *parts)


def _short(path: str) -> str:
    """The name as a program writes it: `finetune`, `sklearn.TextClassifier`."""
    name = path.removeprefix("bertie.")
    return name if name.count(".") < 2 and not name.startswith(("api.", "apps.")) else name.rpartition(".")[2]


def _thing(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def _first(path: str) -> str:
    return " ".join((inspect.getdoc(_thing(path)) or "").split("\n\n")[0].split())


def _described(path: str) -> str:
    thing = _thing(path)
    if not inspect.isclass(thing):
        return _directive("function", path, thing, _doc(thing))
    body = [_doc(thing)]
    if is_dataclass(thing):
        body.append(dataclass_table(thing, skip=()))
    elif hasattr(thing, "model_fields"):
        body.append("Its keys are in [the configuration](configuration.md).\n")
    own = [base for base in reversed(thing.__mro__) if base.__module__.startswith("bertie")]
    for member, value in {name: value for base in own for name, value in vars(base).items()}.items():
        if member.startswith("_") or not inspect.getdoc(value):
            continue
        if isinstance(value, property):
            kind = f":type: {_returned(value.fget)}\n\n" if _returned(value.fget) else ""
            body.append(_directive("property", member, None, kind + _doc(value)))
        elif isinstance(value, (staticmethod, classmethod)) or inspect.isfunction(value):
            body.append(_directive("method", member, getattr(thing, member), _doc(value)))
    # colons around, as a directive needs more of them than any inside it
    bare = hasattr(thing, "model_fields") or is_dataclass(thing)  # the table has its fields and defaults
    return _directive("class", path, None if bare else thing, "\n".join(body), "::::")


def _directive(kind: str, name: str, thing: Any, body: str, fence: str = ":::") -> str:
    returned = f" -> {_returned(thing)}" if kind != "class" and thing is not None and _returned(thing) else ""
    above = "" if body.startswith(":") else "\n"  # an option of the directive
    return f"{fence}{{py:{kind}}} {name}{_signature(thing)}{returned}\n{above}{body}\n{fence}\n"


def _signature(thing: Any) -> str:
    if thing is None:
        return ""
    try:
        given = inspect.signature(thing)
    except (TypeError, ValueError):
        return "()"
    names = [p.replace(annotation=p.empty) for p in given.parameters.values() if p.name not in ("self", "cls")]
    names = [p.replace(default=_Something()) if repr(p.default).startswith("<") and p.default is not p.empty else p
             for p in names]  # fmt: skip
    return re.sub(r"\s+", " ", str(inspect.Signature(names)))


def _returned(thing: Any) -> str:
    """What a function returns, without the modules of types; "" for nothing."""
    kind = inspect.signature(thing).return_annotation
    if kind in (None, "None", inspect.Signature.empty):
        return ""
    text = (kind if isinstance(kind, str) else inspect.formatannotation(kind)).replace("'", "")
    text = re.sub(r"numpy\.ndarray\[tuple\[Any, \.\.\.\], numpy\.dtype\[numpy\.(\w+)\]\]", r"NDArray[\1]", text)
    return re.sub(r"\b(?:bertie\.[a-z_.]*\.|pathlib\.|collections\.abc\.|typing\.)", "", text)


class _Something:
    """A default whose own text says nothing to a reader."""

    def __repr__(self) -> str:
        return "..."


def _doc(thing: Any) -> str:
    """A docstring as Markdown: paragraphs, sections such as "Args:" as lists, indented blocks as code."""
    blocks = []
    for block in re.split(r"\n\s*\n", inspect.getdoc(thing) or ""):
        head, _, rest = block.partition("\n")
        if re.fullmatch(r"(Args|Returns|Raises|Yields|Attributes):", head):
            one = head in ("Returns:", "Yields:")  # whose lines are one text
            entries = [" ".join(rest.split())] if one else re.split(r"\n(?=\S)", textwrap.dedent(rest))
            blocks.append(f"**{head}**\n\n" + "\n".join(f"* {plain(entry)}" for entry in entries))
        elif head == "Example:":
            blocks.append(f"**Example**\n\n```pycon\n{textwrap.dedent(rest)}\n```")
        elif block.startswith("    "):
            blocks.append(f"```text\n{textwrap.dedent(block)}\n```")
        else:
            blocks.append(plain(block))
    return "\n\n".join(blocks) + "\n"
