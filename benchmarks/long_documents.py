"""Long documents: ways to read texts that are longer than those of training, with a deciding sentence anywhere in them.

    python -m benchmarks.long_documents --squad train-v1.1.json --work WORK      measures what the file lacks

A document is made by rule: sentences of SQuAD's paragraphs up to a number of tokens, and among them one that says what
happened to a plan. It is approved or rejected, in several words that occur nowhere else. It lies in the last three
quarters of the document, so that a model that reads the first 256 tokens of 1,024 cannot see it. The networks have two
layers of 128, random weights and one vocabulary, read as many tokens, and are trained on documents of 256 tokens. Then
they read documents of 256, 1,024 and 4,096. A line of results/long_documents.jsonl is a way to read, a length and a
seed: accuracy, processor time of training and of prediction, and the peak memory of prediction.
"""

import argparse
import datetime
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

RESULTS = Path(__file__).parent / "results" / "long_documents.jsonl"
TRAINED, LENGTHS = 256, (256, 1_024, 4_096)  # tokens of a document: in training, in the test
TOKENS, TEST = 2_500_000, 200  # read in training, all epochs together; documents of the test
EPOCHS = 2
WORD_TOKENS = 1.45  # of a word of SQuAD in the vocabulary of starter-en
GOOD = ("approved", "accepted", "adopted", "endorsed")
BAD = ("rejected", "refused", "dismissed", "vetoed")
SUBJECTS = ("The committee", "The council", "In the end the board", "After a long debate the mayor")
SIZES: dict[str, Any] = {
    **{"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512},
    **{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.05},
}
IDS = {"pad_token_id": 0, "sep_token_id": 3, "eos_token_id": 3}  # of the vocabulary of starter-en


@dataclass(frozen=True)
class Way:
    """A way to read a long document. changes: of the preset; cut: what happens beyond TRAINED tokens, None: nothing.

    network: the name of its folders, by default the preset; reads: what config.json says when it reads.
    """

    name: str
    preset: str
    changes: dict[str, Any]
    cut: Literal["truncate", "window"] | None = None
    network: str = ""
    reads: Mapping[str, Any] = field(default_factory=dict)

    def folder(self, work: Path, seed: int) -> Path:
        """Returns the folder of its network before training."""
        return work / f"{self.network or self.preset}-{seed}"


WAYS = (
    Way("BERT, the first 256 tokens", "bert-base-cased", {"max_position_embeddings": 4_096}, "truncate"),
    Way("BERT, windows of 256 tokens", "bert-base-cased", {"max_position_embeddings": 4_096}, "window"),
    Way("BERT, all tokens", "bert-base-cased", {"max_position_embeddings": 4_096}),
    Way("ModernBERT", "ModernBERT-base", {"intermediate_size": 256, "max_position_embeddings": 4_096}),
    Way("Longformer", "longformer-base-4096", {**IDS, "attention_window": 128}),
    Way("BigBird, blocks of 32", "bigbird-roberta-base", {**IDS, "block_size": 32}),
    Way(
        "BigBird, blocks of 32, read with full attention",
        *("bigbird-roberta-base", {**IDS, "block_size": 32}),
        reads={"attention_type": "original_full"},
    ),
    Way("BigBird, blocks of 16", "bigbird-roberta-base", {**IDS, "block_size": 16}, network="bigbird-blocks-of-16"),
)
COUNTS = "word counts"


def fillers(squad: Path) -> list[str]:
    """Returns the sentences of SQuAD's paragraphs, without those that have a deciding word."""
    from bertie.text.sentences import rules

    deciding = re.compile("|".join((*GOOD, *BAD)), re.IGNORECASE)
    articles = json.loads(squad.read_text(encoding="utf-8"))["data"]
    paragraphs = (one["context"] for article in articles for one in article["paragraphs"])
    return [
        one for text in paragraphs for one in rules(text) if 5 <= len(one.split()) <= 40 and not deciding.search(one)
    ]


def documents(sentences: Sequence[str], length: int, count: int, rng: random.Random) -> Iterator[dict[str, str]]:
    """Yields documents of about as many tokens, half of each label."""
    for number in range(count):
        label = ("approved", "rejected")[number % 2]
        text, words = list[str](), 0
        while words * WORD_TOKENS < length - 30:
            text.append(rng.choice(sentences))
            words += len(text[-1].split())
        place = rng.randrange(len(text) // 4 + 1, len(text) + 1)
        text.insert(place, f"{rng.choice(SUBJECTS)} {rng.choice(GOOD if number % 2 == 0 else BAD)} the plan.")
        yield {"text": " ".join(text), "label": label}


def write(squad: Path, folder: Path, seed: int) -> dict[int, Path]:
    """Returns the files of training (0) and of the test of each length, which are made first."""
    files = {0: folder / f"train-{seed}.jsonl"} | {length: folder / f"test-{length}-{seed}.jsonl" for length in LENGTHS}
    if not files[LENGTHS[-1]].exists():
        sentences, rng = fillers(squad), random.Random(seed)
        rng.shuffle(sentences)
        half = len(sentences) // 2
        for length, file in files.items():
            some = sentences[half:] if length else sentences[:half]
            count = TEST if length else TOKENS // EPOCHS // TRAINED
            lines = (json.dumps(one) for one in documents(some, length or TRAINED, count, rng))
            file.write_text("".join(f"{line}\n" for line in lines))
    return files


def trained(way: Way, seed: int, work: Path, file: Path) -> Path:
    """Returns the run of a network on short documents. Ways with the same network share it."""
    import bertie
    from bertie.models import families
    from bertie.text.tokenizer import Tokenizer

    start = way.folder(work, seed)
    run, cost = start.with_name(f"{start.name}-run"), start.with_name(f"{start.name}.json")
    tokenizer = Tokenizer.load(Path("models/starter-en"))
    if not start.exists():
        sizes = {**SIZES, **way.changes, "vocab_size": tokenizer.vocab_size}
        families.save(families.build(way.preset, heads={}, seed=seed, **sizes), start, tokenizer=tokenizer)
    if not cost.exists():
        settings = [
            *(f"max_length={TRAINED}", f"epochs={EPOCHS}", "optim.lr=1e-3", "train.batch_size=8", "pooling=mean"),
            *("label_check=none", "baselines=false", "held_out=0.02"),
            *("train.eval_every=1000000", "train.save_every=1000000"),
        ]
        began = time.process_time()
        bertie.finetune(start, train=file, task="sequence", output=run, seed=seed, overrides=settings, overwrite=True)
        seconds = round(time.process_time() - began)
        cost.write_text(json.dumps({"train_s": seconds}))
    return run


def measure(way: Way, length: int, seed: int, work: Path) -> dict[str, Any]:
    """Returns the accuracy of a way to read, with the costs of training and prediction."""
    import bertie

    files = {number: work / f"test-{number}-{seed}.jsonl" for number in LENGTHS}
    start = way.folder(work, seed)
    folder = start.with_name(f"{start.name}-run") / "model"
    if way.reads:
        folder = Path(shutil.copytree(folder, start.with_name(f"{start.name}-read"), dirs_exist_ok=True))
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **way.reads}))
    model, began = bertie.load(folder, engine="torch"), time.process_time()
    most = TRAINED if way.cut else length
    scores = bertie.evaluate(model, files[length], max_length=most, too_long=way.cut or "truncate")
    seconds = time.process_time() - began
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    return {
        **{"accuracy": round(scores["accuracy"], 4), "test_s": round(seconds, 1), "peak_bytes": 1024 * int(peak[1])},
        **json.loads(start.with_name(f"{start.name}.json").read_text()),
    }


