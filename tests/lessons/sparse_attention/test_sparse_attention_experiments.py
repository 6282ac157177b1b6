"""The four measurements of lesson 11 on a thin model: every step, its rows, tables, claims and figures."""

import json
import math
from itertools import chain
from statistics import fmean

import pytest
import thin_model
import torch
from matplotlib.figure import Figure

from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.lessons.common import subject
from course_lib.lessons.common.verdicts import NOT_MEASURED
from course_lib.lessons.sparse_attention import claims, deck, optional_plots, plots, tables
from course_lib.lessons.sparse_attention.estimates import prefill as prefill_estimates
from course_lib.lessons.sparse_attention.experiments import (
    delta,
    drafts,
    items,
    prefill_reading,
    sparse_attention,
    sparse_attention_further,
    steering,
    steering_sets,
)
from course_lib.measure.experiment import Experiment
from course_lib.measure.perplexity import window_losses
from course_lib.measure.result_files import heading, plain
from course_lib.models import load_model
from course_lib.prompts.compressed import store
from course_lib.prompts.compressed.catalogue import CATALOGUE
from course_lib.prompts.compressed.kinds import Cut

PLANS = {
    "sparse_attention": (sparse_attention.EXPERIMENT, sparse_attention_further.EXPERIMENT),
    "delta": (delta.EXPERIMENT,),
    "drafts": (drafts.EXPERIMENT,),
    "steering": (steering.EXPERIMENT,),
}
TABLES = {"sparse_attention": (tables.prefill_rules,), "drafts": (tables.drafts_by_text,)}
CLAIMS = {
    "sparse_attention": (
        *claims.GAMMA_CLAIMS, *claims.FLOOR_CLAIMS, *claims.RIVAL_CLAIMS, *claims.RELEASED_CLAIMS, *claims.HEAD_CLAIMS,
    ),
    "delta": (claims.NOTHING_LOST, claims.KEYS_CHANGE_LITTLE, *claims.VARIANT_CLAIMS, claims.DECODED_ALIKE),
    "drafts": (claims.MORE_STAY, *claims.PASS_CLAIMS),
    "steering": (
        claims.NAMES_THE_KEY, *chain.from_iterable(chain.from_iterable(claims.ANSWER_CLAIMS.values())),
    ),
}  # fmt: skip
DRAWN = {
    "sparse_attention": (plots.over_gamma, deck.by_head, deck.rivals),
    "delta": (optional_plots.over_threshold,),
    "drafts": (deck.passes,),
    "steering": (optional_plots.answers,),
}


@pytest.fixture(scope="module")
def thin(tmp_path_factory):
    """The default model in small, wherever the measurements ask for it; everyone passes its gate."""
    with pytest.MonkeyPatch.context() as patch:
        folder = thin_model.write_thin_model(tmp_path_factory.mktemp("thin"), 4)
        loaded = load_model(str(folder))
        patch.setattr(subject, "load_model", lambda _: loaded)
        patch.setattr(store, "_default", lambda: loaded)
        patch.setattr(store, "CALIBRATION", (2, 32))
        patch.setattr(store, "cache_folder", lambda: folder)
        patch.setitem(CATALOGUE, "minitron-50", Cut(depth=0.75, share=0.6))
        forget()
        yield loaded[0]
    forget()


def forget() -> None:
    kept = [subject.loaded, subject.article_windows, prefill_reading.read, delta.spread_of]
    kept += [drafts.stored, drafts.drafting]
    kept += [steering_sets.gated, steering_sets.named_of, steering_sets.searched, steering_sets.worth]
    for each in kept:
        each.cache_clear()


@pytest.fixture(scope="module")
def measured(thin):
    results = {name: run(name, *plans) for name, plans in PLANS.items()}
    for table in ("named", "answers"):  # of SciQ, from what goes on with both
        results["steering"]["tables"][table] += results["sparse_attention"]["tables"][table]
    return results


def run(name: str, *parts: Experiment) -> dict:
    """As `course reproduce NAME --quick` would write it, with what goes on with it."""
    result = heading(name, f"course reproduce {name}", 0, vars(parts[0].quick))
    for step in (step for of in parts for step in of.steps(of.quick)):
        result["steps"][step.name] = {}
        for table, rows in step.run(0).items():
            result["tables"].setdefault(table, []).extend(rows)
    return json.loads(json.dumps(plain(result), allow_nan=False))


@pytest.mark.parametrize("name", PLANS)
def test_all_tables_claims_and_figures(name, measured):
    for make in TABLES.get(name, ()):
        assert len(make(measured[name]).frame)
    for claim in CLAIMS[name]:
        assert claim.judge(measured[name]).verdict != NOT_MEASURED
    for draw in DRAWN[name]:
        assert isinstance(draw(measured[name]), Figure)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("which", ["sizes", "quick"])
def test_no_step_has_two_names(name, which):
    names = [step.name for of in PLANS[name] for step in of.steps(getattr(of, which))]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["sparse_attention", "delta"])
