"""How well and how fast the sentence splitters work: `python -m benchmarks.sentences`, with BERTIE_DATA set.

Every splitter sees the same texts. A boundary is the number of non-space characters before it, so that splitters may
trim as they like; the ends of a text are not counted. Gold boundaries are those of the Universal Dependencies
treebanks, their sentences joined by single spaces; on Wikipedia, where nobody drew them, splitters are compared with
the careful one. One JSON line per cell.
"""

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from bertie.text.sentences import splitter


def boundaries(sentences: list[str]) -> set[int]:
    """Where sentences end, in non-space characters from the start; the last end left out."""
    ends, total = set(), 0
    for sentence in sentences[:-1]:
        total += sum(map(len, sentence.split()))
        ends.add(total)
    return ends


def treebank(path: Path) -> Iterator[list[str]]:
    """Runs of sentences that stood together: split at newdoc and newpar, or where the document's name changes."""
    rows, run = [], 0
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.startswith(("# newdoc", "# newpar")):
            run += 1
        elif line.startswith("# sent_id = "):
            name = line.removeprefix("# sent_id = ").rpartition("-")[0]
        elif line.startswith("# text = "):
            rows.append(((run, name), line.removeprefix("# text = ")))
    for _, group in groupby(rows, key=lambda row: row[0]):
        yield [sentence for _, sentence in group]


def wikipedia(folder: Path, megabytes: float) -> list[str]:
    """Articles of a WikiExtractor folder, the title line left out, until there are enough."""
    articles: list[str] = []
    size = 0
    for path in sorted(folder.glob("wiki_*")):
        for match in re.finditer(r"<doc[^>]*>\n[^\n]*\n(.*?)</doc>", path.read_text(encoding="utf-8"), re.DOTALL):
            articles.append(match[1].strip())
            size += len(articles[-1].encode())
            if size >= megabytes * 1e6:
                return articles
    return articles


def measure(name: str, texts: list[str], reference: list[set[int]]) -> dict[str, float | str]:
    """Precision, recall and F1 of a splitter's boundaries against the reference ones, and MB/s."""
    split = splitter(name)
    split(texts[0])  # loading is not splitting
    start_s = time.process_time()
    found = [split(text) for text in texts]
    elapsed_s = time.process_time() - start_s
    ours = [boundaries(sentences) for sentences in found]
    both = sum(len(a & b) for a, b in zip(ours, reference, strict=True))
    precision = both / max(1, sum(map(len, ours)))
    recall = both / max(1, sum(map(len, reference)))
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    return {
        "splitter": name,
        "precision": round(precision, 4),
        "recall": round(recall, 4),
        "f1": round(2 * precision * recall / max(1e-12, precision + recall), 4),
        "mb_per_s": round(megabytes / elapsed_s, 2),
    }


def main(data: Path) -> None:
    """Print every cell."""
    banks = {
        "UD_English-EWT dev": (data / "tagging/UD_English-EWT/en_ewt-ud-dev.conllu", ("rules", "sentencex")),
        "UD_English-EWT test": (data / "tagging/UD_English-EWT/en_ewt-ud-test.conllu", ("rules", "sentencex")),
        "UD_Korean-Kaist dev": (data / "tagging/UD_Korean-Kaist/ko_kaist-ud-dev.conllu", ("rules", "kiwi")),
        "UD_Korean-Kaist test": (data / "tagging/UD_Korean-Kaist/ko_kaist-ud-test.conllu", ("rules", "kiwi")),
        "UD_Korean-GSD test": (data / "tagging/UD_Korean-GSD/ko_gsd-ud-test.conllu", ("rules", "kiwi")),
    }
    for text, (path, names) in banks.items():
        runs = list(treebank(path))
        for name in names:
            cell = measure(name, [" ".join(run) for run in runs], [boundaries(run) for run in runs])
            print(json.dumps({"text": text, "against": "gold", **cell}), flush=True)
    wikis = {"enwiki": (data / "enwiki_2015_sample/AA", "sentencex"), "kowiki": (data / "kowiki_2020_08/AA", "kiwi")}
    for text, (folder, careful) in wikis.items():
        articles = wikipedia(folder, megabytes=2)
        reference = [boundaries(splitter(careful)(article)) for article in articles]
        print(json.dumps({"text": text, "against": careful, **measure("rules", articles, reference)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["BERTIE_DATA"]))
