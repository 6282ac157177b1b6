"""The pictures beside the exercises. Whoever grades draws nothing: matplotlib is imported here below."""

from contextlib import suppress


def layer_by_layer(
    flops: "torch.Tensor",
    n_bytes: "torch.Tensor",
    flops_per_second: float,
    bytes_per_second: float,
    got: object,
    expected: float,
) -> "matplotlib.figure.Figure":
    """Layers one after the other: the time of the arithmetic above that of the reading; the longer one counts."""
    from course_lib.lessons.common.style import COLOURS, figure, label

    fig, (axes,) = figure(height=2.4)
    times = [(flops / flops_per_second).tolist(), (n_bytes / bytes_per_second).tolist()]
    start = 0.0
    for computing, reading in zip(*times, strict=True):
        axes.barh([0, 1], [computing, reading], left=start, color=[COLOURS[0], COLOURS[4]], edgecolor="white")
        start += max(computing, reading)
        axes.axvline(start, color="black", linewidth=0.6, linestyle=":")
    axes.set_yticks([0, 1], ["arithmetic", "memory"])
    axes.invert_yaxis()
    axes.plot([expected], [-0.55], "v", color=COLOURS[0], label="expected", clip_on=False)
    with suppress(TypeError, ValueError, RuntimeError):  # no single number
        axes.axvline(float(got), color=COLOURS[1], linestyle="--", label="yours")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    one = f"1 layer takes {expected:.3g} s, as long as its longer bar"
    several = f"{len(flops)} layers take {expected:.3g} s, each as long as its longer bar"
    label(axes, one if len(flops) == 1 else several, "time (s)")
    return fig


def zeros_marked(tensor: "torch.Tensor", got: object, expected: float) -> "matplotlib.figure.Figure":
    """The entries of a tensor, rows below each other: dark where one is exactly zero."""
    from course_lib.lessons.common.style import figure

    rows = (tensor == 0).reshape(-1, tensor.shape[-1] if tensor.ndim else 1)
    fig, (axes,) = figure(height=2.4)
    axes.imshow(rows, cmap="Greys", vmin=0, vmax=1.3, aspect="auto", interpolation="nearest")
    axes.grid(visible=False)
    axes.locator_params(integer=True)
    axes.set_xlabel("last axis")
    axes.set_ylabel("all others")
    axes.set_title(f"{int(rows.sum())} of {rows.numel()} are zero: {expected:.3g}; yours: {float(got):.3g}", loc="left")
    return fig


def old_and_new_time(share: float, goal: float, got: object, expected: float) -> "matplotlib.figure.Figure":
    """A step of one second, the step that is wanted, and what yours would make of it."""
    from course_lib.lessons.common.style import COLOURS, figure, label

    fig, (axes,) = figure(height=2.2)
    rest = 1 - share
    yours = share / float(got) if float(got) > 0 else share
    parts = {"yours": yours, "wanted": max(1 / goal - rest, 0.0), "before": share}
    axes.barh(range(3), [rest] * 3, color=COLOURS[0], label="the rest")
    axes.barh(range(3), parts.values(), left=rest, color=COLOURS[4], edgecolor=COLOURS[0], hatch="//", label="the part")
    axes.set_yticks(range(3), parts)
    axes.axvline(1 / goal, color=COLOURS[1], linestyle="--", label="what the new step may take")
    axes.set_xlim(0, 1.55)
    axes.legend(frameon=False, fontsize=8, loc="center right")
    short = "no factor is enough" if expected == 0 else f"the part must get {expected:.3g} times faster"
    label(axes, f"{goal:.3g} times faster as a whole: {short}", "time (old step = 1)")
    return fig
