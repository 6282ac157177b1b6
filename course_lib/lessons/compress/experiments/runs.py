"""The parts of lesson 10's measurement: compressed models, training of prompts, and rows of losses.

Windows that prompts learn from never share a document with those that they are evaluated on.
"""

import hashlib
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from course_lib.data.corpora import windows
from course_lib.lessons.common.benchmarks import accuracy_of
from course_lib.lessons.common.losses import losses_row
from course_lib.measure.experiment import QUICK_RESULTS, Tables
from course_lib.models import DEFAULT_MODEL, load_model
from course_lib.prompts.compressed.store import DENSE, Compressed, compressed
from course_lib.prompts.hard import SENTENCES, hard_prompt, meaningless
from course_lib.prompts.initial import from_ids, from_normal, from_vocabulary
from course_lib.prompts.losses import prompted_window_losses, with_or_without
from course_lib.prompts.recipe import PromptRecipe
from course_lib.prompts.soft import SoftPrompt
from course_lib.prompts.store import load_prompt, save_prompt
from course_lib.prompts.training import train_prompt
from course_lib.sparsity.footprint import sparsity_report

Row = dict[str, Any]

FOLDER = QUICK_RESULTS / "prompts"  # prompts of finished steps, which later steps use again
WIKIPEDIA, BOOLQ = "wikipedia", "boolq"  # for training and evaluation; for evaluation alone
VOCABULARY, FIRST_IDS = "random tokens", "first tokens"  # initialisations
WIDE, NARROW = "normal, spread 1", "normal, spread of the embeddings"
RANDOM_TRIALS = 3  # prompts of random tokens

CUT = "minitron-50"
# These are needed first; the claim "50 % and 4 bits" is the paper's best known one.
FIRST = (DENSE, "wanda-50", "gptq-3", "sparsegpt-50-4bit")
OTHERS = ("wanda-75", "gptq-4", "wanda-62.5", CUT, "gptq-2")
REST = ("sparsegpt-50", "sparsegpt-75", "wanda-2of4", "minitron-75", "sparsegpt-62.5", "sparsegpt-2of4")


@dataclass(frozen=True)
class Sizes:
    """The amount of text, training steps, models and questions.

    The main run of each model is `n_steps` of `batch` windows with `n_vectors` vectors, initialised with the
    embeddings of random tokens.
    """

    evaluation: int = 24
    length: int = 128  # tokens per evaluation window
    text: int = 512
    text_length: int = 96
    batch: int = 4
    n_vectors: int = 20
    n_steps: int = 32
    warm_up: int = 4
    rate: float = 3e-2
    first: tuple[str, ...] = FIRST
    others: tuple[str, ...] = OTHERS
    rest: tuple[str, ...] = REST
    moved_to: tuple[str, ...] = (*FIRST, "wanda-75")
    moved_from: tuple[str, ...] = (*FIRST, "wanda-75")
    vectors: tuple[int, ...] = (5, 80)
    steps: tuple[int, ...] = (8, 96)
    seeds: tuple[int, ...] = (1,)
    adapter_steps: int = 38  # as many tokens through the model, forward and backward, as for a prompt
    taught_steps: int = 26  # the same, with the passes of a teacher
    adapter_rate: float = 3e-3
    adapter_rank: int = 4
    distil_rate: float = 3e-4
    questions: tuple[tuple[str, int], ...] = (("sciq", 100), ("arc_easy", 100), ("lambada", 100))


