"""The forms that a carry's evolution has, each as the operations of one iteration, in their order."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.loops.cells import CellState
from looplift.patterns.loops.continued import Continued


@dataclasses.dataclass(frozen=True)
class Term:
    """A signed body value: an addend or a factor of a recurrence. `value` None is the number one."""

    value: ir.Value | None
    negated: bool = False

    def flipped(self) -> Term:
        """The term with the other sign; exact for every number."""
        return Term(self.value, not self.negated)

    def __str__(self) -> str:
        text = "1" if self.value is None else f"'{self.value.name}'"
        return f"-{text}" if self.negated else text


@dataclasses.dataclass(frozen=True)
class Invariant:
    """v' = v."""


@dataclasses.dataclass(frozen=True)
class AddStep:
    """v' = v + step, the step the same in every iteration. Several steps only for integers."""

    steps: tuple[Term, ...]

    def __str__(self) -> str:
        return "add-step by " + " + ".join(map(str, self.steps))


@dataclasses.dataclass(frozen=True)
class PrefixSum:
    """v' = v + x[t]. Several addends only for integers."""

    addends: tuple[Term, ...]

    def __str__(self) -> str:
        return "prefix sum of " + " + ".join(map(str, self.addends))


@dataclasses.dataclass(frozen=True)
class Additions:
    """v' = (v + x1[t]) + x2[t] ..., each sum rounded: as many steps of a prefix sum in every iteration."""

    addends: tuple[Term, ...]

    def __str__(self) -> str:
        return "prefix sum, in every iteration, of " + ", then of ".join(map(str, self.addends))


@dataclasses.dataclass(frozen=True)
class RunningFlag:
    """v' = v op x[t] of truth values: `op` is Or, And or Xor."""

    op: str
    value: ir.Value

    def __str__(self) -> str:
        return f"running {self.op} of '{self.value.name}'"


@dataclasses.dataclass(frozen=True)
class Resets:
    """v' = b[t] where the condition is `when`, else v + x[t], or v itself; additions only of integers."""

    condition: ir.Value
    when: bool
    value: ir.Value
    addends: tuple[Term, ...]

    def __str__(self) -> str:
        kept = f"sum of {' + '.join(map(str, self.addends))}" if self.addends else "last value"
        return f"{kept}, set to '{self.value.name}' {'where' if self.when else 'except where'} '{self.condition.name}'"


@dataclasses.dataclass(frozen=True)
class LinearRecurrence:
    """v' = a[t]*v + b[t]: a product rounded, then a sum rounded. `addends` empty: v' = a[t]*v."""

    factor: Term
    addends: tuple[Term, ...]

    def __str__(self) -> str:
        return f"linear recurrence {self.factor}*v" + "".join(f" + {term}" for term in self.addends)


@dataclasses.dataclass(frozen=True)
class Overwritten:
    """v' = f(...), which does not read v: each state is the value made one iteration before."""

    value: ir.Value

    def __str__(self) -> str:
        return f"overwritten by '{self.value.name}'"


@dataclasses.dataclass(frozen=True)
class Unknown:
    """No known form; the refusal says which node ended the search and why."""

    refusal: Refusal

    def __str__(self) -> str:
        return f"not a known recurrence: {self.refusal}"


Evolution = (
    Invariant
    | AddStep
    | PrefixSum
    | Additions
    | RunningFlag
    | Resets
    | LinearRecurrence
    | Continued
    | CellState
    | Overwritten
    | Unknown
)
