"""Vocabularies: counting in bounded memory, learning from counts, what is recorded; report, morphemes, commands."""

import json
import random
from collections import Counter

import pytest
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers, processors, trainers
from typer.testing import CliRunner

from bertie.apps.cli.table import app
from bertie.apps.tokens.report import measure_tokenizer
from bertie.console import console
from bertie.errors import DataError, NoRows, UsageError
from bertie.text import vocabulary
from bertie.text.normalize import Normalizer
from bertie.text.sentences import script
from bertie.text.tokenizer import Tokenizer
from bertie.text.vocabulary import count_words, train_vocabulary

NOUNS = "harbour lantern orchard window kettle bridge ladder garden pocket mirror candle basket".split()
VERBS = "carries follows finds paints repairs watches opens borrows forgets remembers".split()
KOREAN = "바다가 보이는 창문을 열었다 등불을 들고 다리를 건넜다 정원에서 사과를 땄다 거울을 닦았다".split()


def lines(count=400, seed=0):
    rng = random.Random(seed)
    for _ in range(count):
        yield f"The {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)}, café."
        yield " ".join(rng.sample(KOREAN, 4)) + "."


@pytest.fixture(scope="module")
def words():
    return count_words(lines())


def test_counting_counts(words):
    assert words.counts == Counter(word for line in lines() for word in line.split())
    assert words.lines == 800
    assert words.words == words.counts.total()
    assert words.forgotten == 0


def test_counting_forgets_the_rare_within_its_bound_and_says_so():
    rng = random.Random(1)
    stream = [f"common{rng.randrange(5)} rare{number}" for number in range(3000)]
    found = count_words(stream, max_words=500)
    assert len(found.counts) <= 500
    assert found.words == 6000
    assert found.counts.total() + found.forgotten == found.words
    true = Counter(word for line in stream for word in line.split())
    assert all(found.counts[f"common{n}"] == true[f"common{n}"] for n in range(5))


@pytest.mark.parametrize("algorithm", ["wordpiece", "bpe", "unigram"])
def test_every_algorithm_learns_loads_and_spells(algorithm, words, tmp_path):
    tokenizer = train_vocabulary(words, size=400, algorithm=algorithm, normalizer=Normalizer(lowercase=True))
    assert [tokenizer.id_to_token(i) for i in range(5)] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert tokenizer.special_ids == {0, 1, 2, 3, 4}
    facts = tokenizer.settings["bertie"]
    assert facts["algorithm"] == algorithm
    assert {"wordpiece": "BPE", "bpe": "byte-level", "unigram": "EM"}[algorithm] in facts["trained_by"]
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.settings["bertie"] == facts
    texts = [*lines(20, seed=5)]
    assert again.encode_batch(texts) == tokenizer.encode_batch(texts)
    assert again.ids(texts) == [encoding.ids[1:-1] for encoding in again.encode_batch(texts)]
    for text, encoding in zip(texts, again.encode_batch(texts), strict=True):
        covered = {place for start, end in encoding.offsets for place in range(start, end)}
        assert covered == {place for place, character in enumerate(text) if character != " "}
        assert tokenizer.unk_id not in encoding.ids
        starts = {}  # the first piece at each place: byte-level pieces may share a character
        for i, (start, _) in zip(encoding.ids[1:-1], encoding.offsets[1:-1], strict=True):
            starts.setdefault(start, i)
        assert not tokenizer.continues_word([i for at, i in starts.items() if text[at - 1] == " "]).any()
    assert measure_tokenizer(again, texts).to_dict()["round_trip"] == 1


def test_the_order_of_the_corpus_does_not_matter(words):
    shuffled = list(lines())
    random.Random(9).shuffle(shuffled)
    for algorithm in ("wordpiece", "bpe"):
        one = train_vocabulary(words, size=300, algorithm=algorithm)
        assert one.fingerprint == train_vocabulary(count_words(shuffled), size=300, algorithm=algorithm).fingerprint


def test_learning_from_counts_is_learning_from_the_text(words):
    """Twin: the engine fed the text itself, line by line, with the letters numbered as ours are (ties depend on it)."""
    ours = train_vocabulary(words, size=300, normalizer=Normalizer())
    pieces = sorted(ours.engine.get_vocab(), key=ours.token_to_id)
    letters = [piece for piece in pieces if len(piece.removeprefix("##")) == 1 or piece.startswith("[")]
    plain = Engine(models.WordPiece(unk_token="[UNK]"))
    plain.normalizer, plain.pre_tokenizer = Normalizer().engine(), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=300, min_frequency=2, special_tokens=letters, show_progress=False)
    plain.train_from_iterator(lines(), trainer)
    assert plain.get_vocab() == ours.engine.get_vocab()


def test_unigram_writes_what_it_read_without_spaces_between_ideographs():
    corpus = ["그는 中國의 영화를 보았다", "我爱北京天安门", "東京에서 왔다"] * 9
    tokenizer = train_vocabulary(count_words(corpus), size=200, algorithm="unigram")
    assert [tokenizer.decode(tokenizer.encode(text).ids) for text in corpus[:3]] == corpus[:3]
    assert "中" in tokenizer.engine.get_vocab(), "ideographs are learned as words of their own"


