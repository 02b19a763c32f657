"""Ops with an implementation of ours: sequences, optionals, and tensor ops that onnx's reference gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter import operators, sequences, tensors
from looplift.runtime.interpreter.call import Call

Attributes = Mapping[str, Any]
Arguments = Callable[[Attributes, "Call", int], "dict[str, Any] | None"]
"""Attributes, node and version of the op -> what the function gets beside the node's inputs; None: not this case."""


def form(call: Call, version: int) -> str | None:
    """The expression of an op of this module; None for another op.

    Raises:
        LoopliftError: a required attribute is missing.
    """
    domain = operators.standard_domain(call.node.domain)
    known = _OPS.get((domain, call.node.op_type))
    if known is None:
        return None
    function, arguments = known
    extra = arguments({name: attr.value for name, attr in call.attributes.items()}, call, version)
    if extra is None:
        return None
    source = call.program.source
    source.use(function, sequences.append)
    named = [f"{name}={source.bind(name, value)}" for name, value in extra.items()]
    return f"{function.__name__}({', '.join([*call.arguments(), *named])})"


def _nothing(attributes: Attributes, call: Call, version: int) -> dict[str, Any]:
    return {}


def _concat(attributes: Attributes, call: Call, version: int) -> dict[str, Any]:
    if "axis" not in attributes:
        raise LoopliftError("the attribute 'axis' is missing")
    return {"axis": attributes["axis"], "new_axis": attributes.get("new_axis", 0)}


def _only(*names: str) -> Arguments:
    return lambda attributes, call, version: {name: attributes[name] for name in names if name in attributes}


def _range(attributes: Attributes, call: Call, version: int) -> dict[str, Any]:
    half = call.inputs[0].type in ("tensor(float16)", "tensor(bfloat16)")
    return {"single": version >= 27 and half and attributes.get("stash_type", 1) == 1}


def _softmax(*, log: bool) -> Arguments:
    def arguments(attributes: Attributes, call: Call, version: int) -> dict[str, Any]:
        return {"axis": attributes.get("axis", 1 if version < 13 else -1), "flat": version < 13, "log": log}

    return arguments


def _hardmax(attributes: Attributes, call: Call, version: int) -> dict[str, Any] | None:
    return {"axis": attributes.get("axis", 1)} if version < 13 else None


def _labels(attributes: Attributes, call: Call, version: int) -> dict[str, Any]:
    return {"labels": attributes.get("classlabels_strings") or attributes.get("classlabels_int64s") or ()}


_OPS: Mapping[tuple[str, str], tuple[Callable[..., Any], Arguments]] = {
    ("", "GatherND"): (tensors.gather_nd, _only("batch_dims")),
    ("", "Mean"): (tensors.mean, _nothing),
    ("", "SequenceEmpty"): (sequences.sequence_empty, _nothing),
    ("", "SequenceConstruct"): (sequences.sequence_construct, _nothing),
    ("", "SequenceInsert"): (sequences.sequence_insert, _nothing),
    ("", "SequenceErase"): (sequences.sequence_erase, _nothing),
    ("", "SequenceAt"): (sequences.sequence_at, _nothing),
    ("", "SequenceLength"): (sequences.sequence_length, _nothing),
    ("", "ConcatFromSequence"): (sequences.concat_from_sequence, _concat),
    ("", "SplitToSequence"): (sequences.split_to_sequence, _only("axis", "keepdims")),
    ("", "Optional"): (sequences.optional, _nothing),
    ("", "OptionalHasElement"): (sequences.optional_has_element, _nothing),
    ("", "OptionalGetElement"): (sequences.optional_get_element, _nothing),
    ("", "Range"): (tensors.range_, _range),
    ("", "Pad"): (tensors.pad, _only("pads", "value", "mode")),
    ("", "Flatten"): (tensors.flatten, _only("axis")),
    ("", "Softmax"): (tensors.softmax, _softmax(log=False)),
    ("", "LogSoftmax"): (tensors.softmax, _softmax(log=True)),
    ("", "Hardmax"): (tensors.hardmax_flat, _hardmax),
    ("ai.onnx.ml", "ZipMap"): (tensors.zip_map, _labels),
}
