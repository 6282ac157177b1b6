"""`course reproduce minitron` and `equal_compute`: their steps on a thin model, their rows, and runs in pieces."""

import json
from dataclasses import replace

import pytest
import thin_model
import torch

from course_lib.lessons.common import subject
from course_lib.lessons.minitron.experiments import after, cuts, equal_compute, ground, minitron, students, training
from course_lib.lessons.minitron.experiments.ground import QUICK, Sizes
from course_lib.measure.result_files import as_text, plain
from course_lib.pruning.structured.distillation import distil
from course_lib.pruning.structured.shape import n_parameters, shape_of

N_BLOCKS = 4
WIDTHS = {"hidden_size": 36, "head_dim": 4, "intermediate_size": 96}
CUTS = (("neurons", 78), ("groups", 2), ("heads", 6), ("width", 27))
SHAPES = ((("neurons", 78),), (("blocks", 3),))


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    """The sizes of a quick run, for a model that is a sixteenth as wide and of four blocks."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in WIDTHS.items():
            patch.setitem(thin_model.WIDTHS, name, size)
        folder = thin_model.write_thin_model(tmp_path_factory.mktemp("thin"), N_BLOCKS)
    questions = (("sciq", 12), ("lambada", 1))
    given = {"model": str(folder), "questions": questions}
    return replace(QUICK, cuts=CUTS, neurons=78, blocks=3, searched=SHAPES, draws=2, **given)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder of unfinished students in these tests."""
    folder, patch = tmp_path_factory.mktemp("runs"), pytest.MonkeyPatch()
    patch.setattr(training, "QUICK_RESULTS", folder)
    yield folder
    patch.undo()
    ground.forget()


@pytest.fixture(scope="module")
def tables(sizes, place):
    """All steps of both experiments, in their order."""
    found = {}
    for step in minitron.steps(sizes) + equal_compute.steps(sizes):
        for name, rows in step.run(0).items():
            found.setdefault(name, []).extend(rows)
    assert list(place.iterdir()) == []  # all files are removed
    return json.loads(json.dumps(plain(found)))


