"""Cases that can be had without the idea: which they are, and when they count. Worked by hand on made-up exercises."""

import dataclasses

import pytest
import torch

from course_lib.checking import trivial
from course_lib.checking.call import Outcome, Recorded, call
from course_lib.checking.compare import plain
from course_lib.checking.exercise import Case, Exercise, Mistake, Trivial
from course_lib.checking.judge import counted, judge, uncounted, verdict
from course_lib.checking.known import Known, drawn
from course_lib.workbook.progress import Record
from course_lib.workbook.show import as_text


def made(reference, *arguments, drawn=True, **fields):
    """An exercise with such cases, the first as it is, the others with a number of their own unless not drawn."""

    def cases(generator):
        shift = torch.rand((), generator=generator, dtype=torch.float64).item() * drawn
        first, *others = (Case(f"case {at}", each) for at, each in enumerate(arguments))
        moved = (tuple(x + shift if isinstance(x, float) else x for x in each.arguments) for each in others)
        return [first, *(dataclasses.replace(each, arguments=m) for each, m in zip(others, moved, strict=True))]

    described = {"id": "made.up", "title": "Made up", "difficulty": 1, "minutes": 1, "points": 3, "hints": ("Think.",)}
    return Exercise(**described | {"mistakes": (), "also_right": ()} | fields, reference=reference, cases=cases)


def found(exercise, which=None, seed=0):
    """By what each case, or all of some, can be had."""
    known = drawn(exercise, seed)
    return known.ways(which) if which else [known.ways([at]) for at in range(len(known.cases))]


def test_zeros_what_was_given_and_the_worked_example_need_no_idea():
    square = made(lambda x: x * x, (3.0,), (0.5,), (torch.zeros(2),), (torch.ones(2),), (torch.tensor([2.0, 3.0]),))
    assert found(square) == [
        (trivial.BY_HEART,),
        (),
        ("returning zeros",),
        ("returning ones",),
        (trivial.BY_HEART,),  # a tensor, which the exercise above does not draw
    ]
    assert found(square, [0, 2]) == (trivial.BY_HEART,)
    assert found(square, [0, 1, 2]) == ()


def test_as_few_ways_are_named_as_that_takes():
    twice = made(lambda x: 2 * x, (torch.zeros(2),), (torch.full((2,), 0.5),), (torch.zeros(3),), by_heart=())
    assert found(twice) == [("returning zeros",), ("returning ones",), ("returning zeros",)]
    assert found(twice, [0, 1, 2]) == ("returning zeros", "returning ones")
    assert found(twice, [0, 2]) == ("returning zeros",)


@pytest.mark.parametrize(
    ("value", "way"),
    [
        (torch.tensor([[True, True, False], [True, True, False]]), "taking the first"),
        (torch.tensor([[False, True, True], [False, True, True]]), "taking the last"),
        (torch.tensor([[True, True, True], [False, False, False]]), "taking the first"),  # of each column, and of all
        (torch.tensor([[False, False, False], [True, True, True]]), "taking the last"),
        (torch.tensor([[True, True, False], [True, False, False]]), None),  # as many for every row, or it has looked
        (torch.tensor([[True, False, True], [True, False, True]]), None),
        (torch.zeros(2, 3), "returning zeros"),
        (torch.arange(6.0).reshape(2, 3)[:, :2], "taking the first"),
        (torch.arange(6.0).reshape(2, 3)[1:], "taking the last"),
        (torch.arange(6.0).reshape(3, 2), "returning what was given"),
        (torch.arange(6.0).reshape(2, 3) + 1, None),
        ((0, 1), "taking the first"),
        ((5, 6), "taking the last"),  # of the seven that are given
        ((0, 6), None),
        ((torch.arange(6.0).reshape(2, 3)[:, :1], torch.tensor([0])), "taking the first"),
        ({"a": 7, "b": 7}, "returning what was given"),
        ((torch.arange(6.0).reshape(2, 3), 7), "returning what was given"),
        ("CSR", None),
        (12.5, None),
    ],
    ids=str,
)  # fmt: skip
def test_each_way_is_known_and_no_other(value, way):
    exercise = made(lambda *_: value, ("the worked example",), (torch.arange(6.0).reshape(2, 3), 7))
    cases = exercise.cases(torch.Generator().manual_seed(0))[1:]
    not_seen = dataclasses.replace(exercise, by_heart=())
    assert Known(not_seen, cases).ways([0]) == ((way,) if way else ())


