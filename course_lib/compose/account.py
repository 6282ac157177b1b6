"""What a built model holds, what it reads for a token, and what it multiplies: counted from tensors, never declared.

Numbers that nothing compresses are counted in 16 bits, as in the compressed models of lesson 10: weights no part
touches, keys and values of a cache that is not rounded. What a policy remembers of a slot counts as it is.

Dimension key: B sequences, H key-value heads, C slots there is room for, N tokens of a text, P vectors of a prompt.
"""

import struct
from dataclasses import dataclass

import torch
from jaxtyping import Int
from safetensors.torch import save
from torch import Tensor
from transformers.cache_utils import Cache

from course_lib.compose.build import Built
from course_lib.compose.kept import products_of
from course_lib.compose.part import Stored
from course_lib.contextual.selector import NeuronSelector, n_kept
from course_lib.kv.layers import EvictingCache
from course_lib.kv.slots import Slots
from course_lib.kv.vectors import FULL_PRECISION, VECTORS
from course_lib.models import Layer, architecture, blocks, head, heads, layers_of, weight_of

NUMBER_BYTES = 2  # of what nothing compresses
LENGTH = 1024  # tokens of a text at which the cache is counted


@dataclass(frozen=True, kw_only=True)
class Account:
    """Bytes and products.

    Args:
        stored: bytes of weights, scales, indices, predictors and prompt. by_part: the same, each part by itself.
        cache: bytes of the cache behind a text of `length` tokens.
        read: bytes a decoded token reads there, cache and all.
        multiply_adds: of a decoded token there.
    """

    stored: int
    by_part: dict[str, int]
    cache: int
    length: int
    read: int
    multiply_adds: int

    @property
    def held(self) -> int:
        """Weights and cache together."""
        return self.stored + self.cache


@torch.no_grad()
def account(built: Built, text: Int[Tensor, "N"]) -> Account:
    """Of a model behind a text, which it reads in one pass.

    Raises:
        ValueError: what is no text of at least two tokens.
    """
    if text.ndim != 1 or len(text) < 2:
        raise ValueError(f"got a text of shape {tuple(text.shape)}; expected token ids (N,), at least two.")
    with built.running() as cache:
        built.model(text[None].to(built.model.device), past_key_values=cache, use_cache=True, logits_to_keep=1)
        tensors, n_slots = cache_tensors(cache), _n_slots(cache)
    in_cache = _bytes(tensors)
    by_part: dict[str, int] = {}
    for name, tensor in built.stored.items():
        part = name.partition("/")[0]
        by_part[part] = by_part.get(part, 0) + tensor.nbytes
    weights_read, products = _token(built)
    return Account(
        stored=sum(by_part.values()),
        by_part=by_part,
        cache=in_cache,
        length=len(text),
        read=weights_read + in_cache,
        multiply_adds=products + 2 * n_slots * heads(built.model).group * heads(built.model).size,
    )


def cache_tensors(cache: Cache) -> Stored:
    """What a cache holds, layer by layer: slots in use, the ring of newest tokens, what a policy remembers."""
    found: Stored = {}
    for index, layer in enumerate(cache.layers):
        parts = _of_slots(layer.slots) if isinstance(cache, EvictingCache) else _keys_and_values(layer)
        found |= {f"{index}/{name}": tensor.contiguous() for name, tensor in parts.items()}
    return found


def written(tensors: Stored) -> int:
    """Bytes of the data in the safetensors file of these tensors: what lies behind its header."""
    content = save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()})
    return len(content) - 8 - struct.unpack("<Q", content[:8])[0]


def _of_slots(slots: Slots) -> Stored:
    """Vectors in full precision as float16, all else as it is."""
    plain = slots.vectors is FULL_PRECISION
    parts = {name: tensor[:, :, : slots.n] for name, tensor in slots.storage.items()}
    parts = {name: part.half() if plain and name in VECTORS else part for name, part in parts.items()}
    ring = {f"ring.{name}": part.half() for name, part in slots.ring.vectors.items()} if slots.ring else {}
    return parts | ring | {f"head.{name}": part for name, part in slots.per_head.items()}


def _keys_and_values(layer: object) -> Stored:
    return {"keys": layer.keys.half(), "values": layer.values.half()}


def _n_slots(cache: Cache) -> int:
    """Tokens held, over all layers and key-value heads of one sequence."""
    if isinstance(cache, EvictingCache):
        return sum(int(slots.occupied.sum()) for slots in cache.slots)
    return sum(layer.keys.shape[1] * layer.keys.shape[2] for layer in cache.layers)


def _token(built: Built) -> tuple[int, int]:
    """Bytes read of weights and selectors, and their products, for one token."""
    model, selector, kept = built.model, built.made.found.get("neurons"), _by_owner(built.stored)
    # Norms, biases and the head whole, of the embedding a row; where the two are one matrix it is the head's.
    tables, of_layer = kept["tables"], kept["layers"]
    n_bytes = sum(kept["others"].values()) + tables.get("head", tables["words"])
    n_bytes += -(-tables["words"] // len(model.get_input_embeddings().weight))
    products = head(model).weight.numel() + (products_of(selector, model) if selector is not None else 0)
    for layer in layers_of(model):
        used, of = _neurons_used(built, layer.block, layer.part)
        n_bytes += -(-of_layer[layer.name] * used // of)
        products += _n_multiplied(built.stored, layer) * used // of
    return n_bytes, products


def _n_multiplied(stored: Stored, layer: Layer) -> int:
    """Numbers of a matrix that are stored, and so multiplied: with a bitmap none that is zero, else all of them."""
    starts, values = (stored.get(f"weights/{layer.name}/{part}") for part in ("row_start", "values"))
    if starts is not None:
        return int(starts[-1])
    return weight_of(layer.module).numel() if values is None else values.numel()


def _by_owner(stored: Stored) -> dict[str, dict[str, int]]:
    """Bytes of each layer, of each table, and of what else a token reads."""
    homes = {"dense": "layers", "weights": "layers", "table": "tables", "embedding": "tables"}
    homes |= {"other": "others", "neurons": "others"}
    found: dict[str, dict[str, int]] = {"layers": {}, "tables": {}, "others": {}}
    for name, tensor in stored.items():
        part, _, rest = name.partition("/")
        if part in homes:
            home, owner = found[homes[part]], rest.partition("/")[0]
            home[owner] = home.get(owner, 0) + tensor.nbytes
    return found


def _neurons_used(built: Built, block: object, part: str) -> tuple[int, int]:
    """How many of a matrix's neurons a token computes, of how many; all of them outside of the MLP."""
    selector, names = built.made.found.get("neurons"), architecture(block).mlp
    if not isinstance(selector, NeuronSelector) or part not in names or names.index(part) < selector.n_read_whole:
        return 1, 1
    n_neurons = weight_of(block.get_submodule(names[-1])).shape[1]
    index = next(i for i, each in enumerate(blocks(built.model)) if each is block)
    return n_kept(selector.density_at(index), n_neurons), n_neurons


def _bytes(tensors: Stored) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())
