"""Answers to the exercises of lesson 01 as students write them.

Dimension key: O outputs, I inputs, N tokens, K positions of a row, P packed bytes in a row, Z values stored.
"""

import math

import numpy
import torch
from torch.nn.functional import avg_pool2d, linear


def best(score, n):
    return score.topk(n).indices.sort().values


def columns_by(score):
    """An answer that keeps the columns with the highest score(weight)."""

    def answer(weight, n_kept):
        columns = best(score(weight), n_kept)
        return weight[:, columns], columns

    return answer


def columns_in_a_loop(weight, n_kept):
    norms = [sum(float(x) ** 2 for x in column) ** 0.5 for column in weight.T]
    kept = sorted(sorted(range(len(norms)), key=lambda c: norms[c], reverse=True)[:n_kept])
    return torch.stack([weight[:, c] for c in kept], dim=1), torch.tensor(kept)


def columns_in_numpy(weight, n_kept):
    kept = numpy.sort(numpy.argsort(-numpy.linalg.norm(weight.numpy(), axis=0))[:n_kept])
    return weight.numpy()[:, kept], kept


def columns_above(weight, n_kept):
    norms = weight.norm(dim=0)
    keep = norms >= norms.topk(n_kept).values[-1]
    return weight[:, keep], keep.nonzero().flatten()


def columns_above_median(weight, n_kept):
    norms = weight.norm(dim=0)
    keep = norms >= norms.median()
    return weight[:, keep], keep.nonzero().flatten()


def columns_unsorted(weight, n_kept):
    columns = weight.norm(dim=0).topk(n_kept).indices
    return weight[:, columns], columns


def columns_masked(weight, n_kept):
    keep = torch.zeros(weight.shape[1], dtype=torch.bool)
    keep[weight.norm(dim=0).topk(n_kept).indices] = True
    return weight[:, keep], keep


def columns_zeroed(weight, n_kept):
    columns = best(weight.norm(dim=0), n_kept)
    weight = weight.clone()
    weight[:, [c for c in range(weight.shape[1]) if c not in columns.tolist()]] = 0
    return weight, columns


def rows_kept(weight, n_kept):
    rows = best(weight.norm(dim=1), n_kept)
    return weight[rows], rows


def rows_of_columns(weight, n_kept):
    columns = best(weight.norm(dim=1), n_kept)
    return weight[:, columns], columns


right_columns = columns_by(lambda weight: weight.norm(dim=0))


