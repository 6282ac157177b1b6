"""`course prune`: prune a checkpoint, even if it does not fit in memory, and save it for from_pretrained."""

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import huggingface_hub
import psutil
import torch
from rich.console import Console
from rich.table import Column, Table
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from course_lib import discover
from course_lib.data import corpora, hub
from course_lib.data.assets.cache import asset_path
from course_lib.data.assets.checkpoint import quiet_transformers
from course_lib.measure.perplexity import perplexity
from course_lib.models import DEFAULT_MODEL, load_model
from course_lib.pruning import device_map as placement
from course_lib.pruning import methods
from course_lib.pruning.allocation.base import Allocation, Uniform
from course_lib.pruning.allocation.one_ranking import OneRanking
from course_lib.pruning.allocation.owl import OWL
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.checks import PruningError
from course_lib.pruning.report import PruneReport
from course_lib.pruning.stream.reader import Source, open_source
from course_lib.pruning.stream.resume import refuse_foreign
from course_lib.pruning.stream.run import prune_checkpoint
from course_lib.sparsity.patterns import NofM, Pattern, Unstructured

ALLOCATIONS: dict[str, Allocation] = {"uniform": Uniform(), "owl": OWL(), "one-ranking": OneRanking()}
FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "LICENSE*")  # of a model on the hub
STOPPED = 130  # the exit code of a program that was interrupted


def method_named(name: str) -> type[LayerPruner]:
    """Find the pruner of that name, in upper or lower case.

    Raises:
        ValueError: for an unknown name; the message lists the methods that exist.
    """
    pruners = {kind.__name__.lower(): kind for kind in discover.subclasses(methods, LayerPruner)}
    if name.lower() not in pruners:
        raise ValueError(f"got method {name!r}; expected one of {', '.join(pruners)}.")
    return pruners[name.lower()]


def pattern_named(text: str, usual: Pattern | None = None) -> Pattern:
    """Parse "0.5", that sparsity in the method's usual pattern, or "2:4", which keeps 2 of every 4 inputs.

    Without a usual pattern, or if that has no sparsity to set, the pattern is Unstructured.

    Raises:
        ValueError: for anything else.
    """
    try:
        if kept := re.fullmatch(r"(\d+):(\d+)", text):
            return NofM(n=int(kept[1]), m=int(kept[2]))
        sparsity = float(text)
        if usual is not None and "sparsity" in {field.name for field in fields(usual)}:
            return replace(usual, sparsity=sparsity)
        return Unstructured(sparsity)
    except ValueError as error:
        raise ValueError(
            f"got pattern {text!r} ({error}); expected a sparsity such as 0.5, or N:M such as 2:4, which keeps N of M."
        ) from None


def allocation_named(name: str) -> Allocation:
    """Find the allocation of that name.

    Raises:
        ValueError: for an unknown name; the message lists those that exist.
    """
    if name.lower() not in ALLOCATIONS:
        raise ValueError(f"got allocation {name!r}; expected one of {', '.join(ALLOCATIONS)}.")
    return ALLOCATIONS[name.lower()]


def folder_of(model: str) -> Path:
    """Find the folder with a model's files: the course's model, a local folder, or a download from the hub.

    Raises:
        ValueError: if there is no such model.
    """
    if model == DEFAULT_MODEL:
        return Path(asset_path(model))
    if Path(model).is_dir():
        return Path(model)
    try:
        place = hub.name_or_folder(model)
        return Path(huggingface_hub.snapshot_download(model, allow_patterns=FILES) if place == model else place)
    except (OSError, ValueError, huggingface_hub.errors.HfHubHTTPError) as error:
        raise ValueError(
            f"got the model name {model!r}, which could not be loaded: {str(error).splitlines()[0]} "
            f"Use {DEFAULT_MODEL!r} (no network needed), a folder made by save_pretrained, or a hub name."
        ) from error


