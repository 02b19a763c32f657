"""Random programs: whatever is made of them gives the same bits, in every engine, by kernels and by standard ops."""

from __future__ import annotations

import collections
import dataclasses
import os

import onnx
import onnx_ir as ir
import pytest
from programs import check as checking
from programs.check import check
from programs.generate import FIRST, program
from programs.shrink import shrink

CHUNK = 20
QUICK = 60
MANY = int(os.environ.get("LOOPLIFT_PROGRAMS", "20000"))
"""How many the slow tests run, at 0.08 to 0.1 s of CPU each: a quarter of an hour on two cores, in some 250 MB. The seeds
are the same each time."""


def run(seeds: range) -> tuple[collections.Counter[str], list[str]]:
    """What the programs of these seeds contain and come to, and what differs."""
    total: collections.Counter[str] = collections.Counter()
    different: list[str] = []
    for seed in seeds:
        subject = program(seed)
        outcome = check(subject)
        total.update(set(subject.used))
        total.update(f"ran in {name}" for name in outcome.as_written)
        total["ran"] += bool(outcome.as_written)
        findings = [finding for report in outcome.reports for finding in report.findings]
        total["lifted"] += any(finding.lifted for finding in findings)
        total["changed"] += any(finding.lifted or finding.actions for finding in findings)
        different += [f"{seed}: {difference}" for difference in outcome.differences]
    return total, different


@pytest.mark.parametrize("first", range(0, QUICK, CHUNK))
def test_same_bits(first):
    total, different = run(range(first, first + CHUNK))
    assert not different
    assert total["ran"] > 0.8 * CHUNK
    assert total["lifted"] > 0.4 * CHUNK
    assert total["changed"] > 0.8 * CHUNK


FOUND = {
    4728: "definitions inlined under names that repeat",
    6882: "a recurrence whose shapes can't be added, in a loop that never runs",
    9294: "rows of a Range of captured numbers",
    9488: "rows declared of what they are copies of",
    9514: "a dead reader in a loop that must not change",
    10506: "an If by a constant, which ONNX Runtime inlines, in float16",
    11117: "an integer sum with resets, of several steps that stay the same",
    11487: "two loops that ask for equal extents, one about what the other gives",
    11817: "rows inferred by a constant from outside",
    12343: "a loop that carries nothing, before opset 11",
    13884: "a choice of float16, which ONNX Runtime's Where does not round",
    15588: "a cond whose rank is known at last",
    16017: "a declared shape that is proven wrong",
    16123: "float16 that is not rounded before the Cast of another loop",
    17935: "a constant 0 + -0, which ONNX Runtime leaves out",
    18274: "the shape of a carry that was taken out of a loop which stays",
    18634: "rows declared in a Scan that is gone",
    20767: "rows that a branch makes which is known to be taken",
    104605: "rows whose extents are computed from shapes",
}
"""Seeds that were different once, and the kind of fault that it was."""


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_different_once(seed):
    _, different = run(range(seed, seed + 1))
    assert not different


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, QUICK + MANY, CHUNK))
def test_same_bits_of_many(first):
    _, different = run(range(first, first + CHUNK))
    assert not different


def test_reach():
    """What programs of the field had is in these."""
    used: collections.Counter[str] = collections.Counter()
    for seed in range(500):
        used.update(set(program(seed).used))
    types = "float double float16 bfloat16 int64 int32 int16 int8 uint64 uint32 uint16 uint8".split()
    wanted = {*(f"opset {k}" for k in range(8, 27)), *(f"type {name}" for name in types)}
    wanted |= set("Loop Scan If call while list MatMul ReduceSum Slice Gather Concat Reshape Where ScatterND".split())
    wanted |= {"depth 2", "carries: 4", "grown tensor", "initializer inside", "initializer outside", "direct output"}
    assert not wanted - used.keys()
    assert all(used[name] > 20 for name in ("Scan", "If", "call", "while", "list", "depth 1", "carries: 3"))


def test_same_seed_same_program():
    one, other = program(7), program(7)
    assert one.model == other.model
    assert {k: v.tobytes() for k, v in one.feeds[FIRST].items()} == {
        k: v.tobytes() for k, v in other.feeds[FIRST].items()
    }


def test_wrong_rewrites_are_noticed(monkeypatch):
    """A loop that begins its first carry at twice the value, once lifted."""
    lift = checking.optimizer.lift

    def wrong(source, **options):
        model, report = lift(source, **options)
        for node in model.graph if model is not None else ():
            if node.op_type in ("Loop", "Scan", "AddStep", "PrefixSum", "LinearRecurrence", "CumSum"):
                position = 2 if node.op_type == "Loop" else 0
                value = node.inputs[position] if len(node.inputs) > position else None
                if value is not None:
                    double = ir.node("Add", [value, value])
                    model.graph.insert_before(node, double)
                    node.replace_input_with(position, double.outputs[0])
        return model, report

    monkeypatch.setattr(checking.optimizer, "lift", wrong)
    assert len({text.split(":")[0] for text in run(range(12))[1]}) > 3


def test_shrink():
    """A program with a product in a Loop becomes one with hardly anything else."""

    def has_product(subject):
        loops = [n for n in subject.model.graph.node if n.op_type == "Loop"]
        if not any(n.op_type == "Mul" for loop in loops for n in loop.attribute[0].g.node):
            return False
        return bool(check(dataclasses.replace(subject, feeds={FIRST: subject.feeds[FIRST]})).as_written)

    subject = next(p for p in map(program, range(100)) if has_product(p))
    smaller = shrink(subject, has_product)
    assert has_product(smaller)
    assert len(onnx.printer.to_text(smaller.model)) < 0.7 * len(onnx.printer.to_text(subject.model))
    assert sum(1 for _ in ir.traversal.RecursiveGraphIterator(ir.from_proto(smaller.model).graph)) < 10
