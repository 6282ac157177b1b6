"""`course reproduce kv_further`: policies without merging, one text per article, and its committed rows."""

import pytest
import torch
from kv_naive import FirstLayer, kept_by, run, sharp_model

from course_lib.kv.cache import evicting
from course_lib.kv.policies.d2o import D2O
from course_lib.kv.policies.ems import EMS
from course_lib.lessons.common import subject
from course_lib.lessons.common.results import load_measured, rows
from course_lib.lessons.kv.experiments import kv_further, settings

IDS = torch.randint(3, 97, (1, 40), generator=torch.Generator().manual_seed(2))
D2O_SETTINGS = {"budget": 16, "sinks": 2, "recent": 3, "spared": ()}
EMS_SETTINGS = {"budget": 16, "sinks": 2, "recent": 3, "window": 8, "threshold": 0.0}


@pytest.mark.parametrize(
    ("merging", "evicting_alone"),
    [
        (D2O(**D2O_SETTINGS), settings.EvictingD2O(**D2O_SETTINGS)),
        (EMS(**EMS_SETTINGS), settings.EvictingEMS(**EMS_SETTINGS)),
    ],
    ids=["D2O", "EMS"],
)
def test_without_merging_the_same_tokens_stay_as_they_were(merging, evicting_alone):
    model = sharp_model()
    first = FirstLayer(model, IDS[0])
    kept, is_unchanged = [], []
    for policy in (merging, evicting_alone):
        with evicting(model, policy) as cache:
            run(model, cache, IDS, range(40))
            slots = cache.slots[0]
        kept.append(kept_by(slots))
        taken = slots.occupied[0]
        head = torch.arange(2)[:, None].expand_as(slots.position[0])[taken]
        wanted = first.key[head, slots.position[0][taken]].float()
        is_unchanged.append(torch.allclose(slots.keys[0][taken], wanted, rtol=0, atol=1e-5))
    assert kept[0] == kept[1]
    assert is_unchanged == [False, True]


def test_policies_without_merging_have_the_settings_of_those_that_merge():
    for name in ("D2O", "EMS"):
        merging, alone = (settings.with_budgets(each, (20, 40)) for each in (name, name + settings.WITHOUT_MERGING))
        assert [(each.budget, each.sinks, each.recent) for each in merging] == [
            (each.budget, each.sinks, each.recent) for each in alone
        ]
        assert name + settings.WITHOUT_MERGING not in settings.names()


@pytest.mark.real
def test_every_window_starts_another_article():
    few, more = (subject.article_starts(n, 360, 0) for n in (3, 25))
    assert torch.equal(few, more[:3])
    assert len(more.unique(dim=0)) == 25
    with pytest.raises(ValueError, match="at most the 24 articles"):
        subject.article_starts(25, 640, 0)


def test_the_committed_cache_of_scissorhands_is_five_times_smaller():
    table = load_measured("kv", "kv_further")
    (full,) = rows(table, "compressed", policy="Full")
    (fifth,) = rows(table, "compressed", policy="Scissorhands", budget=kv_further.FIVE_TIMES)
    assert 4.9 < full["bytes"] / fifth["bytes"] <= 5
    assert {len(row["losses"]) for row in table["tables"]["compressed"]} == {kv_further.Sizes().prompts}
