"""`Served`, a model of the server."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from bertie import Tokenizer
from bertie.apps.serve.batcher import Batcher
from bertie.platform import Facts, ModelFolder, PairHead, TextPipeline

LongTexts = Literal["truncate", "window", "error"]
VECTORS_OUTPUT = "vectors"  # what every encoder can answer with
ANY_TASK = "any task"  # what a model with a task is


@dataclass(eq=False)
class Served:
    """A model with its name.

    sha: of its config and weights. generation: how often it was loaded. calls: requests that use it now. base: the
    folder with its config and its tokenizer, for an adapter on a base that others use too.
    """

    name: str
    folder: Path
    batcher: Batcher
    sha: str = ""
    generation: int = 1
    calls: int = 0
    base: Path | None = None
    tokenizers: dict[Path, Tokenizer] = field(default_factory=dict)

    @property
    def adapter(self) -> str:
        """The name of the adapter, if it is one on a base that others use too."""
        return self.name if self.base is not None else ""

    @cached_property
    def pipeline(self) -> TextPipeline:
        """What reads texts and answers. Its worker sent the facts of the model that no file of the folder has."""
        home = self.base or self.folder
        facts = self.batcher.facts_of(self.adapter).of_folder(self.folder, ModelFolder(home).public)
        return TextPipeline.of(
            facts, self.tokenizers.get(home) or self.tokenizers.setdefault(home, Tokenizer.load(home))
        )

    @property
    def facts(self) -> Facts:
        """The facts of the model."""
        return self.pipeline.facts

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the folder."""
        return self.pipeline.tokenizer

    @property
    def scores_pairs(self) -> bool:
        """Whether it is a cross-encoder of `sentence-transformers`."""
        return self.facts.sentence.activation is not None

    @property
    def prompts(self) -> Mapping[str, str]:
        """The prompts by name."""
        return self.facts.sentence.prompts

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of requests it answers: its task, then the heads of pre-training, then vectors, if it has them."""
        task = (self.pipeline.task_name,) if self.pipeline.task_or_none else ()
        vectors = (VECTORS_OUTPUT,) if self.pipeline.embedder.output in self.facts.outputs else ()
        return (*task, *(head for head in ("mlm", "pair") if head in self.facts.heads), *vectors)

    def suits(self, kinds: Iterable[str]) -> bool:
        """Returns whether it answers one of some kinds of requests; of none: any."""
        kinds = {*kinds}
        return not kinds or bool(kinds & {*self.kinds}) or (ANY_TASK in kinds and bool(self.pipeline.task_or_none))

    @cached_property
    def content(self) -> str:
        """The hash of its files when it was loaded, as an index stores it."""
        return ModelFolder(self.folder).identity

    @cached_property
    def pairs(self) -> PairHead:
        """Its head for pairs of texts."""
        return PairHead.of(self.folder)

    @cached_property
    def run(self) -> dict[str, Any] | None:
        """The run that contains the folder, if any."""
        settings = self.folder.parent / "run.yaml"
        if not settings.is_file():
            return None
        import xxhash

        return {"name": self.folder.parent.name, "settings_xxh3": xxhash.xxh3_128_hexdigest(settings.read_bytes())}

    def policy(self, policy: LongTexts | None, pipeline: TextPipeline) -> LongTexts:
        """Returns the handling of long texts that a request wants, if the task has it, or that of training."""
        task = pipeline.task_or_none
        if policy and not (policy == "window" and task is not None and task.no_windows):
            return policy
        return self.pipeline.too_long if task is None or task is self.pipeline.task_or_none else task.too_long

    def info(self, too_long: LongTexts | None = None) -> dict[str, Any]:
        """Returns the record for /info. too_long: the server's handling of long texts."""
        facts, labels = self.facts, {str(i): label for i, label in enumerate(self.facts.labels)}
        names = {"id2label": labels, "label2id": {label: int(i) for i, label in labels.items()}}
        kind = self.kinds[0]
        public = {"sequence": "classifier", "multilabel": "classifier", "rank": "reranker", "regression": "reranker"}
        model_type = (
            {"embedding": {"pooling": self.pipeline.embedder.pooling}} if kind in ("embed", VECTORS_OUTPUT) else None
        )
        task = self.pipeline.task_or_none
        return {
            "model_id": self.name,
            "model_sha": self.sha,
            "model_dtype": facts.precision,
            "model_type": model_type or {public.get(kind, kind): names if labels else {}},
            "max_input_length": self.pipeline.max_length,
            "answers": list(self.kinds),
            "labels": list(self.facts.labels),
            "texts": self.pipeline.texts or 1,
            "too_long": self.policy(too_long, self.pipeline),
            "calibrated": getattr(task, "temperature", 1.0) != 1.0,
            "device": facts.device,
            "hidden_size": facts.hidden_size,
            "mask_token": self.tokenizer.special_tokens.get("mask"),
            "prompts": sorted(self.prompts),
            "run": self.run,
            "generation": self.generation,
        }
