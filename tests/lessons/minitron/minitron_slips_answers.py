"""Answers to the exercises of lesson 05 that are off by one slip, each with the name that it is told.

A name must fit what the answer does: a slip that is told about another line is worse off than one that is told nothing.
Dimension key: L blocks, H query heads, N sequences, T tokens, F neurons, D width, V words.
"""

import torch
from torch.nn.functional import cosine_similarity, log_softmax, softmax


def by_exponentials(logits):
    return logits.exp() / logits.exp().sum(-1, keepdim=True)


def distil_on_paper(probabilities, log):
    """Loss and gradient by formulas, with probabilities and logarithms of one's own: log(logits / τ)."""

    def answer(student, teacher, temperature):
        p, q = probabilities(teacher / temperature), probabilities(student / temperature)
        logs = log(teacher / temperature) - log(student / temperature)
        n_tokens = student.shape[0] * student.shape[1]
        return temperature**2 * (p * logs).sum() / n_tokens, temperature * (q - p) / n_tokens

    return answer


def distil_by_backward(loss):
    def answer(student, teacher, temperature):
        student = student.clone().requires_grad_()
        value = loss(student / temperature, teacher / temperature) * temperature**2
        value.backward()
        return value.detach(), student.grad

    return answer


def softmax_of(logits):
    return softmax(logits, -1)


def keep_by(scores_of):
    """The right choice inside each group, by other scores: scores_of(scores) of the same shape."""

    def answer(scores, groups, n_groups, n_each):
        size = scores.shape[1] // n_groups
        inside = scores_of(scores).reshape(len(scores), n_groups, size).topk(n_each, dim=2).indices.sort(dim=2).values
        numbers = inside + size * torch.arange(n_groups)[:, None]
        return torch.stack([rows[stay].flatten() for rows, stay in zip(numbers, groups, strict=True)])

    return answer


def norm_by(weight, eps):
    """From D / d: (weight, epsilon) of the channels that stay."""
    return lambda w, e, k: (w[k] * weight(len(w) / len(k)), e * eps(len(w) / len(k)))


def cut_with(rows_of_q=True, columns_of_o=True, columns_of_down=True):
    def cut(q, k, v, o, gate, up, down, groups, neurons, n_key_value):
        together, size = len(q) // n_key_value, len(k) // n_key_value
        heads = torch.cat([torch.arange(g * together, (g + 1) * together) for g in groups.tolist()])
        keys = torch.cat([torch.arange(g * size, (g + 1) * size) for g in groups.tolist()])
        return {
            "q": q[heads] if rows_of_q else q,
            "k": k[keys],
            "v": v[keys],
            "o": o[:, heads] if columns_of_o else o,
            "gate": gate[neurons],
            "up": up[neurons],
            "down": down[:, neurons] if columns_of_down else down,
        }

    return cut


