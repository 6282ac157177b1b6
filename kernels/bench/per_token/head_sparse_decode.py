"""One decoding step with half of the heads: either whole groups, or as many heads spread over all groups.

Dimension key: B sequences, H key-value heads, G query heads to each, N slots, D size of a head.
"""

from collections.abc import Iterator

import torch
from course_lib.kernels.per_token import head_sparse_decode
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from course_lib.measure.roofline import Work

# H, G, D: heads as in OPT, each with keys of its own; groups as in Llama 3. As many numbers in the cache of either.
SHAPES = {
    "cpu": {"no groups": (8, 1, 64), "groups of 4": (8, 4, 64)},
    "cuda": {"no groups": (8, 1, 128), "groups of 4": (8, 4, 128)},
}
QUICK = {"no groups": (4, 1, 8), "groups of 4": (2, 4, 8)}
SLOTS = {"cpu": 8192, "cuda": 32768}


def contests(place: Place) -> Iterator[Contest]:
    n_slots = 70 if place.quick else SLOTS[place.device.type]
    for name, (n_heads, n_groups, size) in (QUICK if place.quick else SHAPES[place.device.type]).items():
        shape = (1, n_heads, n_groups, n_slots, size)
        given = head_sparse_decode.example(place.generator, place.dtype, str(place.device), shape, n_heads * n_groups)
        group = torch.arange(n_heads * n_groups, device=place.device) // n_groups
        yield _contest(f"{name}, all heads", given)
        yield _contest(f"{name}, half of the groups", (*given[:3], (group < n_heads // 2)[None], given[4]))
        if n_groups > 1:
            within = torch.arange(n_heads * n_groups, device=place.device) % n_groups
            yield _contest(f"{name}, half of each group", (*given[:3], (within < n_groups // 2)[None], given[4]))


def _contest(name: str, given: tuple[Tensor, Tensor, Tensor, Tensor, float]) -> Contest:
    query, keys, _, keep, _ = given
    every = (*given[:3], torch.ones_like(keep), given[4])
    # A multiply-add for each head that is kept, each slot and each number of a key and a value.
    works = [
        Work(4 * int(arguments[3].sum()) * keys.shape[2] * keys.shape[3], head_sparse_decode.bytes_moved(*arguments))
        for arguments in (every, given)
    ]
    expected = head_sparse_decode.reference(*every)
    sides = [
        Side("sdpa, all heads", lambda: _sdpa(*given[:3], given[4]), works[0], expected),
        Side("sdpa, groups that are kept", _by_group(*given), works[1]),
    ]
    if query.is_cuda:
        sides.append(Side("kernel", lambda: head_sparse_decode.launch(*given), works[1]))
    return Contest(name, tuple(keys.shape), sides, head_sparse_decode.reference(*given))


def _sdpa(query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
    return scaled_dot_product_attention(query[:, :, None], keys, values, scale=scaling, enable_gqa=True)[:, :, 0]


def _by_group(query: Tensor, keys: Tensor, values: Tensor, keep: Tensor, scaling: float):
    """Attend with views of the groups that have a kept head, one by one, because gathering would copy them.

    Here it is known in advance which groups these are.
    """
    n_groups = query.shape[1] // keys.shape[1]
    awake = keep[0].unflatten(0, (-1, n_groups)).any(dim=1).nonzero()[:, 0].tolist()

    def run() -> Tensor:
        output = torch.zeros_like(query)
        for h in awake:
            mine = slice(h * n_groups, (h + 1) * n_groups)
            output[:, mine] = _sdpa(query[:, mine], keys[:, h : h + 1], values[:, h : h + 1], scaling)
        return output * keep[:, :, None]

    return run
