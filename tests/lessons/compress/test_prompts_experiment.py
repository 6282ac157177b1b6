"""`course reproduce prompts`: every step on a thin model, and the content of its rows."""

import dataclasses
import json

import pytest
import thin_model
import torch

from course_lib.lessons.common.claim import Claim
from course_lib.lessons.compress import claims
from course_lib.lessons.compress import tables as lesson_tables
from course_lib.lessons.compress.experiments import prompts as experiment
from course_lib.lessons.compress.experiments import rivals, runs
from course_lib.lessons.compress.experiments.runs import CUT, QUICK, Sizes
from course_lib.measure.experiment import Step
from course_lib.measure.result_files import as_text, plain
from course_lib.models import load_model
from course_lib.prompts.compressed import store
from course_lib.prompts.compressed.catalogue import CATALOGUE
from course_lib.prompts.compressed.kinds import Cut
from course_lib.prompts.losses import prompted_window_losses
from course_lib.prompts.store import load_prompt

DENSE, WANDA = "dense", "wanda-50"


@pytest.fixture(scope="module")
def thin(tmp_path_factory):
    """The default model in small, with a cut for its four blocks and a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = thin_model.write_thin_model(tmp_path_factory.mktemp("thin"), 4)
        loaded = load_model(str(folder))
        patch.setattr(store, "_default", lambda: loaded)
        patch.setattr(store, "CALIBRATION", (2, 32))
        patch.setattr(rivals, "CALIBRATION", (2, 32))
        patch.setattr(store, "cache_folder", lambda: folder)
        patch.setattr(runs, "load_model", lambda _: loaded)
        patch.setattr(runs, "FOLDER", folder / "prompts")
        patch.setitem(CATALOGUE, CUT, Cut(depth=0.75, share=0.6))
        runs.forget()
        yield loaded[0]
    runs.forget()


@pytest.fixture(scope="module")
def tables(thin):
    found = {}
    for step in experiment.steps(QUICK):
        for name, rows in step.run(0).items():
            found.setdefault(name, []).extend(rows)
    return json.loads(json.dumps(plain(found)))


def test_every_table_is_there_and_can_be_written(tables):
    wanted = {"models", "own", "words", "moved", "other_text", "settings", "rivals", "tasks"}
    assert set(tables) == wanted
    assert json.loads(as_text({"steps": {}, "tables": tables}))["tables"] == tables


def test_rows_hold_the_losses_of_the_same_windows(tables, thin):
    ids = runs.held_out(QUICK, 0)
    losses = prompted_window_losses(thin, None, ids, progress=False)
    alone = next(row for row in tables["models"] if row["model"] == DENSE)
    torch.testing.assert_close(torch.tensor(alone["losses"]).double(), losses, atol=1e-5, rtol=0)
    with_losses = [row for name, rows in tables.items() for row in rows if name != "tasks"]
    assert {len(row["losses"]) for row in with_losses} == {QUICK.evaluation}


def test_models_are_smaller_and_the_dense_one_is_as_it_is(tables):
    rows = {row["model"]: row for row in tables["models"]}
    assert list(rows) == [*QUICK.first, *QUICK.others]
    assert (rows[DENSE]["sparsity"], rows[WANDA]["sparsity"]) == (0.0, 0.5)
    assert rows[WANDA]["bytes"] < rows[DENSE]["bytes"] > rows[CUT]["bytes"]


def test_prompts_are_used_on_others_and_not_on_their_own(tables):
    assert [(row["source"], row["model"]) for row in tables["moved"]] == [(WANDA, DENSE), (DENSE, WANDA)]
    path = runs.path_of(QUICK, DENSE, runs.main_run(QUICK), 0)
    model = runs.subject(WANDA).model
    moved = prompted_window_losses(model, load_prompt(path, model), runs.held_out(QUICK, 0), progress=False)
    torch.testing.assert_close(torch.tensor(tables["moved"][1]["losses"]).double(), moved, atol=1e-5, rtol=0)


def test_settings_differ_in_one_thing(tables):
    main = next(row for row in tables["own"] if row["model"] == WANDA)
    keys = ("n_vectors", "n_steps", "begin", "draw")
    assert [sum(row[key] != main[key] for key in keys) for row in tables["settings"]] == [1] * len(tables["settings"])


def test_rivals_are_counted_in_bytes_and_seconds(tables):
    rows = {(row["model"], row["way"]): row for row in tables["rivals"]}
    assert set(rows) == {(name, way) for name, ways in rivals.WAYS.items() for way in ways}
    assert rows[WANDA, rivals.UPDATED]["bytes"] == rows[CUT, rivals.REFIT]["bytes"] == 0
    small, large = (rows[WANDA, way]["bytes"] for way in (rivals.SMALL, rivals.LARGE))
    # Rank 1 at the outputs of two blocks, 144 + 144 numbers each, for 4 vectors of 144.
    assert small == 4 * 2 * 288 == 4 * 4 * 144
    assert large > small
    assert all(row["processor_seconds"] >= 0 for row in rows.values())


def test_questions_are_asked_with_and_without_a_prompt(tables):
    asked_of = {(row["model"], row["task"], row["prompted"]) for row in tables["tasks"]}
    assert len(asked_of) == len(tables["tasks"]) == 2 * len(QUICK.first) * len(QUICK.questions)


def test_later_steps_use_the_trained_prompts(thin):
    run = runs.main_run(QUICK)
    kept = runs.learned(QUICK, WANDA, run, 0)
    runs.path_of(QUICK, WANDA, run, 0).unlink()
    assert torch.equal(runs.learned(QUICK, WANDA, run, 0).vectors, kept.vectors)


def test_a_finished_step_is_as_good_as_one_measured_again(thin, tables):
    again = json.loads(json.dumps(plain(runs.own(QUICK, WANDA, 0))))
    first = next(row for row in tables["own"] if row["model"] == WANDA)
    assert {**again["own"][0], "processor_seconds": 0} == {**first, "processor_seconds": 0}
    assert runs.answered(QUICK, WANDA, "sciq", 2, 0)["tasks"][0]["n"] == 2


@pytest.mark.parametrize("sizes", [Sizes(), QUICK])
def test_no_step_has_two_names(sizes):
    plan = experiment.steps(sizes)
    assert all(isinstance(step, Step) for step in plan)
    assert len({step.name for step in plan}) == len(plan)


def test_all_claims_can_be_judged_by_a_quick_run(tables):
    measured = {"tables": tables, "sizes": dataclasses.asdict(QUICK)}
    need_both = (claims.EIGHT_TIMES, claims.WITHOUT_LOSS)  # a model that a quick run does not have
    each = [claim for claim in vars(claims).values() if isinstance(claim, Claim) and claim not in need_both]
    judged = [claim.judge(measured) for claim in each]
    assert len(judged) > 12
    assert all(judgement.words for judgement in judged)
    assert "not measured" in str(lesson_tables.published(measured))
