"""The table of traits against onnx's schemas."""

import itertools

import onnx
import onnx_ir as ir
import pytest

from looplift.patterns.graph.operators import (
    NO_TRAIT,
    SHAPED_BY,
    STANDARD,
    TRAITS,
    Trait,
    has,
    has_references,
    is_standard,
)

OLDEST = 8
"""The opset from which traits hold."""

SCHEMAS = [schema for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""]
OPERATORS = {schema.name for schema in SCHEMAS}


def versions(op_type: str) -> list[onnx.defs.OpSchema]:
    """Every version of an operator that is in force in some opset in which traits hold."""
    found = sorted((schema for schema in SCHEMAS if schema.name == op_type), key=lambda schema: schema.since_version)
    later = [schema.since_version for schema in found[1:]] + [10**6]
    return [schema for schema, end in zip(found, later, strict=True) if end > OLDEST and not schema.deprecated]


def cases(*traits: Trait) -> list[onnx.defs.OpSchema]:
    names = sorted(set().union(*(TRAITS[trait] for trait in traits)))
    return list(itertools.chain.from_iterable(map(versions, names)))


def label(schema: onnx.defs.OpSchema) -> str:
    return f"{schema.name}-{schema.since_version}"


def test_every_operator_of_the_newest_opset_is_named():
    """A new one gets its traits, or stands among those without."""
    named = set().union(*TRAITS.values())
    assert set(TRAITS) == set(Trait)
    assert named | NO_TRAIT == OPERATORS
    assert not named & NO_TRAIT


def test_random_operators_are_those_that_the_schemas_call_so():
    """But for those that are as random as the nodes in their graphs, and AffineGrid, a function that draws nothing."""
    random = onnx.defs.OpSchema.NodeDeterminism.NonDeterministic
    told = {schema.name for schema in SCHEMAS if schema.node_determinism == random}
    assert told - {"AffineGrid", "If", "Loop", "Scan", "SequenceMap"} == TRAITS[Trait.RANDOM]


def test_reductions_are_all_there_are():
    assert {name for name in OPERATORS if name.startswith("Reduce")} == TRAITS[Trait.REDUCES]


def inferred(schema: onnx.defs.OpSchema, *shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape of the result for operands of these shapes."""
    node = onnx.helper.make_node(schema.name, [f"x{k}" for k in range(len(shapes))], ["y"])
    if schema.name == "BitShift":
        node.attribute.append(onnx.helper.make_attribute("direction", "LEFT"))
    elements = [next(iter(types_of(schema, k))) for k in range(len(shapes))]
    types = {
        f"x{k}": onnx.helper.make_tensor_type_proto(element, shape)
        for k, (element, shape) in enumerate(zip(elements, shapes, strict=True))
    }
    imports = [onnx.helper.make_opsetid("", max(schema.since_version, OLDEST))]
    found = onnx.shape_inference.infer_node_outputs(schema, node, types, opset_imports=imports)["y"]
    return tuple(dim.dim_value for dim in found.tensor_type.shape.dim)


def types_of(schema: onnx.defs.OpSchema, k: int) -> list[int]:
    """Element types that an operand may have."""
    texts = sorted(schema.inputs[min(k, len(schema.inputs) - 1)].types)
    names = [text.removeprefix("tensor(").removesuffix(")").upper() for text in texts]
    return [onnx.TensorProto.DataType.Value(name) for name in names if name in dict(onnx.TensorProto.DataType.items())]


@pytest.mark.parametrize("schema", cases(Trait.UNARY), ids=label)
def test_unary_operators_take_one_operand_and_keep_its_shape(schema):
    assert (schema.min_input, schema.max_input, schema.min_output, schema.max_output) == (1, 1, 1, 1)
    assert inferred(schema, (2, 3)) == (2, 3)


@pytest.mark.parametrize("schema", cases(Trait.BROADCASTS), ids=label)
def test_operands_broadcast(schema):
    assert schema.max_input >= 2
    assert schema.max_output == 1
    shapes = [(2, 1), (3,), (1, 1)][: min(schema.max_input, 3)]
    found = inferred(schema, *shapes)
    assert found == (2, 3) or (schema.has_function and found == ())  # a function without a rule of its own


@pytest.mark.parametrize("schema", cases(Trait.RESHAPES, Trait.MOVES, Trait.SPREADS, Trait.REDUCES), ids=label)
def test_the_result_is_of_the_type_of_the_first_operand(schema):
    assert {schema.inputs[0].type_str} == {output.type_str for output in schema.outputs}


def test_operands_that_tell_a_shape_are_operands():
    for op_type, places in SHAPED_BY.items():
        assert max(places) < max(schema.max_input for schema in SCHEMAS if schema.name == op_type), op_type


def test_a_trait_that_says_more_says_the_less_too():
    assert TRAITS[Trait.UNARY] | TRAITS[Trait.BROADCASTS] < TRAITS[Trait.ELEMENTWISE]
    assert TRAITS[Trait.UNARY] < TRAITS[Trait.SPECULATABLE]
    assert TRAITS[Trait.RESHAPES] <= TRAITS[Trait.MOVES] & TRAITS[Trait.SPREADS] & TRAITS[Trait.NO_LARGER]
    assert TRAITS[Trait.ASKS_SHAPE] < TRAITS[Trait.SPECULATABLE]
    assert TRAITS[Trait.RANDOM].isdisjoint(TRAITS[Trait.SPECULATABLE] | TRAITS[Trait.FOLDS])


def test_another_domains_node_has_no_trait():
    for domain in STANDARD:
        node = ir.node("Abs", [ir.val("x")], domain=domain)
        asked = [is_standard(node), is_standard(node, "Abs", "Neg"), has(node, Trait.RANDOM, Trait.UNARY)]
        assert all(asked)
        assert not any([is_standard(node, "Neg"), has(node, Trait.RANDOM)])
    for other in (None, ir.node("Abs", [ir.val("x")], domain="other")):
        assert not any([is_standard(other), is_standard(other, "Abs"), has(other, Trait.UNARY)])


def test_references_are_seen():
    node = ir.node("Flatten", [ir.val("x")], {"axis": 1})
    assert not has_references(node)
    node.attributes.add(ir.RefAttr("axis", "given", ir.AttributeType.INT))
    assert has_references(node)
