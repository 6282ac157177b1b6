"""Tables, verdicts and titles of lesson 12 on made-up results whose answers are known."""

from itertools import combinations

import made_up_recipes as made
import pytest
from matplotlib.text import Text

from course_lib.lessons.capstone import found
from course_lib.lessons.capstone.drawings import bits, claims_page, clock, drafts, front, parts, path, quoted
from course_lib.lessons.capstone.tables import claims_page as page
from course_lib.lessons.capstone.tables import clock as clock_tables
from course_lib.lessons.capstone.tables import drafts as draft_tables
from course_lib.lessons.capstone.tables import front as front_tables
from course_lib.lessons.capstone.tables import parts as part_tables
from course_lib.lessons.capstone.tables import quoted as quoted_tables
from course_lib.lessons.common import style
from course_lib.lessons.common.tables import COLUMNS, load_bench
from course_lib.lessons.common.verdicts import NOT_MEASURED, WORDS

NOTHING = {"tables": {}}
GRID = {"H2O 20 %": 0.02, "SparseGPT 50 %, 4 bits": 0.4, "2 bits, 64": 2.0, "2 bits, 64 + CATS 50 %": 2.3}


@pytest.fixture(autouse=True)
def made_up_rows_alone(monkeypatch):
    monkeypatch.setattr("course_lib.lessons.capstone.found.of_grid", lambda: {"tables": {}})


def verdicts(text: str) -> dict[str, str]:
    """By claim."""
    unwrapped = text.replace("\n    ", " ").splitlines()
    lines = [line.removeprefix("Claim: ") for line in unwrapped if line.startswith("Claim: ")]
    return {line.rpartition(": ")[0]: line.rpartition(": ")[2] for line in lines}


def recipes(grid=NOTHING):
    return found.recipes(made.parts(), grid)


def student(name="mine", cost=0.3, held=100_000_000, n=2):
    """A recipe that read the first two windows."""
    losses = made.losses(cost)[:n]
    return {"name": name, "stored": held, "cache": 0, "read": held, "wikipedia": losses, "boolq": losses}


def test_every_recipe_is_there_once_by_its_name():
    both = recipes(made.of_grid({"dense": 0.0, "2 bits, 64": 2.0}))
    names = [row["name"] for row in both]
    assert len(names) == len(set(names)) == 33
    assert {"dense", "SparseGPT 50 %, 3 bits", "H2O 20 %, 4 bits", "3 bits, 64 + CATS 50 %", "2 bits, 64"} <= set(names)
    everything = next(row["name"] for row in both if len(row.get("parts", ())) == 5)
    assert everything == "SparseGPT 50 %, 3 bits + H2O 20 %, 4 bits + CATS 50 % + prompt"


def test_results_of_other_windows_are_not_mixed():
    grid = made.of_grid({"2 bits, 64": 2.0})
    grid["sizes"] = {"windows": 4, "length": 40}
    with pytest.raises(ValueError, match="got results with length = 512 and 40"):
        recipes(grid)


def test_differences_are_those_of_the_windows_that_both_read():
    dense = found.one(recipes(), found.DENSE)
    # 0.3 · (1 + noise / 2) of the first two windows, whose noise is 0 and 0.02
    assert found.above(student(), dense, "wikipedia").value == pytest.approx(0.3015, abs=0.004)
    assert found.above(student(), dense, "wikipedia").n == 2


def test_parts_beside_each_other():
    text = part_tables.shares(made.parts())
    # On top of all, pruning and rounding cost 0.3 more, cache and prompt 0.2 less, neurons the same: on two texts.
    assert list(verdicts(text).values()) == ["mixed (holds in 4; fails in 4; undecided in 2)"]
    assert "SparseGPT 50 %      Wikipedia      +1.001 ± 0.005    +1.151 ± 0.005    +1.302 ± 0.005" in text
    assert list(verdicts(part_tables.pairs(made.parts())).values()) == [
        "mixed (holds in 2; fails in 2; undecided in 16)"
    ]
    titles = parts.pairs(made.parts()).described()
    assert titles.startswith("Wikipedia: of 10 pairs 1 cost\nclearly more together, 1 clearly less")
    assert parts.shares(made.parts()).described().startswith("Wikipedia: 1.15 of 1.80 nats are SparseGPT 50 %")


def test_orders_turn_with_their_costs():
    good = part_tables.orders(made.parts())
    assert list(verdicts(good).values()) == ["holds", "holds"]
    assert parts.orders(made.parts()).described().startswith("Wikipedia: zeros first is clearly better\nwith Wanda and")
    bad = made.parts((2.3, 1.8, 1.5, 1.4, 1.6))
    assert list(verdicts(part_tables.orders(bad)).values()) == ["does not hold", "does not hold"]
    assert "with neither" in parts.orders(bad).described()
    mixed = made.parts((1.8, 2.3, 1.5, 1.4, 1.5))
    assert (
        verdicts(part_tables.orders(mixed))["zeros first and then the grid loses less than the grid first"]
        == "mixed (holds in 2; fails in 2)"
    )


