"""Random matrices for the cases of several exercises of lesson 01."""

import torch
from torch import Tensor

from course_lib.checking.draws import randn


def even_and_spiky(generator: torch.Generator, n_rows: int, n_columns: int) -> Tensor:
    """Columns of similar L2 norm, in turn with equal entries and with a single one, so that other norms differ."""
    signs = randn(generator, n_rows, n_columns).sign()
    spike = torch.nn.functional.one_hot(torch.randint(n_rows, (n_columns,), generator=generator), n_rows).T
    unit = torch.where(torch.arange(n_columns) % 2 == 0, signs / n_rows**0.5, signs * spike)
    return unit * (1 + torch.randperm(n_columns, generator=generator) / n_columns)


def in_blocks(entries: Tensor, rows: int, columns: int, n_across: int) -> Tensor:
    """Turn (rows · columns, blocks), one block per column, into a matrix with n_across blocks per row."""
    return entries.T.reshape(-1, n_across, rows, columns).transpose(1, 2).flatten(2).flatten(0, 1)
