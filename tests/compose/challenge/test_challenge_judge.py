"""A recipe judged: paired with the dense model, each step once, on texts that are bounded."""

import json
from dataclasses import dataclass

import pytest
import torch
from sharp_model import calibration, sharp_model, texts_of, tiny_judge
from transformers import PreTrainedTokenizerBase

from course_lib.compose.challenge import judge as judging
from course_lib.compose.challenge.budget import Budget
from course_lib.compose.challenge.judge import Judged, Measured, judged
from course_lib.compose.challenge.memory import Memory
from course_lib.compose.challenge.texts import texts
from course_lib.compose.counting.account import Account
from course_lib.compose.evaluate import continued_losses
from course_lib.compose.part import FiledPart
from course_lib.compose.recipe import Calibration, Recipe, from_json
from course_lib.measure.paired import mean_and_error

SPARSE = from_json('{"weights": {"method": "Magnitude", "pattern": 0.3}}')


@pytest.fixture(autouse=True)
def random_calibration(monkeypatch):
    monkeypatch.setattr(Calibration, "text", calibration)


@pytest.fixture(scope="module")
def sharp():
    return sharp_model()


def account_of(held, read):
    return Account(stored=held - 10, by_part={}, cache=10, length=1024, read=read, multiply_adds=5)


def test_the_budget_by_hand():
    """Each limit belongs to it; the worse domain counts."""
    losses = {"wikipedia": (0.25, 0.01), "boolq": (0.5, 0.2)}
    dense, budget = account_of(300, 200), Budget(held=1 / 3, read=1 / 2)
    kept = Judged(dense=dense, found=account_of(100, 100), losses=losses, budget=budget)
    assert (kept.held, kept.read, kept.within) == (1 / 3, 1 / 2, True)
    assert kept.worse == ("boolq", (0.5, 0.2))
    assert kept.of_budget == "33.3% of the bytes stored, within 33.3%; 50.0% of the bytes read per token, within 50.0%"
    for held, read in ((101, 100), (100, 101)):
        found = Judged(dense=dense, found=account_of(held, read), losses=losses, budget=budget)
        assert not found.within
        assert "above" in found.of_budget


def test_losses_are_those_of_the_built_model_and_paired(sharp):
    at = tiny_judge(sharp)
    found, dense = at.measure(SPARSE), at.measure(Recipe())
    for domain, windows in at.texts.windows.items():
        built = judging.build(SPARSE, sharp, calibration(SPARSE.calibration, None))
        assert list(found.losses[domain]) == continued_losses(built, windows).tolist()
        differences = torch.tensor(found.losses[domain]) - torch.tensor(dense.losses[domain])
        assert judged(found, dense).losses[domain] == pytest.approx(mean_and_error(differences), rel=1e-5)
    assert judged(dense, dense).losses["boolq"] == (0, 0)
    assert judged(found, dense).worse[1][0] > 0.2  # it writes the dense model's own words worse


def test_windows_do_not_depend_on_how_many_are_read_at_once(sharp, monkeypatch):
    """Sums in another order move a loss of three nats by 1e-6 at most."""
    at = tiny_judge(sharp, texts=texts_of(sharp, n=5))
    whole = at.measure(SPARSE)
    monkeypatch.setattr(judging, "AT_ONCE", 2)
    for domain, losses in at.measure(SPARSE).losses.items():
        assert losses == pytest.approx(whole.losses[domain], abs=1e-5)


def test_an_interrupted_run_goes_on_where_it_was(sharp, tmp_path, monkeypatch):
    """Ctrl-C while the second domain is read: bytes and the first domain are kept, and nothing is half written."""
    at, reads = tiny_judge(sharp, memory=Memory(tmp_path)), []

    def interrupted(built, windows):
        reads.append(1)
        if len(reads) == 2:
            raise KeyboardInterrupt
        return continued_losses(built, windows)

    monkeypatch.setattr(judging, "continued_losses", interrupted)
    with pytest.raises(KeyboardInterrupt):
        at.measure(SPARSE)
    assert len(list(tmp_path.iterdir())) == 2
    for path in tmp_path.iterdir():
        json.loads(path.read_text())
    monkeypatch.setattr(judging, "counted", None)  # it would fail if bytes were counted again
    found = at.measure(SPARSE)
    assert len(reads) == 3
    monkeypatch.setattr(judging, "build", None)  # all is known: nothing is built
    assert at.measure(SPARSE) == found
    assert found == tiny_judge_of(at).measure(SPARSE)


def tiny_judge_of(at):
    return tiny_judge(at.model, texts=at.texts, memory=at.memory)


