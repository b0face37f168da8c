"""Folders of hubs, opened by Bertie and by their own library: the same tokens and the same numbers, on nasty texts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sentence_transformers")
transformers = pytest.importorskip("transformers")
import torch  # noqa: E402
from layouts import LAYOUTS, TEXTS, Layout  # noqa: E402
from sentence_transformers import CrossEncoder, SentenceTransformer  # noqa: E402

import bertie  # noqa: E402
from batches import pack  # noqa: E402
from bertie.errors import DataError  # noqa: E402
from bertie.runs.models import model_folder  # noqa: E402
from bertie.runs.weights import load_model  # noqa: E402
from bertie.tasks.embed import EmbedTask  # noqa: E402
from bertie.text.tokenizer import Tokenizer  # noqa: E402

MOST = 2e-5
PAIRS = [(TEXTS[0], text) for text in TEXTS]
TABLE = Path(__file__).parents[2] / "docs" / "published-models.md"


def near(found: Any, wanted: Any) -> None:
    """The same numbers; a random model's may be larger than 1, and rounding grows with them."""
    wanted = np.asarray(wanted, np.float32)
    np.testing.assert_allclose(np.asarray(found, np.float32), wanted, atol=MOST * max(1, np.abs(wanted).max()), rtol=0)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.filterwarnings("ignore")
def test_same_as_its_own_library(layout: Layout, tmp_path: Path) -> None:
    layout.build(tmp_path)
    if layout.refused:
        with pytest.raises(DataError, match=layout.refused):
            load_model(tmp_path)
        return
    same_tokens(model_folder(tmp_path))
    {"vector": same_vectors, "score": same_scores}.get(layout.compared, same_logits)(tmp_path, layout)


def peer(folder: Path, kind: str = "AutoModel") -> Any:
    """Their model, eager and in float32; a BERT of 2019 says not what it is, so that its class must be named."""
    try:
        return getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32).eval()
    except ValueError:
        return transformers.BertModel.from_pretrained(folder, dtype=torch.float32).eval()


def their_tokenizer(folder: Path) -> Any:
    """Its own class; a BERT of 2019 names none."""
    try:
        return transformers.AutoTokenizer.from_pretrained(folder)
    except ValueError:
        return transformers.BertTokenizerFast.from_pretrained(folder)


def same_tokens(folder: Path) -> None:
    """Single texts and pairs, cut at the same place."""
    ours, theirs = Tokenizer.load(folder), their_tokenizer(folder)
    wanted = theirs(TEXTS, truncation=True, max_length=48)
    found = ours.encode_batch(TEXTS, max_length=48)
    assert [one.ids for one in found] == wanted["input_ids"]
    pairs = theirs([a for a, _ in PAIRS], [b for _, b in PAIRS], truncation="longest_first", max_length=48)
    assert [one.ids for one in ours.encode_batch(PAIRS, max_length=48)] == pairs["input_ids"]


def same_logits(folder: Path, layout: Layout) -> None:
    """The last hidden states, or the logits of the folder's own head, of single texts."""
    model = load_model(folder)
    kind = (model.public.get("architectures") or ["BertModel"])[0]
    clean = folder / "peer"
    theirs = peer(clean if clean.is_dir() else folder, "AutoModel" if layout.compared == "hidden" else kind)
    encoded = model.tokenizer.encode_batch(TEXTS, max_length=40)
    with torch.no_grad():
        output = model.encode(pack(encoded))
        for number, one in enumerate(encoded):
            row = slice(*output.layout.cu_seqlens[number : number + 2].tolist())
            types = {"token_type_ids": torch.tensor([one.type_ids])} if model.config.type_vocab_size > 1 else {}
            asked = {"input_ids": torch.tensor([one.ids]), **types}
            if "decoder" in model.heads:
                asked = {"input_ids": asked["input_ids"]}
                near(output.last_hidden_state[row], theirs.encoder(**asked).last_hidden_state[0])
                continue
            wanted = theirs(**asked)
            if layout.compared == "hidden":
                near(output.last_hidden_state[row], wanted.last_hidden_state[0])
                continue
            (name, logits), *_ = model.all_logits(output).items()
            of_tokens = model.heads[name].rows != "sequence"
            shown = logits[row] if of_tokens else logits[number]
            if "start_logits" in wanted:
                wanted_logits = torch.stack([wanted.start_logits[0], wanted.end_logits[0]], -1)
            else:
                wanted_logits = wanted.logits[0]
            near(shown.squeeze(-1) if shown.ndim > wanted_logits.ndim else shown, wanted_logits)


def same_vectors(folder: Path, layout: Layout) -> None:
    """What `encode` gives, and how alike two texts are."""
    options = dict(layout.options)
    theirs = SentenceTransformer(str(folder), device="cpu")
    asked = {"prompt_name" if name == "prompt" else "prompt": value for name, value in options.items()}
    wanted = theirs.encode(TEXTS, **asked)
    found = bertie.load(model_folder(folder), "cpu").embedder(**options)
    near([answer.label for answer in found.predict(TEXTS)], wanted)
    assert isinstance(found.task, EmbedTask)
    alike = theirs.similarity_pairwise(wanted[:1], wanted[1:2]).numpy()
    near([found.predict([(TEXTS[0], TEXTS[1])])[0].label], alike)


def same_scores(folder: Path, layout: Layout) -> None:
    """What `CrossEncoder.predict` gives."""
    wanted = CrossEncoder(str(folder), device="cpu", max_length=48).predict(PAIRS)
    found = bertie.predict(bertie.load(folder), PAIRS, max_length=48)
    near([answer.label for answer in found], wanted)


def test_the_page_lists_every_layout() -> None:
    """`python tests/hub/test_hub_layouts.py` writes the table of docs/published-models.md from the rows tested here."""
    assert TABLE.read_text().endswith(table()), "docs/published-models.md is not made from the layouts: write it again"


def table() -> str:
    """The layouts as a table."""
    what = {
        "hidden": "hidden states",
        "head": "logits of its head",
        "vector": "vectors, similarity of a pair",
        "score": "scores of pairs",
    }
    lines = ["| folders like | compared |", "| --- | --- |"]
    lines += [f"| {row.like} | {'refused: ' + row.refused if row.refused else what[row.compared]} |" for row in LAYOUTS]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = TABLE.read_text()
    TABLE.write_text(text[: text.index("| folders like")] + table())
