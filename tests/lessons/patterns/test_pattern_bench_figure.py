"""The figure of the committed bench: its title follows from the rows."""

from course_lib.lessons.patterns.claims import by_density
from course_lib.lessons.patterns.deck import cpu_bench, times_faster


def side(contest, name, times):
    numbers = {"times_anchor": times, "times_anchor_low": 0.9 * times, "times_anchor_high": 1.1 * times}
    return {"contest": contest, "side": name, "anchor": "dense"} | numbers


def test_the_title_follows_from_the_rows():
    rows = [side("density 0.5", "dense", 1.0), side("density 0.5", "CSR", 0.7), side("density 0.1", "CSR", 3.0)]
    rows.append(side("density 0.5", "bitmap", 0.25))
    lines = by_density(rows)
    assert {name: list(points) for name, points in lines.items()} == {"CSR": [0.5, 0.1], "bitmap": [0.5]}
    title = times_faster(lines, "a processor").axes[0].get_title(loc="left")
    assert "a processor" in title
    assert "CSR is faster up to a density of 0.1" in title
    assert "at most 0.25 of the dense speed" in title


def test_the_title_names_no_winner_where_all_lose():
    title = times_faster(by_density([side("density 0.5", "CSR", 0.7)]), "a processor").axes[0].get_title(loc="left")
    assert "wins" not in title
    assert "0.70" in title


def test_the_committed_bench_is_drawn():
    labels = [text.get_text() for text in cpu_bench().axes[0].get_legend().get_texts()]
    assert "CSR" in labels
    assert any(text.startswith("2:4") for text in labels)
