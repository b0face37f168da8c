"""Shards: what goes in comes out, over shard borders; damage is found and placed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertie.data.shards import HASH_BLOCK, Shards, ShardWriter, decode_texts
from bertie.errors import DataError, Stopped

DOCUMENTS = st.lists(st.lists(st.lists(st.integers(0, 65535), max_size=5), min_size=1, max_size=4), max_size=12)


def written(folder, documents, **options):
    with ShardWriter(folder, "uint16", **options) as writer:
        for document in documents:
            writer.add(document)
        return writer.finish()


@given(documents=DOCUMENTS, shard_values=st.integers(1, 12))
def test_every_view_agrees_with_the_plain_lists(tmp_path_factory, documents, shard_values):
    shards = written(tmp_path_factory.mktemp("shards"), documents, shard_values=shard_values)
    shards = Shards.open(shards.folder)
    sentences = [sentence for document in documents for sentence in document]
    flat = [value for sentence in sentences for value in sentence]
    assert (shards.num_documents, shards.num_sentences, shards.num_values) == (
        len(documents),
        len(sentences),
        len(flat),
    )
    assert shards.sentence_lengths().tolist() == [len(s) for s in sentences]
    assert shards.document_bounds().tolist() == np.cumsum([0, *(len(d) for d in documents)]).tolist()
    assert [[shards.sentence(j).tolist() for j in shards.document(i)] for i in range(len(documents))] == documents
    assert shards.span(0, len(flat)).tolist() == flat
    for start in range(len(sentences) + 1):
        for stop in (start, start + 1, len(sentences)):
            expected = [value for sentence in sentences[start:stop] for value in sentence]
            assert shards.values(start, min(stop, len(sentences))).tolist() == expected


@given(documents=DOCUMENTS, shard_values=st.integers(1, 12), cut=st.integers(0, 12))
def test_bytes_do_not_depend_on_how_documents_are_handed_over(tmp_path_factory, documents, shard_values, cut):
    one = written(tmp_path_factory.mktemp("one"), documents, shard_values=shard_values)
    folder = tmp_path_factory.mktemp("many")
    with ShardWriter(folder, "uint16", shard_values=shard_values) as writer:
        for group in (documents[:cut], documents[cut:]):
            sentences = [sentence for document in group for sentence in document]
            writer.extend(
                np.array([value for sentence in sentences for value in sentence], np.uint16),
                np.cumsum([0, *map(len, sentences)]),
                np.cumsum([0, *map(len, group)]),
            )
        many = writer.finish()
    assert {p.name: p.read_bytes() for p in one.folder.iterdir()} == {p.name: p.read_bytes() for p in folder.iterdir()}
    assert one.fingerprint == many.fingerprint


def test_text_is_written_as_bytes_and_read_as_text(tmp_path):
    with ShardWriter(tmp_path, "uint8") as writer:
        writer.add(["가나다.".encode(), b"abc"])
        shards = writer.finish(kind="text")
    bounds = np.concatenate([[0], np.cumsum(shards.sentence_lengths())])
    assert decode_texts(shards.values(0, 2), bounds) == ["가나다.", "abc"]
    assert decode_texts(shards.values(0, 0), np.zeros(1, np.int64)) == []
    assert shards.manifest["kind"] == "text"


@pytest.mark.promise("damaged-shard")
@pytest.mark.parametrize("kind", ["values", "sentences", "documents"])
def test_one_flipped_byte_is_found_on_open_with_shard_and_offset(tmp_path, kind):
    rng = np.random.default_rng(0)
    with ShardWriter(tmp_path, "uint8", shard_values=2 * HASH_BLOCK) as writer:
        for _ in range(3):
            values = rng.integers(0, 255, 2 * HASH_BLOCK + 5, np.uint8)
            bounds = np.arange(len(values) + 1)
            writer.extend(values, bounds, np.arange(len(bounds)))
        writer.finish()
    Shards.open(tmp_path)
    path = tmp_path / f"shard-00001.{kind}"
    data = bytearray(path.read_bytes())
    place = HASH_BLOCK + 17
    data[place] ^= 4
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"shard-00001.{kind} is damaged between bytes 1,048,576 and"):
        Shards.open(tmp_path)
    assert Shards.open(tmp_path, verify=False).num_documents > 0


@pytest.mark.parametrize("change", ["cut", "longer", "gone"])
def test_a_file_of_another_size_is_found_even_without_reading_it(tmp_path, change):
    written(tmp_path, [[[1, 2, 3], [4]]])
    path = tmp_path / "shard-00000.values"
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if change == "cut" else path.read_bytes() + b"x")
    with pytest.raises(DataError, match=r"shard-00000\.values"):
        Shards.open(tmp_path, verify=False)


def test_a_damaged_manifest_is_named(tmp_path):
    written(tmp_path, [[[1, 2, 3], [4]]])
    path = tmp_path / "manifest.json"
    whole = path.read_text()
    path.write_text(whole.replace('"num_values": 4', '"num_values": 5', 1))
    with pytest.raises(DataError, match="does not match its own hash"):
        Shards.open(tmp_path)
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="not readable JSON"):
        Shards.open(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match="no manifest"):
        Shards.open(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        Shards.open(tmp_path / "nowhere")


def test_an_abandoned_writer_leaves_nothing(tmp_path):
    def abandon():
        with ShardWriter(tmp_path, "uint16") as writer:
            writer.add([[1]])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        abandon()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.promise("full-disk")
def test_a_full_disk_stops_and_removes_the_unfinished_shard(tmp_path):
    class Full:
        def write(self, data):
            raise OSError(28, "No space left on device")

        def close(self):
            pass

    def fill():
        with ShardWriter(tmp_path, "uint16") as writer:
            writer.add([[1]])
            writer._files["values"]._file.close()
            writer._files["values"]._file = Full()
            writer.add([[2]])

    with pytest.raises(Stopped, match=r"The disk is full.*Free some space") as stop:
        fill()
    assert stop.value.exit_code == 75
    assert list(tmp_path.iterdir()) == []


def test_numbers_out_of_range_are_refused(tmp_path):
    shards = written(tmp_path, [[[1], [2, 3]]])
    for ask in (lambda: shards.document(1), lambda: shards.sentence(2), lambda: shards.sentence(-1)):
        with pytest.raises(IndexError):
            ask()
    with pytest.raises(IndexError):
        shards.span(1, 9)
