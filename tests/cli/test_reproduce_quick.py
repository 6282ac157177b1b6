"""Every experiment runs quick, and gives the tables of its committed result."""

import pytest

from course_lib.cli import reproduce
from course_lib.measure.result_files import load

# Tables that tiny samples leave out or empty, and columns that a committed result has not been measured with yet.
NO_ROWS = {"grading": {"differences"}, "prompts_rest": {"own", "models"}}
NEWER_COLUMNS = {"sparsegpt_successors": {"losses"}, "kv": {"sparsity_by_text"}}
# Of one window or question there is no standard error, and nobody learns vowels within a quick run.
MAY_BE_NONE = {"standard_error", "epochs_to_88", "epochs_to_90"}


def columns(rows):
    return {column for row in rows for column in row}


def without_a_number(rows):
    """The columns in which a value is none: what is not finite is written so."""
    return {column for row in rows for column, value in row.items() if value is None}


def check(name, result):
    """Every step is there, and every table has rows with the committed columns and as finite values."""
    experiment = reproduce.find(name)
    assert list(result["steps"]) == [step.name for step in experiment.steps(experiment.quick)]
    committed = load(reproduce.committed(name))["tables"]
    found = {table: rows for table, rows in result["tables"].items() if rows}
    assert set(committed) - set(found) <= NO_ROWS.get(name, set())
    assert set(found) <= set(committed)
    for table, rows in found.items():
        assert columns(rows) - NEWER_COLUMNS.get(name, set()) == columns(committed[table]), table
        assert without_a_number(rows) <= without_a_number(committed[table]) | MAY_BE_NONE, table


@pytest.mark.real
@pytest.mark.parametrize("name", reproduce.names())
def test_every_experiment_runs_quick(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"{name}.json"
    assert reproduce.run(name, path, quick=True) == 0
    check(name, load(path))
