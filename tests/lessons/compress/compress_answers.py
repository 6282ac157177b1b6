"""Answers to the first four exercises of lesson 10, as people write them.

Dimension key: B texts, T tokens, P vectors of the prompt, D width, V tokens of the vocabulary.
"""

import re

import numpy
import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import cross_entropy, pad

from course_lib.prompts.small_llama import as_model, weights_of

# --- before: prompt (P, D), text (B, T, D), real (B, T) ---


def joined(prompt, text, first=True):
    rows = prompt.unsqueeze(0).repeat(text.shape[0], 1, 1)
    return torch.cat([rows, text] if first else [text, rows], 1)


def front(
    vectors=joined,
    seen=lambda p, r: pad(r, (len(p), 0), value=True),
    position=lambda p, r, seen: seen.long().cumsum(-1) - 1,
):
    """Put together from three parts; the positions may read the mask."""

    def answer(prompt, text, real):
        mask = seen(prompt, real)
        return vectors(prompt, text), mask, position(prompt, real, mask)

    return answer


def front_in_loops(prompt, text, real):
    vectors, seen, positions = [], [], []
    for x, r in zip(text, real, strict=True):
        vectors.append([*prompt, *x])
        seen.append([True] * len(prompt) + r.tolist())
        count, row = 0, []
        for s in seen[-1]:
            row.append(count if s else 1)
            count += s
        positions.append(row)
    return torch.stack([torch.stack(row) for row in vectors]), torch.tensor(seen), positions


def front_by_writing(prompt, text, real):
    n = prompt.shape[0]
    out = torch.empty(text.shape[0], n + text.shape[1], text.shape[2]).to(text)
    out[:, :n], out[:, n:] = prompt, text
    mask = torch.zeros(out.shape[:2])
    mask[:, :n], mask[:, n:] = 1, real.to(mask)
    position = mask.cumsum(1) - 1
    position[mask == 0] = 1
    return out, mask, position


def front_with_padding_at_the_end(prompt, text, real):
    """Every text brought together on the left, as if it had been filled up on the right."""
    order = (~real).long().argsort(dim=1, stable=True)
    text = text.gather(1, order[..., None].expand(text.shape))
    return front()(prompt, text, real.gather(1, order))


# --- labels: ids (B, T), real (B, T), n ---


def next_tokens(ids, real, n, ignore=-100, front=None, cut=1, end=None):
    y = ids.clone()
    y[~real] = ignore
    first = torch.full((len(ids), n), ignore if front is None else front)
    last = torch.full((len(ids), cut), ignore if end is None else end)
    return torch.cat([first, y, last], -1)[:, cut:]


def labels_in_numpy(ids, real, n):
    y = numpy.full((len(ids), n + ids.shape[1] + 1), -100)
    y[:, n:-1] = numpy.where(real.numpy(), ids.numpy(), -100)
    return y[:, 1:]


def labels_by_index(ids, real, n):
    y = torch.full((ids.shape[0], ids.shape[1] + n), -100)
    rows, columns = real.nonzero(as_tuple=True)
    places = columns + n - 1
    there = places >= 0
    y[rows[there], places[there]] = ids[rows[there], columns[there]]
    return y


# --- frozen: weights by name, prompt (P, D), ids (B, T), rate ---


def text_losses(model, prompt, ids, start=-1, end=-1, targets=None, head=None):
    """The losses (B, T) of the tokens, with the logits from P + start on."""
    first = prompt.unsqueeze(0).repeat(len(ids), 1, 1)
    vectors = torch.cat([first, model.get_input_embeddings()(ids)], 1)
    hidden = model.model(inputs_embeds=vectors).last_hidden_state
    logits = hidden @ (model.lm_head.weight if head is None else head).T
    targets = ids if targets is None else targets
    return cross_entropy(logits[:, len(prompt) + start : end].transpose(1, 2), targets, reduction="none")


def right_loss(model, prompt, ids):
    return text_losses(model, prompt, ids).mean()


def trained(free="", learns=True, loss=right_loss, optimiser=torch.optim.SGD, update=lambda g: g, **settings):
    """By an optimiser over the prompt, where it learns, and over all parameters whose name fits `free`."""

    def answer(weights, prompt, ids, rate):
        model = as_model(weights)
        chosen = [p for name, p in model.named_parameters() if free and re.search(free, name)]
        vectors = nn.Parameter(prompt.clone())
        loss(model, vectors, ids).backward()
        vectors.grad = update(vectors.grad)
        optimiser([vectors] * learns + chosen, lr=rate, **settings).step()
        return vectors.detach(), weights_of(model)

    return answer


