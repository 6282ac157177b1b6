"""What the cases of several exercises of lesson 01 are drawn with."""

import torch
from torch import Tensor

from course_lib.checking.draws import randn


def even_and_spiky(generator: torch.Generator, n_rows: int, n_columns: int) -> Tensor:
    """Columns of similar norm, by turns of entries of one size and with a single entry: norms other than L2 differ."""
    signs = randn(generator, n_rows, n_columns).sign()
    spike = torch.nn.functional.one_hot(torch.randint(n_rows, (n_columns,), generator=generator), n_rows).T
    unit = torch.where(torch.arange(n_columns) % 2 == 0, signs / n_rows**0.5, signs * spike)
    return unit * (1 + torch.randperm(n_columns, generator=generator) / n_columns)


def in_blocks(entries: Tensor, rows: int, columns: int, n_across: int) -> Tensor:
    """(rows · columns, blocks), one block a column, as a matrix of blocks, n side by side."""
    return entries.T.reshape(-1, n_across, rows, columns).transpose(1, 2).flatten(2).flatten(0, 1)
