"""The live view of lesson 06 marks the bytes of one expert, and stays as it is without a browser."""

import ipywidgets as widgets
import pytest
import torch

from course_lib.lessons.common import views
from course_lib.lessons.moe import widgets as view
from course_lib.moe.routers.olmoe import OLMoE


@pytest.fixture
def seen():
    """Four bytes, two blocks of three experts: in the first, byte i goes to expert i % 3."""
    first = torch.eye(3)[[0, 1, 2, 0]] * 9.0
    second = torch.tensor([[0.0, 9.0, 5.0]]).repeat(4, 1)
    return view.route_text(torch.tensor([65, 60, 32, 10]), [OLMoE(1).route(first), OLMoE(2).route(second)])


def test_marks_the_bytes_of_an_expert_and_names_the_experts_of_all(seen):
    page = view.as_html(seen, 0, 0, "a < b")
    assert page.count(view.MARKED) == 2
    assert "a &lt; b: block 0, expert 0 has 50 % of the choices" in page
    assert "&lt;" in page.partition("</b>")[2]
    assert "␣" in page
    assert "↵" in page
    both = view.as_html(seen, 1, 2)
    assert both.count(view.MARKED) == 4
    assert both.count("1<br>2") == 4


def test_the_busiest_comes_first(seen):
    assert [seen.busiest(block) for block in (0, 1)] == [0, 1]


@pytest.mark.parametrize(("block", "expert"), [(2, 0), (-1, 0), (0, 3)])
def test_refuses_what_is_not_there(seen, block, expert):
    with pytest.raises(ValueError, match="expected 0 to 1 and 0 to 2"):
        view.as_html(seen, block, expert)


def test_refuses_a_routing_of_another_text():
    with pytest.raises(ValueError, match="got 3 bytes and a routing of 4"):
        view.route_text(torch.tensor([1, 2, 3]), [OLMoE(1).route(torch.eye(4))])


def test_controls_change_what_is_shown(seen, monkeypatch):
    shown = []
    monkeypatch.setattr(views, "display", lambda *_: None)
    monkeypatch.setattr(views.DisplayHandle, "display", lambda _, page: shown.append(page.data))
    monkeypatch.setattr(views.DisplayHandle, "update", lambda _, page: shown.append(page.data))
    controls = view.explore({"one": seen, "two": seen})
    assert isinstance(controls, widgets.VBox)
    assert "one: block 0, expert 0" in shown[-1]
    _, block, expert = controls.children[0].children
    expert.value = 2
    block.value = 1
    assert "one: block 1, expert 2" in shown[-1]
