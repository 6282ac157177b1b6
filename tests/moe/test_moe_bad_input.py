"""What cannot be routed is refused: got what, expected what. What annotations catch first is tried in checks."""

import dataclasses
import math

import pytest
import torch

from course_lib import discover
from course_lib.moe import checks, losses, routers
from course_lib.moe.experts import Experts, random_experts
from course_lib.moe.layer import MoE, random_layer
from course_lib.moe.routers.deepseek import DeepSeek
from course_lib.moe.routers.expert_choice import ExpertChoice
from course_lib.moe.routers.gshard import GShard
from course_lib.moe.routers.hash_layers import Hash
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.noisy_top_k import NoisyTopK
from course_lib.moe.routers.switch import Switch
from course_lib.moe.routing import Router
from course_lib.moe.soft import SoftMoE, random_soft

LOGITS = torch.zeros(6, 4)
ROUTERS = discover.subclasses(routers, Router)
SETTABLE = [router for router in ROUTERS if "k" in {field.name for field in dataclasses.fields(router)}]


def refused(message):
    return pytest.raises(ValueError, match=message)


@pytest.mark.parametrize("router", ROUTERS, ids=lambda router: router.__name__)
def test_every_router_refuses_what_no_router_can_route(router):
    """Base checks come first, so that no leaf can forget one."""
    ids = torch.zeros(6, dtype=torch.long)
    with refused(r"got 1 expert\(s\); expected 2 or more"):
        router().route(LOGITS[:, :1], ids=ids, noise=LOGITS[:, :1])
    many = torch.zeros(6, 8)
    with refused("got no tokens to route"):
        router().route(many[:0], ids=ids[:0], noise=many[:0])
    with refused(r"got no tokens to route \(6 rows, all padding\)"):
        router().route(many, real=torch.zeros(6, dtype=torch.bool), ids=ids, noise=many)
    for value in (math.nan, math.inf, -math.inf):
        bad = many.clone()
        bad[2, 1] = value
        with refused("got logits with 1 of 48 values that are NaN or infinite"):
            router().route(bad, ids=ids, noise=many)


@pytest.mark.parametrize("router", SETTABLE, ids=lambda router: router.__name__)
def test_k_above_the_experts_is_refused(router):
    with refused("got k = 5 of 4 experts; expected at most 4. Lower k or add experts"):
        router(k=5).route(LOGITS, noise=LOGITS)


@pytest.mark.parametrize(
    ("router", "least"), [(Switch(0.6), "0.6667"), (GShard(0.3), "0.3333"), (ExpertChoice(0.5), "0.6667")]
)
def test_a_capacity_below_one_token_is_refused_with_the_least_factor(router, least):
    with refused(f"below 1 token; expected a factor of at least {least} here, or None for no limit"):
        router.route(LOGITS)