def test_rows_hold_the_losses_of_every_window(name, measured):
    for row in measured[name]["tables"]["read"]:
        assert len(row["losses"]) == 2
        assert row["perplexity"] == pytest.approx(math.exp(fmean(row["losses"])), rel=1e-4)


def test_a_rule_is_measured_as_the_library_applies_it(thin, measured):
    sizes = sparse_attention.QUICK
    row = prefill_estimates.chosen(measured["sparse_attention"])
    ids = subject.article_windows(sizes.windows, sizes.middle, 0)
    rule = FlexPrefill(gamma=sizes.gamma, block_size=sizes.block_size, min_budget=sizes.min_budget)
    with prefilling(thin, rule, "none") as watch:
        losses = window_losses(thin, ids, progress=False)
    torch.testing.assert_close(torch.tensor(row["losses"]).double(), losses, atol=1e-4, rtol=0)
    assert prefill_estimates.density(row) == pytest.approx(float(watch.density.mean()), abs=1e-4)
    shares = [share for layer in measured["sparse_attention"]["tables"]["heads"] for share in layer["density"]]
    assert fmean(shares) == pytest.approx(float(watch.density.mean()), abs=1e-4)


def test_others_read_as_many_blocks(measured):
    mine = prefill_estimates.density(prefill_estimates.chosen(measured["sparse_attention"]))
    n_blocks = 10 * 11 / 2  # 160 tokens in blocks of 16
    for name in sparse_attention.SAME_DENSITY:
        row = next(row for row in measured["sparse_attention"]["tables"]["read"] if row["rule"] == name)
        assert prefill_estimates.density(row) == pytest.approx(mine, abs=0.5 / n_blocks + 1e-4)


def test_decoded_keys_are_those_that_were_read_at_once(measured):
    assert measured["delta"]["tables"]["decoded"][0]["largest_difference"] < 1e-5
    judged = claims.DECODED_ALIKE.judge(measured["delta"])
    assert judged.words == "holds"


def test_no_text_is_in_test_and_development_set(thin):
    sizes = steering_sets.QUICK
    both = [steering_sets.test(sizes, items.RESIDENTS, 0), steering_sets.development(sizes, 0)]
    contexts = [{item.context for item in part} for part in both]
    assert contexts[0] & contexts[1] == set()
    assert [len(part) for part in both] == [sizes.tested, sizes.developed]


def test_an_answer_is_as_likely_as_the_model_says(thin):
    """Batches with padding and a cache, beside one text at a time without either."""
    some = items.residents(0)[:3]
    prompts = [*items.as_prompts(some[:2], "{context} {question}"), *items.as_prompts(some[2:], "{question}")]
    found = items.answered(prompts, [item.choices for item in some], [[]] * 3, steering_sets.nothing)
    tokenizer = subject.loaded()[1]
    for item, prompt, answer in zip(some, prompts, found, strict=True):
        likely = []
        for choice in item.choices:
            asked = tokenizer(prompt, add_special_tokens=False).input_ids
            said = tokenizer(choice, add_special_tokens=False).input_ids
            logits = thin(torch.tensor([asked + said])).logits[0, len(asked) - 1 : -1].double().log_softmax(dim=-1)
            likely.append(logits.gather(1, torch.tensor(said)[:, None]).sum().item() / len(said))
        n_tokens = len(tokenizer(item.choices[0], add_special_tokens=False).input_ids)
        assert answer.log_probability == pytest.approx(likely[0] * n_tokens, abs=1e-4)
        assert answer.right == (likely[0] == max(likely))


def test_reading_questions_have_one_sentence_that_answers():
    some = items.reading(0)
    assert len(some) >= steering_sets.Sizes().tested
    for item in some:
        assert item.key in item.sentences
        assert sum(item.choices[0].lower() in sentence.lower() for sentence in item.sentences) == 1
    assert [item.key for item in some] != [item.key for item in items.reading(1)]


def test_a_draft_that_is_the_model_is_always_believed(thin):
    """α = 1 where the whole model drafts, and fewer bytes where it is cut."""
    texts = drafts.given(drafts.QUICK, drafts.COPYING, 0)
    p = drafts.probabilities(thin, texts[0])
    assert p.sum(dim=1) == pytest.approx(torch.ones(len(p)).double(), abs=1e-9)
    half = len(texts[0].ids) // 2
    assert torch.equal(texts[0].ids[:half], texts[0].ids[half:])
    shares = {name: drafts.read_share(name) for name in drafts.Sizes().drafts}
    assert shares.pop(drafts.LOOKUP) == 0
    assert all(0 < share < 1 for share in shares.values())


@pytest.mark.parametrize(("keys", "share"), [((0.0, 1.0, 0.0, 1.0), 2.0), ((0.0, 0.0, 1.0, 1.0), 2 / 3)])
def test_how_far_keys_move_by_hand(keys, share):
    """Of both the variance is a quarter, so that two keys at random are a half apart, in squares."""
    two_heads = torch.tensor(keys)[None, :, None].expand(2, 4, 1)
    assert float(delta.moved_share(two_heads)) == pytest.approx(share)
