"""What a stranger may hand in: each attack earns nothing, has its row with the reason, and harms nobody else."""

import json
import pickle
import re
import zipfile
from contextlib import nullcontext
from dataclasses import dataclass, replace

import pytest
import torch
from safetensors.torch import save
from sharp_model import texts_of, tiny_judge

from course_lib.compose.challenge.budget import Budget
from course_lib.compose.challenge.judge import judged
from course_lib.compose.challenge.points import Anchors, points
from course_lib.compose.challenge.texts import FIRST, SECOND
from course_lib.compose.part import FiledPart
from course_lib.compose.recipe import PARTS, from_json
from course_lib.grading.challenge import evaluation, run
from course_lib.grading.challenge.handed_in import handed_in
from course_lib.prompts.initial import from_vocabulary
from course_lib.prompts.recipe import PromptRecipe
from course_lib.prompts.soft import fingerprint
from course_lib.prompts.store import save_prompt
from course_lib.prompts.training import train_prompt

FILE = "p.safetensors"
NAMES_IT = json.dumps({"prompt": {"file": FILE}})
HONEST = json.dumps({"weights": {"bits": 4}})


def named(**fields):
    return json.dumps(fields)


# name: (recipe.json, what its reason says)
RECIPES = {
    "no-json": ("import os", "not JSON"),
    "byte-order-mark": ("\ufeff" + named(weights={"method": "none of it"}), "expected one of"),
    "ten-megabytes": (" " * 10_000_000 + "{}", "more than 65,536 bytes"),
    "deep": ('{"weights":' * 5000 + "1" + "}" * 5000, "nested 5000 deep"),
    "twice": ('{"weights": {"bits": 4}, "weights": {"bits": 8}}', "'weights' twice"),
    "nan": ('{"weights": {"method": "Wanda", "pattern": NaN}}', "NaN, which is not a number"),
    "infinite": ('{"weights": {"method": "Wanda", "pattern": 1e999}}', "beyond what a float holds"),
    "endless-digits": ('{"calibration": {"seed": ' + "9" * 5000 + "}}", "5000 digits"),
    "unknown-method": (named(weights={"method": "__import__"}), "expected one of"),
    "unknown-field": (named(weights={"bits": 4, "loss": 0}), "'loss'"),
    "code": (named(weights={"method": "Wanda", "pattern": "__class__"}), "2:4"),
    "no-slots": (named(cache={"policy": "Window", "budget": 0}), "budget"),
    "no-neurons": (named(neurons={"selector": "CATS", "density": 0.0}), "density"),
    "all-pruned": (named(weights={"method": "Wanda", "pattern": 1.0}), "up to 0.95"),
    "starved-count": (named(weights={"bits": 2, "group": 1}), "16 columns or more"),
    "thousands-of-shares": (named(weights={"method": "Wanda", "by_block": [0.5] * 9000}), "by_block|shares|blocks"),
    "thousands-of-factors": (named(cache={"policy": "Full", "by_layer": [1.0] * 9000}), "9000 factors|by_layer"),
    "windows-bomb": (named(calibration={"windows": 128, "length": 2048}), "windows × length"),
    "huge-windows": (named(calibration={"windows": 10**9}), "expected 1 to 128"),
    "rank-bomb": (
        named(neurons={"selector": "LowRank", "settings": {"rank": 10**9}}),
        "expected at most|expected 0 to",
    ),
    "outside": (named(prompt={"file": "../alice/p.safetensors"}), "without a folder"),
    "absolute": (named(prompt={"file": "/etc/p.safetensors"}), "without a folder"),
    "backslash": (named(prompt={"file": "..\\p.safetensors"}), "without a folder"),
    "null-byte": (named(prompt={"file": "\0.safetensors"}), "without a folder"),
    "endless-name": (named(prompt={"file": "p" * 5000 + ".safetensors"}), "without a folder"),
    "no-prompt": (NAMES_IT, "which is missing"),
    "two-that-exclude": (named(cache={"policy": "H2O"}, attention={"rule": "FlexPrefill"}), "Leave the other out"),
}


def vectors_file(vectors, **metadata):
    return save({"vectors": vectors}, {"kind": "soft prompt", "origin": ""} | metadata)


