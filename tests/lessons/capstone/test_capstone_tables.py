"""Claims, tables and titles of lesson 12 on made-up results whose answers are known."""

from itertools import combinations

import made_up_recipes as made
import pytest
from matplotlib.text import Text

from course_lib.lessons.capstone import claims, comparisons, deck, estimates, plots, tables, timings
from course_lib.lessons.capstone.experiments.capstone_drafts import COPYING, RUNNING
from course_lib.lessons.common import style
from course_lib.lessons.common.results import COLUMNS, load_bench, load_measured
from course_lib.lessons.common.verdicts import NOT_MEASURED, WORDS

NOTHING = {"tables": {}}
GRID = {"H2O 20 %": 0.02, "SparseGPT 50 %, 4 bits": 0.4, "2 bits, 64": 2.0, "2 bits, 64 + CATS 50 %": 2.3}


@pytest.fixture(autouse=True)
def made_up_rows_alone(monkeypatch):
    monkeypatch.setattr(estimates, "grid_results", lambda: NOTHING)


def recipes(grid=NOTHING):
    return estimates.recipes(made.parts(), grid)


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
    dense = estimates.find(recipes(), estimates.DENSE)
    # 0.3 · (1 + noise / 2) of the first two windows, whose noise is 0 and 0.02
    assert estimates.loss_increase(student(), dense, "wikipedia").value == pytest.approx(0.3015, abs=0.004)
    assert estimates.loss_increase(student(), dense, "wikipedia").n == 2


@pytest.mark.parametrize(
    ("fifth", "four_bits", "words"),
    [
        (0.01, 0.03, ["holds", "holds"]),
        (0.3, 0.9, ["not at this scale"] * 2),
        (0.3, 0.31, ["not at this scale", "holds"]),
    ],
)
def test_what_h2o_costs_and_what_rounding_adds(fifth, four_bits, words):
    grid = made.of_grid({"H2O 20 %": fifth})
    parts = made.parts()
    for row in parts["tables"]["subsets"]:
        if estimates.subset_name(frozenset(row["parts"])) == "H2O 20 %, 4 bits":
            row |= {"wikipedia": made.losses(four_bits), "boolq": made.losses(four_bits)}
    judged = [claim.judge(parts, grid) for claim in (claims.H2O_FIFTH, claims.H2O_FOUR_BITS)]
    assert [each.words for each in judged] == words
    assert list(judged[0].effects) == ["Wikipedia", "BoolQ"]


def test_costs_of_parts_alone_and_together():
    # Added last, pruning and rounding cost 0.3 more, cache and prompt 0.2 less, neurons the same: on two texts.
    judged = claims.LAST_MINUS_ALONE.judge(made.parts())
    assert judged.words == "mixed (holds in 4; fails in 4; undecided in 2)"
    assert claims.PAIRS.judge(made.parts()).words == "mixed (holds in 2; fails in 2; undecided in 16)"
    table = tables.part_costs(made.parts())
    first = table.frame.iloc[0]
    assert first["part"] == "SparseGPT 50 %"
    costs = [first[name] for name in ("alone", "Shapley value", "added last")]
    assert costs == pytest.approx([1.001, 1.151, 1.302], abs=1e-3)
    assert first["error, alone"] == pytest.approx(0.005, abs=1e-3)
    *parts, total = table.frame["Shapley value"]
    assert sum(parts) == pytest.approx(total)
    assert "+1.00 ± 0.00" in str(table)
    titles = plots.interactions(made.parts()).described()
    assert titles.startswith("Wikipedia: of 10 pairs 1 cost\nclearly more together, 1 clearly less")
    assert plots.part_costs(made.parts()).described().startswith("Wikipedia: 1.15 of 1.80 nats are due to SparseGPT 50")