def counted(files: dict[int, Path], length: int) -> dict[str, Any]:
    """Returns the accuracy of a linear model on word counts, which reads all of a document."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    parts = [[json.loads(line) for line in files[one].read_text().splitlines()] for one in (0, length)]
    (texts, labels), (tests, truth) = (
        ([one["text"] for one in part], [one["label"] for one in part]) for part in parts
    )
    model = make_pipeline(CountVectorizer(binary=True), LogisticRegression(max_iter=500)).fit(texts, labels)
    return {"accuracy": round(float(model.score(tests, truth)), 4)}


def main() -> None:
    """Measures the rows that the file of results does not have, each in a process of its own."""
    parser = argparse.ArgumentParser(description="Measures ways to read long documents.")
    parser.add_argument("--squad", type=Path, required=True, help="train-v1.1.json")
    parser.add_argument("--work", type=Path, required=True, help="folder of documents and runs")
    parser.add_argument("--only", nargs="+", default=[], help="ways to read")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--row", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        name, length, seed = options.row[0], int(options.row[1]), int(options.row[2])
        files = write(options.squad, options.work, seed)
        if name == COUNTS:
            print(json.dumps(counted(files, length)))
            return
        way = next(one for one in WAYS if one.name == name)
        if length:
            print(json.dumps(measure(way, length, seed, options.work)))
        else:
            trained(way, seed, options.work, files[0])
            print("{}")
        return

    from benchmarks import harness
    from benchmarks.result_lines import add_line, read_lines

    options.work.mkdir(parents=True, exist_ok=True)
    facts = harness.machine()
    machine = f"{facts['processor']}, 1 thread, torch {facts['torch']}"
    known = {(one["way"], one["length"], one["seed"]) for one in read_lines(RESULTS)}

    def process(name: str, length: int, seed: int) -> dict[str, Any]:
        shared = ["--squad", str(options.squad), "--work", str(options.work), "--row", name, str(length), str(seed)]
        command, environment = [sys.executable, "-m", "benchmarks.long_documents", *shared], {**os.environ}
        environment["OMP_NUM_THREADS"] = "1"
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-2_000:])
        return dict(json.loads(done.stdout.splitlines()[-1]))

    for seed in range(options.seeds):
        for name in (COUNTS, *(way.name for way in WAYS)):
            lengths = [length for length in LENGTHS if (name, length, seed) not in known]
            if not lengths or (options.only and name not in options.only):
                continue
            if name != COUNTS:
                process(name, 0, seed)
            for length in lengths:
                line = {"way": name, "length": length, "seed": seed, **process(name, length, seed)}
                add_line(RESULTS, {**line, "machine": machine, "date": datetime.date.today().isoformat()})


if __name__ == "__main__":
    main()
