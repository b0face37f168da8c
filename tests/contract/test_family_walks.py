"""Every family from a text file to a fine-tuned model, by the commands a user types, and then opened in `transformers`.

tokenizer train -> corpus -> pretrain -> info, verify, fill-mask -> finetune twice -> predict, evaluate, embed
"""

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from bertie.models import families
from bertie.models.codec import OWN_TYPE
from bertie.runs.weights import load_model as load_module
from bertie.text.tokenizer import Tokenizer
from nano import one_thread
from toys import CommandLine

transformers = pytest.importorskip("transformers")

COLOURS, ANIMALS, PLACES = (
    ["red", "old", "small", "quiet"],
    ["cat", "dog", "heron", "otter"],
    ["river", "house", "hill"],
)
SIZE = (
    *("hidden_size=32", "num_hidden_layers=2", "num_attention_heads=2", "intermediate_size=64"),
    "max_position_embeddings=80",
)
ALONE = ("objectives.mlm=null", "objectives.nsp=null")
MASKED = ("objectives.nsp=null",)
TEXTS = ("the red cat sees the river.", "an unseen word: naïve café 3.14!", "고양이는 강을 본다. ㅋㅋ")


@dataclass(frozen=True)
class Walk:
    """A family's way: preset, what makes it small, its objective, a second task in addition to text classification."""

    preset: str
    second: str
    objective: tuple[str, ...] = ()
    shape: tuple[str, ...] = ()
    vocabulary: tuple[str, ...] = ()  # of `tokenizer train`; else --for the preset
    steps: int = 4

    @property
    def name(self) -> str:
        """For the list of tests."""
        return f"{self.preset}{'-other-vocabulary' if self.vocabulary else ''}"


RELATIVE = tuple(row for row in SIZE if "position" not in row)
WINDOW, BLOCKS = ("attention_window=8",), ("block_size=4", "num_random_blocks=1")
T5_SIZE = (*RELATIVE, "attention_head_size=16", "num_decoder_layers=2")
SPANS, LTR = (*ALONE, "objectives.span={}"), (*ALONE, "objectives.ltr={}")
WALKS = (
    Walk("bert-tiny", "tagging"),
    Walk("roberta-base", "pair", MASKED),
    Walk("xlm-roberta-base", "span", MASKED),
    Walk("camembert-base", "tagging", MASKED),
    Walk("albert-base-v2", "pair", (*MASKED, "objectives.sop={}"), ("embedding_size=16",)),
    Walk("distilbert-base-uncased", "tagging", MASKED),
    Walk("electra-small-discriminator", "span", (*ALONE, "objectives.rtd={size: 0.5}"), ("embedding_size=16",)),
    Walk("mobilebert-uncased", "tagging", (), ("bottleneck_size=16", "embedding_size=16")),
    Walk("longformer-base-4096", "span", MASKED, WINDOW),
    Walk("bigbird-roberta-base", "span", MASKED, BLOCKS),
    Walk("openai-gpt", "pair", LTR, ("intermediate_size=128",)),
    Walk("gpt2", "tagging", LTR),
    Walk("t5-small", "span", SPANS, T5_SIZE),
    Walk("elmo-small", "tagging", (*ALONE, "objectives.bilm={}"), ("filters=[[1, 4], [3, 8]]",)),
    Walk("xlnet-base-cased", "tagging", (*ALONE, "objectives.plm={}"), RELATIVE),
    Walk("bert-base-ltr", "pair", LTR),
    Walk("ModernBERT-base", "tagging", MASKED, ("local_attention=8", "num_hidden_layers=4")),
    Walk("mpnet-base", "pair", MASKED),
    Walk("deberta-v3-base", "span", MASKED, RELATIVE),
    Walk("nomic-bert-2048", "pair", MASKED),
    Walk("visualbert-tiny", "pair"),
    Walk("vilbert-tiny", "tagging"),
    Walk("lxmert-tiny", "pair"),
    Walk("lstm", "tagging", MASKED, RELATIVE),
)
BPE, UNIGRAM = ("--algorithm", "bpe"), ("--algorithm", "unigram")
OTHER = (  # families with special tokens of their own, on a vocabulary with [CLS] and [SEP]
    Walk("roberta-base", "pair", MASKED, (), BPE),
    Walk("xlm-roberta-base", "pair", MASKED, (), UNIGRAM),
    Walk("longformer-base-4096", "pair", MASKED, WINDOW, BPE),
    Walk("bigbird-roberta-base", "span", MASKED, BLOCKS, UNIGRAM),
    Walk("gpt2", "tagging", LTR, (), BPE),
    Walk("xlnet-base-cased", "span", (*ALONE, "objectives.plm={}"), RELATIVE, UNIGRAM),
    Walk("t5-small", "pair", SPANS, T5_SIZE, ("--unused", "40")),
)
QUICK = {"roberta-base", "gpt2", "t5-small", "xlnet-base-cased"}  # whose special tokens are least like BERT's