def test_unigram_has_the_same_ids_every_time():
    rng = random.Random(0)
    syllables = [a + b for a in "bcdfghklmnprst" for b in "aeiou"]
    corpus = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(3000)]
    found = set[str]()
    for _ in range(3):
        rng.shuffle(corpus)
        found.add(train_vocabulary(count_words(corpus), size=900, algorithm="unigram").engine.to_str())
    assert len(found) == 1


def test_scaled_counts_give_nearly_the_same_pieces(words, monkeypatch):
    exact = set(train_vocabulary(words, size=300).engine.get_vocab())
    monkeypatch.setattr(vocabulary, "MAX_FED", 1500)
    scaled = train_vocabulary(words, size=300)
    assert scaled.settings["bertie"]["counts_scaled_by"] < 0.5
    assert len(exact & set(scaled.engine.get_vocab())) / len(exact) > 0.85


def test_free_rows_come_after_pad_as_in_the_release(words):
    tokenizer = train_vocabulary(words, size=400, unused=99)
    assert tokenizer.unused_ids == set(range(1, 100))
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.mask_id) == (0, 100, 101, 103)
    assert not tokenizer.unused_ids & tokenizer.special_ids
    assert 5 not in tokenizer.encode("[unused5]").ids


def test_more_pieces_than_the_corpus_can_give_is_said(words, capsys):
    tokenizer = train_vocabulary(words, size=30522)
    said = " ".join(capsys.readouterr().err.split())
    assert f"has {tokenizer.vocab_size:,} tokens instead of 30,522" in said
    assert tokenizer.settings["bertie"]["size_asked"] == 30522


def test_rare_characters_get_no_piece_and_jamo_always_do(words):
    tokenizer = train_vocabulary(words, size=1000)
    assert tokenizer.unk_id not in tokenizer.encode("ㅋㅋㅋ ㅠㅠ ~^^ QZ").ids
    few = train_vocabulary(words, size=400, limit_alphabet=30)
    assert few.settings["bertie"]["characters"] == 30
    assert few.unk_id in few.encode(KOREAN[0]).ids + few.encode("땄다").ids


def test_characters_without_a_token_are_told_and_unigram_keeps_all(capsys):
    letters = "abcdefghijklmnopqrstuvwxyzéèüöäß"
    many = count_words(" ".join(a + b for b in letters) for a in letters for _ in range(3))
    for algorithm, options in (("wordpiece", {}), ("character-bpe", {}), ("unigram", {"limit_alphabet": 20})):
        found = train_vocabulary(many, size=100, algorithm=algorithm, **options)
        lost = [letter for letter in letters if found.unk_id in found.encode(letter).ids]
        said = " ".join(capsys.readouterr().err.split())
        assert 0 < found.settings["bertie"]["characters_left_out"] == len(lost)
        assert f"leaves out {len(lost)} characters of {len(letters)}, unknown when read (" in said
        assert "warning: " in said
        assert all(f" {letter}" in said for letter in lost[:20])
        assert "A larger --size or --limit-alphabet keeps more" in said
    kept = train_vocabulary(many, size=100, algorithm="unigram")  # sentencepiece's rule: all, whatever the size
    assert not [letter for letter in letters if kept.unk_id in kept.encode(letter).ids]
    assert kept.settings["bertie"]["characters_left_out"] == 0
    assert "leaves out" not in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"too small .* Choose a --size of 39 or more"):
        train_vocabulary(many, size=38, algorithm="unigram")
    assert train_vocabulary(many, size=39, algorithm="unigram").vocab_size == 39


def test_few_characters_that_are_rare_are_told_without_a_warning(words, capsys):
    rare = count_words(["ab " * 60_000, "龍"])
    assert train_vocabulary(rare, size=100, algorithm="unigram").settings["bertie"]["characters_left_out"] == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "leaves out 1 character of 3, unknown when read (0.00056% of the text): 龍" in said
    assert not said.startswith("warning: The vocabulary leaves out")


def test_characters_that_are_added_are_counted_nowhere(capsys):
    """The words that spell each character of the alphabet are no words of the corpus."""
    few = train_vocabulary(count_words(["hello 漢"]), size=900, limit_alphabet=None)
    said = " ".join(capsys.readouterr().err.split())
    assert "the corpus has only 2 different words, and a token must occur at least 2 times" in said
    assert few.settings["bertie"]["words_with_rare_characters"] == 0
    train_vocabulary(count_words(["hello"]), size=60, min_frequency=1)  # 14 characters
    assert "the corpus has only 1 different word, and" in " ".join(capsys.readouterr().err.split())
    train_vocabulary(count_words(["힣 힣 漢"]), size=60)
    said = " ".join(capsys.readouterr().err.split())
    assert "leaves out 1 character of 2, unknown when read (33% of the text): 漢" in said
    assert "the corpus has only 1 different word without the characters left out" in said


