"""Distillation: losses against hand and torch, gradients that vanish at the teacher, runs that end and go on."""

import copy
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from course_lib.attention.small_models.byte_model import untrained
from course_lib.attention.small_models.training import Schedule
from course_lib.models import blocks, tiny_model
from course_lib.pruning.structured import distillation
from course_lib.pruning.structured.choice import Scores, choose
from course_lib.pruning.structured.distillation import NotFinite, distil
from course_lib.pruning.structured.losses import hidden_states, kl_divergence, next_token
from course_lib.pruning.structured.recipe import Recipe, batch_of
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.random_scores import Random
from course_lib.pruning.structured.shape import shape_of
from course_lib.pruning.structured.surgery import take

WINDOWS = torch.randint(0, 97, (8, 16), generator=torch.Generator().manual_seed(3))
RECIPE = Recipe(schedule=Schedule(n_steps=6, batch=2, length=16, rate=3e-3, warm_up=2, decay=0.01), every=2)


@pytest.fixture
def teacher():
    model, generator = tiny_model(), torch.Generator().manual_seed(1)
    for parameter in model.parameters():  # with logits that are not all alike
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.fixture
def pair(teacher):
    shape = shape_of(teacher)
    kept = choose(Random().score(Evidence(teacher, WINDOWS, False)), shape, replace(shape, neurons=60, blocks=1))
    return take(teacher, kept), kept


def test_kl_by_hand():
    # Teacher (1/2, 1/2), student (3/4, 1/4): ½ log(½ / ¾) + ½ log(½ / ¼) = ½ log(4/3); the second token agrees.
    student = torch.tensor([[3.0, 1.0], [2.0, 2.0]]).log()
    teacher = torch.tensor([[1.0, 1.0], [5.0, 5.0]]).log()
    assert kl_divergence(student, teacher).item() == pytest.approx(0.5 * math.log(4 / 3) / 2)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_kl_against_torch(temperature):
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(2, 5, 11, generator=generator) for _ in range(2))
    logs = [log_softmax(logits / temperature, -1).flatten(0, 1) for logits in (student, teacher)]
    expected = temperature**2 * kl_div(*logs, log_target=True, reduction="batchmean")  # over tokens, not words
    torch.testing.assert_close(kl_divergence(student, teacher, temperature), expected)


def test_a_token_that_the_teacher_rules_out_adds_nothing():
    """Student (1/3, 1/3, 1/3), teacher (1/2, 1/2, 0): ln 3 − ln 2; both may rule it out."""
    student, teacher = torch.zeros(1, 3, requires_grad=True), torch.tensor([[0.0, 0.0, -torch.inf]])
    loss = kl_divergence(student, teacher)
    assert loss.item() == pytest.approx(math.log(3) - math.log(2))
    (gradient,) = torch.autograd.grad(loss, student)
    torch.testing.assert_close(gradient, torch.tensor([[1 / 3 - 1 / 2, 1 / 3 - 1 / 2, 1 / 3]]))
    assert kl_divergence(teacher, teacher).item() == 0
    assert kl_divergence(teacher, student.detach()).item() == math.inf  # a student that rules out what may come


def test_nan_stays_nan_in_the_divergence():
    logits = torch.tensor([[0.0, torch.nan]])
    assert kl_divergence(logits, torch.zeros(1, 2)).isnan()
    assert kl_divergence(torch.zeros(1, 2), logits).isnan()


def test_only_the_student_learns_and_nothing_at_the_teacher_s_own_logits():
    logits = torch.randn(3, 7, generator=torch.Generator().manual_seed(0))
    student, teacher = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    kl_divergence(student, teacher).backward()
    assert teacher.grad is None
    assert student.grad.abs().max() < 1e-7


def test_next_token_against_torch():
    logits = torch.randn(2, 4, 7, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[1, 2, 3, 4], [0, 6, 5, 2]])
    terms = [cross_entropy(logits[n, t], ids[n, t + 1]) for n in range(2) for t in range(3)]
    torch.testing.assert_close(next_token(logits, ids), torch.stack(terms).mean())


def test_hidden_states_by_hand():
    ours, theirs = [torch.tensor([[[1.0, 2.0]]])], [torch.tensor([[[3.0, 4.0]]])]
    assert hidden_states(ours, theirs).item() == pytest.approx(4.0 / 12.5)