def test_the_front_and_what_fits_a_budget():
    grid = made.of_grid({"2 bits, 64": 2.0}, {"2 bits, 64": 60_000_000})
    text = front_tables.front(recipes(grid))
    assert text.splitlines()[-2].split()[1] == "H2O"  # nearly the dense model, with fewer bytes than it
    fit = front_tables.within(recipes(grid), 1 / 3, 1.0)
    assert next(row["name"] for row in fit) == "SparseGPT 50 %, 3 bits + H2O 20 %, 4 bits + prompt"
    assert list(verdicts(front_tables.cheapest(recipes(grid))).values()) == ["does not hold"]


def test_a_students_recipe_beside_the_front():
    figure = front.front(recipes(), [student()], budget=(1 / 3, 1 / 4))
    assert "mine is beaten by none" in figure.described()
    lost = front.front(recipes(), [student(cost=2.5, held=250_000_000)])
    assert "mine is beaten by " in lost.described()
    assert "none;\nmine is beaten by none" not in lost.described()
    assert front.strip(recipes(), [student("a"), student("b", 2.0)]).described().count("is beaten by") == 2


@pytest.mark.parametrize("n", [1, 2, 8, 26])
def test_names_of_recipes_that_lie_together_do_not_cover_each_other(n):
    """All of them lie within a nat and a tenth of the bytes, the way a class's do."""
    mine = [student(f"name{i}" if n < 3 else "a long name", 0.1 + 0.02 * i, 250_000_000 + 10**6 * i) for i in range(n)]
    figure = front.front(recipes(), mine)
    figure.draw_without_rendering()
    for axes in figure.axes:
        own = [text for text in axes.texts if text.get_color() == style.COLOURS[1]]
        assert len(own) == n
        boxes = [Text.get_window_extent(text) for text in own]  # of the letters, without the line
        assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    assert ("a long name" in figure.get_supxlabel()) is (n > 2)


@pytest.mark.parametrize(("pruned", "said"), [(0.3, "holds"), (0.9, "does not hold")])
def test_equal_bytes(monkeypatch, pruned, said):
    monkeypatch.setattr(quoted_tables, "of_lesson_3", dict)
    both = recipes(made.of_grid({"SparseGPT 50 %, 4 bits": pruned}))  # beside 3 bits, 0.5
    assert (
        next(iter(verdicts(quoted_tables.equal_bytes(both)).values())).replace("not at this scale", "does not hold")
        == said
    )
    assert "beside 3 bits" in "".join(quoted_tables.at_equal_bytes(both))
    better = {"holds": "clearly better in 2 of 2", "does not hold": "clearly better in 0 of 2"}[said]
    assert better in quoted.equal_bytes(both).described()


def test_lesson_3_has_measured_half_of_the_weights_beside_3_bits():
    assert len(quoted_tables.of_lesson_3()) == 2


def test_sizes_that_are_published():
    both = recipes(made.of_grid(GRID))
    sizes = {size.name: size for size in quoted_tables.times_smaller(both)}
    assert (sizes["cache, H2O 20 %"].published, sizes["cache, H2O 20 %, 4 bits"].published) == (5, 20)
    assert (sizes["cache, H2O 20 %"].here, sizes["cache, H2O 20 %, 4 bits"].here) == (1.0, 8.0)
    assert sizes["50 % and 4 bits, in the blocks"].published == 8
    reached, free = verdicts(quoted_tables.sizes(both)).values()
    assert reached == "not at this scale"  # 1 of 5, 8 of 20, and lesson 10's of 8
    assert free == "mixed (holds in 1; fails in 3)"
    assert quoted.times_smaller(both).described().startswith("Of 4 sizes 0 are reached here")


@pytest.mark.parametrize(("both", "said"), [(2.2, "holds"), (2.6, "mixed (holds in 2; fails in 2)")])
def test_chosen_neurons_of_rounded_weights(both, said):
    """Alone they cost 0.2; with 3 bits the same; with 2 bits what is said here."""
    grid = made.of_grid({"2 bits, 64": 2.0, "2 bits, 64 + CATS 50 %": both})
    assert list(verdicts(quoted_tables.chosen(recipes(grid))).values()) == [said]


def test_drafts_beside_those_of_lesson_11():
    measured = made.of_drafts({"lookup": [80, 90, 85], "3 bits, 64": [30, 35, 32]}, read=0.6)
    text = draft_tables.passes(measured)
    assert "3 bits, 64, copying, greedy" in text
    # 100 / 32.3 tokens a pass, of four drafted at 0.6 of the bytes each: 3.10 / 3.4
    (line,) = [line for line in text.splitlines() if line.startswith("3 bits, 64, running")]
    assert line.split()[-4:] == ["0.13", "32", "0.91"] or "0.9" in line
    assert len(verdicts(text)) == 3
    assert drafts.passes(measured).described().startswith("Running text: fewest loads, 24,\nwith half of the neurons")