def test_orders_turn_with_their_costs():
    def words(measured):
        return [claim.judge(measured).words for claim in (claims.ZEROS_FIRST, claims.ONE_SWEEP)]

    assert words(made.parts()) == ["holds", "holds"]
    assert plots.orders(made.parts()).described().startswith("Wikipedia: zeros first is clearly better\nwith Wanda and")
    bad = made.parts((2.3, 1.8, 1.5, 1.4, 1.6))
    assert words(bad) == ["does not hold", "does not hold"]
    assert "with neither" in plots.orders(bad).described()
    mixed = claims.ZEROS_FIRST.judge(made.parts((1.8, 2.3, 1.5, 1.4, 1.5)))
    assert mixed.words == (
        "mixed (holds in Wanda, Wikipedia, Wanda, BoolQ; fails in SparseGPT, Wikipedia, SparseGPT, BoolQ)"
    )
    table = tables.orders(made.parts()).frame
    assert list(table["Wikipedia"]) == pytest.approx([1.8, 2.3, 1.5, 1.9, 1.45], abs=0.01)


def test_the_front_and_what_fits_a_budget():
    grid = made.of_grid({"2 bits, 64": 2.0}, {"2 bits, 64": 60_000_000})
    table = tables.pareto_front(recipes(grid)).frame
    assert list(table[""]) == list(range(1, len(table) + 1))
    assert table["recipe"].iloc[-1].startswith("H2O")  # nearly the dense model, with fewer bytes than it
    assert table["bytes"].is_monotonic_increasing
    fit = estimates.within(recipes(grid), 1 / 3, 1.0)
    assert next(row["name"] for row in fit) == "SparseGPT 50 %, 3 bits + H2O 20 %, 4 bits + prompt"
    judged = claims.BEST_WITHIN.judge(made.parts(), grid)
    assert judged.words == "does not hold"
    assert list(judged.effects)[:2] == ["at most 50 % of the bytes", "at most 33 % of the bytes"]


def test_a_students_recipe_beside_the_front():
    figure = plots.pareto_front(recipes(), [student()], budget=(1 / 3, 1 / 4))
    assert "mine is beaten by none" in figure.described()
    lost = plots.pareto_front(recipes(), [student(cost=2.5, held=250_000_000)])
    assert "mine is beaten by " in lost.described()
    assert "none;\nmine is beaten by none" not in lost.described()


@pytest.mark.parametrize("n", [1, 2, 8, 26])
def test_names_of_recipes_that_lie_together_do_not_cover_each_other(n):
    """All of them lie within a nat and a tenth of the bytes, the way a class's do."""
    mine = [student(f"name{i}" if n < 3 else "a long name", 0.1 + 0.02 * i, 250_000_000 + 10**6 * i) for i in range(n)]
    figure = plots.pareto_front(recipes(), mine)
    figure.draw_without_rendering()
    for axes in figure.axes:
        own = [text for text in axes.texts if text.get_color() == style.COLOURS[1]]
        assert len(own) == n
        boxes = [Text.get_window_extent(text) for text in own]  # of the letters, without the line
        assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    assert ("a long name" in figure.get_supxlabel()) is (n > 2)


@pytest.mark.parametrize(("pruned", "verdict"), [(0.3, "holds"), (0.9, "not at this scale")])
def test_equal_bytes(monkeypatch, pruned, verdict):
    monkeypatch.setattr(comparisons, "equal_bytes_of_lesson_3", lambda measured: {})
    grid = made.of_grid({"SparseGPT 50 %, 4 bits": pruned})  # compared with 3 bits, 0.5
    judged = claims.EQUAL_BYTES.judge(made.parts(), grid, NOTHING)
    assert judged.verdict == verdict
    assert all("or 3 bits" in case for case in judged.effects)
    better = {"holds": "clearly better in 2 of 2", "not at this scale": "clearly better in 0 of 2"}[verdict]
    assert better in deck.equal_bytes(recipes(grid)).described()


def test_lesson_3_has_measured_half_of_the_weights_and_3_bits():
    assert len(comparisons.equal_bytes_of_lesson_3()) == 2


