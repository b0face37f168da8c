"""8-bit weights for a graph, calibrated on texts: matrices in blocks of 32, embeddings in rows.

    MatMul(x, W)          ->  MatMulNBits(x, W in 8 bits, a scale for 32 input features of an output)
    Gather(table, ids)    ->  Gather(table in int8, ids), a scale for each row

ONNX Runtime rounds each row of the input in blocks of 32 too. A text's answer therefore does not depend on the others
of its batch. Weights are rounded by GPTQ on the inputs of the calibration texts. ONNX Runtime's own `quantize_dynamic`
has one scale for all inputs of a batch: a cosine of 0.95 to the float model, which no gate passes (benchmarks/log).

N, K output and input features · V words · H width of the embeddings
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from bertie.platform import OnnxEngine, Sequences, gptq

_SCALE_BLOCK = 32
BITS, ACCURACY = 8, 4  # of MatMulNBits; 4: inputs are rounded to 8 bits
CONTRIB, OPSET = "com.microsoft", 1
_MATRICES_PER_PASS = 8  # matrices whose inputs are gathered in one pass: what is held of each is K x K numbers
LEAST_WORDS = 256  # rows of a table that is worth it


def quantized(model: onnx.ModelProto, engine: OnnxEngine, sequences: Sequence[Sequences]) -> int:
    """Replaces the matrices and tables of a graph in place, and returns how many.

    engine: of the same graph with the inputs of its matrices as additional outputs (`watched`). sequences: one per
    text.
    """
    graph = model.graph
    weights = {one.name: one for one in graph.initializer}
    readers = _matrices(model)
    hessians = _hessians(
        engine, sequences, {name: [node.input[0] for node in nodes] for name, nodes in readers.items()}
    )
    for name, nodes in readers.items():
        turned = any(_turned(graph, node) for node in nodes)
        _replace_products(graph, name, _matrix(weights[name], turned), next(hessians), nodes)
    tables = [node for node in graph.node if node.op_type == "Gather" and _is_table(weights.get(node.input[0]))]
    for node in tables:
        _replace_lookup(graph, weights[node.input[0]], node)
    _sweep(graph)
    if not any(one.domain == CONTRIB for one in model.opset_import):
        model.opset_import.append(helper.make_opsetid(CONTRIB, OPSET))
    return len(readers) + len(tables)


def watched(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a copy of a graph with the inputs of its matrices as additional outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {one.name for one in copy.graph.output}
    for name in dict.fromkeys(node.input[0] for nodes in _matrices(copy).values() for node in nodes):
        if name not in known:
            copy.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return copy


def _matrices(model: onnx.ModelProto) -> dict[str, list[onnx.NodeProto]]:
    """Returns the matrices that can be quantized, with the nodes that read each of them."""
    weights = {one.name: one for one in model.graph.initializer}
    matrices: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        if node.op_type != "MatMul":
            continue
        turned = _turned(model.graph, node)
        name = turned.input[0] if turned else node.input[1]
        weight = weights.get(name)
        if weight is None or len(weight.dims) != 2 or weight.data_type != onnx.TensorProto.FLOAT:
            continue
        if weight.dims[1 if turned else 0] % _SCALE_BLOCK == 0:
            matrices.setdefault(name, []).append(node)
    return matrices


def _turned(graph: onnx.GraphProto, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Returns the node that transposes the matrix of a product, if there is one."""
    return next((one for one in graph.node if one.op_type == "Transpose" and one.output[0] == node.input[1]), None)


def _matrix(weight: onnx.TensorProto, turned: bool) -> NDArray[np.float32]:
    """-> (N, K)"""
    array = numpy_helper.to_array(weight)
    return np.ascontiguousarray(array if turned else array.T)