def cut_interleaved(in_q=True, in_o=True, group_by_group=True):
    """Query heads g, g + G, … for a group, in q, in o or in both."""

    def cut(q, k, v, o, gate, up, down, groups, neurons, n_key_value):
        size, stays = len(k) // n_key_value, groups.tolist()
        heads = [h for g in stays for h in range(g, len(q) // size, n_key_value)]
        rows = [h * size + i for h in (heads if group_by_group else sorted(heads)) for i in range(size)]
        answer = cut_with()(q, k, v, o, gate, up, down, groups, neurons, n_key_value)
        return answer | ({"q": q[rows]} if in_q else {}) | ({"o": o[:, rows]} if in_o else {})

    return cut


def heads_interleaved(ranked, numbered):
    """Consecutive heads, or heads at a distance of G, for a group: in the ranking and in the numbers."""

    def answer(scores, groups, n_groups, n_each):
        size, rows = scores.shape[1] // n_groups, []
        for score, stays in zip(scores.tolist(), groups.tolist(), strict=True):
            row = []
            for g in stays:
                of_group = score[g::n_groups] if ranked else score[g * size : (g + 1) * size]
                best = sorted(range(size), key=lambda i, of_group=of_group: -of_group[i])[:n_each]
                row += [g + n_groups * i if numbered else g * size + i for i in best]
            rows.append(row)
        return torch.tensor(rows)

    return answer


RIGHT = {
    "minitron.distil": {"formulas": distil_on_paper(softmax_of, lambda z: log_softmax(z, -1))},
    "minitron.heads": {"every group first": keep_by(lambda scores: scores)},
    "minitron.norm": {"formulas": norm_by(lambda ratio: ratio**0.5, lambda ratio: ratio)},
    "minitron.group": {"ranges": cut_with()},
}

WRONG = {
    "minitron.group": {
        "q as it was": (cut_with(rows_of_q=False), "query projection not pruned"),
        "o as it was": (cut_with(columns_of_o=False), "output projection not pruned"),
        "q and o as they were": (cut_with(rows_of_q=False, columns_of_o=False), "query heads not pruned"),
        "down as it was": (cut_with(columns_of_down=False), "down not pruned"),
        "o and down as they were": (
            cut_with(columns_of_o=False, columns_of_down=False),
            "down and output projection not pruned",
        ),
        "query heads interleaved": (cut_interleaved(), "heads by the remainder"),
        "query heads interleaved in q": (cut_interleaved(in_o=False), "q and o of different heads"),
        "query heads interleaved in o": (cut_interleaved(in_q=False), "q and o of different heads"),
        "interleaved in q, ascending": (
            cut_interleaved(in_o=False, group_by_group=False),
            "q and o of different heads",
        ),
    },
    "minitron.count": {
        "no queries": (
            lambda w, n, f, h, g, s, v: v * w + n * (w * h * s + 2 * w * g * s + 3 * w * f + 2 * w) + w,
            "queries or output forgotten",
        ),
        "a single norm": (
            lambda w, n, f, h, g, s, v: v * w + n * (2 * w * s * (h + g) + 3 * w * f + w),
            "one norm a block and none at the end",
        ),
        "blocks times all": (
            lambda w, n, f, h, g, s, v: n * (v * w + 2 * w * s * (h + g) + 3 * w * f + 3 * w),
            "everything times the blocks",
        ),
    },
    "minitron.aggregate": {
        "signed, other axes": (lambda x: x.mean(0).norm(dim=0), "signed mean, axes exchanged"),
        "signed mean of all": (lambda x: x.flatten(0, 1).mean(0), "signed mean over both"),
        "sums of sums": (lambda x: x.abs().sum((0, 1)), "mean over both"),
        "mean square": (lambda x: (x**2).flatten(0, 1).mean(0), "mean square of all"),
        "largest of all": (lambda x: x.abs().flatten(0, 1).max(0).values, "largest activation"),
        "largest mean": (lambda x: x.abs().mean(1).max(0).values, "largest window"),
    },
    "minitron.heads": {
        "scores of block 0": (keep_by(lambda s: s[:1].repeat(len(s), 1)), "one block's choice for all"),
        "mean over blocks": (
            keep_by(lambda s: s.mean(0, keepdim=True).repeat(len(s), 1)),
            "scores averaged over blocks",
        ),
        "lowest": (keep_by(lambda s: -s), "lowest kept"),
        "groups of block 0": (
            lambda s, g, n, m: keep_by(lambda s: s)(s, g[:1].repeat(len(g), 1), n, m),
            "first block's groups for all",
        ),
        "interleaved": (heads_interleaved(ranked=True, numbered=True), "groups by the remainder"),
        "interleaved scores": (heads_interleaved(ranked=True, numbered=False), "ranked and numbered differently"),
        "interleaved numbers": (heads_interleaved(ranked=False, numbered=True), "ranked and numbered differently"),
    },
    "minitron.influence": {
        "minus": (lambda s: -cosine_similarity(s[:-1], s[1:], dim=-1).mean(1), "minus the cosine"),
        "minus one": (lambda s: cosine_similarity(s[:-1], s[1:], dim=-1).mean(1) - 1, "the cosine itself"),
        "blocks": (lambda s: (1 - cosine_similarity(s[:-1], s[1:], dim=0)).mean(1), "over the blocks"),
        "sums over tokens": (
            lambda s: 1 - (s[:-1] * s[1:]).sum((1, 2)) / (s[:-1].norm(dim=2) * s[1:].norm(dim=2)).sum(1),
            "tokens weighted by their lengths",
        ),
        "sine": (
            lambda s: (1 - cosine_similarity(s[:-1], s[1:], dim=-1) ** 2).clamp(min=0).sqrt().mean(1),
            "a sine",
        ),
        "mean of axis 0": (lambda s: (1 - cosine_similarity(s[:-1], s[1:], dim=-1)).mean(0), "mean over the blocks"),
    },
    "minitron.taylor": {
        "squares second": (lambda w, g: ((w * g).sum(0).abs(), ((w * g) ** 2).sum(0)), "sum of squares"),
        "norm second": (lambda w, g: ((w * g).sum(0).abs(), (w * g).norm(dim=0)), "root of squares"),
        "norm first": (lambda w, g: ((w * g).norm(dim=0), (w * g).abs().sum(0)), "a norm for the first score"),
        "norms": (lambda w, g: ((w * g).norm(dim=0),) * 2, "norms for both scores"),
        "squares": (lambda w, g: (((w * g) ** 2).sum(0),) * 2, "both squared"),
        "plain sums": (lambda w, g: ((w * g).sum(0),) * 2, "sums with their sign"),
    },
    "minitron.norm": {
        "no root, eps as it was": (norm_by(lambda r: r, lambda r: 1.0), "neither factor"),
        "eps squared": (norm_by(lambda r: r**0.5, lambda r: r**2), "another power in the epsilon"),
        "first channels as they are": (lambda w, e, k: (w[: len(k)], e), "the first channels, no factor"),
        "as it was": (lambda w, e, k: (w, e), "nothing changed"),
    },
    "minitron.distil": {
        "exp for both": (distil_on_paper(by_exponentials, lambda z: by_exponentials(z).log()), "overflow"),
        "exp for both, by backward": (
            distil_by_backward(
                lambda s, t: (by_exponentials(t) * (by_exponentials(t).log() - by_exponentials(s).log())).sum(-1).mean()
            ),
            "overflow",
        ),
        "exp for the teacher": (
            distil_by_backward(
                lambda s, t: (by_exponentials(t) * (by_exponentials(t).log() - log_softmax(s, -1))).sum(-1).mean()
            ),
            "overflow",
        ),
        "logarithm of the softmax": (
            distil_on_paper(softmax_of, lambda z: softmax(z, -1).log()),
            "logarithm of zero",
        ),
        "1e-9 added": (
            distil_by_backward(
                lambda s, t: (
                    (softmax(t, -1) * ((softmax(t, -1) + 1e-9).log() - (softmax(s, -1) + 1e-9).log())).sum(-1).mean()
                )
            ),
            "a small number under the logarithm",
        ),
        "1e-9 added, on paper": (
            distil_on_paper(softmax_of, lambda z: (softmax(z, -1) + 1e-9).log()),
            "a small number under the logarithm",
        ),
        "kept above 1e-8": (
            distil_on_paper(softmax_of, lambda z: softmax(z, -1).clamp_min(1e-8).log()),
            "a small number under the logarithm",
        ),
        "teacher and student exchanged": (
            lambda s, t, tau: distil_on_paper(softmax_of, lambda z: log_softmax(z, -1))(t, s, tau),
            "student and teacher exchanged",
        ),
        "τ once": (
            lambda s, t, tau: tuple(
                x / tau for x in distil_on_paper(softmax_of, lambda z: log_softmax(z, -1))(s, t, tau)
            ),
            "τ once",
        ),
    },
}