def test_unigram_keeps_the_characters_of_words_that_occur_once():
    few = train_vocabulary(count_words(["hello 힣힣"]), size=9000, algorithm="unigram")
    assert few.unk_id not in few.encode("힣 z ㅋ").ids


def test_what_cannot_be_learned_is_an_error(words):
    with pytest.raises(NoRows):
        train_vocabulary(count_words(["", "  "]))
    with pytest.raises(UsageError, match="too small"):
        train_vocabulary(words, size=60, limit_alphabet=100)
    with pytest.raises(UsageError, match="Unknown algorithm 'wordpeice'"):
        train_vocabulary(words, algorithm="wordpeice")


def test_script_names():
    found = [script(word) for word in ("café", "한글", "中国", "Привет", "1998", "!", "ㅋㅋ", "3km", "שלום")]
    assert found == ["Latin", "Hangul", "Han", "Cyrillic", "number", "symbol", "Hangul", "Latin", "Hebrew"]


def test_the_report_counts(words):
    tokenizer = train_vocabulary(words, size=400, normalizer=Normalizer(lowercase=True))
    found = measure_tokenizer(tokenizer, ["The harbour", "바다가 中国 harbour", "Ω"]).to_dict()
    assert found["texts"] == 3
    assert found["scripts"]["Latin"]["words"] == 3
    assert found["scripts"]["Hangul"]["fertility"] == len(tokenizer.ids(["바다가"])[0])
    assert found["scripts"]["Han"]["unknown_words"] == 1
    assert found["scripts"]["Han"]["coverage"] == 0
    assert found["round_trip"] == pytest.approx(1 / 3)
    assert {word for word, _ in found["most_frequent_unknown"]} == {"中", "国", "Ω"}
    json.dumps(found)
    assert measure_tokenizer(tokenizer, []).to_dict()["fertility"] == 0
    bare = Tokenizer(Engine.from_str(tokenizer.engine.to_str()))
    bare.engine.post_processor = processors.ByteLevel()  # adds no special tokens
    assert (
        measure_tokenizer(bare, ["The harbour"]).to_dict()["scripts"]
        == measure_tokenizer(tokenizer, ["The harbour"]).to_dict()["scripts"]
    )
    assert measure_tokenizer(tokenizer, ["The harbour"]).table().row_count == 2


def test_morphemes_put_spaces_and_keep_places():
    pytest.importorskip("kiwipiepy")
    from bertie.text.sentences import SpacedWords

    text = "학교에서 👨\u200d👩 사과를 먹었다. The cat"
    split, origins = SpacedWords("kiwi")(text)
    assert split.replace(" ", "") == text.replace(" ", "")
    assert "학교 에서" in split
    assert len(origins) == len(split) + 1
    assert all(text[slice(*origins[n])] == c for n, c in enumerate(split) if c != " ")


def test_a_tokenizer_keeps_its_morphemes(tmp_path):
    pytest.importorskip("kiwipiepy")
    found = train_vocabulary(count_words(lines(), word_splitter="kiwi"), size=400, word_splitter="kiwi")
    found.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == found.fingerprint
    text = "등불을 들고 다리를 건넜다."
    encoding = again.encode(text)
    assert again.ids([text])[0] == encoding.ids[1:-1]
    assert "".join(text[a:b] for a, b in encoding.offsets) == text.replace(" ", "")
    assert "등불" in [text[a:b] for a, b in encoding.offsets]
    plain = Tokenizer(again.engine)
    assert plain.fingerprint != again.fingerprint


def test_the_commands(tmp_path, monkeypatch):
    corpus = tmp_path / "text.txt"
    corpus.write_bytes("\n".join(lines()).encode() + b"\n\xff\xfe bad line\n")
    run = CliRunner()
    out = str(tmp_path / "tok")
    done = run.invoke(app, ["tokenizer", "train", str(corpus), "-o", out, "--size", "200", "--lowercase", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["vocab_size"] == 200
    assert "skipped 1 line not in utf-8" in done.stderr
    assert isinstance(run.invoke(app, ["tokenizer", "train", str(corpus), "-o", out]).exception, UsageError)
    judged = run.invoke(app, ["tokenizer", "report", out, str(corpus), "--json"])
    assert json.loads(judged.stdout)["scripts"]["Hangul"]["words"] == 1600
    shown = run.invoke(app, ["tokenizer", "encode", out, "The harbour", "--json"])
    assert [row["text"] for row in json.loads(shown.stdout)] == ["", "The", "harbour", ""]
    console.verbosity.json = False
    piped = run.invoke(app, ["tokenizer", "encode", out, "-"], input="harbour [MASK]\n")
    assert "[MASK]" in piped.stdout
    (tmp_path / "blank.txt").write_text(" \n\n")
    blank = run.invoke(app, ["tokenizer", "report", out, str(tmp_path / "blank.txt")])
    assert isinstance(blank.exception, DataError)
    missing = run.invoke(app, ["tokenizer", "train", str(tmp_path / "no.txt"), "-o", str(tmp_path / "x")])
    assert isinstance(missing.exception, DataError)