def _hessians(
    engine: OnnxEngine, sequences: Sequence[Sequences], inputs: dict[str, list[str]]
) -> Iterator[NDArray[np.float64]]:
    """Yields for each matrix the mean of x x^T over its inputs x. -> (K, K) each"""
    names = list(inputs)
    for start in range(0, len(names), _MATRICES_PER_PASS):
        chosen = names[start : start + _MATRICES_PER_PASS]
        tensors = list(dict.fromkeys(one for name in chosen for one in inputs[name]))
        sums: dict[str, Any] = dict.fromkeys(tensors, 0.0)
        tokens = 0
        for ids in sequences:
            for name, array in zip(tensors, engine.session.run(tensors, engine.feeds(ids)), strict=True):
                rows = array.reshape(-1, array.shape[-1])
                sums[name] = sums[name] + rows.T @ rows
            tokens += len(ids.input_ids)
        for name in chosen:
            yield sum(sums[one] for one in inputs[name]) / tokens / len(inputs[name])


def _replace_products(
    graph: onnx.GraphProto,
    name: str,
    weight_NK: NDArray[np.float32],
    hessian_KK: NDArray[np.float64],
    nodes: Sequence[onnx.NodeProto],
) -> None:
    n, k = weight_NK.shape
    group = torch.arange(k) // _SCALE_BLOCK
    values, scale = gptq(torch.tensor(weight_NK), torch.from_numpy(hessian_KK).float(), group)
    packed = (values.numpy() + (1 << (BITS - 1))).astype(np.uint8).reshape(n, k // _SCALE_BLOCK, _SCALE_BLOCK)
    scales = np.ascontiguousarray(scale.numpy().T, np.float32).reshape(-1)
    graph.initializer.extend(
        [numpy_helper.from_array(packed, f"{name}_blocks"), numpy_helper.from_array(scales, f"{name}_scales")]
    )
    for node in nodes:
        new = helper.make_node(
            "MatMulNBits",
            [node.input[0], f"{name}_blocks", f"{name}_scales"],
            list(node.output),
            name=node.name,
            domain=CONTRIB,
            K=k,
            N=n,
            bits=BITS,
            block_size=_SCALE_BLOCK,
            accuracy_level=ACCURACY,
        )
        node.CopyFrom(new)


def _is_table(weight: onnx.TensorProto | None) -> bool:
    return (
        weight is not None
        and len(weight.dims) == 2
        and weight.data_type == onnx.TensorProto.FLOAT
        and weight.dims[0] >= LEAST_WORDS
    )


def _replace_lookup(graph: onnx.GraphProto, table: onnx.TensorProto, node: onnx.NodeProto) -> None:
    rows, scales = f"{table.name}_int8", f"{table.name}_row_scales"
    if not any(one.name == rows for one in graph.initializer):
        array = numpy_helper.to_array(table)
        scale_V1 = np.maximum(np.abs(array).max(1, keepdims=True) / 127, 1e-12).astype(np.float32)
        whole = np.rint(array / scale_V1).astype(np.int8)
        graph.initializer.extend([numpy_helper.from_array(whole, rows), numpy_helper.from_array(scale_V1, scales)])
    ids, out = node.input[1], node.output[0]
    steps = [
        helper.make_node("Gather", [rows, ids], [f"{out}_int8"], axis=0),
        helper.make_node("Gather", [scales, ids], [f"{out}_scale"], axis=0),
        helper.make_node("Cast", [f"{out}_int8"], [f"{out}_float"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", [f"{out}_float", f"{out}_scale"], [out]),
    ]
    nodes = list(graph.node)
    at = next(i for i, one in enumerate(nodes) if out in one.output)
    del graph.node[:]
    graph.node.extend([*nodes[:at], *steps, *nodes[at + 1 :]])


def _sweep(graph: onnx.GraphProto) -> None:
    """Removes nodes and weights that are no longer read."""
    while True:
        read = {name for node in graph.node for name in node.input} | {one.name for one in graph.output}
        nodes = [node for node in graph.node if any(name in read for name in node.output)]
        weights = [one for one in graph.initializer if one.name in read]
        if len(nodes) == len(graph.node) and len(weights) == len(graph.initializer):
            return
        del graph.node[:], graph.initializer[:]
        graph.node.extend(nodes)
        graph.initializer.extend(weights)
