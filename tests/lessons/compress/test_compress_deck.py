"""Words and numbers in deck 10 agree with its functions and with the settings of the library."""

import math
import re

import pytest

from course_lib.lessons.common.results import load_published, rows
from course_lib.lessons.compress import claims, deck, plots, results
from course_lib.prompts.hard import SENTENCES
from course_lib.prompts.recipe import PromptRecipe
from course_lib.workbook.decks.markdown import split_slides
from course_lib.workbook.masters import ROOT

SLIDES = {
    re.search(r"^#+ (.+)$", slide, re.MULTILINE)[1]: slide
    for slide in split_slides((ROOT / "slides" / "10_compress_then_prompt.md").read_text(encoding="utf-8"))
}


def cells(title):
    """The rows of a slide's table by their first cell, without the head."""
    lines = re.findall(r"^\|(.+)\|$", SLIDES[title], re.MULTILINE)[2:]
    found = [[cell.strip() for cell in line.split("|")] for line in lines]
    return {row[0]: row[1:] for row in found}


def test_the_sentences_are_those_of_the_library():
    shown = cells("A hard prompt: words")
    assert {name: shown[name][0] for name in SENTENCES} == SENTENCES


def test_settings_are_those_of_both_recipes():
    shown, ours = cells("Training"), PromptRecipe()
    for column, recipe in enumerate((deck.CODE, ours)):
        assert shown["steps, batch"][column] == f"{recipe.n_steps:,}, {recipe.batch}"
        assert shown["warm-up"][column] == str(recipe.warm_up)
        rate, decay = (float(number) for number in shown["AdamW: rate, decay"][column].split(", "))
        assert (rate, decay) == (recipe.rate, recipe.decay)
        assert float(shown["gradient clipped at"][column]) == recipe.clip
    read = [f"{recipe.n_steps * recipe.batch:,}" for recipe in (deck.CODE, ours)]
    assert f"{read[0]} and {read[1]}." in SLIDES["Training"]
    assert ours.rate / deck.CODE.rate == pytest.approx(30)  # "thirty times as high as in the script"


def test_published_values_are_quoted_from_their_file():
    """The script's settings, which a figure draws too, and the answers to one question."""
    settings = rows(load_published("compress"), "settings")[0]
    recipe = {
        "rate": "rate",
        "decay": "decay",
        "steps": "n_steps",
        "batch": "batch",
        "warm_up": "warm_up",
        "clip": "clip",
    }
    assert {name: settings[name] for name in recipe} == {name: getattr(deck.CODE, at) for name, at in recipe.items()}
    assert settings["tokens"] == deck.WINDOW
    assert cells("Training")["vectors, tokens of a text"][0] == f"{settings['vectors']}, {settings['tokens']:,}"
    shown = cells("One question is not a measurement")
    assert {name: row[0] for name, row in shown.items()} == {
        row["model"]: row["answer"] for row in rows(load_published("compress"), "answers")
    }


def test_trained_numbers_are_counted():
    shown = {name: row[0] for name, row in cells("What learns").items()}
    norms = plots.WIDTH * (2 * plots.BLOCKS + 1)
    table = plots.WIDTH * plots.TOKENS
    counts = (20 * plots.WIDTH, table, plots.WEIGHTS, norms)
    assert list(shown.values()) == [f"{count:,}" for count in counts]
    assert table + norms == plots.OTHERS


def test_rivals_are_counted():
    numbers = {name.split(",")[0]: row for name, row in cells("What competes?").items()}
    lora = sum(32 * (rows + columns) for rows, columns in plots.SHAPES)
    assert numbers["LoRA"][:2] == [f"{lora:,}", f"{2 * lora / 1e6:.1f} MB"]
    assert numbers["refit"][0] == f"{plots.WEIGHTS // 2:,}"
    assert numbers["soft prompt"][:2] == [f"{20 * 576:,}", f"{2 * 20 * 576 / 1e3:.0f} kB"]