def totals(weight, rows, columns):
    tiles = weight.reshape(weight.shape[0] // rows, rows, weight.shape[1] // columns, columns)
    return tiles.abs().sum(dim=(1, 3))


def enlarged(keep, rows, columns):
    return keep.repeat_interleave(rows, 0).repeat_interleave(columns, 1)


def chosen(total, n_kept):
    keep = torch.zeros(total.numel(), dtype=torch.bool)
    keep[total.flatten().topk(n_kept).indices] = True
    return keep.reshape(total.shape)


def blocks_by(total):
    """An answer that keeps the blocks with the highest total(weight, rows, columns)."""
    return lambda weight, r, c, n: enlarged(chosen(total(weight, r, c), n), r, c)


def tiles_of(weight, rows, columns):
    return weight.reshape(weight.shape[0] // rows, rows, weight.shape[1] // columns, columns)


def blocks_in_a_loop(weight, rows, columns, n_kept):
    found = []
    for top in range(0, weight.shape[0], rows):
        for left in range(0, weight.shape[1], columns):
            found.append((weight[top : top + rows, left : left + columns].abs().sum().item(), top, left))
    keep = numpy.zeros(weight.shape)
    for _, top, left in sorted(found)[-n_kept:]:
        keep[top : top + rows, left : left + columns] = 1
    return keep


def blocks_above(weight, rows, columns, n_kept):
    total = totals(weight, rows, columns)
    return enlarged(total >= total.flatten().topk(n_kept).values[-1], rows, columns)


def blocks_each_row(weight, rows, columns, n_kept):
    total = totals(weight, rows, columns)
    n = max(1, n_kept // total.shape[0])
    keep = torch.zeros_like(total, dtype=torch.bool).scatter(1, total.topk(min(n, total.shape[1]), 1).indices, True)
    return enlarged(keep, rows, columns)


def blocks_each_column(weight, rows, columns, n_kept):
    total = totals(weight, rows, columns).T
    n = min(max(1, n_kept // total.shape[0]), total.shape[1])
    return enlarged(
        torch.zeros_like(total, dtype=torch.bool).scatter(1, total.topk(n, 1).indices, True).T, rows, columns
    )


def entries(weight, rows, columns, n_kept):
    return chosen(weight.abs(), n_kept * rows * columns)


def blocks_misread(weight, rows, columns, n_kept):
    total = weight.abs().reshape(weight.shape[0] // rows, weight.shape[1] // columns, rows * columns).sum(-1)
    return enlarged(chosen(total, n_kept), rows, columns)


right_blocks = blocks_by(totals)


def two_of_four(weight):
    groups = weight.unflatten(1, (-1, 4))
    positions = groups.abs().topk(2, dim=2).indices.sort(dim=2).values
    return groups.gather(2, positions).flatten(1), positions.flatten(1)


def nofm_by_size(weight):
    groups = weight.unflatten(1, (-1, 4))
    positions = groups.abs().topk(2, dim=2).indices
    return groups.gather(2, positions).flatten(1), positions.flatten(1)


def nofm_descending(weight):
    groups = weight.unflatten(1, (-1, 4))
    positions = groups.abs().topk(2, dim=2).indices.sort(dim=2, descending=True).values
    return groups.gather(2, positions).flatten(1), positions.flatten(1)


def nofm_in_a_loop(weight):
    values, positions = [], []
    for row in weight.tolist():
        for start in range(0, len(row), 4):
            group = row[start : start + 4]
            kept = sorted(sorted(range(4), key=lambda i: abs(group[i]))[2:])
            values += [group[i] for i in kept]
            positions += kept
    shape = len(weight), -1
    return torch.tensor(values).view(shape), torch.tensor(positions).view(shape)


def nofm_in_numpy(weight):
    groups = weight.numpy().reshape(len(weight), -1, 4)
    positions = numpy.sort(numpy.argsort(numpy.abs(groups), axis=2)[..., 2:], axis=2)
    values = numpy.take_along_axis(groups, positions, axis=2)
    return values.reshape(len(weight), -1), positions.reshape(len(weight), -1)


def nofm_by_ranks(weight):
    groups = weight.double().reshape(-1, 4)
    keep = groups.abs().argsort(dim=1).argsort(dim=1) >= 2
    return [groups[keep].reshape(len(weight), -1), keep.nonzero()[:, 1].reshape(len(weight), -1)]


def nofm_sorted_apart(weight):
    groups = weight.unflatten(1, (-1, 4))
    _, positions = groups.abs().topk(2, dim=2)
    return groups.gather(2, positions).flatten(1), positions.sort(dim=2).values.flatten(1)


def nofm_of_size(weight):
    values, positions = weight.abs().unflatten(1, (-1, 4)).topk(2, dim=2)
    order = positions.argsort(dim=2)
    return values.gather(2, order).flatten(1), positions.gather(2, order).flatten(1)


def nofm_signed(weight):
    groups = weight.unflatten(1, (-1, 4))
    positions = groups.topk(2, dim=2).indices.sort(dim=2).values
    return groups.gather(2, positions).flatten(1), positions.flatten(1)


def nofm_smallest(weight):
    groups = weight.unflatten(1, (-1, 4))
    positions = groups.abs().topk(2, dim=2, largest=False).indices.sort(dim=2).values
    return groups.gather(2, positions).flatten(1), positions.flatten(1)


def nofm_strided(weight):
    groups = weight.unflatten(1, (4, -1))
    positions = groups.abs().topk(2, dim=1).indices.sort(dim=1).values
    return groups.gather(1, positions).flatten(1), positions.flatten(1)


def nofm_columns(weight):
    values, positions = two_of_four(weight)
    return values, positions + torch.arange(positions.shape[1]) // 2 * 4


def nofm_down(weight):
    values, positions = two_of_four(weight.T)
    return values.T, positions.T


def nofm_per_row(weight):
    columns = weight.abs().topk(weight.shape[1] // 2, dim=1).indices.sort(dim=1).values
    return weight.gather(1, columns), columns % 4


def nofm_above_median(weight):
    """An answer that raises where sizes tie."""
    groups = weight.reshape(-1, 4)
    keep = groups.abs() > groups.abs().median(dim=1, keepdim=True).values
    return groups[keep].reshape(len(weight), -1), keep.nonzero()[:, 1].reshape(len(weight), -1)


def nofm_dense(weight):
    groups = weight.unflatten(1, (-1, 4))
    keep = torch.zeros_like(groups, dtype=torch.bool).scatter(2, groups.abs().topk(2, dim=2).indices, True)
    return (groups * keep).flatten(1), two_of_four(weight)[1]


def nofm_largest_alone(weight):
    groups = weight.unflatten(1, (-1, 4))
    positions = groups.abs().argmax(2, keepdim=True)
    return groups.gather(2, positions).flatten(1), positions.flatten(1)


def sizes(o, i, z, v, **other):
    right = {
        "dense": o * i * v,
        "CSR": z * (v + 4) + 4 * (o + 1),
        "bitmap": z * v + o * -(-i // 8) + 4 * (o + 1),
        "2:4": o * (i // 2 * v + -(-(i // 2) // 4)),
    }
    return right | {{"two_four": "2:4"}.get(name, name): size for name, size in other.items()}


def counts_of(keep):
    return keep.long().unflatten(1, (-1, 4)).sum(2)


def choice(fits, n_columns=lambda keep: keep.any(0).sum().item(), extra=4):
    """An answer that takes 2:4 if fits(keep)."""

    def answer(keep, sizes, value_bytes):
        able = dict(sizes)
        if keep.shape[1] % 4 or not fits(keep):
            able.pop("2:4")
        able["columns"] = n_columns(keep) * (keep.shape[0] * value_bytes + extra)
        name = min(able, key=able.get)
        return name, able[name]

    return answer


def at_most_two(keep):
    return bool((counts_of(keep) <= 2).all())


def choice_in_numpy(keep, sizes, value_bytes):
    mask = keep.numpy()
    rows, columns = mask.shape
    able = [(size, name) for name, size in sizes.items() if name != "2:4"]
    able.append((numpy.count_nonzero(mask.any(axis=0)) * (rows * value_bytes + 4), "columns"))
    if columns % 4 == 0 and mask.reshape(rows, columns // 4, 4).sum(axis=2).max() <= 2:
        able.append((sizes["2:4"], "2:4"))
    size, name = min(able)
    return name, size


def choice_by_infinity(keep, sizes, value_bytes):
    able = {**sizes, "columns": sum(bool(column.any()) for column in keep.T) * (len(keep) * value_bytes + 4)}
    if not (keep.shape[1] % 4 == 0 and at_most_two(keep)):
        able["2:4"] = math.inf
    return tuple(min(able.items(), key=lambda pair: pair[1]))


def choice_of_four(keep, sizes, value_bytes):
    name = min(sizes, key=sizes.get)
    return name, sizes[name]


def choice_without_columns(keep, sizes, value_bytes):
    able = {
        name: size for name, size in sizes.items() if name != "2:4" or (keep.shape[1] % 4 == 0 and at_most_two(keep))
    }
    name = min(able, key=able.get)
    return name, able[name]


right_choice = choice(at_most_two)


def bits_of(bitmap):
    return ((bitmap[:, :, None] >> torch.arange(8)) & 1).flatten(1)


def filled(keep, values):
    dense = torch.zeros(keep.shape, dtype=values.dtype)
    dense[keep.bool()] = values
    return dense


def bitmap_in_a_loop(values, bitmap, columns):
    dense = [[0.0] * columns for _ in bitmap]
    n = 0
    for o in range(len(bitmap)):
        for i in range(columns):
            if bitmap[o, i // 8] & (1 << i % 8):
                dense[o][i] = values[n].item()
                n += 1
    return dense


def bitmap_in_numpy(values, bitmap, columns):
    bits = numpy.unpackbits(bitmap.numpy(), axis=1, count=columns, bitorder="little").astype(bool)
    dense = numpy.zeros(bits.shape, dtype=numpy.float32)
    dense[bits] = values.numpy()
    return dense


def bitmap_by_scatter(values, bitmap, columns):
    keep = bits_of(bitmap)[:, :columns].bool()
    return torch.zeros(keep.shape).masked_scatter(keep, values)


def bitmap_of_powers(values, bitmap, columns):
    powers = 2 ** torch.arange(8)
    keep = (bitmap.int()[:, :, None] & powers).ne(0).flatten(1)[:, :columns]
    dense = torch.zeros(len(bitmap), columns, dtype=torch.float64)
    rows, positions = keep.nonzero(as_tuple=True)
    dense[rows, positions] = values.double()
    return dense


def bitmap_high_first(values, bitmap, columns):
    bits = numpy.unpackbits(bitmap.numpy(), axis=1)[:, :columns].astype(bool)
    dense = numpy.zeros(bits.shape, dtype=numpy.float32)
    dense[bits] = values.numpy()[: bits.sum()]
    return dense


def bitmap_stream(values, bitmap, columns):
    keep = bits_of(bitmap).flatten()[: len(bitmap) * columns].reshape(len(bitmap), columns)
    return filled(keep, values[: int(keep.sum())])


def bitmap_restart(values, bitmap, columns):
    keep = bits_of(bitmap)[:, :columns]
    return torch.stack([filled(row, values[: int(row.sum())]) for row in keep])


def bitmap_mixed(values, bitmap, columns):
    keep = ((bitmap[:, None, :] >> torch.arange(8)[:, None]) & 1).flatten(1)[:, :columns]
    return filled(keep, values[: int(keep.sum())])


def bitmap_of_columns(values, bitmap, columns):
    return filled(bits_of(bitmap)[:, :columns].T, values).T


def bitmap_whole_bytes(values, bitmap, columns):
    keep = bits_of(bitmap)[:, : columns // 8 * 8]
    return filled(keep, values[: int(keep.sum())])


def kept(inputs, indices):
    return inputs * torch.zeros_like(inputs).scatter(1, indices, 1.0)


def dynamic_in_a_loop(weight, inputs, k):
    rows = []
    for token in inputs:
        order = sorted(range(len(token)), key=lambda i: -abs(token[i].item()))[:k]
        rows.append(sum(token[i] * weight[:, i] for i in order))
    return torch.stack(rows)


def dynamic_in_numpy(weight, inputs, k):
    x = inputs.numpy().copy()
    leaving = numpy.argsort(numpy.abs(x), axis=1)[:, : x.shape[1] - k]
    numpy.put_along_axis(x, leaving, 0.0, axis=1)
    return x @ weight.numpy().T


def dynamic_gathered(weight, inputs, k):
    indices = inputs.abs().topk(k, dim=1).indices
    return torch.einsum("nk,onk->no", inputs.gather(1, indices), weight[:, indices])


def dynamic_above(weight, inputs, k):
    least = inputs.abs().topk(k, dim=1).values[:, -1:]
    return linear(inputs * (inputs.abs() >= least), weight)


def dynamic_static(weight, inputs, k):
    best_on_average = inputs.abs().mean(0).topk(k).indices
    return inputs[:, best_on_average] @ weight[:, best_on_average].T


def dynamic_first_token(weight, inputs, k):
    indices = inputs[0].abs().topk(k).indices
    return inputs[:, indices] @ weight[:, indices].T


def dynamic_over_tokens(weight, inputs, k):
    indices = inputs.abs().topk(k, dim=0).indices
    return linear(inputs * torch.zeros_like(inputs).scatter(0, indices, 1.0), weight)


def dynamic_over_all(weight, inputs, k):
    keep = chosen(inputs.abs(), k * len(inputs))
    return linear(inputs * keep, weight)


def dynamic_largest_removed(weight, inputs, k):
    return linear(inputs.scatter(1, inputs.abs().topk(k, dim=1).indices, 0.0), weight)


def right_dynamic(weight, inputs, k):
    return linear(kept(inputs, inputs.abs().topk(k, dim=1).indices), weight)


RIGHT = {
    "patterns.columns": {
        "a loop over the columns": columns_in_a_loop,
        "numpy": columns_in_numpy,
        "float64 and squares": columns_by(lambda weight: weight.double().square().sum(0)),
        "of the transposed": lambda weight, n: [weight.T[best(weight.T.norm(dim=1), n)].T, best(weight.norm(dim=0), n)],
        "einsum": columns_by(lambda weight: torch.einsum("oi,oi->i", weight, weight)),
    },
    "patterns.blocks": {
        "a loop over the blocks": blocks_in_a_loop,
        "pooling": blocks_by(lambda weight, r, c: avg_pool2d(weight.abs()[None], (r, c))[0]),
        "zeros and ones of kron": lambda weight, r, c, n: torch.kron(
            chosen(totals(weight, r, c), n).float(), torch.ones(r, c)
        ),
        "argsort twice": lambda weight, r, c, n: enlarged(
            (totals(weight, r, c).flatten().argsort().argsort() >= totals(weight, r, c).numel() - n).reshape(
                weight.shape[0] // r, -1
            ),
            r,
            c,
        ),
    },
    "patterns.nofm": {
        "a loop over the groups": nofm_in_a_loop,
        "numpy": nofm_in_numpy,
        "ranks, in float64, as a list": nofm_by_ranks,
        "positions in one byte": lambda weight: (two_of_four(weight)[0], two_of_four(weight)[1].to(torch.uint8)),
    },
    "patterns.bytes": {
        "math.ceil": lambda o, i, z, v: {
            "dense": v * o * i,
            "CSR": z * v + 4 * z + 4 * o + 4,
            "bitmap": z * v + o * math.ceil(i / 8) + 4 * (o + 1),
            "2:4": o * i * v // 2 + o * math.ceil(i / 8),
        },
        "floats": lambda o, i, z, v: {name: size * 1.0 for name, size in sizes(o, i, z, v).items()},
        "numpy": lambda o, i, z, v: {name: numpy.int64(size) for name, size in sizes(o, i, z, v).items()},
    },
    "patterns.choose": {
        "numpy, smallest pair": choice_in_numpy,
        "infinite where it does not fit": choice_by_infinity,
        "as a list": lambda keep, sizes, v: list(right_choice(keep, sizes, v)),
    },
    "patterns.bitmap": {
        "a loop over bits, as lists": bitmap_in_a_loop,
        "numpy": bitmap_in_numpy,
        "masked_scatter": bitmap_by_scatter,
        "powers of two, in float64": bitmap_of_powers,
    },
    "patterns.break_even": {
        "bits": lambda v, i: (8 * v / (8 * v + 8 * i), (8 * v - 1) / (8 * v)),
        "a list": lambda v, i: [1 / (1 + i / v), 1 - 0.125 / v],
        "numpy": lambda v, i: numpy.array([v / (v + i), 1 - 1 / 8 / v]),
    },
    "patterns.dynamic": {
        "a loop over the tokens": dynamic_in_a_loop,
        "numpy": dynamic_in_numpy,
        "the columns gathered": dynamic_gathered,
        "float64": lambda weight, inputs, k: right_dynamic(weight.double(), inputs.double(), k),
        "in place": lambda weight, inputs, k: (
            inputs.scatter_(1, inputs.abs().topk(inputs.shape[1] - k, 1, largest=False).indices, 0.0) @ weight.T
        ),
    },
}

WRONG = {
    "patterns.columns": {
        "threshold": (columns_above, "threshold with ties"),
        "above the median": columns_above_median,
        "L1 norm": (columns_by(lambda weight: weight.abs().sum(0)), "sum of absolute values"),
        "mean of sizes": (columns_by(lambda weight: weight.abs().mean(0)), "sum of absolute values"),
        "maximum": (columns_by(lambda weight: weight.abs().max(dim=0).values), "largest entry decides"),
        "signed sum": (columns_by(lambda weight: weight.sum(0)), "signed sum"),
        "standard deviation": (columns_by(lambda weight: weight.std(dim=0)), ""),
        "norm of the rows": (rows_of_columns, "norms of the rows"),
        "rows": (rows_kept, "rows instead of columns"),
        "not sorted": (columns_unsorted, "not in ascending order"),
        "descending": (
            lambda weight, n: tuple(part.flip(-1) for part in right_columns(weight, n)),
            "not in ascending order",
        ),
        "smallest": (columns_by(lambda weight: -weight.norm(dim=0)), "smallest columns kept"),
        "a mask": (columns_masked, "a mask in place of the indices"),
        "zeros": (columns_zeroed, "zeros left in the matrix"),
        "matrix alone": (lambda weight, n: right_columns(weight, n)[0], ""),
        "indices alone": (lambda weight, n: right_columns(weight, n)[1], ""),
        "exchanged": (lambda weight, n: right_columns(weight, n)[::-1], "the other way round"),
        "n removed": (lambda weight, n: right_columns(weight, weight.shape[1] - n), "n_kept columns removed"),
        "the first n": (lambda weight, n: (weight[:, :n], torch.arange(n)), ""),
    },
    "patterns.blocks": {
        "threshold": (blocks_above, "threshold with ties"),
        "squares": (blocks_by(lambda weight, r, c: tiles_of(weight.square(), r, c).sum((1, 3))), "sum of squares"),
        "Frobenius norm": (blocks_by(lambda weight, r, c: tiles_of(weight, r, c).norm(dim=(1, 3))), "sum of squares"),
        "signed": (blocks_by(lambda weight, r, c: tiles_of(weight, r, c).sum((1, 3))), "signed sum"),
        "size of the sum": blocks_by(lambda weight, r, c: tiles_of(weight, r, c).sum((1, 3)).abs()),
        "maximum": (
            blocks_by(lambda weight, r, c: tiles_of(weight, r, c).abs().amax((1, 3))),
            "largest entry decides",
        ),
        "repeat": (
            lambda weight, r, c, n: chosen(totals(weight, r, c), n).repeat(r, c),
            "the small mask tiled",
        ),
        "complement": (lambda weight, r, c, n: ~right_blocks(weight, r, c, n), "mask inverted"),
        "small mask": (lambda weight, r, c, n: chosen(totals(weight, r, c), n), "one entry per block"),
        "in each band": (blocks_each_row, "the same number in each band"),
        "in each stripe": (blocks_each_column, "the same number in each stripe"),
        "single entries": (entries, "single entries"),
        "misread": (blocks_misread, "blocks read across rows"),
        "smallest": (blocks_by(lambda weight, r, c: -totals(weight, r, c)), "smallest blocks kept"),
        "the weights": (
            lambda weight, r, c, n: weight * right_blocks(weight, r, c, n),
            "the weights in place of the mask",
        ),
        "n removed": (
            lambda weight, r, c, n: right_blocks(weight, r, c, weight.numel() // r // c - n),
            "n_kept blocks removed",
        ),
        "repeated along one axis": (
            lambda weight, r, c, n: chosen(totals(weight, r, c), n).repeat_interleave(r, 0),
            "",
        ),
    },
    "patterns.nofm": {
        "by size": (nofm_by_size, "larger one first"),
        "descending positions": (nofm_descending, "higher position first"),
        "positions sorted alone": (nofm_sorted_apart, "values and positions in different orders"),
        "sizes": (nofm_of_size, "absolute values stored"),
        "signed": (nofm_signed, "rank keeps the sign"),
        "smallest": (nofm_smallest, "smallest kept"),
        "strided": (nofm_strided, ""),
        "columns": (nofm_columns, "columns instead of positions"),
        "down": (nofm_down, "groups down the outputs"),
        "half of a row": (nofm_per_row, "half of each row"),
        "above the median": (nofm_above_median, ""),
        "dense": (nofm_dense, "dense matrix returned"),
        "one of four": (nofm_largest_alone, "one of every four"),
        "from one": (lambda weight: (two_of_four(weight)[0], two_of_four(weight)[1] + 1), "counted from one"),
        "values alone": (lambda weight: two_of_four(weight)[0], ""),
        "exchanged": (lambda weight: two_of_four(weight)[::-1], "the other way round"),
        "in groups": (
            lambda weight: tuple(part.unflatten(1, (-1, 2)) for part in two_of_four(weight)),
            "groups not flattened",
        ),
        "in one column": (lambda weight: tuple(part.flatten() for part in two_of_four(weight)), ""),
        "the first two": (
            lambda weight: (
                weight.unflatten(1, (-1, 4))[:, :, :2].flatten(1),
                torch.tensor([0, 1]).repeat(weight.shape[0], weight.shape[1] // 4),
            ),
            "",
        ),
    },
    "patterns.bytes": {
        "no starts in CSR": (lambda o, i, z, v: sizes(o, i, z, v, CSR=z * (v + 4)), "row starts forgotten"),
        "no starts in the bitmap": (
            lambda o, i, z, v: sizes(o, i, z, v, bitmap=z * v + o * -(-i // 8)),
            "row starts forgotten",
        ),
        "no end": (
            lambda o, i, z, v: sizes(o, i, z, v, CSR=z * (v + 4) + 4 * o, bitmap=z * v + o * -(-i // 8) + 4 * o),
            "the end of the last row forgotten",
        ),
        "no end in CSR": (
            lambda o, i, z, v: sizes(o, i, z, v, CSR=z * (v + 4) + 4 * o),
            "the end of the last row forgotten",
        ),
        "column starts": (
            lambda o, i, z, v: sizes(o, i, z, v, CSR=z * (v + 4) + 4 * (i + 1)),
            "row starts counted in columns",
        ),
        "rounded down": (
            lambda o, i, z, v: sizes(
                o, i, z, v, bitmap=z * v + o * (i // 8) + 4 * (o + 1), two_four=o * (i // 2 * v + i // 8)
            ),
            "rounded down to whole bytes",
        ),
        "map as one": (
            lambda o, i, z, v: sizes(o, i, z, v, bitmap=z * v + math.ceil(o * i / 8) + 4 * (o + 1)),
            "rows of the map run together",
        ),
        "map in fractions": (
            lambda o, i, z, v: sizes(o, i, z, v, bitmap=z * v + o * i / 8 + 4 * (o + 1)),
            "rows of the map run together",
        ),
        "map in bytes": (
            lambda o, i, z, v: sizes(o, i, z, v, bitmap=z * v + o * i + 4 * (o + 1)),
            "a byte per bit of the map",
        ),
        "2:4 by what is stored": (
            lambda o, i, z, v: sizes(o, i, z, v, two_four=z * v + o * -(-i // 8)),
            "2:4 by the stored entries",
        ),
        "no positions": (lambda o, i, z, v: sizes(o, i, z, v, two_four=o * i // 2 * v), "positions of 2:4 forgotten"),
        "a byte per position": (
            lambda o, i, z, v: sizes(o, i, z, v, two_four=o * i // 2 * (v + 1)),
            "a whole byte per position",
        ),
        "2:4 with starts": (
            lambda o, i, z, v: sizes(o, i, z, v, two_four=sizes(o, i, z, v)["2:4"] + 4 * (o + 1)),
            "row starts in 2:4",
        ),
        "COO": (lambda o, i, z, v: sizes(o, i, z, v, CSR=z * (v + 8)), "a row index per value"),
        "dense as entries": (lambda o, i, z, v: sizes(o, i, z, v, dense=o * i), "entries counted instead of bytes"),
        "indices as wide as values": (
            lambda o, i, z, v: sizes(o, i, z, v, CSR=2 * z * v + 4 * (o + 1)),
            "index as narrow as the value",
        ),
        "no columns": (
            lambda o, i, z, v: sizes(o, i, z, v, CSR=z * v + 4 * (o + 1)),
            "the column indices of CSR forgotten",
        ),
        "map alone": (
            lambda o, i, z, v: sizes(o, i, z, v, bitmap=o * -(-i // 8) + 4 * (o + 1)),
            "the map without its values",
        ),
        "bits": (lambda o, i, z, v: {name: 8 * size for name, size in sizes(o, i, z, v).items()}, "in bits"),
        "kilobytes": (lambda o, i, z, v: {name: size / 1000 for name, size in sizes(o, i, z, v).items()}, ""),
        "a list": (lambda o, i, z, v: list(sizes(o, i, z, v).values()), ""),
        "two of five": lambda o, i, z, v: sizes(o, i, z, v, CSR=z * v + z * 2 + 4 * (o + 1)),
    },
    "patterns.choose": {
        "never asked whether 2:4 fits": (
            lambda keep, sizes, v: min(
                [*sizes.items(), ("columns", keep.any(0).sum().item() * (len(keep) * v + 4))], key=lambda pair: pair[1]
            ),
            "2:4 whatever the mask",
        ),
        "exactly two": (choice(lambda keep: bool((counts_of(keep) == 2).all())), "2:4 with exactly two only"),
        "by rows": (choice(lambda keep: bool((keep.sum(1) <= keep.shape[1] // 2).all())), "half of each row"),
        "by the whole": (choice(lambda keep: keep.float().mean().item() <= 0.5), "half of each row"),
        "down": (
            choice(lambda keep: len(keep) % 4 == 0 and at_most_two(keep.T.contiguous())),
            "groups down the outputs",
        ),
        "strided": (
            choice(lambda keep: keep.reshape(len(keep), 4, -1).sum(1).max().item() <= 2),
            "interleaved groups",
        ),
        "no columns": (choice_without_columns, "columns omitted"),
        "neither": (choice_of_four, "the smallest of sizes"),
        "no 2:4": (choice(lambda keep: False), "2:4 omitted"),
        "no numbers": (choice(at_most_two, extra=0), "column indices forgotten"),
        "full columns": (
            choice(at_most_two, n_columns=lambda keep: keep.all(0).sum().item()),
            "full columns only",
        ),
        "empty columns": (
            choice(at_most_two, n_columns=lambda keep: (~keep.any(0)).sum().item()),
            "empty columns counted",
        ),
        "rows": (choice(at_most_two, n_columns=lambda keep: keep.any(1).sum().item()), "rows counted"),
        "at most three": (choice(lambda keep: bool((counts_of(keep) <= 3).all())), ""),
        "fewer than two": (choice(lambda keep: bool((counts_of(keep) < 2).all())), "2:4 omitted"),
        "exchanged": (lambda keep, sizes, v: right_choice(keep, sizes, v)[::-1], "the other way round"),
        "the name alone": (lambda keep, sizes, v: right_choice(keep, sizes, v)[0], ""),
        "all sizes": (lambda keep, sizes, v: sizes, ""),
    },
    "patterns.bitmap": {
        "top first": (bitmap_high_first, "highest bit first"),
        "one stream": (bitmap_stream, "rows run into each other"),
        "starts again": (bitmap_restart, "every row starts with the first value"),
        "of columns": (bitmap_of_columns, "filled column by column"),
        "not cut": (lambda values, bitmap, columns: filled(bits_of(bitmap), values), "spare bits returned"),
        "whole bytes": (bitmap_whole_bytes, "whole bytes only"),
        "mixed": (bitmap_mixed, "all lowest bits first"),
        "map": (
            lambda values, bitmap, columns: bits_of(bitmap)[:, :columns].float(),
            "the map in place of the values",
        ),
        "map, True and False": (
            lambda values, bitmap, columns: bits_of(bitmap)[:, :columns].bool(),
            "the map in place of the values",
        ),
        "without & 1": (
            lambda values, bitmap, columns: filled(
                (bitmap[:, :, None] >> torch.arange(8)).flatten(1)[:, :columns], values
            ),
            "",
        ),
        "inverted": (lambda values, bitmap, columns: filled(1 - bits_of(bitmap)[:, :columns], values), ""),
        "transposed": (
            lambda values, bitmap, columns: bitmap_by_scatter(values, bitmap, columns).T,
            "columns and rows exchanged",
        ),
        "from the end": (
            lambda values, bitmap, columns: bitmap_by_scatter(values.flip(0), bitmap, columns),
            "last value first",
        ),
        "a value for all": (
            lambda values, bitmap, columns: bits_of(bitmap)[:, :columns] * values[0],
            "one value for all",
        ),
        "flat": (lambda values, bitmap, columns: bitmap_by_scatter(values, bitmap, columns).flatten(), ""),
    },
    "patterns.break_even": {
        "exchanged": (lambda v, i: (1 - 1 / (8 * v), v / (v + i)), "the other way round"),
        "share of the index": (lambda v, i: (i / (v + i), 1 - 1 / (8 * v)), "one of the two is a sparsity"),
        "sparsities": (lambda v, i: (i / (v + i), 1 / (8 * v)), "sparsity instead of density"),
        "sparsity of the bitmap": (lambda v, i: (v / (v + i), 1 / (8 * v)), "one of the two is a sparsity"),
        "no values": (lambda v, i: (v / i, 1 - 1 / (8 * v)), "the values of CSR forgotten"),
        "one index": (lambda v, i: ((v - i) / v, 1 - 1 / (8 * v)), "one index in all"),
        "a byte": (lambda v, i: (v / (v + i), 1 - 1 / v), "a byte per bit of the map"),
        "eight bytes": (lambda v, i: (v / (v + i), 1 - 8 / v), "a byte per bit of the map"),
        "v in bits": (lambda v, i: (v / (v + i), 1 - v / 8), "value bytes taken for bits"),
        "map by what is stored": (lambda v, i: (v / (v + i), v / (v + 0.125)), "the map only for stored entries"),
        "inverse": (lambda v, i: ((v + i) / v, 8 * v / (8 * v - 1)), "upside down"),
        "plus": (lambda v, i: (v / (v + i), 1 + 1 / (8 * v)), "the map added, not subtracted"),
        "whole": (lambda v, i: (v // (v + i), 1 - 1 // (8 * v)), "rounded to whole numbers"),
        "bytes": (lambda v, i: (v + i, v + 1 / 8), "the sizes instead of the density"),
        "CSR alone": (lambda v, i: v / (v + i), ""),
        "half": (lambda v, i: (0.5, 0.5), ""),
        "two indices": (lambda v, i: (v / (v + 2 * i), 1 - 1 / (8 * v)), "two indices per value"),
        "starts too": (lambda v, i: ((v - i) / (v + i), 1 - 1 / (8 * v)), ""),
    },
    "patterns.dynamic": {
        "threshold": (dynamic_above, "threshold with ties"),
        "over tokens": (dynamic_over_tokens, "chosen among the tokens"),
        "over all": (dynamic_over_all, "one ranking over all tokens"),
        "k of all": (
            lambda weight, inputs, k: linear(inputs * chosen(inputs.abs(), k), weight),
            "k values in all",
        ),
        "largest removed": (dynamic_largest_removed, "largest removed"),
        "signed": (
            lambda weight, inputs, k: linear(kept(inputs, inputs.topk(k, dim=1).indices), weight),
            "rank keeps the sign",
        ),
        "smallest": (
            lambda weight, inputs, k: linear(kept(inputs, inputs.abs().topk(k, 1, largest=False).indices), weight),
            "smallest kept",
        ),
        "static": (dynamic_static, "one choice for all tokens"),
        "first token decides": (dynamic_first_token, ""),
        "by the weight": (
            lambda weight, inputs, k: inputs[:, best(weight.norm(dim=0), k)] @ weight[:, best(weight.norm(dim=0), k)].T,
            "chosen by the weight",
        ),
        "sizes": (
            lambda weight, inputs, k: linear(kept(inputs.abs(), inputs.abs().topk(k, dim=1).indices), weight),
            "absolute values in place of the inputs",
        ),
        "no layer": (
            lambda weight, inputs, k: kept(inputs, inputs.abs().topk(k, dim=1).indices),
            "layer not applied",
        ),
        "transposed": (lambda weight, inputs, k: right_dynamic(weight, inputs, k).T, "one column per token"),
        "outputs": (
            lambda weight, inputs, k: kept(inputs @ weight.T, (inputs @ weight.T).abs().topk(k, 1).indices),
            "outputs chosen instead of inputs",
        ),
        "dense": (lambda weight, inputs, k: inputs @ weight.T, "all inputs used"),
        "scaled": (
            lambda weight, inputs, k: right_dynamic(weight, inputs, k) * inputs.shape[1] / k,
            "scaled up like dropout",
        ),
        "mask for inputs": lambda weight, inputs, k: linear(
            kept(torch.ones_like(inputs), inputs.abs().topk(k, dim=1).indices), weight
        ),
    },
}
