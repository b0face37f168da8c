"""Corpora: nothing lost, duplicates gone, the same bytes for any number of workers and after any interruption."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertie.data import card, corpus, executors
from bertie.data.prepare import CorpusConfig, repair
from bertie.data.shards import Shards
from bertie.errors import DataError, InUse, Stopped, UsageError
from bertie.io import blocks, sources
from bertie.text import vocabulary
from bertie.text.normalize import Normalizer
from bertie.text.sentences import rules

NOUNS = "river house mountain library question answer garden winter teacher machine 바다 산 학교 도서관".split()
VERBS = "holds sees follows explains builds forgets measures paints 본다 만든다".split()


def story(rng, sentences=8):
    def sentence():
        return f"The {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)} in {rng.randint(1, 9999)}."

    return " ".join(sentence() for _ in range(sentences))


@pytest.fixture
def inputs(tmp_path):
    """Several files of several formats, with duplicates and bad records among them."""
    rng, folder = random.Random(5), tmp_path / "in"
    folder.mkdir()
    stories = [story(rng) for _ in range(300)]
    for number in range(4):
        (folder / f"{number}.txt").write_text("\n\n".join(stories[number * 50 : number * 50 + 60]), encoding="utf-8")
    rows = [json.dumps({"text": text}) for text in stories[200:]]
    rows[7:9] = ["not json", '{"other": 1}']
    (folder / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (folder / "bad.txt").write_bytes(b"fine here\n\nbad \xff\xfe here\n\n" + "한국어 문서".encode("cp949"))
    return folder


@pytest.fixture
def small_units(monkeypatch):
    monkeypatch.setattr(sources, "UNIT", 2000)
    monkeypatch.setattr(blocks, "UNIT", 2000)


def files(folder):
    """The bytes of a corpus but for its card, which tells the time, and the hash of that."""
    kept = {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: data for name, data in kept.items() if not name.startswith(("card.", "checksums."))}


def conserved(shards):
    account = shards.manifest["records"]
    assert account["in"] == account["kept"] + sum(account["dropped"].values())
    assert account["kept"] == shards.num_documents
    return account


def test_documents_come_out_in_order_clean_split_and_once(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("One  here.\tTwo here!\r\n\r\ncafe\u0301 ok.\n\nOne here. Two here!\n\n\u200b \n".encode())
    shards = corpus.build_shards([path], tmp_path / "out")
    assert list(corpus.documents(tmp_path / "out")) == [["One here.", "Two here!"], ["café ok."]]
    assert list(corpus.texts(tmp_path / "out")) == ["One here.", "Two here!", "café ok."]
    assert conserved(shards)["dropped"] == {"empty": 1, "exact duplicate": 1}
    assert shards.manifest["config"]["splitter"] == "rules"


@pytest.mark.promise("every-record")
def test_every_bad_record_is_in_the_quarantine_with_its_place(tmp_path, inputs, small_units):
    conserved(corpus.build_shards([inputs], tmp_path / "out"))
    rows = [json.loads(line) for line in (tmp_path / "out" / "quarantine.jsonl").read_text().splitlines()]
    assert [(row["where"].removeprefix(f"{inputs}/"), row["reason"]) for row in rows] == [
        ("bad.txt:3", "not UTF-8"),
        ("bad.txt:5", "not UTF-8 but reads as CP949: pass --encoding cp949"),
        ("rows.jsonl:8", "not JSON"),
        ("rows.jsonl:9", "no field 'text' (name it: --text FIELD)"),
    ]
    assert rows[1]["text"] == "한국어 문서"


def test_any_number_of_workers_makes_the_same_bytes(tmp_path, inputs, small_units):
    for workers in (1, 3):
        corpus.build_shards([inputs], tmp_path / str(workers), workers=workers)
    assert files(tmp_path / "1") == files(tmp_path / "3")
    assert not list((tmp_path / "1").glob(".*"))


@pytest.mark.promise("every-record")
@given(data=st.data())
@settings(max_examples=25)
def test_nothing_is_lost_whatever_the_mix(tmp_path_factory, data):
    """RELIABILITY 13: every record is kept or counted, in every mix of good and bad ones."""
    good = st.text(min_size=1, max_size=30).map(lambda text: text.encode("utf-8", "replace"))
    bad = st.sampled_from(
        [b"\xff\xfe\xfd", b"\0\0", b"", b"\r\n", b"\xef\xbb\xbf", "한글 자료".encode("cp949"), b"x" * 3000]
    )
    lines = data.draw(st.lists(st.one_of(good, bad), min_size=1, max_size=12))
    folder = tmp_path_factory.mktemp("mix")
    (folder / "a.txt").write_bytes(b"\n\n".join(lines))
    wrapped = [b'{"text": "' + line + b'"}' for line in lines]
    (folder / "b.jsonl").write_bytes(b"\r\n".join([*wrapped, b"[1]", b"{"]))
    (folder / "c.csv").write_bytes(b"\n".join([b"id,text", *(b"1," + line for line in lines), b"1,2,3"]))
    (folder / "d.txt").write_bytes(b"always one good document")
    before = blocks.LIMIT, blocks.READ_BYTES
    blocks.LIMIT, blocks.READ_BYTES = 2000, 512
    try:
        shards = corpus.build_shards([folder], folder / "out")
    finally:
        blocks.LIMIT, blocks.READ_BYTES = before
    account = conserved(shards)
    quarantined = len((folder / "out" / "quarantine.jsonl").read_bytes().splitlines())
    silent = sum(account["dropped"].get(reason, 0) for reason in ("empty", "exact duplicate"))
    assert account["in"] == account["kept"] + silent + quarantined
    texts = ["".join(document) for document in corpus.documents(folder / "out")]
    assert len(texts) == len(set(texts)) == account["kept"]


@pytest.mark.promise("every-record")
def test_one_line_of_fifty_megabytes_is_dropped_in_bounded_memory(tmp_path):
    import resource

    with open(tmp_path / "a.jsonl", "w") as file:
        file.write('{"text": "before it"}\n{"text": "')
        for _ in range(50):
            file.write("word " * (1 << 18))
        file.write('"}\n{"text": "after it"}\n')
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    shards = corpus.build_shards([tmp_path / "a.jsonl"], tmp_path / "out")
    assert conserved(shards)["dropped"] == {"a line longer than 16 MiB": 1}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 120_000  # kB


KILLED = """
import sys, os, signal
from bertie.data import corpus, shards, tokens
from bertie.io import blocks, sources
from bertie.text.tokenizer import Tokenizer
sources.UNIT = blocks.UNIT = tokens.UNIT = 2000
shards.SHARD = 6000
left = int(sys.argv[3])
write = os.replace
def replace(a, b):  # every finished file and every finished result goes through here
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    write(a, b)
os.replace = replace
if __name__ == "__main__":
    corpus.build_shards([sys.argv[1]], sys.argv[2], workers=int(sys.argv[4]))
    corpus.encode_corpus(sys.argv[2], Tokenizer.load(sys.argv[5]), workers=int(sys.argv[4]))
