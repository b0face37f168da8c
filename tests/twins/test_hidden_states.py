"""The targets of `hidden`, compared with a plain loop over characters, and its loss with the formula."""

from dataclasses import replace

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers
from torch.nn import functional as F

from batches import pack, sequences_of
from bertie import objectives
from bertie.data.masking import Vocabulary
from bertie.errors import UsageError
from bertie.infer.native_engine import NativeStates
from bertie.models import families
from bertie.models.batch import Batch
from bertie.objectives.hidden import align, hidden_targets, spelling
from bertie.order import Draws, key
from bertie.text.sequences import STANDS
from bertie.text.tokenizer import Tokenizer
from bertie.train.step import backward

TEXTS = ["a banana (an apple), an ape.", "banana", "ape! x ban a"]
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def student_tokenizer() -> Tokenizer:
    pieces = ["a", "an", "ban", "##an", "##a", "ap", "##ple", "##e", *"(),.!"]
    vocab = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces])}
    engine = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    engine.normalizer, engine.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    return Tokenizer(engine)


def teacher_tokenizer() -> Tokenizer:
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "▁", *"abcdefghijklmnopqrstuvwxyz(),.!", "▁ba", "nan", "pl", "▁an"]
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocab = [(token, 0.0 if token in special else -float(4 - len(token))) for token in [*tokens, "<mask>"]]
    engine = tokenizers.Tokenizer(models.Unigram(vocab, unk_id=3))
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    engine.add_special_tokens(special)
    return Tokenizer(engine)


def teacher(folder: str = "teacher", *, states_only: bool = False):
    tokenizer = teacher_tokenizer()
    shape = families.config("bert-tiny", vocab_size=tokenizer.vocab_size, hidden_size=64, **SIZES)
    model = families.build(shape, seed=5)
    model.tokenizer = tokenizer
    return model.eval()


def student(objective):
    tokenizer = student_tokenizer()
    model = families.build(
        "bert-tiny", heads=objective.heads, vocab_size=tokenizer.vocab_size, hidden_size=32, seed=6, **SIZES, **STILL
    )
    model.tokenizer = tokenizer
    objective.prepare(model, 6)
    return model.train()


def batch_of(objective):
    tokenizer = student_tokenizer()
    rng, vocabulary = Draws(key(1, np.arange(len(TEXTS)))), Vocabulary.of(tokenizer)
    return Batch.of(objective.corrupt(sequences_of(tokenizer.encode_batch(TEXTS)), rng, vocabulary))


def plain_targets(model) -> torch.Tensor:
    """Of each text, token by token and character by character."""
    ours, found = student_tokenizer(), []
    for text in TEXTS:
        text = text.replace("x", "").replace("  ", " ")  # an unknown word has no characters
        encoding = model.tokenizer.encode(text)
        hidden = model.encode(pack([encoding])).last_hidden_state
        at = {c: n for n, (start, end) in enumerate(encoding.offsets) for c in range(start, end)}
        tokens = ours.encode(text)
        rows = []
        for (start, end), name in zip(tokens.offsets, tokens.tokens, strict=True):
            shared = [at[c] for c in range(start, end) if c in at and text[c] != " "]
            rows.append(hidden[shared].mean(0) if shared and name[0] != "[" else hidden.mean(0))
            if text.startswith("ape! ban") and name == "!":
                rows.append(hidden.mean(0))  # [UNK]
        found += rows
    return F.layer_norm(torch.stack(found), [hidden.shape[-1]])


def test_the_text_of_tokens_is_written_as_people_write():
    tokenizer = student_tokenizer()
    encodings = [tokenizer.encode(text) for text in TEXTS[:2]]
    ids, sizes = np.concatenate([e.ids for e in encodings]), np.array([len(e.ids) for e in encodings])
    texts, owners = spelling(tokenizer)(ids, sizes)
    assert texts == TEXTS[:2]
    assert [i for i, c in enumerate("".join(texts)) if c == " "] == np.flatnonzero(owners == -1).tolist()


def test_targets_are_the_means_over_characters():
    objective = objectives.build_objective({"mlm": {"rate": 0.5}, "hidden": {"teacher": "t"}}).load_dependencies(
        teacher
    )
    batch, model = batch_of(objective), teacher()
    aligned = align(batch.sequences, student_tokenizer(), model.tokenizer, max_length=64)
    torch.testing.assert_close(hidden_targets(model, aligned, None), plain_targets(model), rtol=1e-4, atol=1e-5)


def test_the_loss_is_the_formula_and_the_map_is_trained():
    objective = objectives.build_objective({"hidden": {"teacher": "t", "weight": 3.0}}).load_dependencies(teacher)
    model, batch = student(objective), batch_of(objective)
    sums = backward(model, objective, [batch], objective.counts(batch), seed=(0,), device=torch.device("cpu"))
    losses, _ = sums.read(sums.tensor().tolist())
    ours = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    mapped = model.companions["hidden"](model.encode(batch).last_hidden_state)
    loss = F.mse_loss(mapped, plain_targets(teacher()))
    (3.0 * loss).backward()
    assert losses["hidden"] / batch.tokens == pytest.approx(loss.item(), rel=1e-4)
    assert "companions.hidden.weight" in ours
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, dict(model.named_parameters())[name].grad, rtol=1e-3, atol=1e-5, msg=name)