BLOCKS, TABLE = "layers|norm", "embed"


def untied(weights, prompt, ids, rate):
    """The table learns as an embedding; the head is a copy that stays."""
    model, vectors = as_model(weights), nn.Parameter(prompt.clone())
    text_losses(model, vectors, ids, head=weights["model.embed_tokens.weight"]).mean().backward()
    torch.optim.SGD([vectors, model.get_input_embeddings().weight], lr=rate).step()
    return vectors.detach(), weights_of(model)


def table_grown_with_its_head(weights, prompt, ids, rate):
    """The prompt as new rows of the table, which the head can then predict."""
    model, vectors = as_model(weights).requires_grad_(False), nn.Parameter(prompt.clone())
    text_losses(model, vectors, ids, head=torch.cat([model.lm_head.weight, vectors])).mean().backward()
    return vectors.detach() - rate * vectors.grad, weights


def detached(weights, prompt, ids, rate):
    """The prompt is copied after requires_grad_, and the copy is what the model reads."""
    p = prompt.clone().requires_grad_()
    (right_loss(as_model(weights), p.detach(), ids) + 0 * p.sum()).backward()
    return prompt - rate * p.grad, weights


def by_the_models_own_loss(weights, prompt, ids, rate):
    """With labels: the model shifts them by itself, and leaves out −100."""
    model = as_model(weights)
    for parameter in model.parameters():
        parameter.requires_grad = False
    p = prompt.clone()
    p.requires_grad = True
    vectors = torch.cat([p.expand(len(ids), *p.shape), model.model.embed_tokens(ids)], dim=1)
    labels = torch.cat([torch.full((len(ids), len(p)), -100), ids], dim=1)
    model(inputs_embeds=vectors, labels=labels).loss.backward()
    with torch.no_grad():
        p -= rate * p.grad
    return p, model.state_dict()


def by_a_grown_table(weights, prompt, ids, rate):
    """As the public code does it: the vectors are rows of a table of their own, looked up by ids after the others."""
    model = as_model(weights).requires_grad_(False)
    table = nn.Embedding.from_pretrained(torch.cat([model.lm_head.weight, prompt]), freeze=False)
    new = torch.arange(len(model.lm_head.weight), len(table.weight)).expand(len(ids), -1)
    logits = model(inputs_embeds=table(torch.cat([new, ids], dim=1))).logits
    cross_entropy(logits[:, len(prompt) - 1 : -1].flatten(0, 1), ids.flatten()).backward()
    return prompt - rate * table.weight.grad[-len(prompt) :], weights_of(model)


# --- initial: table (V, D), lots (V,), n, step ---


def started(ids=lambda w, lots, n: lots.topk(n)[1], rows=lambda w, ids: w[ids], after=lambda x, s: x - s):
    return lambda w, lots, n, step: (after(rows(w, ids(w, lots, n)), step), w)


def started_in_numpy(w, lots, n, step):
    ids = numpy.argsort(-lots.numpy())[:n]
    return w.numpy()[ids] - step.numpy(), w


def started_in_place(w, lots, n, step):
    """As the public code does it, on a slice of the table."""
    prompt = w[:n]
    prompt -= step
    return prompt, w


def rows_in_place(w, lots, n, step):
    rows = [w[i] for i in lots.topk(n).indices]
    for row, s in zip(rows, step, strict=True):
        row -= s
    return torch.stack(rows), w


def own_lots(w, lots, n, step):
    return w[torch.randperm(len(w), generator=torch.Generator().manual_seed(5))[:n]] - step, w


def drawn_with_repetition(w, lots, n, step):
    return w[torch.randint(0, len(w), (n,), generator=torch.Generator().manual_seed(len(w)))] - step, w


def embedding_module(w, lots, n, step):
    table = nn.Embedding.from_pretrained(w)
    prompt = nn.Parameter(table(lots.argsort()[-n:].flip(0)).clone())
    prompt.data.sub_(step)
    return prompt, table.weight


