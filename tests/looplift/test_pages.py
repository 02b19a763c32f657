"""The page of `explain --html`: what it shows of a loop, and how its figures are laid out."""

import itertools
import xml.etree.ElementTree as ET

import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import looplift
from looplift.pages.layout import ROW, layout
from looplift.pages.page import draw

HEAD = '<ir_version: 10, opset_import: ["" : 21]> '
LOOP = """g (int64 n, float[2] x, float[2] s) => (float[2] y, float[N, 2] ys) {
  [clock] y, ys = Loop <body = b (int64 i, bool c, float[2] v) => (bool co, float[2] w, float[2] e) {
    co = Identity(c) half = Constant <value_float = 0.5> () t = Mul(s, half) w = %s e = Neg(w)
  }> (n, , x) }"""


def report(update: str, **options) -> looplift.Report:
    return looplift.explain(onnx.parser.parse_model(HEAD + LOOP % update), **options)


def edges(sketch) -> set[tuple[str, str]]:
    return {(sketch.boxes[start].label, sketch.boxes[end].label) for start, end in sketch.edges}


def test_figures_of_a_lifted_loop() -> None:
    (before, after), *_ = report("Add(v, t)").figures
    assert edges(before) == {
        ("s", "Mul 0.5"),
        ("Mul 0.5", "Add"),
        ("1. v", "Add"),
        ("Add", "1. next v"),
        ("Add", "Neg"),
        ("Neg", "a row of ys"),
    }
    assert ("AddStep", "Neg") in edges(after)
    assert {end for start, end in edges(after) if start in ("AddStep", "Neg")} == {"Neg", "y", "ys"}
    assert {box.kind for box in after.boxes if box.label == "AddStep"} == {"ours"}


@pytest.mark.parametrize("target", ["kernel", "standard"])
def test_loops_without_a_name_have_figures_and_actions_too(target) -> None:
    text = """g (int64 n, float[2] x, float[2] t) => (float[N, 2] ys) {
      none = SequenceEmpty () list, y = Loop <body = b (int64 i, bool c, seq(float[2]) l, float[2] v)
        => (bool co, seq(float[2]) more, float[2] w) {
        co = Identity(c) w = Add(v, t) more = SequenceInsert(l, w)
      }> (n, , none, x) ys = ConcatFromSequence <axis = 0, new_axis = 1> (list) }"""
    told = looplift.explain(onnx.parser.parse_model(HEAD + text), target)
    assert len(told.figures[0]) == 2
    last = {"kernel": "lifted into AddStep", "standard": "AddStep became CumSum in standard ops"}
    assert told[0].actions[-1] == last[target]


def test_figures_of_the_standard_target_show_no_kernel() -> None:
    (_, after), *_ = report("Add(v, t)", target="standard").figures
    assert "CumSum" in {box.label.split()[0] for box in after.boxes}
    assert all(box.kind != "ours" for box in after.boxes)


def test_figures_of_a_loop_that_stays_show_what_is_left() -> None:
    (before, after), *_ = report("Max(v, t)").figures
    assert "left" in after.caption
    assert ("s", "Mul 0.5") in edges(before)
    assert ("t", "Max") in edges(after)


def test_the_page_is_one_file_of_well_formed_markup() -> None:
    page = report("Add(v, t)").to_html()
    assert page.count("<svg ") == 2
    assert "<script" not in page
    assert "http" not in page
    start, end = page.index("<section>"), page.rindex("</section>") + len("</section>")
    section = ET.fromstring(page[start:end])
    assert [box.text for box in section.iter("title")].count("clock/v") == 1


def test_names_of_the_model_are_text_in_the_page() -> None:
    model = onnx.parser.parse_model(HEAD + LOOP % "Add(v, t)")
    model.graph.node[0].name = "<b>&'\""
    assert "<b>" not in looplift.explain(model).to_html()


def test_reports_without_loops_or_figures_give_pages() -> None:
    assert "no Loop or Scan" in looplift.Report(()).to_html()
    bare = looplift.Report(report("Add(v, t)").findings)
    assert "Loop clock" in bare.to_html()


def test_large_figures_are_not_drawn() -> None:
    many = "Add(v, t0) t0 = Neg(t)" + "".join(f" t{k} = Neg(t{k - 1})" for k in range(1, 200))
    page = report(many.replace("Add(v, t0)", "Max(v, t199)")).to_html()
    assert "too many to draw" in page


@st.composite
def graphs(draw_from):
    count = draw_from(st.integers(2, 12))
    pairs = list(itertools.combinations(range(count), 2))
    chosen = draw_from(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    linked = sorted({end for edge in chosen for end in edge})
    widths = [draw_from(st.floats(10, 200)) for _ in linked]
    return widths, [(linked.index(a), linked.index(b)) for a, b in chosen], set(range(0, len(linked), 2))


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_boxes_do_not_overlap_and_edges_lead_down(graph) -> None:
    widths, pairs, late = graph
    result = layout(widths, pairs, late)
    for (one, (x, y)), (other, (x2, y2)) in itertools.combinations(enumerate(result.centres), 2):
        assert y != y2 or abs(x - x2) >= (widths[one] + widths[other]) / 2
    for (start, end), path in zip(pairs, result.paths, strict=True):
        assert (path[0], path[-1]) == (result.centres[start], result.centres[end])
        assert all(lower[1] - upper[1] == pytest.approx(ROW) for upper, lower in itertools.pairwise(path))
    for width, (x, y) in zip(widths, result.centres, strict=True):
        assert x - width / 2 >= -1e-6
        assert x + width / 2 <= result.width + 1e-6
        assert 0 < y < result.height


def test_drawing_shortens_long_names_without_making_two_the_same() -> None:
    update = "Add(v, t)"
    model = HEAD + (LOOP % update).replace("float[2] s)", "float[2] some_exporter_made_this_name_up_1)").replace(
        "Mul(s, half)", "Mul(some_exporter_made_this_name_up_1, half)"
    )
    (before, _), *_ = looplift.explain(onnx.parser.parse_model(model)).figures
    labels = [placed.label for placed in draw(before).boxes]
    assert "some…name_up_1" in labels
    assert max(map(len, labels)) <= 28