def _of_three_blocks(family):
    """Without dropout, whose masks would differ between student and teacher; norms that change what they read."""
    config = copy.deepcopy(tiny_model(0, family).config)
    config.num_hidden_layers, config.layer_types = 3, ["full_attention"] * 3
    for rate in ("dropout", "attention_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop"):
        if hasattr(config, rate):
            setattr(config, rate, 0.0)
    model, generator = untrained(config, 0).eval(), torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


FAMILIES = ["llama", "qwen3", "gpt2", "opt"]


@pytest.mark.parametrize("family", FAMILIES)
def test_uncut_blocks_have_no_loss_on_hidden_states_although_later_blocks_were_cut(family):
    """Blocks 0 and 1 of three are the teacher's own: their outputs are equal, so that the logits' loss is all."""
    teacher = _of_three_blocks(family)
    shape = shape_of(teacher)
    scores = Scores(blocks=torch.tensor([3.0, 2.0, 1.0]))
    kept = choose(scores, shape, replace(shape, blocks=2))
    recipe = replace(RECIPE, schedule=replace(RECIPE.schedule, n_steps=1))
    losses = [
        distil(take(teacher, kept), teacher, WINDOWS, replace(recipe, hidden=hidden), of_teacher=[0, 1], progress=False)
        for hidden in (0.0, 1.0)
    ]
    assert losses[0] == losses[1]
    assert losses[0][0] > 0.1


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_are_those_that_hooks_on_the_blocks_see(family, monkeypatch):
    """All blocks kept: the last outputs compared come before the final norm too, of student and teacher."""
    teacher = _of_three_blocks(family)
    student, compared = copy.deepcopy(teacher), []
    for parameter in student.parameters():
        parameter.data *= 1.01
    seen = {}
    for name, model in (("student", student), ("teacher", teacher)):
        seen[name] = []
        for block in blocks(model):
            block.register_forward_hook(lambda _, __, output, name=name: seen[name].append(output.detach()))

    def recorded(ours, theirs):
        compared.append((ours, theirs))
        return hidden_states(ours, theirs)

    monkeypatch.setattr(distillation, "hidden_states", recorded)
    recipe = replace(RECIPE, hidden=1.0, schedule=replace(RECIPE.schedule, n_steps=1))
    distil(student, teacher, WINDOWS, recipe, of_teacher=[0, 1, 2], progress=False)
    ((ours, theirs),) = compared
    for states, name in ((ours, "student"), (theirs, "teacher")):
        assert len(states) == 3
        assert all(torch.equal(state, hooked) for state, hooked in zip(states, seen[name], strict=True))


def test_the_loss_falls_and_the_teacher_stays(pair, teacher):
    student, _ = pair
    before = copy.deepcopy(teacher.state_dict())
    losses = distil(
        student, teacher, WINDOWS, replace(RECIPE, schedule=replace(RECIPE.schedule, n_steps=25)), progress=False
    )
    assert len(losses) == 25
    assert sum(losses[-4:]) < 0.6 * sum(losses[:4])
    assert not student.training
    assert not teacher.training
    for name, value in teacher.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(parameter.grad is None and parameter.requires_grad for parameter in student.parameters())


def test_the_teacher_is_asked_in_evaluation_mode_and_without_gradients(pair, teacher):
    """Given in training mode with dropout, it says what it says without; and it is given back in that mode."""
    student, _ = pair
    expected = distil(copy.deepcopy(student), teacher, WINDOWS, RECIPE, progress=False)
    seen = []
    teacher.lm_head.register_forward_hook(lambda module, _, out: seen.append((module.training, out.requires_grad)))
    for layer in teacher.model.layers:
        layer.self_attn.attention_dropout = 0.5  # which attention reads in training mode alone
    teacher.train()
    teacher.model.norm.eval()  # one part frozen by whoever gave it
    assert distil(student, teacher, WINDOWS, RECIPE, progress=False) == expected
    assert seen == [(False, False)] * 6
    assert teacher.training
    assert not teacher.model.norm.training
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_the_teacher_teaches_itself_nothing(teacher):
    student = copy.deepcopy(teacher)
    losses = distil(
        student,
        teacher,
        WINDOWS,
        replace(RECIPE, schedule=replace(RECIPE.schedule, decay=0.0, n_steps=1)),
        progress=False,
    )
    assert losses == [pytest.approx(0, abs=1e-6)]