def test_numbers_on_slides_and_in_notes():
    artefact = SLIDES["Averaged zeros"]
    assert f"About {deck.averaged_with_zeros(20.0, 1000):.1f}, since the factor is {1023 / 2023:.3f}." in artefact
    assert rf"{{1123}} = {1023 / 1123:.3f} $$" in artefact
    cost = SLIDES["The cost of a prompt"]
    assert 20 * 576 * 4 == 2 * 30 * 3 * 64 * 4 == 46_080
    assert f"20 of them {20 * 46_080 / 1e6:.2f} MB" in cost
    assert f"{{3}} = {16 / 3:.1f}, \\qquad \\frac{{32}}{{3}} = {32 / 3:.1f} $$" in SLIDES["50 % and 4 bits are 3 bits"]


def test_the_artefact_by_hand():
    """1023 losses of log 20, divided by 1023 + 100."""
    assert deck.averaged_with_zeros(20.0, 0) == pytest.approx(20)
    assert deck.averaged_with_zeros(20.0, 100) == pytest.approx(20 ** (1023 / 1123))
    assert "reported as 15.3" in deck.artefact().described()


def test_one_expensive_token_by_a_mean():
    losses = [3.0] * 31
    factor = math.exp(sum([3.0 + 4.0, *losses]) / 32 - sum(losses) / 31)
    assert deck.first_token_factor(4.0, 32) == pytest.approx(factor)


def test_embeddings_are_short():
    words, normal = plots.row_lengths()
    assert len(words) == len(normal) == plots.TOKENS
    # The error of the mean of 49,152 lengths, each with a spread of 1/√2, is 0.003; √576 is 1/(4·24) above the mean.
    assert float(normal.mean()) == pytest.approx(math.sqrt(576), abs=0.03)
    assert float(words.mean()) < float(normal.mean()) / 5


def test_the_paired_ratio_by_a_loop():
    plain, prompted = (losses.tolist() for losses in deck.made_up_losses())
    apart = [after - before for before, after in zip(plain, prompted, strict=True)]
    mean = sum(apart) / len(apart)
    spread = math.sqrt(sum((value - mean) ** 2 for value in apart) / (len(apart) - 1))
    ratio, error, unpaired = deck.ratios()
    # Losses of about 3 in float32: their differences are right to 1e-6, relative to 0.1 and 0.03.
    assert (ratio, error) == pytest.approx((math.exp(mean), math.exp(mean) * spread / 4), rel=1e-4)
    assert unpaired > 10 * error, "what the slide shows"


def test_the_fraction_by_hand():
    # Losses of 3 and 4 in float32 are right to 2e-7, and the smallest gain left is 0.04.
    assert deck.fraction(0.0) == pytest.approx(0.8, abs=1e-4)
    assert deck.fraction(0.12) == pytest.approx((0.16 - 0.12) / (0.2 - 0.12), abs=1e-4)
    assert deck.fraction(0.16) == pytest.approx(0, abs=1e-4)


def test_drawings_of_the_deck_have_their_finding_as_a_title():
    for draw in (deck.first_token, plots.lengths, deck.rates, deck.pairs, deck.artefact, deck.fractions):
        assert re.search(r"\d", draw().described()), draw.__name__


def test_the_slides_describe_the_measured_figures():
    """No sentence helps significantly; the notes name the models that gain no more than the dense one."""
    every = [effect for kind in ("slides", "code") for _, effect in deck.hard_prompts()[kind]]
    assert not any(effect.holds for effect in every)
    assert f"in 0 of {len(every)} cases" in deck.words().described()
    measured = results.load()
    beyond = {name: results.repair(measured, name) for name in results.models(measured) if name != "dense"}
    assert {name for name, effect in beyond.items() if not effect.holds} == {"wanda-50", "gptq-4"}
    assert results.row_of(measured, "own", model="wanda-75")["perplexity"] > 200
    assert "1 of 7 ideas help the pruned model significantly (a line break)" in deck.ideas().described()
    prompt, *others = claims.ways(measured, "wanda-50")
    rival = next(row for row in others if row["way"] == "LoRA of as many bytes")
    assert rival["bytes"] == prompt["bytes"]
    assert results.loss_gain(rival, prompt).holds
