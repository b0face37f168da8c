"""Writes ONNX folders, in the layout of optimum and Transformers.js.

    FOLDER/config.json, tokenizer.json ...   onnx/model.onnx [, model.onnx_data]   onnx/model_quantized.onnx

A graph whose answers differ from those of the model is not written.
"""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertie.apps.export.parity import PARITY_TEXTS, Expected, Parity, check_text_count, compare_graph, encoded, expected
from bertie.platform import DataError, ModelInternals, OnnxEngine, Sequences, TorchModel, UsageError, console

_MAX_MESSAGE_BYTES = (1 << 31) - (1 << 20)  # bytes of one protobuf message, with some to spare
CALIBRATED = 2600  # tokens of the texts the int8 weights are calibrated on
USE = "```bash\nbertie predict path/to/this/folder texts.csv\n```"  # in the model card
FORCED_NOTE = " It misses the quality threshold and was written with --force."
PROBES = (
    "Café naïve, e.g. 3.14! İstanbul ﬁne Straße",
    "한국어 문장입니다. ㅋㅋㅋ 각 가\u0301",
    "日本語 𠀀 ｆｕｌｌ　ｗｉｄｔｈ e\u0301 \u200bzero\u200bwidth\ufeff nb\u00a0sp שלום नमस्ते",
    "[CLS] [MASK] [SEP] </s> ##ing a_b?c=d tab\tline\n \x00\x07",
)


@dataclass(frozen=True)
class ExportedGraph:
    """One graph of a folder. replaced: number of matrices and tables with 8-bit weights."""

    name: str
    bytes: int
    parity: Parity
    passed: bool
    replaced: int = 0


def onnx_folder(
    model: TorchModel, folder: Path, texts: Sequence[str], *, int8: bool = False, force: bool = False
) -> list[ExportedGraph]:
    """Writes a model's graph, config and tokenizer. int8: also writes a graph with 8-bit weights.

    texts: at least 200 representative texts. force: write a graph that misses the quality threshold. Raises UsageError
    for a model that cannot be exported, DataError for too few texts, a tokenizer that tokenizer.json cannot describe,
    or a missed threshold.
    """
    import_onnx()
    import onnx_ir

    from bertie.apps.export.graph import traced

    tokenizer = model.text_tokenizer
    limit = min(model.config.max_length, 512)
    check_text_count(texts)
    sequences = encoded(tokenizer, texts, max_length=limit, last="parse" in model.heads)
    model.save_pretrained(folder, weights=False)
    check_tokenizer(folder, tokenizer, [*texts[:PARITY_TEXTS], *PROBES])
    graph = traced(model)
    path, smaller = (folder / "onnx" / name for name in ("model.onnx", "model_quantized.onnx"))
    path.parent.mkdir()
    large = (
        sum(one.const_value.nbytes for one in graph.graph.initializers.values() if one.const_value) > _MAX_MESSAGE_BYTES
    )
    onnx_ir.save(graph, path, external_data=f"{path.name}_data" if large else None)
    facts = OnnxEngine(path).facts
    expected_outputs = expected(ModelInternals(model).engine(), facts.essential_outputs, sequences)
    graphs = [_checked(path, expected_outputs, force=force)]
    if int8:
        replaced = _write_int8(path, smaller, sequences)
        graphs.append(replace(_checked(smaller, expected_outputs, force=force, quantized=True), replaced=replaced))
    card = folder / "README.md"
    text = re.sub(r"```python\n.*?```", USE, card.read_text("utf-8"), flags=re.DOTALL)
    lines = [f"`{one.name}`: {one.parity}.{'' if one.passed else FORCED_NOTE}" for one in graphs]
    card.write_text(text + "\n## ONNX\n\n" + "".join(f"- {line}\n" for line in lines), "utf-8")
    return graphs


def import_onnx() -> None:
    """Raises UsageError unless the packages of the extra `onnx` are installed."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise UsageError("Export to ONNX needs more packages. Install them: pip install 'bertie[onnx]'") from None


def check_tokenizer(folder: Path, tokenizer: Any, texts: Sequence[str]) -> None:
    """Raises DataError unless tokenizer.json alone gives the token ids of the model's tokenizer."""
    import tokenizers

    plain = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain.no_padding()
    plain.no_truncation()
    ours = tokenizer.encode_batch(list(texts))
    for text, one, other in zip(texts, ours, plain.encode_batch(list(texts)), strict=True):
        if list(one.ids) != other.ids or list(one.type_ids) != other.type_ids:
            raise DataError(
                f"tokenizer.json alone gives other tokens than this tokenizer: {text[:60]!r}. Other programs would "
                "read other tokens. A tokenizer with morphemes, or with split special tokens, cannot be exported."
            )


def _checked(path: Path, reference: Expected, *, force: bool, quantized: bool = False) -> ExportedGraph:
    parity = compare_graph(OnnxEngine(path), reference)
    passed = parity.near if quantized else parity.equal
    if not passed and not force:
        kind = "The int8 graph" if quantized else "The graph"
        raise DataError(
            f"{kind} does not give the answers of the model: {parity}. Nothing was written. --force writes it anyway."
        )
    size = sum(one.stat().st_size for one in path.parent.glob(f"{path.name}*"))
    return ExportedGraph(f"{path.parent.name}/{path.name}", size, parity, passed)


@console.working("calibrating int8 weights")
def _write_int8(source: Path, target: Path, sequences: Sequence[Sequences]) -> int:
    import onnx

    from bertie.apps.export.int8 import quantized, watched

    graph, chosen = onnx.load(source), _calibration(sequences)
    with tempfile.TemporaryDirectory(dir=source.parent) as name:
        probe = Path(name) / source.name
        _save(watched(graph), probe)
        replaced = quantized(graph, OnnxEngine(probe), chosen)
    metadata = next(iter(graph.metadata_props))
    metadata.value = metadata.value.replace("float32 (ONNX Runtime)", "int8 (ONNX Runtime)")
    _save(graph, target)
    return replaced


def _calibration(sequences: Sequence[Sequences]) -> list[Sequences]:
    """Returns the last texts, with CALIBRATED tokens in total. The first texts are used for the comparison."""
    chosen, tokens = list[Sequences](), 0
    for ids in reversed(sequences[PARITY_TEXTS:]):
        chosen.append(ids)
        tokens += len(ids.input_ids)
        if tokens >= CALIBRATED:
            return chosen
    raise DataError(
        f"{len(sequences):,} texts are too few: {PARITY_TEXTS} texts are for the comparison, "
        f"and the others have {tokens:,} "
        f"tokens. The calibration of int8 weights needs {CALIBRATED:,} tokens. Pass more texts."
    )


def _save(graph: Any, path: Path) -> None:
    import onnx

    large = sum(len(one.raw_data) for one in graph.graph.initializer) > _MAX_MESSAGE_BYTES
    onnx.save_model(graph, path, save_as_external_data=large, location=f"{path.name}_data" if large else None)
