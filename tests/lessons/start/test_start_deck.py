"""The numbers and titles in the deck of lesson 00 are the ones that its functions compute."""

import re

import pytest
from figure_titles import title

from course_lib.lessons.common.results import load_bench, load_measured, rows
from course_lib.lessons.start import deck
from course_lib.measure.roofline import A100, LLAMA2_70B, linear_work
from course_lib.workbook.masters import ROOT, masters

TEXT = (ROOT / "slides" / "00_start_here.md").read_text(encoding="utf-8")


def test_the_plan_shows_each_lesson_once():
    numbers = [number for lessons in deck.PLAN.values() for number in lessons]
    assert sorted(numbers) == [path.stem[:2] for path in masters()]
    assert title(deck.plan_of_the_course()) == "13 lessons, by what they leave out"


def test_two_layers_by_hand():
    assert title(deck.pass_by_hand()) == "Layer by layer 3 s; as a single operation it would be 2.2 s"


def test_the_rows_of_the_table_are_counted():
    typed = re.findall(r"^\| (\d+) tokens? \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", TEXT, re.MULTILINE)
    assert [row[0] for row in typed] == ["1", "16", "256"]
    for n, *shown in typed:
        work = linear_work(1536, 576, int(n), 4)
        assert [float(x) for x in shown] == pytest.approx(
            [work.flops / 1e6, work.bytes / 1e6, work.intensity], rel=0.02
        )


def test_typed_numbers_agree_with_the_library():
    assert f"{A100.ridge:.0f} \\;" in TEXT
    assert title(deck.cost_of_a_token()).startswith("A token of Llama-2-70B reads 137 GB: at least 67 ms")
    assert "137 GB by 2.04 TB/s: about 67 ms" in TEXT
    assert f"{LLAMA2_70B.cache_bytes(1):,} bytes per token" in TEXT
    assert f"{LLAMA2_70B.cache_bytes(4096, 128) / 1e9:.0f} GB (160 GiB)" in TEXT
    assert 8 * deck.SMOLLM2.cache_bytes(8192, 1, 4) > 5 * deck.SMOLLM2.n_weights * 4


def test_a_format_is_called_slower_only_if_its_whole_range_is():
    fastest = {
        float(row["contest"].removeprefix("density ")): row["times_anchor_high"]
        for row in load_bench("cpu_bitmap_matvec")["tables"]["sides"]
        if row["side"] == "CSR"
    }
    slower = min(density for density, high in fastest.items() if high < 1)
    expected = f"CSR is slower than dense when {100 * slower:.0f} % of the weights or more are stored"
    assert title(deck.formats()) == expected
    assert all(high < 1 for density, high in fastest.items() if density >= slower)


def test_claims_show_the_papers_numbers_ours_and_verdicts():
    figure = deck.claims()
    texts = [text.get_text().replace("\xa0", " ") for text in figure.axes[0].texts]
    assert {"OPT-125M: 193 → 36.85", "LLaMA-2-7B: 14.89 → 6.42", "Llama-2-13B: 5158 → 5.4"} <= set(texts)
    (row,) = rows(load_measured("sparsegpt"), "perplexity", method="sparsegpt", pattern="50%", corpus="wikipedia")
    assert f"375 ± 34 → {row['perplexity']:.0f} ± {row['standard_error']:.0f}" in texts
    assert title(figure).split(": ")[1].startswith("holds")
    assert sum(text.startswith(("holds", "does not", "undecided", "mixed", "not at")) for text in texts) == 4


def test_lines_where_cache_and_weights_are_equal():
    figure = deck.cache_against_weights()
    for line, sizes in zip(figure.axes[0].lines, deck.MODELS.values(), strict=False):
        answers, tokens = line.get_xdata()[9], line.get_ydata()[9]
        assert sizes.cache_bytes(1) * answers * tokens == pytest.approx(2 * sizes.n_weights)


def test_the_roof_by_hand_bends_at_twenty_tokens():
    assert title(deck.roof_by_hand()) == "Compute-bound above 10 FLOP/byte: from 20 tokens on"
