"""Models with something wrong in them: mutants of good ones, each following from its number."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

EXPORTS = Path(__file__).resolve().parents[1] / "data" / "exports"

NUMBERS = (0, 1, 2, 3, -1, 7, 100, 255, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
TEXTS = ("", "x", "\x1b[31mred", "\u202eleft", "a\nb", "\0", "é", "a" * 3000, "/../..", "Loop", "Scan", "ai.looplift")
FLOATS = (0.0, -0.0, 1.0, float("inf"), float("-inf"), float("nan"), 1e-45, 3.4e38)
LARGEST_BLOB = 40

Mutation = Callable[[random.Random, bytes], bytes]


def seeds() -> list[bytes]:
    """The good models."""
    return [path.read_bytes() for path in sorted(EXPORTS.glob("*.onnx"))]


def mutant(number: int, models: Sequence[bytes]) -> bytes:
    """The mutant of this number: one of the models with one to three mutations."""
    rng = random.Random(f"mutant {number}")
    content = models[number % len(models)]
    for _ in range(rng.choice((1, 1, 2, 3))):
        content = rng.choice(MUTATIONS)(rng, content)
    return content


def flip_bits(rng: random.Random, content: bytes) -> bytes:
    """A few bits the other way round."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8)) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def change_length(rng: random.Random, content: bytes) -> bytes:
    """Cut short, a piece left out, written twice or put in."""
    if not content:
        return b"\x08"
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.choice((1, 2, 8, 100)))
    return rng.choice(
        (
            content[:start],
            content[:start] + content[end:],
            content[:end] + content[start:],
            content[:start] + rng.randbytes(end - start) + content[start:],
        )
    )


def of_proto(change: Callable[[random.Random, onnx.ModelProto], None]) -> Mutation:
    """A mutation of what was parsed; bytes that are no model any more stay as they are."""

    def mutation(rng: random.Random, content: bytes) -> bytes:
        model = onnx.ModelProto()
        try:
            model.ParseFromString(content)
            change(rng, model)
            return model.SerializeToString()
        except (DecodeError, EncodeError, IndexError, ValueError):  # nothing of that kind there; ValueError: not UTF-8
            return content

    mutation.__name__ = change.__name__
    return mutation


def messages(root: Message) -> Iterator[Message]:
    """A message and all messages in it."""
    yield root
    for field, value in root.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for each in value if is_repeated(field, value) else (value,):
                yield from messages(each)


def is_repeated(field: Any, value: Any) -> bool:
    return not isinstance(value, Message) and hasattr(value, "__len__") and not isinstance(value, str | bytes)


def change_field(rng: random.Random, model: onnx.ModelProto) -> None:
    """Any field of any message: another value, none, or twice."""
    message = rng.choice([each for each in messages(model) if each.ListFields()])
    field, value = rng.choice(message.ListFields())
    if is_repeated(field, value):
        place = rng.randrange(len(value))
        if rng.random() < 0.4:
            del value[place]
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            value.append(copy.deepcopy(value[place]))
        else:
            value[place] = strange(rng, field, value[place])
    elif field.type == FieldDescriptor.TYPE_MESSAGE or rng.random() < 0.3:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, strange(rng, field, value))


def strange(rng: random.Random, field: Any, value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bytes):
        return rng.choice((b"", value[:-1], value * 2, rng.randbytes(rng.randrange(LARGEST_BLOB)), b"\xff\xfe"))
    if isinstance(value, str):
        return rng.choice(TEXTS)
    if isinstance(value, float):
        return rng.choice(FLOATS)
    narrow = field.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_ENUM)
    return rng.choice([number for number in NUMBERS if not narrow or -(2**31) <= number < 2**31])


def of_kind(rng: random.Random, model: onnx.ModelProto, *kinds: type) -> Any:
    found = [each for each in messages(model) if isinstance(each, kinds)]
    return rng.choice(found)


def change_shape(rng: random.Random, model: onnx.ModelProto) -> None:
    """Dims of a type or of a tensor: others, more, fewer, none."""
    holder = of_kind(rng, model, onnx.TensorProto, onnx.TypeProto.Tensor)
    if isinstance(holder, onnx.TensorProto):
        dims = [*holder.dims, rng.choice(NUMBERS)] if rng.random() < 0.5 else [*holder.dims][1:]
        rng.shuffle(dims)
        del holder.dims[:]
        holder.dims.extend(dims)
    elif rng.random() < 0.2:
        holder.ClearField("shape")
    else:
        dim = holder.shape.dim.add() if not holder.shape.dim or rng.random() < 0.4 else rng.choice(holder.shape.dim)
        if rng.random() < 0.6:
            dim.dim_value = rng.choice(NUMBERS)
        else:
            dim.dim_param = rng.choice(TEXTS)


def change_type(rng: random.Random, model: onnx.ModelProto) -> None:
    """The dtype of a tensor or a value, the type of an attribute."""
    holder = of_kind(rng, model, onnx.TensorProto, onnx.TypeProto.Tensor, onnx.AttributeProto)
    name = {onnx.TensorProto: "data_type", onnx.AttributeProto: "type"}.get(type(holder), "elem_type")
    setattr(holder, name, rng.choice((*range(30), 100, -1)))


def change_name(rng: random.Random, model: onnx.ModelProto) -> None:
    """A name of a value, a node, an op, a domain: another one, or that of something else."""
    node = of_kind(rng, model, onnx.NodeProto)
    known = [
        name for each in messages(model) if isinstance(each, onnx.NodeProto) for name in (*each.input, *each.output)
    ]
    text = rng.choice((rng.choice(TEXTS), rng.choice(known or ["x"])))
    place = rng.choice(("input", "output", "name", "op_type", "domain"))
    if place in ("input", "output"):
        values = getattr(node, place)
        values[rng.randrange(len(values))] = text
    elif place == "op_type":
        node.op_type = rng.choice(
            (*TEXTS, "If", "Add", "Concat", "Reshape", "ConstantOfShape", "Expand", "Tile", "Range")
        )
    else:
        setattr(node, place, text)


def change_graph(rng: random.Random, model: onnx.ModelProto) -> None:
    """Nodes left out, twice, in another order or another graph; ports likewise; an initializer that is external."""
    graph = of_kind(rng, model, onnx.GraphProto)
    kind = rng.randrange(6)
    if kind == 0:
        del graph.node[rng.randrange(len(graph.node))]
    elif kind == 1:
        graph.node.append(copy.deepcopy(of_kind(rng, model, onnx.NodeProto)))
    elif kind == 2:
        nodes = copy.deepcopy([*graph.node])
        rng.shuffle(nodes)
        del graph.node[:]
        graph.node.extend(nodes)
    elif kind == 3:
        holder = of_kind(rng, model, onnx.AttributeProto)
        inner = copy.deepcopy(graph)  # which may hold the attribute
        holder.type = onnx.AttributeProto.GRAPH
        holder.g.CopyFrom(inner)
    elif kind == 4:
        ports = rng.choice((graph.input, graph.output))
        ports.append(copy.deepcopy(rng.choice((*graph.input, *graph.output))))
    else:
        tensor = of_kind(rng, model, onnx.TensorProto)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key in ("location", "offset", "length"):
            tensor.external_data.add(key=key, value=rng.choice((*TEXTS, *map(str, NUMBERS), "m.onnx", "1e3", ".")))


MUTATIONS: tuple[Mutation, ...] = (
    flip_bits,
    change_length,
    *map(of_proto, (change_field, change_field, change_shape, change_type, change_name, change_graph)),
)