"""


@pytest.mark.promise("same-corpus")
def test_killed_at_any_moment_and_gone_on_with_by_any_workers_the_bytes_are_the_same(
    tmp_path, inputs, tokenizer, small_units
):
    """RELIABILITY 15, preparing and encoding."""
    whole, out = tmp_path / "whole", tmp_path / "out"
    corpus.build_shards([inputs], whole)
    corpus.encode_corpus(whole, tokenizer)
    tokenizer.save(tmp_path / "tokenizer")
    (tmp_path / "killed.py").write_text(KILLED)
    rng, kills = random.Random(2), 0
    for attempt in range(40):
        command = [sys.executable, tmp_path / "killed.py", inputs, out]
        after = str(rng.randint(2, 20) if attempt < 7 else 10**9)
        done = subprocess.run([*command, after, str(attempt % 3 + 1), tmp_path / "tokenizer"], capture_output=True)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        kills += 1
    assert kills >= 4
    assert files(out) == files(whole)


def test_finished_units_are_not_done_again(tmp_path, inputs, small_units, monkeypatch):
    done = []
    task = corpus.prepare

    def failing(number, **unit):
        if number == 4:
            raise Stopped("the disk is full")
        done.append(number)
        return task(number, **unit)

    monkeypatch.setattr(corpus, "prepare", failing)
    with pytest.raises(Stopped):
        corpus.build_shards([inputs], tmp_path / "out")
    assert done == [0, 1, 2, 3]
    monkeypatch.setattr(corpus, "prepare", lambda number, **unit: done.append(number) or task(number, **unit))
    corpus.build_shards([inputs], tmp_path / "out")
    assert sorted(done) == list(range(len(done)))


def test_a_complete_corpus_is_left_alone_and_another_refused(tmp_path, inputs):
    out = tmp_path / "out"
    corpus.build_shards([inputs], out)
    before = files(out)
    corpus.build_shards([inputs], out)
    assert files(out) == before
    with pytest.raises(UsageError, match="contains another corpus"):
        corpus.build_shards([inputs], out, CorpusConfig(dedup="none"))
    assert files(out) == before
    assert corpus.build_shards([inputs], out, CorpusConfig(dedup="none"), overwrite=True).num_documents > 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("x")
    with pytest.raises(UsageError, match="not a corpus"):
        corpus.build_shards([inputs], tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["precious.txt"]


def test_changed_inputs_start_over_what_was_interrupted(tmp_path, inputs, small_units, monkeypatch):
    def stop(*args, **kwargs):
        raise Stopped("now")

    with monkeypatch.context() as patched:
        patched.setattr(corpus, "_merge", stop)
        with pytest.raises(Stopped):
            corpus.build_shards([inputs], tmp_path / "out")
    (inputs / "0.txt").write_text("Only this one now.")
    corpus.build_shards([inputs], tmp_path / "out")
    corpus.build_shards([inputs], tmp_path / "fresh")
    assert files(tmp_path / "out") == files(tmp_path / "fresh")


def test_two_processes_do_not_write_one_folder(tmp_path, inputs):
    with (
        executors.working(tmp_path / "out"),
        ThreadPoolExecutor(1) as other,  # a lock of one thread keeps out another, as it keeps out a process
        pytest.raises(InUse),
    ):
        other.submit(corpus.build_shards, [inputs], tmp_path / "out").result()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "input is empty"),
        (b" \n\n\t", "only white space"),
        (b"\xff\xfe\xff", "No record could be used \\(1 read\\).*UTF-16"),
    ],
)
def test_nothing_usable_is_one_clear_error_and_leaves_no_trace(tmp_path, content, message):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        corpus.build_shards([tmp_path / "a.txt"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_paragraphs_seen_before_are_removed_and_counted(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Shared words. More.\nOnly in one.\n\nShared words. More.\nOnly in two.\n\nShared words. More.\n")
    shards = corpus.build_shards([path], tmp_path / "out", CorpusConfig(dedup="paragraphs"))
    assert list(corpus.documents(tmp_path / "out")) == [["Shared words.", "More.", "Only in one."], ["Only in two."]]
    assert conserved(shards)["dropped"] == {"exact duplicate": 1}
    assert shards.manifest["counts"] == {"paragraphs removed (duplicates)": 2}
    assert shards.manifest["statistics"]["words"] == 9


def test_near_duplicates_go_by_option(tmp_path):
    rng = random.Random(1)
    first, other = story(rng, 30), story(rng, 30)
    almost = first.replace(first.split()[3], "thing", 1)
    (tmp_path / "a.txt").write_text("\n\n".join([first, other, almost, first]))
    exact = corpus.build_shards([tmp_path / "a.txt"], tmp_path / "exact")
    near = corpus.build_shards([tmp_path / "a.txt"], tmp_path / "near", CorpusConfig(dedup="near"))
    assert exact.num_documents == 3
    assert conserved(near)["dropped"] == {"exact duplicate": 1, "near duplicate": 1}
    kept = [" ".join(document) for document in corpus.documents(tmp_path / "near")]
    assert kept == [" ".join(rules(first)), " ".join(rules(other))]


def test_mojibake_is_repaired_where_it_is_and_nothing_else_changes(tmp_path):
    broken = "It’s a café, naïve.".encode().decode("cp1252")
    assert repair(f"Fine line: é»ü.\n{broken}") == "Fine line: é»ü.\nIt’s a café, naïve."
    same = "«Déjà vu», dit-il… ÉTÉ” 한국어"
    assert repair(same) is same
    (tmp_path / "a.txt").write_text(broken)
    shards = corpus.build_shards([tmp_path / "a.txt"], tmp_path / "out")
    assert list(corpus.texts(tmp_path / "out")) == ["It’s a café, naïve."]
    assert shards.manifest["counts"] == {"documents repaired (mojibake)": 1}
    corpus.build_shards([tmp_path / "a.txt"], tmp_path / "raw", CorpusConfig(repair=False))
    assert list(corpus.texts(tmp_path / "raw")) == [broken]


def test_the_card_agrees_with_the_text(tmp_path, inputs):
    corpus.build_shards([inputs], tmp_path / "out")
    facts = card.load_card(tmp_path / "out")
    texts = list(corpus.texts(tmp_path / "out"))
    words = [len(text.split(" ")) for text in texts]
    assert facts["sentences"] == len(texts)
    assert facts["words"] == sum(words)
    assert facts["characters"] == sum(map(len, texts))
    assert facts["bytes"] == sum(len(text.encode()) for text in texts)
    assert facts["words_per_sentence"]["p50"] == sorted(words)[(len(words) - 1) // 2]
    letters = [c for text in texts for c in text if c.isalpha()]
    assert facts["scripts"] == {
        "Latin": round(sum(c.isascii() for c in letters) / len(letters), 4),
        "Hangul": round(sum(not c.isascii() for c in letters) / len(letters), 4),
    }
    page = (tmp_path / "out" / "card.md").read_text()
    assert f"{facts['documents']:,}" in page
    assert "exact duplicate" in page
    assert "██" in page


def test_a_card_that_was_never_written_is_written_by_the_next_call(tmp_path, inputs):
    corpus.build_shards([inputs], tmp_path / "out")
    facts = card.load_card(tmp_path / "out")
    for name in ("card.json", "card.md"):
        (tmp_path / "out" / name).unlink()
    corpus.build_shards([inputs], tmp_path / "out")
    again = card.load_card(tmp_path / "out")
    assert again == {name: value for name, value in facts.items() if name in again}
    assert (tmp_path / "out" / "card.md").exists()


def test_short_documents_are_dropped_by_option(tmp_path):
    (tmp_path / "a.txt").write_text("tiny\n\nlong enough to stay\n")
    shards = corpus.build_shards([tmp_path / "a.txt"], tmp_path / "out", CorpusConfig(min_chars=10))
    assert conserved(shards)["dropped"] == {"shorter than 10 characters": 1}


# Token ids -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tokenizer(tmp_path, inputs):
    corpus.build_shards([inputs], tmp_path / "for-words")
    words = vocabulary.count_words(corpus.texts(tmp_path / "for-words"))
    return vocabulary.train_vocabulary(words, size=300, normalizer=Normalizer(lowercase=True))


def test_token_shards_hold_the_ids_of_every_sentence(tmp_path, inputs, tokenizer):
    out = tmp_path / "out"
    text = corpus.build_shards([inputs], out)
    shards = corpus.encode_corpus(out, tokenizer)
    assert shards.dtype == "uint16"
    assert shards.folder == out / f"tokens-{tokenizer.fingerprint[:12]}"
    assert shards.document_bounds().tolist() == text.document_bounds().tolist()
    expected = tokenizer.ids(list(corpus.texts(out)))
    assert [shards.sentence(j).tolist() for j in range(shards.num_sentences)] == expected
    assert shards.manifest["unknown"] == sum(ids.count(tokenizer.unk_id) for ids in expected)
    before = (shards.folder / "manifest.json").stat().st_mtime_ns
    assert corpus.encode_corpus(out, tokenizer).fingerprint == shards.fingerprint
    assert (shards.folder / "manifest.json").stat().st_mtime_ns == before


def test_token_shards_are_the_same_for_any_workers_and_after_an_interruption(tmp_path, inputs, tokenizer, monkeypatch):
    from bertie.data import tokens

    monkeypatch.setattr(tokens, "UNIT", 2000)
    folders = []
    for workers in (1, 3):
        corpus.build_shards([inputs], tmp_path / str(workers))
        folders.append(corpus.encode_corpus(tmp_path / str(workers), tokenizer, workers=workers).folder)
    task = tokens.encode_documents

    def failing(number, **unit):
        if number == 2:
            raise Stopped("now")
        return task(number, **unit)

    corpus.build_shards([inputs], tmp_path / "interrupted")
    with monkeypatch.context() as patched:
        patched.setattr(tokens, "encode_documents", failing)
        with pytest.raises(Stopped):
            corpus.encode_corpus(tmp_path / "interrupted", tokenizer)
    folders.append(corpus.encode_corpus(tmp_path / "interrupted", tokenizer, workers=2).folder)
    assert files(folders[0]) == files(folders[1]) == files(folders[2])


def test_tokens_of_an_older_corpus_are_made_again(tmp_path, inputs, tokenizer):
    out = tmp_path / "out"
    corpus.build_shards([inputs], out)
    corpus.encode_corpus(out, tokenizer)
    for path in out.glob("*"):
        if path.is_file():
            path.unlink()
    (inputs / "0.txt").write_text("Another one altogether.")
    shards = out / f"tokens-{tokenizer.fingerprint[:12]}"
    kept = tmp_path / "kept"
    shards.rename(kept)
    corpus.build_shards([inputs], out, overwrite=True)
    kept.rename(shards)
    again = corpus.encode_corpus(out, tokenizer)
    assert again.num_sentences == Shards.open(out).num_sentences


# Processes -----------------------------------------------------------------------------------------------------------


def faulty(number: int, how: str, size: int) -> dict[str, int]:
    """What a worker is asked to do in the tests below."""
    print("noise on standard output")
    if how == "error":
        raise DataError("this item is wrong")
    if how == "defect":
        raise ZeroDivisionError
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "killed while it writes":
        os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)  # half way through its result's file
    if how == "slow":
        time.sleep(60)
    return {"twice": 2 * number}


def units(*hows):
    return [{"number": number, "how": how, "size": 1} for number, how in enumerate(hows)]


def test_results_come_in_the_order_of_the_units(tmp_path):
    results = executors.run_units(faulty, units(*["fine"] * 7), tmp_path, workers=3, about="testing")
    assert [result["twice"] for result in results] == [0, 2, 4, 6, 8, 10, 12]


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ("error", DataError, "this item is wrong"),
        ("defect", ZeroDivisionError, None),
        ("killed", Stopped, r"was killed.* Run the same command again"),
        ("killed while it writes", Stopped, r"was killed.* Run the same command again"),
    ],
)
def test_what_happens_in_a_worker_is_told_and_the_others_end(tmp_path, how, error, message):
    started = time.monotonic()
    with pytest.raises(error, match=message):
        executors.run_units(faulty, units("slow", how), tmp_path, workers=2, about="testing")
    assert time.monotonic() - started < 30


def test_what_a_killed_worker_left_half_written_is_done_anew(tmp_path):
    hows = ["fine", "killed while it writes", "fine"]
    with pytest.raises(Stopped):
        executors.run_units(faulty, units(*hows), tmp_path, workers=2, about="testing")
    assert not (tmp_path / "result-000001.json").exists()
    results = executors.run_units(faulty, units(*["fine"] * 3), tmp_path, workers=2, about="testing")
    assert [result["twice"] for result in results] == [0, 2, 4]


def lasting(folder: str, size: int) -> dict[str, int]:
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(60)
    return {}


def test_workers_end_with_a_caller_that_was_killed_and_import_nothing_of_it(tmp_path):
    """The caller is a program without `if __name__ == "__main__"`."""
    (tmp_path / "seen").mkdir()
    program = tmp_path / "program.py"
    program.write_text(
        "import sys; from pathlib import Path; from bertie.data import executors\n"
        f"from {__name__} import lasting\n"
        f"Path({str(tmp_path)!r}, 'begun').open('a').write('x')\n"
        f"units = 2 * [{{'folder': {str(tmp_path / 'seen')!r}, 'size': 1}}]\n"
        f"executors.run_units(lasting, units, Path({str(tmp_path)!r}), workers=2, about='testing')\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    with subprocess.Popen([sys.executable, program], env=environment) as caller:
        wait_until(lambda: len(list((tmp_path / "seen").iterdir())) == 2)
        caller.kill()
    workers = [int(path.name) for path in (tmp_path / "seen").iterdir()]
    wait_until(lambda: not any(map(lives, workers)))
    assert (tmp_path / "begun").read_text() == "x"


def wait_until(true: Callable[[], bool]) -> None:
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < 30
        time.sleep(0.05)


def lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_an_input_edited_to_the_same_size_makes_another_corpus(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("The cat sat on the mat.\n")
    corpus.build_shards([file], tmp_path / "out")
    corpus.build_shards([file], tmp_path / "out")
    file.write_text("The dog sat on the mat.\n")
    with pytest.raises(UsageError, match="an input has changed"):
        corpus.build_shards([file], tmp_path / "out")