QUICK = Sizes(
    evaluation=3, length=12, text=8, text_length=12, batch=2, n_vectors=4, n_steps=2, warm_up=1,
    first=FIRST[:2], others=(CUT,), rest=(), moved_to=FIRST[:2], moved_from=FIRST[:2],
    vectors=(2,), steps=(1,), seeds=(1,), adapter_steps=2, taught_steps=2,
    questions=(("sciq", 2), ("lambada", 2)),
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """How a prompt is trained, where that differs from the main run."""

    n_vectors: int
    n_steps: int
    begin: str = VOCABULARY
    draw: int = 0  # added to the seed: for the random tokens and the order of the text


def main_run(sizes: Sizes) -> Run:
    return Run(sizes.n_vectors, sizes.n_steps)


def varied_runs(sizes: Sizes) -> dict[str, Run]:
    """Runs that differ from the main one in a single setting, by the name of their step."""
    main = main_run(sizes)
    runs = {f"draw {draw}": replace(main, draw=draw) for draw in sizes.seeds}
    runs |= {f"{n} vectors": replace(main, n_vectors=n) for n in sizes.vectors}
    runs |= {f"{n} steps": replace(main, n_steps=n) for n in sizes.steps}
    return runs | {begin: replace(main, begin=begin) for begin in (NARROW, FIRST_IDS, WIDE)}


@lru_cache(maxsize=3)
def subject(name: str) -> Compressed:
    """Load a compressed model from the cache; a few are kept in memory."""
    return compressed(name, progress=False)


@lru_cache(maxsize=1)
def tokenizer() -> PreTrainedTokenizerBase:
    return load_model(DEFAULT_MODEL)[1]


@lru_cache(maxsize=4)
def held_out(sizes: Sizes, seed: int, corpus: str = WIKIPEDIA) -> Int[Tensor, "m N"]:
    return windows(corpus, sizes.evaluation, sizes.length, tokenizer(), "evaluation", seed)


@lru_cache(maxsize=2)
def text(sizes: Sizes, seed: int) -> Int[Tensor, "n N"]:
    """Load the training text of prompts, adapters and students."""
    return windows(WIKIPEDIA, sizes.text, sizes.text_length, tokenizer(), "calibration", seed + 1)


def forget() -> None:
    """Release models and texts."""
    for cached in (subject, tokenizer, held_out, text):
        cached.cache_clear()


def recipe(sizes: Sizes, n_steps: int, seed: int, rate: float | None = None) -> PromptRecipe:
    warm_up = min(sizes.warm_up, n_steps - 1)
    return PromptRecipe(n_steps=n_steps, batch=sizes.batch, rate=rate or sizes.rate, warm_up=warm_up, seed=seed)


def initial_prompt(compressed_model: Compressed, run: Run, seed: int) -> SoftPrompt:
    """Return the prompt of a run before its first step."""
    model, generator = compressed_model.model, torch.Generator().manual_seed(seed + run.draw)
    if run.begin == FIRST_IDS:
        return from_ids(model, torch.arange(run.n_vectors))
    if run.begin == VOCABULARY:
        return from_vocabulary(model, run.n_vectors, generator)
    spread = 1.0 if run.begin == WIDE else model.get_input_embeddings().weight.std().item()
    return from_normal(model, run.n_vectors, generator, spread)


def learn(sizes: Sizes, name: str, run: Run, seed: int) -> tuple[SoftPrompt, float]:
    """Train the prompt of a run and keep it for later steps; return it with the processor seconds of its training."""
    model, settings, start = subject(name), recipe(sizes, run.n_steps, seed + run.draw), time.process_time()
    initial, windows_to_learn = initial_prompt(model, run, seed), text(sizes, seed)
    trained = train_prompt(model.model, initial, windows_to_learn, settings, origin=name, progress=False)
    seconds = time.process_time() - start
    save_prompt(trained.prompt, path_of(sizes, name, run, seed))
    return trained.prompt, seconds


def learned(sizes: Sizes, name: str, run: Run, seed: int) -> SoftPrompt:
    """Load the prompt that an earlier step trained; train it again if its file is missing."""
    path = path_of(sizes, name, run, seed)
    return load_prompt(path, subject(name).model) if path.exists() else learn(sizes, name, run, seed)[0]


def path_of(sizes: Sizes, name: str, run: Run, seed: int) -> Path:
    """Return the file of a prompt, named after everything that it depends on."""
    facts = (sizes.text, sizes.text_length, sizes.batch, sizes.warm_up, sizes.rate, name, run, seed)
    return FOLDER / f"{name}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}.safetensors"


def evaluated(sizes: Sizes, name: str, prompt: SoftPrompt | None, seed: int, corpus: str = WIKIPEDIA) -> Row:
    """Measure the losses of a model on held-out windows, with a prompt or without one."""
    ids = held_out(sizes, seed, corpus)
    losses = prompted_window_losses(subject(name).model, prompt, ids, progress=False)
    return {"model": name, "text": corpus} | losses_row(losses.tolist(), ids[:, 1:].numel())


def alone(sizes: Sizes, name: str, seed: int) -> Row:
    """Measure a model without a prompt, and its size on disk."""
    model = subject(name)
    size = {"bytes": model.n_bytes, "weight_bytes": model.weight_bytes, "others": model.n_others}
    row = evaluated(sizes, name, None, seed)
    return row | size | {"sparsity": round(sparsity_report(model.model).sparsity, 4)}


def prompted(sizes: Sizes, name: str, run: Run, seed: int) -> Row:
    """Measure the same model with a prompt that was trained on it."""
    prompt, seconds = learn(sizes, name, run, seed)
    row = evaluated(sizes, name, prompt, seed, WIKIPEDIA) | {"begin": run.begin, "draw": run.draw}
    row |= {"n_vectors": run.n_vectors, "n_steps": run.n_steps, "prompt_bytes": prompt.n_bytes}
    return row | {"processor_seconds": round(seconds, 1)}


def own(sizes: Sizes, name: str, seed: int) -> Tables:
    """Measure the main run of a model: without a prompt, and with its own."""
    return {"models": [alone(sizes, name, seed)], "own": [prompted(sizes, name, main_run(sizes), seed)]}


def varied(sizes: Sizes, name: str, run: Run, seed: int) -> Tables:
    """Measure a run with one setting changed."""
    return {"settings": [prompted(sizes, name, run, seed)]}


def worded(sizes: Sizes, name: str, seed: int) -> Tables:
    """Measure both sentences of the authors, and prompts of random tokens that are as long as the longer sentence."""
    ids = {which: hard_prompt(tokenizer(), sentence) for which, sentence in SENTENCES.items()}
    n, generator = max(map(len, ids.values())), torch.Generator().manual_seed(seed)
    ids |= {f"random {trial}": meaningless(tokenizer(), n, generator) for trial in range(RANDOM_TRIALS)}
    rows = []
    for which, tokens in ids.items():
        prompt = from_ids(subject(name).model, tokens)
        rows.append(evaluated(sizes, name, prompt, seed) | {"prompt": which, "n_vectors": prompt.n})
    return {"words": rows}


def moved(sizes: Sizes, to: str, seed: int) -> Tables:
    """Measure one model with the prompts of all others, on the same windows."""
    rows = []
    for source in sizes.moved_from:
        if source != to:
            prompt = learned(sizes, source, main_run(sizes), seed)
            rows.append(evaluated(sizes, to, prompt, seed, WIKIPEDIA) | {"source": source})
    return {"moved": rows}


def other_text(sizes: Sizes, name: str, seed: int) -> Tables:
    """Measure on a text that no prompt was trained on: without a prompt, and with the model's own."""
    prompt = learned(sizes, name, main_run(sizes), seed)
    rows = [evaluated(sizes, name, each, seed, BOOLQ) | {"prompted": each is not None} for each in (None, prompt)]
    return {"other_text": rows}


def answered(sizes: Sizes, name: str, task: str, n: int, seed: int) -> Tables:
    """Measure one model on the questions of one task, without a prompt and with its own."""
    model, rows = subject(name).model, []
    for prompt in (None, learned(sizes, name, main_run(sizes), seed)):
        with with_or_without(model, prompt):
            row = accuracy_of(model, tokenizer(), task, n, seed)
        rows.append({"model": name, "prompted": prompt is not None} | row)
    return {"tasks": rows}
