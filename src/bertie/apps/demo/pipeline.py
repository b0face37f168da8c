"""The demo, stage by stage. Finished stages are skipped, and an interrupted stage is resumed.

    reading -> corpus -> vocabulary -> pre-training -> fine-tuning (from pre-trained, from random weights) -> report

With the documentation of installed packages, the task is to classify which library a passage documents (libraries.py).
With the user's own text, it is whether two passages are from one document (pairs.py).
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash

import bertie
from bertie import Callback, Corpus, PretrainConfig, Tokenizer
from bertie.apps.demo import libraries, masked, pairs, settings
from bertie.apps.demo.described import describe_run
from bertie.apps.demo.masked import read_lines, write_lines
from bertie.apps.demo.page import render_demo_page
from bertie.platform import File, FolderKind, SourceFiles, UsageError, console

DEMO = FolderKind(
    "demo",
    begins=("demo.json",),
    files=("*.json", "*.jsonl", "report.html"),
    folders={
        "corpus": FolderKind.named("corpus"),
        "tokenizer": FolderKind.named("tokenizer"),
        "pretrain": FolderKind.named("run"),
        "trial": FolderKind.named("run"),
        "finetune": FolderKind("folder", ("",), (), {"*": FolderKind.named("run")}),
        "task": FolderKind.named("folder"),
    },
)
_PREDICTIONS_SHOWN = 8  # predictions on the page


def run_demo(run: Path, *, text: str | None = None, minutes: float = 7.5, overwrite: bool = False) -> Path:
    """Runs the whole pipeline in the folder `run` and returns the path of its report.

    text: input of `bertie corpus`, instead of the documentation of installed packages. minutes: the time budget. Raises
    UsageError when the folder contains something else, and errors of the stages.
    """
    options = {"text": text, "minutes": minutes}
    with DEMO.held(run, overwrite=overwrite):
        if not (run / "demo.json").exists():
            File(run / "demo.json").write_json({"asked": options | _content(text), **describe_run(text)})
        elif (before := File(run / "demo.json").read_json()["asked"]) | options != before:
            DEMO.check_unchanged(run, before, before | options)
        elif before | _content(text) != before:
            raise UsageError(f"{text} has changed since the demo in {run}. Choose another folder, or pass --overwrite.")
        return DemoPipeline(run, text=text, minutes=minutes).go()


def _content(text: str | None) -> dict[str, str]:
    """Returns a hash of the files of an input, if there is one. Raises DataError for a missing file."""
    if text is None:
        return {}
    names = SourceFiles.of([text]).names
    hashes = [File(name).hash if Path(name).is_file() else name for name in names]
    return {"content": xxhash.xxh3_128_hexdigest("\n".join(hashes).encode())}


class DemoPipeline:
    """One run of the demo in its folder."""

    def __init__(self, run: Path, *, text: str | None, minutes: float) -> None:
        self.run, self.text, self.minutes = run, text, minutes
        self.stages: dict[str, Any] = File(run / "stages.json").read_json() if (run / "stages.json").exists() else {}
        self.begun: float | None = None  # of the stage that runs

    def go(self) -> Path:
        """Runs the remaining stages, and returns the path of the report."""
        stages: dict[str, Callable[[], dict[str, Any]]] = {
            "reading": self.reading,
            "corpus": self.corpus,
            "vocabulary": self.vocabulary,
            "pre-training": self.pretraining,
            "fine-tuning": self.finetuning,
        }
        if self.text is not None:
            del stages["reading"]
        for number, (name, stage) in enumerate(stages.items(), 1):
            if self.stages.get(name, {}).get("done"):
                continue
            console.say(f"[bold]{number}/{len(stages)} {name}[/]", markup=True)
            with self.clock(name) as entry:
                entry["facts"] = stage()
                entry["done"] = True
            console.say(f"{entry['facts']['throughput']} [dim]({entry['seconds']:.0f} s)[/]", markup=True)
        report = self.run / "report.html"
        render_demo_page(self.run).save(report)
        return report

    @contextmanager
    def clock(self, name: str) -> Iterator[dict[str, Any]]:
        """Context that adds its time to that of the stage, also when it is interrupted; yields the stage's entry."""
        entry = self.stages.setdefault(name, {"seconds": 0.0, "facts": {}, "done": False})
        self.begun = time.monotonic()
        try:
            yield entry
        finally:
            entry["seconds"] = round(entry["seconds"] + time.monotonic() - self.begun, 2)
            self.begun = None
            File(self.run / "stages.json").write_json(self.stages)

    def left_s(self) -> float:
        """Returns the remaining seconds of the time budget."""
        running_s = 0.0 if self.begun is None else time.monotonic() - self.begun
        spent_s: float = sum(stage["seconds"] for stage in self.stages.values())
        return 60 * self.minutes - spent_s - running_s

    def built(self, tokenizer: Tokenizer | None = None) -> Corpus:
        """Returns the corpus, which is built and encoded where it is not yet."""
        inputs, dedup = (self.run / "documents.jsonl", "paragraphs") if self.text is None else (self.text, "documents")
        return bertie.build_corpus(inputs, self.run / "corpus", dedup=dedup, tokenizer=tokenizer)

    # The stages; each returns its facts for the page.

    def reading(self) -> dict[str, Any]:
        """Documentation of installed packages -> documents for pre-training, labeled passages for fine-tuning and
        testing."""
        modules = libraries.read_libraries(workers=os.cpu_count() or 1)
        training = [module for module in modules if not libraries.is_held_out(module)]
        write_lines(self.run / "documents.jsonl", ({"text": m.text, "module": m.name} for m in training))
        train, test = libraries.labelled_passages(modules)
        test = libraries.draw_passages(test, settings.TEST // len(libraries.LIBRARIES), seed=0)
        chosen = {seed: libraries.draw_passages(train, settings.PER_LABEL, seed=seed) for seed in settings.DEMO_SEEDS}
        self.write_task(
            {seed: [p.row() for p in passages] for seed, passages in chosen.items()},
            [p.row() for p in test],
            labels=list(libraries.LIBRARIES),
            bag_of_words=[libraries.bag_of_words(passages, test) for passages in chosen.values()],
            shown=f"“{libraries.NAME}” replaces a masked name.",
            about=libraries.LIBRARIES_ABOUT.format(
                libraries=len(libraries.LIBRARIES), train=len(next(iter(chosen.values()))), test=len(test)
            ),
        )
        words = sum(len(module.text.split()) for module in modules)
        return {
            "sources": libraries.library_rows(modules),
            "throughput": f"{words:,} words of prose from {len(modules):,} modules",
        }

    def corpus(self) -> dict[str, Any]:
        """Documents -> clean, split, deduplicated shards."""
        self.built()
        card = File(self.run / "corpus" / "card.json").read_json()
        records = card["records"]
        dropped = ", ".join(f"{reason} ({count:,})" for reason, count in records["dropped"].items())
        return {
            "words": card["words"],
            "documents": card["documents"],
            "about": "One document per module, without the modules of the test."
            if self.text is None
            else f"Read from {self.text}.",
            "card": [
                *((name, card[name]) for name in ("documents", "sentences", "words", "characters")),
                ("records read", records["in"]),
                ("records dropped", dropped or "none"),
                ("words a sentence", card["words_per_sentence"]["mean"]),
                ("sentences a document", card["sentences_per_document"]["mean"]),
            ],
            "throughput": f"{card['input_mb_per_s']:.1f} MB/s",
        }

    def vocabulary(self) -> dict[str, Any]:
        """Sentences -> a WordPiece vocabulary, and the corpus as token ids."""
        tokenizer = bertie.train_tokenizer(
            self.run / "corpus", self.run / "tokenizer", size=settings.VOCABULARY_SIZE, lowercase=True, overwrite=True
        )
        tokens = self.built(tokenizer).tokens
        assert tokens is not None, "the corpus is encoded"
        return {
            "tokens": tokens.tokens,
            "throughput": f"{tokenizer.vocab_size:,} tokens; {tokens.per_word:.2f} of them per word of the text",
        }

    def pretraining(self) -> dict[str, Any]:
        """Token ids -> a small BERT, with predictions for masked words at some steps."""
        plan, tokenizer = self.run / "pretrain.json", Tokenizer.load(self.run / "tokenizer")
        if not plan.exists():
            File(plan).write_json(self.plan().model_dump(mode="json"))
        config = PretrainConfig.model_validate(File(plan).read_json())
        steps = config.train.steps
        looks, sentences = masked.looks(steps), list(masked.DEMO_SENTENCES)
        if self.text is not None:
            sentences = masked.of_documents(self.documents()[1], tokenizer, len(masked.DEMO_SENTENCES))

        guesses = self.run / "guesses.jsonl"

        class Look(Callback):
            def on_step(self, run: masked.Training, step: int, metrics: Mapping[str, float]) -> None:
                if step in looks and sentences:
                    masked.write_predictions(run, tokenizer, sentences, step=step, path=guesses)

        bertie.pretrain(config=config, output=self.run / "pretrain", callbacks=[Look()])
        planned = File(self.run / "pretrain/results.json").read_json()["plan"]
        lines = [line for line in read_lines(self.run / "pretrain/metrics.jsonl") if line["kind"] == "train"]
        tokens = sum(line["tokens"] for line in lines)
        rate = tokens / lines[-1]["elapsed_s"]
        return {
            "masked": settings.MASKED,
            "steps": steps,
            "tokens": tokens,
            "tokens_per_s": rate,
            **{name: planned[name] for name in ("parameters", "epochs", "precision")},
            "throughput": f"{rate:,.0f} tokens/s, {tokens / 1e6:.1f} M tokens",
        }

    def plan(self) -> PretrainConfig:
        """Returns as many steps as fit into the remaining time, after a trial on this machine."""
        size = {
            "tokens": self.stages["vocabulary"]["facts"]["tokens"],
            "documents": self.stages["corpus"]["facts"]["documents"],
        }
        config = settings.pretraining(self.run, steps=settings.TRIAL_STEPS, **size)
        half = {"log_every": settings.TRIAL_STEPS // 2, "eval_every": settings.TRIAL_STEPS}  # the second half is timed
        config = config.model_copy(update={"train": config.train.model_copy(update=half)})
        bertie.pretrain(config=config, output=self.run / "trial", overwrite=True)
        trial = File(self.run / "trial/results.json").read_json()
        steps, seeds = settings.affordable_run(
            settings.MachineTrial(trial["train"]["tokens_per_s"], trial["valid"].get("took_s", 0.0)),
            seconds=self.left_s(),
            tokens=size["tokens"],
            tokens_per_step=trial["plan"]["tokens_per_step"],
        )
        console.say(f"{trial['train']['tokens_per_s']:,.0f} tokens/s here: {steps:,} steps, then {seeds} seeds")
        return settings.pretraining(self.run, steps=steps, **size)

    def finetuning(self) -> dict[str, Any]:
        """Fine-tunes the same network on the same few examples, from pre-trained and from random weights, for every
        seed.

        Beyond FEWEST_SEEDS, a seed that would not fit into the remaining time is not started.
        """
        if self.text is not None and not (self.run / "task.json").exists():
            self.own_task()
        task = File(self.run / "task.json").read_json()
        if "skipped" in task:
            return {"throughput": "skipped"}
        seeds: list[int] = []
        slowest_s = 0.0
        for seed in task["seeds"]:
            longer_s = slowest_s * settings.LONGER / len(settings.START_NAMES)
            if len(seeds) >= settings.FEWEST_SEEDS and self.left_s() < slowest_s + longer_s:
                break
            begun = time.monotonic()
            for start, name in settings.START_NAMES.items():
                console.say(f"seed {seed}, {name}")
                config = settings.finetuning(self.run, start=start, seed=seed)
                run = bertie.finetune(config=config, output=self.run / f"finetune/{start}-{seed}")
                console.say(f"accuracy {run.scores['accuracy']:z.3f}")
            slowest_s = max(slowest_s, time.monotonic() - begun)
            seeds.append(seed)
        longer = settings.LONGER * settings.EPOCHS
        console.say(f"seed {seeds[0]}, random weights, {longer} epochs")
        config = settings.finetuning(self.run, start="random", seed=seeds[0], epochs=longer)
        bertie.finetune(config=config, output=self.run / "finetune/longer")
        if seeds != task["seeds"]:
            bag = {"bag_of_words": task["bag_of_words"][: len(seeds)]} if "bag_of_words" in task else {}
            File(self.run / "task.json").write_json(task | {"seeds": seeds} | bag)
        self.predictions(seeds[0])
        return {"throughput": f"{len(settings.START_NAMES) * len(seeds)} runs of {task['examples']} examples"}

    def predictions(self, seed: int) -> None:
        """Returns the predictions of one seed's pre-trained model for a few test examples."""
        rows = read_lines(self.run / "task/test.jsonl")[:_PREDICTIONS_SHOWN]
        model = bertie.load(self.run / f"finetune/pretrained-{seed}", engine="torch")
        texts = [row["text"] if "text" in row else (row["sentence1"], row["sentence2"]) for row in rows]
        shown = [
            {"texts": [text] if isinstance(text, str) else text, **row, "scores": dict(prediction.scores)}
            for text, row, prediction in zip(texts, rows, model.predict(texts), strict=True)
        ]
        File(self.run / "predictions.json").write_json(shown)

    # The user's own text.

    def documents(self) -> tuple[list[list[str]], list[list[str]]]:
        """Returns the user's documents for pre-training, and the held-out ones, as sentences."""
        return Corpus.open(self.run / "corpus").split(Tokenizer.load(self.run / "tokenizer"))

    def own_task(self) -> None:
        """Returns pairs of passages from the user's documents, or the reason why there are none."""
        documents = pairs.split_documents(*self.documents())
        if documents is None:
            File(self.run / "task.json").write_json({"skipped": pairs.SKIP_REASONS})
            return
        train, test, note = documents
        count = settings.PER_LABEL * len(libraries.LIBRARIES)
        self.write_task(
            {seed: [pair.row() for pair in pairs.draw_pairs(train, count, seed=seed)] for seed in settings.DEMO_SEEDS},
            [pair.row() for pair in pairs.draw_pairs(test, settings.TEST, seed=0)],
            labels=list(pairs.PAIR_LABELS),
            about=pairs.PAIRS_ABOUT.format(train=count, test=settings.TEST, seen=note),
        )

    def write_task(self, train: dict[int, list[dict[str, str]]], test: list[dict[str, str]], **facts: object) -> None:
        """Writes the task's files, and task.json last."""
        folder = self.run / "task"
        folder.mkdir(exist_ok=True)
        write_lines(folder / "test.jsonl", test)
        for seed, rows in train.items():
            write_lines(folder / f"train-{seed}.jsonl", rows)
        File(self.run / "task.json").write_json(
            {"seeds": list(train), "examples": len(next(iter(train.values()))), "shown": "", **facts}
        )
