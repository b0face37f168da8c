"""Twin: every family's tokenizer, from the files it is published in, against `transformers` and `sentencepiece`."""

import json
import os
import shutil
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest

from bertie.errors import DataError, UsageError
from bertie.text.formats import FORMATS, MODEL_FILES
from bertie.text.sentencepiece import read_model
from bertie.text.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")
sentencepiece = pytest.importorskip("sentencepiece")

HARD = """The lighthouse keeper's daughter wasn't unbelievably tall; she was 1.83 m (6'0"), naïve & café-loving!
RÉSUMÉ, Straße, ﬁne, İzmir, e-mail: a_b@c.org, http://x.org/?q=1#top, $5 <tag>, C++ -- and ``quotes''.
등대지기는 매일 밤 불을 켠다. 안개가 짙어도 배는 길을 잃지 않았다! 띄어쓰기를안하면? ㅋㅋㅋ ㅠㅠ ﾡﾤ
日本語のテキスト、カタカナ。中文没有空格。𠀀 ｆｕｌｌ　ｗｉｄｔｈ
👨‍👩‍👧 🇰🇷 שלום مَرحبا नमस्ते ไทย \u200bzero\u200bwidth\ufeff nb\u00a0sp soft\u00adhyphen tab\tend
mixed한글and中文in1word, \x07bell \x00nul \x85next\u2028line pneumonoultramicroscopicsilicovolcanoconiosis
  two  spaces   before and after  
\r\nlines\nof\r\ntext
e\u0301 a\u0300\u0316 각 \u1100\u1161\u11a8""".split("\n")  # noqa: W291
HARD += ["", " ", "a", "\n", *(unicodedata.normalize("NFD", text) for text in HARD)]
PUBLISHED = [  # transformers' class, our name of the family
    ("AlbertTokenizer", "albert"),
    ("XLMRobertaTokenizer", "xlm-roberta"),
    ("CamembertTokenizer", "camembert"),
    ("T5Tokenizer", "t5"),
    ("XLNetTokenizer", "xlnet"),
    ("BigBirdTokenizer", "big_bird"),
]
OWN = {  # what each family's own model has for pieces that are not text
    "albert": {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": "[CLS],[SEP],[MASK]"},
    "t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "xlnet": {"unk_id": 0, "bos_id": 1, "eos_id": 2, "control_symbols": "<cls>,<sep>,<pad>,<mask>,<eod>,<eop>"},
    "big_bird": {
        "pad_id": 0,
        "eos_id": 1,
        "bos_id": 2,
        "unk_id": 3,
        "control_symbols": "[CLS],[SEP],[MASK]",
        "normalization_rule_name": "identity",  # transformers' class leaves out any other
    },
}


def learn(folder: Path, family: str, **options: object) -> Path:
    """A small SentencePiece model of the hard texts, in a folder that says which family it is of."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [line for text in HARD * 4 for line in text.split("\n") if line.strip() and "\0" not in line]
    name = "spiece.model" if family in OWN else "sentencepiece.bpe.model"
    options = {"vocab_size": 420, "hard_vocab_limit": False, **OWN.get(family, {}), **options}
    with open(folder / name, "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=file, minloglevel=2, **options
        )
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    return folder


def assert_same(ours: Tokenizer, theirs, texts: list[str]) -> None:
    for text in texts:
        mine, other = ours.encode(text), theirs(text, return_offsets_mapping=True, return_token_type_ids=True)
        assert mine.tokens == other.tokens(), text
        assert mine.ids == other["input_ids"], text
        assert mine.offsets == other["offset_mapping"], text
        assert mine.type_ids == other["token_type_ids"], text
        assert mine.word_ids == other.word_ids(), text
        assert mine.sequence_ids == other.sequence_ids(), text
    for a, b in pairwise(text for text in texts if text):  # an empty second text is none to transformers
        mine, other = ours.encode(a, b), theirs(a, b, return_token_type_ids=True)
        assert mine.ids == other["input_ids"], (a, b)
        assert mine.type_ids == other["token_type_ids"], (a, b)
        assert mine.sequence_ids == other.sequence_ids(), (a, b)
        room = 14 - ours.frames[1].size % 2  # an odd piece goes to the first text in BERT's release
        assert ours.encode(a, b, max_length=room).ids == theirs(a, b, truncation=True, max_length=room)["input_ids"]
    for role in ("pad", "unk", "cls", "sep", "mask"):
        if getattr(theirs, f"{role}_token") is not None:
            assert ours.special_id(role) == getattr(theirs, f"{role}_token_id"), role


def both_ways(ours: Tokenizer, theirs, folder: Path, class_name: str, *, texts: list[str] = HARD) -> None:
    """What each saves the other opens, and finds the same in it."""
    with_mask = [f"one {ours.special_tokens['mask']} two"] if "mask" in ours.special_tokens else []
    ours.save(folder / "ours")
    shutil.copy(folder / "config.json", folder / "ours")
    again = transformers.AutoTokenizer.from_pretrained(folder / "ours")
    assert type(again).__name__ == class_name
    assert_same(ours, again, [*texts, *with_mask])
    assert Tokenizer.load(folder / "ours").fingerprint == ours.fingerprint
    theirs.save_pretrained(folder / "theirs")
    assert Tokenizer.load(folder / "theirs").encode_batch(texts) == ours.encode_batch(texts)


@pytest.mark.parametrize(("class_name", "family"), PUBLISHED)
def test_sentencepiece_models(class_name: str, family: str, tmp_path: Path) -> None:
    learn(tmp_path, family)
    ours, theirs = Tokenizer.load(tmp_path), getattr(transformers, class_name).from_pretrained(tmp_path)
    assert_same(ours, theirs, HARD)
    both_ways(ours, theirs, tmp_path, class_name)
    model = next(name for name in MODEL_FILES if (tmp_path / name).exists())
    assert (tmp_path / "ours" / model).read_bytes() == (tmp_path / model).read_bytes()


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
@pytest.mark.parametrize("options", [{}, {"byte_fallback": True, "vocab_size": 700}], ids=["plain", "bytes"])
def test_pieces_are_those_sentencepiece_finds(algorithm: str, options: dict, tmp_path: Path) -> None:
    learn(tmp_path, "t5", model_type=algorithm, user_defined_symbols="(,),$", **options)
    ours = Tokenizer.load(tmp_path)
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spiece.model"))
    model = read_model(tmp_path / "spiece.model")
    assert list(model.pieces) == [theirs.id_to_piece(i) for i in range(len(theirs))]
    for text in HARD:
        if not unicodedata.is_normalized("NFC", text):
            continue  # the engine composes a character and its marks at once, sentencepiece as its table has them
        text = text.replace("\x85", " ")  # white space to the engine, a character to sentencepiece
        assert ours.encode(text).ids[:-1] == theirs.encode(text), text


@pytest.mark.parametrize(("kind", "family"), [("RobertaTokenizer", "roberta"), ("GPT2Tokenizer", "gpt2")])
@pytest.mark.parametrize("space", [False, True])
def test_byte_vocabularies(kind: str, family: str, space: bool, tmp_path: Path) -> None:
    from tokenizers import ByteLevelBPETokenizer

    engine = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] if family == "roberta" else ["<|endoftext|>"]
    engine.train_from_iterator(HARD * 2, vocab_size=500, min_frequency=2, special_tokens=special)
    engine.save_model(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": space}))
    published(kind, tmp_path)


@pytest.mark.skipif("BERTIE_DATA" not in os.environ, reason="BERTIE_DATA names no folder of data sets")
@pytest.mark.parametrize(
    ("kind", "family", "vocabulary"),
    [("RobertaTokenizer", "roberta", "roberta-base-vocab.json"), ("GPT2Tokenizer", "gpt2", "gpt2-encoder.json")],
)
def test_published_byte_vocabularies(kind: str, family: str, vocabulary: str, tmp_path: Path) -> None:
    data = Path(os.environ["BERTIE_DATA"]) / "vocab"
    shutil.copy(data / vocabulary, tmp_path / "vocab.json")
    shutil.copy(data / "gpt2-merges.txt", tmp_path / "merges.txt")  # RoBERTa's is the same
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    published(kind, tmp_path)


def test_pieces_of_characters(tmp_path: Path) -> None:
    """The first GPT's: words are lowered and split as BERT's, pieces that end one are marked."""
    from tokenizers import CharBPETokenizer

    engine = CharBPETokenizer(lowercase=True)
    engine.train_from_iterator(HARD * 2, vocab_size=500, min_frequency=2)
    engine.save_model(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "openai-gpt"}')
    published("OpenAIGPTTokenizer", tmp_path)


def published(kind: str, folder: Path) -> None:
    ours, theirs = Tokenizer.load(folder), getattr(transformers, kind).from_pretrained(folder)
    assert_same(ours, theirs, HARD)
    both_ways(ours, theirs, folder, kind)
    saved = json.loads((folder / "ours" / "vocab.json").read_text())
    assert saved == json.loads((folder / "vocab.json").read_text())
    lines = (folder / "merges.txt").read_text().split("\n")
    assert (folder / "ours" / "merges.txt").read_text().split("\n")[1:] == lines[lines[0].startswith("#version") :]


def test_a_number_and_its_comma_are_two_pieces(tmp_path: Path) -> None:
    learn(tmp_path, "albert", user_defined_symbols=["1,"])
    tokens = Tokenizer.load(tmp_path).encode("tall in 2001, too").tokens
    assert "1," not in tokens
    assert "1," in read_model(tmp_path / "spiece.model").pieces


def test_the_mask_takes_the_space_before_it(tmp_path: Path) -> None:
    ours = Tokenizer.load(learn(tmp_path, "xlm-roberta"))
    encoding = ours.encode("the <mask> tall")
    place = encoding.ids.index(ours.mask_id)
    assert encoding.offsets[place] == (3, 10)


def test_spelled_out_special_tokens_are_text_where_asked(tmp_path: Path) -> None:
    for family in ("albert", "xlm-roberta"):
        learn(tmp_path / family, family)
        (tmp_path / family / "tokenizer_config.json").write_text('{"split_special_tokens": true}')
        ours = Tokenizer.load(tmp_path / family)
        text = "".join(f"the {token} tall " for token in ours.special_tokens.values())
        assert not set(ours.ids([text])[0]) & (ours.special_ids - {ours.unk_id})
        assert ours.ids(["the lighthouse"])[0] == ours.encode("the lighthouse").ids[1:-1]


def test_a_family_without_a_token_says_so(tmp_path: Path) -> None:
    ours = Tokenizer.load(learn(tmp_path, "t5"))
    assert ours.special_id("mask") is None
    with pytest.raises(UsageError, match="no mask token"):
        _ = ours.mask_id
    assert ours.encode("a", "b").tokens[-1] == "</s>"
    assert ours.vocab_size == len(read_model(tmp_path / "spiece.model").pieces) + 100


def test_every_family_has_a_row() -> None:
    from bertie.models import families

    known = {model_type for row in FORMATS for model_type in row.model_types}
    text = {
        name for name, variant in families.VARIANTS.items() if variant.tokenizer in ("wordpiece", "byte-bpe", "unigram")
    }
    assert text <= known


# Damage --------------------------------------------------------------------------------------------------------------


def test_a_model_alone_asks_for_its_family(tmp_path: Path) -> None:
    learn(tmp_path, "albert")
    (tmp_path / "config.json").unlink()
    with pytest.raises(DataError, match="of an unknown family"):
        Tokenizer.load(tmp_path)


def test_a_model_without_a_space_before_the_first_word(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"keep_accents": true}')  # ALBERT's rule would break Hangul
    ours = Tokenizer.load(learn(tmp_path, "albert", add_dummy_prefix=False))
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spiece.model"))
    for text in ("the lighthouse keeper", "  two  spaces ", "등대지기는 매일 밤", " "):
        assert ours.ids([text]) == [theirs.encode(text)]
    learn(tmp_path, "albert", treat_whitespace_as_suffix=True)
    with pytest.raises(DataError, match=r"spiece\.model: .*treat_whitespace_as_suffix.* is not supported"):
        Tokenizer.load(tmp_path)


def test_damaged_models_are_refused(tmp_path: Path) -> None:
    """Cut at every length and bits turned over: an error that names the file, or a tokenizer; never anything else."""
    path = learn(tmp_path, "albert", vocab_size=250) / "spiece.model"
    whole = path.read_bytes()
    refused = 0
    for i in range(0, len(whole), max(1, len(whole) // 120)):
        flipped = bytearray(whole)
        flipped[i] ^= 1 << i % 8
        for data in (whole[:i], bytes(flipped)):
            path.write_bytes(data)
            try:
                Tokenizer.load(tmp_path)
            except DataError as error:
                refused += str(tmp_path) in str(error)
    assert refused > 60


@pytest.mark.parametrize(
    ("vocabulary", "merges", "message"),
    [
        ("[1]", "#version\n", "not an object"),
        ('{"a": -1}', "#version\n", "not an object"),
        ('{"a": 0}', None, "no merges.txt"),
        ('{"a": 0}', "#version\na b c\n", "not two tokens"),
        ('{"a": 0}', "#version\na b\n", "not a valid tokenizer file"),
        ('{"a": 0}', "", "no <s>"),
    ],
)
def test_damaged_byte_vocabularies_are_refused(
    vocabulary: str, merges: str | None, message: str, tmp_path: Path
) -> None:
    (tmp_path / "vocab.json").write_text(vocabulary)
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    if merges is not None:
        (tmp_path / "merges.txt").write_text(merges)
    if message == "no <s>":
        Tokenizer.load(tmp_path)  # special tokens are added at the end, as transformers does
        return
    with pytest.raises(DataError, match=message):
        Tokenizer.load(tmp_path)
