"""What lesson 07 runs on the model in its notebook and deck, and the course's own functions for its exercises.

The notebook calls the functions at the end until yours are right.

Dimension key: B sequences, H key-value heads, N slots, Q queries, E evicted tokens, L layers, C blocks of predictions,
D entries of a row; "heads" stands for all query heads.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.kv.analysis.streaming import StreamingPerplexity, stream_through
from course_lib.kv.cache import evicting
from course_lib.kv.merging import cosines
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.kv.policy import EvictionPolicy, Observed
from course_lib.kv.slots import Slots
from course_lib.kv.vectors import FULL_PRECISION, Columns, VectorFormat
from course_lib.measure.paired import block_means, mean_and_error

STORY = (
    "The lighthouse keeper had not spoken to anyone for eleven days when the small boat came round the rocks. An old "
    "woman sat in it with a goat, a birdcage and a wooden trunk that was nearly as large as the boat itself. She waved "
    "as if he had expected her, threw him the rope, and asked whether the kettle was on. He looked at the trunk, then "
    "at the sky, which had begun to turn dark in the west, and helped her up the steps. In the kitchen she sat down on "
    "the only chair, took a letter out of her coat and said:"
)
BUDGET, SINKS = 64, 4  # of the open task
LEAST, MOST = 4 * BUDGET, 8 * BUDGET  # tokens of a text
BLOCK = 32  # tokens read in one pass; their predictions are one sample, because neighbours are not independent


@torch.no_grad()
def compare_policies(
    model: PreTrainedModel,
    ids: Int[Tensor, "T"],
    policies: Mapping[str, EvictionPolicy],
    chunk: int = 16,
    vectors: VectorFormat = FULL_PRECISION,
) -> dict[str, StreamingPerplexity]:
    """Stream one text through a cache per policy; predictions count from where the smallest cache is full."""
    skip = min((policy.budget for policy in policies.values() if isinstance(policy.budget, int)), default=0)
    streams = {}
    for name, policy in policies.items():
        with evicting(model, policy, vectors=vectors) as cache:
            streams[name] = stream_through(model, ids, cache, chunk, skip)
    return streams


@torch.no_grad()
def slots_by_layer(model: PreTrainedModel, ids: Int[Tensor, "T"], policy: EvictionPolicy) -> list[int]:
    """Return the slots per head in each layer after a prompt, as a mean over heads."""
    with evicting(model, policy) as cache:
        model.base_model(ids[None].to(model.device), past_key_values=cache, use_cache=True)
        return [round(slots.occupied.sum(dim=2).float().mean().item()) for slots in cache.slots]


@torch.no_grad()
def nearest_kept(model: PreTrainedModel, ids: Int[Tensor, "T"], budget: int) -> dict[str, Float[Tensor, "L E"]]:
    """Evict from a prompt as H2O does; return the cosine of each evicted key and value with its nearest kept one."""
    similarities: dict[str, list[Tensor]] = {"keys": [], "values": []}
    policy = H2O(budget=budget, recent=budget // 2)
    with evicting(model, replace(policy, budget=1.0)) as cache:
        model.base_model(ids[None].to(model.device), past_key_values=cache, use_cache=True)
        for index, full in enumerate(cache.slots):
            kept = policy.shrink(deepcopy(full), index)
            is_kept = (full.position[..., None] == kept.position[:, :, None, :]).any(dim=3)[0]  # (H, N)
            for name, pair in {"keys": (full.keys, kept.keys), "values": (full.values, kept.values)}.items():
                similarities[name].append(cosines(*pair)[0].amax(dim=2)[~is_kept].cpu())
    return {name: torch.stack(layers) for name, layers in similarities.items()}


@dataclass(frozen=True)
class Contest:
    """The log-perplexities of a window with sinks and of H2O on one text, by block of predictions."""

    n_tokens: int
    window: Float[Tensor, "C"]
    h2o: Float[Tensor, "C"]

    @property
    def lower(self) -> tuple[float, float]:
        """How much lower the log-perplexity of H2O is, and the standard error of this over blocks."""
        return mean_and_error(self.window - self.h2o)


def contest(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: object) -> Contest:
    """Stream a text of LEAST tokens or more through both caches; at most MOST tokens are read.

    Raises:
        ValueError: for anything but a text, and for a text that is too short.
    """
    if not isinstance(text, str):
        raise ValueError(f"got a {type(text).__name__}; expected a text.")
    ids = tokenizer(text, return_tensors="pt", verbose=False).input_ids[0]
    if len(ids) < LEAST:
        raise ValueError(
            f"got a text of {len(ids)} tokens; expected {LEAST} or more, so that most of it is evicted from {BUDGET} "
            "slots."
        )
    ids = ids[:MOST]
    policies = {"window": StreamingLLM(BUDGET, sinks=SINKS), "h2o": H2O(BUDGET, recent=BUDGET // 2)}
    streams = compare_policies(model, ids, policies, chunk=BLOCK)
    losses = {name: block_means(stream.losses[BUDGET:], BLOCK) for name, stream in streams.items()}
    return Contest(len(ids), losses["window"], losses["h2o"])


def window_keep(position: Int[Tensor, "B H N"], budget: int) -> Bool[Tensor, "B H N"]:
    """Return what the library's window keeps."""
    return _kept(Window(budget), position)