def test_an_exercise_adds_what_is_trivial_there():
    assert found(made(max, (2.0, 5.0), (4.0, 3.5))) == [("returning what was given",)] * 2
    half = made(lambda a: a / 2, (6.0,), (4.0,), trivial=(Trivial("dividing by two", lambda a: a / 2),))
    assert found(half)[1] == ("dividing by two",)
    recorded = Trivial("dividing by two", Recorded((Outcome(error="no"), Outcome(2.0))))
    assert found(
        dataclasses.replace(half, trivial=(recorded,), cases=lambda g: [Case("a", (6.0,)), Case("b", (4.0,))])
    ) == [
        (trivial.BY_HEART,),
        ("dividing by two",),
    ]


def test_what_is_right_of_two_cases_needs_no_look_at_either():
    count = made(lambda x: len(x), ("ab",), ("aba",), ("bab",), ("abbab",), by_heart=())
    assert found(count) == [(), (trivial.ONE_FOR_ALL,), (trivial.ONE_FOR_ALL,), ()]


def test_only_cases_that_everybody_has_seen_can_be_known_by_heart():
    exercise = made(lambda x: 2 * x, (7.0,), (3.0,))
    cases = exercise.cases(torch.Generator().manual_seed(5))
    hidden = [Case("a hidden one", (11.0,))]
    assert trivial.by_heart(exercise, cases + hidden) == {0}
    assert trivial.by_heart(made(lambda x: 2 * x, (7.0,), (3.0,), drawn=False), cases) == {0}
    assert trivial.by_heart(made(lambda x: 2 * x, (7.0,), (3.0,), drawn=False), hidden + cases) == set()


# When they count ------------------------------------------------------------------------------------------------------

SQUARE = made(lambda x: x * x, (3.0,), (0.5,), (torch.zeros(2),), (1.5,))
ONCE = "points once a case that needs the method is right"


def judged(*values, exercise=SQUARE):
    cases = exercise.cases(torch.Generator().manual_seed(0))
    right = [plain(exercise.reference(*case.arguments)) for case in cases]
    return verdict(exercise, cases, [Outcome(r if v else -9.0) for r, v in zip(right, values, strict=False)])


@pytest.mark.parametrize(
    ("right", "share", "lowered"),
    [
        ((1, 1, 1, 1), 1.0, ""),
        ((0, 0, 0, 0), 0.0, ""),
        ((1, 1, 1, 0), 0.75, ""),
        ((0, 1, 0, 0), 0.25, ""),
        ((0, 0, 1, 0), 0.0, f"one for which returning zeros is enough. Such a case earns {ONCE}"),
        ((1, 0, 1, 0), 0.0, f"the worked examples. Such cases earn {ONCE}"),
        ((1, 1), 0.5, ""),  # the others were not run
        ((1,), 0.0, f"the worked example. Such a case earns {ONCE}"),
    ],
)
def test_easy_cases_count_together_with_one_that_is_not(right, share, lowered):
    said = judged(*right)
    assert (said.share, said.lowered) == (share, lowered)


def test_a_name_does_not_change_the_points():
    doubled = Mistake("doubled", "Multiply by itself.", (lambda x: 2 * x,))
    exercise = made(lambda x: x * x, (0.5,), (2,), (2.0 - 1e-9,), (4,), (3,), by_heart=(), mistakes=(doubled,))
    named, unnamed = (judge(each, lambda x: x + x) for each in (exercise, dataclasses.replace(exercise, mistakes=())))
    assert (named.mistake, unnamed.mistake) == (doubled, None)
    assert (named.n_right, named.share, named.lowered) == (unnamed.n_right, unnamed.share, unnamed.lowered)
    exercise = made(lambda x: x * x, (3.0,), (0.5,), (1.5,), (2.5,), (0.0,), by_heart=(), drawn=False)
    last_wrong = Mistake("off at zero", "Zero squared is zero.", (lambda x: x * x + (x == 0),))
    said = judge(dataclasses.replace(exercise, mistakes=(last_wrong,)), last_wrong.function)
    assert (said.mistake, said.share) == (last_wrong, 0.8)


