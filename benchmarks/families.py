"""The families under equal conditions: each with its own objective and vocabulary, on as many tokens of the same text.

    python -m benchmarks.families --corpus CORPUS --data-dir DATA --work WORK      measures what the file lacks
    python -m benchmarks.families ... --size small --tokens 100000000 --seeds 3     the large table, for a GPU

A row is a value: a preset, and in what it differs. Sizes, optimizer, steps and dropout are the same for all; objective
and kind of vocabulary are those of the family's recipe. Each pre-trained model is then fine-tuned on the same examples.
Beside them are simple methods on word counts, random weights of BERT's network, and peers without an encoder, with
BERT's vocabulary and training loop: a mean of vectors, an LSTM, a GRU and convolutions, on random vectors or those of
gensim's word2vec (pip install 'bertie[vectors]'), which reads as many tokens. A row and a seed are a line of
results/families.jsonl. A pre-training that is in WORK is not repeated.
"""

import argparse
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

import bertie
from benchmarks import harness
from benchmarks.cells import NEVER, finetuned, measured
from benchmarks.result_lines import add_line, read_lines
from benchmarks.results import ROWS, examples_of
from bertie.errors import DataError, UsageError, nearest
from bertie.evaluation.baselines import baselines
from bertie.models import families
from bertie.runs.config import FinetuneConfig, PretrainConfig
from bertie.runs.examples import Examples
from bertie.runs.finetune_prepare import prepare_run, with_steps
from bertie.runs.layout import MODEL
from bertie.runs.pretrain import plan_pretraining, run_pretrain
from bertie.runs.untrained import Vectors, write_untrained
from bertie.settings import build_config
from bertie.tasks.datasets import DATASETS
from bertie.text.tokenizer import Tokenizer
from bertie.train.schedule import usual_rate

RESULTS = Path(__file__).parent / "results" / "families.jsonl"
BERT, IB_BERT, RANDOM, COUNTS = "BERT", "IB-BERT, MobileBERT's teacher", "random weights", "word counts"
SIZES = {"tiny": (2, 128), "small": (6, 384)}  # layers, hidden size
TASKS = ("sst2", "conll2003", "stsb", "nsmc")
EXAMPLES, DEV = 4_000, 1_000  # of a task, evenly spaced
VOCABULARY, LENGTH, BATCH = 8_000, 64, 32
RATE = 4e-3  # of Muon, as in the recipe pretrain-ten-minutes
OF_ATTENTION = ("num_attention_heads", "attention_probs_dropout_prob")
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """A row of the table.

    changes: of the model's sizes, None: no such size; objectives: that differ from the family's recipe.
    """

    name: str
    preset: str
    changes: Values | None = None
    objectives: Values | None = None


