"""Made-up measurements of lesson 12: losses and bytes by a rule, so that shares, fronts and verdicts are known."""

import zlib

from course_lib.compose.shares import subsets
from course_lib.lessons.capstone.estimates import DOMAINS
from course_lib.lessons.capstone.experiments.capstone import orders
from course_lib.lessons.capstone.experiments.recipes import FIVE, grid, text_of

NOISE = (0.0, 0.02, -0.02, 0.01)  # of windows; differences of models are alike in all of them but for a tenth of it
COST = {"prune": 1.0, "round": 0.5, "cache": 0.1, "neurons": 0.2, "prompt": -0.1}
TOGETHER = {("prune", "round"): 0.3, ("cache", "prompt"): -0.2}  # all other pairs add up
STORED, CACHE = 270_000_000, 24_000_000
SAVED = {"prune": 0.44, "round": 0.79, "cache": 0.0, "neurons": 0.0, "prompt": 0.0}  # of the blocks


def losses(cost: float) -> list[float]:
    """Of windows that differ by themselves, a little in what is lost there, and by up to 0.002 for no reason."""
    chance = [zlib.crc32(f"{cost:.6f} {window}".encode()) / 2**32 - 0.5 for window in range(len(NOISE))]
    return [3.0 + 10 * noise + cost * (1 + noise / 2) + 0.004 * c for noise, c in zip(NOISE, chance, strict=True)]


def cost_of(chosen: frozenset[str]) -> float:
    return sum(COST[part] for part in chosen) + sum(more for pair, more in TOGETHER.items() if set(pair) <= chosen)


def bytes_of(chosen: frozenset[str]) -> dict[str, int]:
    kept = 1.0
    for part in chosen:
        kept *= 1 - SAVED[part]
    stored = int(STORED * (0.2 + 0.8 * kept))
    cache = CACHE // 8 if "cache" in chosen else CACHE
    read = int(stored * (0.7 if "neurons" in chosen else 1.0)) + cache
    return {"stored": stored, "cache": cache, "read": read, "multiply_adds": stored // 2}


def parts(costs_of_orders: tuple[float, ...] = (1.8, 2.3, 1.5, 1.9, 1.45)) -> dict:
    """As `course reproduce capstone` writes it."""
    rows = [
        {"parts": sorted(chosen)} | bytes_of(chosen) | {domain: losses(cost_of(chosen)) for domain in DOMAINS}
        for chosen in subsets(FIVE)
    ]
    of_orders = [
        {"order": name, "sparsity": 0.5} | {domain: losses(cost) for domain in DOMAINS}
        for name, cost in zip(orders(), costs_of_orders, strict=True)
    ]
    return _whole({"subsets": rows, "orders": of_orders})


def of_grid(costs: dict[str, float], sizes: dict[str, int] | None = None) -> dict:
    """As `course reproduce capstone_front` writes it: some of its recipes, by what they lose and store."""
    texts = {name: text_of(recipe) for name, recipe in grid()}
    rows = [
        {"name": name, "recipe": texts[name]}
        | bytes_of(frozenset())
        | ({"stored": sizes[name]} if name in (sizes or {}) else {})
        | {domain: losses(cost) for domain in DOMAINS}
        for name, cost in costs.items()
    ]
    return _whole({"grid": rows})


def of_drafts(passes: dict[str, list[int]], read: float = 0.3) -> dict:
    """As `course reproduce capstone_drafts` writes it: passes for 100 tokens of each text, the same of both kinds."""
    rows = [
        {"draft": name, "kind": kind, "new": [100] * len(each), "passes": each, "k": 4, "tried": 90, "stayed": 50}
        | {"drafted": 4 * sum(each), "read": 0.0 if name == "lookup" else read}
        for name, each in passes.items()
        for kind in ("running text", "copying")
    ]
    return _whole({"drafts": rows})


def _whole(tables: dict) -> dict:
    machine = {"cpu": "a processor", "cores": 2, "torch": "2.13.0"}
    sizes = {"windows": len(NOISE), "length": 512}
    return {
        "command": "course reproduce made-up",
        "seed": 0,
        "started": "2026-01-01",
        "sizes": sizes,
        "machine": machine,
    } | {"tables": tables}
