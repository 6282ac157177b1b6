"""Prune a checkpoint that need not fit into memory: one block is read, calibrated, pruned and written, then the next.

Dimension key: n windows, T tokens in a window.

It is the same sweep as `prune_model`, with the blocks' weights on disk until their turn comes and the hidden states in
files, so the result is the same weight for weight. Memory: one block with its pruned copy, its Grams, and one batch of
hidden states; before the first block the embedding. A run that is killed goes on at the block where it was.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor, nn

from course_lib.models import linears
from course_lib.pruning.allocation import UNIFORM, Allocation, Scan, Scores
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.guard import PruningError, check_calibration, check_fit, check_method, check_model
from course_lib.pruning.hidden import advance, iterate_first_inputs
from course_lib.pruning.report import PHASES, PruneReport
from course_lib.pruning.sequential import prune_block, pruners, scan_blocks
from course_lib.pruning.stream_files import Place, whole, write
from course_lib.pruning.stream_source import INDEX, Skeleton, open_source
from course_lib.pruning.stream_state import HiddenFiles, StoredBatch, Work, opened

GO_ON = "What is finished is kept: give the same command again to go on from there."


@torch.inference_mode()
def prune_checkpoint(
    source: Path,
    out: Path,
    pruner: LayerPruner,
    calibration: Tensor,
    allocation: Allocation = UNIFORM,
    seed: int | None = None,
    device: torch.device | str = "cpu",
    progress: bool = True,
) -> PruneReport:
    """Prune the checkpoint in the folder `source` into the folder `out`, which from_pretrained loads.

    Weights keep the types they are stored in. On the CPU the blocks run in float32, as load_model loads them; on a GPU
    in the type of the checkpoint.

    Args:
        calibration: token ids (n, T), one window a row, as `corpora.windows` gives them.
        seed: that of the calibration, to tell a run that is resumed from another one; the tokens are compared too.

    Raises:
        ValueError: what was asked for cannot be done; nothing was written.
        PruningError: it stopped in the middle; what is finished is kept, and the same call goes on from there.
    """
    device = torch.device(device)
    skeleton = Skeleton(open_source(source), device, torch.float32 if device.type == "cpu" else None)
    _check(skeleton, pruner, calibration, allocation)
    report = PruneReport(calibration.numel(), seconds=dict.fromkeys((*PHASES, "read", "write"), 0.0))
    with opened(out, _settings(skeleton, pruner, calibration, allocation, seed), report) as work:
        run = _Run(skeleton, pruner, calibration, allocation, work)
        try:
            run.prune(progress)
            run.complete()
        except Exception as error:
            if isinstance(error, ValueError) and not work.n_finished and not work.report.sparsity:
                raise  # the checkpoint or what was asked for is at fault, and nothing is lost
            raise PruningError(work.report.reached, len(work.report.sparsity), error, GO_ON) from error
    return work.report


class _Run:
    """One run: what it works on, and where it is."""

    def __init__(
        self, skeleton: Skeleton, pruner: LayerPruner, calibration: Tensor, allocation: Allocation, work: Work
    ):
        self.skeleton, self.pruner, self.calibration = skeleton, pruner, calibration
        self.allocation, self.work, self.report = allocation, work, work.report
        self.n_blocks = len(skeleton.blocks)

    def prune(self, progress: bool) -> None:
        work, self.report.reached = self.work, "the dense model"
        if work.shares is None:
            with self.report.timed("read"):
                self.skeleton.check()
            work.shares = self.allocation.sparsities(self.pruner, self._scan())
            work.save()
        files = HiddenFiles(work.folder, self.skeleton.device, work.n_finished)
        files.step(work.n_finished)
        batches = self._start(files, self.pruner) if work.n_finished < self.n_blocks else []
        todo = range(work.n_finished, self.n_blocks)
        for index in track(todo, "pruning", disable=not progress, transient=True):
            self._prune_block(index, files, batches)

    def _prune_block(self, index: int, files: HiddenFiles, batches: list[StoredBatch]) -> None:
        name, report = f"blocks.{index}", self.report
        report.reached = name
        with self._block(index) as block:
            chosen = pruners(self.pruner, self.allocation, self.work.shares, index, block)
            prune_block(name, block, chosen, batches, report)
            report.held("activations", files.held(batches) if batches else 0)
            with report.timed("write"):
                self._write_block(index, block)
            if index + 1 < self.n_blocks:
                with report.timed("forward"):
                    advance(block, batches)
        self.work.n_finished = index + 1
        self.work.save()
        files.step(index + 1)

    def _write_block(self, index: int, block: nn.Module) -> None:
        """All that the checkpoint has of this block: pruned weights in their stored type, the rest as it is."""
        tensors: dict[str, Place | Tensor] = {
            key: self.skeleton.source.keys[key] for key in self.skeleton.keys_of(index)
        }
        names = self.skeleton.names_of(index)
        for layer, module in linears(block).items():
            key = names[f"{layer}.weight"]
            tensors[key] = module.weight.to(self.skeleton.source.keys[key].dtype)
        write(self._shard(index), tensors)

    def complete(self) -> None:
        """The weights outside of the blocks, the other files, and last the index, without which nothing loads."""
        self.report.reached = "the weights outside of the blocks"
        shards = [self.skeleton.keys_of(index) for index in range(self.n_blocks)] + self._outside()
        with self.report.timed("write"):
            for number in range(self.n_blocks, len(shards)):
                write(self._shard(number), {key: self.skeleton.source.keys[key] for key in shards[number]})
        for path in self.skeleton.source.others():
            with whole(self.work.out / path.name) as file:
                file.write(path.read_bytes())
        told = {**self.work.settings, **asdict(self.report)}
        with whole(self.work.out / "pruning.json") as file:
            file.write((json.dumps(told, indent=1) + "\n").encode())
        weights = {key: self._shard(number).name for number, keys in enumerate(shards) for key in keys}
        index = {"metadata": {"total_size": self.skeleton.source.n_bytes}, "weight_map": weights}
        with whole(self.work.out / INDEX) as file:
            file.write((json.dumps(index, indent=1) + "\n").encode())
        self.work.complete = True

    def _shard(self, number: int) -> Path:
        n_shards = self.n_blocks + len(self._outside())
        return self.work.out / f"model-{number + 1:05d}-of-{n_shards:05d}.safetensors"

    def _outside(self) -> list[list[str]]:
        """What lies outside of the blocks, in shards no larger than the largest block, or of a single tensor."""
        keys, shards, size = self.skeleton.source.keys, [], 0
        largest = max(sum(keys[key].n_bytes for key in self.skeleton.keys_of(i)) for i in range(self.n_blocks))
        for key in self.skeleton.keys_outside():
            if not shards or size + keys[key].n_bytes > largest:
                shards.append([])
                size = 0
            shards[-1].append(key)
            size += keys[key].n_bytes
        return shards

    @contextmanager
    def _block(self, index: int) -> Iterator[nn.Module]:
        with ExitStack() as stack:
            with self.report.timed("read"):
                block = stack.enter_context(self.skeleton.block(index))
            yield block

    def _start(self, files: HiddenFiles, pruner: LayerPruner) -> list[StoredBatch]:
        if pruner.needs == "nothing":
            return []
        with self.report.timed("forward"), self.skeleton.embedded() as model:
            return files.take(iterate_first_inputs(model, self.calibration), keep=files.at > 0)

    def _scan(self) -> Scan:
        """Scores of the dense model; hidden states go from file to file here too."""

        def scan(scorer: LayerPruner) -> Iterator[Scores]:
            files = HiddenFiles(self.work.folder, self.skeleton.device)
            files.step(0)
            return scan_blocks(self._each_block(files), self._start(files, scorer), scorer, self.report)

        return scan

    def _each_block(self, files: HiddenFiles) -> Iterator[nn.Module]:
        for index in range(self.n_blocks):
            files.step(index)
            with self._block(index) as block:
                yield block


def _check(skeleton: Skeleton, pruner: LayerPruner, calibration: Tensor, allocation: Allocation) -> None:
    check_model(skeleton.model)
    check_method(pruner, allocation)
    check_calibration(skeleton.model, calibration)
    shapes = {}
    for index, block in enumerate(skeleton.blocks):
        for layer, module in linears(block).items():
            rows, columns = module.weight.shape if isinstance(module, nn.Linear) else module.weight.T.shape
            shapes[f"blocks.{index}.{layer}"] = (rows, columns)
    check_fit(pruner.pattern, shapes)


def _settings(
    skeleton: Skeleton, pruner: LayerPruner, calibration: Tensor, allocation: Allocation, seed: int | None
) -> dict[str, str | int | None]:
    """What must be the same for a run to go on. Two are digests: of the checkpoint's files, and of the tokens."""
    return {
        "method": repr(pruner),
        "allocation": repr(allocation),
        "windows": " x ".join(map(str, calibration.shape)),
        "seed": seed,
        "tokens": hashlib.sha256(calibration.long().numpy().tobytes()).hexdigest()[:16],
        "checkpoint": skeleton.source.identity[:16],
        "device": skeleton.device.type,
    }
