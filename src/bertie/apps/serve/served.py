"""`Served`, a model of the server, and `Call`, a request to it.

examples -> token ids -> admission -> batches -> arrays -> predictions
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertie import Tokenizer
from bertie.apps.serve.admission import Admission
from bertie.apps.serve.batcher import Batcher, Failed
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.remote import OnToken
from bertie.platform import (
    EmbedTask,
    Example,
    Facts,
    ModelFolder,
    PairHead,
    Prediction,
    Sequences,
    Task,
    TextPipeline,
    TooLong,
)

T = TypeVar("T")
Segments = Callable[[], Sequence[Sequence[Sequence[int]]]]
"""For each example its one or two texts as token ids."""
OnAnswers = Callable[["Call", Sequence[Example], Sequences, Sequence[Prediction]], None]
INLINE_CHARACTERS = 2_000  # texts that are cut into tokens sooner than a thread would begin to
INLINE_TOKENS = 2_000  # answers that are decoded sooner
TOKEN_CHARACTERS = 4  # of English, to estimate the tokens of texts that wait for the tokenizer
POOL = ThreadPoolExecutor(2, "bertie-text")
VECTORS = "vectors"  # what every encoder can answer with


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

    @cached_property
    def embedder(self) -> EmbedTask:
        """The embedding task: as trained, or the mean of the tokens."""
        return EmbedTask.as_trained(self.pipeline.task_or_none)

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
        vectors = (VECTORS,) if self.embedder.output in self.facts.outputs else ()
        return (*task, *(head for head in ("mlm", "pair") if head in self.facts.heads), *vectors)

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

    def policy(self, asked: TooLong | None, task: Task | None) -> TooLong:
        """Returns the handling of long texts that is asked for, if the task has it, or that of training."""
        if asked and not (asked == "window" and task is not None and task.no_windows):
            return asked
        return self.pipeline.too_long if task is None or task is self.pipeline.task_or_none else task.too_long

    def info(self, too_long: TooLong | None = None) -> dict[str, Any]:
        """Returns the record for /info. too_long: the server's handling of long texts."""
        facts, labels = self.facts, {str(i): label for i, label in enumerate(self.facts.labels)}
        names = {"id2label": labels, "label2id": {label: int(i) for i, label in labels.items()}}
        kind = self.kinds[0]
        public = {"sequence": "classifier", "multilabel": "classifier", "rank": "reranker", "regression": "reranker"}
        model_type = {"embedding": {"pooling": self.embedder.pooling}} if kind in ("embed", VECTORS) else None
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
            "too_long": self.policy(too_long, task),
            "calibrated": getattr(task, "temperature", 1.0) != 1.0,
            "device": facts.device,
            "hidden_size": facts.hidden_size,
            "mask_token": self.tokenizer.special_tokens.get("mask"),
            "prompts": sorted(self.prompts),
            "run": self.run,
            "generation": self.generation,
        }


