"""Other ways to repair a compressed model in the time and bytes of a prompt: adapters, a refit, distillation."""

import copy
import time
from collections.abc import Callable

from peft import LoraConfig
from transformers import PreTrainedModel

from course_lib.attention.small_models.training import Schedule
from course_lib.data.corpora import windows
from course_lib.lessons.common.losses import losses_row
from course_lib.lessons.compress.experiments.runs import CUT, Row, Sizes, held_out, recipe, subject, text, tokenizer
from course_lib.measure.experiment import Tables
from course_lib.measure.perplexity import window_losses
from course_lib.models import layers_of, weight_of
from course_lib.prompts.adapters import adapted, train_adapters
from course_lib.prompts.compressed.catalogue import named
from course_lib.prompts.compressed.kinds import KEPT
from course_lib.prompts.compressed.store import CALIBRATION, DENSE
from course_lib.pruning.structured.choice import Kept
from course_lib.pruning.structured.distillation import distil
from course_lib.pruning.structured.recipe import Recipe
from course_lib.pruning.structured.refit import refit

NUMBER_BYTES = 4  # of an adapter's numbers, as of a prompt's
SMALL, LARGE, REFIT, DISTILLED = "LoRA of as many bytes", "LoRA on all linears", "refit", "distilled"
UPDATED = "SparseGPT in its place"
WANDA = "wanda-50"
WAYS = {WANDA: (SMALL, LARGE, UPDATED), CUT: (SMALL, LARGE, REFIT, DISTILLED)}


def rival(sizes: Sizes, name: str, way: str, seed: int) -> Tables:
    """Repair a model in one way: its perplexity, processor seconds, and the bytes in addition to the model."""
    ways: dict[str, Callable[[Sizes, str, int], Row]] = {
        SMALL: small, LARGE: large, REFIT: refitted, UPDATED: updated,
        DISTILLED: distilled,
    }  # fmt: skip
    return {"rivals": [{"model": name, "way": way} | ways[way](sizes, name, seed)]}


def small(sizes: Sizes, name: str, seed: int) -> Row:
    """Train LoRA of rank 1 on the output projections of attention, in as many blocks as the prompt's bytes allow."""
    model = subject(name).model
    n_blocks, width = model.config.num_hidden_layers, model.config.hidden_size
    outputs = weight_of(layers_of(model)[3].module)
    n = max(1, min(n_blocks, sizes.n_vectors * width // sum(outputs.shape)))
    which = sorted({round(index * (n_blocks - 1) / max(1, n - 1)) for index in range(n)})
    config = LoraConfig(r=1, lora_alpha=2, target_modules=["o_proj"], layers_to_transform=which)
    return adapters(sizes, model, config, seed)


def large(sizes: Sizes, name: str, seed: int) -> Row:
    rank = sizes.adapter_rank
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    return adapters(sizes, subject(name).model, config, seed)


def adapters(sizes: Sizes, model: PreTrainedModel, config: LoraConfig, seed: int) -> Row:
    """Train LoRA on the same text, in the same order, for about as long as a prompt."""
    settings = recipe(sizes, sizes.adapter_steps, seed, sizes.adapter_rate)
    with adapted(model, config, seed) as learning:
        n_bytes = NUMBER_BYTES * sum(parameter.numel() for parameter in learning)
        start = time.process_time()
        train_adapters(model, learning, text(sizes, seed), settings, progress=False)
        seconds = time.process_time() - start
        return measured(sizes, model, seconds, n_bytes, seed) | {"n_steps": settings.n_steps}


def refitted(sizes: Sizes, name: str, seed: int) -> Row:
    """Fit the kept part of a structurally pruned model by least squares, to compensate for the removed neurons."""
    dense, calibration = subject(DENSE).model, windows("wikipedia", *CALIBRATION, tokenizer(), "calibration")
    start = time.process_time()
    smaller, beside = named(name).compress(dense, calibration, progress=False)
    kept = Kept(**{kind: beside[f"kept.{kind}"] for kind in KEPT})
    refit(dense, smaller, kept, calibration, progress=False)
    return measured(sizes, smaller, time.process_time() - start, 0, seed) | {"n_steps": 0}


def updated(sizes: Sizes, name: str, seed: int) -> Row:
    """Prune by SparseGPT at the same sparsity: the kept weights compensate for the pruned ones, a refit in one pass.

    The exact least squares of `Refit` on the given mask take six times as long as a prompt.
    """
    dense, calibration = subject(DENSE).model, windows("wikipedia", *CALIBRATION, tokenizer(), "calibration")
    start = time.process_time()
    pruned, _ = named(name.replace("wanda", "sparsegpt")).compress(dense, calibration, progress=False)
    return measured(sizes, pruned, time.process_time() - start, 0, seed) | {"n_steps": 0}


def distilled(sizes: Sizes, name: str, seed: int) -> Row:
    """Train all weights on the probabilities of the dense model; nothing is stored in addition to them."""
    student = copy.deepcopy(subject(name).model)
    schedule = Schedule(
        n_steps=sizes.taught_steps, batch=sizes.batch, length=sizes.text_length, rate=sizes.distil_rate,
        warm_up=min(sizes.warm_up, sizes.taught_steps - 1), decay=0.01,
    )  # fmt: skip
    start = time.process_time()
    distil(student, subject(DENSE).model, text(sizes, seed), Recipe(schedule=schedule, seed=seed), progress=False)
    return measured(sizes, student, time.process_time() - start, 0, seed) | {"n_steps": sizes.taught_steps}


def measured(sizes: Sizes, model: PreTrainedModel, seconds: float, n_bytes: int, seed: int) -> Row:
    ids = held_out(sizes, seed)
    row = losses_row(window_losses(model, ids, progress=False).tolist(), ids[:, 1:].numel())
    return row | {"processor_seconds": round(seconds, 1), "bytes": n_bytes}