def sentences(count: int, seed: int) -> list[tuple[str, str, str]]:
    """(colour, animal, place) of made-up sentences."""
    chance = random.Random(seed)
    return [(chance.choice(COLOURS), chance.choice(ANIMALS), chance.choice(PLACES)) for _ in range(count)]


def said(colour: str, animal: str, place: str) -> str:
    return f"The {colour} {animal} sees the {place}."


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts, and labelled examples of four tasks."""
    home = tmp_path_factory.mktemp("home")
    documents = ["\n".join(said(*words) for words in sentences(8, seed)) for seed in range(60)]
    (home / "texts.txt").write_text("\n\n".join([*documents, "고양이는 강을 본다.\n개는 집을 본다."]), encoding="utf-8")
    rows = sentences(48, 1)
    label = {animal: "wild" if animal in ("heron", "otter") else "tame" for animal in ANIMALS}
    (home / "sequence.csv").write_text(
        "\n".join(["text,label", *(f"{said(*words)},{label[words[1]]}" for words in rows)])
    )
    pairs = [
        (first, second, "same" if first[1] == second[1] else "other") for first, second in itertools.pairwise(rows)
    ]
    pairs = [(said(*first), said(*second), answer) for first, second, answer in pairs]
    (home / "pair.csv").write_text("\n".join(["sentence1,sentence2,label", *map(",".join, pairs)]))
    (home / "plain.txt").write_text("\n".join(said(*words) for words in rows))
    (home / "tagging.txt").write_text(
        "".join(
            "".join(f"{word} {'B-ANIMAL' if word in ANIMALS else 'O'}\n" for word in said(*words)[:-1].split()) + "\n"
            for words in rows
        )
    )
    questions = [
        {
            "context": (context := said(*words)),
            "qas": [
                {
                    "id": str(number),
                    "question": "Who sees it?",
                    "answers": [{"text": words[1], "answer_start": context.index(words[1])}],
                }
            ],
        }
        for number, words in enumerate(rows)
    ]
    squad = {"version": "1.1", "data": [{"title": "t", "paragraphs": questions}]}
    (home / "span.json").write_text(json.dumps(squad))
    return home


READ = {"sequence": "sequence.csv", "pair": "pair.csv", "tagging": "plain.txt", "span": "span.json"}
FILES = {"sequence": "sequence.csv", "pair": "pair.csv", "tagging": "tagging.txt", "span": "span.json"}


@pytest.fixture(autouse=True)
def thread() -> Iterator[None]:
    with one_thread():
        yield


def walk(way: Walk, home: Path, run: Path, bertie: CommandLine) -> None:
    """All of it."""
    vocabulary = way.vocabulary or ("--for", way.preset)
    size = 420 if "--unused" in vocabulary or "t5" in way.preset else 320
    bertie.good("tokenizer", "train", home / "texts.txt", "-o", run / "tokenizer", "--size", size, *vocabulary)
    if not (home / "corpus").is_dir():
        bertie.good("corpus", home / "texts.txt", "-o", home / "corpus")
    shape = [
        f"model_overrides.{row}" for row in (*(way.shape if set(RELATIVE) <= set(way.shape) else SIZE), *way.shape)
    ]
    if "elmo" in way.preset:
        shape = [row for row in shape if "max_position" not in row and "heads" not in row]
    bertie.good(
        *("pretrain", "--corpus", home / "corpus", "--tokenizer", run / "tokenizer", "-o", run / "pre"),
        *(f"model={way.preset}", f"train.steps={way.steps}", "train.batch_size=8", "max_length=40"),
        *("train.device=cpu", "train.precision=fp32", *way.objective, *dict.fromkeys(shape)),
    )
    model = run / "pre/model"
    tokenizer = Tokenizer.load(model)
    assert tokenizer.fingerprint == Tokenizer.load(run / "tokenizer").fingerprint
    assert "parameters" in json.loads(bertie.good("info", model, "--json"))
    bertie.good("verify", run / "pre")
    if "mlm" in families.load(model)[0].heads:
        mask = tokenizer.special_tokens["mask"]
        (filled,) = json.loads(bertie.good("fill-mask", model, f"The {mask} cat.", "--json"))["masks"]
        assert len(filled) == 5
    opens_there(model)
    for task in ("sequence", way.second):
        data = home / FILES[task]
        bertie.good(
            *("finetune", model, "--train", data, "--dev", data, "-o", run / task, "--seeds", 1, "epochs=1"),
            *("train.batch_size=8", "max_length=40", "train.device=cpu", "train.precision=fp32"),
            *(() if task in ("sequence", "pair") else ("--task", task)),
        )
        tuned = run / task / "model"
        lines = bertie.good("predict", tuned, home / READ[task], "--json").strip().splitlines()
        assert len(lines) in (1, 47, 48)
        assert not any("error" in json.loads(line) for line in lines)
        assert json.loads(bertie.good("evaluate", tuned, data, "--json"))
        opens_there(tuned)
    bertie.good("embed", model, home / "sequence.csv", "-o", run / "vectors.npy")


def opens_there(folder: Path) -> None:
    """The same ids and the same logits in `transformers`, where it has the class."""
    ours = load_module(folder)
    assert ours.tokenizer is not None
    architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
    if not hasattr(transformers, architecture):
        assert ours.variant is not None
        assert ours.variant.model_type in ("elmo", "vilbert", "static")
        return
    if json.loads((folder / "config.json").read_text())["model_type"].startswith(OWN_TYPE):
        with pytest.raises(ValueError, match=OWN_TYPE):
            transformers.AutoConfig.from_pretrained(folder)
        return
    kind, tokenizer = getattr(transformers, architecture), transformers.AutoTokenizer.from_pretrained(folder)
    theirs, found = kind.from_pretrained(folder, output_loading_info=True)
    unread = [
        key for key in found["unexpected_keys"] if ".pooler." not in key
    ]  # no class reads it but those that use it
    assert not {*found["missing_keys"], *unread}, found
    if ours.config.get("co_layers"):  # LXMERT, which does not answer there without regions: twins/test_lxmert.py
        return
    theirs.eval()
    for a, b in (
        ((text, None) for text in TEXTS) if "QuestionAnswering" not in architecture else itertools.pairwise(TEXTS)
    ):
        read, same = ours.tokenizer.encode(a, b), tokenizer(a, b)
        assert read.ids == list(same["input_ids"])
        if read.ids[-1] == ours.config.pad_token_id:
            continue  # the first GPT has no pad token; its class takes <unk> for one and reads the token before
        inputs = {name: torch.tensor([value]) for name, value in same.items()}
        types = torch.tensor([read.type_ids])
        if "ConditionalGeneration" in architecture:
            inputs["decoder_input_ids"] = inputs["input_ids"]
        with torch.inference_mode():
            mine = [v for name, v in ours(**inputs | {"token_type_ids": types}).items() if name != "decoder"]
            peer = theirs(**inputs)
        compared = [v for name, v in peer.items() if "logits" in name]
        if len(compared) == 2 and len(mine) == 1:  # where an answer starts and ends
            compared = [torch.stack(compared, -1)]
        assert len(mine) == len(compared) > 0
        for one, other in zip(mine, compared, strict=True):
            other = other.where(other > -1e5, one.view_as(other))  # BigBird's class takes its question out in this way
            scale = 1 + other.abs().max().item()
            assert one.view_as(other).sub(other).abs().max().item() < 2e-5 * scale, architecture


@pytest.mark.parametrize("way", [way for way in WALKS if way.preset in QUICK], ids=lambda way: way.name)
def test_a_family_walks(way: Walk, home: Path, tmp_path: Path, bertie: CommandLine) -> None:
    walk(way, home, tmp_path, bertie)


@pytest.mark.slow
@pytest.mark.parametrize("way", [*WALKS, *OTHER], ids=lambda way: way.name)
def test_every_family_walks(way: Walk, home: Path, tmp_path: Path, bertie: CommandLine) -> None:
    walk(way, home, tmp_path, bertie)


RECIPES = {  # of `finetune`, on files of the same task
    **dict.fromkeys(("finetune-squad", "finetune-squad2", "finetune-klue-mrc"), "span"),
    **dict.fromkeys(("finetune-tagging", "finetune-conll2003"), "tagging"),
    **dict.fromkeys(("finetune-glue", "finetune-klue-tc"), "sequence"),
    "finetune-klue-nli": "pair",
}


@pytest.mark.slow
def test_recipes_go_from_a_corpus_to_predictions(home: Path, tmp_path: Path, bertie: CommandLine) -> None:
    bertie.good("tokenizer", "train", home / "texts.txt", "-o", tmp_path / "tokenizer", "--for", "roberta")
    bertie.good("corpus", home / "texts.txt", "-o", tmp_path / "corpus")
    bertie.good(
        *("pretrain", "-c", "pretrain-roberta-base", "--corpus", tmp_path / "corpus", "-o", tmp_path / "pre"),
        *("--tokenizer", tmp_path / "tokenizer", "max_length=40", "train.steps=2", "train.batch_size=8"),
        *("train.device=cpu", "train.precision=fp32", *(f"model_overrides.{row}" for row in SIZE)),
    )
    for recipe, task in RECIPES.items():
        bertie.good(
            *("finetune", tmp_path / "pre/model", "-c", recipe, "--train", home / FILES[task], "-o", tmp_path / recipe),
            *("--dev", home / FILES[task], "--task", "sequence" if task == "pair" else task, "--seeds", 1),
            *("data=''", "epochs=1", "max_length=40", "train.device=cpu", "train.precision=fp32"),
        )
        lines = bertie.good("predict", tmp_path / recipe / "model", home / READ[task], "--json").strip().splitlines()
        assert len(lines) in (1, 47, 48)
        assert not any("error" in json.loads(line) for line in lines)


def test_no_family_is_left_out() -> None:
    assert {families.family(way.preset).model_type for way in WALKS} == set(families.VARIANTS)