@pytest.mark.parametrize(
    "settings", [{}, {"loss": "next token"}, {"hidden": 1.0}, {"lora_rank": 2}, {"temperature": 2.0}]
)
def test_a_run_that_is_interrupted_goes_on_to_the_last_bit(settings, pair, teacher, tmp_path, monkeypatch):
    recipe, (student, kept) = replace(RECIPE, **settings), pair
    options = {"of_teacher": kept.blocks.tolist(), "progress": False}
    whole = copy.deepcopy(student)
    expected = distil(whole, teacher, WINDOWS, recipe, **options)
    for stop in (0, 3, 4):  # before anything was written, between two states, right after one
        broken, folder = copy.deepcopy(student), tmp_path / str(stop)

        def interrupted(windows, recipe, step, stop=stop):
            if step == stop:
                raise KeyboardInterrupt
            return batch_of(windows, recipe, step)

        with monkeypatch.context() as patch:
            patch.setattr(distillation, "batch_of", interrupted)
            with pytest.raises(KeyboardInterrupt):
                distil(broken, teacher, WINDOWS, recipe, folder=folder, **options)
        again = copy.deepcopy(student)
        assert distil(again, teacher, WINDOWS, recipe, folder=folder, **options) == expected
        for ours, theirs in zip(again.parameters(), whole.parameters(), strict=True):
            assert torch.equal(ours, theirs)
    assert [name for name, _ in again.named_parameters()] == [name for name, _ in student.named_parameters()]


# One process that forks a run for each moment at which it is killed: before a step, and inside of a save, whose file is
# half written, or whole and not yet in its place.
KILLED = """
import os, signal, sys
from pathlib import Path
import test_distillation as here
from course_lib.pruning.structured import distillation, state

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def run(moment, folder):
    batch_of, save, replace = distillation.batch_of, here.torch.save, os.replace
    kind, _, number = moment.partition(" ")
    if kind == "step":
        distillation.batch_of = lambda w, r, step: kill() if step == int(number) else batch_of(w, r, step)
    saves = []
    def saving(content, file):
        saves.append(1)
        if kind == "save" and len(saves) == int(number):
            file.write(b"half a state")
            file.flush()
            kill()
        save(content, file)
        if kind == "saved" and len(saves) == int(number):
            file.flush()
            kill()
    here.torch.save = saving
    here.torch.set_num_threads(int(sys.argv[2]))
    distillation.distil(here.tiny_model(1), here.tiny_model(0), here.WINDOWS, here.RECIPE, folder=folder)

for moment in here.MOMENTS:
    if not (child := os.fork()):
        run(moment, Path(sys.argv[1]) / moment)
        os._exit(0)
    print(moment, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sep=":", flush=True)
"""
MOMENTS = [*(f"step {step}" for step in range(6)), *(f"{kind} {n}" for kind in ("save", "saved") for n in (1, 2, 3))]


