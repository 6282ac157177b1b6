"""Claims, tables and figures of lesson 10 follow from the numbers, change with them, and say what is missing."""

import copy
import math

import pytest
from table_cells import rows as cells

from course_lib.lessons.common.claim import Claim
from course_lib.lessons.common.results import COLUMNS
from course_lib.lessons.common.style import HouseFigure
from course_lib.lessons.common.verdicts import NOT_MEASURED
from course_lib.lessons.compress import claims, deck, plots, results, tables
from course_lib.lessons.compress.experiments.prompts import EXPERIMENT, steps
from course_lib.lessons.compress.experiments.rivals import LARGE, SMALL
from course_lib.lessons.compress.experiments.runs import VOCABULARY, WIDE, WIKIPEDIA

DENSE, WANDA, BOTH = "dense", "wanda-50", "sparsegpt-50-4bit"
ALONE = {DENSE: (3.0, 3.2, 3.1), WANDA: (4.0, 4.1, 4.3), BOTH: (3.5, 3.9, 3.6)}  # nats of three windows
UNEVEN = (-0.01, 0.0, 0.01)
BYTES = {DENSE: (1600, 400), WANDA: (900, 400), BOTH: (300, 400)}


def row(model, won=0.0, **columns):
    """A row whose loss is so many nats below that of the model alone, with a little spread over the windows."""
    losses = [alone - won + (part if won else 0) for alone, part in zip(ALONE[model], UNEVEN, strict=True)]
    perplexity = math.exp(sum(losses) / 3)
    return {"model": model, "losses": losses, "perplexity": perplexity, "standard_error": 0.1} | columns


def own(model, won, **columns):
    usual = {"n_vectors": 20, "n_steps": 32, "begin": VOCABULARY, "draw": 0, "prompt_bytes": 46, "text": WIKIPEDIA}
    return row(model, won, **usual | {"processor_seconds": 70.0} | columns)


def answers(model, prompted, right):
    n_right = right.count("1")
    return {
        "model": model, "task": "sciq", "prompted": prompted, "accuracy": n_right / len(right), "right": right,
        "n": len(right), "chance": 0.25, "standard_error": 0.05,
    }  # fmt: skip


@pytest.fixture
def measured():
    """Wanda's model gains .4 nats with its prompt, the dense one .1, and the smallest no more than that."""
    stored = {
        name: {"weight_bytes": n, "others": 200, "bytes": n + more, "sparsity": 0.5}
        for name, (n, more) in BYTES.items()
    }
    tables = {
        "models": [row(name, text=WIKIPEDIA, **stored[name]) for name in ALONE],
        "own": [own(DENSE, 0.1), own(WANDA, 0.4), own(BOTH, 0.1)],
        "words": [
            row(WANDA, won, prompt=which) for which, won in
            (("slides", -0.2), ("code", -0.1), ("random 0", -0.4), ("random 1", -0.6))
        ],
        "moved": [
            row(WANDA, 0.1, source=DENSE, text=WIKIPEDIA), row(WANDA, 0.34, source=BOTH, text=WIKIPEDIA),
            row(DENSE, -0.3, source=WANDA, text=WIKIPEDIA),
        ],
        "other_text": [row(WANDA, prompted=False), row(WANDA, 0.05, prompted=True)],
        "settings": [
            own(WANDA, 0.5, n_vectors=80), own(WANDA, 0.2, n_steps=8), own(WANDA, 0.01, begin=WIDE),
            own(WANDA, 0.39, draw=1),
        ],
        "rivals": [
            row(WANDA, 0.3, way=SMALL, processor_seconds=71.0, bytes=46),
            row(WANDA, 0.6, way=LARGE, processor_seconds=73.0, bytes=4_000_000),
        ],
        "tasks": [
            answers(DENSE, False, "1" * 15 + "0" * 5), answers(DENSE, True, "1" * 15 + "0" * 5),
            answers(WANDA, False, "1" * 4 + "0" * 16), answers(WANDA, True, "1" * 18 + "0" * 2),
        ],
    }  # fmt: skip
    sizes = {"n_vectors": 20, "n_steps": 32, "batch": 4, "text_length": 96, "evaluation": 24, "length": 128}
    machine = {"cpu": "a processor", "cores": 2, "torch": "2.13.0"}
    return {
        "command": "course reproduce prompts", "seed": 0, "started": "2026-11-24T08:54:00+00:00",
        "machine": machine, "sizes": sizes, "tables": tables,
        "steps": {step.name: {} for step in steps(EXPERIMENT.sizes)},
    }  # fmt: skip


def words(measured, *judged):
    return [claim.judge(measured).words for claim in judged]


