"""ELMo against its parts written out: torch's LSTM, a loop, TensorFlow's formulas on a file in the published layout.

B sequences · S longest sequence · C cells · P size of a state
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import parity
import pytest
import torch
from torch import nn

from batches import laid_out
from bertie.errors import DataError, UsageError
from bertie.families.elmo import ELMO, read_published
from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.elmo import ElmoConfig, ElmoEncoder
from bertie.models.model import TorchModel
from bertie.nn.characters import CharacterCNN, character_ids
from bertie.nn.layout import Packed
from bertie.nn.recurrent import BiLSTM, mirror
from bertie.objectives import build_objective
from nano import NanoSource, nano_fit

SENTENCES = [
    "the cat sat on the mat".split(),
    ["고양이", "!"],
    [],
    "a-very-long-word-of-which-only-forty-eight-bytes-are-ever-read twice".split(),
]
SMALL: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 12,
    "intermediate_size": 10,
    "embedding_size": 4,
    "filters": ((1, 3), (2, 4), (5, 2)),
    "hidden_dropout_prob": 0.0,
}


def small(heads: Any = None, **overrides: Any) -> TorchModel:
    model = families.build(ElmoConfig(**{**SMALL, **overrides}), heads=heads, variant="elmo")
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
    return model


def random_layer(**clips: float) -> BiLSTM:
    torch.manual_seed(0)
    layer = BiLSTM(6, 10, **clips)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return layer


def test_a_layer_is_torchs_lstm_without_clips() -> None:
    """Gradients too; sequences of several lengths."""
    layer, lengths = random_layer().double(), [7, 2, 5, 1]
    theirs = nn.LSTM(6, 10, proj_size=6, bidirectional=True, batch_first=True).double()
    with torch.no_grad():
        for i, end in enumerate(("", "_reverse")):
            getattr(theirs, f"weight_ih_l0{end}").copy_(layer.up.weight.chunk(2)[i])
            getattr(theirs, f"weight_hh_l0{end}").copy_(layer.state.weight.chunk(2)[i])
            getattr(theirs, f"weight_hr_l0{end}").copy_(layer.down.weight.chunk(2)[i])
            getattr(theirs, f"bias_ih_l0{end}").copy_(layer.state.bias.chunk(2)[i])
            getattr(theirs, f"bias_hh_l0{end}").zero_()
    x_TP = torch.randn(sum(lengths), 6, dtype=torch.float64, requires_grad=True)
    layout = Packed.from_lengths(torch.tensor(lengths))
    ours = layer(torch.cat([x_TP, x_TP], 1), layout, mirror(layout))
    packed = nn.utils.rnn.pack_sequence(list(x_TP.split(lengths)), enforce_sorted=False)
    other = torch.cat(nn.utils.rnn.unpack_sequence(theirs(packed)[0]))
    parity.close(ours, other, "states")
    weights = torch.linspace(-1, 1, ours.numel()).view_as(ours)
    (a,) = torch.autograd.grad((ours * weights).sum(), x_TP, retain_graph=True)
    (b,) = torch.autograd.grad((other * weights).sum(), x_TP)
    parity.close(a, b, "gradients")


def test_cells_and_states_are_clipped_at_every_step() -> None:
    layer = random_layer(cell_clip=0.3, state_clip=0.2)
    x_SP = torch.randn(9, 12)
    layout = Packed.from_lengths(torch.tensor([9]))
    found = layer(x_SP, layout, mirror(layout))
    for direction, steps in enumerate((range(9), reversed(range(9)))):
        up, state, down, bias = (
            x.chunk(2)[direction] for x in (layer.up.weight, layer.state.weight, layer.down.weight, layer.state.bias)
        )
        h, c = torch.zeros(6), torch.zeros(10)
        for step in steps:
            i, f, n, o = (up @ x_SP[step].chunk(2)[direction] + state @ h + bias).chunk(4)
            c = (f.sigmoid() * c + i.sigmoid() * n.tanh()).clamp(-0.3, 0.3)
            h = (down @ (o.sigmoid() * c.tanh())).clamp(-0.2, 0.2)
            torch.testing.assert_close(found[step].chunk(2)[direction], h, atol=1e-6, rtol=0)
    assert (found.abs() == 0.2).any()


def test_words_are_read_once_each() -> None:
    torch.manual_seed(0)
    cnn = CharacterCNN(6, characters=262, character_size=4, filters=[(1, 3), (3, 5)], highways=2)
    words = character_ids("the cat saw the other cat".split())
    for word, found in zip(words, cnn(words), strict=True):
        letters = cnn.embedding(word).T[None]
        x = torch.cat([c(letters).max(2).values.relu()[0] for c in cnn.convolutions])
        for highway in cnn.highways:
            new, gate = highway(x).chunk(2)
            x = gate.sigmoid() * x + (1 - gate.sigmoid()) * new.relu()
        torch.testing.assert_close(found, cnn.projection(x), atol=1e-6, rtol=0)
    assert torch.equal(cnn(words.view(2, 3, 50)), cnn(words).view(2, 3, 6))


def test_spelling() -> None:
    """As AllenNLP's ELMoCharacterMapper: its ids are bytes and marks, all one higher."""
    word, start, end = character_ids(["né", "<S>", "</S>"], length=7).tolist()
    assert word == [259, 1 + ord("n"), 1 + 0xC3, 1 + 0xA9, 260, 261, 261]
    assert start == [259, 257, 260, 261, 261, 261, 261]
    assert end == [259, 258, 260, 261, 261, 261, 261]
    (long,) = character_ids(["x" * 60]).tolist()
    assert long == [259, *[1 + ord("x")] * 48, 260]
    assert character_ids([]).shape == (0, 50)