def rows_of(size: str, model_of: Callable[[str], Path]) -> list[Row]:
    """Returns the pre-trained rows at a size. model_of: returns the model folder of an earlier row, a teacher's."""
    layers, width = SIZES[size]
    # twice BERT's layers; inside, half of the width (published: a quarter), and in the teacher twice the width
    deep = {"num_hidden_layers": 2 * layers, "embedding_size": width // 2}
    narrow = {**deep, "bottleneck_size": width // 2, "intermediate_size": width}
    wide = {**deep, "bottleneck_size": 2 * width, "intermediate_size": 8 * width}
    teacher = {"teacher": str(model_of(IB_BERT)), "weight": 1, "cosine": 0}
    half = list(range(0, layers, 2))
    return [
        Row(BERT, "bert-base-cased"),
        Row("BERT without next sentences", "bert-base-cased", objectives={"nsp": None}),
        Row("RoBERTa", "roberta-base"),
        Row("ELECTRA", "electra-small-discriminator", {"embedding_size": width}),
        Row("ALBERT", "albert-base-v2", {"embedding_size": width // 2}),
        Row("XLNet", "xlnet-base-cased"),
        Row("GPT-2", "gpt2"),
        Row("BERT, left to right", "bert-base-ltr", objectives={"mlm": None, "nsp": None, "ltr": {}}),
        Row("T5", "t5-small", {"num_decoder_layers": layers}),
        Row(
            "DistilBERT",
            "distilbert-base-uncased",
            {"num_hidden_layers": len(half)},
            {"distil": {"teacher": str(model_of(BERT)), "layers": half}},
        ),
        Row("ModernBERT", "ModernBERT-base"),
        Row("DeBERTa", "deberta-v3-base"),
        Row("MPNet", "mpnet-base"),
        Row("NomicBERT", "nomic-bert-2048"),
        Row("MobileBERT", "mobilebert-uncased", narrow),
        Row(IB_BERT, "ib-bert-large", wide),
        Row("MobileBERT, taught words", "mobilebert-uncased", narrow, {"distil": teacher}),
        Row(
            "MobileBERT, taught layers",
            "mobilebert-uncased",
            narrow,
            {"distil": {**teacher, "features": 1, "attention": 1}},
        ),
        Row(  # each direction has half of the width
            "ELMo",
            "elmo-small",
            {"hidden_size": width // 2, "intermediate_size": 2 * width, **dict.fromkeys(OF_ATTENTION)},
        ),
        Row("Longformer", "longformer-base-4096", {"attention_window": LENGTH // 2}),
        Row("BigBird", "bigbird-roberta-base", {"block_size": LENGTH // 8, "num_random_blocks": 1}),
    ]


@dataclass(frozen=True)
class Peer:
    """A network that nobody pre-trains. vectors: whether word2vec gives its word vectors."""

    name: str
    preset: str
    vectors: bool


PEER_RATE = 5e-3
PEERS = (
    Peer("mean of word2vec", "bag", vectors=True),
    Peer("LSTM", "lstm", vectors=False),
    Peer("GRU", "gru", vectors=False),
    Peer("CNN", "cnn", vectors=False),
    Peer("LSTM on word2vec", "lstm", vectors=True),
)


@dataclass(frozen=True)
class Table:
    """What all rows share. tokens: that a pre-training reads; rates: of Muon, the best of which on dev is reported."""

    corpus: str
    data_dir: Path
    work: Path
    size: str = "tiny"
    tokens: int = 4_000_000
    rates: tuple[float, ...] = (RATE,)
    tasks: tuple[str, ...] = TASKS

    def __post_init__(self) -> None:
        for kind, names, choices in (("size", (self.size,), SIZES), ("task", self.tasks, ROWS)):
            if unknown := next((name for name in names if name not in choices), None):
                raise UsageError(f"Unknown {kind} {unknown!r}. {nearest(unknown, choices)}")

    @property
    def folder(self) -> Path:
        """The folder of the pre-training runs of these sizes."""
        return self.work / f"{self.size}-{self.tokens}"

    def rows(self, seed: int) -> list[Row]:
        """Returns the pre-trained rows; students learn from the teachers of the same seed."""
        return rows_of(self.size, lambda row: self.run_of(row, seed, self.rates[0]) / MODEL)

    def run_of(self, row: str, seed: int, rate: float) -> Path:
        """Returns the folder of a pre-training run."""
        return self.folder / f"{re.sub(r'[^a-z0-9]+', '-', row.lower())}-{rate:g}-{seed}"

    def tokenizer(self, preset: str) -> Path:
        """Returns the folder of a vocabulary of the family's kind, trained on the corpus first if it is not there."""
        family = families.family(preset)
        kind = "bert" if family.tokenizer in ("wordpiece", "characters") and family.model_type != "mpnet" else ""
        kind = kind or ("roberta" if family.model_type == "longformer" else family.model_type)
        folder = self.work / "tokenizers" / kind
        if not folder.exists():
            bertie.train_tokenizer(self.corpus, folder, size=VOCABULARY, family=kind)
        return folder

    def config(self, row: Row, seed: int, rate: float, steps: int) -> PretrainConfig:
        """Returns the pre-training run of a row: the family's objectives and sizes, and what all rows share."""
        layers, width = SIZES[self.size]
        preset = families.config(row.preset)
        sizes: dict[str, Any] = {
            "num_hidden_layers": layers,
            "hidden_size": width,
            "num_attention_heads": width // 64,
            "intermediate_size": round(width * preset.intermediate_size / preset.hidden_size),
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        }
        if preset.initializer_range == 0.02:  # for a width of 768
            sizes["initializer_range"] = round(0.02 * (768 / width) ** 0.5, 3)
        sizes = {name: value for name, value in {**sizes, **(row.changes or {})}.items() if value is not None}
        tree: dict[str, Any] = {
            "corpus": self.corpus,
            "tokenizer": str(self.tokenizer(row.preset)),
            "model": row.preset,
            "model_overrides": sizes,
            "objectives": {**families.family(row.preset).recipe["objectives"], **(row.objectives or {})},
            "max_length": LENGTH,
            "optim": {"name": "muon", "lr": rate, "warmup": 0.1},
            "train": {
                **{"steps": steps, "batch_size": BATCH, "seed": seed},
                **{"eval_every": NEVER, "save_every": 500, "log_every": 100},
            },
        }
        return build_config(PretrainConfig, tree)

    @cached_property
    def examples(self) -> dict[str, Examples]:
        """The examples of each task."""
        return examples_of(self.tasks, self.data_dir, EXAMPLES, DEV)

    def peer(self, peer: Peer, seed: int) -> Path:
        """Returns the folder of a peer, which is made first."""
        folder = self.folder / f"{peer.name.lower().replace(' ', '-')}-{seed}"
        if not folder.exists():
            tokenizer, width = Tokenizer.load(self.tokenizer("bert-base-cased")), SIZES[self.size][1]
            if peer.preset == "cnn":
                width -= width % 3  # as many filters of each width
            vectors = self.word2vec(tokenizer, width, seed) if peer.vectors else None
            changes = {"hidden_size": width, "hidden_dropout_prob": 0.0}
            write_untrained(peer.preset, folder, tokenizer, vectors, seed=seed, changes=changes)
        return folder

    def word2vec(self, tokenizer: Tokenizer, width: int, seed: int) -> Vectors:
        """Returns vectors of the tokens of the corpus by skip-gram."""
        from gensim.models import Word2Vec

        texts, count = list[list[str]](), 0
        for document in bertie.Corpus.open(self.corpus):
            texts += [list(map(str, tokenizer.encode(sentence).ids[1:-1])) for sentence in document]
            count += sum(map(len, texts[-len(document) :]))
            if count >= self.tokens:
                break
        model = Word2Vec(texts, vector_size=width, sg=1, min_count=1, epochs=1, workers=1, seed=seed)
        return [tokenizer.id_to_token(int(word)) for word in model.wv.index_to_key], model.wv.vectors

    def finetuning(
        self, name: str, model: Path, seed: int, *, scratch: bool = False, more: Values | None = None
    ) -> FinetuneConfig:
        """Returns a fine-tuning run with the default learning rate of the width, times that of the task."""
        train = {"batch_size": ROWS[name].batch_size, "seed": seed, "eval_every": NEVER, "save_every": NEVER}
        settings = {"model": str(model), "max_length": LENGTH, "from_scratch": scratch, "train": train}
        settings |= {"optim": {"lr": ROWS[name].rate * usual_rate(SIZES[self.size][1])}, **(more or {})}
        if DATASETS[ROWS[name].data].task == "tagging":
            settings.pop("pooling", None)
        return build_config(FinetuneConfig, settings)

    def scores(
        self, model: Path, seed: int, *, scratch: bool = False, more: Values | None = None
    ) -> dict[str, float | str]:
        """Returns the main dev score of each task, or why there is none."""
        scores: dict[str, float | str] = {}
        for name, examples in self.examples.items():
            try:
                one = finetuned(self.finetuning(name, model, seed, scratch=scratch, more=more), examples)
                scores[name] = round(one[examples.metrics[0]], 4)
            except (DataError, UsageError) as error:
                scores[name] = str(error)
        return scores

    def counted(self, model: Path) -> dict[str, float | str]:
        """Returns the best score of the simple methods on words, which learn from the same examples."""
        scores: dict[str, float | str] = {}
        for name, examples in self.examples.items():
            config = with_steps(self.finetuning(name, model, 0), len(examples.train))
            task = prepare_run(config, examples).task
            best = 0.0
            for predictions in baselines(task, examples.train, examples.dev).values():
                counts = task.scores()
                task.count(counts, examples.dev, predictions)
                best = max(best, counts.compute()[examples.metrics[0]])
            scores[name] = round(best, 4)
        return scores


def pretrained(table: Table, row: Row, seed: int, rate: float) -> dict[str, Any]:
    """Pre-trains a row for the tokens of the table, or resumes it, and returns its facts."""
    run = table.run_of(row.name, seed, rate)

    def measure() -> dict[str, Any]:
        planned = plan_pretraining(table.config(row, seed, rate, 100), trial=0)
        steps = max(1, round(table.tokens / planned["tokens_per_step"]))
        began = time.process_time()
        results = run_pretrain(table.config(row, seed, rate, steps), run)
        facts = {name: results["plan"][name] for name in ("parameters", "flops")}
        valid = {name: round(value, 4) for name, value in results["valid"].items() if isinstance(value, float)}
        seconds = round(time.process_time() - began)
        return {"steps": steps, "tokens": steps * planned["tokens_per_step"], "seconds": seconds, **facts, **valid}

    return measured(run.parent / f"{run.name}.json", measure)


def measure_row(table: Table, row: Row, seed: int) -> dict[str, Any]:
    """Returns the facts and scores of a row: those of the rate with the lowest loss on held-out documents."""
    runs = {rate: pretrained(table, row, seed, rate) for rate in table.rates}
    rate = min(runs, key=lambda rate: runs[rate]["loss"])
    facts = runs[rate]
    return {"rate": rate, **facts, "scores": table.scores(table.run_of(row.name, seed, rate) / MODEL, seed)}


def main() -> None:
    """Measures the rows that the file of results does not have."""
    parser = argparse.ArgumentParser(description="Measures the families under equal conditions.")
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--data-dir", required=True, type=Path)
    parser.add_argument("--work", required=True, type=Path, help="folder of vocabularies and pre-training runs")
    parser.add_argument("--size", default="tiny", choices=SIZES)
    parser.add_argument("--tokens", type=int, default=4_000_000)
    parser.add_argument("--rates", nargs="+", type=float, default=[RATE])
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--only", nargs="+", default=[], help="rows")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    table = Table(
        *(options.corpus, options.data_dir, options.work, options.size, options.tokens),
        *(tuple(options.rates), tuple(options.tasks)),
    )
    shared = {
        "size": table.size,
        "budget": table.tokens,
        **harness.conditions("cuda" if torch.cuda.is_available() else "cpu"),
    }
    known = {(one["size"], one["budget"], one["row"], one["seed"]) for one in read_lines(options.results)}
    for seed in range(options.seeds):
        rows: list[Row | Peer | str] = [*table.rows(seed)]
        rows[1:1] = [COUNTS, RANDOM, *PEERS]  # after BERT, whose network and vocabulary they have
        for row in rows:
            name = row if isinstance(row, str) else row.name
            if (table.size, table.tokens, name, seed) in known or (options.only and name not in options.only):
                continue
            bert = table.run_of(BERT, seed, table.rates[0]) / MODEL
            if isinstance(row, Row):
                line = measure_row(table, row, seed)
            elif isinstance(row, Peer):
                line = {"scores": table.scores(table.peer(row, seed), seed, more={"optim": {"lr": PEER_RATE}})}
            elif row == COUNTS:
                line = {"scores": table.counted(bert)}
            else:
                line = {"scores": table.scores(bert, seed, scratch=True)}
            add_line(options.results, {"row": name, "seed": seed, **shared, **line})


if __name__ == "__main__":
    main()