def run(
    model: str,
    out: Path,
    *,
    method: str,
    pattern: str,
    samples: int,
    length: int,
    seed: int,
    allocation: str = "uniform",
    evaluation: bool | None = None,
    device_map: str | None = None,
    ignore: Sequence[str] = (),
) -> int:
    """Prune into `out`; report sparsity, time and memory, and perplexity before and after if that is cheap."""
    console = Console()
    kind = method_named(method)
    pruner, shares = kind(pattern_named(pattern, kind().pattern)), allocation_named(allocation)
    refuse_foreign(out)
    source = open_source(
        folder_of(model)
    )  # before the tokenizer, so that a folder without a checkpoint is reported as such
    tokenizer = _tokenizer(source.folder)
    calibration = corpora.windows("wikipedia", samples, length, tokenizer, split="calibration", seed=seed)
    try:
        if device_map is not None:
            report = placement.prune_dispatched(
                source.folder, out, pruner, calibration, shares, device_map, ignore=ignore
            )
        else:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            report = prune_checkpoint(source, out, pruner, calibration, shares, seed, device, ignore=ignore)
    except PruningError as error:
        raise ValueError(str(error)) from error
    except KeyboardInterrupt:
        console.print(f"Stopped. Finished blocks are kept in {out}: the same command continues from there.")
        return STOPPED
    table = make_table(f"{model}: {samples} × {length} tokens, seed {seed}", f"{kind.__name__} {pattern}")
    _add_rows(table, report)
    why = ""
    if evaluation or (evaluation is None and _fits(source)):
        held_out = corpora.windows("wikipedia", 8, length, tokenizer, split="evaluation", seed=seed)
        try:
            table.add_row(
                "perplexity, held-out Wikipedia", *(_perplexity(folder, held_out) for folder in (source.folder, out))
            )
        except ValueError as error:  # the model is pruned and saved nevertheless
            why = f"Perplexity was not measured: {error}"
    console.print(table)
    if why:
        console.print(why, markup=False, soft_wrap=True)
    for layer, note in report.notes.items():
        console.print(f"{layer}: {note}", markup=False)
    console.print(f"Saved to {out}. Load it with: load_model({str(out)!r})", soft_wrap=True)
    return 0


def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    try:
        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{folder} has no tokenizer that loads ({' '.join(str(error).split())}); expected its files next to the "
            "weights. Save them there with tokenizer.save_pretrained."
        ) from error


def _fits(source: Source) -> bool:
    """Check whether the whole model, in float32, needs less than half of the free memory."""
    n_weights = sum(place.n_bytes // place.dtype.itemsize for place in source.keys.values())
    return 4 * n_weights < psutil.virtual_memory().available / 2


def _perplexity(folder: Path, held_out: torch.Tensor) -> str:
    with quiet_transformers():
        model, _ = load_model(str(folder))
    return f"{perplexity(model, held_out).value:.2f}"


def make_table(title: str, pruned: str) -> Table:
    """Make the table of a run without its rows; it has a column for the dense model and one for the pruned model."""
    table = Table(Column(overflow="fold"), title=title)
    for heading in ("dense", pruned):
        table.add_column(heading, justify="right", overflow="fold")
    return table


def _add_rows(table: Table, report: PruneReport) -> None:
    least, most = min(report.sparsity.values()), max(report.sparsity.values())
    table.add_row(
        "sparsity of the pruned layers" if report.n_ignored else "sparsity of the linear layers",
        "0 %",
        f"{100 * report.total_sparsity:.2f} %",
    )
    if report.n_ignored:
        table.add_row("layers kept dense", "", str(report.n_ignored))
    table.add_row("lowest and highest of a layer", "", f"{100 * least:.1f} % to {100 * most:.1f} %")
    for phase, seconds in report.seconds.items():
        table.add_row(f"seconds, {phase}", "", f"{seconds:.1f}")
    for what, n_bytes in report.bytes.items():
        table.add_row(f"peak memory, {what}", "", f"{n_bytes / 1e6:,.2f} MB")
