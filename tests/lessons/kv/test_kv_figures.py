"""The figures of lesson 07 from data: titles follow from the numbers."""

import torch
from figure_titles import titles

from course_lib.lessons.kv import deck, plots


def test_streams_count_the_kept_tokens_that_are_not_the_newest():
    window = torch.tensor([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]]).bool()
    heavy = torch.tensor([[1, 1, 0, 0, 0, 0], [1, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 1]]).bool()
    drawn = plots.streams({"window": window, "H2O": heavy}, (2, 4, 6), "layer 0")
    end = "kept tokens\nare not among the newest 2"
    assert titles(drawn) == [f"window: 0 of 2 {end}", f"H2O: 1 of 2 {end}"]
    shade = drawn.axes[1].images[0].get_array()
    assert shade[1, 0] == 1  # kept
    assert 0 < shade[1, 1] < 0.5  # evicted
    assert shade[1, 5] == 0  # not read yet


def test_excess_counts_from_where_the_cache_is_full():
    full = torch.zeros(96)
    worse = torch.cat([torch.zeros(32), torch.full((64,), 2.0).log()])
    (title,) = titles(plots.excess({"window": worse, "H2O": full}, full, budget=32))
    assert title.endswith("window 2.00, H2O 1.00")


def test_mass_by_rank_names_the_share_of_few_tokens():
    even, one = torch.full((40,), 1 / 40), torch.tensor([0.61] + [0.01] * 39)
    (title,) = titles(plots.mass_by_rank(torch.stack([even, one]), (0, 1)))
    assert title == "5 % of the tokens receive 5 to 62 % of all attention, by layer"


def test_receivers_leave_out_kinds_without_attention():
    shares = {"first token": torch.tensor([0.5, 0.3]), "near": torch.tensor([0.49, 0.7]), "special": torch.zeros(2)}
    shares["word"] = torch.tensor([0.01, 0.0])
    (title,) = titles(plots.receivers(shares))
    assert title == "Mean over the layers: first token 40 %, neighbours 60 %"


def test_answers_give_what_the_leak_adds():
    told = {"full": (1.0, (0.7, 1.0)), "window": (0.9, (0.6, 1.0))}
    fair = {"full": (1.0, (0.7, 1.0)), "window": (0.2, (0.1, 0.5))}
    (title,) = titles(plots.answers({"asked early": told, "asked late": fair}, 10))
    assert title == "Asked early: up to 70 points more than in the fair test"


def test_persistence_counts_the_layers_above_the_mark():
    pairs = zip((0.96, 0.9, 0.99), (0.5, 0.4, 0.6), strict=True)
    rows = [{"start": "text", "persistence_any": ratio, "pivotal_any": chance} for ratio, chance in pairs]
    (title,) = titles(plots.persistence({"tables": {"attention": rows}}))
    assert title == "Above 95 % in 2 of 3 layers; chance alone gives 50 % on average"


def test_nearest_gives_medians():
    drawn = plots.nearest({"keys": torch.full((2, 5), 0.9), "values": torch.full((2, 5), 0.4)})
    assert titles(drawn) == ["Nearest kept neighbour, median cosine:\nkeys 0.90, values 0.40"]


def test_sizes_by_layer_give_the_range_where_there_is_one():
    drawn = deck.sizes_by_layer({"even": [4, 4, 4], "rising": [1, 5, 3]})
    assert titles(drawn) == ["Slots by layer: rising 1 to 5"]


def test_a_leak_may_be_shown_for_only_some_policies():
    told, fair = {"window": (0.9, (0.6, 1.0))}, {"full": (1.0, (0.7, 1.0)), "window": (0.4, (0.2, 0.7))}
    drawn = plots.answers({"asked early": told, "asked late": fair}, 10)
    assert titles(drawn) == ["Asked early: up to 50 points more than in the fair test"]