def prompts(model):
    """name: (bytes of the prompt's file, what the reason says)"""
    table, good = fingerprint(model), torch.zeros(4, 48)
    return {
        "nan-prompt": (vectors_file(torch.full((4, 48), torch.nan), table=table), "NaN or infinite entries"),
        "infinite-prompt": (vectors_file(torch.full((4, 48), torch.inf), table=table), "NaN or infinite entries"),
        "past-half": (vectors_file(torch.full((4, 48), 1e30), table=table), "NaN or infinite entries"),
        "wide-prompt": (vectors_file(torch.zeros(4, 49), table=table), "49 wide"),
        "long-prompt": (vectors_file(torch.zeros(2000, 48), table=table), "more than 135,168 bytes"),
        "bytes-as-vectors": (
            vectors_file(torch.zeros(2000, 48, dtype=torch.int8), table=table),
            "2000 vectors for a model of 256 positions",
        ),
        "empty-prompt": (vectors_file(torch.zeros(0, 48), table=table), "P of at least 1"),
        "another-models": (vectors_file(good, table="0" * 16), "embedding table"),
        "tableless": (vectors_file(good), "does not say its table"),
        "another-kind": (save({"vectors": good}, {"kind": "weights"}), "no soft prompt"),
        "without-vectors": (save({"v": good}, {"kind": "soft prompt", "table": table, "origin": ""}), "cannot be read"),
        "pickle": (pickle.dumps({"vectors": [0.0]}), "cannot be read"),
        "lying-header": ((2**62).to_bytes(8, "little") + b"{}", "cannot be read"),
        "empty-file": (b"", "cannot be read"),
    }


@pytest.fixture(scope="module")
def attacked(tmp_path_factory, graded, sharp):
    """Every attack in one class, and one honest student."""
    folder = tmp_path_factory.mktemp("attacks")
    files = {name: (text, None) for name, (text, _) in RECIPES.items()}
    files |= {name: (NAMES_IT, content) for name, (content, _) in prompts(sharp).items()}
    files |= {"honest": (HONEST, None), "dense": ("{}", None)}
    for name, (text, content) in files.items():
        (folder / "in" / name).mkdir(parents=True)
        (folder / "in" / name / "recipe.json").write_text(text)
        if content is not None:
            (folder / "in" / name / FILE).write_bytes(content)
    (folder / "secret.safetensors").write_bytes(vectors_file(torch.zeros(4, 48), table=fingerprint(sharp)))
    for name, text in (("linked-prompt", NAMES_IT), ("linked-recipe", None)):
        (folder / "in" / name).mkdir()
        if text:
            (folder / "in" / name / "recipe.json").write_text(text)
            (folder / "in" / name / FILE).symlink_to(folder / "secret.safetensors")
        else:
            (folder / "in" / name / "recipe.json").symlink_to(folder / "in" / "honest" / "recipe.json")
    (folder / "in" / "notebook-alone").mkdir()
    (folder / "in" / "notebook-alone" / "12_capstone.ipynb").write_text("{}")
    code, rows, _ = graded(folder / "in", folder / "out")
    return code, rows


def refused(attacked, name, said):
    row = attacked[1][name]
    assert (row["points"], row["place"]) == ("0", "")
    assert re.search(said, row["reason"]), row["reason"]
    assert len(row["reason"]) < 1000


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_refused(attacked, name):
    refused(attacked, name, RECIPES[name][1])


PROMPTS = [
    *("nan-prompt", "infinite-prompt", "past-half", "wide-prompt", "long-prompt", "bytes-as-vectors", "empty-prompt"),
    *("another-models", "tableless", "another-kind", "without-vectors", "pickle", "lying-header", "empty-file"),
]


@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_is_refused(attacked, sharp, name):
    refused(attacked, name, prompts(sharp)[name][1])
    assert set(PROMPTS) == set(prompts(sharp))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("linked-prompt", "^the prompt 'p.safetensors': it is a link, which is not followed"),
        ("linked-recipe", "link"),
        ("notebook-alone", "no recipe"),
    ],
)
def test_a_link_is_not_followed_and_a_notebook_is_no_recipe(attacked, name, said):
    refused(attacked, name, said)


def test_nobody_else_is_harmed(attacked):
    code, rows = attacked
    assert code == 0  # none of it is taken for a fault of the grader
    assert (rows["honest"]["place"], rows["dense"]["place"]) == ("2", "1")
    assert float(rows["honest"]["points"]) > 0
    assert not any(row["reason"] == "" for row in rows.values())


