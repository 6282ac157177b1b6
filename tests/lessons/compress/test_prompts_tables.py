"""What lesson 10 says of its measurement follows from the numbers, changes with them, and admits what is missing."""

import copy
import math

import pytest
from table_cells import rows as cells

from course_lib.lessons.common.style import HouseFigure
from course_lib.lessons.common.tables import COLUMNS
from course_lib.lessons.common.verdicts import NOT_MEASURED
from course_lib.lessons.compress import claims, found
from course_lib.lessons.compress.experiment_prompts import EXPERIMENT, steps
from course_lib.lessons.compress.figures import further
from course_lib.lessons.compress.figures import measured as plots
from course_lib.lessons.compress.measuring.ground import VOCABULARY, WIDE, WIKIPEDIA
from course_lib.lessons.compress.measuring.rivals import LARGE, SMALL
from course_lib.lessons.compress.tables import gain_tables, over, practice, published

DENSE, WANDA, BOTH = "dense", "wanda-50", "sparsegpt-50-4bit"
ALONE = {DENSE: (3.0, 3.2, 3.1), WANDA: (4.0, 4.1, 4.3), BOTH: (3.5, 3.9, 3.6)}  # nats of three windows
UNEVEN = (-0.01, 0.0, 0.01)
BYTES = {DENSE: (1600, 400), WANDA: (900, 400), BOTH: (300, 400)}


