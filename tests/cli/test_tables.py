"""Tables of the commands, with long cells, in 80 columns of a terminal or a pipe: no line is wider, no cell is cut."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from course_lib.cli import challenge, cut, doctor, prune
from course_lib.cli.doctor_checks import Row
from course_lib.compose.challenge.judge import Judged
from course_lib.compose.counting.account import Account
from course_lib.pruning.report import PruneReport
from course_lib.workbook import progress

PATH = "/home/a-student-with-a-long-name/.cache/sparsity-workbook/a-folder-without-any-space"
NAME = "blocks.0.mlp.down_proj"


def doctor_table():
    remedy = f"Set COURSE_CACHE={PATH}"
    return doctor.as_table([Row("sandbox", "warning", PATH, remedy)]), [PATH, remedy]


def challenge_table():
    account = Account(stored=10**9, by_part={}, cache=10**8, length=1024, read=10**9, multiply_adds=10**9)
    losses = {"wikipedia": (123.456789, 12.3), "boolq": (-0.001, 0.0004)}
    found = Judged(dense=account, found=account, losses=losses)
    return challenge._table(found, "4 × 1024 tokens per domain, seed 0"), ["× 5184705528587072045056.00 perplexity"]


def prune_table():
    report = PruneReport(16, {NAME: 0.5, "blocks.29.mlp.down_proj": 0.25}, n_zero=1, n_weights=2, n_ignored=3)
    table = prune.make_table(f"{PATH}: 32 × 512 tokens, seed 0", f"SparseGPTWithALongName {PATH}")
    prune._add_rows(table, report)
    return table, ["25.0 % to 50.0 %", f"SparseGPTWithALongName{PATH}"]


def cut_table():
    table = cut.make_table(f"{PATH} pruned to Shape(width=576, blocks=24, neurons=1126, heads=9, groups=3)")
    table.add_row("pruned by CosineSimilarityOfBlocks", "1,134,515.52 M", "1234567.89")
    return table, ["CosineSimilarityOfBlocks", "1,134,515.52M"]


def progress_table():
    return progress.table(), ["Optimalbraindamageandsurgeon", "hintsused"]


TABLES = (doctor_table, challenge_table, prune_table, cut_table, progress_table)


@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_no_cell_is_cut_and_no_line_is_too_long(make, tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_HOME", str(tmp_path))
    table, texts = make()
    assert isinstance(table, Table)
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    printed = console.file.getvalue()
    assert "…" not in printed
    assert max(map(len, printed.splitlines())) <= 80
    columns = [line.split("│")[1:-1] for line in printed.replace("┃", "│").splitlines() if line[0] in "│┃"]
    joined = ["".join(cell.strip() for cell in column) for column in zip(*columns, strict=True)]
    for text in texts:
        assert any(text.replace(" ", "") in column.replace(" ", "") for column in joined), (text, printed)
