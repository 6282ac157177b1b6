"""`course prune --shape`: make a smaller dense model, refit it, distil it, and save it for from_pretrained."""

import re
from dataclasses import fields, replace
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib import discover
from course_lib.cli.prune import STOPPED, folder_of
from course_lib.data import corpora
from course_lib.measure.perplexity import perplexity
from course_lib.models import changed_logits, load_model
from course_lib.pruning.stream.resume import FOLDER, make_folder, refuse_foreign
from course_lib.pruning.structured import scorers
from course_lib.pruning.structured.choice import Scores, choose
from course_lib.pruning.structured.distillation import NotFinite, distil
from course_lib.pruning.structured.recipe import Recipe, short_schedule
from course_lib.pruning.structured.refit import refit
from course_lib.pruning.structured.saving import save_whole
from course_lib.pruning.structured.scorer import Evidence, Scorer
from course_lib.pruning.structured.scorers.block_influence import BlockInfluence
from course_lib.pruning.structured.shape import Shape, shape_of
from course_lib.pruning.structured.surgery import check_family, take


def shape_named(text: str, now: Shape) -> Shape:
    """Parse "neurons=1126,blocks=24": the model's shape except for these sizes.

    Raises:
        ValueError: for anything else, or an impossible shape.
    """
    sizes = dict(re.findall(r"(\w+)=(\d+)", text))
    names = [field.name for field in fields(Shape)]
    if ",".join(f"{name}={size}" for name, size in sizes.items()) != text.replace(" ", "") or set(sizes) - set(names):
        raise ValueError(
            f"got shape {text!r}; expected sizes such as 'neurons=1126,blocks=24', of {', '.join(names)}. "
            f"The model has {now}."
        )
    return replace(now, **{name: int(size) for name, size in sizes.items()})


def scorer_named(name: str) -> Scorer:
    """Find the scorer of that name, in upper or lower case.

    Raises:
        ValueError: for an unknown name; the message lists those that exist.
    """
    kinds = {kind.__name__.lower(): kind for kind in discover.subclasses(scorers, Scorer)}
    if name.lower() not in kinds:
        raise ValueError(f"got score {name!r}; expected one of {', '.join(kinds)}.")
    return kinds[name.lower()]()


def run(model_name: str, out: Path, *, shape: str, score: str, samples: int, length: int, seed: int, steps: int) -> int:
    """Write the smaller model to `out`; report parameters and perplexity after each step."""
    console, scorer = Console(), scorer_named(score)
    refuse_foreign(out)
    model, tokenizer = load_model(str(folder_of(model_name)))
    now = shape_of(model)
    target = shape_named(shape, now)
    check_family(model, now, target)
    held_out = corpora.windows("wikipedia", 8, length, tokenizer, split="evaluation", seed=seed)
    windows = corpora.windows("wikipedia", samples, length, tokenizer, split="calibration", seed=seed)
    table = make_table(f"{model_name} pruned to {target}")

    def add(name: str, what: PreTrainedModel) -> None:
        n_parameters = sum(parameter.numel() for parameter in what.parameters())
        value = "not measured" if changed_logits(what) else f"{perplexity(what, held_out).value:.2f}"
        table.add_row(name, f"{n_parameters / 1e6:,.2f} M", value)

    add("dense", model)
    kept = choose(_scores(scorer, Evidence(model, windows), target), now, target)
    smaller = take(model, kept)
    add(f"cut by {type(scorer).__name__}", smaller)
    if kept.shape.width == now.width and (target.neurons, target.heads) != (now.neurons, now.heads):
        refit(model, smaller, kept, windows)
        add("refit", smaller)
    make_folder(out)
    if steps and not _distilled(smaller, model, tokenizer, out, seed, steps, console):
        return STOPPED
    if steps:
        add(f"distilled, {steps} steps", smaller)
    save_whole(smaller, tokenizer, out)
    console.print(table)
    if changes := changed_logits(model):
        console.print(f"Perplexity is not measured where the configuration changes logits ({', '.join(changes)}).")
    console.print(f"Saved to {out}. Load it with: load_model({str(out)!r})", soft_wrap=True)
    return 0


def make_table(title: str) -> Table:
    """Make the table of a run without its rows, one per step."""
    table = Table(Column(overflow="fold"), title=title)
    for heading in ("parameters", "perplexity, held-out Wikipedia"):
        table.add_column(heading, justify="right", overflow="fold")
    return table


def _scores(scorer: Scorer, evidence: Evidence, target: Shape) -> Scores:
    """Compute the method's scores, and block influence to select blocks if the method does not score them."""
    scores = scorer.score(evidence)
    return scores | BlockInfluence().score(evidence) if target.blocks < evidence.shape.blocks else scores


def _distilled(
    smaller: PreTrainedModel,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    out: Path,
    seed: int,
    steps: int,
    console: Console,
) -> bool:
    """Distil, and return whether it finished. If it was interrupted, the folder contains what it needs to continue."""
    schedule = replace(short_schedule(), n_steps=steps)
    text = corpora.windows("wikipedia", 64 * schedule.batch, schedule.length, tokenizer, split="calibration", seed=seed)
    try:
        distil(smaller, model, text, Recipe(schedule=schedule, seed=seed), folder=out / FOLDER)
    except NotFinite as error:
        raise ValueError(str(error)) from error
    except KeyboardInterrupt:
        console.print(
            f"Stopped. The training so far is kept in {out}: the same command continues from there.", soft_wrap=True
        )
        return False
    return True