def test_over_the_budget_earns_nothing(graded, tmp_path):
    (tmp_path / "in" / "greedy").mkdir(parents=True)
    (tmp_path / "in" / "greedy" / "recipe.json").write_text("{}")
    _, rows, _ = graded(tmp_path / "in", tmp_path / "out", budget=Budget(held=0.5, read=1.0))
    assert (rows["greedy"]["points"], rows["greedy"]["place"], rows["greedy"]["state"]) == ("0", "", "wrong")
    assert "The recipe is above the budget: 100.0% of the bytes stored, above 50.0%" in rows["greedy"]["reason"]


def test_a_budget_that_nobody_can_meet_ends_the_run(graded, tmp_path):
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "in" / "a" / "recipe.json").write_text(HONEST)
    with pytest.raises(ValueError, match="expected at least"):
        graded(tmp_path / "in", tmp_path / "out", budget=Budget(held=1.0, read=0.001))


def test_a_prompt_that_is_the_text_is_caught_by_the_second_domain(sharp, on_tiny, tmp_path):
    """Trained on the very windows of the first domain it gains there, loses in the other, and that one counts."""
    generator = torch.Generator().manual_seed(0)
    few = torch.randint(10, (8, 64), generator=generator)  # ten words of 97, which the model does not expect
    read = texts_of(sharp, n=8)
    at = tiny_judge(sharp, texts=replace(read, windows={FIRST: few, SECOND: read.windows[SECOND]}))
    start = from_vocabulary(sharp, 8, generator)
    recipe = PromptRecipe(n_steps=40, batch=8, warm_up=2, rate=0.3)
    save_prompt(train_prompt(sharp, start, few.repeat(40, 1), recipe, progress=False).prompt, tmp_path / FILE)
    dense = at.measure(from_json("{}"))
    found = at.measure(from_json(NAMES_IT), tmp_path)
    side = judged(found, dense)
    assert side.losses[FIRST][0] < -0.3
    assert side.losses[SECOND][0] > 0
    assert side.worse[0] == SECOND
    above = {domain: tuple(loss + 1 for loss in losses) for domain, losses in dense.losses.items()}
    anchors = Anchors(dense=dense.losses, uniform=above, master=dense.losses)
    assert points(found.losses, anchors).points < points(dense.losses, anchors).points == 20


def test_a_huge_prompt_is_judged_by_what_it_does(sharp, on_tiny):
    """Numbers as large as 16 bits hold are numbers: they get a loss, or a reason."""
    found = evaluation.evaluate(
        evaluation.Job(
            NAMES_IT.replace(FILE, "prompt.safetensors"),
            (("prompt.safetensors", vectors_file(torch.full((4, 48), 6e4), table=fingerprint(sharp))),),
        ),
        evaluation.Settings(seed=0),
    )
    assert not found.failed
    assert found.losses or found.problem


def test_a_defect_of_the_grader_is_not_the_students(sharp, on_tiny, monkeypatch):
    def broken(settings):
        raise KeyError("a defect")

    monkeypatch.setattr(evaluation, "judge", broken)
    found = evaluation.evaluate(evaluation.Job("{}"), evaluation.Settings(seed=0))
    assert found.failed
    assert "KeyError" in found.problem


# Where it lies ----------------------------------------------------------------------------------------------------


