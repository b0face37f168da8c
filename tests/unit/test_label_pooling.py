"""What a classification head reads of a sequence is a value: the formulas, and the folders."""

from pathlib import Path

import pytest
import torch

import bertie
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.nn.layout import Packed
from bertie.runs.weights import load_model
from bertie.text.tokenizer import Tokenizer
from toys import FAST, CommandLine, toy_model

KINDS = ("cls", "first", "mean", "max", "last", "cls_layers", "attention")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("m"), "abcdefgh", num_hidden_layers=3)


def classifier(folder: Path, kind: str, variant: str = "bert") -> TorchModel:
    config = families.config(folder, label_pooling=kind, label_layers=2)
    return families.build(config, variant=variant, heads=lambda config: {"sequence": HEADS["sequence"](config, 3)})


@pytest.mark.parametrize("kind", KINDS)
def test_its_formula(folder: Path, kind: str) -> None:
    """In a packed batch, each text by itself."""
    model = classifier(folder, kind).eval()
    head, lengths = model.heads["sequence"], torch.tensor([5, 1, 3])
    ids = torch.randint(5, 13, (9,))
    with torch.no_grad():
        output = model.run_encoder(ids, None, Packed.from_lengths(lengths), output_hidden_states=True)
        found = model.logits("sequence", output)
        for row, part in enumerate(ids.split(lengths.tolist())):
            alone = model.encoder(part[None], output_hidden_states=True)
            hidden = alone.last_hidden_state[0]
            wanted = {
                "cls": alone.pooler_output[0] if alone.pooler_output is not None else None,
                "first": hidden[0],
                "mean": hidden.mean(0),
                "max": hidden.amax(0),
                "last": hidden[-1],
                "cls_layers": torch.stack([layer[0, 0] for layer in alone.hidden_states[-2:]]).amax(0),
            }.get(kind)
            if kind == "attention":
                attention = head.pool.attention
                query = attention.query(hidden[:1]).view(1, 2, -1)
                keys, values = attention.kv(hidden).view(len(hidden), 2, 2, -1).unbind(1)
                scores = torch.einsum("qnd,knd->nqk", query, keys) / query.shape[-1] ** 0.5
                wanted = attention.output(torch.einsum("nqk,knd->qnd", scores.softmax(-1), values).flatten(1))[0]
            torch.testing.assert_close(found[row], head.classifier(wanted), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_its_folder_and_its_gradients(folder: Path, tmp_path: Path, kind: str) -> None:
    model = classifier(folder, kind)
    families.save(model, tmp_path, tokenizer=Tokenizer.load(folder), labels=("a", "b", "c"))
    texts = ["a b c d", "h", "g a"]
    found = bertie.predict(tmp_path, texts)
    for answer, of_torch in zip(found, bertie.predict(bertie.load(tmp_path), texts), strict=True):
        assert answer.label == of_torch.label
        assert answer.scores == pytest.approx(of_torch.scores, abs=1e-5)  # the engines round differently
    again = load_model(tmp_path)
    assert again.config.heads.label.label_pooling == kind
    again.train()
    again(torch.tensor([[5, 6, 7]]))["sequence"].sum().backward()
    assert again.get_parameter("encoder.embeddings.word.weight").grad.abs().sum() > 0


def test_another_family(tmp_path: Path) -> None:
    """RoBERTa's head has a dense layer of its own, which reads what is pooled."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = families.config("roberta-base", vocab_size=60, label_pooling="mean", **sizes)
    model = families.build(config, variant="roberta", heads=lambda config: {"sequence": HEADS["sequence"](config, 3)})
    assert "heads.sequence.dense.weight" in model.own_parameters()
    families.save(model, tmp_path, labels=("a", "b", "c"))
    again = families.load(tmp_path)[0]
    ids = torch.tensor([[5, 6, 7]])
    torch.testing.assert_close(again(ids), model.eval()(ids))


def test_a_run_with_it(folder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    """The setting of `bertie finetune`, and the model that it saves."""
    table = tmp_path / "t.tsv"
    rows = [f"{'a b c' if n % 2 else 'f g h'}\t{'first' if n % 2 else 'last'}\n" for n in range(40)]
    table.write_text("text\tlabel\n" + "".join(rows))
    run = tmp_path / "run"
    bertie.good("finetune", folder, "--train", table, "-o", run, "pooling=max", "epochs=4", "max_length=16", *FAST)
    assert families.load(run / "model")[0].config.heads.label.label_pooling == "max"
    out = bertie.good("predict", run / "model", "-", stdin="a b c\n")
    assert '"label": "first"' in out


@pytest.mark.parametrize(
    ("task", "option"), [("embed", "pooling=max"), ("tagging", "pooling=max"), ("parse", "lstm=1")]
)
def test_a_setting_that_the_head_does_not_follow_is_refused(
    folder: Path, tmp_path: Path, bertie: CommandLine, task: str, option: str
) -> None:
    """It would change nothing but the format of the folder, which only Bertie could open then."""
    table, words = tmp_path / "t.tsv", tmp_path / "t.conll"
    table.write_text("sentence1\tsentence2\tlabel\n" + "a b\tc d\t1\na b\tf g\t0\n" * 20)
    words.write_text("a B-X\nb O\n\n" * 20)
    tree = tmp_path / "t.conllu"
    tree.write_text("1\ta\t_\tX\t_\t_\t0\troot\t_\t_\n2\tb\t_\tX\t_\t_\t1\tdep\t_\t_\n\n" * 20)
    file = {"embed": table, "tagging": words, "parse": tree}[task]
    code, _, err = bertie("finetune", folder, "--task", task, "--train", file, "-o", tmp_path / "run", option, *FAST)
    assert code == 2
    assert f"no head that follows {option}" in err
    assert ("task_options.pooling" in err) == (task == "embed")