def test_word_vectors() -> None:
    model = small()
    vectors = model.encoder.word_vectors(SENTENCES, batch_size=3)
    assert [x.shape for x in vectors] == [(len(words), 12) for words in SENTENCES]
    layers = model.encoder.word_vectors(SENTENCES, layers=True)
    mix = model.encoder.mix
    shares = torch.cat(list(mix.scores)).softmax(0)
    for words, x, each in zip(SENTENCES, vectors, layers, strict=True):
        (alone,) = model.encoder.word_vectors([words])
        torch.testing.assert_close(x, alone, atol=1e-5, rtol=0)
        torch.testing.assert_close(x, mix.gamma * torch.einsum("l,lwh->wh", shares, each), atol=1e-5, rtol=0)
    assert model.encoder.word_vectors([]) == []
    (one,), (other,) = (
        model.encoder.word_vectors([["bank", "of", "a", "river"]]),
        model.encoder.word_vectors([["bank", "account"]]),
    )
    assert not torch.allclose(one[0], other[0], atol=1e-3), "a word's vector depends on its sentence"


def test_ids_need_a_spelling() -> None:
    model = small()
    with pytest.raises(UsageError, match="spell"):
        model.encoder(torch.tensor([[1, 2]]))
    model.encoder.spell(["a", "b", "c"])
    by_id = model.encoder(torch.tensor([[1, 2]])).last_hidden_state
    assert torch.equal(by_id, model.encoder(character_ids(["b", "c"])[None]).last_hidden_state)


def test_no_state_has_seen_what_it_predicts() -> None:
    model = small(lambda config: build_objective({"bilm": {}}).heads(config))
    words = ["the", "cat", "sat", "on"]
    changed = ["the", "cat", "ran", "on"]
    with torch.no_grad():
        a, b = (model.heads["bilm"](model.encoder(character_ids(x)[None]))[0] for x in (words, changed))
    assert a.shape == (4, 2, 50)
    same = (a == b).all(2)
    assert same.tolist() == [[True, False], [True, False], [False, False], [False, True]]


def test_loss_is_that_of_every_neighbor() -> None:
    objective = build_objective({"bilm": {}})
    model = small(objective.heads)
    model.encoder.spell(map(str, range(50)))
    lengths = [4, 1, 3]
    ids = torch.tensor([5, 6, 7, 8, 9, 10, 11, 12])
    clean = laid_out(ids, lengths)
    batch = Batch.of(objective.corrupt(clean, None, None))  # type: ignore[arg-type]
    assert objective.counts(batch) == {"bilm": 10}
    output = model.encode(batch)
    part = objective.loss(model, output, batch)["bilm"]
    assert part.count == 10
    log_probs = model.heads["bilm"](output).log_softmax(-1)
    plain, at = torch.zeros(()), 0
    for n in lengths:
        for t in range(at, at + n):
            plain = plain - log_probs[t, 0, ids[t + 1]] if t + 1 < at + n else plain
            plain = plain - log_probs[t, 1, ids[t - 1]] if t > at else plain
        at += n
    torch.testing.assert_close(part.total, plain, atol=1e-4, rtol=0)
    assert torch.equal(batch.input_ids, ids)


