"""Every verdict on a committed measurement can be printed, and ends in one of the five words of the rule."""

import re

import pytest

from course_lib.lessons.capstone import found as recipes
from course_lib.lessons.capstone.tables import clock as bytes_on_the_clock
from course_lib.lessons.capstone.tables import drafts as own_drafts
from course_lib.lessons.capstone.tables import front as fronts
from course_lib.lessons.capstone.tables import parts as beside
from course_lib.lessons.capstone.tables import quoted
from course_lib.lessons.classic import fisher
from course_lib.lessons.classic import measured as classic_results
from course_lib.lessons.classic import tables as classic
from course_lib.lessons.common.tables import load_measured
from course_lib.lessons.compress.tables import claims as own_prompts
from course_lib.lessons.compress.tables import found as prompts
from course_lib.lessons.compress.tables import over as moved_prompts
from course_lib.lessons.compress.tables import practice
from course_lib.lessons.dejavu.tables import changes, further, parts, predicted
from course_lib.lessons.dejavu.tables import found as deja_vu
from course_lib.lessons.dejavu.tables import measured as oracles
from course_lib.lessons.minitron.figures import found
from course_lib.lessons.minitron.figures import verdicts as minitron
from course_lib.lessons.moe import kept
from course_lib.lessons.moe.tables import compared as experts
from course_lib.lessons.moe.tables import measured as mixtures
from course_lib.lessons.patterns import speed
from course_lib.lessons.wanda import accuracies
from course_lib.lessons.wanda import measured as wanda_results
from course_lib.lessons.wanda import tables as wanda

PRINTED = {
    "01 on a GPU": speed.gpu_verdict,
    "02 xor": lambda: classic.xor_verdict(classic_results.results()),
    "02 monks": lambda: classic.monks_verdict(classic_results.results()),
    "02 digits": lambda: classic.digits_verdict(classic_results.results()),
    "02 squared gradients": lambda: fisher.order_verdict(classic_results.small()),
    "02 rows": lambda: classic.rows_verdict(classic_results.results()),
    "03 patterns": sparsegpt.pattern_verdict,
    "03 rounded": sparsegpt.rounded_table,
    "03 depth": sparsegpt.thirds_verdict,
    "03 accuracy": sparsegpt.accuracy_verdict,
    "04 accuracy": lambda: wanda.zero_shot_verdict(wanda_results.results()),
    "04 one word": lambda: accuracies.one_word_verdict(wanda_results.results()),
    "04 claims": lambda: wanda.claims_table(wanda_results.results()),
    "05 aggregations": lambda: minitron.aggregations(found.results()),
    "05 accuracies": lambda: minitron.accuracies(found.results()),
    "05 claims": lambda: minitron.claims_table(found.results()),
    "06 upcycled": lambda: mixtures.trained_on(load_measured("moe", "experiments/moe_upcycling")),
    "06 experts": lambda: experts.experts(load_measured("moe")),
    "06 balance": lambda: experts.balancing(load_measured("moe")),
    "06 loads": lambda: mixtures.collapse(load_measured("moe"), "top-1", 1),
    "06 jitter": lambda: experts.jitter(kept.both()),
    "06 z-loss": lambda: experts.z_loss(kept.both()),
    "06 bias": lambda: experts.bias(kept.both()),
    "06 expert choice": lambda: experts.expert_choice(kept.both()),
    "09 contextual": lambda: oracles.contextual(deja_vu.results()),
    "09 exists": lambda: oracles.exists(deja_vu.results()),
    "09 active": lambda: oracles.active(deja_vu.results()),
    "09 heads": lambda: parts.heads(deja_vu.results()),
    "09 predicted heads": lambda: parts.predicted_heads(deja_vu.predictions()),
    "09 batch": lambda: parts.batch(deja_vu.results()),
    "09 rounded": lambda: parts.rounded(deja_vu.results()),
    "09 slow change": lambda: changes.slow(deja_vu.results()),
    "09 depth": lambda: changes.depth(deja_vu.results()),
    "09 thresholds": lambda: changes.activations(deja_vu.results()),
    "09 half windows": lambda: changes.half_windows(deja_vu.results()),
    "09 predictors": lambda: predicted.predictable(deja_vu.predictions()),
    "09 lookahead": lambda: predicted.lookahead(deja_vu.predictions()),
    "09 one kernel": further.one_kernel,
    "09 search": lambda: predicted.search(deja_vu.predictions()),
    "10 gains": lambda: own_prompts.gains(prompts.results()),
    "10 sentences": lambda: moved_prompts.sentences(prompts.results()),
    "10 moved": lambda: moved_prompts.moved(prompts.results()),
    "10 settings": lambda: own_prompts.settings(prompts.results()),
    "10 other text": lambda: moved_prompts.other_text(prompts.results()),
    "10 tasks": lambda: practice.tasks(prompts.results()),
    "10 rivals": lambda: practice.rivals(prompts.results()),
    "10 smaller": lambda: practice.smaller(prompts.results()),
    "12 shares": lambda: beside.shares(recipes.results()),
    "12 pairs": lambda: beside.pairs(recipes.results()),
    "12 orders": lambda: beside.orders(recipes.results()),
    "12 cheapest": lambda: fronts.cheapest(recipes.recipes(recipes.results())),
    "12 sizes": lambda: quoted.sizes(recipes.recipes(recipes.results())),
    "12 equal bytes": lambda: quoted.equal_bytes(recipes.recipes(recipes.results())),
    "12 chosen neurons": lambda: quoted.chosen(recipes.recipes(recipes.results())),
    "12 drafts": lambda: own_drafts.passes(recipes.of_drafts()),
    "12 bytes and time": bytes_on_the_clock.bytes_and_time,
}
WORD = re.compile(
    r": (holds|holds partly \(\d+ of \d+\)|(does not hold|not at this scale)( \(fails in \d+ of \d+\))?"
    r"|cannot tell( \([^)]*\))?)(\.|;.*)?$"
)


@pytest.mark.parametrize("name", PRINTED)
def test_the_committed_measurement_is_judged(name):
    claims = [line for line in PRINTED[name]().splitlines() if "Claim" in line]
    assert claims
    assert not [claim for claim in claims if not WORD.search(claim)]
