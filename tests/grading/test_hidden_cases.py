"""Hidden cases of every exercise, discovered: fair to every right answer, and no gift to a wrong one.

They are judged together with the cases of `check`, on seeds that students do not have. What the named mistakes give on
them is known here anyway, so two rules that need all mistakes are tested here too: what an answer earns, and which
answers get no name.
"""

import dataclasses
import functools
import types

import pytest
import torch
from forgeries import FORGED
from further_answers import FURTHER
from recognised import misjudged, only_raises
from torch import Tensor

from course_lib.checking.call import Outcome
from course_lib.checking.judge import conclude
from course_lib.checking.known import Known, difference
from course_lib.grading.hidden_cases import hidden_cases
from course_lib.workbook.catalogue import all_exercises

SEEDS = (4101, 4102, 4103)
EXERCISES = {exercise.id: exercise for exercise in all_exercises()}


@functools.cache
def drawn(name, seed):
    """(cases of check, hidden cases), drawn as for a student."""
    generator = torch.Generator().manual_seed(seed)
    exercise = EXERCISES[name]
    return exercise.cases(generator), hidden_cases(exercise, generator)


@functools.cache
def known(name, seed):
    """All of these cases, and what the functions of the exercise do on them."""
    visible, hidden = drawn(name, seed)
    return Known(EXERCISES[name], visible + hidden)


def cases_of(name, seed):
    return known(name, seed).cases


def expected(name, seed):
    return known(name, seed).expected


def outcomes(function, name, seed):
    """Called once, whether it is asked for here or in a verdict."""
    return [known(name, seed).outcome(function, at) for at in range(len(cases_of(name, seed)))]


def differences(exercise, seed, outcomes):
    cases = cases_of(exercise.id, seed)
    return [difference(exercise, *each) for each in zip(cases, outcomes, expected(exercise.id, seed), strict=True)]


@pytest.fixture(params=EXERCISES.values(), ids=EXERCISES)
def exercise(request):
    return request.param


def is_data(value):
    """Whether the sandbox can be handed it as data."""
    if isinstance(value, tuple):
        return all(map(is_data, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_data(item) for key, item in value.items())
    return type(value) in (Tensor, int, float, bool, str)


def same(one, other):
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


def test_there_are_at_least_two_under_names_of_their_own(exercise):
    visible, hidden = drawn(exercise.id, SEEDS[0])
    assert len(hidden) >= 2
    said = [case.name for case in hidden]
    assert len(set(said)) == len(said)
    assert not {case.name for case in visible} & set(said)
    assert all(10 <= len(name) <= 80 for name in said), "it is all that a student is told"


def test_they_are_data_small_and_drawn_from_the_generator(exercise):
    hidden, again = (hidden_cases(exercise, torch.Generator().manual_seed(7)) for _ in range(2))
    for case, other in zip(hidden, again, strict=True):
        assert all(map(is_data, case.arguments)), case.name
        tensors = [x for x in case.arguments if isinstance(x, Tensor)]
        assert sum(x.nbytes for x in tensors) < 2**20
        assert all(x.isfinite().all() for x in tensors)
        assert all(map(same, case.arguments, other.arguments))
    other = hidden_cases(exercise, torch.Generator().manual_seed(8))
    assert not all(all(map(same, a.arguments, b.arguments)) for a, b in zip(hidden, other, strict=True))


def test_no_hidden_case_is_one_of_check(exercise):
    visible, hidden = drawn(exercise.id, SEEDS[0])
    for case in hidden:
        assert not any(all(map(same, case.arguments, each.arguments)) for each in visible), case.name


def test_an_exercise_without_hidden_cases_is_an_error(exercise):
    with pytest.raises(ValueError, match=r"no hidden cases; expected HIDDEN\['nowhere.step'\]"):
        hidden_cases(dataclasses.replace(exercise, id="nowhere.step"), torch.Generator())
    lesson = exercise.id.split(".")[0]
    with pytest.raises(ValueError, match=rf"HIDDEN\['{lesson}.other'\] in course_lib/grading/hidden_cases/{lesson}.py"):
        hidden_cases(dataclasses.replace(exercise, id=f"{lesson}.other"), torch.Generator())


def test_the_reference_is_right_and_finite(exercise):
    for seed in SEEDS:
        cases = cases_of(exercise.id, seed)
        found = conclude(known(exercise.id, seed), outcomes(exercise.reference, exercise.id, seed))
        assert (found.state, found.n_right) == ("right", len(cases)), found.difference
        for value in expected(exercise.id, seed):
            leaves = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]
            leaves = [part for leaf in leaves for part in (leaf.values() if isinstance(leaf, dict) else [leaf])]
            numbers = [leaf for leaf in leaves if not isinstance(leaf, str)]
            assert all(torch.as_tensor(leaf, dtype=torch.float64).isfinite().all() for leaf in numbers)


def test_every_exercise_has_one_more_right_answer():
    assert set(FURTHER) == set(EXERCISES), "write a right answer of your own for each exercise in further_answers.py"


