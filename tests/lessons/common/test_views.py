"""The loop of all interactive views: a new choice replaces what is shown, a refused one is explained."""

import ipywidgets as widgets
import pytest

from course_lib.lessons.common import views
from course_lib.lessons.common.views import player, show_view


@pytest.fixture
def shown(monkeypatch):
    pictures = []
    monkeypatch.setattr(views, "display", lambda *_: None)
    handle = type("Handle", (), {"display": lambda _, picture: pictures.append(picture)})
    handle.update = handle.display
    monkeypatch.setattr(views, "DisplayHandle", handle)
    return pictures


def test_the_first_picture_stands_and_each_new_choice_replaces_it(shown):
    choice = {"a": widgets.IntSlider(1, 0, 9), "b": widgets.Dropdown(options=["x", "y"])}
    controls = show_view(lambda a, b: f"{b}{a}", choice)
    assert [*controls.children[0].children] == [*choice.values()]
    choice["a"].value, choice["b"].value = 3, "y"
    assert shown == ["x1", "x3", "y3"]


def test_a_refused_choice_is_explained_and_the_last_picture_stays(shown):
    slider, refused = widgets.IntSlider(1, 0, 9), widgets.Label()

    def draw(a):
        if a > 5:
            raise ValueError("too large")
        return a

    controls = widgets.VBox([slider, refused])
    assert show_view(draw, {"a": slider}, controls, refused) is controls
    slider.value = 7
    assert (shown, refused.value) == ([1], "too large")
    slider.value = 2
    assert (shown, refused.value) == ([1, 2], "")


def test_without_a_label_a_refusal_is_an_error(shown):
    slider = widgets.IntSlider(1, 0, 9)
    show_view(lambda a: 1 / a if a < 5 else int("none"), {"a": slider})
    with pytest.raises(ValueError, match="invalid literal"):
        slider.value = 7


def test_a_player_runs_over_all_values_of_its_slider():
    slider = widgets.IntSlider(4, 1, 9)
    play = player(slider, 500)
    assert (play.value, play.min, play.max, play.interval) == (4, 1, 9, 500)