@dataclass(frozen=True)
class Answer:
    """One answer with its example. raw: the outputs of the head, averaged over windows."""

    prediction: Prediction
    tokens: int
    truncated: bool
    windows: int
    raw: NDArray[np.float32] | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the fields of the prediction, and how much of the text was read."""
        more = {"windows": self.windows} if self.windows > 1 else {}
        return {**self.prediction.as_json(), "tokens": self.tokens, "truncated": self.truncated, **more}


@dataclass(eq=False)
class Call:
    """One request: its options and its times in seconds. place: number of an input -> where it is in the body.

    watch: called with the examples that were answered, their ids and their predictions.
    """

    model: Served
    admission: Admission
    too_long: TooLong | None = None
    side: str = "right"
    place: Callable[[int], str] = "inputs".format
    characters: int = 0
    tokens: int = 0
    longest: int = 0
    truncated: int = 0
    texts: int = 0
    tokenization_s: float = 0.0
    queue_s: float = 0.0
    inference_s: float = 0.0
    held: ExitStack = field(default_factory=ExitStack)
    watch: OnAnswers | None = None

    def use(self) -> None:
        """Keeps the model from being stopped until `held` is closed."""
        self.model.calls += 1
        self.held.callback(self._leave)

    def _leave(self) -> None:
        self.model.calls -= 1

    def take(self, texts: int) -> None:
        """Admits a number of texts, or raises Refused."""
        self.admission.check_wait(self.model.name)
        self.texts += texts
        self.held.enter_context(self.admission.hold(self.admission.texts, texts, self.model.name))

    def take_bytes(self, size: int) -> None:
        """Admits a large response, or raises Refused; Refusal if it exceeds the whole budget."""
        budget = self.admission.content
        if size > budget.most // 2:
            raise Refusal(
                "TooLarge", f"The answer would take {size:,} bytes. Send the request in parts.", reason="answer"
            )
        self.held.enter_context(self.admission.hold(budget, size, self.model.name))

    def pipeline(self, task: Task) -> TextPipeline:
        """Returns the model's pipeline for a task, with the handling of long texts of `policy_for`."""
        return replace(self.model.pipeline, task_or_none=task, too_long=self.policy_for(task))

    def policy_for(self, task: Task) -> TooLong:
        """Returns the handling of long texts: that of the request, of the server, or of training."""
        return self.model.policy(self.too_long, task)

    async def predict(self, examples: Sequence[Example], task: Task | None = None) -> list[Answer]:
        """Returns predictions of the model's task, or of another task on the same arrays."""
        task = task or self.model.pipeline.task
        encoded = await self.begin(examples, task)
        found = await self.logits(encoded, task)
        decode = partial(task.decode, found, encoded, examples)
        predictions = await self.in_thread(decode, inline=len(encoded.input_ids) <= INLINE_TOKENS)
        if self.watch is not None and task is self.model.pipeline.task:
            self.watch(self, examples, encoded, predictions)
        raw = (
            encoded.mean_of_windows(found) if found.ndim == 2 and len(found) == len(encoded) else [None] * len(examples)
        )
        tokens, cut = encoded.tokens.tolist(), self.cut(encoded, task)
        whole = encoded.fits | (self.policy_for(task) != "window")
        windows = np.where(whole, 1, np.diff(encoded.windows)).tolist()
        return [Answer(*parts) for parts in zip(predictions, tokens, cut, windows, raw, strict=True)]

    async def begin(self, examples: Sequence[Example], task: Task, segments: Segments | None = None) -> Sequences:
        """Admits the examples and returns their token ids. segments: makes the ids of their texts."""
        self.take(len(examples))
        lengths = [sum(map(len, example.texts)) for example in examples]
        self.characters += sum(lengths)
        with self.first_batch(sum(lengths) // TOKEN_CHARACTERS, max(lengths, default=0) // TOKEN_CHARACTERS):
            return await self.encode(examples, task, segments)

    def first_batch(self, tokens: int, longest: int) -> AbstractContextManager[None]:
        """Returns the context of a request in progress. Later requests wait for its first batch, not for all of it."""
        model = self.model
        return self.admission.put_ahead(model.name, min(tokens, max(longest, model.batcher.budget)))

    async def logits(self, encoded: Sequences, task: Task) -> NDArray[np.float32]:
        """Returns the arrays that a task decodes, for all sequences in order."""
        return self.pipeline(task).logits(await self.arrays(encoded, task.outputs), encoded)

    async def encode(self, examples: Sequence[Example], task: Task, segments: Segments | None = None) -> Sequences:
        """Returns the token ids of examples, with the handling of long texts of `policy_for`."""
        pipeline = self.pipeline(task)
        policy = pipeline.too_long
        if self.side == "left" and not pipeline.plain:
            raise Refusal("Validation", "truncation_direction left is for texts that are classified or embedded.")

        def encode() -> Sequences:
            if segments is None and self.side == "right":
                return pipeline.encode(examples)
            ids = pipeline.ids(examples) if segments is None else segments()
            return pipeline.encode_ids(ids, keep="end" if self.side == "left" else "start")

        started = time.perf_counter()
        encoded = await self.in_thread(encode, inline=self.characters <= INLINE_CHARACTERS)
        self.tokenization_s += time.perf_counter() - started
        if policy == "error" and len(encoded.cut):
            place = self.place(int(encoded.cut[0]))
            message = f"`{place}` has a longer question than the model reads. Shorten it, or pass truncate: true."
            raise Refusal("Validation", message, param=place)
        if policy == "error" and len(encoded.too_long):
            place = self.place(int(encoded.too_long[0]))
            raise Refusal(
                "Validation",
                f"`{place}` has more than the {pipeline.max_length:,} tokens that the model reads. Send a shorter "
                "text, or truncate it with truncate: true.",
                param=place,
            )
        return encoded

    def cut(self, encoded: Sequences, task: Task) -> list[bool]:
        """Returns whether each example was truncated, and counts those."""
        return self.cut_by(encoded, self.policy_for(task))

    def cut_by(self, encoded: Sequences, policy: TooLong) -> list[bool]:
        """Does so for a handling of long texts."""
        long = np.zeros(encoded.examples, bool) if policy == "window" else ~encoded.fits
        long[encoded.cut] = True
        cut: list[bool] = long.tolist()
        self.truncated += sum(cut)
        return cut

    async def arrays(
        self, ids: Sequences, outputs: Sequence[str], on_token: OnToken | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """Returns the model's arrays, or hands over the tokens of a text as they are generated.

        Raises Refusal when a budget is spent or the model fails.
        """
        tokens, name = len(ids.input_ids), self.model.name
        budget = self.admission.tokens[name]
        if tokens > budget.most:
            raise Refusal(
                "TooLarge",
                f"The request has {tokens:,} tokens; the server takes {budget.most:,} at once. Send it in parts.",
                reason="tokens",
            )
        longest = int(ids.lengths.max(initial=0))
        with self.admission.hold(budget, tokens, name), self.first_batch(tokens, longest):
            try:
                found, job = await self.model.batcher.run(ids, outputs, on_token, self.model.adapter)
            except Failed as error:
                raise Refusal("Backend", str(error)) from None
        self.tokens += tokens
        self.longest = max(self.longest, longest)
        self.queue_s += job.waited_s
        self.inference_s += job.ran_s
        return found

    async def in_thread(self, work: Callable[[], T], *, inline: bool) -> T:
        """Does small work here, in turn, and other work in a thread, so that the server continues meanwhile."""
        if not inline:
            return await asyncio.get_running_loop().run_in_executor(POOL, work)
        async with self.admission.turn:
            await asyncio.sleep(0)  # the loop answers what has arrived
            return work()
