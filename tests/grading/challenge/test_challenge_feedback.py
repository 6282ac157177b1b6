"""A student's page of the challenge: what it says of a right, a refused and a hostile recipe, and of nobody else."""

import json

import pytest

from course_lib.compose.challenge.budget import Budget


@pytest.fixture(scope="module")
def pages(graded, tmp_path_factory):
    """By student: a recipe that keeps to the budget, two that are refused, one of them hostile, and nobody."""
    folder = tmp_path_factory.mktemp("pages")
    recipes = {
        "ada_1": {"weights": {"method": "Magnitude", "pattern": 0.3, "bits": 8, "rounding": "nearest"}},
        "bob_2": {"weights": {"bits": 4}, "loss": 0.0},
        "eve_3": {"weights": {"bits": 4}, "cache": {"policy": "<script>alert(1)</script>"}},
    }
    for student, recipe in recipes.items():
        (folder / "in" / student).mkdir(parents=True)
        (folder / "in" / student / "recipe.json").write_text(json.dumps(recipe))
    (folder / "roster.txt").write_text("\n".join([*recipes, "kim_4"]))
    code, rows, said = graded(folder / "in", folder / "out", roster=folder / "roster.txt")
    assert code == 0
    assert "A page for each student is in" in said
    return rows, {path.stem: path.read_text() for path in (folder / "out" / "feedback").iterdir()}


def test_everybody_has_a_page_with_their_own_points(pages):
    rows, found = pages
    assert set(found) == set(rows) == {"ada_1", "bob_2", "eve_3", "kim_4"}
    for student, page in found.items():
        assert f"<b>{float(rows[student]['points'] or 0):g}</b> <span>of 20 points</span>" in page
        assert not [other for other in found if other != student and other in page]


def test_the_page_tells_losses_bytes_and_the_recipe(pages):
    rows, found = pages
    row, page = rows["ada_1"], found["ada_1"]
    assert f"{float(row['nats']):+.3f} ± {float(row['error']):.3f}" in page
    assert "(counts)" in page
    assert f"{100 * float(row['held_share']):.1f} %" in page
    assert "&#34;pattern&#34;: 0.3" in page
    assert "The budget leaves room" in page  # all of the dense bytes are allowed here
    assert 'scope="row">weights<' in page
    assert 'scope="row">cache<' in page


def test_a_refused_recipe_has_its_reason_and_no_tables(pages):
    _, found = pages
    assert "&#39;loss&#39; in the recipe" in found["bob_2"]
    assert "<table>" not in found["bob_2"]
    assert "Nothing was handed in." in found["kim_4"]


def test_what_is_handed_in_is_text(pages):
    _, found = pages
    assert "<script" not in found["eve_3"]
    assert "&lt;script&gt;" in found["eve_3"]


def test_above_the_budget_it_says_by_how_much(graded, tmp_path):
    (tmp_path / "in" / "ada_1").mkdir(parents=True)
    (tmp_path / "in" / "ada_1" / "recipe.json").write_text(json.dumps({"weights": {"bits": 8, "group": 32}}))
    _, rows, _ = graded(tmp_path / "in", tmp_path / "out", budget=Budget(held=0.6, read=0.6))
    page = (tmp_path / "out" / "feedback" / "ada_1.html").read_text()
    assert rows["ada_1"]["points"] == "0"
    assert "MB too many are held" in page
    assert "would earn" in page
