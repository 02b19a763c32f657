"""Random loops, flat and nested, give the same bits before and after the normalising passes, in any order."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from looplift.passes.clean.drop_dead import DropDead
from looplift.passes.clean.forward_invariant_carries import ForwardInvariantCarries
from looplift.passes.clean.hoist_invariants import HoistInvariants
from looplift.passes.count.simplify_condition import SimplifyCondition
from tests.helpers import apply, assert_same, model

PASSES = (ForwardInvariantCarries(), DropDead(), HoistInvariants(), SimplifyCondition())
UNARY = ("Neg", "Identity", "Abs", "Ceil", "Floor")  # no Cast: ONNX Runtime loses Cast of Cast that a body reads
BINARY = ("Add", "Sub", "Mul", "Max")
EXITS = (
    "Identity(ci{0})",
    "Identity(ci{0})",
    "Identity(true)",
    "Identity(d)",
    "Identity(false)",
    "And(ci{0}, d)",
    "Not(ci{0})",
    "Not(first{0})",
)


@st.composite
def bodies(draw, captured, level, depth):
    """The text of a Loop over float[2] carries, and the names of its outputs: finals, then stacked ones."""
    tag = f"_{level}"
    carries = [f"p{k}{tag}" for k in range(draw(st.integers(1, 4)))]
    pool = [*captured, *carries, f"k{tag}", f"f{tag}"]
    lines = [
        f"k{tag} = Constant<value = float[2] {{0.5, -1.25}}>()",
        f"f{tag} = Cast<to=1>(i{tag})",
        f"first{tag} = Cast<to=9>(i{tag})",
    ]
    if depth > 0 and draw(st.booleans()):
        text, finals, _ = draw(bodies(pool[:-1], level + 1, depth - 1))
        lines.append(text)
        pool.extend(finals)
    inner = []
    for k in range(draw(st.integers(1, 5))):
        name = f"x{k}{tag}"
        if draw(st.booleans()):
            lines.append(f"{name} = {draw(st.sampled_from(UNARY))}({draw(st.sampled_from(pool))})")
        else:
            left, right = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
            lines.append(f"{name} = {draw(st.sampled_from(BINARY))}({left}, {right})")
        pool.append(name)
        inner.append(name)
    outputs = []
    for k in range(len(carries) + draw(st.integers(0, 2))):
        # A scalar f or an unlucky max of them would change the shape: adding a carry keeps it.
        value = draw(st.sampled_from([*carries, *pool]))
        lines.append(f"o{k}{tag} = " + (f"Identity({value})" if value in carries else f"Add({carries[0]}, {value})"))
        outputs.append(f"o{k}{tag}")
    if draw(st.booleans()):
        outputs[0] = draw(st.sampled_from(carries))
    lines.append(f"co{tag} = {draw(st.sampled_from(EXITS)).format(tag)}")
    initial = [draw(st.sampled_from(captured)) for _ in carries]
    made = [f"y{k}{tag}" for k in range(len(outputs))]
    cond = draw(st.sampled_from(["", "c", "true"]))
    limit = "M" if level == 0 else draw(st.sampled_from(["M", "two"]))
    declare = ", ".join(f"float[2] {name}" for name in carries)
    returned = ", ".join(f"float[2] {name}" for name in outputs)
    text = (
        f"{', '.join(made)} = Loop ({limit}, {cond}, {', '.join(initial)}) <body = b{tag} (int64 i{tag}, bool ci{tag}, "
        f"{declare}) => (bool co{tag}, {returned}) {{ {' '.join(lines)} }}>"
    )
    return text, made[: len(carries)], made[len(carries) :]


@st.composite
def loops(draw):
    text, finals, stacked = draw(bodies(["v", "s"], 0, 2))
    declared = [f"float[2] {name}" for name in finals] + [f"float[r,2] {name}" for name in stacked]
    outputs = draw(st.lists(st.sampled_from(declared), min_size=1, max_size=3, unique=True))
    return f"""main (int64 M, bool c, bool d, float[2] v, float[2] s) => ({", ".join(outputs)}) {{
      true = Constant<value = bool {{1}}>()
      false = Constant<value = bool {{0}}>()
      two = Constant<value = int64 {{2}}>()
      {text}
    }}"""


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=loops(), opset=st.sampled_from([11, 17]), order=st.permutations(PASSES), c=st.booleans(), d=st.booleans())
def test_same_bits(text, opset, order, c, d):
    before = model(text, opset)
    after = apply(before, *order, expect=None)
    for trips in (-1, 0, 1, 4):
        feeds = {"M": np.array(trips), "c": np.array(c), "d": np.array(d)}
        feeds |= {"v": np.array([0.5, -1.5], np.float32), "s": np.array([0.1, 3], np.float32)}
        assert_same(before, after, feeds)