def row(model, won=0.0, **columns):
    """A row that lies so many nats below the model alone, with a little spread over the windows."""
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
    """Wanda's model wins .4 nats with its prompt and the dense one .1; the smallest wins no more than the dense one."""
    stored = {
        name: {"weight_bytes": n, "others": 200, "bytes": n + more, "sparsity": 0.5}
        for name, (n, more) in BYTES.items()
    }
    tables = {
        "models": [row(name, text=WIKIPEDIA, **stored[name]) for name in ALONE],
        "own": [own(DENSE, 0.1), own(WANDA, 0.4), own(BOTH, 0.1)],
        "words": [
            row(WANDA, won, prompt=which) for which, won in
            (("slides", -0.2), ("code", -0.1), ("lot 0", -0.4), ("lot 1", -0.6))
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


def verdicts_of(text):
    return [line.split("Verdict: ")[1] for line in text.splitlines() if "Verdict: " in line]


def test_gains_beside_the_control(measured):
    assert words(measured, claims.OWN) == ["holds"]
    assert words(measured, claims.BEYOND_DENSE) == ["mixed (holds in Wanda 50 %; fails in SparseGPT 50 % and 4 bits)"]
    # exp(−.4); the spread over windows of ±.01 is an error of .01 / √3.
    assert cells(gain_tables.gains_table(measured))[1][3:] == ["0.670 ± 0.004", "+0.400 ± 0.006", "+0.300 ± 0.000"]


def test_a_model_that_wins_less_than_the_dense_one_does_not_recover(measured):
    measured["tables"]["own"][0] = own(DENSE, 0.9)
    assert words(measured, claims.BEYOND_DENSE) == ["does not hold"]


def test_sentences_against_tokens_by_lot(measured):
    assert words(measured, claims.SENTENCE, claims.THAN_RANDOM_TOKENS) == ["not at this scale", "holds"]
    assert cells(over.sentences_table(measured))[0][-1] == "-0.500 ± 0.006"  # the mean of both draws


def test_settings_beside_the_main_run(measured):
    assert words(measured, claims.MORE_VECTORS, claims.MORE_STEPS, claims.TOKENS_AS_START) == ["holds"] * 3
    assert cells(gain_tables.settings_table(measured))[2][-1] == "+0.100 ± 0.000"  # 80 vectors


def test_what_goes_over_by_hand(measured):
    # Beyond the dense model's gain of .1 the own prompt wins .3, the other's .24, the dense model's nothing.
    assert "0.80 ± 0.00" in str(over.shares_table(measured))
    assert found.share(measured, DENSE, WANDA).value == pytest.approx(0)
    assert found.share(measured, BOTH, WANDA).value == pytest.approx(0.8)
    case = "mixed (holds in dense on Wanda 50 %, SparseGPT 50 % and 4 bits on Wanda 50 %; fails in Wanda 50 % on dense)"
    counted = "mixed (holds in 2; fails in 1)"
    assert words(measured, claims.MOVES)[0] in (case, counted)
    assert words(measured, claims.BETTER_TEACHER, claims.HALF_TRANSFERS) == ["holds", "holds"]


def test_no_share_of_nothing(measured):
    measured["tables"]["own"][1] = own(WANDA, 0.1)  # no more than on the dense model
    # In the column of the dense model, and now in the only other one.
    assert sum(row.count("–") for row in cells(over.shares_table(measured))) == 6
    assert words(measured, claims.HALF_TRANSFERS) == [NOT_MEASURED]


def test_another_text_beside_the_dense_models_gain_there(measured):
    assert words(measured, claims.OTHER_TEXT, claims.BEYOND_ON_OTHER_TEXT) == ["holds", NOT_MEASURED]
    measured["tables"]["other_text"] += [row(DENSE, prompted=False), row(DENSE, 0.03, prompted=True)]
    assert cells(over.other_text_table(measured))[1][-1] == "+0.020 ± 0.000"  # .05 less .03, window by window
    assert words(measured, claims.BEYOND_ON_OTHER_TEXT) == ["holds"]
    measured["tables"]["other_text"][3] = row(DENSE, 0.07, prompted=True)
    assert words(measured, claims.BEYOND_ON_OTHER_TEXT) == ["does not hold"]


def test_rivals_each_by_its_name(measured):
    assert words(measured, claims.RIVALS[SMALL], claims.RIVALS[LARGE]) == ["holds", "does not hold"]
    assert verdicts_of(practice.rivals(measured)) == ["holds", "does not hold"]  # of the ways that were measured
    assert "4,000,000" in str(practice.rivals_table(measured))
    assert "the 32 steps of a prompt took 70 to 70 on 3 models" in practice.rivals_table(measured).note


def test_tasks_with_signal_alone(measured):
    assert words(measured, claims.TASKS) == ["holds"]
    measured["tables"]["tasks"][0]["accuracy"] = 0.3
    assert "sciq: the dense model is not clear of chance" in practice.tasks_table(measured).note
    assert words(measured, claims.TASKS) == ["undecided"]
    del measured["tables"]["tasks"]
    assert words(measured, claims.TASKS) == [NOT_MEASURED]


def test_eight_times_smaller_without_loss(measured):
    assert words(measured, claims.EIGHT_TIMES, claims.WITHOUT_LOSS) == ["does not hold", "not at this scale"]
    assert claims.EIGHT_TIMES.judge(measured).ours == "5.33 times"  # 1600 / 300
    shown = cells(practice.smaller_table(measured))[1]
    assert shown[2:4] == ["2.68", "5.33"]  # 2000 / 746, embeddings and prompt counted


def test_what_is_published_stands_beside(measured):
    table = published.beside(measured)
    assert cells(table)[1][1:] == ["8", "5.33 in the blocks, 2.68"]  # as in the table above
    text = str(table)
    assert max(map(len, text.splitlines())) <= COLUMNS
    ours = [row[-1] for row in cells(table)]
    assert "+0.47 ± 0.07 nats" in ours  # 3.39, 3.80, 3.51 against 3.0, 3.2, 3.1: .39, .60, .41
    assert "2 of 3; of the repair 1" in ours
    assert "+0.10 ± 0.00 nats" in ours  # .4 by the prompt, .3 by LoRA
    for table in ("own", "moved", "rivals"):
        del measured["tables"][table]
    assert [row[-1] for row in cells(published.beside(measured))].count(NOT_MEASURED) == 4


EVERY = (
    *(gain_tables.gains, gain_tables.settings, over.sentences, over.moved, over.other_text),
    *(practice.rivals, practice.tasks, practice.smaller),
)
TABLES = (
    *(gain_tables.gains_table, gain_tables.settings_table, over.sentences_table, over.moved_table, over.shares_table),
    *(over.other_text_table, practice.rivals_table, practice.tasks_table, practice.smaller_table),
)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("n_models", [0, 1, 2, None])
def test_tables_fit_a_terminal_whatever_was_reached(table, n_models, measured):
    if n_models is not None:
        measured["tables"] = {name: measured["tables"][name][:n_models] for name in ("models", "own")}
    assert max(map(len, str(table(measured)).splitlines())) <= 80


@pytest.mark.parametrize("table", EVERY)
def test_no_line_is_wider_than_a_page_and_every_claim_has_a_word(table, measured):
    text = table(measured)
    assert max(map(len, text.splitlines())) <= COLUMNS
    assert "Claim: " in text


@pytest.mark.parametrize("table", EVERY)
@pytest.mark.parametrize("n_models", [0, 1, 2])
def test_what_was_not_reached_is_said_to_be_missing(table, n_models, measured):
    begun = copy.deepcopy(measured)
    begun["tables"] = {name: begun["tables"][name][:n_models] for name in ("models", "own")}
    text = table(begun)
    assert len(verdicts_of(text)) == text.count("Claim: ")
    if n_models == 0:
        assert set(verdicts_of(text)) == {NOT_MEASURED}


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
    both = found.joined(*parts)
    assert both["tables"] == measured["tables"]
    assert both["steps"] == measured["steps"]
    assert "`course reproduce prompts; course reproduce prompts_further`, seed 0" in gain_tables.provenance(both)
    with pytest.raises(ValueError, match="Measure both anew"):
        found.joined(parts[0], parts[1] | {"seed": 1})


def test_where_it_comes_from(measured):
    text = gain_tables.provenance(measured)
    assert "Not measured" not in text
    assert "32 steps of 4 × 96 tokens" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= COLUMNS


def test_a_measurement_that_was_stopped_says_where(measured):
    del measured["steps"]["dense: sciq"], measured["steps"]["wanda-75: own prompt"]
    text = " ".join(gain_tables.provenance(measured).split())
    assert "2 steps of the plan, the first of them wanda-75: own prompt; dense: sciq." in text
    assert max(map(len, gain_tables.provenance(measured).splitlines())) <= COLUMNS


def test_names_as_they_are_printed():
    names = ("dense", "wanda-62.5", "wanda-2of4", "gptq-3", "sparsegpt-50-4bit", "minitron-75")
    assert [found.called(name) for name in names] == [
        "dense", "Wanda 62.5 %", "Wanda 2:4", "GPTQ 3 bits", "SparseGPT 50 % and 4 bits", "Minitron's cut 75 %",
    ]  # fmt: skip


@pytest.mark.parametrize("drawing", [plots.gains, plots.moved, plots.practised, further.settings, further.elsewhere])
def test_figures_say_what_they_show(drawing, measured):
    fig = drawing(measured)
    assert isinstance(fig, HouseFigure)
    assert any(digit in fig.described() for digit in "0123456789")


def test_a_setting_counts_only_beyond_what_another_draw_does(measured):
    told = "Told apart from both draws: 80 vectors, 8 steps and begins at: normal, spread 1"
    assert further.settings(measured).described() == told
    measured["tables"]["settings"][3] = own(WANDA, 0.6, draw=1)  # more than all of them
    assert "80 vectors" not in further.settings(measured).described()


def test_what_is_won_elsewhere_is_counted(measured):
    assert "1 of 1 models on another text, 1 of 1 on questions" in further.elsewhere(measured).described()
    measured["tables"]["other_text"][1] = row(WANDA, -0.05, prompted=True)
    assert "0 of 1 models on another text" in further.elsewhere(measured).described()


def test_titles_change_with_the_numbers(measured):
    assert "1 of 2 compressed models win clearly more by a prompt" in plots.gains(measured).described()
    assert "2 of 3 moved prompts clearly help" in plots.moved(measured).described()
    assert f"Wanda 50 %: clearly better than a prompt:\n{LARGE}" in plots.practised(measured).described()
