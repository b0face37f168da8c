"""`bertie corpus`: what it prints, and the exit code of everything that can happen."""

import gzip
import io
import json
import os
import random
import signal
import subprocess
import sys
import zipfile

import pytest

from bertie.console import console
from bertie.io import dumps
from bertie.program import main
from bertie.text import vocabulary


@pytest.fixture
def bertie(monkeypatch, capsys, tmp_path):
    """Run a command line in a folder of its own; (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, stdin=b""):
        console.verbosity.level, console.verbosity.json = 0, False
        monkeypatch.setattr(sys, "argv", ["bertie", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as done:
            main()
        captured = capsys.readouterr()
        return done.value.code or 0, captured.out, " ".join(captured.err.split())

    return run


def terminate(*_):
    os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_in_the_middle_of_a_record_stops_the_build_and_loses_nothing(bertie, tmp_path, monkeypatch):
    pages = "".join(f"<page><ns>0</ns><revision><text>Page {n} is here.</text></revision></page>" for n in range(3))
    (tmp_path / "dump.xml").write_text(f"<mediawiki>{pages}</mediawiki>")
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patched:
        patched.setattr(dumps, "_article", terminate)
        code, _, err = bertie("corpus", "dump.xml", "-o", "out")
    assert (code, "stopped: SIGTERM ended the command." in err) == (75, True)
    assert signal.getsignal(signal.SIGTERM) is before
    code, out, err = bertie("corpus", "dump.xml", "-o", "out")
    assert (code, "documents 3" in out) == (0, True), err


def test_sigterm_leaves_no_unfinished_file(bertie, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_bytes(TEXT)
    bertie("corpus", "a.txt", "-o", "out")
    monkeypatch.setattr("bertie.apps.cloze.cloze.make_questions", lambda *_, **__: map(terminate, [{}]))
    assert bertie("cloze", "out", "-o", "questions.jsonl")[0] == 75
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "out"]


TEXT = b"One sentence. And [another] one.\n\nA second document.\n"


def test_files_in_a_corpus_out_with_what_was_dropped(bertie, tmp_path):
    (tmp_path / "a.txt").write_bytes(TEXT + b"\n\xff\xfebroken\n")
    code, out, err = bertie("corpus", "a.txt", "-o", "out")
    assert code == 0
    assert "documents 2, sentences 3, words 8" in out
    assert "Dropped 1 of 3 records (not UTF-8: 1)" in err
    assert "quarantine.jsonl" in err
    assert bertie("corpus", "a.txt", "-o", "out")[0] == 0


def test_damaged_and_foreign_files_of_text_are_named(bertie, tmp_path):
    (tmp_path / "half.txt.gz").write_bytes(gzip.compress(random.Random(1).randbytes(200_000).hex().encode())[:-90_000])
    (tmp_path / "other.txt.gz").write_bytes(TEXT)
    with zipfile.ZipFile(tmp_path / "table.csv", "w") as archive:
        archive.writestr("한글.xml", "안녕하세요")
    for name, words in (("half.txt.gz", "the file is truncated"), ("other.txt.gz", "Not a gzipped file")):
        code, _, err = bertie("tokenizer", "train", name, "-o", "out", "--size", "80")
        assert (code, f"error: {name} cannot be decompressed: {words}" in err) == (3, True), err
    code, _, err = bertie("corpus", "table.csv", "-o", "out")
    assert (code, "is a zip archive, as Excel workbooks (.xlsx) are" in err) == (3, True), err


def test_standard_input_and_machine_output(bertie, tmp_path):
    code, out, err = bertie("corpus", "-", "-o", "out", "--json", stdin=TEXT)
    assert code == 0
    assert json.loads(out)["sentences"] == 3
    assert json.loads(out)["inputs"]["names"] == ["-"]
    assert "* standard input\n\n1 file, 0.0 MB\n" in (tmp_path / "out/card.md").read_text()
    assert not err


def test_encoding_right_away(bertie, tmp_path):
    words = vocabulary.count_words(["one sentence and another", "a second document . [ ]"])
    vocabulary.train_vocabulary(words, size=60).save(tmp_path / "tokenizer")
    (tmp_path / "a.txt").write_bytes(TEXT)
    code, out, _ = bertie("corpus", "a.txt", "-o", "out", "--tokenizer", "tokenizer", "--json")
    assert code == 0
    tokens = json.loads(out)["tokens"]
    assert (tmp_path / tokens["folder"] / "manifest.json").exists()
    assert tokens["tokens"] > 8


def test_a_corpus_can_be_looked_at(bertie, tmp_path):
    (tmp_path / "a.txt").write_bytes(TEXT)
    bertie("corpus", "a.txt", "-o", "out")
    code, out, _ = bertie("corpus", "out", "--show")
    assert code == 0
    assert "And [another] one." in out
    assert "Latin" in out
    assert json.loads(bertie("corpus", "out", "--show", "--json")[1])["first_documents"][1] == ["A second document."]


def test_a_dry_run_writes_nothing(bertie, tmp_path):
    (tmp_path / "a.txt").write_bytes(TEXT)
    code, out, _ = bertie("corpus", ".", "-o", "out", "--dry-run")
    assert code == 0
    assert "1 txt in 1 unit of work, and skip 0 files." in out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.txt", "-o", "out"], 3, "missing.txt does not exist"),
        (["empty.txt", "-o", "out"], 3, "input is empty"),
        (["korean.txt", "-o", "out"], 3, "reads as CP949: pass --encoding cp949"),
        (["a.txt", "-o", "out", "--encoding", "klingon"], 2, "Unknown encoding"),
        (["a.txt", "-o", "out", "--splitter", "rule"], 2, "Did you mean 'rules'?"),
        (["a.txt", "-o", "out", "--dedup", "some"], 2, "dedup"),
        (["table.csv", "-o", "out", "--text", "review"], 2, "table.csv has no column 'review'. Choices: label, text."),
        (["a.txt"], 2, "-o FOLDER"),
        (["a.txt", "-o", "taken"], 2, "not a corpus"),
        (["a.txt", "-o", "out", "--tokenizer", "nowhere"], 3, "nowhere"),
        (["python:no_such_package_here", "-o", "out"], 3, "The Python package"),
        (["taken", "--show"], 3, "manifest.json"),
        (["a.txt", "--show"], 3, "a.txt is a file"),
        (["a.txt", "-o", "a.txt/inside"], 1, "a.txt/inside"),
    ],
)
def test_what_is_wrong_is_said_with_its_exit_code(bertie, tmp_path, arguments, code, message):
    (tmp_path / "a.txt").write_bytes(TEXT)
    (tmp_path / "empty.txt").touch()
    (tmp_path / "table.csv").write_text("text,label\none,1\n")
    (tmp_path / "korean.txt").write_bytes("한국어로 쓴 문서입니다.".encode("cp949"))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "note.txt").touch()
    found, out, err = bertie("corpus", *arguments)
    assert (found, out) == (code, "")
    assert message in err
    assert not (tmp_path / "out").exists()


def test_a_reader_that_leaves_is_no_failure(tmp_path):
    lines = "\n\n".join(f"Document {n} has this one sentence." for n in range(4000))
    (tmp_path / "a.txt").write_text(lines)
    here = [sys.executable, "-m", "bertie", "corpus"]
    subprocess.run([*here, "a.txt", "-o", "out", "-q"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    shown = subprocess.Popen(
        [*here, "out", "--show"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert shown.stdout is not None
    shown.stdout.close()
    _, err = shown.communicate()
    assert (shown.returncode, err) == (0, "")


@pytest.mark.promise("signals")
def test_ctrl_c_says_so(bertie, monkeypatch, tmp_path):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    (tmp_path / "a.txt").write_bytes(TEXT)
    monkeypatch.setattr("bertie.data.corpus.build_shards", interrupt)
    assert bertie("corpus", "a.txt", "-o", "out") == (130, "", "interrupted")


def test_evaluation_sets_are_kept_out_by_option_or_recipe(bertie, tmp_path):
    question = "Which of the seven rivers that rise near the old mill flows past both of the northern towns?"
    (tmp_path / "a.txt").write_text(f"One text.\n\nOnce more: {question}\n\nA last text.")
    (tmp_path / "quiz.tsv").write_text(f"question\n{question}\n")
    (tmp_path / "recipe.yaml").write_text("decontaminate: [quiz.tsv]\n")
    for options in (["--decontaminate", "quiz.tsv"], ["-c", "recipe.yaml"]):
        code, out, _ = bertie("corpus", "a.txt", "-o", "out", *options, "--overwrite", "--json")
        facts = json.loads(out)
        assert (code, facts["documents"], facts["evaluation"]["quiz.tsv"]["removed"]) == (0, 2, 1)
    code, _, err = bertie("corpus", "a.txt", "-o", "other", "--decontaminate", "sst3")
    assert (code, "Did you mean 'sst2'" in err) == (2, True)
    code, _, err = bertie("corpus", "a.txt", "-o", "other", "--decontaminate", "sst2")
    assert (code, "--data-dir" in err) == (3, True)
    assert not (tmp_path / "other").exists()


def test_an_evaluation_set_in_the_encoding_of_the_corpus(bertie, tmp_path):
    """One that is UTF-8 is read as UTF-8 all the same."""
    question = (
        "오래된 방앗간 근처에서 시작하는 일곱 강 가운데 북쪽의 두 마을을 모두 지나 바다로 흘러가는 강은 어느 강인가"
    )
    (tmp_path / "a.txt").write_bytes(f"첫 번째 글.\n\n다시 한번: {question}\n\n마지막 글.".encode("cp949"))
    for encoding in ("cp949", "utf-8"):
        (tmp_path / "quiz.csv").write_bytes(f"question\n{question}\n".encode(encoding))
        options = ("--encoding", "cp949", "--decontaminate", "quiz.csv", "--overwrite", "--json")
        facts = json.loads(bertie("corpus", "a.txt", "-o", "out", *options)[1])
        assert facts["evaluation"]["quiz.csv"]["removed"] == 1


def test_a_damaged_corpus_is_not_shown(bertie, tmp_path):
    (tmp_path / "a.txt").write_bytes(TEXT)
    assert bertie("corpus", "a.txt", "-o", "out")[0] == 0
    shard = next((tmp_path / "out").glob("*.values"))
    shard.write_bytes(b"\xff" + shard.read_bytes()[1:])
    for command in (("corpus", "out", "--show"), ("cloze", "out", "-o", "questions.jsonl")):
        code, _, err = bertie(*command)
        assert (code, shard.name in err) == (3, True)
