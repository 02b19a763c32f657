"""What ONNX Runtime (CPU) does otherwise than the standard says, or leaves open how: each quirk once.

Seen in 1.32.0, on x86 with AVX-512, one thread, where nothing else is said. The tests named run the engine, or hold the
way around; `tests/patterns/engines/test_quirks.py` holds that they exist. The quirks of kind `ROUNDS` are those that
`patterns.engines.onnxruntime` answers questions about. Its optimizers run in every graph on its own, and never look
across the border of a graph, except at constants outside. "Depth" counts graphs, from a constant to its reader.
"""

from __future__ import annotations

import dataclasses
import enum


class Kind(enum.Enum):
    """What comes of a quirk."""

    ROUNDS = "other last bits"
    WRONG = "a result that is not the standard's"
    FAILS = "a model that does not load, or does not run"
    SLOW = "the right result, in more time than need be"


@dataclasses.dataclass(frozen=True)
class Quirk:
    """One thing to know of the engine.

    Attributes:
        name: short; of what rounds otherwise the `Tie.kind`, where there is one.
        kind: what comes of it.
        what: what happens.
        see: how to see it; for what rounds, beside putting the node into a Loop of one iteration and comparing.
        test: file and function.
        versions: in which it was seen.
    """

    name: str
    kind: Kind
    what: str
    see: str
    test: str
    versions: str = "1.32"


_HERE = "tests/patterns/engines/test_onnxruntime.py::"
_SCAN = "tests/passes/targets/test_loop_to_scan"
_DISAGREE = "tests/runtime/test_disagreements.py::"