def only(rows, **wanted):
    (row,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return row


@pytest.mark.real
def test_every_table_is_there_and_models_are_compared_on_the_same_windows(tables, sizes):
    assert set(tables) == {
        *("dense", "blocks", "cuts", "norm_factor", "heads", "heads_by_block", "equal_parameters", "training"),
        *("curves", "refit", "zero_shot", "step_cost", "search", "search_order"),
    }
    assert as_text({"steps": {}, "tables": tables})
    for name in ("dense", "norm_factor", "equal_parameters", "curves", "refit"):
        assert {len(row["losses"]) for row in tables[name]} == {sizes.evaluation}
    fewer = {row["method"] == "random": len(row["losses"]) for row in tables["cuts"]}
    assert fewer == {False: sizes.evaluation, True: sizes.draw_evaluation}


@pytest.mark.real
def test_every_score_takes_part(tables, sizes):
    by_cut = {cut: [row for row in tables["cuts"] if (row["kind"], row["size"]) == cut] for cut in CUTS}
    assert [len(by_cut[cut]) for cut in CUTS] == [10 + 2, 5 + 2, 5 + 2, 4 + 2]
    model, _ = subject.loaded(sizes.model)
    for (kind, size), rows in by_cut.items():
        changed = {"groups": {"heads": 6}}.get(kind, {})
        expected = n_parameters(model, replace(shape_of(model), **{kind: size}, **changed))
        assert {row["parameters"] for row in rows} == {expected}
        assert {row["draw"] for row in rows} == {None, 0, 1}


@pytest.mark.real
def test_ablated_heads_are_pruned_heads(tables):
    """The same output: only the order of sums differs, in float32 and five digits of a loss."""
    score = {"method": "activations", "setting": "l2, mean"}
    for which, kind, size in ((cuts.EACH, "heads", 6), (cuts.WHOLE, "groups", 2)):
        cut = only(tables["cuts"], kind=kind, size=size, **score)
        ablated = only(tables["heads"], set=which, chosen="score")
        assert ablated["losses"] == pytest.approx(cut["losses"], abs=1e-4)
    assert {row["block"] for row in tables["heads_by_block"]} == set(range(N_BLOCKS))
    shares = {row["set"]: row["share_of_score"] for row in tables["heads"] if row["chosen"] == "score"}
    assert shares[cuts.ANY] <= min(shares[cuts.EACH], shares[cuts.WHOLE])


@pytest.mark.real
def test_the_norm_is_rescaled_or_not(tables):
    cut = only(tables["cuts"], kind="width", size=27, setting="l2, mean")
    with_factor, without = (only(tables["norm_factor"], rescaled=rescaled) for rescaled in (True, False))
    assert with_factor["losses"] == cut["losses"] != without["losses"]


@pytest.mark.real
def test_one_size_by_width_and_by_depth(tables):
    names = [row["name"] for row in tables["equal_parameters"]]
    assert names == [name for name in students.SHAPES for _ in range(2)]
    for row in tables["equal_parameters"]:
        assert len(row["dropped"]) == (row["kind"] == "depth")
    assert only(tables["equal_parameters"], name="the last blocks", steps=0)["dropped"] == [3]
    assert only(tables["equal_parameters"], name="blocks at even distances", steps=0)["dropped"] == [2]
    influence = [row["influence"] for row in tables["blocks"]]
    dropped = only(tables["equal_parameters"], name="blocks by influence", steps=0)["dropped"]
    assert dropped == [influence.index(min(influence))]


@pytest.mark.real
def test_pieces_of_a_curve_are_one_run(tables, sizes):
    steps = {name: [row["step"] for row in tables["curves"] if row["run"] == name] for name in training.CURVES}
    assert steps == {"KL": [0, 1, 2], "next token": [0, 1, 3], "from scratch": [0, 1]}
    learner, settings = training.fresh(sizes, "KL", 0), training.recipe(sizes, "KL", 0)
    losses = distil(learner, subject.loaded(sizes.model)[0], ground.text(sizes, 0), settings, progress=False)
    logged = [loss for row in tables["training"] if row["run"] == "KL" for loss in row["losses"]]
    assert logged == [round(loss, 5) for loss in losses]
    after_it = ground.perplexity_row(sizes, learner, 0)
    assert only(tables["curves"], run="KL", step=2)["losses"] == after_it["losses"]
    begins = {name: only(tables["curves"], run=name, step=0)["losses"] for name in training.CURVES}
    assert begins["KL"] == begins["next token"] != begins["from scratch"]


@pytest.mark.real
def test_compute_counts_the_teacher(tables, sizes):
    model, _ = subject.loaded(sizes.model)
    student, teacher = only(tables["equal_parameters"], name="neurons", steps=0)["parameters"], ground.n_weights(model)
    tokens = sizes.batch * sizes.text_length
    assert only(tables["curves"], run="KL", step=2)["flops"] == 2 * tokens * (6 * student + 2 * teacher)
    assert only(tables["curves"], run="next token", step=3)["flops"] == 3 * tokens * 6 * student


def test_checkpoints_are_at_equal_compute():
    """Of the default model's 134.5 million weights and the student's 113.3, to half a step."""
    ratio = (6 * 113_260_608 + 2 * 134_515_008) / (6 * 113_260_608)
    sizes = Sizes()
    assert sizes.next_token == tuple(round(step * ratio) for step in sizes.kl)
    assert set(sizes.scratch) <= set(sizes.next_token)
    assert sizes.text >= sizes.batch * sizes.next_token[-1]  # no window comes twice


@pytest.mark.real
def test_tasks_refits_and_costs(tables, sizes):
    asked = [(row["model"], row["steps"]) for row in tables["zero_shot"]]
    assert asked == [pair for pair in after.evaluated_models(sizes) for _ in sizes.questions]
    assert len({row["right"] for row in tables["zero_shot"]}) > 1
    assert {(row["setting"], row["damping"], row["steps"]) for row in tables["refit"]} == {
        *((setting, 1.0, 0) for setting in ("l2, mean", "l2, l2")),
        ("l2, l2", 1.0, 1),
    }
    assert [row["loss"] for row in tables["step_cost"]] == ["kl", "next token"]
    assert all(row["peak_bytes"] is None or row["peak_bytes"] > 1e8 for row in tables["step_cost"])
    assert [(row["model"], row["n"]) for row in tables["search_order"]] == [("byte model", 2), (sizes.model, 2)]
    assert {row["rank_before"] for row in tables["search"]} == {0, 1}


def test_lowest_heads_by_hand():
    score = torch.tensor([[5.0, 1.0, 4.0, 2.0], [1.0, 9.0, 3.0, 4.0]])  # two groups of two
    expected = {
        cuts.EACH: [[0, 1, 0, 1], [1, 0, 1, 0]],
        cuts.WHOLE: [[1, 1, 0, 0], [0, 0, 1, 1]],  # 6 = 6: of equal sums the first is pruned; 10 against 7
        cuts.ANY: [[0, 1, 0, 1], [1, 0, 1, 0]],
    }
    for which, out in expected.items():
        assert cuts.lowest_heads(which, score, 2).int().tolist() == out
    assert cuts.lowest_heads(cuts.ANY, torch.tensor([[1.0, 2.0, 3.0, 4.0]]), 2).int().tolist() == [[1, 1, 0, 0]]


def test_pieces_by_hand():
    assert training.pieces((5, 40, 80, 120, 150), 50) == [((5, 40), 0), ((80,), 40), ((120,), 80), ((150,), 120)]
    assert training.pieces((7,), 5) == [((7,), 0)]


def test_no_piece_is_longer_than_planned():
    sizes = Sizes()
    for name, looks in (("KL", sizes.kl), ("next token", sizes.next_token), ("from scratch", sizes.scratch)):
        pieces = training.pieces(looks, training.MOST_STEPS[name])
        assert max(inside[-1] - before for inside, before in pieces) <= training.MOST_STEPS[name]
        assert [look for inside, _ in pieces for look in inside] == [*looks]


@pytest.mark.real
def test_a_run_that_was_killed_in_a_piece_is_resumed(sizes, place):
    """In its first piece it starts again; later it resumes from the last state."""
    name, whole = "next token", list(training.checkpoints(sizes, "next token", (1, 3), 0))
    training.trained(sizes, name, 0, until=2)  # killed before the first checkpoint
    first = next(iter(training.checkpoints(sizes, name, (1,), 0)))
    assert first.losses == whole[0].losses
    training.trained(sizes, name, 0, until=2)
    (second,) = training.checkpoints(sizes, name, (3,), 0, before=1)
    assert second.losses == whole[1].losses
    assert not (training.folder(sizes) / "next_token").exists()
