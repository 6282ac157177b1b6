"""D2O and EMS against loops over every token that leaves: who stays, and the vectors that result."""

import math

import pytest
import torch
from kv_naive import FirstLayer, kept_by, passes_of, run, sharp_model

from course_lib.kv.cache import evicting
from course_lib.kv.merging import Evicted, merge_, most_alike
from course_lib.kv.merging import cosines as cosines_of
from course_lib.kv.policies.d2o import D2O
from course_lib.kv.policies.ems import EMS
from course_lib.kv.slots import NewTokens, Slots

IDS = torch.randint(3, 97, (2, 40), generator=torch.Generator().manual_seed(2))


class Token:
    """One slot of a naive cache."""

    def __init__(self, first, head, i):
        self.at, self.key, self.value = i, first.key[head, i].clone(), first.value[head, i].clone()
        self.mass, self.recently, self.count = 0.0, [], 1

    def absorb(self, weighted, own):
        """The mean of itself, with weight `own`, and of (weight, key, value) others."""
        total = own + sum(weight for weight, _, _ in weighted)
        self.key = (own * self.key + sum(weight * key for weight, key, _ in weighted)) / total
        self.value = (own * self.value + sum(weight * value for weight, _, value in weighted)) / total


def read(first, head, cache, i):
    """Token i comes and reads."""
    cache.append(Token(first, head, i))
    received = first.rows(head, i, torch.stack([token.key for token in cache])).sum(dim=0).tolist()
    for token, weight in zip(cache, received, strict=True):
        token.mass += weight
        token.recently.append((i, weight))


def cosines(token, cache, of):
    """Of its key, or value, and those of all in the cache."""
    others = torch.stack([getattr(other, of) for other in cache])
    return torch.cosine_similarity(getattr(token, of)[None], others, dim=1).tolist()


def parted(cache, score, n_kept, policy):
    """Who leaves, the worst first, and who stays."""
    last = cache[-1].at
    may = [token for token in cache if policy.sinks <= token.at <= last - policy.recent]
    leaving = sorted(may, key=score)[: max(len(cache) - n_kept, 0)]
    return leaving, [token for token in cache if token not in leaving]


def naive_d2o(first, head, passes, policy, share):
    """Positions, keys and values after each pass; keys absorbed in the order of the formula, from before any merge."""
    cache, threshold = [], None
    for tokens in passes:
        for i in tokens:
            read(first, head, cache, i)
        n_kept = max(int(policy.budget * share), policy.sinks + policy.recent, 1)
        leaving, cache = parted(cache, lambda token: token.mass, n_kept, policy)
        if leaving:
            nearest = []
            for token in leaving:
                alike = cosines(token, cache, "key")
                nearest.append((max(alike), cache[alike.index(max(alike))]))
            mean = sum(u for u, _ in nearest) / len(nearest)
            threshold = mean if threshold is None else policy.smoothing * threshold + (1 - policy.smoothing) * mean
            absorbed = {}
            for token, (u, other) in zip(leaving, nearest, strict=True):
                if u >= threshold:
                    absorbed.setdefault(other, []).append((math.exp(u), token.key, token.value))
            for other, weighted in absorbed.items():
                other.absorb(weighted, math.e)
        yield [(token.at, token.key, token.value) for token in cache]


