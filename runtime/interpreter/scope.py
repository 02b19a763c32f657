"""Where planned values are found: slots, the frame of the graph being planned, and what a graph needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import onnx_ir as ir

from looplift.runtime.interpreter import operators, values
from looplift.runtime.interpreter.source import Line


@dataclasses.dataclass(frozen=True)
class Slot:
    """Where the emitted code finds a value: a variable or global name, ``None`` for an absent one."""

    name: str
    type: str | None
    constant: values.Array | None = None
    on_device: bool = False
    absent: bool = False

    @property
    def host(self) -> str:
        """The expression of the value in host memory."""
        return f"host({self.name})" if self.on_device else self.name


ABSENT = Slot("None", None, absent=True)


@dataclasses.dataclass(frozen=True)
class Frame:
    """What holds while one graph, and the graphs inside it, are planned."""

    slots: dict[ir.Value, Slot]
    attributes: Mapping[str, ir.Attr]
    opsets: Mapping[str, int]
    path: str
    calls: tuple[ir.OperatorIdentifier, ...] = ()

    def inside(self, node: ir.Node, attribute: str) -> Frame:
        """The frame of a node's subgraph."""
        return dataclasses.replace(self, path=f"{self.path.rstrip('/')}/{label(node)}:{attribute}")

    def opset(self, domain: str) -> int | None:
        """The version of a domain that the graph imports."""
        return self.opsets.get(operators.standard_domain(domain))


@dataclasses.dataclass(frozen=True)
class Planned:
    """The lines of a graph's nodes and the slots of its outputs."""

    lines: list[Line]
    outputs: list[Slot]


def label(node: ir.Node) -> str:
    """What messages call a node: its name, or that of its first output."""
    return node.name or next((value.name for value in node.outputs if value.name), None) or ""


def resolve(attributes: Mapping[str, ir.Attr], given: Mapping[str, ir.Attr]) -> dict[str, ir.Attr]:
    """A node's attributes with references to the attributes of the function around it replaced by their values."""
    found = {}
    for name, attr in attributes.items():
        if attr.ref_attr_name is None:
            found[name] = attr
        elif attr.ref_attr_name in given:
            found[name] = ir.Attr(name, attr.type, given[attr.ref_attr_name].value)
    return found


def captures(graph: ir.Graph | ir.Function) -> list[ir.Value]:
    """Values of outer scopes that a graph, or a graph inside it, reads; in the order of first use."""
    own = set(graph.inputs)
    found: dict[ir.Value, None] = {}
    for node in graph:
        inner = [v for sub in subgraphs(node) for v in captures(sub)]
        found.update(dict.fromkeys(v for v in (*node.inputs, *inner) if v is not None))
        own.update(node.outputs)
    found.update(dict.fromkeys(graph.outputs))
    return [v for v in found if v not in own and not (v.is_initializer() and v.graph is graph)]


def subgraphs(node: ir.Node) -> Iterable[ir.Graph]:
    """The graphs that a node holds as attributes."""
    for attr in node.attributes.values():
        if attr.ref_attr_name is None and attr.type == ir.AttributeType.GRAPH:
            yield attr.as_graph()
        elif attr.ref_attr_name is None and attr.type == ir.AttributeType.GRAPHS:
            yield from attr.as_graphs()


def needed_nodes(graph: ir.Graph) -> set[ir.Node]:
    """The nodes that the outputs of a graph depend on."""
    needed: set[ir.Node] = set()
    pending = list(graph.outputs)
    own = set(graph)
    while pending:
        producer = pending.pop().producer()
        if producer is None or producer in needed or producer not in own:
            continue
        needed.add(producer)
        pending.extend(value for value in producer.inputs if value is not None)
        pending.extend(value for sub in subgraphs(producer) for value in captures(sub))
    return needed


def opsets_of(imports: Mapping[str, int]) -> dict[str, int]:
    """Opset versions by domain, the standard domain spelled ''."""
    return {operators.standard_domain(domain): version for domain, version in imports.items()}
