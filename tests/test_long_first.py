"""Long files are dealt out to the workers and come first; every test is run once."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from long_first import dealt_out

SECONDS = {"test_a.py": 30, "test_d.py": 50, "test_f.py": 20}


def made_up(**numbers):
    """So many tests of each file, in its order."""
    counted = [(file, at) for file, n in numbers.items() for at in range(n)]
    return [SimpleNamespace(path=Path(f"tests/test_{file}.py"), name=at) for file, at in counted]


def runs(items, n_workers):
    """As worksteal cuts them: each worker gets its part of what is left."""
    found, left = [], dealt_out(items, n_workers, SECONDS)
    for at in range(n_workers):
        n = len(left) // (n_workers - at)
        found.append([f"{item.path.stem[5:]}{item.name}" for item in left[:n]])
        left = left[n:]
    return found


def test_each_run_begins_with_its_share_of_the_long_files():
    items = made_up(a=2, b=3, c=2, d=1, e=2, f=2)
    assert runs(items, 2) == [["d0", "b0", "b1", "b2", "c0", "c1"], ["a0", "a1", "f0", "f1", "e0", "e1"]]
    assert runs(items, 1) == [["d0", "a0", "a1", "f0", "f1", "b0", "b1", "b2", "c0", "c1", "e0", "e1"]]


@pytest.mark.parametrize("n_workers", [1, 2, 3, 7])
@pytest.mark.parametrize("items", [made_up(a=9, d=1), made_up(b=2), [], made_up(a=1, b=5, d=3, f=1, c=8)], ids=len)
def test_every_test_is_run_once_and_a_file_is_not_taken_apart_by_the_order(items, n_workers):
    ordered = dealt_out(items, n_workers, SECONDS)
    assert sorted(map(id, ordered)) == sorted(map(id, items))
    for file in {item.path for item in items} & {Path(f"tests/{name}") for name in SECONDS}:
        at = [place for place, item in enumerate(ordered) if item.path == file]
        assert at == list(range(at[0], at[0] + len(at)))
        assert [ordered[place].name for place in at] == list(range(len(at)))
