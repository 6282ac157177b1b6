"""What all claims stand on: compressed models, text, prompts that have learned, and rows of losses."""

import hashlib
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from course_lib.data.corpora import windows
from course_lib.lessons.common.losses import losses_row
from course_lib.lessons.compress.measuring.sizes import Sizes
from course_lib.measure.experiment import QUICK_RESULTS
from course_lib.models import DEFAULT_MODEL, load_model
from course_lib.prompts.compressed.store import Compressed, compressed
from course_lib.prompts.initial import from_ids, from_normal, from_vocabulary
from course_lib.prompts.losses import prompted_window_losses
from course_lib.prompts.recipe import PromptRecipe
from course_lib.prompts.soft import SoftPrompt
from course_lib.prompts.store import load_prompt, save_prompt
from course_lib.prompts.training import train_prompt

Row = dict[str, Any]

FOLDER = QUICK_RESULTS / "prompts"  # prompts of finished steps, which later steps use again
WIKIPEDIA, BOOLQ = "wikipedia", "boolq"  # learned from and evaluated on; evaluated on alone
VOCABULARY, FIRST_IDS, WIDE, NARROW = "words by lot", "first words", "normal, spread 1", "normal, spread of the words"


@dataclass(frozen=True)
class Run:
    """How a prompt is learned, where that differs from the main run."""

    n_vectors: int
    n_steps: int
    begin: str = VOCABULARY
    draw: int = 0  # of the seed: words by lot and order of the text


@lru_cache(maxsize=3)
def subject(name: str) -> Compressed:
    """A compressed model from the cache; a few are kept in memory."""
    return compressed(name, progress=False)


@lru_cache(maxsize=1)
def tokenizer() -> PreTrainedTokenizerBase:
    return load_model(DEFAULT_MODEL)[1]


@lru_cache(maxsize=4)
def held_out(sizes: Sizes, seed: int, corpus: str = WIKIPEDIA) -> Int[Tensor, "m N"]:
    return windows(corpus, sizes.evaluation, sizes.length, tokenizer(), "evaluation", seed)


@lru_cache(maxsize=2)
def text(sizes: Sizes, seed: int) -> Int[Tensor, "n N"]:
    """What prompts, adapters and students learn from."""
    return windows(WIKIPEDIA, sizes.text, sizes.text_length, tokenizer(), "calibration", seed + 1)


def main_run(sizes: Sizes) -> Run:
    return Run(sizes.n_vectors, sizes.n_steps)


def recipe(sizes: Sizes, n_steps: int, seed: int, rate: float | None = None) -> PromptRecipe:
    warm_up = min(sizes.warm_up, n_steps - 1)
    return PromptRecipe(n_steps=n_steps, batch=sizes.batch, rate=rate or sizes.rate, warm_up=warm_up, seed=seed)


def begun(of: Compressed, run: Run, seed: int) -> SoftPrompt:
    """Where a run begins."""
    generator = torch.Generator().manual_seed(seed + run.draw)
    if run.begin == FIRST_IDS:
        return from_ids(of.model, torch.arange(run.n_vectors))
    if run.begin == VOCABULARY:
        return from_vocabulary(of.model, run.n_vectors, generator)
    spread = 1.0 if run.begin == WIDE else of.model.get_input_embeddings().weight.std().item()
    return from_normal(of.model, run.n_vectors, generator, spread)


def learn(sizes: Sizes, name: str, run: Run, seed: int) -> tuple[SoftPrompt, float]:
    """The prompt of a run, learned now and kept for later steps, and the processor seconds of learning it."""
    of, settings, start = subject(name), recipe(sizes, run.n_steps, seed + run.draw), time.process_time()
    trained = train_prompt(of.model, begun(of, run, seed), text(sizes, seed), settings, origin=name, progress=False)
    seconds = time.process_time() - start
    save_prompt(trained.prompt, path_of(sizes, name, run, seed))
    return trained.prompt, seconds


def learned(sizes: Sizes, name: str, run: Run, seed: int) -> SoftPrompt:
    """The same as an earlier step has left it; learned anew where it is gone."""
    path = path_of(sizes, name, run, seed)
    return load_prompt(path, subject(name).model) if path.exists() else learn(sizes, name, run, seed)[0]


def path_of(sizes: Sizes, name: str, run: Run, seed: int) -> Path:
    """By all that a prompt depends on."""
    facts = (sizes.text, sizes.text_length, sizes.batch, sizes.warm_up, sizes.rate, name, run, seed)
    return FOLDER / f"{name}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}.safetensors"


def evaluated(sizes: Sizes, name: str, prompt: SoftPrompt | None, seed: int, corpus: str = WIKIPEDIA) -> Row:
    """A model with a prompt, or alone, on held-out windows."""
    ids = held_out(sizes, seed, corpus)
    losses = prompted_window_losses(subject(name).model, prompt, ids, progress=False)
    return {"model": name, "text": corpus} | losses_row(losses.tolist(), ids[:, 1:].numel())


def forget() -> None:
    """Let go of models and texts."""
    for kept in (subject, tokenizer, held_out, text):
        kept.cache_clear()
