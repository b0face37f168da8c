"""Prompts with examples, beside a pattern of a masked language model, on SST-2.

    python -m benchmarks.prompts --data-dir glue --gpt RUN/model --masked starter-en

Every model reads the same 200 dev sentences. A causal model reads k examples first, k / 2 of each label, drawn three
times. With and without calibration by an empty text. A line of results/prompts.jsonl is a model, a k and a draw.
Chance is the share of the more frequent label.
"""

import argparse
from collections import Counter
from pathlib import Path

import bertie
from benchmarks.few_labels import PATTERNS
from benchmarks.harness import conditions
from benchmarks.result_lines import add_line, read_lines
from benchmarks.results import spaced
from bertie.io.tables import Example
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import draw_examples, read_examples

RESULTS = Path(__file__).parent / "results" / "prompts.jsonl"
SENTENCES, SHOTS, DRAWS = 200, (0, 4, 16), 3
CAUSAL_PATTERN = "It was [MASK]"
Rows = list[tuple[str, str]]


def rows_of(examples: list[Example]) -> Rows:
    """Returns examples as rows of text and label."""
    return [(one.texts[0], str(one.label)) for one in examples]


def main() -> None:
    """Measures the rows that the file of results does not have."""
    parser = argparse.ArgumentParser(description="Measures prompts with examples on SST-2.")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--gpt", action="append", default=[], help="causal models")
    parser.add_argument("--masked", action="append", default=[], help="masked language models")
    options = parser.parse_args()
    examples = read_examples(FinetuneConfig(model="", data="sst2", data_dir=options.data_dir))
    dev = rows_of(spaced(examples.dev, SENTENCES))
    words = PATTERNS["sst2"]["words"]
    known = {(one["model"], one["k"], one["calibrated"], one["draw"]) for one in read_lines(RESULTS)}

    def add(model: str, k: int, calibrated: bool, draw: int, accuracy: float) -> None:
        line = {"model": model, "k": k, "calibrated": calibrated, "draw": draw, "sentences": len(dev)}
        add_line(RESULTS, line | {"accuracy": round(accuracy, 4)} | conditions("cpu"))

    if ("chance", 0, False, 0) not in known:
        add("chance", 0, False, 0, max(Counter(label for _, label in dev).values()) / len(dev))
    for folder in options.masked:
        model, name = bertie.load(folder, device="cpu"), Path(folder).name
        for calibrated in (False, True):
            if (name, 0, calibrated, 0) not in known:
                pattern = PATTERNS["sst2"]["pattern"]
                scores = model.evaluate(dev, pattern=pattern, words=words, calibrate_prompt=calibrated)
                add(name, 0, calibrated, 0, scores["accuracy"])
    for folder in options.gpt:
        model, name = bertie.load(folder, device="cpu"), Path(folder).name
        for k in SHOTS:
            for draw in range(DRAWS if k else 1):
                shown = rows_of(draw_examples(examples.train, k // 2, seed=draw)) if k else ()
                for calibrated in (False, True):
                    if (name, k, calibrated, draw) in known:
                        continue
                    scores = model.evaluate(
                        dev,
                        pattern=CAUSAL_PATTERN,
                        words=words,
                        demonstrations=shown,
                        calibrate_prompt=calibrated,
                        max_length=256,
                    )
                    add(name, k, calibrated, draw, scores["accuracy"])


if __name__ == "__main__":
    main()