def shares(model, ids):
    """L · softmax(−v) of the layers: v from eager's column sums, scaled to 0 … 1, its variance, the mean of heads."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        layers = model(ids[None], output_attentions=True).attentions
    model.set_attn_implementation("sdpa")
    variances = []
    for weights in layers:
        of_heads = []
        for head in range(2):
            mass = weights[0, 3 * head : 3 * head + 3].double().sum(dim=(0, 1)).tolist()
            scaled = [(m - min(mass)) / (max(mass) - min(mass)) for m in mass]
            mean = sum(scaled) / len(scaled)
            of_heads.append(sum((s - mean) ** 2 for s in scaled) / len(scaled))
        variances.append(sum(of_heads) / len(of_heads))
    total = sum(math.exp(-v) for v in variances)
    return [len(layers) * math.exp(-v) / total for v in variances]


def same(slots, row, expected):
    """Positions exactly; vectors to 1e-5, as float32 sums of a dozen numbers of size 1 differ from float64."""
    for head, tokens in enumerate(expected):
        order = slots.position[row, head].argsort()[: len(tokens)]
        assert kept_by(slots, row)[head] == [at for at, _, _ in tokens]
        for found, of in ((slots.keys, 1), (slots.values, 2)):
            wanted = torch.stack([token[of] for token in tokens]).float()
            torch.testing.assert_close(found[row, head, order], wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("sizes", "smoothing"), [((20, 1), 0.5), ((30, 5, 1, 1, 9), 0.5), ((14, 1), 0.3)], ids=str)
def test_d2o_holds_what_the_loop_holds_after_every_pass(sizes, smoothing):
    model, passes = sharp_model(), passes_of(40, sizes)
    policy = D2O(budget=16, sinks=2, recent=3, spared=(), smoothing=smoothing)
    first, share = FirstLayer(model, IDS[0]), shares(model, IDS[0, : sizes[0]])[0]
    expected = [list(naive_d2o(first, head, passes, policy, share)) for head in range(2)]
    with evicting(model, policy) as cache:
        for tokens, *heads in zip(passes, *expected, strict=True):
            run(model, cache, IDS[:1], tokens)
            same(cache.slots[0], 0, heads)
    assert cache.slots[0].per_head["share"].tolist() == [pytest.approx([share] * 2, rel=1e-5)]


@pytest.mark.parametrize("step", [1, 5])
def test_d2o_of_two_sequences_is_that_of_each_alone(step):
    """Also of one too short to lose anything with the prompt: its threshold starts with its own first loss.

    In steps of five tokens its first loss is smaller than that of its neighbour.
    """
    model, policy, passes = sharp_model(), D2O(budget=16, sinks=2, recent=3, spared=()), passes_of(40, (30, step))
    mask = torch.ones_like(IDS)
    mask[1, :20] = 0  # 10 tokens in the prompt
    alone = [
        (IDS[0], passes),
        (IDS[1, 20:], passes_of(20, (10, step))),
    ]
    expected = [
        [
            list(naive_d2o(FirstLayer(model, ids), head, own, policy, shares(model, ids[: own[0].stop])[0]))
            for head in range(2)
        ]
        for ids, own in alone
    ]
    with evicting(model, policy) as cache:
        for i, tokens in enumerate(passes):
            run(model, cache, IDS, tokens, mask)
            for row in range(2):
                same(cache.slots[0], row, [head[i] for head in expected[row]])


def made(mass):
    """Slots (sequences, 1, tokens) with these scores."""
    keys = torch.zeros(len(mass), 1, len(mass[0]), 2)
    valid = torch.ones(len(mass), len(mass[0]), dtype=torch.bool)
    slots = Slots.empty(keys).append_(keys, keys, NewTokens.of(valid))
    return slots.remember_({"mass": torch.tensor(mass)[:, None]})


def test_d2o_divides_the_budget_over_layers_and_spares_some():
    """Scaled scores 0 … 1: (0, 1, 1, 0) has variance 1/4, (0, 0, 0, 1) 3/16, so the second layer gets e^(1/16) more."""
    layers = [made([[2.0, 4.0, 4.0, 2.0]]), made([[0.0, 0.0, 0.0, 9.0]])]
    policy = D2O(budget=100, sinks=0, recent=0, spared=())
    found = [float(slots.per_head["share"]) for slots in policy.allocate_(layers)]
    assert found == pytest.approx([2 / (1 + math.exp(1 / 16)), 2 / (1 + math.exp(-1 / 16))], rel=1e-6)
    layers = [made(torch.rand(3, 40, generator=torch.Generator().manual_seed(seed)).tolist()) for seed in range(6)]
    policy = D2O(budget=20, sinks=0, recent=0, spared=())
    held = torch.stack([policy.sizes(slots, 0) for slots in policy.allocate_(layers)]).sum(dim=0)
    assert ((held > 6 * 20 - 6) & (held <= 6 * 20)).all()  # each layer's share is rounded down
    spared = D2O(budget=20, sinks=0, recent=0, spared=(0, -1, 17)).allocate_(layers)
    sizes = [policy.sizes(slots, 0)[:, 0].tolist() for slots in spared]
    assert sizes[0] == sizes[-1] == [40, 40, 40]
    assert all(15 < size < 25 for layer in sizes[1:-1] for size in layer)


def one_head(keys, values=None, counts=None):
    keys = torch.tensor(keys)[None, None]
    values = keys if values is None else torch.tensor(values)[None, None]
    valid = torch.ones(1, keys.shape[2], dtype=torch.bool)
    slots = Slots.empty(keys).append_(keys, values, NewTokens.of(valid))
    return slots if counts is None else slots.remember_({"absorbed": torch.tensor(counts)[None, None] - 1})


def test_merging_equal_vectors_leaves_them_as_they_are():
    """Weights that sum to 1 keep norms: five times (3, 4) is (3, 4), whatever the weights."""
    slots = one_head([[3.0, 4.0]] * 6)
    leaving = Evicted.of(slots, torch.arange(6.0)[None, None], torch.tensor([[1]]))
    kept = merge_(
        slots.keep_best_(torch.arange(6.0)[None, None], torch.tensor([[1]])),
        leaving,
        torch.zeros(1, 1, 5, dtype=torch.int64),
        torch.tensor([[[0.3, 1.7, 0.0, 2.5, 2.7]]]),
        torch.full((1, 1, 1), 2.718),
    )
    torch.testing.assert_close(kept.keys, torch.tensor([[[[3.0, 4.0]]]]))
    torch.testing.assert_close(kept.values, torch.tensor([[[[3.0, 4.0]]]]))


def test_d2o_by_hand():
    """(0, 2) leaves; (0, 4) has cosine 1, so both have weight e, and the mean is (0, 3). (8, 1) is left alone."""
    slots = one_head([[0.0, 2.0], [0.0, 4.0], [8.0, 1.0]], [[6.0, 0.0], [0.0, 2.0], [5.0, 5.0]])
    policy = D2O(budget=2, sinks=0, recent=0, spared=())
    kept = policy.evict_(slots, torch.tensor([[[0.0, 1.0, 2.0]]]), torch.tensor([[2]]))
    order = kept.position[0, 0].argsort()
    torch.testing.assert_close(kept.keys[0, 0, order], torch.tensor([[0.0, 3.0], [8.0, 1.0]]))
    torch.testing.assert_close(kept.values[0, 0, order], torch.tensor([[3.0, 1.0], [5.0, 5.0]]))
    assert kept.per_head["threshold"].tolist() == [[1.0]]


def naive_ems(first, head, passes, policy):
    """Positions, keys and values after each pass, and the counts."""
    cache, eighth = [], policy.window // 8
    for tokens in passes:
        for i in tokens:
            read(first, head, cache, i)
        since = (i // eighth - 7) * eighth
        local = {token: sum(weight for query, weight in token.recently if query >= since) for token in cache}
        mean_mass, mean_local = (sum(each) / len(cache) for each in ((t.mass for t in cache), local.values()))
        score = {token: token.mass / mean_mass + local[token] / mean_local for token in cache}
        leaving, cache = parted(cache, score.get, policy.budget, policy)
        absorbed = {}
        for place, token in enumerate(reversed(leaving)):  # the best first
            both = zip(cosines(token, cache, "key"), cosines(token, cache, "value"), strict=True)
            alike = [k * v if k > 0 and v > 0 else 0 for k, v in both]
            if max(alike) > policy.threshold and place < policy.merged * policy.budget:
                absorbed.setdefault(cache[alike.index(max(alike))], []).append(token)
        for other, tokens_in in absorbed.items():
            other.absorb([(token.count, token.key, token.value) for token in tokens_in], other.count)
            other.count += sum(token.count for token in tokens_in)
        yield [(token.at, token.key, token.value, token.count) for token in cache]


@pytest.mark.parametrize(
    ("sizes", "threshold", "merged"),
    [
        ((36, 1), 0.1, 1.0),
        ((36, 1), 0.15, 1.0),
        ((36, 1), 0.0, 0.25),
        ((9, 5), 0.1, 0.5),
        ((9, 5), 0.99, 1.0),
        ((1,), 0.1, 1.0),
    ],
    ids=str,
)
def test_ems_holds_what_the_loop_holds_after_every_pass(sizes, threshold, merged):
    model, passes = sharp_model(), passes_of(40, sizes)
    policy = EMS(budget=10, sinks=1, recent=3, window=16, threshold=threshold, merged=merged)
    first = FirstLayer(model, IDS[1])
    expected = [list(naive_ems(first, head, passes, policy)) for head in range(2)]
    with evicting(model, policy) as cache:
        for tokens, *heads in zip(passes, *expected, strict=True):
            run(model, cache, IDS[1:], tokens)
            slots = cache.slots[0]
            same(slots, 0, [[token[:3] for token in head] for head in heads])
            for head in range(2):
                order = slots.position[0, head].argsort()
                counts = (slots.memory("absorbed")[0, head, order] + 1).tolist()
                assert counts == [count for _, _, _, count in heads[head]]
    n_merged = [sum(count for _, _, _, count in head[-1]) for head in expected]
    assert all(10 <= n <= 40 for n in n_merged)
    assert (max(n_merged) > 10) == (threshold < 0.99)  # the loop did merge


def gone(slots, score, n, **settings):
    return EMS(budget=n, recent=0, window=8, **settings).evict_(slots, torch.tensor([[score]]), torch.tensor([[n]]))


def test_ems_by_hand_and_no_token_is_lost_from_the_counts():
    """Two tokens in one slot of keys (2, 0), values (0, 2) take in one with (5, 0), (0, 8): (3, 0), (0, 4)."""
    slots = one_head([[2.0, 0.0], [5.0, 0.0], [0.0, 1.0]], [[0.0, 2.0], [0.0, 8.0], [7.0, 0.0]], [2.0, 1.0, 4.0])
    kept = gone(slots, [5.0, 1.0, 4.0], 2)
    order = kept.position[0, 0].argsort()
    torch.testing.assert_close(kept.keys[0, 0, order], torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
    torch.testing.assert_close(kept.values[0, 0, order], torch.tensor([[0.0, 4.0], [7.0, 0.0]]))
    assert (kept.memory("absorbed")[0, 0, order] + 1).tolist() == [3, 4]


@pytest.mark.parametrize(
    ("key", "value", "merges"),
    [([1.0, 0.1], [1.0, 0.1], True), ([-1.0, 0.0], [-1.0, 0.0], False), ([-1.0, 0.0], [1.0, 0.0], False)],
    ids=["both alike", "both opposed", "one opposed"],
)
def test_ems_merges_what_is_alike_in_keys_and_in_values(key, value, merges):
    """The product of two cosines of −1 is 1, and their mean would be no vector at all."""
    kept = gone(one_head([[1.0, 0.0], key], [[1.0, 0.0], value]), [2.0, 1.0], 1)
    assert (kept.memory("absorbed").tolist() == [[[1.0]]]) is merges
    assert (kept.keys.tolist() == [[[[1.0, 0.0]]]]) is not merges


def test_ems_merges_only_the_best_of_those_that_leave():
    """Four equal ones leave, half as many as the budget of two is one: the best of them, with its value of 40."""
    slots = one_head([[1.0, 0.0]] * 6, [[10.0 * i, 0.0] for i in range(1, 7)])
    kept = gone(slots, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 2, merged=0.5)
    assert sorted(kept.values[0, 0, :, 0].tolist()) in ([45.0, 60.0], [50.0, 50.0])


@pytest.mark.parametrize(
    "policy",
    [EMS(budget=2, recent=0, window=8, threshold=0.1), D2O(budget=2, sinks=0, recent=0, spared=())],
    ids=["EMS", "D2O"],
)
def test_slots_without_a_token_take_in_nobody(policy):
    """A head that keeps fewer than its neighbour still has the vectors of some that left, in slots that are free."""
    generator = torch.Generator().manual_seed(0)
    keys, score = torch.rand(1, 2, 8, 4, generator=generator), torch.rand(1, 2, 8, generator=generator)
    found = []
    for first, sizes in ((0, [[4, 2]]), (1, [[2]])):
        mine, valid = keys[:, first:], torch.ones(1, 8, dtype=torch.bool)
        slots = Slots.empty(mine).append_(mine, mine.flip(3), NewTokens.of(valid))
        kept = policy.evict_(slots, score[:, first:], torch.tensor(sizes))
        found.append((kept_by(kept)[-1], kept.keys[0, -1, kept.position[0, -1].argsort()[:2]]))
    assert found[0][0] == found[1][0]
    torch.testing.assert_close(found[0][1], found[1][1])


def test_who_leaves_is_who_does_not_stay_also_when_scores_are_equal():
    """Ties are broken once: nobody is both merged and kept, nobody neither."""
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        n_tokens = int(torch.randint(3, 40, (1,), generator=generator))
        n_padding = torch.randint(0, n_tokens, (2,), generator=generator)
        sizes = torch.randint(1, n_tokens + 2, (2, 2), generator=generator)
        score = torch.randint(0, 3, (2, 2, n_tokens), generator=generator).float()
        keys = torch.zeros(2, 2, n_tokens, 2)
        valid = torch.arange(n_tokens) >= n_padding[:, None]
        slots = Slots.empty(keys).append_(keys, keys, NewTokens.of(valid))
        before = slots.position.clone()
        leaving = Evicted.of(slots, score, sizes)
        kept = slots.keep_best_(leaving.below(score), sizes)
        for row in range(2):
            for head, stay in enumerate(kept_by(kept, row)):
                left = before[row, head, leaving.index[row, head][leaving.valid[row, head]]].tolist()
                assert sorted(left + stay) == list(range(n_tokens - int(n_padding[row])))


@pytest.mark.parametrize(
    "settings", [{"window": 12}, {"threshold": -0.1}, {"threshold": 1.0}, {"merged": -1.0}], ids=str
)
def test_settings_of_ems_that_do_not_fit(settings):
    with pytest.raises(ValueError, match="expected"):
        EMS(**settings)


@pytest.mark.parametrize("smoothing", [-0.1, 1.5])
def test_settings_of_d2o_that_do_not_fit(smoothing):
    with pytest.raises(ValueError, match="expected"):
        D2O(smoothing=smoothing)


@pytest.mark.parametrize("step", [1, 4])
@pytest.mark.parametrize(
    "policy",
    [
        EMS(budget=12, recent=2, window=8, threshold=0.3),
        EMS(budget=10, sinks=1, recent=3, window=16, threshold=0.1),
        D2O(budget=12, sinks=0, recent=2, spared=()),
        D2O(budget=10, sinks=1, recent=3, spared=()),
    ],
    ids=lambda policy: f"{type(policy).__name__}, {policy.budget}",
)
def test_where_tokens_repeat_neither_rounding_nor_padding_decides_who_takes_in_whom(policy, step):
    """Of a, b, c, a, b, c … who leaves is as similar to the same token three before it as to that three behind it."""
    model, n_padding = sharp_model(), 11
    text = torch.tensor([7, 11, 23] * 12)
    ids = torch.stack([torch.arange(3, 50), torch.cat([torch.ones(n_padding, dtype=torch.long), text])])
    mask = torch.ones_like(ids)
    mask[1, :n_padding] = 0
    passes = passes_of(36, (24 if step == 1 else 20, step))
    with evicting(model, policy) as alone, evicting(twin := sharp_model(), policy) as padded:
        for tokens in passes:
            expected = run(model, alone, text[None], tokens)[0]
            start = tokens.start + n_padding if tokens.start else 0
            found = run(twin, padded, ids, range(start, tokens.stop + n_padding), mask)[1, -len(tokens) :]
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    for both, one in zip(padded.slots, alone.slots, strict=True):
        same(both, 1, [held(one, head) for head in range(2)])


def held(slots, head):
    order = slots.position[0, head].argsort()
    return [(int(slots.position[0, head, i]), slots.keys[0, head, i], slots.values[0, head, i]) for i in order]


def test_of_those_that_tie_the_oldest_takes_in_by_hand():
    """Cosines 1 and 1 − 5e-5 tie, 0.9 does not; whatever the order of the slots."""
    keys = torch.tensor([[1.0, 0.0], [1.0, 0.01], [0.9, 0.4359]])
    for order, oldest in (([0, 1, 2], 0), ([1, 0, 2], 0), ([2, 1, 0], 1)):
        slots = one_head(keys[order].tolist())
        best, target = most_alike(cosines_of(torch.tensor([[[[1.0, 0.0]]]]), slots.keys), slots)
        assert best.tolist() == [[[1.0]]]
        assert target.tolist() == [[[oldest]]]