def test_published_sizes():
    grid = made.of_grid(GRID)
    sizes = {size.name: size for size in comparisons.sizes(recipes(grid))}
    assert (sizes["cache, H2O 20 %"].published, sizes["cache, H2O 20 %, 4 bits"].published) == (5, 20)
    assert (sizes["cache, H2O 20 %"].ours, sizes["cache, H2O 20 %, 4 bits"].ours) == (1.0, 8.0)
    assert sizes["50 % and 4 bits, in the blocks"].published == 8
    reached, free = (
        claim.judge(made.parts(), grid, load_measured("compress", "prompts"))
        for claim in (claims.TIMES_SMALLER, claims.TIMES_SMALLER_COST)
    )
    assert reached.words == "not at this scale"  # 1 of 5, 8 of 20, and lesson 10's of 8
    assert "1.0 times (cache, H2O 20 %; published: 5), 8.0 times" in reached.ours
    assert free.words == "mixed (holds in 1; fails in 3)"
    assert plots.published_sizes(recipes(grid)).described().startswith("0 of 4 sizes are reached here")
    assert len(tables.published_sizes(recipes(grid)).frame) == 4


@pytest.mark.parametrize(("both", "effects"), [(2.2, (True, True)), (2.6, (True, False))])
def test_chosen_neurons_of_rounded_weights(both, effects):
    """Alone they cost 0.2; with 3 bits the same; with 2 bits less than 0.05 more, or 0.4 more."""
    grid = made.of_grid({"2 bits, 64": 2.0, "2 bits, 64 + CATS 50 %": both})
    judged = claims.HALF_OF_NEURONS.judge(made.parts(), grid)
    found = {case: effect.holds for case, effect in judged.effects.items()}
    expected = {"3 bits, 64": effects[0], "2 bits, 64": effects[1]}
    assert found == {
        f"{name}, {domain}": holds for name, holds in expected.items() for domain in ("Wikipedia", "BoolQ")
    }
    assert judged.verdict == ("holds" if all(effects) else "mixed")


def test_drafts_compared_with_those_of_lesson_11():
    measured = made.of_drafts({"lookup": [80, 90, 85], "3 bits, 64": [30, 35, 32]}, read=0.6)
    table = tables.drafts(COPYING, measured).frame
    assert ("3 bits, 64", "greedy") in set(zip(table["draft"], table["sampling"], strict=True))
    # 100 / 32.2 tokens per pass, of four drafted at 0.6 of the bytes each: 3.10 / 3.4
    (row,) = [row for _, row in table.iterrows() if row["draft"] == "3 bits, 64"]
    assert [row["tokens per pass"], row["passes for 100 tokens"]] == pytest.approx([3.105, 32.204], abs=0.001)
    assert row["bytes"] == pytest.approx(0.91, abs=0.01)
    assert "half of the neurons (oracle)" in set(table["draft"])
    title = plots.drafts(measured).described()
    assert title.startswith("Running text: 32 passes with 3 bits, 64,\nthe fewest without an oracle")


def test_an_oracle_is_neither_a_lookup_nor_a_compressed_draft():
    measured, lesson_11 = comparisons.drafts_results(), load_measured("sparse_attention", "drafts")
    cases = [set(claim.judge(measured, lesson_11).effects) for claim in (claims.LOOKUP_BYTES, claims.FEWER_PASSES)]
    compressed = set(claims.COMPRESSED_DRAFT_BYTES.judge(measured, lesson_11).effects)
    assert cases[1] - cases[0] - compressed == {
        f"half of the neurons (oracle), {kind}, temperature 1" for kind in (RUNNING, COPYING)
    }


def test_bytes_and_time():
    assert claims.FEWER_BYTES_LESS_TIME.judge().verdict == "mixed"
    found = {way.name: timings.timed(way) for way in timings.WAYS}
    assert all(found.values())
    assert all(each.fraction < 1 for points in found.values() for each in points)
    assert "clearly faster than dense" in plots.bytes_and_time().described()
    table = tables.bytes_and_time().frame
    assert list(table["promised"]) == pytest.approx(list(1 / table["bytes"]))


