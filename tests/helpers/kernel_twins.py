"""Slow twins of the kernels: plain Python loops in float64 over the bytes of the formats, one named after each kernel.

A twin returns, for each output of the kernel, the exact value and the error that the kernel is allowed.
"""

import math
from itertools import product

import numpy
import torch
from torch import Tensor

from course_lib.kv.slots import FREE

Expected = tuple[Tensor, Tensor]  # exact value in float64, largest error allowed
SUMS = {
    ("attention_mass", 0),
    ("decode_attention", 1),
    ("line_masses", 0),
    ("line_masses", 1),
    ("router_topk", 0),
    ("router_topk", 4),
}  # outputs in float32 whatever the type of the arguments

INDICES = {("router_topk", i) for i in (1, 2, 3)} | {("top_indices", 0)}  # outputs in int32


def nm_matmul(inputs, weight) -> list[Expected]:
    value, place = weight.values.double().tolist(), weight.positions.tolist()
    n, m = weight.n, weight.m
    exact = torch.zeros(*inputs.shape[:-1], weight.shape[0], dtype=torch.float64)
    size = torch.zeros_like(exact)
    for t, x in enumerate(inputs.double().tolist()):
        for o in range(weight.shape[0]):
            columns = [j // n * m + (place[o][j // 4] >> 2 * (j % 4)) % 4 for j in range(len(value[o]))]
            terms = [v * x[i] for v, i in zip(value[o], columns, strict=True)]
            exact[t, o], size[t, o] = sum(terms), sum(map(abs, terms))
    return [(exact, _rounding(exact, size, weight.values.shape[1], inputs.dtype))]


def bitmap_matvec(inputs, weight) -> list[Expected]:
    x, values, bitmap = inputs.double().tolist(), weight.values.double().tolist(), weight.bitmap.tolist()
    exact, size = torch.zeros(2, weight.shape[0], dtype=torch.float64)
    at = 0
    for o in range(weight.shape[0]):
        for i in range(weight.shape[1]):
            if bitmap[o][i // 8] >> (i % 8) & 1:
                exact[o] += values[at] * x[i]
                size[o] += abs(values[at] * x[i])
                at += 1
    return [(exact, _rounding(exact, size, weight.shape[1], inputs.dtype))]


def wanda_mask(weight, norm, n, m) -> list[Expected]:
    keep = torch.ones(weight.shape, dtype=torch.float64)
    score = weight.float().numpy()
    score = score if norm is None else numpy.abs(score) * norm.numpy()  # one product in float32
    for o in range(weight.shape[0]):
        for start in range(0, weight.shape[1], m):
            for i in sorted(range(start, start + m), key=lambda i, o=o: (score[o, i], i))[: m - n]:
                keep[o, i] = 0  # ties: the lower index leaves first
    exact = weight.double() * keep
    return [(exact, torch.zeros_like(exact)), (keep, torch.zeros_like(keep))]


def row_mask(weight, norm, n_leaving) -> list[Expected]:
    keep = torch.ones(weight.shape, dtype=torch.float64)
    score = weight.float().numpy()
    score = score if norm is None else numpy.abs(score) * norm.numpy()  # one product in float32
    for o, row in enumerate(score):
        for i in sorted(range(len(row)), key=lambda i, row=row: (row[i], i))[:n_leaving]:
            keep[o, i] = 0
    exact = weight.double() * keep
    return [(exact, torch.zeros_like(exact)), (keep, torch.zeros_like(keep))]


def sparsegpt_columns(weight, upper, keep, n, m, zero) -> list[Expected]:
    """With each number its error, were each step of the loop rounded to float32 (running error analysis)."""
    rows, width = weight.shape
    u, unit = upper.double().tolist(), 2.0**-23
    exact, allowed, made, made_allowed, chosen = torch.zeros(5, rows, width, dtype=torch.float64)
    for o in range(rows):
        w, off = weight[o].double().tolist(), [0.0] * width
        gone = [False] * width if zero is None else zero[o].tolist()
        stays = [not g and (keep is None or bool(keep[o, i])) for i, g in enumerate(gone)]
        for i in range(width):
            if keep is None and i % m == 0:
                cost = [(-1 if gone[j] else abs(w[j] / u[j][j]), j) for j in range(i, i + m)]
                for _, j in sorted(cost)[: m - n]:
                    stays[j] = False
            chosen[o, i] = stays[i]
            if not stays[i]:
                error = w[i] / u[i][i]
                wrong = off[i] / u[i][i] + 2 * unit * abs(error)  # the inverse of U_ii is rounded, and the product
                made[o, i], made_allowed[o, i], w[i], off[i] = error, wrong, 0.0, 0.0
                for j in range(i + 1, width):
                    w[j] -= error * u[i][j]
                    off[j] += wrong * abs(u[i][j]) + unit * (abs(error * u[i][j]) + abs(w[j]))
        exact[o], allowed[o] = torch.tensor(w, dtype=torch.float64), torch.tensor(off, dtype=torch.float64)
    sums = [(x, a + _rounding(x, x.abs(), 0, weight.dtype)) for x, a in ((exact, allowed), (made, made_allowed))]
    return sums if keep is not None else [*sums, (chosen, torch.zeros_like(chosen))]


def attention_mass(query, keys, lse, position, slot_position, scaling) -> list[Expected]:
    exact, allowed = torch.zeros(2, *slot_position.shape, dtype=torch.float64)
    n_groups, n_queries = query.shape[1] // keys.shape[1], query.shape[2]
    x, k, size = query.double().tolist(), keys.double().tolist(), lse.double().tolist()
    at, key_at = position.tolist(), slot_position.tolist()
    for b, h, j in product(*map(range, slot_position.shape)):
        for g, i in product(range(h * n_groups, (h + 1) * n_groups), range(n_queries)):
            if at[b][i] != FREE and key_at[b][h][j] <= at[b][i]:
                logit, off = _logit(x[b][g][i], k[b][h][j], scaling)
                weight = math.exp(logit - size[b][g][i])
                exact[b, h, j] += weight
                # Wrong by the error of the exponent, a few units of exp, and a sum of G * Q terms in float32.
                off = math.expm1(off + 2.0**-22 * abs(size[b][g][i]))
                allowed[b, h, j] += weight * (off + (n_groups * n_queries + 8) * 2.0**-23)
    return [(exact, allowed)]


def decode_attention(
    query, keys, values, position, slot_position, scaling, turns=None, frequencies=None
) -> list[Expected]:
    output, output_off = torch.zeros(2, *query.shape, dtype=torch.float64)
    mass, mass_off = torch.zeros(2, *keys.shape[:3], dtype=torch.float64)
    n_groups, eps = query.shape[1] // keys.shape[1], torch.finfo(query.dtype).eps
    # Between the two launches, weights relative to the largest are in float16 where keys are in 16 bits.
    kept_off, least = (2.0**-11, 2.0**-25) if query.itemsize == 2 else (0.0, 0.0)
    x, k, v = query.double().tolist(), keys.double().tolist(), values.double().tolist()
    for b, h in product(*map(range, keys.shape[:2])):
        key_at = [0] * keys.shape[2] if slot_position is None else slot_position[b, h].tolist()
        at = 0 if slot_position is None else int(position[b])
        seen = [j for j in range(len(key_at)) if key_at[j] <= at != FREE]
        key_off = [0.0] * len(key_at)
        if turns is not None:
            for j in seen:
                # Turned keys are rounded to the type of the others; their angle was a float32.
                k[b][h][j], key_off[j] = _turned(k[b][h][j], int(turns[b, h, j]), frequencies.double().tolist())
                key_off[j] += eps
        for g in range(h * n_groups, (h + 1) * n_groups):
            logit = {j: _logit(x[b][g], k[b][h][j], scaling, key_off[j]) for j in seen}
            best = max((value for value, _ in logit.values()), default=0.0)
            weight = {j: math.exp(value - best) for j, (value, _) in logit.items()}
            total, off = sum(weight.values()), max((off for _, off in logit.values()), default=0.0)
            off = 2 * math.expm1(off + 2.0**-22 * max((best - a for a, _ in logit.values()), default=0.0))
            off += (len(seen) + 16) * 2.0**-23
            for j in seen:
                mass[b, h, j] += weight[j] / total
                mass_off[b, h, j] += weight[j] / total * (off + kept_off) + least
            for i in range(len(x[b][g])):
                terms = [weight[j] / total * v[b][h][j][i] for j in seen]
                output[b, g, i] = sum(terms)
                output_off[b, g, i] = sum(map(abs, terms)) * (off + eps)  # weights are rounded for tensor cores
    return [(output, output_off + _rounding(output, output.abs(), 0, query.dtype)), (mass, mass_off)]


def router_topk(inputs, k, weights="chosen", bias=None, gate=None, scaling=1.0, ordered=True) -> list[Expected]:
    logits = inputs.double() if gate is None else inputs.double() @ gate.double().T  # exact: see example()
    x = logits.tolist()
    n_tokens, n_experts = logits.shape
    weight, off = torch.zeros(2, n_tokens, k, dtype=torch.float64)
    expert = torch.zeros(n_tokens, k, dtype=torch.float64)
    rows: list[list[int]] = [[] for _ in range(n_experts)]
    for t in range(n_tokens):
        p = [math.exp(value - max(x[t])) for value in x[t]]
        whole = sum(p)
        if weights == "sigmoid":
            p, whole = [1 / (1 + math.exp(-value)) for value in x[t]], 1.0
        score = x[t] if bias is None else [a / whole + b for a, b in zip(p, bias.double().tolist(), strict=True)]
        best = sorted(range(n_experts), key=lambda e, score=score: (-score[e], e))[:k]
        among = whole if weights == "all" else sum(p[e] for e in best)
        for place, e in enumerate(best):
            weight[t, place], expert[t, place] = scaling * (1.0 if weights == "one" else p[e] / among), e
            rows[e].append(t * k + place)
            # A difference rounded to float32, its exponential to a few units, and a sum of E of them.
            off[t, place] = weight[t, place] * (2 * (max(x[t]) - min(x[t])) + n_experts + 16) * 2.0**-23
    ends = [sum(map(len, rows[:e])) for e in range(n_experts + 1)]
    order = torch.tensor([pair for row in rows for pair in row], dtype=torch.float64)
    exact = (expert, order, torch.tensor(ends, dtype=torch.float64)) if ordered else (expert,)
    found = [(weight, off), *((number, torch.zeros_like(number)) for number in exact)]
    return found if gate is None else [*found, (logits, torch.zeros_like(logits))]


def grouped_matmul(inputs, gate_up, down, weight, order, offsets) -> list[Expected]:
    """Token by token: which of the pairs are whose is read from offsets, not from the router."""
    exact, allowed, size = torch.zeros(3, *inputs.shape, dtype=torch.float64)
    (n_experts, _, n_hidden), n_inputs, k = down.shape, inputs.shape[1], weight.shape[1]
    unit, eps = 2.0**-24, torch.finfo(inputs.dtype).eps
    for e in range(n_experts):
        both, back = gate_up[e].double(), down[e].double()
        for pair in order[int(offsets[e]) : int(offsets[e + 1])].tolist():
            x, w = inputs[pair // k].double(), float(weight[pair // k, pair % k])
            sums, sums_off = both @ x, 2 * (n_inputs + 1) * unit * (both.abs() @ x.abs())
            (gate, up), (gate_off, up_off) = sums.chunk(2), sums_off.chunk(2)
            curve = gate * torch.sigmoid(gate)
            hidden = curve * up
            # silu is steep by 1.1 at most; hidden units are rounded for tensor cores, and may be so small as to vanish.
            hidden_off = 1.1 * gate_off * (up.abs() + up_off) + curve.abs() * up_off
            hidden_off += (eps + 2.0**-20) * hidden.abs() + torch.finfo(inputs.dtype).smallest_normal * eps
            terms = abs(w) * (back.abs() @ hidden.abs())
            exact[pair // k] += w * (back @ hidden)
            # What an expert gives is rounded before it is added up.
            part_off = abs(w) * (back.abs() @ hidden_off) + 2 * (n_hidden + k + 1) * unit * terms
            allowed[pair // k] += part_off + eps * (abs(w) * (back @ hidden).abs() + part_off)
            size[pair // k] += terms
    return [(exact, allowed + _rounding(exact, size, k, inputs.dtype))]


def pair_matmul(inputs, gate_up, down, weight, expert) -> list[Expected]:
    """The same, with the pairs sorted by expert; what the kernel does not round, it may be off by less."""
    order = expert.flatten().sort(stable=True).indices
    loads = expert.flatten().bincount(minlength=len(down))
    return grouped_matmul(inputs, gate_up, down, weight, order, torch.cat([loads.new_zeros(1), loads.cumsum(0)]))


def unasked_experts(inputs, gate_up, down, weight, expert) -> int:
    """Bytes of the weights of experts that no token chose."""
    return (len(down) - len(expert.unique())) * (gate_up[0].nbytes + down[0].nbytes)


def idle_experts(inputs, gate_up, down, weight, order, offsets) -> int:
    """Bytes of the weights that nobody has to read."""
    return sum(gate_up[e].nbytes + down[e].nbytes for e in range(len(down)) if offsets[e] == offsets[e + 1])


def gathered_mlp(inputs, gate, up, down, chosen, activation="silu", bias=None) -> list[Expected]:
    """Neuron by neuron."""
    exact, allowed, size = torch.zeros(3, *inputs.shape, dtype=torch.float64)
    unit, kind = 2.0**-24, torch.finfo(inputs.dtype)
    for t, f in product(range(len(inputs)), chosen.tolist()):
        x, back = inputs[t].double(), down[f].double()
        off = 2 * (len(x) + 2) * unit
        value, value_off = float(up[f].double() @ x), off * float(up[f].double().abs() @ x.abs())
        if bias is not None:
            value, value_off = value + float(bias[f]), value_off + 4 * unit * (abs(value) + abs(float(bias[f])))
        before, before_off = value, value_off
        if gate is not None:
            before, before_off = float(gate[f].double() @ x), off * float(gate[f].double().abs() @ x.abs())
        curve = max(before, 0.0) if activation == "relu" else before / (1 + math.exp(-before))
        # silu is steep by 1.1 at most, relu by 1; a few roundings of its exponential and quotient.
        curve_off = 1.1 * before_off + 2.0**-20 * abs(curve)
        hidden, hidden_off = curve, curve_off
        if gate is not None:
            hidden, hidden_off = curve * value, curve_off * (abs(value) + value_off) + abs(curve) * value_off
        hidden_off += (kind.eps + unit) * abs(hidden) + kind.smallest_normal * kind.eps  # rounded for tensor cores
        exact[t] += hidden * back
        allowed[t] += hidden_off * back.abs()
        size[t] += abs(hidden) * back.abs()
    return [(exact, allowed + _rounding(exact, size, len(chosen), inputs.dtype))]


def idle_neurons(inputs, gate, up, down, chosen, activation="silu", bias=None) -> int:
    a_neuron = sum(matrix[0].nbytes for matrix in (gate, up, down, bias) if matrix is not None)
    return sum(a_neuron for f in range(len(up)) if f not in chosen.tolist())


def top_indices(scores, n_kept, nan=None) -> list[Expected]:
    rows = [sorted(sorted((score, i) for i, score in enumerate(row))[-n_kept:]) for row in scores.double().tolist()]
    exact = torch.tensor([sorted(i for _, i in row) for row in rows], dtype=torch.float64)
    return [(exact, torch.zeros_like(exact))]


def threshold_matvec(inputs, columns, threshold) -> list[Expected]:
    exact, size = torch.zeros(2, columns.shape[1], dtype=torch.float64)
    for x, column in zip(inputs.double().tolist(), columns.double(), strict=True):
        if abs(x) > numpy.float32(threshold):
            exact += x * column
            size += (x * column).abs()
    return [(exact, _rounding(exact, size, len(inputs), inputs.dtype))]


def skipped_columns(inputs, columns, threshold) -> int:
    return sum(column.nbytes for x, column in zip(inputs.tolist(), columns, strict=True) if abs(x) <= threshold)


def head_sparse_decode(query, keys, values, keep, scaling) -> list[Expected]:
    output, allowed = torch.zeros(2, *query.shape, dtype=torch.float64)
    n_groups, eps = query.shape[1] // keys.shape[1], torch.finfo(query.dtype).eps
    x, k, v = query.double().tolist(), keys.double().tolist(), values.double()
    for b, head in product(*map(range, keep.shape)):
        if keep[b, head]:
            logit = [_logit(x[b][head], key, scaling) for key in k[b][head // n_groups]]
            best = max(value for value, _ in logit)
            weight = [math.exp(value - best) for value, _ in logit]
            # As in decode_attention: errors of the exponents, then of a sum over slots; weights rounded for products.
            off = max(off for _, off in logit) + 2.0**-22 * (best - min(value for value, _ in logit))
            off = 2 * math.expm1(off) + (len(weight) + 16) * 2.0**-23 + eps
            share = torch.tensor(weight, dtype=torch.float64)[:, None] / sum(weight)
            output[b, head] = (share * v[b, head // n_groups]).sum(0)
            allowed[b, head] = (share * v[b, head // n_groups]).abs().sum(0) * off
    return [(output, allowed + _rounding(output, output.abs(), 0, query.dtype))]


def block_sparse_prefill(query, keys, values, columns, counts, scaling, block_size) -> list[Expected]:
    output, allowed = torch.zeros(2, *query.shape, dtype=torch.float64)
    n_groups, eps = len(query) // len(keys), torch.finfo(query.dtype).eps
    x, k, v = query.double().tolist(), keys.double().tolist(), values.double()
    for head, i in product(*map(range, query.shape[:2])):
        block, shared = i // block_size, head // n_groups
        listed = columns[head, block, : int(counts[head, block])].tolist()
        seen = [j for b in listed for j in range(b * block_size, (b + 1) * block_size) if j <= i]
        logit = [_logit(x[head][i], k[shared][j], scaling) for j in seen]
        best = max(value for value, _ in logit)
        weight = [math.exp(value - best) for value, _ in logit]
        # As in decode_attention; the sums fade once a tile, and each fading is off as an exponential is.
        off = max(off for _, off in logit) + 2.0**-22 * (best - min(value for value, _ in logit))
        off = 2 * math.expm1(off) + (len(weight) + 16) * 2.0**-22 + eps
        share = torch.tensor(weight, dtype=torch.float64)[:, None] / sum(weight)
        output[head, i] = (share * v[shared, seen]).sum(0)
        allowed[head, i] = (share * v[shared, seen]).abs().sum(0) * off
    return [(output, allowed + _rounding(output, output.abs(), 0, query.dtype))]


def behind_the_lists(query, keys, values, columns, counts, scaling, block_size) -> int:
    """Numbers of blocks that are on no list."""
    return columns.nbytes - columns.element_size() * int(counts.sum())


def line_masses(query, keys, scaling, block_size) -> list[Expected]:
    n_tokens, n_blocks = query.shape[1], -(-query.shape[1] // block_size)
    columns, diagonals = torch.zeros(2, len(query), n_blocks, dtype=torch.float64)
    x, k, n_groups, off = query.double().tolist(), keys.double().tolist(), len(query) // len(keys), 0.0
    for head, i in product(range(len(query)), range(n_tokens - block_size, n_tokens)):
        logit = [_logit(x[head][i], key, scaling) for key in k[head // n_groups][: i + 1]]
        best = max(value for value, _ in logit)
        weight = [math.exp(value - best) for value, _ in logit]
        # A logit that is off changes its weight and the sum that it is divided by; exponentials are off as well.
        off = max(off, *(2 * wrong + 2.0**-21 * (1 + best - value) for value, wrong in logit))
        for j, w in enumerate(weight):
            share, (diagonal, rest) = w / sum(weight) / block_size, divmod(i - j, block_size)
            columns[head, j // block_size] += share
            diagonals[head, diagonal] += share * (1 - rest / block_size)
            diagonals[head, min(diagonal + 1, n_blocks - 1)] += share * rest / block_size
    off = math.expm1(off) + (block_size + n_blocks) * 2.0**-23
    # A part of a diagonal is rounded as a difference of numbers up to 4.
    return [(columns, off * columns), (diagonals, off * diagonals + 2.0**-20 * columns.amax(dim=1, keepdim=True))]


def earlier_queries(query, keys, scaling, block_size) -> int:
    """Those before the last block."""
    return query[:, :-block_size].nbytes


def smallest_set(mass, always, share, at_least) -> list[Expected]:
    keep = torch.zeros(mass.shape, dtype=torch.float64)
    for row, (of_row, forced) in enumerate(zip(mass.double().tolist(), always.tolist(), strict=True)):
        order = sorted(range(len(of_row)), key=lambda i: (not forced[i], 0 if forced[i] else -of_row[i], i))
        held = 0.0
        for n, i in enumerate(order):
            if held >= share * sum(of_row) and n >= at_least and not forced[i]:
                break
            keep[row, i], held = 1, held + of_row[i]
    return [(keep, torch.zeros_like(keep))]


def idle_groups(query, keys, values, keep, scaling) -> int:
    """Keys, values and queries of groups of which no head is kept."""
    n_groups, unread = query.shape[1] // keys.shape[1], 0
    for b, h in product(*map(range, keys.shape[:2])):
        mine = keep[b, h * n_groups : (h + 1) * n_groups].tolist()
        if not any(mine):
            unread += n_groups * query[b, 0].nbytes + keys[b, h].nbytes + values[b, h].nbytes
    return unread


def positions_of_no_use(query, keys, values, position, slot_position, *others) -> int:
    """That of a token is not asked for where it sees every slot."""
    return position.nbytes if slot_position is None else 0


UNREAD = {  # bytes among the arguments that a kernel may leave alone
    "grouped_matmul": idle_experts,
    "pair_matmul": unasked_experts,
    "gathered_mlp": idle_neurons,
    "threshold_matvec": skipped_columns,
    "head_sparse_decode": idle_groups,
    "block_sparse_prefill": behind_the_lists,
    "decode_attention": positions_of_no_use,
    "line_masses": earlier_queries,
}
FREE_AXES = {  # axes that an argument alone has: neurons that are chosen; outputs; scores; room on a list
    ("gathered_mlp", "4", "first axis"),
    ("gathered_mlp", "4", "last axis"),
    ("threshold_matvec", "1", "last axis"),
    ("top_indices", "0", "last axis"),
    ("block_sparse_prefill", "3", "last axis"),
    ("line_masses", "1", "first axis"),
}


def _turned(key: list[float], by: int, frequencies: list[float]) -> tuple[list[float], float]:
    """The key turned on by so many positions, and how far off a float32 angle and its cosine put each number, at most,
    as a share of the largest.
    """
    half, turned = len(key) // 2, [0.0] * len(key)
    for i, frequency in enumerate(frequencies):
        cos, sin = math.cos(by * frequency), math.sin(by * frequency)
        turned[i], turned[half + i] = key[i] * cos - key[half + i] * sin, key[half + i] * cos + key[i] * sin
    return turned, 2 * (abs(by) * max(frequencies) + 8) * 2.0**-24


def _logit(x: list[float], key: list[float], scaling: float, key_off: float = 0.0) -> tuple[float, float]:
    """scaling * x . key, and how far float32 may be off: by a sum of products, by two roundings of the scaled sum, and
    where each number of the key is wrong by a share of its largest.
    """
    terms = [scaling * q * k for q, k in zip(x, key, strict=True)]
    logit, wrong = sum(terms), key_off * max(map(abs, key)) * scaling * sum(map(abs, x))
    return logit, wrong + 2 * (len(x) + 1) * 2.0**-24 * sum(map(abs, terms)) + 2.0**-22 * abs(logit)


def _rounding(exact: Tensor, size: Tensor, n_terms: int, dtype: torch.dtype) -> Tensor:
    """A float32 sum of n products in any order errs by at most (n + 1) * 2^-24 of the sum of their sizes.

    Twice that, since tensor cores may truncate where float32 rounds; then one unit in the last place of the output,
    since the interpreter truncates to bfloat16; then the smallest number that the output type tells from zero.
    """
    kind = torch.finfo(dtype)
    return 2 * (n_terms + 1) * 2.0**-24 * size + kind.eps * exact.abs() + kind.smallest_normal * kind.eps