def test_gains_compared_with_the_control(measured):
    assert words(measured, claims.OWN) == ["holds"]
    assert words(measured, claims.BEYOND_DENSE) == ["mixed (holds in Wanda 50 %; fails in SparseGPT 50 % and 4 bits)"]
    # exp(−.4); the spread over windows of ±.01 is an error of .01 / √3.
    alone, own_row = results.with_and_without(measured, WANDA)
    ratio, gain = results.ratio(own_row, alone), results.gain(measured, WANDA)
    assert (ratio.value, ratio.standard_error) == pytest.approx((0.670, 0.004), abs=5e-4)
    assert (gain.value, gain.error) == pytest.approx((0.4, 0.01 / 3**0.5))
    assert results.repair(measured, WANDA).value == pytest.approx(0.3)


def test_a_model_that_gains_less_than_the_dense_one_is_not_repaired(measured):
    measured["tables"]["own"][0] = own(DENSE, 0.9)
    assert words(measured, claims.BEYOND_DENSE) == ["does not hold"]


def test_sentences_compared_with_random_tokens(measured):
    assert words(measured, claims.SENTENCE, claims.THAN_RANDOM_TOKENS) == ["not at this scale", "holds"]
    sentences = claims.SENTENCE.judge(measured).effects
    assert [round(effect.value, 3) for effect in sentences.values()] == [-0.2, -0.1]
    random = claims.THAN_RANDOM_TOKENS.judge(measured).effects
    assert [round(effect.value, 3) for effect in random.values()] == [0.3, 0.4]  # the mean of both trials is −.5


def test_settings_compared_with_the_main_run(measured):
    assert words(measured, claims.MORE_VECTORS, claims.MORE_STEPS, claims.TOKENS_AS_START) == ["holds"] * 3
    (vectors,) = claims.MORE_VECTORS.judge(measured).effects.values()
    assert vectors.value == pytest.approx(0.1)  # 80 vectors


def test_the_transferred_fraction_by_hand(measured):
    # Beyond the dense model's gain of .1 the own prompt wins .3, the other's .24, the dense model's nothing.
    assert results.transferred_fraction(measured, DENSE, WANDA).value == pytest.approx(0)
    assert results.transferred_fraction(measured, BOTH, WANDA).value == pytest.approx(0.8)
    assert "+0.80 ± 0.00" in str(tables.fractions({BOTH: (0.8, 0.001)}))
    assert list(claims.MOVES.judge(measured).effects) == ["SparseGPT 50 % and 4 bits on Wanda 50 %"]  # none is dense
    assert words(measured, claims.MOVES) == ["holds"]
    for row in measured["tables"]["moved"]:
        row["losses"] = [loss + 1.0 for loss in row["losses"]]
    assert words(measured, claims.MOVES) == ["not at this scale"]


def test_the_dense_models_prompt_is_compared_with_others(measured):
    assert words(measured, claims.BETTER_TEACHER, claims.HALF_TRANSFERS) == ["holds", "holds"]


def test_no_fraction_of_nothing(measured):
    measured["tables"]["own"][1] = own(WANDA, 0.1)  # no more than on the dense model
    assert not math.isfinite(results.transferred_fraction(measured, BOTH, WANDA).value)
    assert words(measured, claims.HALF_TRANSFERS) == [NOT_MEASURED]


def test_other_text_compared_with_the_dense_models_gain_there(measured):
    assert words(measured, claims.OTHER_TEXT, claims.BEYOND_ON_OTHER_TEXT) == ["holds", NOT_MEASURED]
    measured["tables"]["other_text"] += [row(DENSE, prompted=False), row(DENSE, 0.03, prompted=True)]
    # .05 minus .03, window by window
    assert claims.beyond_elsewhere(measured, WANDA).value == pytest.approx(0.02)
    assert words(measured, claims.BEYOND_ON_OTHER_TEXT) == ["holds"]
    measured["tables"]["other_text"][3] = row(DENSE, 0.07, prompted=True)
    assert words(measured, claims.BEYOND_ON_OTHER_TEXT) == ["does not hold"]


def test_rivals_each_by_its_name(measured):
    assert words(measured, claims.RIVALS[SMALL], claims.RIVALS[LARGE]) == ["holds", "does not hold"]
    labels = [text.get_text() for text in plots.rivals(measured).axes[0].get_yticklabels()]
    assert labels[-1] == f"{plots.WAY_NAMES[LARGE]}\n4,000 kB added"


def test_tasks_with_signal_alone(measured):
    assert words(measured, claims.TASKS) == ["holds"]
    measured["tables"]["tasks"][0]["accuracy"] = 0.3
    assert words(measured, claims.TASKS) == ["undecided"]
    del measured["tables"]["tasks"]
    assert words(measured, claims.TASKS) == [NOT_MEASURED]


def test_eight_times_smaller_without_loss(measured):
    assert words(measured, claims.EIGHT_TIMES, claims.WITHOUT_LOSS) == ["does not hold", "not at this scale"]
    assert claims.EIGHT_TIMES.judge(measured).ours == "5.33 times"  # 1600 / 300
    assert cells(tables.published(measured))[1][-1] == "5.33 (blocks), 2.68 (whole model)"  # 2000 / 746 with prompt


