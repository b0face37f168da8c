"""Makes a tokenizer from the files that a family is published in, by the row of its format (formats.py).

    vocab.txt                     WordPiece, as BERT
    vocab.json and merges.txt     byte-level BPE, as GPT-2 and RoBERTa
    spiece.model ...              SentencePiece, as ALBERT, XLM-R, T5

The settings of a family are in its format.
"""

import json
from collections.abc import Container, Mapping
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from bertie.errors import BadFile, DataError, model_hint, speech
from bertie.files import read_json, read_small
from bertie.folders import check_folder_kind
from bertie.text.engine import MAX_FILE_BYTES, bert_engine, guarded, read_vocabulary, special_token
from bertie.text.formats import (
    BERT_FORMAT,
    BYTE_VOCABULARY,
    MERGES,
    MODEL_FILES,
    VOCABULARY,
    Format,
    TokenizerSettings,
    find_special_tokens,
    guess,
)
from bertie.text.sentencepiece import SentencePieceModel, read_model

TOKEN_FLAGS = ("lstrip", "rstrip", "normalized", "single_word")  # of an added token


def assemble_tokenizer(
    folder: Path, settings: TokenizerSettings, row: Format | None
) -> tuple[tokenizers.Tokenizer, Format, list[str]]:
    """Returns the tokenizer of a folder without tokenizer.json, its format, and the files that cannot be made again.

    Raises DataError when the vocabulary is missing or damaged, or its family is unknown.
    """
    there = [name for name in (row.files if row else (VOCABULARY, BYTE_VOCABULARY)) if (folder / name).is_file()]
    if not there:
        if row is None and any((folder / name).is_file() for name in MODEL_FILES):
            raise DataError(
                f"{folder} has a SentencePiece model of an unknown family. Add a config.json, "
                '{"model_type": "xlm-roberta"}, or a tokenizer_config.json, '
                '{"tokenizer_class": "AlbertTokenizer"}.'
            )
        check_folder_kind(folder, "model", "tokenizer")
        expected = " or ".join(row.files) if row else VOCABULARY
        if not folder.is_dir():
            place = "" if speech.shell else " The tokenizer of a model that has a name is bertie.load_tokenizer(NAME)."
            raise DataError(f"{folder} is not a folder.{place}{model_hint(folder)}")
        names = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
        raise DataError(f"{folder} has neither tokenizer.json nor {expected} (found: {names}).")
    path = folder / there[0]
    if path.name == VOCABULARY:
        row = row or BERT_FORMAT
        tokens = {f"{role}_token": token for role, token in row.special.items()}
        engine = bert_engine(read_vocabulary(path), {**tokens, **settings}, path)
        if row.japanese:  # the words come separated by spaces
            engine.normalizer, engine.pre_tokenizer = None, pre_tokenizers.WhitespaceSplit()
        _add_more(engine, settings, row, _add_later(engine, folder, settings))
        if row.template is None:
            set_template(engine, settings, row)
        return engine, row, []
    if path.name == BYTE_VOCABULARY:
        engine, row = _byte_level(folder, settings, row)
        files = []
    else:
        assert row is not None
        model = read_model(path)
        with guarded(path):
            engine = _sentencepiece(model, settings, row)
        files = [path.name]
    _add_tokens(engine, folder, settings, row)
    set_template(engine, settings, row)
    return engine, row, files


