"""The interactive view of lesson 07: a text is read, and the tokens that are in the cache at that moment are marked.

Where no browser runs, as on an exported page, the text at the last moment is shown.

Dimension key: S moments, L layers, H key-value heads, T tokens of the text.
"""

import html
from collections.abc import Mapping
from dataclasses import dataclass

import ipywidgets as widgets
import torch
from IPython.display import HTML
from jaxtyping import Bool, Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.kv.cache import evicting
from course_lib.kv.policy import EvictionPolicy
from course_lib.lessons.common.views import player, show_view

KEPT = "background:#16324f;color:#ffffff;border-radius:2px;"
EVICTED = "color:#5f6b7d;"
TEXT = "white-space:pre-wrap;font-family:monospace;line-height:1.7;max-width:62em;background:#ffffff;color:#16324f;"


@dataclass(frozen=True)
class History:
    """Which tokens of a text were in the cache. After moment s, n_read[s] tokens had been read."""

    kept: Bool[Tensor, "S L H T"]
    n_read: tuple[int, ...]
    words: tuple[str, ...]

    def check(self, layer: int, head: int) -> None:
        """Raise ValueError for a layer or head that the model does not have."""
        n_layers, n_heads = self.kept.shape[1:3]
        if not (0 <= layer < n_layers and 0 <= head < n_heads):
            raise ValueError(
                f"got layer {layer}, head {head}; expected 0 to {n_layers - 1} and 0 to {n_heads - 1}, key-value heads."
            )


@torch.no_grad()
def watch(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    ids: Int[Tensor, "T"],
    policy: EvictionPolicy,
    positions: str = "original",
    chunk: int = 8,
) -> History:
    """Read a text in passes of `chunk` tokens, and record after each pass which tokens are kept.

    Raises:
        ValueError: for a text that is not a row of tokens, passes without tokens, or settings that `evicting` refuses.
    """
    if ids.ndim != 1 or not len(ids) or chunk < 1:
        raise ValueError(f"got ids of shape {tuple(ids.shape)} and a chunk of {chunk}; expected a row, and 1 or more.")
    moments, n_read = [], []
    with evicting(model, policy, positions) as cache:
        for start in range(0, len(ids), chunk):
            model.base_model(ids[None, start : start + chunk].to(model.device), past_key_values=cache, use_cache=True)
            n_read.append(min(start + chunk, len(ids)))
            moments.append(torch.stack([_kept(slots.position[0], len(ids)) for slots in cache.slots]).cpu())
    words = tuple(tokenizer.decode([token]) for token in ids.tolist())
    return History(torch.stack(moments), tuple(n_read), words)


def _kept(position: Int[Tensor, "H N"], n: int) -> Bool[Tensor, "H T"]:
    """Return True for the tokens that have a slot. Free slots point to an extra column, which is removed."""
    kept = torch.zeros(len(position), n + 1, dtype=torch.bool, device=position.device)
    return kept.scatter_(1, position.long().clamp(max=n), True)[:, :n]


def as_html(history: History, layer: int, head: int, moment: int, policy: str = "") -> str:
    """Return the text read so far; tokens in the cache are white on dark, evicted tokens grey."""
    history.check(layer, head)
    n_read, kept = history.n_read[moment], history.kept[moment, layer, head]
    spans = [
        f'<span style="{KEPT if stays else EVICTED}">{_visible(word)}</span>'
        for word, stays in zip(history.words[:n_read], kept.tolist(), strict=False)
    ]
    named = f"{policy}: " if policy else ""
    caption = f"{named}{n_read} tokens read, {int(kept.sum())} in the cache of layer {layer}, key-value head {head}"
    return f'<div style="{TEXT}"><b>{caption}</b>\n{"".join(spans)}</div>'


def _visible(word: str) -> str:
    return html.escape(word).replace("\n", "↵\n")


def explore(histories: Mapping[str, History], layer: int = 0, head: int = 0) -> widgets.VBox:
    """Show the text with controls to play it and to choose a moment, a policy, a layer and a head.

    Args:
        histories: of one text with several policies, all read in the same passes.
    """
    first = next(iter(histories.values()))
    first.check(layer, head)
    n_moments, n_layers, n_heads, _ = first.kept.shape
    moment = widgets.IntSlider(n_moments - 1, 0, n_moments - 1, description="moment")
    choice = {
        "policy": widgets.Dropdown(options=list(histories), description="policy"),
        "layer": widgets.IntSlider(layer, 0, n_layers - 1, description="layer"),
        "head": widgets.IntSlider(head, 0, n_heads - 1, description="head"),
        "moment": moment,
    }
    rows = [[choice["policy"], choice["layer"], choice["head"]], [player(moment, 500), moment]]
    controls = widgets.VBox([widgets.HBox(row) for row in rows])
    return show_view(
        lambda policy, **chosen: HTML(as_html(histories[policy], **chosen, policy=policy)), choice, controls
    )