RIGHT = {
    "compress.before": {
        "loops": front_in_loops,
        "written into zeros, floats": front_by_writing,
        "repeat and pad": front(),
        "masked_fill 1": front(position=lambda p, r, s: (s.long().cumsum(1) - 1).masked_fill(~s, 1)),
        "clamped": front(position=lambda p, r, s: (s.long().cumsum(1) - 1).clamp(0)),
        "offset": front(
            position=lambda p, r, s: torch.cat(
                [torch.arange(len(p)).repeat(len(r), 1), len(p) + (r.long().cumsum(1) - 1).clamp(0)], 1
            )
        ),
        "places less the padding before": front(
            position=lambda p, r, s: torch.arange(s.shape[1]) - (~s).long().cumsum(1)
        ),
    },
    "compress.labels": {
        "numpy": labels_in_numpy,
        "by index": labels_by_index,
        "clone and cat": next_tokens,
        "pad": lambda ids, real, n: pad(ids.masked_fill(~real, -100), (n, 1), value=-100)[:, 1:],
        "negative pad": lambda ids, real, n: pad(ids.where(real, torch.tensor(-100)), (n - 1, 1), value=-100),
        "as floats": lambda ids, real, n: next_tokens(ids, real, n).float(),
    },
    "compress.frozen": {
        "SGD": trained(),
        "labels": by_the_models_own_loss,
        "rows of a larger table": by_a_grown_table,
        "mean of token losses": trained(
            loss=lambda m, p, ids: sum(row.mean() for row in text_losses(m, p, ids)) / len(ids)
        ),
    },
    "compress.initial": {
        "numpy": started_in_numpy,
        "topk": started(),
        "sort": started(lambda w, lots, n: lots.sort(descending=True)[1][:n]),
        "module": embedding_module,
        "index_select": started(rows=lambda w, ids: w.index_select(0, ids), after=lambda x, s: x.sub_(s)),
        "one hot": started(rows=lambda w, ids: functional.one_hot(ids, len(w)).to(w) @ w),
    },
}

