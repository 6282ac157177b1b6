"""The recipes that are measured: all subsets of five parts, two orders, and a grid.

The default model's weights were once 4-bit, on different quantization grids (lesson 03, section 8). Conclusions rest
on 3 and 2 bits, and on 4 bits over whole rows, all the same.
"""

import json
from collections.abc import Iterator
from typing import Any

from course_lib.compose.shares import Subset, subsets
from course_lib.lessons.common.results import percent

Parts = dict[str, dict[str, Any]]

FIVE = ("prune", "round", "cache", "neurons", "prompt")
PRUNE = {"method": "SparseGPT", "pattern": 0.5}
ROUND = {"bits": 3, "group": 64}
CACHE = {"policy": "H2O", "budget": 0.2, "recent": 16, "bits": 4, "residual": 16}
NEURONS = {"selector": "CATS", "density": 0.5}
PREFILL = {"rule": "FlexPrefill", "settings": {"gamma": 0.9, "block_size": 32, "min_budget": 64}}
PROMPT = {"file": "capstone.safetensors"}

_SPARSITIES, _GRIDS = (0.5, 0.625, 0.75), ((4, None), (3, 64), (3, None), (2, 64), (2, None))
WEIGHTS: dict[str, dict[str, Any]] = {
    **{
        f"{method} {percent(s, 1)}": {"method": method, "pattern": s}
        for method in ("Wanda", "SparseGPT")
        for s in _SPARSITIES
    },
    "SparseGPT 2:4": {"method": "SparseGPT", "pattern": "2:4"},
    "Wanda 62.5 %, OWL": {"method": "Wanda", "pattern": 0.625, "allocation": "OWL"},
    "Wanda 62.5 %, one ranking": {"method": "Wanda", "pattern": 0.625, "allocation": "OneRanking"},
    **{f"{bits} bits, {group or 'rows'}": {"bits": bits, "group": group} for bits, group in _GRIDS},
    **{
        f"SparseGPT {percent(s)}, {bits} bits": {"method": "SparseGPT", "pattern": s, "bits": bits, "group": 64}
        for s in (0.5, 0.75)
        for bits in (4, 3, 2)
    },
}
CACHES: dict[str, dict[str, Any]] = {
    "cache 4 bits": {"policy": "Full", "bits": 4},
    "H2O 20 %": {"policy": "H2O", "budget": 0.2, "recent": 16},
    "H2O 20 %, 4 bits": CACHE,
    "StreamingLLM 20 %": {"policy": "StreamingLLM", "budget": 0.2},
    "SnapKV 20 %": {"policy": "SnapKV", "budget": 0.2, "recent": 16},
    "Scissorhands 20 %, 4 bits": {"policy": "Scissorhands", "budget": 0.2, "bits": 4, "residual": 16},
}
CHOSEN: dict[str, dict[str, Any]] = {
    "CATS 50 %": NEURONS,
    "CATS 30 %": {"selector": "CATS", "density": 0.3},
    "low rank 50 %": {"selector": "LowRank", "density": 0.5, "settings": {"rank": 16}},
    "fixed 50 %": {"selector": "Static", "density": 0.5},
}
BESIDE = (
    "",
    "4 bits, rows",
    "2 bits, 64",
    "SparseGPT 50 %, 3 bits",
    "SparseGPT 75 %, 4 bits",
)  # them


def five(chosen: Subset) -> Parts:
    """Return the recipe of a subset; pruning and rounding are one part, and use a single pass if both are there."""
    weights = (PRUNE if "prune" in chosen else {}) | (ROUND if "round" in chosen else {})
    others = {"cache": CACHE, "neurons": NEURONS, "prompt": PROMPT}
    return ({"weights": weights} if weights else {}) | {name: part for name, part in others.items() if name in chosen}


def by_weights() -> list[Subset]:
    """Return all 32 subsets, those with the same weights together, so that a model is built once."""
    return sorted(subsets(FIVE), key=lambda s: (len(s & {"prune", "round"}), sorted(s & {"prune", "round"}), len(s)))


def grid() -> Iterator[tuple[str, Parts]]:
    """Yield about 60 recipes with their names, those with the same weights together."""
    for name in ("", *WEIGHTS):
        weights = {"weights": WEIGHTS[name]} if name else {}
        yield name or "dense", weights
        if name in BESIDE:
            for other, cache in CACHES.items():
                yield f"{name} + {other}".removeprefix(" + "), weights | {"cache": cache}
            # Selecting neurons does not reduce the bytes stored, only the bytes read.
            for other, neurons in CHOSEN.items() if name in BESIDE[:3] else ():
                yield f"{name} + {other}".removeprefix(" + "), weights | {"neurons": neurons}
    yield "sparse prefill", {"attention": PREFILL}


def text_of(parts: Parts) -> str:
    """Return the recipe as JSON."""
    return json.dumps(parts)
