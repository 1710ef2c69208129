"""Building ONNX graphs operator by operator."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from torch import Tensor, nn

from manyheads.checkpoint.quantization import SCALE_SUFFIX, Int8Rows, Scales
from manyheads.config import TransformerConfig
from manyheads.errors import RequestError
from manyheads.export.onnx_run import import_optional

OPSET, IR_VERSION = 17, 8  # the first opset with LayerNormalization, and the file format of its time
MAX_FILE_BYTES = 2**31 - 1  # of a protobuf message

Int8Weights = Mapping[str, tuple[Int8Rows, Scales]]  # by the name of the parameter


class GraphBuilder:
    """An ONNX graph under construction. Calling it adds an operator; values are referred to by name."""

    def __init__(self, model: nn.Module, int8: Int8Weights | None = None) -> None:
        """Start a graph of a model. `int8` are the matrices of an int8 folder, stored as they are."""
        self.nodes: list[Any] = []
        self.initializers: dict[str, NDArray[Any]] = {}
        self.names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        self.int8 = int8 or {}
        self.dequantized: dict[str, str] = {}  # the operator of each int8 matrix that has one

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator and return the name of its output."""
        name = f"{operator}.{len(self.nodes)}"
        self.nodes.append(
            import_optional("onnx.helper").make_node(operator, inputs, [name], name, **attributes)
        )
        return name

    def add_initializer(self, name: str, values: ArrayLike) -> str:
        """Add an array to the file, once for each name."""
        if name not in self.initializers:
            self.initializers[name] = np.asarray(values, order="C")
        return name

    def constant(self, value: ArrayLike, dtype: DTypeLike = np.int64) -> str:
        """Add a constant of any shape."""
        array = np.array(value, dtype)
        return self.add_initializer(f"{array.dtype} {array.tolist()}", array)

    def weight(self, parameter: Tensor) -> str:
        """Add a parameter; tied parameters are stored once."""
        name = self.names[parameter]
        if name in self.int8:
            return self._dequantize(name, self.int8[name][0], axis=0)
        return self.add_initializer(name, parameter.detach().numpy())

    def transposed_weight(self, parameter: Tensor) -> str:
        """Add a parameter [out, in] in the layout of MatMul, [in, out]."""
        name = self.names[parameter]
        if name in self.int8:
            return self._dequantize(f"{name}.transposed", self.int8[name][0].T, axis=1)
        return self.add_initializer(f"{name}.transposed", parameter.detach().numpy().T)

    def gather_rows(self, parameter: Tensor, ids: str) -> str:
        """Return rows of a parameter. Of an int8 matrix only those rows are dequantized."""
        name = self.names[parameter]
        if name not in self.int8:
            return self("Gather", self.weight(parameter), ids)
        rows = self.add_initializer(name, self.int8[name][0])
        gathered = self("Cast", self("Gather", rows, ids), to=import_optional("onnx").TensorProto.FLOAT)
        return self("Mul", gathered, self.unsqueeze(self("Gather", self._add_scales(name), ids), -1))

    def _dequantize(self, name: str, rows: NDArray[np.int8], axis: int) -> str:
        """Add an int8 matrix and the operator that makes it float32, once for each name."""
        if name not in self.dequantized:
            scales = self._add_scales(name.removesuffix(".transposed"))
            self.dequantized[name] = self(
                "DequantizeLinear", self.add_initializer(name, rows), scales, axis=axis
            )
        return self.dequantized[name]

    def _add_scales(self, name: str) -> str:
        return self.add_initializer(f"{name}{SCALE_SUFFIX}", self.int8[name][1])

    def axis_size(self, value: str, axis: int) -> str:
        """Return the size of an axis, a scalar."""
        return self("Squeeze", self("Shape", value, start=axis, end=axis + 1))

    def reshape(self, value: str, *shape: int) -> str:
        """Reshape a value; 0 stands for an axis that stays as it is."""
        return self("Reshape", value, self.constant(shape))

    def unsqueeze(self, value: str, *axes: int) -> str:
        return self("Unsqueeze", value, self.constant(axes))

    def stack(self, values: Sequence[str]) -> str:
        """Stack values along a new first axis."""
        return self("Concat", *(self.unsqueeze(value, 0) for value in values), axis=0)

    def serialize(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> bytes:
        """Return the graph as an ONNX file."""
        helper, from_array = import_optional("onnx.helper"), import_optional("onnx.numpy_helper").from_array
        size = sum(array.nbytes for array in self.initializers.values())
        if size > MAX_FILE_BYTES:
            raise RequestError(
                f"{name}: {size:,} bytes of weights, but an ONNX file holds {MAX_FILE_BYTES:,}"
            )
        initializers = [from_array(array, label) for label, array in self.initializers.items()]
        graph = helper.make_graph(self.nodes, name, inputs, outputs, initializers)
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(
            graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="manyheads"
        )
        serialized: bytes = model.SerializeToString()
        return serialized

    def name_output(self, name: str, value: str) -> None:
        """Name a value that the graph returns."""
        self.nodes.append(import_optional("onnx.helper").make_node("Identity", [value], [name], name))


def describe_ports(names: Sequence[str], config: TransformerConfig) -> list[Any]:
    """Return the types and shapes of inputs or outputs. Letters name the axes that vary."""
    past_axes = [config.decoder_layers, "R", config.heads]
    source_axes = [config.decoder_layers, "B", config.heads, "S"]
    shapes = {
        "source": ["B", "S"],
        "source_lengths": ["B"],
        "source_keys": [*source_axes, config.head_dim_k],
        "source_values": [*source_axes, config.head_dim_v],
        "tokens": ["R"],
        "lengths": ["R"],
        "past_keys": [*past_axes, "L", config.head_dim_k],
        "past_values": [*past_axes, "L", config.head_dim_v],
        "new_keys": [*past_axes, "L + 1", config.head_dim_k],
        "new_values": [*past_axes, "L + 1", config.head_dim_v],
        "logits": ["R", config.output_vocab_size],
    }
    types = import_optional("onnx").TensorProto
    make_port = import_optional("onnx.helper").make_tensor_value_info
    integers = {"source", "source_lengths", "tokens", "lengths"}
    return [make_port(name, types.INT64 if name in integers else types.FLOAT, shapes[name]) for name in names]