def _byte_level(folder: Path, settings: TokenizerSettings, row: Format | None) -> tuple[tokenizers.Tokenizer, Format]:
    """Returns the tokenizer of vocab.json and merges.txt: tokens of bytes as printable characters (GPT-2), or of
    characters and word ends (the first GPT)."""
    vocabulary, merges = read_json(folder / BYTE_VOCABULARY), folder / MERGES
    if not isinstance(vocabulary, dict) or not all(
        isinstance(i, int) and 0 <= i < 1 << 28 for i in vocabulary.values()
    ):
        raise DataError(f"{folder / BYTE_VOCABULARY} is not an object of tokens and ids.")
    if not merges.is_file():
        raise DataError(f"{folder} has {BYTE_VOCABULARY} but no {MERGES}, the list of merges.")
    try:
        lines = read_small(merges, most=MAX_FILE_BYTES).decode().split("\n")
    except UnicodeDecodeError as error:
        raise BadFile(f"{merges} is not UTF-8 text ({error}).") from None
    lines = [line.rstrip("\r") for line in lines[lines[0].startswith("#version") :]]
    pairs = []
    for number, line in enumerate(filter(None, lines), 1):
        if line.count(" ") != 1:
            raise DataError(f"{merges}: pair {number:,} ({line[:80]!r}) is not two tokens.")
        left, right = line.split(" ")
        pairs.append((left, right))
    row = row or guess(vocabulary)
    unk = row.special["unk"] if row.word_end else None
    with guarded(merges):
        model = models.BPE(
            vocabulary, pairs, unk_token=unk, continuing_subword_prefix="", end_of_word_suffix=row.word_end
        )
        engine = tokenizers.Tokenizer(model)
    if row.word_end:
        engine.normalizer = normalizers.BertNormalizer(lowercase=True)
        engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        engine.decoder = decoders.BPEDecoder(suffix=row.word_end)
    else:
        engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(settings.get("add_prefix_space")))
        engine.decoder = decoders.ByteLevel()
    return engine, row


def _sentencepiece(model: SentencePieceModel, settings: TokenizerSettings, row: Format) -> tokenizers.Tokenizer:
    scored = [
        (piece, score - 100 if row.split_numbers and piece[-1:] == "," and piece[-2:-1].isdigit() else score)
        for piece, score in zip(model.pieces, model.scores, strict=True)
    ]
    pieces = [*row.first, *scored[row.skip :]]
    names = {piece for piece, _ in pieces}
    pieces += [(token, 0.0) for token in row.last if token not in names]
    ids = {piece: i for i, (piece, _) in enumerate(pieces)}
    unk = special_token(settings, "unk", row.special["unk"])
    if unk not in ids:
        raise DataError(f"the model has no unknown token {unk!r}")
    algorithm: models.Model
    if model.algorithm == "unigram":
        algorithm = models.Unigram(pieces, unk_id=ids[unk], byte_fallback=model.byte_fallback)
    else:
        merges = [pair for pair in model.merges() if {*pair, "".join(pair)} <= ids.keys()]
        algorithm = models.BPE(ids, merges, unk_token=unk, fuse_unk=True, byte_fallback=model.byte_fallback)
    engine = tokenizers.Tokenizer(algorithm)
    steps = [step for step in (row.normalize(settings, model.charsmap),) if step is not None]
    if not model.prefix_space:  # words are not split at spaces, which would lose the mark of the space before a word
        steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    if steps:
        engine.normalizer = normalizers.Sequence(steps) if len(steps) > 1 else steps[0]
    scheme = "always" if model.prefix_space and settings.get("add_prefix_space") is not False else "never"
    spaces = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
    split: list[pre_tokenizers.PreTokenizer] = (
        [pre_tokenizers.WhitespaceSplit()] if row.split_spaces and model.prefix_space else []
    )
    if row.split_punctuation and settings.get("split_by_punct"):
        split.append(pre_tokenizers.Punctuation(behavior="isolated"))
    engine.pre_tokenizer = pre_tokenizers.Sequence([*split, spaces])
    engine.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
    return engine


def _add_tokens(engine: tokenizers.Tokenizer, folder: Path, settings: TokenizerSettings, row: Format) -> None:
    """Marks the special tokens, and adds tokens that were added to the vocabulary later, with their ids."""
    already = _add_later(engine, folder, settings)
    for role, content in find_special_tokens(settings, row, engine.get_vocab()).items():
        if content not in already:
            eager = role == "mask" and row.eager_mask
            engine.add_special_tokens([_token(settings.get(f"{role}_token"), content, lstrip=eager)])
            already.add(content)
    _add_more(engine, settings, row, already)


