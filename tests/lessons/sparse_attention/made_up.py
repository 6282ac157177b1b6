"""Made-up results of lesson 11, of which every number that is printed can be worked out by hand."""

from typing import Any

Row = dict[str, Any]

MACHINE = {"cpu": "a processor", "cores": 2, "torch": "2.13.0"}
DENSE = (3.0, 3.2, 2.8, 3.0)


def result(name: str, sizes: Row, **tables: list[Row]) -> Row:
    heading = {"command": f"course reproduce {name}", "seed": 0, "started": "2026-01-01T00:00:00", "machine": MACHINE}
    return heading | {"sizes": sizes, "steps": {}, "tables": tables}


def read(
    rule: str, above: tuple[float, ...] | float, tokens: int = 2048, gamma: float | None = None, share: float = 1.0
) -> Row:
    """A rule that costs so many nats above dense attention, in all windows or in each."""
    each = above if isinstance(above, tuple) else tuple(above + wave for wave in (0.001, -0.001, 0.001, -0.001))
    losses = [loss + more for loss, more in zip(DENSE, each, strict=True)] if rule != "dense" else list(DENSE)
    row = {"tokens": tokens, "rule": rule, "gamma": gamma, "losses": losses, "perplexity": 20.0, "standard_error": 1.0}
    densities = [share + wave for wave in (0.01, -0.01, 0.01, -0.01)] if share < 1 else [1.0] * 4
    return row | {"n_tokens": 8188, "densities": densities, "coverage": 0.97, "seen": 0.97, "query_aware": 0.1}


def heads(density: list[list[float]], aware: list[list[float]]) -> list[Row]:
    pairs = zip(density, aware, strict=True)
    return [{"layer": i, "density": d, "query_aware": q, "coverage": d} for i, (d, q) in enumerate(pairs)]


def prefill(cost: float, released: float = 0.03, random: float = 0.5, bare: float = 0.1, share: float = 0.5) -> Row:
    """γ = 0.95 at two lengths, the longer of which is read at half of the share."""
    sizes = {"windows": 4, "covered": 2, "middle": 2048, "gamma": 0.95, "block_size": 128, "min_budget": 512}
    rows = [read("dense", 0), read("dense", 0, 4096)]
    rows += [read("FlexPrefill", cost, 2048, 0.95, share), read("FlexPrefill", cost, 4096, 0.95, share / 2)]
    rows += [read("FlexPrefill, no floor", bare, 2048, 0.95, share - 0.1)]
    rows += [read("as released", released, 2048, 0.95, share - 0.05), read("StreamingLLM", cost + 0.05, share=share)]
    rows += [read("vertical-slash", cost - 0.005, share=share), read("random", random, share=share)]
    layers = heads([[0.1, 0.5, 0.9]] * 10, [[1.0, 0.0, 0.2]] * 10)
    return result("sparse_attention", sizes, read=rows, heads=layers)


def clock(times: dict[tuple[int, float], tuple[float, float, float | None]]) -> Row:
    """By length and density: choosing and reading, reading alone, the whole model (None: not timed); each ± 1 %."""
    sides = []
    for (tokens, density), (both, alone, whole) in times.items():
        contest = f"{tokens} tokens, γ 0.9, density {density:.2f}"
        named = {"choose and read blocks": both, "read blocks": alone, "choose blocks": 4.0}
        named["read blocks, flex_attention"] = 1.0
        sides += [_timed(contest, side, each) for side, each in named.items()]
        sides += [_timed(f"whole model, {contest}", "sparse prefill", whole)] if whole else []
    return result("sparse_prefill", {}, sides=sides)


def _timed(contest: str, side: str, times: float) -> Row:
    ends = {"times_anchor_low": 0.99 * times, "times_anchor_high": 1.01 * times}
    return {"contest": contest, "side": side, "times_anchor": times, "repetitions": 5} | ends


def gpu_run(kind: str, side: str, times: dict[int, float]) -> Row:
    """A run of `make gpu` with one contest per length, ± 1 %; another side of the same contests loses."""
    sides = [
        _timed(f"{kind}, {tokens} tokens", name, factor)
        for tokens, fast in times.items()
        for name, factor in ((side, fast), ("index alone", 0.1))
    ]
    return {"benches": {"prefilling": {"rows": sides}}}


