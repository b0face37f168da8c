"""The peers of the inference benchmark: the same encoder and token ids in other engines for CPUs.

Each is opened so that it does best: for many texts one core a call and as many calls at once as threads, with batches
of similar length; for one text all cores. A peer whose package is missing is left out.

B sequences · S longest · H hidden size
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Batch = Callable[[Any], Vectors]
"""Token ids of some sequences -> a row of each (B, H), as a Pool has it. Peer.texts: all texts in their place."""
Pool = Callable[[NDArray[Any], NDArray[np.int64]], Vectors]
"""Last hidden states (B, S, H) and their mask (B, S) -> (B, H)"""
NAMES = ("input_ids", "attention_mask", "token_type_ids")
TEXTS = "texts.json"  # in the scratch folder: the texts, their ids, and those that a peer may calibrate on


@dataclass(frozen=True)
class Peer:
    """An engine. needs: packages; open: (model folder, scratch folder, calls at once, cores of each, what is read of
    the hidden states) -> what runs a batch.

    own_threads: it spreads one call over the cores itself. texts: it reads all texts at once, tokenizes and sorts them.
    """

    needs: tuple[str, ...]
    open: Callable[[Path, Path, int, int, Pool], Batch]
    own_threads: bool = False
    texts: bool = False

    @property
    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [name for name in self.needs if find_spec(name) is None]


def rectangle(sequences: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Padded ids and their mask, both (B, S)."""
    lengths = np.array([len(ids) for ids in sequences])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = np.concatenate([np.asarray(ids) for ids in sequences])
    return ids, mask.astype(np.int64)


def mean(hidden: NDArray[Any], mask: NDArray[np.int64]) -> Vectors:
    """hidden (B, S, H), mask (B, S) -> (B, H)"""
    weights = mask[..., None].astype(np.float32)
    found: Vectors = (hidden.astype(np.float32) * weights).sum(1) / weights.sum(1)
    return found


def first(hidden: NDArray[Any], mask: NDArray[np.int64]) -> Vectors:
    """hidden (B, S, H) -> (B, H), the first token's, which a classifier reads."""
    return hidden[:, 0].astype(np.float32)


POOLS: dict[str, Pool] = {"mean": mean, "cls": first}
"""By the names that Bertie's engines have for these outputs."""


