"""What the tests of prompts share: a model whose logits are not all alike, and the plain way to prompt it."""

import torch

from course_lib.models import tiny_model


def lively(architecture="llama", seed=0):
    """A tiny model with larger weights, so that what it reads shows in what it says."""
    model, generator = tiny_model(seed, architecture), torch.Generator().manual_seed(seed + 1)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


def ids_of(n, length, seed=3):
    return torch.randint(3, 97, (n, length), generator=torch.Generator().manual_seed(seed))


def joined(model, vectors, ids):
    """[p; E(x)] as a tensor: what the model reads, made without the library."""
    return torch.cat([vectors.expand(len(ids), -1, -1), model.get_input_embeddings()(ids)], dim=1)


@torch.no_grad()
def naive_logits(model, vectors, ids):
    """Of the tokens alone."""
    return model(inputs_embeds=joined(model, vectors, ids)).logits[:, len(vectors) :]


@torch.no_grad()
def naive_losses(model, vectors, ids):
    """−log p of each token after the first, one at a time."""
    logs = naive_logits(model, vectors, ids).double().log_softmax(-1)
    rows = [[-logs[n, t, ids[n, t + 1]] for t in range(ids.shape[1] - 1)] for n in range(len(ids))]
    return torch.tensor(rows, dtype=torch.float64)


@torch.no_grad()
def naive_greedy(model, vectors, ids, n_new):
    """Everything is read anew for each token."""
    for _ in range(n_new):
        following = naive_logits(model, vectors, ids)[:, -1].argmax(-1)
        ids = torch.cat([ids, following[:, None]], dim=1)
    return ids