def test_as_course_systems_export_it(sharp, tmp_path):
    """Canvas puts files of all into one folder under names of its own; Moodle makes a folder each; zips stay zips."""
    prompt = vectors_file(torch.zeros(4, 48), table=fingerprint(sharp))
    flat = tmp_path / "canvas"
    flat.mkdir()
    for number, student in ((11, "alice"), (12, "bob")):
        (flat / f"{student}_{number}_501_recipe.json").write_text(NAMES_IT)
        (flat / f"{student}_{number}_502_{FILE}").write_bytes(prompt if student == "alice" else b"bob's")
    found = {work.student: work for work in handed_in(flat)}
    assert found["alice_11"].files == (("prompt.safetensors", prompt),)
    assert found["bob_12"].files == (("prompt.safetensors", b"bob's"),)
    again = {"bob_12_601_recipe-1.json": NAMES_IT, "bob_12_602_p-1.safetensors": "again"}
    for name, text in again.items():  # a later attempt
        (flat / name).write_text(text)
    with zipfile.ZipFile(tmp_path / "unopened.zip", "w") as archive:
        for path in flat.iterdir():
            archive.write(path, path.name)
        archive.writestr("eve_13_501_recipe.json", NAMES_IT)
    for where in (flat, tmp_path / "unopened.zip"):
        found = {work.student: work for work in handed_in(where)}
        assert found["alice_11"].files == (("prompt.safetensors", prompt),)
        assert found["bob_12"].files == (("prompt.safetensors", b"again"),)
    assert "which is missing; hand it in with the recipe" in found["eve_13"].problem
    moodle = tmp_path / "moodle" / "Jo Li_7_assignsubmission_file_"
    moodle.mkdir(parents=True)
    (moodle / "recipe.json").write_text(HONEST)
    (moodle / "package.json").write_text("{}")
    (moodle / "12_capstone.ipynb").write_text("{}")
    with zipfile.ZipFile(tmp_path / "moodle" / "Kim_8_assignsubmission_file_.zip", "w") as archive:
        archive.writestr("mine/recipe.json", NAMES_IT)
        archive.writestr(f"mine/{FILE}", prompt)
    found = {work.student: work for work in handed_in(tmp_path / "moodle")}
    assert found["Jo Li_7"].recipe == from_json(HONEST)
    assert found["Kim_8"].files == (("prompt.safetensors", prompt),)


CANVAS = {"alice_1_10_recipe.json": NAMES_IT, f"alice_1_11_{FILE}": "alice's"}
BY_HAND = {"alice.json": NAMES_IT.replace(FILE, "alice-p.safetensors"), "alice-p.safetensors": "alice's"}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("files", "own", "wanted", "said"),
    [
        (CANVAS, "mallory_2_12_recipe.json", f"alice_1_11_{FILE}", "another student has handed in"),
        (CANVAS, "mallory_2_12_recipe.json", f"ALICE_1_11_{FILE}", "which is missing"),
        (CANVAS, "mallory_2_12_recipe.json", FILE, "which is missing"),
        (CANVAS, "mallory.json", f"alice_1_11_{FILE}", "another student has handed in"),
        (CANVAS, "alice_recipe.json", f"alice_1_11_{FILE}", "another student has handed in"),
        (
            {f"Jo Li_7_assignsubmission_file_{FILE}": "jo's"},
            "Jo Lee_8_assignsubmission_file_recipe.json",
            f"Jo Li_7_assignsubmission_file_{FILE}",
            "another student has handed in",
        ),
        (BY_HAND, "mallory.json", "alice-p.safetensors", "another student has handed in"),
        (BY_HAND, "mallory.json", "./alice-p.safetensors", "without a folder"),
        (
            {"alice_recipe.json": "{}", "alice_p.safetensors": ""},
            "mallory_recipe.json",
            "alice_p.safetensors",
            "another",
        ),
        ({"alice.zip": "", "alice_p.safetensors": ""}, "mallory.json", "alice_p.safetensors", "another"),
        ({"ALICE.json": "{}", "alice_p.safetensors": ""}, "mallory.json", "alice_p.safetensors", "another"),
        ({"Jose\u0301.json": "{}", "Jos\u00e9-p.safetensors": ""}, "m.json", "Jos\u00e9-p.safetensors", "another"),
        ({"Jo Li.json": "{}", "Jo Li p.safetensors": ""}, "Jo Lee.json", "Jo Li p.safetensors", "another"),
    ],
)
def test_in_a_flat_folder_nobody_takes_the_file_of_another(files, own, wanted, said, packed, tmp_path):
    whose = _handed_in_flat(tmp_path, files | {own: named(prompt={"file": wanted})}, packed)
    problem = next(work.problem for work in whose if work.origin.endswith(own))
    assert said in problem, problem


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("files", "own", "wanted"),
    [
        (CANVAS, "alice_1_10_recipe.json", FILE),
        (CANVAS, "alice_1_10_recipe.json", f"alice_1_11_{FILE}"),  # as she sees it after a download
        (BY_HAND, "alice.json", "alice-p.safetensors"),
        (
            {"alice_recipe.json": "", "bob_recipe.json": "{}", "alice_p.safetensors": "alice's"},
            "alice_recipe.json",
            None,
        ),
        ({"bob.json": "{}", "bob-p.safetensors": "bob's", "p.safetensors": "alice's"}, "alice.json", FILE),
    ],
)
def test_in_a_flat_folder_everybody_has_a_file_of_ones_own(files, own, wanted, packed, tmp_path):
    recipe = named(prompt={"file": wanted or "alice_p.safetensors"})
    whose = _handed_in_flat(tmp_path, files | {"zoe_9_1_recipe.json": "{}"} | {own: recipe}, packed)
    work = next(work for work in whose if work.origin.endswith(own))
    assert (work.problem, work.files) == ("", (("prompt.safetensors", b"alice's"),))