def test_bytes_beside_time():
    text = clock_tables.bytes_and_time()
    assert next(iter(verdicts(text).values())).startswith("mixed (")
    found_ = {way.name: clock_tables.timed(way) for way in clock_tables.WAYS}
    assert all(found_.values())
    assert all(each.of_bytes < 1 for points in found_.values() for each in points)
    assert "clearly faster than dense" in clock.bytes_and_time().described()


def test_whole_recipes_on_the_clock():
    """Of the committed bench: the fewest bytes, the least time of fewer bytes, and tokens a second."""
    steps = clock_tables.whole_recipes()
    assert steps[0].side == "dense"
    assert (steps[0].times, steps[0].fewer) == (1.0, 1.0)
    rows = {
        row["side"]: row for row in load_bench("cpu_capstone")["tables"]["sides"] if row["contest"].startswith("1 ")
    }
    assert len(steps) == len(rows)
    assert all(each.a_second == pytest.approx(1 / rows[each.side]["median_seconds"]) for each in steps)
    lean, quick = clock_tables.best_by_bytes(steps), clock_tables.best_by_time(steps)
    assert rows[lean.side]["bytes"] == min(row["bytes"] for row in rows.values())
    assert quick.fewer > 1
    assert quick.times >= lean.times
    assert f"best by bytes: {lean.side}, {lean.a_second:.1f} tokens" in clock_tables.recipes_on_the_clock()
    drafted = clock_tables.whole_recipes(drafts=True)
    assert {each.side for each in drafted} == {"no draft", "lookup", "SparseGPT 50 %, 3 bits"}
    assert "tokens a second" in clock.recipes_on_the_clock().described()


def test_no_reading_is_faster_than_the_memory():
    """What a step reads in float32, over its time, is within what the machine reads: a run is one step, not four."""
    bench = load_bench("cpu_capstone")
    dense = bench["tables"]["sides"][0]
    assert 2 * dense["bytes"] / dense["median_seconds"] < bench["roofline"]["bytes_per_second"]


def test_the_claims_page_is_read_whole():
    assert sum(page.counts().values()) == len(page.claims()) > 200
    assert set(page.counts()) == {*WORDS, NOT_MEASURED}
    assert page.counts()["holds"] > page.counts()["undecided"] > 0
    assert "claims that were judged" in claims_page.verdicts().described()
    (row,) = [each for each in page.claims() if each.id == "abstracts-2"]
    assert (row.verdict, row.lesson) == ("holds", "07")


def test_what_is_not_measured_says_so():
    texts = [getattr(part_tables, name)(NOTHING) for name in ("provenance", "shares", "pairs", "orders")]
    texts += [front_tables.front([]), front_tables.cheapest([]), quoted_tables.chosen([])]
    assert all(NOT_MEASURED in text for text in texts)
    assert quoted_tables.sizes([])
    assert draft_tables.passes(NOTHING)


def test_bits_of_a_weight_by_hand():
    # 0.5 · 4 of codes and 1 of the bitmap with 32 bits of a start a row; 16 bits and a packed zero a group of 64
    parts_ = bits.bits_a_weight(0.5, 4)
    assert parts_["values"] == 2
    assert parts_["bitmap, row starts"] == pytest.approx(1 + 32 / 576, abs=1e-4)
    assert parts_["scales, zero points"] == pytest.approx((16 * 9 + 40) / 576)
    assert sum(bits.bits_a_weight(0.5, 16).values()) == pytest.approx(9 + 32 / 576, abs=1e-4)
    assert "take 3.3" in bits.bits().described()


def test_pictures_of_the_idea():
    assert path.path(made.parts()).described().startswith("Five parts hold ")
    assert "in pairs; as if they were none" in path.windows(made.parts()).described()


def test_everything_printed_fits():
    both, measured = recipes(made.of_grid(GRID)), made.parts()
    texts = [getattr(part_tables, name)(measured) for name in ("provenance", "shares", "pairs", "orders")]
    texts += [front_tables.front(both), front_tables.cheapest(both), quoted_tables.sizes(both)]
    texts += [quoted_tables.equal_bytes(both), quoted_tables.chosen(both), clock_tables.bytes_and_time()]
    texts.append(clock_tables.recipes_on_the_clock())
    texts.append(draft_tables.passes(made.of_drafts({"lookup": [80, 90], "SparseGPT 50 %, 3 bits": [30, 35]})))
    assert [line for text in texts for line in text.splitlines() if len(line) > COLUMNS] == []
