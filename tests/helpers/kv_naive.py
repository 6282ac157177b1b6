"""What the naive loops of this folder share: the vectors of a first layer, and passes over a text."""

import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from course_lib.models import blocks, tiny_model


def sharp_model():
    """A tiny model whose tokens look at few others: else all scores would follow from how long a token was there."""
    model = tiny_model()
    with torch.no_grad():
        for block in blocks(model):
            block.self_attn.q_proj.weight *= 60
    return model


class FirstLayer:
    """Queries (T, 6, 8), keys and values (2, T, 8) of layer 0 in float64.

    No eviction changes them: layer 0 reads embeddings.
    """

    @torch.no_grad()
    def __init__(self, model, ids):
        attention, norm = blocks(model)[0].self_attn, blocks(model)[0].input_layernorm
        hidden = norm(model.model.embed_tokens(ids[None]))
        cos, sin = model.model.rotary_emb(hidden, torch.arange(len(ids))[None])
        query, key, value = (
            layer(hidden).unflatten(2, (-1, 8)).transpose(1, 2)
            for layer in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        self.query, self.key, self.value = query[0].transpose(0, 1).double(), key[0].double(), value[0].double()

    def rows(self, head, i, keys):
        """The softmax rows, (3, n), of the three query heads of token i that share this head, over n keys."""
        query = self.query[i, 3 * head : 3 * head + 3]
        return torch.softmax(query @ torch.as_tensor(keys).T / 8**0.5, dim=1)


def passes_of(n_tokens, sizes):
    """[range(0, 3), range(3, 4), …]: the passes of these sizes, the last size again and again."""
    found, start = [], 0
    sizes = list(sizes)
    while start < n_tokens:
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        found.append(range(start, min(start + size, n_tokens)))
        start += size
    return found


@torch.no_grad()
def run(model, cache, ids, tokens, mask=None):
    """One pass; the logits."""
    mask = torch.ones_like(ids) if mask is None else mask
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, tokens.start : tokens.stop]
    asked = {"attention_mask": mask[:, : tokens.stop], "position_ids": positions, "past_key_values": cache}
    return model(ids[:, tokens.start : tokens.stop], use_cache=True, **asked).logits


def kept_by(slots, row=0):
    """The positions that each head holds, in order."""
    return [sorted(head[taken].tolist()) for head, taken in zip(slots.position[row], slots.occupied[row], strict=True)]
