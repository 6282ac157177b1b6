"""Thousands of small claims, as a student's process may send them: none earns a point that its values do not earn.

Drawn from a seed: right and wrong values, flags, errors, texts and numbers in any order, messages of every kind where
they do not belong, bytes turned over on the way, pipes that break off. What a claim could earn at most is counted here
by what was sent, not by what the grader made of it.
"""

import json
import random

import pytest
import torch
from forgeries import FORGED
from submitting import SMALL

from course_lib.checking.compare import plain
from course_lib.checking.exercise import Case, Exercise, Mistake
from course_lib.grading import engine, store
from course_lib.grading.records import Result, Task
from course_lib.grading.sandbox import claims, frames, wire

N_CLAIMS = 300
N_VISIBLE, N_CASES = 3, 5
POINTS = 4
ENDS = ("exit", "time", "waiting", "memory", "processes", "files", "signal", "killed", "warden", "silence", "budget")
FROM_CHILD = sorted(frames.FROM_CHILD)
ODD = (None, True, "", "x" * 3000, 1j, float("nan"), float("inf"), -(10**300), (), {}, {"0": 1}, (((),),))
ODD += (torch.empty(0), torch.full((2, 2), torch.nan), torch.zeros(3, dtype=torch.complex64), torch.zeros(2, 3))


def _cases(generator: torch.Generator) -> list[Case]:
    """Every answer is a matrix whose entries lie between 2 and 4 and a number of that size."""
    drawn = [1.5 + 0.5 * torch.rand(2, 3, generator=generator) for _ in range(N_CASES)]
    return [Case(f"case {at}", (each,)) for at, each in enumerate(drawn)]


EXERCISE = Exercise(
    id="made.up",
    title="Made up",
    difficulty=1,
    minutes=1,
    points=POINTS,
    reference=lambda x: (x * x, 2.5 + x.sum().item()),
    cases=_cases,
    mistakes=(Mistake("doubled", "It is squared.", (lambda x: (2 * x, 2.5 + x.sum().item()),)),),
    also_right=(),
    hints=("Think.",),
)


def _tensors(value: object) -> list[torch.Tensor]:
    if isinstance(value, tuple | list):
        return [tensor for item in value for tensor in _tensors(item)]
    return [value] if isinstance(value, torch.Tensor) else []