def test_it_trains(tmp_path: Path) -> None:
    objective = build_objective({"bilm": {}})
    shape = {**SMALL, "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 64, "initializer_range": 0.1}
    model = families.build(ElmoConfig(**shape), heads=objective.heads, variant="elmo")
    model.encoder.spell(map(str, range(1000)))
    result = nano_fit(tmp_path, model=model, source=NanoSource(objective=objective), steps=40, lr=2e-2)
    assert result.train["loss"] < 5.0 < np.log(1000)  # half of which is knowing that there are ninety words


def test_sizes() -> None:
    """Millions of parameters, as AllenNLP's page of ELMo models lists them."""
    for preset, millions in {"elmo-small": 13.6, "elmo-medium": 28.0, "elmo-original": 93.6}.items():
        assert round(parity.parameters(preset) / 1e6, 1) == millions


def test_names_of_allennlp() -> None:
    """Those of its Elmo module with one representation, as its source gives them (allennlp/modules/elmo.py)."""
    embedder, lstm = "_elmo_lstm._token_embedder", "_elmo_lstm._elmo_lstm"
    recorded: dict[str, tuple[int, ...]] = {
        f"{embedder}._beginning_of_sentence_characters": (50,),
        f"{embedder}._end_of_sentence_characters": (50,),
        f"{embedder}._char_embedding_weights": (262, 16),
        **parity.both(f"{embedder}._projection", 512, 2048),
        "scalar_mix_0.gamma": (1,),
        **{f"scalar_mix_0.scalar_parameters.{i}": (1,) for i in range(3)},
    }
    for i, (width, count) in enumerate(ELMO.base.filters):  # type: ignore[attr-defined]
        recorded |= {f"{embedder}.char_conv_{i}.weight": (count, 16, width), f"{embedder}.char_conv_{i}.bias": (count,)}
    for i in range(2):
        recorded |= parity.both(f"{embedder}._highways._layers.{i}", 4096, 2048)
        for direction in ("forward", "backward"):
            cell = f"{lstm}.{direction}_layer_{i}"
            recorded |= parity.both(f"{cell}.state_linearity", 4 * 4096, 512)
            recorded |= {
                f"{cell}.input_linearity.weight": (4 * 4096, 512),
                f"{cell}.state_projection.weight": (512, 4096),
            }
    parity.published("elmo", "elmo-original", (), recorded, pooler=False)


# ---- the published layout: a file written as bilm-tf's is, and its formulas

OPTIONS = {
    "lstm": {
        "use_skip_connections": True,
        "projection_dim": 6,
        "cell_clip": 0.5,
        "proj_clip": 0.4,
        "dim": 10,
        "n_layers": 2,
    },
    "char_cnn": {
        "activation": "relu",
        "filters": [[1, 3], [2, 4], [5, 2]],
        "n_highway": 2,
        "embedding": {"dim": 4},
        "n_characters": 262,
        "max_characters_per_token": 50,
    },
}


def published(folder: Path) -> dict[str, np.ndarray]:
    """Write options.json and weights.hdf5 of a random model; returns the arrays by path."""
    h5py = pytest.importorskip("h5py")
    shapes: dict[str, tuple[int, ...]] = {"char_embed": (261, 4), "CNN_proj/W_proj": (9, 6), "CNN_proj/b_proj": (6,)}
    for i, (width, count) in enumerate(OPTIONS["char_cnn"]["filters"]):  # type: ignore[arg-type]
        shapes |= {f"CNN/W_cnn_{i}": (1, width, 4, count), f"CNN/b_cnn_{i}": (count,)}
    for i in range(2):
        for part in ("carry", "transform"):
            shapes |= {f"CNN_high_{i}/W_{part}": (9, 9), f"CNN_high_{i}/b_{part}": (9,)}
        for direction in range(2):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            shapes |= {f"{cell}/W_0": (12, 40), f"{cell}/B": (40,), f"{cell}/W_P_0": (10, 6)}
    draw = np.random.default_rng(0)
    arrays = {name: draw.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    (folder / "options.json").write_text(json.dumps(OPTIONS))
    return arrays


def tensorflow(arrays: dict[str, np.ndarray], words: list[str]) -> list[np.ndarray]:
    """The layers of one sentence, as bilm-tf computes them (bilm/model.py, BidirectionalLanguageModelGraph)."""

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    embedding = np.concatenate([np.zeros((1, 4)), arrays["char_embed"]])
    letters = embedding[character_ids(words).numpy()]  # (S, 50, 4)
    found = []
    for i, (width, _) in enumerate(OPTIONS["char_cnn"]["filters"]):  # type: ignore[arg-type]
        kernel = arrays[f"CNN/W_cnn_{i}"][0]  # (width, 4, count)
        places = [
            np.einsum("swe,wec->sc", letters[:, at : at + width], kernel) + arrays[f"CNN/b_cnn_{i}"]
            for at in range(50 - width + 1)
        ]
        found.append(np.maximum(np.max(places, 0), 0))
    x = np.concatenate(found, 1)
    for i in range(2):
        carry = sigmoid(x @ arrays[f"CNN_high_{i}/W_carry"] + arrays[f"CNN_high_{i}/b_carry"])
        transform = np.maximum(x @ arrays[f"CNN_high_{i}/W_transform"] + arrays[f"CNN_high_{i}/b_transform"], 0)
        x = carry * transform + (1 - carry) * x
    x = x @ arrays["CNN_proj/W_proj"] + arrays["CNN_proj/b_proj"]
    layers = [np.concatenate([x, x], 1)]
    streams = [x, x]
    for layer in range(2):
        for direction in range(2):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            inputs = streams[direction] if direction == 0 else streams[direction][::-1]
            h, c, states = np.zeros(6), np.zeros(10), []
            for step in inputs:
                i, j, f, o = np.split(np.concatenate([step, h]) @ arrays[f"{cell}/W_0"] + arrays[f"{cell}/B"], 4)
                c = np.clip(sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j), -0.5, 0.5)  # forget_bias of LSTMCell
                h = np.clip((sigmoid(o) * np.tanh(c)) @ arrays[f"{cell}/W_P_0"], -0.4, 0.4)
                states.append(h)
            out = np.array(states if direction == 0 else states[::-1])
            streams[direction] = out + streams[direction] if layer else out  # skip connections from the second on
        layers.append(np.concatenate(streams, 1))
    return layers


def test_published_files_give_tensorflows_numbers(tmp_path: Path) -> None:
    arrays = published(tmp_path)
    model = read_published(tmp_path / "options.json", tmp_path / "weights.hdf5")
    words = ["the", "cat", "sat", "naïvely"]
    (ours,) = model.encoder.word_vectors([words], layers=True)
    theirs = tensorflow(arrays, ["<S>", *words, "</S>"])
    for layer, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        torch.testing.assert_close(a, torch.from_numpy(b[1:-1]).float(), atol=1e-5, rtol=0, msg=f"layer {layer}")
    (mixed,) = model.encoder.word_vectors([words])
    torch.testing.assert_close(mixed, ours.mean(0), atol=1e-6, rtol=0)  # an even mix, gamma 1

    model.save_pretrained(tmp_path / "folder")
    again, report = families.load(tmp_path / "folder")
    assert report.fresh + report.unused == ()
    assert isinstance(again.encoder, ElmoEncoder)
    assert torch.equal(again.encoder.word_vectors([words])[0], mixed)


def spoiled(folder: Path, name: str, change: Any) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        old = file[name][...]
        del file[name]
        change(h5py, file, name, old)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda h5py, file, name, old: None, "has no CNN_proj/W_proj"),
        (lambda h5py, file, name, old: file.create_dataset(name, data=old.T), "shape"),
        (lambda h5py, file, name, old: file.create_dataset(name, shape=(2**20, 2**20), dtype="f4"), "shape"),
        (lambda h5py, file, name, old: file.create_dataset(name, data=old * np.inf), "finite"),
        (lambda h5py, file, name, old: file.create_dataset(name, data=old.astype(int)), "not an array"),
        (lambda h5py, file, name, old: file.create_group(name), "not an array"),
        (lambda h5py, file, name, old: file.__setitem__(name, h5py.ExternalLink("other.hdf5", "x")), "has no"),
        (lambda h5py, file, name, old: file.__setitem__(name, h5py.SoftLink("/CNN_proj/b_proj")), "has no"),
        (
            lambda h5py, file, name, old: file.create_dataset(
                name, shape=old.shape, dtype="f4", external=[("other.bin", 0, old.nbytes)]
            ),
            "not an array",
        ),
    ],
)
def test_files_that_are_not_as_published_are_refused(change: Any, said: str, tmp_path: Path) -> None:
    published(tmp_path)
    spoiled(tmp_path, "CNN_proj/W_proj", change)
    with pytest.raises(DataError, match=said):
        read_published(tmp_path / "options.json", tmp_path / "weights.hdf5")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    published(tmp_path)
    whole = (tmp_path / "weights.hdf5").read_bytes()
    for size in (0, 1, len(whole) // 2):
        (tmp_path / "weights.hdf5").write_bytes(whole[:size])
        with pytest.raises(DataError):
            read_published(tmp_path / "options.json", tmp_path / "weights.hdf5")
    for options in (
        "[]",
        "{",
        '{"lstm": 3}',
        json.dumps({**OPTIONS, "char_cnn": {**OPTIONS["char_cnn"], "filters": [[0, 3]]}}),
    ):
        (tmp_path / "options.json").write_text(options)
        with pytest.raises(DataError):
            read_published(tmp_path / "options.json", tmp_path / "weights.hdf5")
