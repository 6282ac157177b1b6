"""A tiny model that is sure of what it says, and texts that it wrote: the more is taken from it, the more it loses."""

import torch

from course_lib.compose.challenge.judge import Judge
from course_lib.compose.challenge.texts import FIRST, SECOND, Texts
from course_lib.models import layers_of, tiny_model

BEHIND = 64  # tokens of a text behind which bytes are counted


def sharp_model(seed=0):
    """Random weights made larger: blocks matter beside the embedding, and some words are likelier than others."""
    model = tiny_model(seed)
    with torch.no_grad():
        model.model.norm.weight.mul_(15)
        for layer in layers_of(model):
            layer.module.weight.mul_(8)
    return model


@torch.no_grad()
def written_by(model, n, length, seed):
    """Windows (n, length), sampled token by token from a model's own distribution."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(97, (n, 1), generator=generator)
    for _ in range(length - 1):
        chances = model(ids).logits[:, -1].softmax(-1)
        ids = torch.cat([ids, torch.multinomial(chances, 1, generator=generator)], 1)
    return ids


def random_ids(n, length, seed):
    return torch.randint(97, (n, length), generator=torch.Generator().manual_seed(seed))


def texts_of(model, n=8, length=BEHIND, seed=0):
    """Two domains, both in the model's own words."""
    windows = {FIRST: written_by(model, n, length, seed + 1), SECOND: written_by(model, n, length, seed + 2)}
    return Texts(windows=windows, behind=random_ids(1, BEHIND, seed)[0])


def tiny_judge(model, **settings):
    """Calibrates on random text, in place of a corpus and a tokenizer."""
    return Judge(model=model, tokenizer=None, texts=settings.pop("texts", None) or texts_of(model), **settings)


def calibration(settings, _):
    """In place of `Calibration.text`: as many windows as are asked for, short ones."""
    return random_ids(min(settings.windows, 4), 40, settings.seed)