class Claimant:
    """A process that says whatever a seed makes it say; `right` are the places of the cases that it answered right."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cases = EXERCISE.cases(torch.Generator().manual_seed(seed))
        self.expected = [plain(EXERCISE.reference(*case.arguments)) for case in self.cases]
        self.honesty = self.rng.choice((0.0, 0.5, 0.9, 1.0))
        self.order = self.rng.choice((0.0, 0.05, 0.3))  # how often something stands where it does not belong
        self.n_sent, self.right = 0, set()

    def messages(self) -> list[bytes]:
        plan = [frames.CASE] * N_VISIBLE + [frames.HIDDEN] + [frames.CASE] * (N_CASES - N_VISIBLE) + [frames.DONE]
        for at in range(len(plan)):
            if self.rng.random() < self.order:
                plan[at] = self.rng.choice([*FROM_CHILD, *FROM_CHILD, frames.PROGRAM, frames.ENDED, b"?"])
        if self.rng.random() < self.order:
            self.rng.shuffle(plan)
        plan = plan[: self.rng.randint(0, len(plan))] if self.rng.random() < 0.2 else plan
        return [self._message(kind) for kind in plan]

    def _message(self, kind: bytes) -> bytes:
        content = self._case() if kind == frames.CASE else wire.dumps(self._said(kind), wire.Bounds())
        return frames.pack(kind, self.rng.choice((0, 0, 7)), content)

    def _case(self) -> bytes:
        at, self.n_sent = self.n_sent, self.n_sent + 1
        honest = at < N_CASES and self.rng.random() < self.honesty
        value = self.expected[at] if honest else self._odd_value(at)
        error = None if self.rng.random() < 0.9 else self.rng.choice(("", "it raised ValueError: x", "x" * 9000))
        flags = self.rng.random() < 0.05, self.rng.random() < 0.05
        said = value, error, *flags, self.rng.choice(("", "Traceback", "x" * 20_000))
        said = said if self.rng.random() > self.order else self.rng.choice((said[:-1], (*said, 1), value, list(said)))
        try:
            content = wire.dumps(plain(said), wire.Bounds())
        except ValueError:  # an integer of thousands of digits, for one, does not leave the process
            content = wire.dumps((None, "it returned what cannot be compared", False, False, ""), wire.Bounds())
        if honest and error is None and len(said) == 5:
            self.right.add(at)
        return self._damaged(content) if self.rng.random() < self.order else content

    def _odd_value(self, at: int) -> object:
        at = min(at, N_CASES - 1)
        matrix, number = self.expected[at]
        others = [(matrix, number + 1), (matrix + 1, number), matrix, number, (number, matrix), (matrix.T, number)]
        others += [(matrix[None], number), (matrix.reshape(-1), number), (matrix, torch.tensor([number] * 2))]
        others += [self.expected[at - 1], {"0": matrix, "1": number}, (matrix, number, 0), (matrix, str(number))]
        forged = self.rng.choice(list(FORGED.values()))(self.cases[at], self.expected[at])
        if all(0 < leaf.numel() < 2**16 for leaf in _tensors(forged)):  # larger ones do not leave the process
            others += [forged] * 10
        return plain(self.rng.choice([*others, *ODD]))

    def _said(self, kind: bytes) -> object:
        said = (*ODD, ("not found", "x"), ("not loaded", "y" * 9000), ("ran", "well"), (("n",), "code", (), True))
        return None if kind in (frames.HIDDEN, frames.DONE) else plain(self.rng.choice(said))

    def _damaged(self, content: bytes) -> bytes:
        """A bit turned over, bytes lost, or all of it repeated: never the right value of another one."""
        at = self.rng.randrange(len(content))
        turned = content[:at] + bytes([content[at] ^ 1 << self.rng.randrange(8)]) + content[at + 1 :]
        return self.rng.choice((turned, content[:at], content * 2, b"", b"\xff" * 8 + content))


def graded(claimant: Claimant):
    """What the grader makes of all that, as it comes over the pipe in parts; a broken pipe is the end."""
    task = Task(EXERCISE.id, "f", *(tuple(c.arguments for c in part) for part in _parts(claimant.cases)))
    collected = claims.Claims(task, SMALL)
    collected.take(frames.PROGRAM, wire.dumps(((), "code", (), False), wire.Bounds()))
    reader = frames.Reader(frames.FROM_CHILD, SMALL.result_bytes + 2**20, N_CASES + 100)
    stream, how = b"".join(claimant.messages()), claimant.rng.choice(ENDS)
    while stream:
        n = claimant.rng.choice((1, 9, 100, 2**16))
        try:
            messages = reader.feed(stream[:n])
        except ValueError:
            how = "channel"
            break
        stream = stream[n:]
        for kind, _, content in messages:
            collected.take(kind, content)
            how = "done" if kind == frames.DONE else how
        if how == "done":
            break
    answer = collected.answer(how, claimant.rng.choice((0, 9, 11, 64)), 0.1)
    return engine.exercise_result(EXERCISE, *_parts(claimant.cases), answer)


def _parts(cases):
    return cases[:N_VISIBLE], cases[N_VISIBLE:]


@pytest.mark.parametrize("first", range(0, 4 * N_CLAIMS, N_CLAIMS))
def test_no_claim_earns_more_than_its_values(first):
    states, full = set(), 0
    for seed in range(first, first + N_CLAIMS):
        claimant = Claimant(seed)
        row = graded(claimant)
        at_most = POINTS * len(claimant.right) / N_CASES
        assert 0.0 <= row.points <= round(at_most, 2), f"seed {seed}: {row}"
        assert (row.state == "right") == (row.points == POINTS), f"seed {seed}: {row}"
        assert row.state != "right" or len(claimant.right) == N_CASES, f"seed {seed}"
        assert all(case.difference in (None, "wrong") or not case.hidden or row.reason for case in row.cases)
        kept = json.dumps(store.to_json(Result("ada", "00", "", 0, (row,))), allow_nan=False)
        assert len(kept) < 60_000, f"seed {seed}: what is said is kept short"
        states.add(row.state)
        full += row.state == "right"
    assert states >= {"right", "partly", "wrong", "failed"}, "else the claims are too tame, or too wild"
    assert full > N_CLAIMS / 50


def test_a_claim_without_a_lie_earns_everything():
    """So that the bound above is the one that is met."""
    for seed in range(20):
        claimant = Claimant(seed)
        claimant.honesty, claimant.order, claimant.rng = 1.0, 0.0, _Calm(seed)
        assert graded(claimant).points == POINTS


class _Calm(random.Random):
    """Never does what happens seldom."""

    def random(self) -> float:
        return 0.5
