"""Drawings of what is stored of a model with half of its weights in 4 bits, and of what a prompt adds to a pass.

Dimension key, of each layer: O outputs (rows), I inputs (columns).
"""

from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.tables import percent
from course_lib.lessons.compress.steps.sizes import BYTES, stored
from course_lib.quantization.storage import code_bytes, grid_bytes, sparse_bytes

WIDTH, NEURONS, KEY_VALUE, BLOCKS, TOKENS = 576, 1536, 192, 30, 49_152  # of SmolLM2-135M
SHAPES = BLOCKS * (
    *((WIDTH, WIDTH),) * 2,
    *((KEY_VALUE, WIDTH),) * 2,
    *((NEURONS, WIDTH),) * 2,
    (WIDTH, NEURONS),
)
LAYERS = tuple((rows, columns, rows * columns // 2) for rows, columns in SHAPES)
WEIGHTS = sum(rows * columns for rows, columns in SHAPES)
OTHERS = WIDTH * TOKENS + WIDTH * (2 * BLOCKS + 1)  # the embedding, which is the head too, and the norms
VECTORS, BITS, GROUP = 20, 4, 128
GROUPS = {"whole rows": max(WIDTH, NEURONS), "128": 128, "64": 64, "32": 32}


def bits_a_weight(group: int) -> dict[str, float]:
    """Codes, bitmap with the starts of rows, and grids, in bits for each weight of the blocks, zero or not."""
    codes = sum(code_bytes(n_stored, BITS) for *_, n_stored in LAYERS)
    grids = sum(grid_bytes(rows, columns, BITS, group) for rows, columns in SHAPES)
    whole = sum(sparse_bytes(rows, columns, n_stored, BITS, group) for rows, columns, n_stored in LAYERS)
    parts = {"codes": codes, "bitmap, row starts": whole - codes - grids, "scales, zero points": grids}
    return {name: 8 * n_bytes / WEIGHTS for name, n_bytes in parts.items()}


def bits() -> Figure:
    """Stacked for groups of four sizes: bits a weight of the blocks, and how many times fewer than 16 that is."""
    _, (axes,) = figure(width=8.4, height=3.9)
    looks = (COLOURS[0], COLOURS[3], COLOURS[4])
    for place, group in enumerate(GROUPS.values()):
        low = 0.0
        for (name, size), colour in zip(bits_a_weight(group).items(), looks, strict=True):
            axes.bar(place, size, 0.62, low, color=colour, edgecolor="black", label="" if place else name)
            low += size
        times = stored(LAYERS, 0, 0, BITS, group)[1]
        axes.text(place, low + 0.08, f"{times:.2f} ×", ha="center", fontsize=10)
    axes.set_ylim(0, 5.2)
    axes.set_xticks(range(len(GROUPS)), list(GROUPS))
    axes.legend(frameon=False, fontsize=10.5, loc="upper left", ncols=3)
    part = bits_a_weight(GROUP)
    title = (
        f"The codes alone take {part['codes']:.0f} bits a weight, all of it {sum(part.values()):.2f} at groups of 128"
    )
    return label(axes, title, "columns in a group; above: how many times less than 16 bits", "bits a weight").figure


def whole_model() -> Figure:
    """Megabytes of the blocks, of what stays in 16 bits, and of the prompt, before and after."""
    _, (axes,) = figure(width=8.8, height=3.0)
    blocks, times = stored(LAYERS, 0, 0, BITS, GROUP)
    n_bytes, of_all = stored(LAYERS, OTHERS, VECTORS * WIDTH, BITS, GROUP)
    prompt, others = BYTES * VECTORS * WIDTH, BYTES * OTHERS
    rows = {"16 bits": (BYTES * WEIGHTS, others, 0), "50 % and 4 bits": (blocks, others, prompt)}
    names, looks = ("blocks", "embedding and norms", "prompt"), (COLOURS[0], COLOURS[4], "white")
    for place, sizes in enumerate(rows.values()):
        left = 0.0
        for name, size, colour in zip(names, sizes, looks, strict=True):
            axes.barh(-place, size / 1e6, 0.6, left, color=colour, edgecolor="black", label="" if place else name)
            left += size / 1e6
        axes.text(left + 3, -place, f"{left:.1f} MB", va="center", fontsize=10.5)
    axes.set_xlim(0, 1.15 * BYTES * (WEIGHTS + OTHERS) / 1e6)
    axes.set_yticks((0, -1), list(rows))
    axes.legend(frameon=False, fontsize=10.5, loc="lower right")
    title = (
        f"Blocks {times:.2f} times smaller, the model {of_all:.2f} times; the prompt is {percent(prompt / n_bytes, 2)}"
    )
    return label(axes, title, "megabytes").figure


def share_read(n_vectors: int, n_tokens: int) -> float:
    """P / (P + T), of the places that a prefill reads."""
    return n_vectors / (n_vectors + n_tokens)


def places() -> Figure:
    """The prompt's share of the places of a prefill, over the length of the text."""
    _, (axes,) = figure(width=7.6, height=3.4)
    lengths = [2**step for step in range(3, 12)]
    for index, n_vectors in enumerate((5, VECTORS, 100)):
        shares = [share_read(n_vectors, length) for length in lengths]
        axes.plot(lengths, shares, label=f"{n_vectors} vectors", **line_style(index))
    log_scale(axes, "x")
    axes.set_ylim(0, 1)
    axes.legend(frameon=False, fontsize=10.5)
    short, long = (percent(share_read(100, length)) for length in (32, 1024))
    title = f"100 vectors: {short} of what is read before 32 tokens, {long} before 1,024"
    return label(axes, title, "tokens of the text", "share of the prompt").figure