def test_a_share_of_the_texts_has_the_loss_of_those_texts():
    chosen = {"mlm": {"rate": 0.5}, "hidden": {"teacher": "t", "share": 0.4}}
    objective = objectives.build_objective(chosen).load_dependencies(teacher)
    model, batch = student(objective), batch_of(objective)
    second = slice(*batch.layout.cu_seqlens[2:4].tolist())  # 0.4 of three texts: the third
    assert objective.counts(batch)["hidden"] == second.stop - second.start
    sums = backward(model, objective, [batch], objective.counts(batch), seed=(0,), device=torch.device("cpu"))
    losses, _ = sums.read(sums.tensor().tolist())
    mapped = model.companions["hidden"](model.encode(batch).last_hidden_state)
    error = (mapped - plain_targets(teacher())).square().mean(-1)[second].sum()
    assert losses["hidden"] == pytest.approx(error.item(), rel=1e-4)


def test_beside_span_a_sentinel_has_the_states_of_its_span():
    """The teacher reads the whole text; a token has its own target, a sentinel that of what it stands for."""
    tokenizer, model = student_tokenizer(), teacher()
    tokenizer = with_sentinels(tokenizer)
    chosen = {"span": {"rate": 0.4, "mean_length": 2.0}, "hidden": {"teacher": "t"}}
    objective = objectives.build_objective(chosen).load_dependencies(teacher)
    clean = sequences_of(tokenizer.encode_batch(TEXTS))
    corrupted = objective.corrupt(clean, Draws(key(1, np.arange(len(TEXTS)))), Vocabulary.of(tokenizer))
    plain, batch = Batch.of(clean), Batch.of(corrupted)
    assert batch.tokens < plain.tokens
    aligned = align(corrupted, tokenizer, model.tokenizer, max_length=64)
    whole = align(clean, tokenizer, model.tokenizer, max_length=64)
    assert torch.equal(aligned.batch.input_ids, whole.batch.input_ids), "the same text"
    pairs = [set(whole.columns[whole.rows == i].tolist()) for i in range(plain.tokens)]
    removed, at = objective.answers(corrupted), 0
    for place, token in enumerate(batch.input_ids.tolist()):
        gone = [i for i in removed.get(place, [token]) if i != tokenizer.sep_id or place not in removed]
        assert plain.input_ids[at : at + len(gone)].tolist() == gone
        spelled = [p for i, p in zip(gone, pairs[at : at + len(gone)], strict=True) if i != tokenizer.unk_id]
        wanted = set().union(*spelled) if spelled else pairs[at]
        assert set(aligned.columns[aligned.rows == place].tolist()) == wanted
        at += len(gone)
    assert at == plain.tokens
    assert torch.bincount(aligned.rows, aligned.weights).allclose(torch.ones(batch.tokens))

    student = families.build(
        families.config("t5-small", vocab_size=tokenizer.vocab_size, hidden_size=32, num_decoder_layers=1, **SIZES),
        heads=objective.heads,
        variant="t5",
    )
    student.tokenizer = tokenizer
    objective.prepare(student, 6)
    sums = backward(student, objective, [batch], objective.counts(batch), seed=(0,), device=torch.device("cpu"))
    losses, _ = sums.read(sums.tensor().tolist())
    assert losses.keys() == {"span", "hidden"}
    gradients = {name: p.grad for name, p in student.named_parameters() if p.grad is not None}
    assert all(grad.isfinite().all() for grad in gradients.values())
    assert gradients["companions.hidden.weight"].abs().sum() > 0


def with_sentinels(tokenizer: Tokenizer) -> Tokenizer:
    """The student's with [unused0] ... at its end, which have no characters."""
    vocab = tokenizer.engine.get_vocab()
    vocab |= {f"[unused{i}]": len(vocab) + i for i in range(10)}
    engine = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    engine.normalizer, engine.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    return Tokenizer(engine)


def test_plm_has_no_states_of_all_tokens():
    with pytest.raises(UsageError, match="hidden needs the states of all tokens"):
        objectives.build_objective({"plm": {}, "hidden": {"teacher": "t"}})


def test_the_native_library_has_the_states_of_torch():
    plain, native = teacher(), teacher()
    native.encoder = NativeStates(native)
    batch = pack(plain.tokenizer.encode_batch(TEXTS))
    expected = plain.encode(batch).last_hidden_state
    torch.testing.assert_close(native.encode(batch).last_hidden_state, expected, rtol=1e-4, atol=1e-5)


def test_feature_vectors_are_refused():
    objective = objectives.build_objective({"hidden": {"teacher": "t"}})
    clean = sequences_of(student_tokenizer().encode_batch(TEXTS))
    batch = replace(clean, extra={STANDS: np.ones(len(clean.input_ids), np.bool_)})
    with pytest.raises(UsageError, match="without feature vectors"):
        objective.corrupt(batch, Draws(key(1, np.arange(len(TEXTS)))), Vocabulary.of(student_tokenizer()))


def test_a_teacher_must_be_named():
    with pytest.raises(UsageError, match=r"hidden\.teacher is missing"):
        objectives.build_objective({"hidden": {}}).load_dependencies(teacher)
    with pytest.raises(UsageError, match=r"hidden\.weight is 0"):
        objectives.build_objective({"hidden": {"teacher": "t", "weight": 0.0}})
    with pytest.raises(UsageError, match=r"hidden\.share is 1.5"):
        objectives.build_objective({"hidden": {"teacher": "t", "share": 1.5}})