@pytest.mark.parametrize("name", [f"alice_1_11_{FILE}", "bob-p.safetensors", FILE])
def test_in_a_folder_of_ones_own_files_have_any_names(name, tmp_path):
    """Such as those that Canvas gave them when they were handed in before."""
    for student, called in (("alice", name), ("bob", name), ("zoe", "z.safetensors")):
        (tmp_path / student).mkdir()
        (tmp_path / student / "recipe.json").write_text(named(prompt={"file": called}))
        (tmp_path / student / called).write_text(student)
    files = {work.student: work.files[0][1] for work in handed_in(tmp_path)}
    assert files == {"alice": b"alice", "bob": b"bob", "zoe": b"zoe"}


def _handed_in_flat(tmp_path, files, packed):
    (tmp_path / "in").mkdir()
    for name, text in files.items():
        (tmp_path / "in" / name).write_text(text)
    if not packed:
        return handed_in(tmp_path / "in")
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
        for path in sorted((tmp_path / "in").iterdir()):
            archive.write(path, path.name)
    return handed_in(tmp_path / "class.zip")


@dataclass(frozen=True, kw_only=True)
class Learned(FiledPart):
    """A part that no file of the library knows, which keeps as many numbers as its file has bytes."""

    name, place, most_on_disk = "learned", 9, 10

    def apply(self, making, ground):
        numbers = torch.zeros(self.path_in(ground.folder).stat().st_size)
        return making.with_(self.name, numbers, {"numbers": numbers}, nullcontext)

    def n_bytes(self, making):
        return making.found[self.name].nbytes

    def in_words(self):
        return "A part with learned numbers."


def test_the_files_of_all_parts_come_along(sharp, graded, tmp_path, monkeypatch):
    monkeypatch.setitem(PARTS, Learned.name, Learned)
    prompt = vectors_file(torch.zeros(4, 48), table=fingerprint(sharp))
    for student, content in {"both": b"seven b", "large": b"eleven byte", "none": None}.items():
        folder = tmp_path / "in" / student
        folder.mkdir(parents=True)
        (folder / "recipe.json").write_text(named(prompt={"file": FILE}, learned={"file": "l.safetensors"}))
        (folder / FILE).write_bytes(prompt)
        if content is not None:
            (folder / "l.safetensors").write_bytes(content)
    (tmp_path / "in" / "dense").mkdir()
    (tmp_path / "in" / "dense" / "recipe.json").write_text("{}")
    _, rows, _ = graded(tmp_path / "in", tmp_path / "out")
    found = json.loads((tmp_path / "out" / "challenge.json").read_text())["rows"]
    stored = {row["student"]: row["judged"]["found"]["stored"] for row in found if row["judged"]}
    assert stored["both"] - stored["dense"] == 7 * 4 + 4 * 48 * 2
    assert "learned of more than 10 bytes" in rows["large"]["reason"]
    assert "learned' reads 'l.safetensors', which is missing" in rows["none"]["reason"]


def test_a_text_that_tells_no_recipes_apart_is_refused_before_the_class_is_measured(
    graded, on_tiny, tmp_path, monkeypatch
):
    (tmp_path / "in" / "honest").mkdir(parents=True)
    (tmp_path / "in" / "honest" / "recipe.json").write_text(HONEST)
    before = len(on_tiny)

    def check(anchors):
        raise ValueError("all alike")

    monkeypatch.setattr(Anchors, "check", check)
    with pytest.raises(ValueError, match="all alike"):
        graded(tmp_path / "in", tmp_path / "out")
    assert len(on_tiny) - before == 3


def test_more_windows_may_take_longer_and_another_machine_measures_anew(tmp_path, monkeypatch):
    few, many = (run._settings(run.Request(tmp_path, tmp_path, seed=1, windows=n)) for n in (4, 64))
    assert many.seconds == 16 * few.seconds
    key = many.key
    monkeypatch.setattr(evaluation, "processor_name", lambda: "another")
    assert many.key != key