def test_easy_cases_stay_easy_where_a_mistake_has_a_name():
    doubled = Mistake("doubled", "Multiply by itself.", (lambda x: 2 * x,))
    exercise = made(lambda x: x * x, (0.5,), (2,), (2.0 - 1e-9,), (3,), drawn=False, mistakes=(doubled,), by_heart=())
    said = judge(exercise, lambda x: x + x)
    assert (said.n_right, said.mistake, said.share) == (2, doubled, 0.0)
    assert said.lowered.startswith("those for which returning the same whatever is given is enough")


def test_the_sentence_counts_what_is_right():
    assert counted(5, 9, "those. They earn") == "5 of 9 cases are right: those. They earn."
    assert counted(1, 9, "one. It earns") == "1 of 9 cases is right: one. It earns."
    assert counted(5, 9, "") == uncounted("") == ""
    assert uncounted("one. It earns") == "right so far: one. It earns"


@pytest.mark.parametrize("named", [False, True])
def test_a_mistake_is_named_for_a_value_it_gives_and_not_for_an_error_alone(named):
    """Raised on two of three wrong cases; on the third the mistake's value, or another one."""

    def summed(x):
        return x.sum() if len(x) == 2 else x.reshape(2)  # RuntimeError for any other length

    def answer(x):
        return (x.sum() if named else x.prod()) if len(x) == 2 else x + torch.ones(7)  # RuntimeError too

    mistake = Mistake("summed", "Return the squares.", (summed,))
    exercise = made(lambda x: x * x, (torch.tensor([5.0] * 3),), (torch.ones(4),), (torch.tensor([2.0, 3.0]),))
    said = judge(dataclasses.replace(exercise, mistakes=(mistake,)), answer)
    assert (said.mistake, said.explained) == ((mistake, 3) if named else (None, 0))


def test_a_mistake_that_only_raises_is_not_named():
    """The error class agrees on the only wrong case; many slips raise the same."""
    mistake = Mistake(
        "fails for one", "One number is a vector too.", (lambda x: x * x if len(x) > 1 else x.reshape(2),)
    )
    exercise = made(lambda x: x * x, (torch.ones(2),), (torch.tensor([2.0, 3.0]),), (torch.ones(1),))
    exercise = dataclasses.replace(exercise, mistakes=(mistake,))
    said = judge(exercise, lambda x: x * x if len(x) > 1 else x @ torch.ones(3))
    assert (said.n_right, said.mistake, said.explained) == (2, None, 0)


@pytest.mark.parametrize(("n_right", "contradicted"), [(1, None), (2, 1)])
def test_a_mistake_that_would_get_all_right_cases_wrong_is_another_one(n_right, contradicted):
    """The mistake gives 6 for 2, where the answer is right, and is right for 0 as the answer is."""
    cases = ((torch.tensor([5.0]),), (torch.tensor([7.0]),), (torch.tensor([2.0]),), (torch.tensor([0.0]),))
    mistake = Mistake("tripled", "Multiply by itself.", (lambda x: 3 * x,))
    exercise = dataclasses.replace(made(lambda x: x * x, *cases[: 2 + n_right]), mistakes=(mistake,))
    said = judge(exercise, lambda x: 3 * x if x > 4 else x * x)
    assert said.n_right == n_right
    assert (said.mistake, said.contradicted) == ((None, 0) if contradicted is None else (mistake, contradicted))
    assert ("This looks like: tripled (on the wrong cases)." in as_text(said, Record())) == (contradicted is not None)


def test_a_function_that_ends_its_process_after_the_worked_example_earns_nothing():
    cases = SQUARE.cases(torch.Generator().manual_seed(0))
    assert verdict(SQUARE, cases, [call(SQUARE.reference, cases[0].arguments)]).share == 0.0