def test_the_least_factor_is_enough():
    assert Switch(4 / 6 + 1e-9).route(LOGITS).keep.sum() == 1


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Mixtral(k=0), "got k 0; expected a whole number, 1 or more"),
        (lambda: Mixtral(k=True), "got k True"),
        (lambda: Switch(capacity_factor=0.0), "got capacity_factor 0.0; expected a number above 0"),
        (lambda: Switch(capacity_factor=math.nan), "got capacity_factor nan"),
        (lambda: Switch(jitter=-0.1), "got jitter -0.1; expected a number of at least 0"),
        (lambda: DeepSeek(scaling=0.0), "got scaling 0.0"),
        (lambda: DeepSeek(n_groups=0), "got n_groups 0"),
        (lambda: DeepSeek(k=2, n_groups=3).route(LOGITS), "got 4 experts, 3 groups, 1 kept, k = 2"),
        (lambda: DeepSeek(k=3, n_groups=2).route(LOGITS), "and k or more experts in those that are kept"),
        (lambda: DeepSeek(k=2, n_groups=2, kept_groups=3).route(LOGITS), "2 groups, 3 kept"),
        (lambda: Hash().route(LOGITS), r"got ids None; expected token ids of shape \(6,\)"),
        (lambda: Hash().route(LOGITS, ids=torch.full((6,), -1)), "got token ids -1 to -1"),
        (lambda: Hash(torch.tensor([0, 1])).route(LOGITS, ids=torch.full((6,), 2)), "up to the size of the table"),
        (lambda: Hash(torch.tensor([7])).route(LOGITS, ids=torch.zeros(6).long()), "got expert 7 from the table"),
        (lambda: NoisyTopK(k=2).route(LOGITS), r"got noise None; expected a second set of logits of shape \(6, 4\)"),
        (lambda: losses.balance(LOGITS, LOGITS == 0, alpha=-0.01), "got alpha -0.01; expected a number of at least 0"),
        (lambda: losses.importance(LOGITS, scale=-1.0), "got scale -1.0"),
        (lambda: losses.load(LOGITS, scale=-1.0), "got scale -1.0"),
        (lambda: losses.z_loss(LOGITS, scale=-1.0), "got scale -1.0"),
        (lambda: losses.balance_of_layers([]), "got no routings"),
        (lambda: losses.sent_probability(LOGITS, LOGITS, LOGITS, k=4), "got k = 4 of 4 experts; expected 1 to 3"),
        (lambda: Experts(torch.zeros(2, 6, 4), torch.zeros(2, 4, 6)), r"expected \(experts, 2 x neurons, width\)"),
        (lambda: Experts(torch.zeros(2, 6, 4), torch.zeros(2, 4, 6), "tanh"), "got activation 'tanh'"),
        (lambda: random_experts(0, 4, 6), "got n_experts 0"),
        (lambda: MoE(random_experts(2, 4, 6), Mixtral(), way="fast"), "got way 'fast'; expected one of grouped"),
        (lambda: MoE(random_experts(2, 4, 6), Mixtral(), torch.zeros(3, 4)), r"expected \(experts, width\) = \(2, 4\)"),
        (
            lambda: MoE(random_experts(2, 4, 6), Mixtral(), shared=random_experts(1, 5, 6)),
            "got shared experts of width 5",
        ),
        (lambda: random_layer(4, 6, 2, Mixtral())(torch.zeros(0, 5, 4)), r"got an input of shape \(0, 5, 4\)"),
        (lambda: SoftMoE(random_experts(2, 4, 6), torch.zeros(4, 3, 1)), r"beginning with \(4, 2\)"),
        (lambda: random_soft(random_experts(2, 4, 6), 0), "got n_slots 0"),
        (lambda: random_soft(random_experts(2, 4, 6), 1)(torch.zeros(1, 0, 4)), "got a sequence without tokens"),
    ],
)
def test_it_is_refused(made, message):
    with refused(message):
        made()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: checks.check_logits([[1.0]], None, 1), "got logits list; expected floats of shape"),
        (lambda: checks.check_logits(torch.zeros(2, 3, 4), None, 1), r"got logits \(2, 3, 4\) torch.float32"),
        (lambda: checks.check_logits(torch.zeros(2, 3).long(), None, 1), "torch.int64"),
        (lambda: checks.check_logits(LOGITS, torch.ones(6), 1), r"got real \(6,\) torch.float32; expected booleans"),
        (lambda: checks.check_logits(LOGITS, torch.ones(5).bool(), 1), r"expected booleans of shape \(6,\)"),
        (lambda: checks.check_given("ids", LOGITS, None, torch.zeros(6), None), "torch.float32; expected token ids"),
        (lambda: checks.check_given("noise", LOGITS, None, None, torch.zeros(6, 3)), r"got noise \(6, 3\)"),
        (lambda: checks.check_count("k", "2"), "got k '2'"),
        (lambda: checks.check_number("alpha", None), "got alpha None"),
        (lambda: checks.check_settings(1, "2"), "got capacity_factor '2'"),
    ],
)
def test_so_is_what_has_the_wrong_type(call, message):
    with refused(message):
        call()
