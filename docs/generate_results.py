"""Fills the tables of pages: results, from benchmarks/results/*.jsonl, decisions and promises.

A table is between `<!-- table: NAME -->` and `<!-- end of table -->`; NAME is one of `TABLES`.

    python docs/generate_results.py            writes the pages
    python docs/generate_results.py --check    prints the pages that would change, and fails if there are any

Numbers are changed in the files alone. A row says what was measured, where, when, by which command, and in which page
of the log it is.
"""

import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from generate_tables import table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # as a script

from benchmarks.result_lines import mean_cell, peer_cells  # noqa: E402
from bertie.metrics.base import wilson  # noqa: E402
from bertie.metrics.compare import SeedSummary  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
MARKED = re.compile(r"(<!-- table: ([\w-]+(?: [^>]+?)?) -->\n).*?(<!-- end of table -->)", re.DOTALL)
KOREAN_SETS = ("nsmc", "korsts", "kornli", "klue-nli", "klue-dp", "korquad")
SETS = {"sst2": "SST-2", "conll2003": "CoNLL-2003", "stsb": "STS-B", "squad": "SQuAD 1.1"}
Row = dict[str, Any]


def lines(name: str) -> list[Row]:
    """Returns the rows of a file of results."""
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def number(value: float | None) -> str:
    """Returns a rate, a time or a size as pages show it."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:g}"


def score(row: Row | None) -> str:
    """Returns a score with its standard deviation over seeds, or with its 95% interval."""
    if row is None:
        return ""
    if row.get("low"):
        return f"{row['value']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
    return f"{row['value']:.3f}" + (f" ± {row['sd']:.3f}" if row["sd"] is not None else "")


def _one(rows: Sequence[Row], **facts: str) -> Row | None:
    return next((row for row in rows if all(row[key] == fact for key, fact in facts.items())), None)


def conditions(rows: Sequence[Row]) -> dict[tuple[str, str, str], str]:
    """Letters for the machines, dates and commands of some rows, in their order."""
    keys = dict.fromkeys((row["machine"], row["date"], row["command"]) for row in rows)
    return {key: chr(ord("a") + n) for n, key in enumerate(keys)}


def _listed(letters: dict[tuple[str, str, str], str]) -> str:
    return "\n" + "".join(
        f"* **{letter}** {', '.join(filter(None, (machine, date)))}: `{command}`\n"
        for (machine, date, command), letter in letters.items()
    )


def scores(korean: bool, sets: str) -> str:
    """One row for each data set, variant and model: trivial and published scores, Bertie's and the Trainer's."""
    rows = [row for row in lines("scores") if (row["data"] in KOREAN_SETS) == (sets == "korean")]
    ours = [row for row in rows if row["program"] == "Bertie" and "random" not in row["model"]]
    letters = conditions(ours)
    cells = []
    for row in ours:
        same = [other for other in rows if other["data"] == row["data"] and other["metric"] == row["metric"]]
        plain = not row["variant"]
        trivial = _one(same, program="trivial") if plain else None
        words = _one(same, program="tf-idf", variant=row["variant"])
        known = [other for other in same if other["program"] == "published"] if plain else []
        best = max(known, key=lambda other: other["value"], default=None)
        peer = _one(same, program="Trainer", model=row["model"], variant=row["variant"])
        cells.append((
            row["data"] + (f", {row['variant']}" if row["variant"] else ""),
            row["metric"], f"{row['train']:,}, {row['dev']:,}",
            "; ".join(filter(None, (score(trivial), f"tf-idf {score(words)}" if words else ""))),
            f"{score(best)}, {best['model']}" if best else "",
            f"`{row['model']}`", f"**{score(row)}**", str(row["seeds"]),
            score(peer), f"`{row['settings']}`" if row["settings"] else "",
            letters[row["machine"], row["date"], row["command"]],
        ))  # fmt: skip
    heads = ("data set", "metric", "train, dev", "without a model", "published, base size", "model", "Bertie", "seeds",
             "Trainer, one seed", "settings", "how")  # fmt: skip
    if korean:
        heads = ("데이터", "지표", "학습, 개발", "모델 없이", "공개된 base 모델", "모델", "Bertie", "시드",
                 "Trainer, 시드 1개", "설정", "조건")  # fmt: skip
    return table(heads, cells) + _listed(letters)


def korean_models(korean: bool) -> str:
    """Published scores of Korean models beside those of the models that run with Bertie."""
    rows, sets = lines("scores"), ("nsmc", "korsts", "kornli", "korquad", "klue-nli", "klue-dp")
    ours = {name: [row for row in rows if row["model"] == name and row["program"] == "Bertie"] for name in OWN_KOREAN}
    known = dict.fromkeys(row["model"] for row in rows if row["program"] == "published" and row["data"] in sets)
    cells = []
    for name in [*OWN_KOREAN, *known]:
        here = [
            row for row in ours.get(name, rows) if row["model"] == name and row["program"] in ("Bertie", "published")
        ]
        found = [_one(here, data=data, variant="") or _one(here, data=data) for data in sets]
        size = next((row["megabytes"] for row in here if row.get("megabytes")), OWN_KOREAN.get(name))
        label = f"`{name}`" if name in OWN_KOREAN else name
        cells.append((label, number(size), *(score(row) for row in found)))
    head = ("모델", "MB") if korean else ("model", "MB")
    return table((*head, *sets), cells)


OWN_KOREAN = {"sentiment-ko": 13, "starter-ko": 27, "e5-small": None}


def speeds(korean: bool, *areas: str) -> str:
    """Bertie and others in an area: value, ratio with its range, and how it was measured."""
    del korean
    rows = [row for row in lines("speeds") if row["area"] == " ".join(areas)]
    letters = conditions(rows)
    cells: list[tuple[str, ...]] = []
    for row in rows:
        between = f" ({row['low']:.2f} to {row['high']:.2f})" if row["low"] is not None else ""
        own = f"{number(row['value'])} {row['unit']}" + (between if row["ratio"] is None else "")
        peer = row["peer"] + (f": {number(row['peer_value'])}" if row["peer_value"] is not None else "")
        peer += f": {row['note']}" if row.get("note") else ""
        ratio = f"{row['ratio']:.2f}{between}" if row["ratio"] is not None else ""
        how = letters[row["machine"], row["date"], row["command"]]
        cells.append((row["what"], own, peer, ratio, how))
    heads = ["what", "Bertie", "compared with", "times as fast", "how"]
    if not any(cell[3] for cell in cells):
        heads, cells = heads[:3] + heads[4:], [(*cell[:3], cell[4]) for cell in cells]
    return table(heads, cells) + _listed(letters)


def sizes(korean: bool) -> str:
    """The models that come with Bertie and the space that they take."""
    rows = [(f"`{row['what']}`", number(row["value"])) for row in lines("speeds") if row["area"] == "size"]
    return table(("모델" if korean else "model", "MB"), rows)


def times(korean: bool) -> str:
    """How long training took: rows, model, machine."""
    cells = []
    for row in lines("times"):
        minutes, seconds = divmod(round(row["seconds"]), 60)
        took = f"{minutes} min" if minutes >= 10 else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
        model = row["model"] if " " in row["model"] or row["model"] == "BERT-base" else f"`{row['model']}`"
        cells.append((row["what"], number(row["rows"]), number(row["epochs"]), model, row["machine"],
                      took + (f" ({row['note']})" if row["note"] else ""), row["date"]))  # fmt: skip
    heads = ("과제", "행", "에포크", "모델", "컴퓨터", "시간", "날짜")
    return table(heads if korean else ("task", "rows", "epochs", "model", "machine", "time", "date"), cells)


README_ROWS = {  # row of speeds -> what it is, in English and Korean
    "pretrain-gpu": ("pre-training of BERT-base, H200", "BERT-base 사전 학습, H200"),
    "pretrain-cpu": ("pre-training of bert-tiny, 2 AVX2 cores", "bert-tiny 사전 학습, AVX2 코어 2개"),
    "finetune-gpu": ("fine-tuning of BERT-base, H200", "BERT-base 미세 조정, H200"),
    "infer-int8": ("int8 vectors, 2 AVX2 cores", "int8 벡터, AVX2 코어 2개"),
    "serve": ("server, 8 clients, 2 AVX2 cores", "서버, 클라이언트 8개, AVX2 코어 2개"),
    "search": ("words in 1,000,000 passages", "문단 100만 개의 단어 검색"),
}


def readme(korean: bool) -> str:
    """The short table of README: speed beside known programs, with the program that measures it."""
    rows = {row["id"]: row for row in lines("speeds") if row["id"]}
    cells = []
    for key, names in README_ROWS.items():
        row = rows[key]
        ratio = "" if row["ratio"] is None else f" ({row['ratio']:.2f}{'배' if korean else ' times'})"
        command = " ".join(row["command"].split()[: 4 if "-m" in row["command"] else 2])
        cells.append((names[korean], f"{number(row['value'])} {row['unit']}{ratio}",
                      f"{row['peer']}: {number(row['peer_value'])}", f"`{command}`"))  # fmt: skip
    heads = (
        ("작업", "Bertie", "비교 대상", "측정 명령") if korean else ("what", "Bertie", "compared with", "measured by")
    )
    return table(heads, cells)


def expected(korean: bool) -> str:
    """The scores to expect from a model, of some sets, for the choice of one."""
    rows = lines("scores")
    cells = []
    for data, names in EXPECTED.items():
        here = [row for row in rows if row["data"] == data]
        words = _one(here, program="tf-idf") or _one([row for row in here if row["value"]], program="trivial")
        models = [_one(here, program="Bertie", model=name, variant="") for name in ("starter-en", "minilm-l6")]
        known = _one(here, program="published", model="BERT-base")
        cells.append((names[korean], models[0]["metric"] if models[0] else "", score(words),
                      *(f"{row['value']:.3f}" if row else "" for row in (*models, known))))  # fmt: skip
    head = ("데이터 세트", "지표", "단순한 방법") if korean else ("data set", "metric", "simple method")
    return table(
        (*head, "`starter-en`", "`minilm-l6`", "논문의 BERT-base" if korean else "BERT-base, the paper"), cells
    )


EXPECTED = {
    "sst2": ("SST-2, sentiment", "SST-2, 감성"),
    "mrpc": ("MRPC, paraphrases", "MRPC, 같은 뜻의 문장"),
    "squad": ("SQuAD 1.1, answers", "SQuAD 1.1, 기계 독해"),
    "conll2003": ("CoNLL-2003, names", "CoNLL-2003, 개체명"),
}


def decisions(korean: bool) -> str:
    """The records of docs/decisions, the newest first."""
    del korean
    records = []
    for page in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        for title, date in RECORD.findall(page.read_text(encoding="utf-8")):
            anchor = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
            records.append((date, f"[{title}](decisions/{page.name}#{anchor})"))
    return table(("date", "decision"), sorted(records, key=lambda record: record[0], reverse=True))


PROMISE = re.compile(r"^pytest\.mark\.promise\('([\w-]+)'\)$", re.MULTILINE)


def promised(tests: Path) -> dict[str, dict[str, list[str]]]:
    """Returns the tests of each promise, by file: those with the marker `promise("name")`."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(tests.rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            for name in PROMISE.findall("\n".join(marks)):
                shown = f"`{node.name}`" + (" (slow)" if "pytest.mark.slow" in marks else "")
                found[name][path.relative_to(tests).as_posix()].append(shown)
    return found