def delta(costs: dict[float, float], sparsity: dict[float, float]) -> Row:
    """Costs and sparsities by threshold; each change of one thing costs 0.1 more, or 0.1 less before RoPE."""
    sizes = {"windows": 4, "length": 512, "calibration": 4, "varied": list(costs), "window": 64, "sinks": 4}
    rows = [_coded(0.0, None, None, None, 0.0, 0.0) | {"losses": list(DENSE)}]
    for theta, cost in costs.items():
        share = sparsity[theta]
        rows += [_coded(theta, 64, 4, "after", cost, share), _coded(theta, 1, 4, "after", cost + 0.1, share + 0.1)]
        rows += [_coded(theta, 64, 0, "after", cost + 0.1, share), _coded(theta, 64, 4, "before", cost - 0.1, 0.0)]
    decoded = {"theta": 1.0, "read_at_once": 3.0, "decoded": 3.0, "largest_difference": 1e-6, "sparsity": 0.3}
    return result("delta", sizes, read=rows, decoded=[decoded | {"n_tokens": 64}])


def _coded(theta: float, window: int | None, sinks: int | None, side: str | None, cost: float, sparsity: float) -> Row:
    row = read("coded", cost) | {"theta": theta, "window": window, "sinks": sinks, "side": side}
    return row | {"zeros": sparsity, "sparsity": sparsity}


def drafts(alphas: dict[str, float], tokens: int = 20, passes: int = 10) -> Row:
    """Each draft with its α on running text, and 0.1 more on copying; two texts, so many tokens in so many passes."""
    sizes = {"texts": 2, "length": 192, "written": 2, "n_new": tokens, "k": 4}
    overlaps, speculated = [], []
    for name, alpha in alphas.items():
        for kind, more in (("running text", 0.0), ("copying", 0.1)):
            of = {"draft": name, "kind": kind}
            overlaps.append(
                of | {"alpha": [alpha + more - 0.01, alpha + more + 0.01], "proposed": 1.0, "n_tokens": 100}
            )
            counts = {"new": [tokens, tokens], "passes": [passes, passes], "k": 4, "tried": 40, "stayed": 20}
            speculated.append(of | counts | {"drafted": 8 * passes, "read": 0.5 if name != "lookup" else 0.0})
    return result("drafts", sizes, overlap=overlaps, speculated=speculated)


def answers(right: dict[tuple[str, str], str], data: str = "residents") -> list[Row]:
    """By heads and what is steered: which of the questions were answered rightly; such answers are the likelier."""
    rows = []
    for (which, what), bits in right.items():
        row = {"data": data, "heads": which, "steered": what, "n": len(bits), "right": bits, "chance": 0.25}
        likely = [-1.0 - 0.1 * (i % 2) if bit == "1" else -4.0 for i, bit in enumerate(bits)]
        rows.append(row | {"accuracy": bits.count("1") / len(bits), "log_probability": likely})
    return rows


def steering(right: dict[tuple[str, str], str], named: str = "1000") -> Row:
    sizes = {"tested": 4, "developed": 2, "alpha": 0.01}
    gate = [{"part": "test", "tried": 8, "kept": 4}, {"part": "development", "tried": 3, "kept": 2}]
    search = [{"what": "nothing", "log_probability": -5.0}]
    search += [{"what": f"layer {i}", "log_probability": -5.0 + value} for i, value in enumerate((-1.0, 2.0, 0.5))]
    search += [{"what": "layer 1, head 0", "log_probability": -4.0}]
    search += [{"what": "best 1 layers", "log_probability": -3.0, "heads": [[1, 0], [1, 1]], "chosen": True}]
    found = {"data": "residents", "n": len(named), "sentences": [4] * len(named), "right": named}
    found |= {"place": [0] * len(named), "accuracy": named.count("1") / len(named)}
    return result("steering", sizes, gate=gate, search=search, named=[found], answers=answers(right))