def test_right_answers_earn_everything(exercise):
    ways = {variant.name: variant.function for variant in exercise.also_right} | {"one more": FURTHER[exercise.id]}
    refused = [
        f"{exercise.id}-{name}, seed {seed}, {case.name}: {said}"
        for name, function in ways.items()
        for seed in SEEDS
        for case, said in zip(
            cases_of(exercise.id, seed),
            differences(exercise, seed, outcomes(function, exercise.id, seed)),
            strict=True,
        )
        if said
    ]
    assert not refused, "\n".join(refused)


@functools.cache
def verdicts(name, seed):
    """(mistake, which way to write it, the verdict on that), for all of an exercise."""
    return [
        (mistake, way, conclude(known(name, seed), outcomes(function, name, seed)))
        for mistake in EXERCISES[name].mistakes
        for way, function in enumerate(mistake.functions)
    ]


def mistakes_are_rejected_and_recognised(exercise):
    missed = [
        f"{exercise.id}-{mistake.name}, written in way {way}, seed {seed}: {why}"
        for seed in SEEDS
        for mistake, way, found in verdicts(exercise.id, seed)
        if (why := misjudged(mistake, found))
    ]
    assert not missed, "\n".join(missed)


# These raise, or never end, on every wrong case. Give new mistakes a way to write them that returns a value.
ONLY_RAISE = {
    ("dejavu.gathered", "fails without neurons"),
    ("compress.labels", "fails without a prompt"),
    ("capstone.gain", "0/0 where all are accepted"),
}


def every_mistake_can_be_recognised(exercise):
    found = [each for seed in SEEDS for each in verdicts(exercise.id, seed)]
    recognisable = {mistake.name for mistake, _, verdict in found if not only_raises(verdict)}
    assert {(exercise.id, mistake.name) for mistake, *_ in found if mistake.name not in recognisable} <= ONLY_RAISE


def right_cases(verdict):
    return frozenset(at for at, said in enumerate(verdict.differences) if said is None)


def credit_depends_on_the_right_cases_alone(exercise):
    """Each case counts the same, easy ones only together with a harder one, and no name changes that."""
    for seed in SEEDS:
        for mistake, way, found in verdicts(exercise.id, seed):
            right = right_cases(found)
            fraction = 0.0 if known(exercise.id, seed).ways(sorted(right)) else len(right) / found.n_cases
            assert found.share == fraction, f"{mistake.name}, way {way}, seed {seed}"


def more_right_cases_never_earn_less(exercise):
    for seed in SEEDS:
        earned = {(right_cases(found), found.share) for *_, found in verdicts(exercise.id, seed)}
        assert not [(more, less) for more, a in earned for less, b in earned if less <= more and b > a]


# Text, a number, and a tensor of a shape that no exercise asks for
NONSENSE = ("nonsense", 1234.5, torch.full((7, 1, 3), 0.5))

TRUE_OF_A_NUMBER = {("minitron.aggregate", "one number for all")}  # judged up to a factor, so this names 1234.5 rightly


def nonsense(exercise, seed):
    """Outcomes that no slip of the exercise explains: errors of every kind that its mistakes end in, and nonsense."""
    right = [Outcome(value) for value in expected(exercise.id, seed)]
    n, kept = len(right), known(exercise.id, seed)
    ends = [kept.outcome(f, at).error for mistake in exercise.mistakes for f in mistake.functions for at in range(n)]
    for kind in {error.split(":")[0] for error in ends if error} | {"it raised RuntimeError"}:
        error = Outcome(error=f"{kind}: nonsense")
        for at in range(n):
            yield [Outcome(NONSENSE[at % len(NONSENSE)]) if i == at else error for i in range(n)]
            yield [right[i] if i == at else error for i in range(n)]
            yield [error if i == at else right[i] for i in range(n)]
    yield from ([Outcome(value)] * n for value in NONSENSE)


def nonsense_gets_no_name(exercise):
    found = [conclude(known(exercise.id, SEEDS[0]), answer) for answer in nonsense(exercise, SEEDS[0])]
    assert {(exercise.id, verdict.mistake.name) for verdict in found if verdict.mistake} <= TRUE_OF_A_NUMBER


def test_rules_about_named_mistakes(exercise):
    """One test for all, since what the mistakes give on every case takes longest and is found once per process."""
    mistakes_are_rejected_and_recognised(exercise)
    every_mistake_can_be_recognised(exercise)
    credit_depends_on_the_right_cases_alone(exercise)
    more_right_cases_never_earn_less(exercise)
    nonsense_gets_no_name(exercise)


def test_forged_answers_earn_nothing(exercise):
    cases, right = cases_of(exercise.id, SEEDS[0]), expected(exercise.id, SEEDS[0])
    for name, forge in FORGED.items():
        found = differences(exercise, SEEDS[0], [Outcome(forge(*each)) for each in zip(cases, right, strict=True)])
        passed = [case.name for case, said in zip(cases, found, strict=True) if not said]
        assert not passed, f"{name} is taken for right: {passed}"
        assert all(len(said) < 1000 for said in found)


def test_a_comparison_that_raises_counts_as_wrong(exercise):
    broken = dataclasses.replace(exercise, agree=lambda got, expected, case: 1 / 0)
    case, value = drawn(exercise.id, SEEDS[0])[1][-1], expected(exercise.id, SEEDS[0])[-1]
    assert difference(broken, case, Outcome(value), value)
    assert difference(exercise, case, Outcome(types.SimpleNamespace(shape=(1,))), value)