def test_published_values_next_to_ours(measured):
    table = tables.published(measured)
    assert max(map(len, str(table).splitlines())) <= COLUMNS
    ours = [row[-1] for row in cells(table)]
    assert "+0.47 ± 0.07 nats" in ours  # 3.39, 3.80, 3.51 against 3.0, 3.2, 3.1: .39, .60, .41
    assert "perplexity falls in 2 of 3 pairs; over half of the repair in 1" in ours
    assert "+0.10 ± 0.00 nats (equal bytes)" in ours  # .4 by the prompt, .3 by LoRA
    for name in ("own", "moved", "rivals"):
        del measured["tables"][name]
    assert [row[-1] for row in cells(tables.published(measured))].count(NOT_MEASURED) == 4


NEED_BOTH = (claims.EIGHT_TIMES, claims.WITHOUT_LOSS)  # these need the model that is pruned and quantized
CLAIMS = [claim for claim in vars(claims).values() if isinstance(claim, Claim) and claim not in NEED_BOTH]


@pytest.mark.parametrize("n_models", [0, 1, 2, None])
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_every_claim_has_a_verdict_however_far_the_measurement_got(claim, n_models, measured):
    if n_models is not None:
        measured["tables"] = {name: measured["tables"][name][:n_models] for name in ("models", "own")}
    judgement = claim.judge(measured)
    assert max(map(len, str(judgement).splitlines())) <= COLUMNS
    assert judgement.words
    if n_models == 0:
        assert judgement.words == NOT_MEASURED


def test_two_measurements_are_one(measured):
    """As when a run has stopped, and another has measured the rest."""
    parts = [copy.deepcopy(measured) for _ in range(2)]
    parts[1]["command"] = "course reproduce prompts_further"
    for table in measured["tables"]:
        parts[table not in ("settings", "tasks")]["tables"].pop(table)
    parts[0]["tables"]["models"].pop()
    parts[1]["tables"]["models"] = measured["tables"]["models"][2:]
    for part, half in zip(parts, (slice(0, 9), slice(9, None)), strict=True):
        part["steps"] = dict(list(measured["steps"].items())[half])
    both = results.join(*parts)
    assert both["tables"] == measured["tables"]
    assert both["steps"] == measured["steps"]
    assert "`course reproduce prompts; course reproduce prompts_further`, seed 0" in tables.provenance(both)
    with pytest.raises(ValueError, match="Measure both again"):
        results.join(parts[0], parts[1] | {"seed": 1})


def test_where_it_comes_from(measured):
    text = tables.provenance(measured)
    assert "32 steps of 4 × 96 tokens" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= COLUMNS


def test_the_missing_steps_of_a_stopped_measurement(measured):
    del measured["steps"]["dense: sciq"], measured["steps"]["wanda-75: own prompt"]
    assert results.missing(measured) == ["wanda-75: own prompt", "dense: sciq"]
    text = tables.provenance(measured)
    assert "2 steps of the plan, the first of them wanda-75: own prompt; dense: sciq." in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= COLUMNS


def test_names_as_they_are_printed():
    names = ("dense", "wanda-62.5", "wanda-2of4", "gptq-3", "sparsegpt-50-4bit", "minitron-75")
    assert [results.model_name(name) for name in names] == [
        "dense", "Wanda 62.5 %", "Wanda 2:4", "GPTQ 3 bits", "SparseGPT 50 % and 4 bits", "Minitron 75 %",
    ]  # fmt: skip


@pytest.mark.parametrize("drawing", [plots.gains, plots.transfer, plots.rivals, plots.settings])
def test_figures_have_their_finding_as_a_title(drawing, measured):
    fig = drawing(measured)
    assert isinstance(fig, HouseFigure)
    assert any(digit in fig.described() for digit in "0123456789")


def test_a_setting_counts_only_beyond_the_variation_between_seeds(measured):
    title = "Significantly different from both seeds:\n80 vectors, 8 steps and initialised with normal, spread 1"
    assert plots.settings(measured).described() == title
    measured["tables"]["settings"][3] = own(WANDA, 0.6, draw=1)  # more than all of them
    assert "80 vectors" not in plots.settings(measured).described()


def test_gains_on_other_text_and_questions_are_counted(measured):
    assert "1 of 1 models on other text, 1 of 1 cases on questions" in deck.elsewhere(measured).described()
    measured["tables"]["other_text"][1] = row(WANDA, -0.05, prompted=True)
    assert "0 of 1 models on other text" in deck.elsewhere(measured).described()


def test_titles_change_with_the_numbers(measured):
    assert "1 of 2 compressed models gain significantly more" in plots.gains(measured).described()
    assert "2 of 3 transferred prompts lower the perplexity significantly" in plots.transfer(measured).described()
    better = f"Wanda 50 %: significantly better than a prompt:\n{plots.WAY_NAMES[LARGE]}"
    assert better in plots.rivals(measured).described()