QUIRKS = (
    Quirk(
        "packed",
        Kind.ROUNDS,
        "MatMul, Gemm, LSTM, GRU of float32 lay a constant operand out anew (prepacking) at depth 0 and 1, not further "
        "out, and then multiply with another kernel. Not: double, RNN, Einsum, the left operand, integers (exact).",
        "any optimizers; K from 2, most from K = 16",
        _HERE + "test_constant_operands_are_packed_up_to_one_graph_further_out",
    ),
    Quirk(
        "stepped",
        Kind.ROUNDS,
        "LSTM and GRU whose weights are not packed, and RNN always, multiply what all their steps read at once, with "
        "another kernel than one row has.",
        "any optimizers; a batch of one",
        _HERE + "test_steps_of_a_batch_of_one_are_multiplied_at_once",
    ),
    Quirk(
        "no step",
        Kind.WRONG,
        "LSTM and RNN without a step hand out zeros for their final states; such a GRU ends the process.",
        "any optimizers; an LSTM of a series of length 0",
        _HERE + "test_final_states_of_no_step_are_zeros",
    ),
    Quirk(
        "blocked",
        Kind.ROUNDS,
        "Conv of float32 with constant weights at depth 0 becomes NCHWc, and fuses with what follows.",
        "all optimizers",
        _HERE + "test_conv_minds_whether_its_weights_are_in_its_graph",
    ),
    Quirk(
        "transposed",
        Kind.ROUNDS,
        "A product and the Transpose of an operand become one (FusedMatMul, Gemm), also with a Cast or Reshape "
        "between.",
        "extended optimizers, Gemm: basic; one row, from K = 16",
        _HERE + "test_neighbours_become_one_node",
    ),
    Quirk(
        "scaled",
        Kind.ROUNDS,
        "A product and Mul or Div by a constant scalar become one.",
        "extended optimizers",
        _HERE + "test_neighbours_become_one_node",
    ),
    Quirk(
        "bias",
        Kind.ROUNDS,
        "MatMul and Add become a Gemm, if nothing else reads the product and the shapes of all three are known, and "
        "fit: declared, or inferred. Loops tell their bodies no shapes of carried values, Scans do.",
        "basic optimizers; K from 256",
        _HERE + "test_known_shapes_count",
    ),
    Quirk(
        "summed",
        Kind.ROUNDS,
        "Gemm and Sum become one Gemm.",
        "basic optimizers",
        _HERE + "test_neighbours_become_one_node",
    ),
    Quirk(
        "quotient",
        Kind.ROUNDS,
        "Div(1, x) and Mul become one Div, which rounds once.",
        "basic optimizers",
        _HERE + "test_neighbours_become_one_node",
    ),
    Quirk(
        "normalised",
        Kind.ROUNDS,
        "ReduceMean, ... , Div, Mul, Add become a LayerNormalization, if the shapes are known; with an Add before, a "
        "SkipLayerNormalization.",
        "basic optimizers; with Add before it: extended",
        _HERE + "test_neighbours_become_one_node",
    ),
    Quirk(
        "placed",
        Kind.ROUNDS,
        "What a Scan stacks is written into the stack, at any address, and what it reads lies in the tensor: kernels "
        "built on Eigen round differently there, unless an Identity copies, which stays without optimizers, and with "
        "them where others read what it copies.",
        "Log, Sin, Softplus, Exp and Tanh of doubles, zeros of Max and Min, ReduceSum, of a row at an odd address",
        _SCAN + ".py::test_bits_that_depend_on_the_place_in_memory",
    ),
    Quirk(
        "half",
        Kind.ROUNDS,
        "float16 (and bfloat16) without a kernel is computed in float32, and between two such nodes of one graph no "
        "rounding takes place.",
        "any optimizers",
        _HERE + "test_halves_are_not_rounded_between_two_nodes",
    ),
    Quirk(
        "half, moved",
        Kind.ROUNDS,
        "One operator between such nodes, even if it has float16, moves float32, and nothing is rounded; two in "
        "a row that have float16 do not. The branch of an If by a constant is part of the graph around it.",
        "any optimizers; the branch: basic ones",
        _HERE + "test_what_stands_between_two_nodes_of_halves",
    ),
    Quirk(
        "sums",
        Kind.ROUNDS,
        "A tensor of another shape may be added up, or multiplied, by another kernel, in another order.",
        "a product over all iterations at once; numpy does so, too",
        "tests/looplift/test_last_bits.py::test_verify_takes_other_last_bits_of_sums_as_equal",
    ),
    Quirk(
        "functions",
        Kind.ROUNDS,
        "Vector code rounds a function other than scalar code does, so that the bits hang on where in a tensor a "
        "number stands.",
        "Exp, Log, Sin of tensors of other sizes; not in numpy",
        _SCAN + ".py::test_bits_that_depend_on_the_place_in_memory",
    ),
    Quirk(
        "minus zero of Where",
        Kind.WRONG,
        "Where takes 0 for a -0 of its second input: it adds both inputs, one of them masked with +0.",
        "Where(false, x, y) with y = -0",
        "tests/passes/updates/test_choices_into_terms.py::test_a_minus_zero_stays_one_in_onnxruntime",
    ),
    Quirk(
        "Where of Not",
        Kind.WRONG,
        "Where(Not(c), x, y) becomes Where(c, y, x), so that the other input loses its -0.",
        "basic optimizers",
        "tests/passes/updates/test_choices_without_branches.py::test_the_optimizers_of_onnxruntime_exchange_no_values",
    ),
    Quirk(
        "plus zero",
        Kind.WRONG,
        "Add of a constant +0 of one element is left out, so that -0 stays -0; 0 - x is not.",
        "basic optimizers, where no output of the graph is the sum",
        "tests/passes/targets/test_plus_zero.py::test_onnxruntime_leaves_out_the_addition_of_a_constant_zero",
    ),
    Quirk(
        "Where of other types",
        Kind.FAILS,
        "Where has kernels for few element types.",
        "Where of bfloat16 or uint16",
        "tests/passes/updates/test_choices_without_branches.py::test_only_where_engines_have_a_where",
    ),
    Quirk(
        "Expand of bfloat16",
        Kind.FAILS,
        "Expand has no kernel for bfloat16, so that a value is not repeated over time.",
        "Expand of bfloat16",
        _HERE + "test_no_expand_of_bfloat16",
    ),
    Quirk(
        "cell without a step",
        Kind.WRONG,
        "An LSTM of no step gives zeros for its final states, a GRU of none ends the process.",
        "a series of length 0",
        "tests/passes/recurrences/test_cells.py::test_spellings",
    ),
    Quirk(
        "empty Scan",
        Kind.FAILS,
        "A Scan without an iteration is refused.",
        "a Scan over a tensor of no rows",
        _DISAGREE + "test_onnxruntime_fails_on_a_scan_of_length_zero",
    ),
    Quirk(
        "empty stack",
        Kind.WRONG,
        "A Loop of no iteration makes stacks whose extents are 0 where the body declares none.",
        "Loop with M = 0",
        _DISAGREE + "test_onnxruntime_makes_unknown_dimensions_of_empty_rows_zero",
    ),
    Quirk(
        "stacked strings",
        Kind.WRONG,
        "Scan outputs of strings are wrong from row 1 on.",
        "a Loop that stacks strings",
        _DISAGREE + "test_onnxruntime_stacks_strings_wrongly",
    ),
    Quirk(
        "inputs returned",
        Kind.WRONG,
        "A Scan whose body returns one of its inputs, or one value twice, gives wrong rows.",
        "a body output without a node of its own",
        _SCAN + "_bodies.py::test_body_outputs_without_a_node_of_their_own_are_copied",
    ),
    Quirk(
        "ranks of rows",
        Kind.FAILS,
        "A Scan runs only where the ranks of its body's outputs are known.",
        "a body whose outputs declare no shape",
        "tests/passes/targets/test_declare_rows.py::test_a_declared_row_stays_declared_where_its_copy_goes",
    ),
    Quirk(
        "one shape of an If",
        Kind.WRONG,
        "Before opset 11 an extent that shows in one branch of an If is taken for that of both.",
        "an If with branches of other extents, opset 10",
        "tests/passes/recurrences/test_series_forms.py::test_the_extents_of_rows_are_measured",
    ),
    Quirk(
        "cond of one element",
        Kind.FAILS,
        "A Loop's cond declared as a tensor of one element, where the body declares a scalar, is refused.",
        "the definition of AddStep with cond of shape [1]",
        "tests/passes/lift/test_lift_recurrences.py::test_a_cond_of_one_element_is_handed_over_as_a_scalar",
    ),
    Quirk(
        "Casts there and back",
        Kind.WRONG,
        "Two Casts that change nothing are taken out, and the value is then missed where only a body reads it.",
        "Cast(Cast(x)) in front of a Loop, basic optimizers",
        "tests/passes/clean/test_simplify.py::test_integers_booleans_and_casts",
    ),
    Quirk(
        "names of inlined functions",
        Kind.WRONG,
        "What a function computes gets names that are new in the graph of the call, but not in the graphs around it. "
        "Where a value that a body reads from outside becomes one with a value of a function called there "
        "(CommonSubexpressionElimination), the body reads the value of that name of its own call instead.",
        "one function called in a graph and in a body in it, which reads Shape of the first call's input from outside; "
        "basic optimizers",
        "tests/passes/lift/test_definitions.py::test_what_a_body_reads_is_not_taken_for_a_value_of_the_definition",
    ),
)

__all__ = ["QUIRKS", "Kind", "Quirk"]
