"""The benchmarks: multiple-choice and last-word questions as (context, choices, right answer).

Wording and right answers are those of lm-evaluation-harness, with three differences: HellaSwag without the doubled full
stops that its cleaning leaves, SciQ without a blank first line where an item has no supporting paragraph, and ARC on
its validation set. Common knowledge (five examples shown) is not in the harness.
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from course_lib.data.assets.cache import asset_path
from course_lib.data.assets.catalogue import BENCHMARK_FILES

WANDA_TASKS = ("boolq", "rte", "hellaswag", "winogrande", "arc_easy", "arc_challenge", "openbookqa")
UNCONDITIONAL = 1_000_000  # rows from this doc_id on hold the choices without their question; they are not questions


@dataclass(frozen=True)
class Request:
    """A request for the likelihood of `continuation` after `context`."""

    context: str
    continuation: str


@dataclass(frozen=True)
class Question:
    """One item: its choices, each with the context before it, and the index of the right one.

    A question with a single choice is right if greedy decoding produces exactly this continuation.
    """

    choices: tuple[Request, ...]
    answer: int

    @property
    def chance(self) -> float:
        return 1 / len(self.choices) if len(self.choices) > 1 else 0.0

    def with_context(self, context: str) -> "Question":
        return Question(tuple(Request(context, choice.continuation) for choice in self.choices), self.answer)


def questions(task: str, n: int | None = None, seed: int = 0) -> list[Question]:
    """Draw n questions without replacement; return all of them in their own order when n is None.

    Raises:
        ValueError: an unknown task, or more questions than the task has.
    """
    every = load(task)
    if n is None:
        return list(every)
    if not 1 <= n <= len(every):
        raise ValueError(f"got n={n} for {task!r}; expected 1 to {len(every)}, or None for all.")
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))
    return [every[i] for i in order[:n].tolist()]


def load(task: str) -> tuple[Question, ...]:
    """Load every question of a task."""
    if task not in BENCHMARK_FILES:
        raise ValueError(f"got task {task!r}; expected one of {', '.join(BENCHMARK_FILES)}.")
    return _load(task, asset_path("benchmarks") / BENCHMARK_FILES[task])


@lru_cache(maxsize=len(BENCHMARK_FILES))
def _load(task: str, path: Path) -> tuple[Question, ...]:
    parsed = rte_questions(path) if task == "rte" else request_questions(path)
    return tuple(map(REWORD[task], parsed)) if task in REWORD else parsed


def _bare(question: Question) -> Question:
    """Use no frame: OpenBookQA's stem is the start of a sentence, as in the harness."""
    return question.with_context(question.choices[0].context.removeprefix("Question: ").removesuffix("\nAnswer:"))


def _goal_is_question(question: Question) -> Question:
    return question.with_context("Question: " + question.choices[0].context.removeprefix("Goal: "))


# Where the request file words a question differently from lm-evaluation-harness.
REWORD: dict[str, Callable[[Question], Question]] = {"openbookqa": _bare, "piqa": _goal_is_question}


def request_questions(path: Path) -> tuple[Question, ...]:
    """Read questions from a request file: one JSON line per choice, grouped by doc_id, without unconditional rows."""
    choices: dict[int, list[Request]] = {}
    answers: dict[int, int] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if row["doc_id"] < UNCONDITIONAL:
                request = row["request"]
                choices.setdefault(row["doc_id"], []).append(Request(request["context"], request["continuation"]))
                answers[row["doc_id"]] = row["label"] if isinstance(row["label"], int) else 0
    return tuple(Question(tuple(choices[i]), answers[i]) for i in choices)


def rte_questions(path: Path) -> tuple[Question, ...]:
    """Read questions on textual entailment, worded as in lm-evaluation-harness; label 0 is entailment."""
    from pyarrow import ipc

    rows = ipc.open_stream(path.read_bytes()).read_all().to_pylist()
    contexts = [f"{row['sentence1']}\nQuestion: {row['sentence2']} True or False?\nAnswer:" for row in rows]
    return tuple(
        Question((Request(context, " True"), Request(context, " False")), row["label"])
        for context, row in zip(contexts, rows, strict=True)
    )


def boolq_paragraphs() -> list[str]:
    """Return each Wikipedia paragraph of BoolQ's questions once, without titles."""
    contexts = (question.choices[0].context for question in load("boolq"))
    paragraphs = (context.rpartition("\nQuestion:")[0].partition(" -- ")[2] for context in contexts)
    return list(dict.fromkeys(paragraph for paragraph in paragraphs if paragraph))