def transformers_peer(dtype: str) -> Callable[[Path, Path, int, int, Pool], Batch]:
    """`AutoModel` of transformers, in float32 or bfloat16."""

    def open(model: Path, work: Path, calls: int, cores: int, pool: Pool) -> Batch:
        import torch
        from transformers import AutoModel

        encoder = AutoModel.from_pretrained(model).eval().to(getattr(torch, dtype))

        def run(sequences: Sequence[Sequence[int]]) -> Vectors:
            ids, mask = rectangle(sequences)
            with torch.inference_mode():
                found = encoder(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
            return pool(found.last_hidden_state.float().numpy(), mask)

        return run

    return open


def sentence_transformers_peer(model: Path, work: Path, calls: int, cores: int, pool: Pool) -> Batch:
    """`SentenceTransformer.encode` with default settings; its time has the tokenizer in it."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(model), device="cpu")

    def run(texts: Sequence[str]) -> Vectors:
        found: Vectors = encoder.encode(list(texts), show_progress_bar=False)
        return found

    return run


def ctranslate2_peer(kind: str) -> Callable[[Path, Path, int, int, Pool], Batch]:
    """CTranslate2's encoder; `kind` as its compute_type has it."""

    def open(model: Path, work: Path, calls: int, cores: int, pool: Pool) -> Batch:
        import ctranslate2

        if not (work / "ct2").is_dir():
            ctranslate2.converters.TransformersConverter(str(model)).convert(str(work / "ct2"))
        encoder = ctranslate2.Encoder(
            str(work / "ct2"), device="cpu", compute_type=kind, inter_threads=calls, intra_threads=cores
        )

        def run(sequences: Sequence[Sequence[int]]) -> Vectors:
            found = encoder.forward_batch([list(ids) for ids in sequences]).last_hidden_state
            return pool(np.array(found), rectangle(sequences)[1])

        return run

    return open


def onnx_file(model: Path, work: Path) -> Path:
    """The model of transformers as one ONNX file, written once."""
    path = work / "model.onnx"
    if not path.exists():
        import torch
        from transformers import AutoModel

        encoder = AutoModel.from_pretrained(model, attn_implementation="eager").eval()

        class Hidden(torch.nn.Module):
            def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
                found: torch.Tensor = encoder(
                    input_ids=ids, attention_mask=mask, token_type_ids=types
                ).last_hidden_state
                return found

        module = Hidden()
        module.encoder = encoder
        ids = torch.randint(5, 1000, (2, 9))
        sizes = {0: torch.export.Dim("batch", min=1, max=4096), 1: torch.export.Dim("sequence", min=1, max=512)}
        program = torch.onnx.export(
            module.eval(),
            (ids, torch.ones_like(ids), torch.zeros_like(ids)),
            dynamo=True,
            input_names=list(NAMES),
            output_names=["last_hidden_state"],
            dynamic_shapes=(sizes,) * 3,
            verbose=False,
        )
        assert program is not None
        program.save(str(path), external_data=False)
    return path


def quantized_onnx(model: Path, work: Path, name: str, **options: Any) -> Path:
    """The same with ONNX Runtime's dynamic quantization to int8."""
    path = work / f"{name}.onnx"
    if not path.exists():
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(str(onnx_file(model, work)), str(path), weight_type=QuantType.QInt8, **options)
    return path


PER_CHANNEL = {"op_types_to_quantize": ["MatMul"], "per_channel": True, "extra_options": {"MatMulConstBOnly": True}}


def onnxruntime_peer(file: Callable[[Path, Path], Path]) -> Callable[[Path, Path, int, int, Pool], Batch]:
    """ONNX Runtime on an ONNX file that is made where it is missing."""

    def open(model: Path, work: Path, calls: int, cores: int, pool: Pool) -> Batch:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = cores
        session = onnxruntime.InferenceSession(str(file(model, work)), options, providers=["CPUExecutionProvider"])

        def run(sequences: Sequence[Sequence[int]]) -> Vectors:
            ids, mask = rectangle(sequences)
            return pool(session.run(None, dict(zip(NAMES, (ids, mask, np.zeros_like(ids)), strict=True)))[0], mask)

        return run

    return open


def int8_weights(model: Path, work: Path, exact: Any) -> Any:
    """NNCF's int8 for weights alone: activations stay float32."""
    import nncf

    return nncf.compress_weights(exact)


def int8_calibrated(model: Path, work: Path, exact: Any) -> Any:
    """NNCF's int8 for weights and activations, calibrated on the benchmark's own calibration texts."""
    import nncf
    import openvino

    path = work / "openvino-int8.xml"
    if not path.exists():
        from transformers import AutoTokenizer

        texts = json.loads((work / TEXTS).read_text())[2]
        ids = AutoTokenizer.from_pretrained(model)(texts, truncation=True)["input_ids"]
        items = [(row, mask, np.zeros_like(row)) for row, mask in (rectangle([one]) for one in ids)]
        found = nncf.quantize(exact, nncf.Dataset(items), model_type=nncf.ModelType.TRANSFORMER)
        openvino.save_model(found, str(path), compress_to_fp16=False)
    return openvino.Core().read_model(str(path))


def openvino_peer(
    precision: str, quantized: Callable[[Path, Path, Any], Any] | None = None
) -> Callable[[Path, Path, int, int, Pool], Batch]:
    """OpenVINO on the ONNX file, quantized or not; `precision` as its INFERENCE_PRECISION_HINT has it."""

    def open(model: Path, work: Path, calls: int, cores: int, pool: Pool) -> Batch:
        import threading

        import openvino

        core = openvino.Core()
        read = core.read_model(str(onnx_file(model, work)))
        if quantized:
            read = quantized(model, work, read)
        settings: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": calls * cores,
            "NUM_STREAMS": calls,
            "ENABLE_CPU_PINNING": False,  # two compiled models would wait for each other's cores
        }
        compiled, own = core.compile_model(read, "CPU", settings), threading.local()

        def run(sequences: Sequence[Sequence[int]]) -> Vectors:
            if not hasattr(own, "request"):
                own.request = compiled.create_infer_request()
            ids, mask = rectangle(sequences)
            return pool(own.request.infer([ids, mask, np.zeros_like(ids)])[0], mask)

        return run

    return open


ONNX = ("onnxruntime", "onnx", "onnxscript", "transformers")
PEERS = {
    "transformers float32": Peer(("transformers",), transformers_peer("float32"), own_threads=True),
    "transformers bfloat16": Peer(("transformers",), transformers_peer("bfloat16"), own_threads=True),
    "sentence-transformers": Peer(("sentence_transformers",), sentence_transformers_peer, own_threads=True, texts=True),
    "CTranslate2 float32": Peer(("ctranslate2", "transformers"), ctranslate2_peer("float32")),
    "CTranslate2 int8": Peer(("ctranslate2", "transformers"), ctranslate2_peer("int8")),
    "ONNX Runtime float32": Peer(ONNX, onnxruntime_peer(onnx_file)),
    "ONNX Runtime int8": Peer(ONNX, onnxruntime_peer(lambda m, w: quantized_onnx(m, w, "channel", **PER_CHANNEL))),
    "ONNX Runtime int8 by default": Peer(ONNX, onnxruntime_peer(lambda m, w: quantized_onnx(m, w, "default"))),
    "OpenVINO float32": Peer(("openvino", *ONNX[1:]), openvino_peer("f32")),
    "OpenVINO bfloat16": Peer(("openvino", *ONNX[1:]), openvino_peer("bf16")),
    "OpenVINO int8": Peer(("openvino", "nncf", *ONNX[1:]), openvino_peer("f32", int8_calibrated)),
    "OpenVINO int8 weights": Peer(("openvino", "nncf", *ONNX[1:]), openvino_peer("f32", int8_weights)),
}