def group_mass(
    weights: Float[Tensor, "B heads Q N"], valid: Bool[Tensor, "B Q"], n_key_value: int
) -> Float[Tensor, "B H N"]:
    """Return what the library's H2O adds to its scores after a chunk of queries; padding has no weights there."""
    without_padding = (weights * valid[:, None, :, None]).unflatten(1, (n_key_value, -1))
    slots = _slots(torch.arange(weights.shape[3]).expand(len(weights), n_key_value, -1))
    position = torch.zeros(valid.shape, dtype=torch.int64)
    return H2O().remember(slots, Observed(without_padding, position, position[:, 0]))["mass"]


def h2o_step(
    score: Float[Tensor, "H N"], new: Float[Tensor, "H N"], position: Int[Tensor, "H N"], budget: int, recent: int
) -> tuple[Bool[Tensor, "H N"], Float[Tensor, "H N"]]:
    """Return what the library's H2O keeps when its scores are the sum of both."""
    return _kept(H2O(budget, recent=recent), position[None], mass=(score + new)[None])[0], score + new


def quantize_row(row: Float[Tensor, "D"], n_bits: int, group_size: int) -> Float[Tensor, "D"]:
    """Return the nearest of the levels that divide the range of each group evenly."""
    groups = row.unflatten(0, (-1, group_size))
    ends = torch.stack(groups.aminmax(dim=1), dim=1)  # (groups, 2)
    levels = torch.nn.functional.interpolate(ends[:, None], 2**n_bits, mode="linear", align_corners=True)[:, 0]
    between = (levels[:, 1:] + levels[:, :-1]) / 2
    return levels.gather(1, torch.searchsorted(between, groups.contiguous())).flatten()


def _slots(position: Int[Tensor, "B H N"], **memory: Tensor) -> Slots:
    """Return slots of these tokens that hold no vectors."""
    n_seen = position.amax(dim=(1, 2)) + 1
    return Slots(Columns({"position": position.clone(), **memory}), n_seen=n_seen, n=position.shape[2])


def _kept(policy: EvictionPolicy, position: Int[Tensor, "B H N"], **memory: Tensor) -> Bool[Tensor, "B H N"]:
    """Return which of these slots a policy keeps."""
    index = torch.arange(position.shape[2]).expand_as(position).clone()
    kept = policy.shrink(_slots(position, index=index, **memory), layer=0)
    return torch.zeros_like(position, dtype=torch.bool).scatter(2, kept.storage["index"][:, :, : kept.n], True)