def test_the_wall_clock_time_of_whole_recipes():
    """Of the stored bench: the fewest bytes, the least time of fewer bytes, and tokens per second."""
    steps = timings.timed_recipes()
    assert steps[0].side == "dense"
    assert (steps[0].speedup, steps[0].fewer) == (1.0, 1.0)
    rows = {
        row["side"]: row for row in load_bench("cpu_capstone")["tables"]["sides"] if row["contest"].startswith("1 ")
    }
    assert len(steps) == len(rows)
    assert all(each.tokens_per_second == pytest.approx(1 / rows[each.side]["median_seconds"]) for each in steps)
    lean, quick = timings.fewest_bytes(steps), timings.fastest(steps)
    assert rows[lean.side]["bytes"] == min(row["bytes"] for row in rows.values())
    assert quick.fewer > 1
    assert quick.speedup >= lean.speedup
    table = tables.timed_recipes().frame
    assert list(table["recipe"][: len(steps)]) == [each.side for each in steps]
    assert list(table["speedup"][: len(steps)]) == [each.speedup for each in steps]
    drafted = timings.timed_recipes(drafts=True)
    assert {each.side for each in drafted} == {"no draft", "lookup", "SparseGPT 50 %, 3 bits"}
    assert "tokens per second" in plots.recipes_and_time().described()


def test_no_reading_is_faster_than_the_memory():
    """What a step reads in float32, over its time, is within what the machine reads: a run is one step, not four."""
    bench = load_bench("cpu_capstone")
    dense = bench["tables"]["sides"][0]
    assert 2 * dense["bytes"] / dense["median_seconds"] < bench["roofline"]["bytes_per_second"]


def test_the_claims_page_is_read_whole():
    assert sum(tables.claim_counts().values()) == len(tables.all_claims()) > 200
    assert set(tables.claim_counts()) == {*WORDS, NOT_MEASURED}
    assert tables.claim_counts()["holds"] > tables.claim_counts()["undecided"] > 0
    assert "claims that were judged" in deck.verdicts().described()
    (row,) = [each for each in tables.all_claims() if each.id == "abstracts-2"]
    assert (row.verdict, row.lesson) == ("holds", "07")


def test_claims_without_rows_are_not_measured():
    parts = (claims.LAST_MINUS_ALONE, claims.PAIRS, claims.ZEROS_FIRST, claims.ONE_SWEEP)
    assert {claim.judge(NOTHING).verdict for claim in parts} == {NOT_MEASURED}
    of_recipes = (claims.BEST_WITHIN, claims.HALF_OF_NEURONS)
    assert {claim.judge(NOTHING, NOTHING).verdict for claim in of_recipes} == {NOT_MEASURED}
    assert NOT_MEASURED in tables.provenance(NOTHING)


def test_bits_of_a_weight_by_hand():
    # 0.5 · 4 of codes and 1 of the bitmap with 32 bits of a start per row; 16 bits and a packed zero per group of 64
    pieces = deck.bits_of_pieces(0.5, 4)
    assert pieces["values"] == 2
    assert pieces["bitmap, row starts"] == pytest.approx(1 + 32 / 576, abs=1e-4)
    assert pieces["scales, zero points"] == pytest.approx((16 * 9 + 40) / 576)
    assert sum(deck.bits_of_pieces(0.5, 16).values()) == pytest.approx(9 + 32 / 576, abs=1e-4)
    assert "take 3.3" in deck.bits().described()


def test_figures_of_the_idea():
    assert plots.parts_added(made.parts()).described().startswith("Five parts take ")
    assert "as pairs; as independent samples" in plots.paired_windows(made.parts()).described()


def test_everything_fits_a_page():
    both, measured = recipes(made.of_grid(GRID)), made.parts()
    shown = [tables.provenance(measured), tables.part_costs(measured), tables.orders(measured)]
    shown += [tables.pareto_front(both), tables.published_sizes(both), tables.bytes_and_time(), tables.timed_recipes()]
    shown.append(tables.drafts(RUNNING, made.of_drafts({"lookup": [80, 90], "SparseGPT 50 %, 3 bits": [30, 35]})))
    assert [line for each in shown for line in str(each).splitlines() if len(line) > COLUMNS] == []
