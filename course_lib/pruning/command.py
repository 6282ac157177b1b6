"""`course prune`: prune a model and save it as a checkpoint that from_pretrained loads."""

import re
from pathlib import Path

from rich.console import Console
from rich.table import Table

from course_lib import corpora, discover, evaluate
from course_lib.models import load_model
from course_lib.pruning import methods
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.guard import PruningError
from course_lib.pruning.sequential import prune_model
from course_lib.sparsity.patterns import NofM, Pattern, Unstructured


def method_named(name: str) -> type[LayerPruner]:
    """The pruner of that name, whatever its capitals.

    Raises:
        ValueError: listing the methods that exist.
    """
    found = {c.__name__.lower(): c for c in discover.subclasses(methods, LayerPruner)}
    if name.lower() not in found:
        raise ValueError(f"got method {name!r}; expected one of {', '.join(found)}.")
    return found[name.lower()]


def pattern_named(text: str) -> Pattern:
    """ "0.5" is a sparsity per output row; "2:4" keeps 2 of every 4 inputs.

    Raises:
        ValueError: for anything else.
    """
    try:
        match = re.fullmatch(r"(\d+):(\d+)", text)
        return NofM(int(match[1]), int(match[2])) if match else Unstructured(float(text))
    except ValueError as error:
        raise ValueError(
            f"got pattern {text!r} ({error}); expected a sparsity such as 0.5, or kept N:M such as 2:4."
        ) from None


def run(model: str, out: Path, method: str, pattern: str, samples: int, length: int, seed: int) -> int:
    """Prune, report the sparsity and the perplexity before and after, save."""
    console = Console()
    pruner = method_named(method)(pattern_named(pattern))
    if out.is_file() or (out.exists() and any(out.iterdir())):
        raise ValueError(f"{out} is there already and not an empty folder; nothing is overwritten. Give a new folder.")
    network, tokenizer = load_model(model)
    held_out = corpora.windows("wikipedia", 8, length, tokenizer, split="evaluation", seed=seed)
    calibration = corpora.windows("wikipedia", samples, length, tokenizer, split="calibration", seed=seed)
    before = evaluate.perplexity(network, held_out)
    try:
        report = prune_model(network, pruner, calibration)
    except PruningError as error:
        raise ValueError(f"{error} Nothing was saved.") from error
    after = evaluate.perplexity(network, held_out)
    network.save_pretrained(out)
    tokenizer.save_pretrained(out)
    mean = sum(report.sparsity.values()) / len(report.sparsity)
    table = Table(
        "", "dense", f"{method} {pattern}", title=f"{model}: {samples} × {length} calibration tokens, seed {seed}"
    )
    table.add_row("sparsity of the blocks' linears", "0 %", f"{100 * mean:.1f} %")
    table.add_row("perplexity, held-out Wikipedia", f"{before.value:.2f}", f"{after.value:.2f}")
    for phase, seconds in report.seconds.items():
        table.add_row(f"seconds, {phase}", "", f"{seconds:.1f}")
    console.print(table)
    console.print(f"Saved to {out}. Load it with: load_model({str(out)!r})", soft_wrap=True)
    return 0