def test_a_run_that_is_killed_at_any_step_goes_on_to_the_last_bit(tmp_path):
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(distillation.__file__).parents[3])])
    line = [sys.executable, "-c", KILLED, str(tmp_path), str(torch.get_num_threads())]
    killed = subprocess.run(line, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert killed.stdout.splitlines() == [f"{moment}:{-signal.SIGKILL}" for moment in MOMENTS], killed.stderr
    whole = tiny_model(1)
    once = distil(whole, tiny_model(0), WINDOWS, RECIPE, progress=False)
    for moment in MOMENTS:
        held = (tmp_path / moment / distillation.STATE).exists()
        assert held == (int(moment.split()[1]) > 1)  # every two steps; half a file is not in its place
        again = tiny_model(1)
        assert distil(again, tiny_model(0), WINDOWS, RECIPE, folder=tmp_path / moment, progress=False) == once
        for ours, theirs in zip(again.parameters(), whole.parameters(), strict=True):
            assert torch.equal(ours, theirs)


def test_pieces_are_one_run_and_never_go_back(pair, teacher, tmp_path):
    student, _ = pair
    whole, options = copy.deepcopy(student), {"progress": False}
    expected = distil(whole, teacher, WINDOWS, RECIPE, **options)
    for until in (0, 1, 3, 6, 9):
        part = copy.deepcopy(student)
        losses = distil(part, teacher, WINDOWS, RECIPE, folder=tmp_path, until=until, **options)
        assert losses == expected[:until]
    for ours, theirs in zip(part.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(ValueError, match="until=3, and a run in .* that is at step 6 already"):
        distil(copy.deepcopy(student), teacher, WINDOWS, RECIPE, folder=tmp_path, until=3, **options)


def test_windows_come_once_each_before_any_comes_again():
    windows = torch.arange(7)[:, None].repeat(1, 3)
    batches = [batch_of(windows, RECIPE, step)[:, 0].tolist() for step in range(6)]
    for first in (0, 3):
        assert len({window for batch in batches[first : first + 3] for window in batch}) == 6
    assert batches[:3] != batches[3:]


def test_a_loss_that_is_no_number_keeps_the_last_sound_weights(pair, teacher, tmp_path):
    student, _ = pair
    three = replace(RECIPE, schedule=replace(RECIPE.schedule, rate=1e-3))
    calls = []
    handle = teacher.lm_head.register_forward_hook(
        lambda *args: calls.append(0) or (args[2] * float("nan") if len(calls) > 3 else None)
    )
    twin = copy.deepcopy(student)
    with pytest.raises(
        NotFinite, match=r"loss of step 4 is nan; the student has the weights of step 3\. Lower the rate"
    ):
        distil(student, teacher, WINDOWS, three, folder=tmp_path, progress=False)
    handle.remove()
    state = torch.load(tmp_path / distillation.STATE, weights_only=True)
    assert len(state["losses"]) == 2
    assert all(parameter.isfinite().all() for parameter in student.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(student.parameters(), twin.parameters(), strict=True))
    assert len(distil(twin, teacher, WINDOWS, three, folder=tmp_path, progress=False)) == 6


REFUSED = {
    "another vocabulary": (lambda s, t, w, r: (s, _of_vocabulary(98), w, r), "98; expected one vocabulary"),
    "no teacher": (lambda s, t, w, r: (s, None, w, r), "got no teacher"),
    "one token": (lambda s, t, w, r: (s, t, w[:, :1], r), "at least two tokens"),
    "too few windows": (lambda s, t, w, r: (s, t, w[:1], r), "at least 2 of them"),
    "no temperature": (lambda s, t, w, r: (s, t, w, replace(r, temperature=0.0)), "expected a number above 0"),
    "states without pairs": (lambda s, t, w, r: (s, t, w, replace(r, hidden=1.0)), r"kept\.blocks"),
}


def _of_vocabulary(size):
    model = tiny_model()
    model.resize_token_embeddings(size)
    return model


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason, pair, teacher):
    change, words = REFUSED[reason]
    student, _ = pair
    before = copy.deepcopy(student.state_dict())
    with pytest.raises(ValueError, match=words):
        distil(*change(student, teacher, WINDOWS, RECIPE), progress=False)
    assert all(torch.equal(value, before[name]) for name, value in student.state_dict().items())


def test_the_state_of_another_run_is_refused_and_kept(pair, teacher, tmp_path):
    student, _ = pair
    first, other = copy.deepcopy(student), copy.deepcopy(student)
    distil(student, teacher, WINDOWS, RECIPE, folder=tmp_path, progress=False)
    content = (tmp_path / distillation.STATE).read_bytes()
    for windows, recipe, name in ((WINDOWS + 0, replace(RECIPE, seed=1), "recipe"), (WINDOWS.flip(0), RECIPE, "text")):
        with pytest.raises(ValueError, match=f"another {name}"):
            distil(other, teacher, windows, recipe, folder=tmp_path, progress=False)
    for changed in ("student", "teacher"):
        models = {"student": copy.deepcopy(first), "teacher": copy.deepcopy(teacher)}
        models[changed].config.rms_norm_eps = 0.1  # no weight says so
        with pytest.raises(ValueError, match=f"another {changed} configuration"):
            distil(models["student"], models["teacher"], WINDOWS, RECIPE, folder=tmp_path, progress=False)
    with pytest.raises(ValueError, match="another student"):
        distil(tiny_model(), teacher, WINDOWS, RECIPE, folder=tmp_path, progress=False)
    assert (tmp_path / distillation.STATE).read_bytes() == content
    (tmp_path / distillation.STATE).write_bytes(content[:100])
    with pytest.raises(ValueError, match="cannot be read; remove it"):
        distil(first, teacher, WINDOWS, RECIPE, folder=tmp_path, progress=False)
