"""The exercise kv.merge, "Merge instead of drop": its cases and its named mistakes."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _merge(
    key: Tensor, value: Tensor, keys: Tensor, values: Tensor, threshold: float, by: str = "softmax", near: Any = None
) -> tuple[Tensor, Tensor]:
    similarity = cosine_similarity(key[None], keys) if near is None else near(key, value, keys, values)
    nearest = int(similarity.argmax())
    share = float(cosine_similarity(key, keys[nearest], dim=0))
    if share < threshold:
        return keys, values
    weight_kept, weight_evicted = math.e / (math.e + math.exp(share)), math.exp(share) / (math.e + math.exp(share))
    old, new = {
        "softmax": (weight_kept, weight_evicted),
        "half": (0.5, 0.5),
        "public": (0.5, share / 2),
        "swapped": (weight_evicted, weight_kept),
        "added": (math.e, math.exp(share)),
        "cosines": (1 / (1 + share), share / (1 + share)),
        "replaced": (0.0, 1.0),
        "plain": (1.0, 1.0),
        "kept as it was": (1.0, weight_evicted),
        "share": (1 - share, share),
        "share kept": (share, 1 - share),
        "against one": (1 / (1 + math.exp(share)), math.exp(share) / (1 + math.exp(share))),
    }[by]
    keys, values = keys.clone(), values.clone()
    keys[nearest] = old * keys[nearest] + new * key
    values[nearest] = old * values[nearest] + new * value
    return keys, values


def _merge_by(
    key: Tensor, value: Tensor, keys: Tensor, values: Tensor, threshold: float, similarity: Tensor
) -> tuple[Tensor, Tensor]:
    """Merge with another similarity for the nearest slot, the threshold and the weights."""
    nearest, share = int(similarity.argmax()), similarity.max()
    if share < threshold:
        return keys, values
    weight, keys, values = (share - 1).sigmoid(), keys.clone(), values.clone()
    keys[nearest] = torch.lerp(keys[nearest], key, weight)
    values[nearest] = torch.lerp(values[nearest], value, weight)
    return keys, values


def _at_cosine(generator: torch.Generator, vector: Tensor, cosine: float, length: float) -> Tensor:
    """Return a vector of this length, at this cosine with another."""
    along, across = vector / vector.norm(), torch.randn(len(vector), generator=generator)
    across = across - (across @ along) * along
    return length * (cosine * along + (1 - cosine**2) ** 0.5 * across / across.norm())


def _merge_cases(generator: torch.Generator) -> list[Case]:
    # Cosines 0.8 with (1, 0) and 0.6 with (0, 5): merged with weights e and e^0.8 over their sum, 0.55 and 0.45
    by_hand = (torch.tensor([0.8, 0.6]), torch.tensor([0.0, 9.0]))
    kept = (torch.tensor([[1.0, 0.0], [0.0, 5.0]]), torch.tensor([[1.8, 0.0], [3.0, 4.0]]))

    # The cosine of (1, 1, 1, 1) and (3, 0, 0, 0) is 3 / (2 · 3), with no rounding
    at_half = torch.ones(4), torch.arange(4.0)
    halves = (
        torch.tensor([[0.0, -2.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]]),
        torch.tensor([[5.0, 0.0, 0.0, 0.0], [1.0] * 4]),
    )

    def drawn(n: int, size: int, cosine: float, threshold: float) -> tuple:
        """The nearest key in direction is short: another has the larger product and the smaller distance."""
        keys, values = torch.randn(n, size, generator=generator), torch.randn(n, size, generator=generator)
        slot, length = int(torch.randint(n, (), generator=generator)), 1 + torch.rand(n, 1, generator=generator)
        length[slot] = 0.2
        keys = length * keys / keys.norm(dim=1, keepdim=True)
        key = _at_cosine(generator, keys[slot], cosine, length=2.5)
        keys[(slot + 2) % n] = _at_cosine(generator, key, 0.62, length=2.5)
        keys[(slot + 1) % n] = _at_cosine(generator, key, 0.61, length=1.0)  # its value is the nearest
        keys[(slot + 3) % n] = _at_cosine(generator, key, -0.99, length=1.0)  # the opposite direction
        value = values[(slot + 1) % n] + 0.3 * torch.randn(size, generator=generator)
        return key, value, keys, values, threshold

    return [
        Case("two slots, by hand: the shorter key is nearer in direction", (*by_hand, *kept, 0.5)),
        Case("two slots, by hand: the cosine is the threshold", (*at_half, *halves, 0.5)),
        Case("16 slots, as many as numbers in a key, very similar", drawn(16, 16, 0.97, 0.6)),
        Case("9 slots, similar enough", drawn(9, 24, 0.75, 0.7)),
        Case("no key is similar: the token is dropped", drawn(10, 32, 0.7, 0.9)),
        Case("15 slots, a low threshold", drawn(15, 20, 0.85, 0.1)),
        Case("not quite similar enough", drawn(8, 28, 0.78, 0.8)),
    ]


MERGE = Exercise(
    id="kv.merge",
    title="Merge instead of drop",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_merge,
    cases=_merge_cases,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("in place, float64 weights", lambda k, v, ks, vs, t: _merge_in_place(k, v, ks, vs, t)),
        Variant("towards the evicted one", lambda k, v, ks, vs, t: _merge_by_lerp(k, v, ks, vs, t)),
        Variant("float64", lambda k, v, ks, vs, t: _merge(k.double(), v.double(), ks.double(), vs.double(), t)),
    ),
    hints=(
        "The cosine is the dot product over both lengths; torch.nn.functional.cosine_similarity(key[None], keys).",
        "Let s be the highest cosine, at slot j. Below the threshold return keys and values as they are.",
        "Otherwise keys[j] becomes (e · keys[j] + e^s · key) / (e + e^s), and values[j] likewise.",
    ),
)


def _merge_into_all(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, threshold: float) -> tuple:
    similarity = cosine_similarity(key[None], keys)
    if similarity.max() < threshold:
        return keys, values
    share = (similarity - 1).sigmoid()[:, None]
    return torch.lerp(keys, key.expand_as(keys), share), torch.lerp(values, value.expand_as(values), share)


def _merge_in_place(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, threshold: float) -> tuple:
    cosine = (keys.double() @ key.double()) / keys.double().norm(dim=1) / key.double().norm()
    best, nearest = cosine.max(dim=0)
    if best >= threshold:
        share = torch.softmax(torch.stack([torch.ones_like(best), best]), dim=0)
        for held, new in ((keys, key), (values, value)):
            held[nearest] *= share[0]
            held[nearest] += share[1] * new
    return keys, values


def _merge_by_lerp(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, threshold: float) -> tuple:
    cosine = keys / keys.norm(dim=1, keepdim=True) @ (key / key.norm())
    weight = torch.zeros(len(keys), 1)
    if cosine.max() >= threshold:
        weight[cosine.argmax()] = (cosine.max() - 1).sigmoid()
    return torch.lerp(keys, key.expand_as(keys), weight), torch.lerp(values, value.expand_as(values), weight)
