"""Prune a checkpoint that need not fit into memory: one block is read, calibrated, pruned and written, then the next.

Dimension key: n windows, T tokens in a window.

It works as `prune_model` does, but each block's weights are on disk until the block is processed, and the hidden states
are in files. The pruned weights are identical. Memory: one block with its pruned copy, its Grams, and one batch of
hidden states; before the first block, the embedding. A killed run resumes at the block where it stopped.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from course_lib.measure.progress import tracked
from course_lib.models import Layer
from course_lib.pruning.allocation.base import UNIFORM, Allocation, Scan, Scores
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.block_inputs import advance, iterate_first_inputs
from course_lib.pruning.checks import PruningError, check_calibration, check_fit, check_method
from course_lib.pruning.report import PHASES, PruneReport
from course_lib.pruning.sequential import prune_block, pruners, scan_blocks
from course_lib.pruning.stream.hidden_states import HiddenFiles, StoredBatch
from course_lib.pruning.stream.reader import Source
from course_lib.pruning.stream.resume import Work, opened, settings_of
from course_lib.pruning.stream.skeleton import Skeleton
from course_lib.pruning.stream.writer import Output

GO_ON = "Finished blocks are kept: give the same command again to continue from there."


@torch.inference_mode()
def prune_checkpoint(
    source: Source,
    out: Path,
    pruner: LayerPruner,
    calibration: Tensor,
    allocation: Allocation = UNIFORM,
    seed: int | None = None,
    device: torch.device | str = "cpu",
    progress: bool = True,
    ignore: Sequence[str] = (),
) -> PruneReport:
    """Prune a checkpoint into the folder `out`, which from_pretrained loads.

    Weights keep the types they are stored in. On the CPU the blocks run in float32, as load_model loads them; on a GPU
    in the type of the checkpoint.

    Args:
        source: the checkpoint, as `open_source(folder)` returns it.
        calibration: token ids (n, T), one window per row, as `corpora.windows` returns them.
        seed: the seed of the calibration, to distinguish a resumed run from another one; the tokens are compared too.
        ignore: layers that stay dense, by patterns such as "blocks.0.*" or "*.mlp.down_proj".

    Raises:
        ValueError: the request is not possible; nothing was written.
        PruningError: the run stopped midway; finished blocks are kept, and the same call resumes there.
    """
    device = torch.device(device)
    skeleton = Skeleton(source, device, torch.float32 if device.type == "cpu" else None, ignore)
    _check(skeleton, pruner, calibration, allocation)
    report = PruneReport(calibration.numel(), seconds=dict.fromkeys((*PHASES, "read", "write"), 0.0))
    report.n_ignored = skeleton.n_ignored
    settings = settings_of(skeleton.source.identity, device, pruner, calibration, allocation, seed, ignore)
    with opened(out, settings, report) as work:
        run = _Run(skeleton, pruner, calibration, allocation, work)
        run.check_finished()
        try:
            run.prune(progress)
            run.complete()
        except Exception as error:
            if isinstance(error, ValueError) and not work.n_finished and not work.report.sparsity:
                raise  # the checkpoint or the request is wrong, and no work is lost
            remedy = f"Remove {out} and give the command again." if isinstance(error, FileNotFoundError) else GO_ON
            raise PruningError(work.report.reached, len(work.report.sparsity), error, remedy) from error
    return work.report


class _Run:
    """The state of one run."""

    def __init__(
        self, skeleton: Skeleton, pruner: LayerPruner, calibration: Tensor, allocation: Allocation, work: Work
    ):
        self.skeleton, self.pruner, self.calibration = skeleton, pruner, calibration
        self.allocation, self.work, self.report = allocation, work, work.report
        self.n_blocks = len(skeleton.blocks)
        self.output = Output(skeleton, work.out)

    def check_finished(self) -> None:
        """Raise ValueError if the file of a finished block is missing, because the result would not load."""
        files = [self.output.file_of(index) for index in range(self.work.n_finished)]
        if missing := [path.name for path in files if not path.is_file()]:
            raise ValueError(
                f"{self.work.out} lacks {missing[0]}, which an earlier run wrote; expected all finished files. "
                f"Remove {self.work.out} and give the command again."
            )

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
        for index in tracked(todo, "pruning", progress):
            self._prune_block(index, files, batches)

    def _prune_block(self, index: int, files: HiddenFiles, batches: list[StoredBatch]) -> None:
        report = self.report
        report.reached = f"blocks.{index}"
        with self._block(index) as layers:
            prune_block(layers, pruners(self.pruner, self.allocation, self.work.shares, layers), batches, report)
            report.held("activations", files.held(batches) if batches else 0)
            with report.timed("write"):
                self.output.write_block(index)
            if index + 1 < self.n_blocks:
                with report.timed("forward"):
                    advance(self.skeleton.blocks[index], batches)
        self.work.n_finished = index + 1
        self.work.save()
        files.step(index + 1)

    def complete(self) -> None:
        """Write the weights outside of the blocks, and the files that turn the shards into a checkpoint."""
        self.report.reached = "the weights outside of the blocks"
        with self.report.timed("write"):
            self.output.write_outside()
        self.output.write_rest({**self.work.settings, **asdict(self.report)})
        self.work.complete = True

    @contextmanager
    def _block(self, index: int) -> Iterator[list[Layer]]:
        """Yield the layers of a block whose weights are loaded; only the loading is timed, not the code inside."""
        with ExitStack() as stack:
            with self.report.timed("read"):
                stack.enter_context(self.skeleton.block(index))
            yield self.skeleton.layers[index]

    def _start(self, files: HiddenFiles, pruner: LayerPruner) -> list[StoredBatch]:
        if pruner.needs == "nothing":
            return []
        with self.report.timed("forward"), self.skeleton.embedded() as model:
            return files.take(iterate_first_inputs(model, self.calibration, self.skeleton.blocks), keep=files.at > 0)

    def _scan(self) -> Scan:
        """Return a function that yields the dense model's scores; its hidden states are in files, too."""

        def scan(scorer: LayerPruner) -> Iterator[Scores]:
            files = HiddenFiles(self.work.folder, self.skeleton.device)
            files.step(0)
            return scan_blocks(self._each_block(files), self._start(files, scorer), scorer, self.report)

        return scan

    def _each_block(self, files: HiddenFiles) -> Iterator[tuple[nn.Module, list[Layer]]]:
        for index in range(self.n_blocks):
            files.step(index)
            with self._block(index) as layers:
                yield self.skeleton.blocks[index], layers


def _check(skeleton: Skeleton, pruner: LayerPruner, calibration: Tensor, allocation: Allocation) -> None:
    check_method(pruner, allocation)
    check_calibration(skeleton.model, calibration)
    check_fit(pruner.pattern, [layer for layers in skeleton.layers for layer in layers])