def test_what_is_kept_is_not_taken_for_anything_else(sharp, tmp_path):
    """Another recipe, text or model has a name of its own; a file that is not sound is measured anew."""
    memory = Memory(tmp_path)
    at = tiny_judge(sharp, memory=memory)
    found = at.measure(SPARSE)
    others = [
        (at, from_json('{"weights": {"method": "Magnitude", "pattern": 0.31}}')),
        (tiny_judge(sharp, memory=memory, texts=texts_of(sharp, seed=5)), SPARSE),
        (tiny_judge(sharp_model(seed=1), memory=memory, texts=at.texts), SPARSE),
    ]
    for where, recipe in others:
        n_before = len(list(tmp_path.iterdir()))
        where.measure(recipe)
        assert len(list(tmp_path.iterdir())) == n_before + 3
    for path in tmp_path.iterdir():
        path.write_text("{half")
    assert at.measure(SPARSE) == found


@dataclass(frozen=True, kw_only=True)
class Named(FiledPart):
    """A part that no file of the library knows, with a file of its own."""

    name, place, most_on_disk = "named", 9, 10

    def apply(self, making, ground):
        return making

    def in_words(self):
        return "A part with a name."


def test_another_file_of_any_part_is_another_recipe(sharp, tmp_path):
    at, kept = tiny_judge(sharp, memory=Memory(tmp_path / "kept")), []
    for content in ("one", "two", "one"):
        (tmp_path / "its.safetensors").write_text(content)
        at.measure(Recipe(parts=(Named(file="its.safetensors"),)), tmp_path)
        kept.append(len(list((tmp_path / "kept").iterdir())))
    assert kept == [3, 6, 6]


def test_a_model_without_a_loss_is_refused(sharp, monkeypatch):
    monkeypatch.setattr(
        judging, "continued_losses", lambda built, windows: torch.full((len(windows),), torch.nan, dtype=torch.float64)
    )
    with pytest.raises(ValueError, match="is NaN or infinite; expected a finite loss"):
        tiny_judge(sharp).measure(SPARSE)


def test_a_count_that_is_not_that_of_the_formulas_is_the_librarys_fault(sharp, monkeypatch):
    monkeypatch.setattr(judging, "stored_bytes", lambda built: 1)
    with pytest.raises(judging.Miscounted, match="one of the two counts is wrong"):
        tiny_judge(sharp).measure(SPARSE)


# Texts -----------------------------------------------------------------------------------------------------------


class Words(PreTrainedTokenizerBase):
    """A tokenizer of one token a word."""

    def __init__(self):
        pass

    def __call__(self, text, **_):
        return type("Ids", (), {"input_ids": [int(word) for word in text.split()]})


@pytest.fixture
def numbered(monkeypatch):
    def windows(corpus, n, length, tokenizer, split, seed):
        assert split == "evaluation"
        return torch.full((n, length), len(corpus) + seed)

    monkeypatch.setattr("course_lib.data.corpora.windows", windows)


def test_two_domains_and_a_seed(numbered):
    found = texts(Words(), 3, 64, seed=7)
    assert {name: (tuple(ids.shape), int(ids[0, 0])) for name, ids in found.windows.items()} == {
        "wikipedia": ((3, 64), 16),
        "boolq": ((3, 64), 12),
    }
    assert len(found.behind) == 1024
    assert found.digest == texts(Words(), 3, 64, seed=7).digest != texts(Words(), 3, 64, seed=8).digest


def test_a_text_of_the_instructor_stands_in_for_the_first_domain(numbered):
    found = texts(Words(), 2, 64, seed=0, own=" ".join(map(str, range(200))))
    assert sorted(int(row[0]) for row in found.windows["text"]) in ([0, 64], [0, 128], [64, 128])
    assert all((row - row[0]).tolist() == list(range(64)) for row in found.windows["text"])
    assert set(found.windows) == {"text", "boolq"}
    with pytest.raises(ValueError, match="a text of 100 tokens, enough for 1 windows of 64; expected 2"):
        texts(Words(), 2, 64, own=" ".join(map(str, range(100))))


@pytest.mark.parametrize(("n", "length"), [(1, 64), (65, 64), (4, 63), (4, 4096)])
def test_sizes_of_texts_are_bounded(n, length):
    with pytest.raises(ValueError, match="expected 2 to 64 of 64 to 2048"):
        texts(Words(), n, length)


def test_measured_is_plain_data():
    assert Measured(account=account_of(30, 20), losses={"boolq": (1.0,)}).losses["boolq"] == (1.0,)