WRONG = {
    "compress.before": {
        "behind": (
            front(lambda p, x: joined(p, x, False), lambda p, r: pad(r, (0, len(p)), value=True)),
            "after the text",
        ),
        "vectors behind": (front(lambda p, x: joined(p, x, False)), "after the text"),
        "positions of the text": (
            front(
                position=lambda p, r, s: torch.cat([torch.arange(len(p)).repeat(len(r), 1), r.long().cumsum(1) - 1], 1)
            ),
            "positions not shifted",
        ),
        "no positions for the prompt": (
            front(position=lambda p, r, s: (r.long().cumsum(1) - 1).clamp(0)),
            "positions not shifted",
        ),
        "below zero": (front(position=lambda p, r, s: s.long().cumsum(1) - 1 - len(p)), "positions not shifted"),
        "arange": (front(position=lambda p, r, s: torch.arange(s.shape[1]).repeat(len(s), 1)), "padding has positions"),
        "arange, one row": front(position=lambda p, r, s: torch.arange(s.shape[1])),
        "mask of the text": (front(seen=lambda p, r: r), "prompt masked"),
        "prompt masked": (front(seen=lambda p, r: pad(r, (len(p), 0))), "prompt masked"),
        "all ones": (
            front(seen=lambda p, r: torch.ones(len(r), len(p) + r.shape[1]), position=lambda p, r, s: s.cumsum(1) - 1),
            "padding attended to",
        ),
        "from one": (front(position=lambda p, r, s: s.long().cumsum(1)), "counted from one"),
        "mask behind": (front(seen=lambda p, r: pad(r, (0, len(p)), value=True)), "mask on the other side"),
        "backwards": (front(lambda p, x: joined(p.flipud(), x)), "in reverse order"),
        "added to every token": lambda p, x, r: (x + p.mean(0), r, r.long().cumsum(1) - 1),
        "added": (
            lambda p, x, r: (
                x + pad(p, (0, 0, 0, max(x.shape[1] - len(p), 0)))[: x.shape[1]],
                r,
                (r.long().cumsum(1) - 1).clamp(0),
            ),
            "in place of the text",
        ),
        "texts moved to the left": front_with_padding_at_the_end,
        "flattened": front(lambda p, x: joined(p.T.reshape(p.shape), x)),
        "only the mean": front(lambda p, x: joined(p.mean(0, keepdim=True).repeat(len(p), 1), x)),
        "as another text": lambda p, x, r: (torch.cat([p[None], x]), r, r),
        "mask twice": lambda p, x, r: (joined(p, x), pad(r, (len(p), 0), value=True), pad(r, (len(p), 0), value=True)),
        "vectors and mask": (lambda *g: front()(*g)[:2], "not three values"),
    },
    "compress.labels": {
        "own tokens": (lambda ids, real, n: next_tokens(ids, real, n, cut=0), "shift forgotten"),
        "zeros in the prompt": (lambda ids, real, n: next_tokens(ids, real, n, front=0), "prompt scored"),
        "first token again and again": (
            lambda ids, real, n: torch.cat(
                [ids[:, :1].repeat(1, n), ids.where(real, -100), torch.full_like(ids[:, :1], -100)], 1
            )[:, 1:],
            "prompt scored",
        ),
        "text from its second token": (
            lambda ids, real, n: torch.cat(
                [torch.full((len(ids), n), -100), ids.where(real, -100)[:, 1:], torch.full((len(ids), 1), -100)], 1
            ),
            "first token not predicted",
        ),
        "two": (lambda ids, real, n: next_tokens(ids, real, n, cut=2), "shifted twice"),
        "padding too": (lambda ids, real, n: next_tokens(ids, real | True, n), "padding predicted"),
        "mask of the reader": (
            lambda ids, real, n: next_tokens(ids, real | True, n).where(pad(real, (n, 0), value=True), -100),
            None,
        ),
        "pad id": (lambda ids, real, n: next_tokens(ids, ids != 0, n), "padding recognised by its token"),
        "ignore 0": (lambda ids, real, n: next_tokens(ids, real, n, ignore=0), "another number than −100"),
        "ignore -1": (lambda ids, real, n: next_tokens(ids, real, n, ignore=-1), "another number than −100"),
        "roll": (
            lambda ids, real, n: torch.roll(next_tokens(ids, real, n, cut=0), -1, dims=1),
            "wrapped around",
        ),
        "roll the wrong way": (
            lambda ids, real, n: torch.roll(next_tokens(ids, real, n, cut=0), 1, dims=1),
            "shifted the other way",
        ),
        "text alone": (lambda ids, real, n: next_tokens(ids, real, 0), "fewer labels than positions"),
        "one less": (lambda ids, real, n: next_tokens(ids, real, n)[:, :-1], "fewer labels than positions"),
        "behind the text": lambda ids, real, n: torch.cat([ids.where(real, -100), torch.full((len(ids), n), -100)], 1),
        "zero at the end": lambda ids, real, n: next_tokens(ids, real, n, end=0),
        "end scored with itself": lambda ids, real, n: torch.cat(
            [torch.full((len(ids), n), -100), ids.where(real, -100), ids[:, -1:]], 1
        )[:, 1:],
        "mask": (lambda ids, real, n: next_tokens(ids, real, n) >= 0, "a mask instead of labels"),
        "times mask": lambda ids, real, n: next_tokens(ids * real, real | True, n),
        "last token dropped": (
            lambda ids, real, n: next_tokens(ids, real & (real.cumsum(1) < real.sum(1, keepdim=True)), n),
            "last token not predicted",
        ),
        "P - 1": (
            lambda ids, real, n: torch.cat(
                [torch.full((len(ids), n - 1), -100), ids.where(real, -100), torch.full((len(ids), 1), -100)], 1
            ),
            "",  # it raises on its only wrong case
        ),
        "the longest alone": lambda ids, real, n: next_tokens(ids, real & (real.sum(1, keepdim=True) > 2), n),
    },
    "compress.frozen": {
        "all": (trained(".*"), "everything learns"),
        "prompt and blocks": (trained(BLOCKS), "everything learns"),
        "prompt and table": (trained(TABLE), "the tied table moves too"),
        "table learns, head a copy": (untied, "the tied table moves too"),
        "rows that the head can predict": (table_grown_with_its_head, "prompt in the LM head"),
        "model learns": (trained(".*", learns=False), "prompt frozen"),
        "table alone": (trained(TABLE, learns=False), "prompt frozen"),
        "blocks alone": (trained(BLOCKS, learns=False), "prompt frozen"),
        "nothing": (lambda w, p, i, r: (p, w), "prompt frozen"),
        "a detached copy": (detached, "prompt frozen"),
        "uphill": (trained(update=lambda g: -g), "uphill"),
        "maximise": (trained(maximize=True), "uphill"),
        "weight decay": trained(weight_decay=0.05),
        "Adam": (trained(optimiser=torch.optim.Adam), None),
        "clipped to one": (trained(update=lambda g: g / max(1, g.norm())), "gradient of another length"),
        "summed": (trained(loss=lambda m, p, i: text_losses(m, p, i).sum()), "sum over the tokens"),
        "first token free": (
            trained(loss=lambda m, p, i: text_losses(m, p, i)[:, 1:].sum() / max(i[:, 1:].numel(), 1)),
            "first token not scored",
        ),
        "own tokens": (
            trained(loss=lambda m, p, i: text_losses(m, p, i, start=0, end=None).mean()),
            "each position predicts itself",
        ),
        "mean over all positions": (
            trained(loss=lambda m, p, i: text_losses(m, p, i).sum() / (len(i) * (len(p) + i.shape[1] - 1))),
            "mean over other positions",
        ),
        "rate 1": (lambda w, p, i, r: trained()(w, p, i, 1.0), "without the rate"),
        "last position alone": trained(loss=lambda m, p, i: text_losses(m, p, i)[:, -1].mean()),
        "first text alone": (trained(loss=lambda m, p, i: text_losses(m, p, i[:1]).mean()), "one text of the batch"),
        "only the last vector": (
            trained(update=lambda g: torch.cat([0 * g[:-1], g[-1:]])),
            "one vector of the prompt",
        ),
        "gradient": (lambda w, p, i, r: (p - trained()(w, p, i, 1.0)[0], w), "the gradient itself"),
        "prompt alone": (lambda *g: trained()(*g)[0], "not two values"),
    },
    "compress.initial": {
        "public code": (started(lambda w, lots, n: torch.arange(n)), "the first ids"),
        "public code, in place": (started_in_place, "the table changes too"),
        "last": (started(lambda w, lots, n: torch.arange(len(w))[-n:]), "the last ids"),
        "views": (rows_in_place, "the table changes too"),
        "normal": (
            lambda w, lots, n, s: (torch.randn(n, w.shape[1], generator=torch.Generator().manual_seed(3)) - s, w),
            "no rows of the table",
        ),
        "normal of the table's size": (
            lambda w, lots, n, s: (
                w.std() * torch.randn(n, w.shape[1], generator=torch.Generator().manual_seed(4)) - s,
                w,
            ),
            "no rows of the table",
        ),
        "uniform": (
            lambda w, lots, n, s: (torch.rand(n, w.shape[1], generator=torch.Generator().manual_seed(4)) - 0.5 - s, w),
            "no rows of the table",
        ),
        "zeros": (lambda w, lots, n, s: (-s, w), "no rows of the table"),
        "own draw": (own_lots, "rows of other tokens"),
        "randint": (drawn_with_repetition, "with repetition"),
        "lots as places": (started(lambda w, lots, n: (lots * len(w)).long()[:n]), "with repetition"),
        "lots of the first n": (started(lambda w, lots, n: lots[:n].topk(n)[1]), None),
        "smallest": (started(lambda w, lots, n: lots.topk(n, largest=False)[1]), "smallest keys"),
        "from small to large": (started(lambda w, lots, n: lots.argsort()[-n:]), "rows in another order"),
        "in the table's order": (started(lambda w, lots, n: lots.topk(n)[1].sort()[0]), "rows in another order"),
        "by mask": (
            lambda w, lots, n, s: (w[lots >= lots.topk(n)[0][-1]] - s, w),
            "rows in another order",
        ),
        "one row for all": (started(lambda w, lots, n: lots.argmax().repeat(n)), "with repetition"),
        "mean": (started(rows=lambda w, ids: w.mean(0).repeat(len(ids), 1)), "mean of the vocabulary"),
        "scaled by lots": (
            lambda w, lots, n, s: (w[lots.topk(n)[1]] * lots.topk(n)[0][:, None] - s, w),
            "rows rescaled",
        ),
        "half as long": (started(rows=lambda w, ids: w[ids] / 2), "no rows of the table"),
        "no step": (started(after=lambda x, s: x), "step forgotten"),
        "plus": (started(after=lambda x, s: x + s), "step added"),
        "ids": (lambda w, lots, n, s: (lots.topk(n)[1], w), "tokens instead of vectors"),
        "table first": (lambda *g: started()(*g)[::-1], "one value, or in the wrong order"),
        "columns": lambda w, lots, n, s: (w.T[: w.shape[1]][:, :n].T.flip(1) - s, w),
    },
}
