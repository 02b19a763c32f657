"""What a recogniser answers: a proof with every obligation discharged, or the first that failed."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir


def label(node: ir.Node) -> str:
    """The name by which messages call a node: its own, or its first output's."""
    if node.name:
        return f"{node.op_type} '{node.name}'"
    named = [output.name for output in node.outputs if output.name]
    return f"{node.op_type} that makes '{named[0]}'" if named else node.op_type


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why something can't be done: the first obligation that failed, and the node where.

    Attributes:
        reason: in words.
        node: where.
        unequal: it is that extents may differ, which can be asked when the model runs.
        general: says only that a loop has no form that passes bring loops into: why they could not tells more.
    """

    reason: str
    node: ir.Node | None = None
    general: bool = False
    unequal: bool = False

    def __str__(self) -> str:
        return self.reason if self.node is None else f"{self.reason} ({label(self.node)})"


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """Carries a refusal out of a computation that can't go on, to whoever started it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


@dataclasses.dataclass(frozen=True)
class Obligation:
    """One thing that had to be shown, and the fact that shows it."""

    name: str
    fact: str

    def __str__(self) -> str:
        return f"{self.name}: {self.fact}"
