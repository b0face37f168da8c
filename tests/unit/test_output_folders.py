"""Output folders: whole or absent, one process at a time, and nothing of anybody else's is ever replaced."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bertie import checksums, folders
from bertie.errors import DataError, Stopped, UsageError
from bertie.files import atomic_write, check_new_file
from bertie.folders import ANYTHING, FolderKind, held, new_folder, strangers
from bertie.models import names
from bertie.runs import model_card
from bertie.runs.folder import RUN
from toys import CommandLine, toy_model

KIND = FolderKind("toy", begins=("a.txt",), files=("a.txt", "b-*.txt"), folders={"inner": None})


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def tree(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


@pytest.mark.promise("whole-or-absent")
def test_a_folder_is_whole_or_absent(tmp_path):
    with suppress(ZeroDivisionError), new_folder(tmp_path / "out", KIND) as made:
        fill(made, "a.txt")
        assert not (tmp_path / "out").exists()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with new_folder(tmp_path / "out", KIND) as made:
        fill(made, "a.txt")
    assert tree(tmp_path / "out") == {"a.txt", "checksums.json"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def refused(folder: Path, name: str, error: BaseException) -> None:
    fill(folder, name)
    raise error


def test_what_is_refused_leaves_nothing(tmp_path):
    run = tmp_path / "above" / "run"
    for error in (UsageError, DataError):
        with pytest.raises(error), held(run, RUN):
            refused(run, "outline/vocab.txt", error("what is written before a checkpoint is looked for"))
        with pytest.raises(error), new_folder(run, KIND):
            raise error("refused")
        with pytest.raises(error), atomic_write(run):
            raise error("refused")
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyboardInterrupt), held(run, RUN):
        refused(run, "outline/vocab.txt", KeyboardInterrupt())
    assert tree(run) == {".lock", "outline/vocab.txt"}, "the same call continues"
    shutil.rmtree(run)
    with pytest.raises(DataError), held(run, RUN):
        refused(run, "metrics.jsonl", DataError("in a run that began"))
    assert tree(run) == {".lock", "metrics.jsonl"}
    with pytest.raises(DataError), held(run, RUN, overwrite=False):
        raise DataError("in a folder that was there")
    assert tree(run) == {".lock", "metrics.jsonl"}


def test_an_output_file_is_not_a_folder(tmp_path):
    with pytest.raises(UsageError, match="is a folder; a file was expected"):
        check_new_file(tmp_path, overwrite=True)


def test_an_input_is_never_replaced(tmp_path):
    (tmp_path / "a.xlsx").write_bytes(b"sheets that no output has")
    (tmp_path / "link.xlsx").symlink_to("a.xlsx")
    with pytest.raises(UsageError, match="is read by this command"):
        check_new_file(tmp_path / "a.xlsx", overwrite=True, inputs=["-", tmp_path / "link.xlsx"])
    check_new_file(tmp_path / "b.xlsx", inputs=[tmp_path / "a.xlsx"])


@pytest.mark.promise("whole-or-absent")
@pytest.mark.parametrize("moment", ["while it is written", "between the renames", "before the old one is deleted"])
def test_killed_at_any_moment_the_same_call_works(tmp_path, moment):
    """What a killed process leaves is laid out by hand; every moment leaves one of these."""
    out = tmp_path / "out"
    with new_folder(out, KIND) as made:
        fill(made, "a.txt")
    if moment == "while it is written":
        fill(tmp_path / ".out.tmp", ".lock", "a.txt", "b-1.txt")
    elif moment == "between the renames":
        fill(tmp_path / ".out.tmp", ".lock", "a.txt")
        out.rename(tmp_path / ".out.old")
    else:
        shutil.copytree(out, tmp_path / ".out.old")
    with new_folder(out, KIND, overwrite=True) as made:
        fill(made, "a.txt", "b-2.txt")
    assert tree(out) == {"a.txt", "b-2.txt", "checksums.json"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.promise("whole-or-absent")
def test_a_killed_process_leaves_its_folder_to_the_next(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from bertie.folders import ANYTHING, new_folder\n"
        "with new_folder(Path(sys.argv[1]), ANYTHING) as made:\n"
        "    (made / 'half').write_text('x'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")]).returncode == -9
    assert [path.name for path in tmp_path.iterdir()] == [".out.tmp"]
    with new_folder(tmp_path / "out", ANYTHING) as made:
        fill(made, "whole")
    assert tree(tmp_path) == {"out/whole", "out/checksums.json"}


@pytest.mark.promise("overwrite-keeps-others")
@pytest.mark.parametrize("kind", [KIND, RUN], ids=["written once", "gone on with"])
def test_what_bertie_did_not_write_is_never_deleted(tmp_path, kind):
    foreign = fill(tmp_path / "thesis", "chapter.tex", "figures/plot.png")
    with pytest.raises(UsageError, match=r"chapter.tex, figures/.* Move them away"):
        folders.check_writable(foreign, kind, overwrite=True)
    with pytest.raises(UsageError, match=r"chapter\.tex"), held(foreign, kind, overwrite=True):
        pass
    with pytest.raises(UsageError, match=r"chapter\.tex"), new_folder(foreign, kind, overwrite=True):
        pass
    assert tree(foreign) == {"chapter.tex", "figures/plot.png"}
    assert list(tmp_path.iterdir()) == [foreign]


@pytest.mark.promise("overwrite-keeps-others")
def test_a_note_in_a_run_stands_in_the_way_and_is_named(tmp_path):
    run = fill(tmp_path / "run", "run.yaml", "metrics.jsonl", "checkpoint-5/state.json", "model/notes.md")
    assert strangers(run, RUN) == ["model/notes.md"]
    with pytest.raises(UsageError, match=r"model/notes\.md"), held(run, RUN, overwrite=True):
        pass
    (run / "model/notes.md").unlink()
    with held(run, RUN, overwrite=True):
        assert tree(run) == {".lock"}


def test_a_folder_of_another_kind_is_not_gone_on_with(tmp_path):
    """A model, a corpus or a run has a list too, or a lock: neither makes it an index."""
    with new_folder(tmp_path / "model", ANYTHING) as made:
        fill(made, "config.json")
    fill(tmp_path / "run", "run.yaml", ".lock")
    for other in ("model", "run"):
        with pytest.raises(UsageError, match="contains files that are not a toy"):
            folders.check_writable(tmp_path / other, KIND)
    with pytest.raises(UsageError, match="are not an audit"):
        folders.check_writable(tmp_path / "run", FolderKind("audit", ("settings.json",), ("*.json",)))
    fill(tmp_path / "begun", ".lock")
    folders.check_writable(tmp_path / "begun", KIND)


def test_the_list_above_knows_of_a_changed_list_inside(tmp_path):
    fill(tmp_path, "run/run.yaml", "run/model/config.json", "run/model/README.md")
    checksums.write_checksums(tmp_path / "run/model", "model")
    checksums.write_checksums(tmp_path / "run", "run")
    model_card.put(tmp_path / "run/model", "Attention", "Heads.")
    assert checksums.check_files(tmp_path / "run").damage == []


def test_the_card_of_a_named_model_is_not_changed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(names, "BUNDLED", (tmp_path / "models",))
    fill(tmp_path, "models/starter/README.md", "models/starter/config.json")
    command = ("explain", "starter", "A text.", "--card"), ("heads", "starter", "--dev", "x.csv", "--card")
    for line in command:
        code, _, err = CommandLine(monkeypatch, capsys)(*line)
        assert (code, "bertie convert starter -o FOLDER" in err) == (2, True), err
    assert (tmp_path / "models/starter/README.md").read_text() == "models/starter/README.md"
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    fill(tmp_path, "mine/README.md", "mine/config.json")
    code, _, err = CommandLine(monkeypatch, capsys)("explain", tmp_path / "mine", "A text.", "--card")
    assert (code, "mine is read-only. Omit --card" in err) == (2, True), err


def test_files_in_the_list_are_ours_whatever_their_names(tmp_path):
    with new_folder(tmp_path / "out", KIND) as made:
        fill(made, "a.txt", "odd.bin", "extra/config.json")
    assert strangers(tmp_path / "out", KIND) == []
    fill(tmp_path / "out", "extra/mine.txt")
    assert strangers(tmp_path / "out", KIND) == ["extra/"]


@pytest.mark.promise("overwrite-keeps-others")
def test_a_folder_that_is_being_written_is_refused_and_keeps_its_lock(tmp_path):
    code = (
        "import sys; from pathlib import Path; from bertie.folders import held; from bertie.runs.folder import RUN\n"
        "with held(Path(sys.argv[1]), RUN):\n    print('in', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"in\n"
        inode = (tmp_path / "run" / ".lock").stat().st_ino
        with pytest.raises(UsageError, match="Another process"):
            folders.check_writable(tmp_path / "run", RUN, overwrite=True)
        with pytest.raises(UsageError, match="Another process"), held(tmp_path / "run", RUN, overwrite=True):
            pass
        assert (tmp_path / "run" / ".lock").stat().st_ino == inode
        other.kill()
    with held(tmp_path / "run", RUN, overwrite=True):
        pass


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path):
    with new_folder(tmp_path / "real", KIND) as made:
        fill(made, "a.txt")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with new_folder(tmp_path / "link", KIND, overwrite=True) as made:
        fill(made, "b-1.txt")
    assert (tmp_path / "link").is_symlink()
    assert tree(tmp_path / "real") == {"b-1.txt", "checksums.json"}
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError, match="does not exist"):
        folders.check_writable(tmp_path / "nowhere", KIND, overwrite=True)
    with pytest.raises(UsageError, match="does not exist"), new_folder(tmp_path / "nowhere", KIND, overwrite=True):
        pass
    assert not (tmp_path / "gone").exists()


@pytest.mark.promise("whole-or-absent")
def test_leftovers_of_killed_writes_are_swept(tmp_path):
    run = fill(tmp_path / "run", "run.yaml", ".results.json.123.tmp", ".model.tmp/config.json", ".checkpoint-5.tmp/x")
    with held(run, RUN):
        assert tree(run) == {"run.yaml", ".lock", ".checkpoint-5.tmp/x"}, (
            "a partially written checkpoint is reported, then removed"
        )


def test_a_killed_write_is_swept_by_the_next_and_one_in_progress_is_not(tmp_path):
    path = tmp_path / "out.csv"
    code = (
        "import os, pathlib, sys; from bertie.files import atomic_write\n"
        "with atomic_write(pathlib.Path(sys.argv[1])) as file: os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    others = [tmp_path / name for name in (".out.csv.tmp", ".other.csv.1.tmp", f".out.csv.{os.getpid()}.tmp")]
    for other in others:
        other.touch()
    assert len([*tmp_path.iterdir()]) == 4
    with atomic_write(path) as first, atomic_write(path) as second:
        check_new_file(path)
        first.write(b"one")
        second.write(b"two")
    assert path.read_bytes() == b"one"
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])


def test_inside_a_run_strangers_are_taken_over(tmp_path):
    with new_folder(tmp_path / "model", KIND) as made:
        fill(made, "a.txt")
    fill(tmp_path / "model", "mine.txt", "onnx/model.onnx")
    with new_folder(tmp_path / "model", KIND, keep_strangers=True) as made:
        fill(made, "b-1.txt")
    assert tree(tmp_path / "model") == {"b-1.txt", "checksums.json", "mine.txt", "onnx/model.onnx"}


@pytest.mark.promise("damaged-bits")
def test_every_changed_byte_is_found(tmp_path):
    with new_folder(tmp_path / "out", KIND) as made:
        fill(made, "a.txt", "b-1.txt", "extra/config.json")
        with new_folder(made / "inner", KIND) as inner:
            fill(inner, "a.txt")
    names = tree(tmp_path / "out")
    assert len(names) == 6
    for name in names:
        path = tmp_path / "out" / name
        whole = path.read_bytes()
        for place in (0, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            try:
                assert checksums.check_files(tmp_path / "out").damage, f"{name} at {place}"
            except DataError:
                assert name == "checksums.json"
        path.write_bytes(whole)
    assert checksums.check_files(tmp_path / "out") == checksums.FolderCheck(5)
    fill(tmp_path / "out", "inner/mine.txt")
    assert checksums.check_files(tmp_path / "out").uncovered == ["inner/mine.txt"]


def test_a_mount_point_is_named_as_such(monkeypatch, tmp_path):
    monkeypatch.setattr(os.path, "ismount", lambda path: True)
    with pytest.raises(UsageError, match="mount point"), new_folder(tmp_path, KIND):
        pass


def test_weights_are_as_readable_as_the_files_beside_them(tmp_path):
    """safetensors writes a file that only its owner may read, in the place of the one that it is given."""
    folder = toy_model(tmp_path / "model", ["a"])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes["model.safetensors"] == modes["config.json"]
    with atomic_write(tmp_path / "all.safetensors") as file:
        Path(file.name).unlink()
        save_file({"a": np.zeros(2)}, file.name)
    assert load_file(tmp_path / "all.safetensors")["a"].tolist() == [0, 0]


def test_a_model_is_not_replaced_by_what_is_made_of_it(bertie: CommandLine, tmp_path: Path) -> None:
    folder = toy_model(tmp_path / "run" / "model", ["a", "text"])
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    texts = tmp_path / "texts.txt"
    texts.write_text("a text\n")
    for words in (
        ("export", folder),
        ("compress", folder, "--texts", texts),
        ("convert", folder),
        ("vocabulary", "trim", folder, texts),
    ):
        code, _, err = bertie(*words, "-o", folder, "--overwrite")
        assert (code, "the original remains intact" in " ".join(err.split())) == (2, True), words
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("Error while serializing: I/O error: No space left on device (os error 28)", "disk is full: .*model"),
        ("Error while serializing: I/O error: File too large (os error 27)", "model.* cannot grow further"),
        ("IO_ENOSPC", f"disk is full: {tempfile.gettempdir()} could"),
        ("IO_EFBIG", "cannot grow further"),
    ],
)
def test_a_full_disk_of_another_library(tmp_path: Path, raised: str, said: str) -> None:
    """safetensors and lxml raise errors of their own; lxml writes in the temporary folder."""
    with pytest.raises(Stopped, match=said), atomic_write(tmp_path / "model.safetensors"):
        raise ValueError(raised)
    assert list(tmp_path.iterdir()) == []