def promises(korean: bool, group: str) -> str:
    """What Bertie promises in a group of tests/promises.yaml, with the tests that keep it."""
    del korean
    tests = promised(ROOT / "tests")
    groups = yaml.safe_load((ROOT / "tests" / "promises.yaml").read_text(encoding="utf-8"))
    rows = (
        (f"`{name}`", text, "; ".join(f"`{file}`: {', '.join(names)}" for file, names in tests[name].items()))
        for name, text in groups[group].items()
    )
    return table(("name", "promise", "tests"), rows)


COLUMNS = {
    "f1": "{}",
    "accuracy": "accuracy, {}",
    "ece_before": "ECE before",
    "ece": "ECE with {}",
    "brier_before": "Brier score before",
    "brier": "Brier score with {}",
    "covered": "{}: measured",
    "least_covered": "{}: label covered least",
    "size": "{}: labels in a set",
    "steps": "steps with {}",
}
"""A column of a file with seeds -> its heading, in which {} is the method."""
METHODS = {"lora 8": "LoRA of rank 8", "patience 2": "a patience of 2"}


def embedding_losses(korean: bool) -> str:
    """One row for each set: the scores of Bertie and sentence-transformers over seeds, and the ratio of speeds."""
    del korean
    runs: defaultdict[str, defaultdict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in lines("embedding_losses"):
        runs[row["set"]][row["program"]].append(row)
    rows = []
    for name, programs in runs.items():
        ours, theirs = programs["Bertie"], programs["sentence-transformers"]
        metric = "spearman" if "spearman" in ours[0] else "ndcg@10"
        rows.append((name, metric, *peer_cells(ours, theirs, metric)))
    return table(("set", "metric", "Bertie", "sentence-transformers 6.2", "times as fast (range)"), rows)


def seeds(korean: bool, name: str, *columns: str) -> str:
    """One row for each set (and share of positives): means over seeds with 95% intervals. columns: method:column."""
    del korean
    runs: defaultdict[str, defaultdict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in lines(name):
        share = f", {row['share']:.0%} positives" if "share" in row else ""
        runs[f"{row['set']}{share}"][row["method"]].append(row)
    keys = [(method.replace("_", " "), column) for method, _, column in (one.partition(":") for one in columns)]
    heads = (COLUMNS[column].format(METHODS.get(method, method)) for method, column in keys)
    cells = (
        (name, *(mean_cell([row[column] for row in methods[method]]) for method, column in keys))
        for name, methods in runs.items()
        if all(methods[method] for method, _ in keys)
    )
    return table(("set", *heads), cells)


def replaced_words(korean: bool) -> str:
    """One row for each method: the area under the ROC curve of words that were replaced and misspelled."""
    del korean
    runs: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in lines("replaced_words"):
        runs[row["method"]][row["change"]].append(row["auc"])
    kinds = ("replaced", "misspelled")
    cells = (
        (name, *(mean_cell(some[kind]) for kind in kinds), str(len(some[kinds[0]]))) for name, some in runs.items()
    )
    return table(("method", "other words", "misspelled words", "draws"), cells)


def next_sentences(korean: bool) -> str:
    """One row for each method: next sentences against others of the same and of another article."""
    del korean
    rows = lines("next_sentences")
    columns = ("auc against other article", "accuracy", "accuracy at it", "auc against same article")
    cells = (
        (
            LANGUAGES[row["language"]],
            " ".join(filter(None, (row["method"], row["model"] and f"({row['model']})"))),
            *(f"{row[column]:.3f}" if column in row else "" for column in columns),
        )
        for row in rows
    )
    heads = (
        *("language", "method", "area, other articles", "accuracy, threshold of the command"),
        *("accuracy, best threshold", "area, same article"),
    )
    note = f"{rows[0]['sentences']} sentences, {rows[0]['machine']}, {rows[0]['date']}"
    return f"{table(heads, cells)}\n{note}: `python -m benchmarks.next_sentences`\n"


def morphemes(korean: bool, part: str) -> str:
    """One row for each method, learning rate and input: the shares of words that are right, and the cost."""
    part = part.replace("-", " ")
    runs: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in lines("morphemes"):
        if row["part"] == part:
            rate = "" if row["rate"] is None else f"{row['rate']:g}"
            runs[row["method"], row["reading"], rate, number(row["epochs"])].append(row)
    cells = []
    for key, some in runs.items():
        shown = (mean_cell([row[kind] for row in some]) for kind in ("all", "unseen", "changed"))
        costs = (
            number(round(sum(row[kind] for row in some) / len(some))) if kind in some[0] else ""
            for kind in ("train_s", "words_per_s")
        )
        cells.append((*key, *shown, *costs, str(len(some))))
    heads = (
        *("method", "reads", "learning rate", "epochs", "all words", "words not in training", "changed words"),
        *("training, CPU s", "words per CPU s", "seeds"),
    )
    if korean:
        heads = (
            *("방법", "입력", "학습률", "에포크", "모든 어절", "학습에 없는 어절", "형태가 바뀌는 어절"),
            *("학습, CPU 초", "CPU 초당 어절", "시드"),
        )
    last = next(iter(runs.values()))[0]
    command = "python -m benchmarks.morphemes --treebank UD_Korean-Kaist" + " --part 'held out'" * (part != "test")
    words = f"{last['words']:,} words" if not korean else f"어절 {last['words']:,}개"
    return f"{table(heads, cells)}\n{words}, {last['machine']}, {last['date']}: `{command} --work WORK`\n"


def prompts(korean: bool) -> str:
    """One row for each model, number of examples and calibration: the accuracy over the draws."""
    runs: defaultdict[tuple[str, int, bool], list[float]] = defaultdict(list)
    for row in lines("prompts"):
        runs[row["model"], row["k"], row["calibrated"]].append(row["accuracy"])
    yes = "예" if korean else "yes"
    cells = [
        (model, str(k), yes if calibrated else "", mean_cell(values))
        for (model, k, calibrated), values in sorted(runs.items(), key=lambda one: (one[0][1] > 0, one[0]))
    ]
    last = lines("prompts")[-1]
    heads = ("모델", "`k`", "보정", "정확도") if korean else ("model", "`k`", "calibrated", "accuracy")
    return f"{table(heads, cells)}\n{last['machine']}, {last['date']}: `python -m benchmarks.prompts`\n"


def perplexities(korean: bool) -> str:
    """One row for each model: its head and its perplexities."""
    rows = lines("perplexities")
    heads = ("모델", "헤드", "단어당", "토큰당") if korean else ("model", "head", "per word", "per token")
    cells = (
        (row["model"], row["head"], f"{row['per_word']:,.0f}", f"{row['per_token']:,.1f}" if "per_token" in row else "")
        for row in rows
    )
    note = f"{rows[0]['machine']}, {rows[0]['date']}: `python -m benchmarks.perplexities`"
    return f"{table(heads, cells)}\n{note}\n"


LANGUAGES = {"en": "English", "ko": "Korean"}


def facts(korean: bool) -> str:
    """One row for each model and relation: precision of all predictions, of those that are answers, and of a guess."""
    del korean
    rows = lines("facts")
    keys = ("p@1", "p@10", "p@1 among answers", "p@10 among answers")
    cells = []
    for row in rows:
        guess = _one(rows, model=f"the most frequent answers, {row['model']}", relation=row["relation"])
        if guess is not None:
            shown = [f"{row[key]:.3f}" for key in keys] + [f"{guess[key]:.3f}" for key in keys[:2]]
            cells.append((f"`{row['model']}`", row["relation"], f"{row['facts']:,}", *shown))
    return table(("model", "relation", "facts", *keys, "frequent answers, p@1", "frequent answers, p@10"), cells)


def families(korean: bool, size: str) -> str:
    """One row for each family at a size: parameters, cost of the pre-training, scores; then what is missing."""
    del korean
    from benchmarks.families import TASKS, rows_of

    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for row in lines("families"):
        if row["size"] == size:
            rows[row["row"]].append(row)
    cells = []
    for name, runs in rows.items():
        first = runs[0]
        cost = ("", "", "")
        if "parameters" in first:
            seconds = sum(run["seconds"] for run in runs) / len(runs)
            cost = (f"{first['parameters'] / 1e6:.2f}", f"{first['flops'] / 1e12:,.0f}", f"{seconds:,.0f}")
        scores = [[run["scores"][task] for run in runs] for task in TASKS]
        shown = (mean_cell(values) if all(isinstance(one, float) for one in values) else "-" for values in scores)
        cells.append((name, *cost, *shown, str(len(runs))))
    heads = ("row", "M parameters", "TFLOP", "CPU s", "SST-2", "CoNLL-2003", "STS-B", "NSMC", "seeds")
    first = next(iter(rows.values()))[0]
    missing = [row.name for row in rows_of(size, Path) if row.name not in rows]
    note = f"\n{first['budget'] / 1e6:g} million tokens a row, {first['machine']}, {first['date']}: "
    note += f"`python -m benchmarks.families --size {size} --tokens {first['budget']}`\n"
    note += f"\nNot measured at this size: {'; '.join(missing)}.\n" if missing else ""
    return table(heads, cells) + note


def memory(korean: bool) -> str:
    """One row for each model and engine: the measured peaks of prediction, and how far off is what is said."""
    from benchmarks.memory import said

    rows: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in lines("memory"):
        rows[row["model"], row["engine"]].append(row)
    cells, worst = [], 0.0
    for (model, engine), some in rows.items():
        errors = [said(model, row["length"], row["batch"])[engine] / row["bytes"] - 1 for row in some]
        ends = [[row[key] for row in some] for key in ("length", "batch", "bytes")]
        lengths, batches, sizes = ((min(values), max(values)) for values in ends)
        shown = (f"{lengths[0]:,} – {lengths[1]:,}", f"{batches[0]} – {batches[1]}", str(len(some)))
        sizes_mb = f"{sizes[0] / 1e6:,.0f} – {sizes[1] / 1e6:,.0f}"
        cells.append((model, engine, *shown, sizes_mb, f"{min(errors):+.0%} – {max(errors):+.0%}"))
        worst = max(worst, *map(abs, errors))
    last = lines("memory")[-1]
    heads = ("model", "engine", "tokens of a text", "texts", "cells", "measured, MB", "said against measured")
    note = f"The worst of {len(lines('memory'))} cells is off by {worst:.0%}"
    if korean:
        heads = ("모델", "엔진", "텍스트의 토큰", "텍스트", "측정", "측정한 MB", "예측과 측정의 차이")
        note = f"측정 {len(lines('memory'))}건 가운데 가장 크게 틀린 것은 {worst:.0%}입니다"
    where = f"{last['machine']}, {last['date']}: `python -m benchmarks.memory --work WORK`"
    return f"{table(heads, cells)}\n{note}. {where}\n"


def long_documents(korean: bool) -> str:
    """One row for each way to read: accuracy by length with its interval, and the costs of the longest documents."""
    from benchmarks.long_documents import TEST, WAYS

    runs: defaultdict[str, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in lines("long_documents"):
        runs[row["way"]][row["length"]].append(row)
    lengths, cells = sorted({length for some in runs.values() for length in some}), []
    for name, some in runs.items():
        shown = []
        for length in lengths:
            values = [row["accuracy"] for row in some.get(length, [])]
            low, high = wilson(TEST * sum(values), TEST * len(values)) if values else (0, 0)
            shown.append(f"{sum(values) / len(values):.3f} ({low:.3f} to {high:.3f})" if values else "-")
        costs = [next((row[key] for row in some.get(lengths[-1], []) if key in row), None) for key in COSTS]
        train, test, peak = costs
        cells.append((name, *shown, number(train), number(test), f"{peak / 1e6:,.0f}" if peak else ""))
    last = lines("long_documents")[-1]
    costs_heads = ("training, CPU s", "prediction of the longest, CPU s", "its peak, MB")
    heads = ("way to read", *(f"{length:,} tokens" for length in lengths), *costs_heads)
    if korean:
        costs_heads = ("학습, CPU 초", "가장 긴 문서의 예측, CPU 초", "그 최대 메모리, MB")
        heads = ("읽는 방법", *(f"토큰 {length:,}개" for length in lengths), *costs_heads)
    where = f"{last['machine']}, {last['date']}: `python -m benchmarks.long_documents --squad FILE --work WORK`"
    if missing := ", ".join(way.name for way in WAYS if way.name not in runs):
        where += f". 재지 않은 것: {missing}" if korean else f". Not measured: {missing}"
    return f"{table(heads, cells)}\n{where}\n"


COSTS = ("train_s", "test_s", "peak_bytes")


def prepositions(korean: bool) -> str:
    """One row for each ranking: how often the right passage of two is first, by kind of query."""
    del korean
    runs: defaultdict[str, list[Row]] = defaultdict(list)
    for row in lines("prepositions"):
        runs[row["ranking"]].append(row)
    kinds = ("from or to", "by or for", "before or after", "above or below")
    cells = []
    for name, some in runs.items():
        every = [sum(row[kind] for kind in kinds) / len(kinds) for row in some]
        cells.append(
            (name, *(mean_cell([row[kind] for row in some]) for kind in kinds), mean_cell(every), str(len(some)))
        )
    last = lines("prepositions")[-1]
    note = f"{last['machine']}, {last['date']}: `python -m benchmarks.prepositions`"
    return f"{table(('ranking', *kinds, 'all', 'seeds'), cells)}\n{note}\n"


def speedrun(korean: bool, minutes: str, threads: str) -> str:
    """One row for each recipe in the same time: steps, tokens, loss, scores; then how it was measured."""
    from benchmarks.speedrun import rows as recipes

    del korean
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for row in lines("speedrun"):
        if (f"{row['minutes']:g}", str(row["threads"])) == (minutes, threads):
            rows[row["row"]].append(row)
    first = next(iter(rows.values()))[0]
    tasks = tuple(first["scores"])
    cells = []

    def mean_loss(name: str) -> float:
        losses = [run["loss"] for run in rows[name] if run["loss"] is not None]
        return sum(losses) / len(losses) if losses else float("inf")

    for name in sorted(rows, key=mean_loss):
        runs = rows[name]
        losses = [run["loss"] for run in runs if run["loss"] is not None]
        known = SeedSummary.over(losses) if losses else None
        loss = "" if known is None else f"{known.mean:.2f}"
        if known is not None and known.low is not None:
            loss += f" ({known.low:.2f} to {known.high:.2f})"
        size = f"{runs[0]['parameters'] / 1e6:.1f}"
        made = (f"{runs[0]['steps']:,}", f"{runs[0]['tokens'] / 1e6:.1f}")
        cells.append((name, size, *made, loss, *(mean_cell([run["scores"][task] for run in runs]) for task in tasks)))
    heads = ("row", "M parameters", "steps", "M tokens", "loss, nats", *(SETS[task] for task in tasks))
    seeds = sorted({len(runs) for runs in rows.values()})
    many = f"{seeds[0]} to {seeds[-1]} seeds" if len(seeds) > 1 else f"{seeds[0]} seed{'s' * (seeds[0] > 1)}"
    command = f"python -m benchmarks.speedrun --minutes {minutes} --threads {threads} --seeds {seeds[-1]}"
    missing = [name for name in recipes() if name not in rows]
    note = f"\nNot measured: {'; '.join(missing)}.\n" if missing else ""
    return table(heads, cells) + f"\n{many} a row, {first['machine']}, {first['date']}: `{command}`\n" + note


def cross_lingual(korean: bool) -> str:
    """One row for each model and what it learned from: the score in Korean by task."""
    rows: defaultdict[tuple[str, str], defaultdict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in lines("cross_lingual"):
        rows[row["model"], row["learned"]][row["task"]].append(row)
    tasks = {row["task"]: row["metric"] for row in lines("cross_lingual")}
    learned = {
        "English": "영어",
        "few Korean": "한국어 조금",
        "English and few": "영어와 한국어 조금",
        "Korean": "한국어",
    }
    cells = []
    for (model, way), some in rows.items():
        train = max(run["train"] for runs in some.values() for run in runs)
        scores = (mean_cell([run["score"] for run in some[task]]) if task in some else "-" for task in tasks)
        seeds = max(map(len, some.values()))
        cells.append((f"`{model}`", learned[way] if korean else way, f"{train:,}", *scores, str(seeds)))
    heads = ("model", "learned from", "examples", *(f"{task}, {metric}" for task, metric in tasks.items()), "seeds")
    if korean:
        names = {"sentiment": "감성 분석, 정확도", "similarity": "유사도, Spearman", "parts of speech": "품사, 정확도"}
        heads = ("모델", "학습한 언어", "예제", *(names[task] for task in tasks), "시드")
    last = lines("cross_lingual")[-1]
    return (
        f"{table(heads, cells)}\n{last['machine']}, {last['date']}: `python -m benchmarks.cross_lingual --data DATA`\n"
    )


def recommend(korean: bool, data: str) -> str:
    """One row for each way to recommend: recall at 10 for known and for new items."""
    del korean
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for row in lines("recommend"):
        if row["data"] == data:
            rows[row["row"]].append(row)
    cells = [
        (name, *(mean_cell([run[kind] for run in runs]) for kind in ("known", "new")), str(len(runs)))
        for name, runs in rows.items()
    ]
    first = next(iter(rows.values()))[0]
    note = f"\n{first['machine']}, {first['date']}: `python -m benchmarks.recommend --data {data}`\n"
    return table(("row", "recall@10, known items", "recall@10, new items", "seeds"), cells) + note


RECORD = re.compile(r"^## (.+)\n\n\*(\d{4}-\d\d-\d\d)\.\*", re.MULTILINE)

TABLES: dict[str, Callable[..., str]] = {
    "scores": scores,
    "korean-models": korean_models,
    "speeds": speeds,
    "sizes": sizes,
    "times": times,
    "readme": readme,
    "expected": expected,
    "decisions": decisions,
    "promises": promises,
    "seeds": seeds,
    "embedding-losses": embedding_losses,
    "replaced-words": replaced_words,
    "next-sentences": next_sentences,
    "morphemes": morphemes,
    "prompts": prompts,
    "perplexities": perplexities,
    "facts": facts,
    "families": families,
    "memory": memory,
    "long-documents": long_documents,
    "prepositions": prepositions,
    "speedrun": speedrun,
    "cross-lingual": cross_lingual,
    "recommend": recommend,
}


def filled(text: str, korean: bool) -> str:
    """Returns a page with its tables made again."""

    def make(match: re.Match[str]) -> str:
        name, *arguments = match[2].split()
        return f"{match[1]}{TABLES[name](korean, *arguments)}{match[3]}"

    return MARKED.sub(make, text)


def changed() -> dict[Path, str]:
    """Returns the pages whose tables are not those of the files, with the text that they should have."""
    pages = [*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")]
    found = {}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        new = filled(text, ".ko." in page.name)
        if new != text:
            found[page] = new
    return found


if __name__ == "__main__":
    check = "--check" in sys.argv
    pages = changed()
    for path, text in pages.items():
        print(path)
        if not check:
            path.write_text(text, encoding="utf-8")
    sys.exit(check and bool(pages))