def _add_later(engine: tokenizers.Tokenizer, folder: Path, settings: TokenizerSettings) -> set[str]:
    """Adds the tokens that have their own ids."""
    added = _added(folder, settings)
    for i, token in sorted(added.items()):
        engine.add_special_tokens([token]) if token.special else engine.add_tokens([token])
        if engine.token_to_id(token.content) != i:
            raise DataError(
                f"{folder}: {token.content!r} was added as token {i:,} but now has the id "
                f"{engine.token_to_id(token.content):,}. A token is missing from the vocabulary, or is listed "
                "twice."
            )
    return {token.content for token in added.values()}


def _add_more(engine: tokenizers.Tokenizer, settings: TokenizerSettings, row: Format, already: Container[str]) -> None:
    more = settings.get("additional_special_tokens")
    extra = [t for t in (more if isinstance(more, list) else row.extra) if isinstance(t, str) and t not in already]
    engine.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in extra])


def _token(entry: object, content: str, *, lstrip: bool) -> AddedToken:
    flags = {"lstrip": lstrip, "normalized": False}
    if isinstance(entry, dict):
        flags = {name: bool(entry.get(name)) for name in TOKEN_FLAGS}
    return AddedToken(content, special=True, **flags)


def _added(folder: Path, settings: TokenizerSettings) -> dict[int, AddedToken]:
    """Returns tokens with their own ids: tokenizer_config.json's added_tokens_decoder, or the older
    added_tokens.json."""
    rows = settings.get("added_tokens_decoder")
    if isinstance(rows, dict):
        try:
            return {
                int(i): AddedToken(
                    t["content"], special=bool(t.get("special")), **{n: bool(t.get(n)) for n in TOKEN_FLAGS}
                )
                for i, t in rows.items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadFile(f"{folder / 'tokenizer_config.json'}: added_tokens_decoder is damaged ({error}).") from None
    path = folder / "added_tokens.json"
    older = read_json(path) if path.is_file() else {}
    if not isinstance(older, dict) or not all(isinstance(i, int) for i in older.values()):
        raise DataError(f"{path} is not an object of tokens and their ids.")
    return {i: AddedToken(token) for token, i in older.items()}


def set_template(engine: tokenizers.Tokenizer, settings: TokenizerSettings, row: Format) -> None:
    """Sets the positions of the family's special tokens around one text and two."""
    ids = engine.get_vocab()
    called = find_special_tokens(settings, row, ids)
    if row.template is None and "cls" in called and "sep" in called:
        sep, cls = called["sep"], called["cls"]
        trim, space = settings.get("trim_offsets") is not False, bool(settings.get("add_prefix_space"))
        engine.post_processor = processors.RobertaProcessing(
            (sep, ids[sep]), (cls, ids[cls]), trim_offsets=trim, add_prefix_space=space
        )
    elif row.template is not None:
        inner = engine.post_processor
        single, pair = (_renamed(text, row.special, called) for text in row.template)
        used = {part.split(":")[0] for part in pair.split(" ")} - {"$A", "$B"}
        template = processors.TemplateProcessing(
            single=single, pair=pair, special_tokens=[(token, ids[token]) for token in sorted(used)]
        )
        engine.post_processor = processors.Sequence([inner, template]) if inner else template


def _renamed(template: str, usual: Mapping[str, str], called: Mapping[str, str]) -> str:
    new = {usual[role]: called[role] for role in usual if role in called}
    parts = (part.split(":") for part in template.split(" "))
    return " ".join(":".join([new.get(name, name), *types]) for name, *types in parts)


def byte_files(engine: tokenizers.Tokenizer) -> dict[str, bytes]:
    """Returns vocab.json and merges.txt of a byte-level tokenizer, as the family publishes them."""
    model = json.loads(engine.to_str())["model"]
    pairs = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    return {
        BYTE_VOCABULARY: json.dumps(model["vocab"], ensure_ascii=False).encode() + b"\n",
        MERGES: "".join(f"{line}\n" for line in ["#version: 0.2", *pairs]).encode(),
    }
