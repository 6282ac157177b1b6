"""The picture beside the exercise of the roofline. Whoever grades draws nothing: matplotlib is imported here below."""


def two_times(
    flops: float, n_bytes: float, flops_per_second: float, bytes_per_second: float, got: object, expected: float
) -> "matplotlib.figure.Figure":
    """The arithmetic and the reading as two bars of time, your answer and the expected one as lines."""
    from course_lib.lessons.common.style import COLOURS, figure, label

    fig, (axes,) = figure(height=2.2)
    axes.barh([0, 1], [flops / flops_per_second, n_bytes / bytes_per_second], color=COLOURS[4])
    axes.set_yticks([0, 1], ["arithmetic", "memory"])
    axes.axvline(expected, color=COLOURS[0], label="expected")
    axes.axvline(float(got), color=COLOURS[1], linestyle="--", label="yours")
    axes.legend(frameon=False)
    label(axes, f"The step takes {expected:.3g} s, as long as the longer bar", "time [s]")
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


def old_and_new_time(share: float, factor: float, got: object, expected: float) -> "matplotlib.figure.Figure":
    """A step of one second and the same step with a part made faster, and where your speed-up would let it end."""
    from course_lib.lessons.common.style import COLOURS, figure, label

    fig, (axes,) = figure(height=2.2)
    axes.barh([0, 1], [1 - share, 1 - share], color=COLOURS[0], label="as it was")
    axes.barh([0, 1], [share / factor, share], left=[1 - share, 1 - share], color=COLOURS[4], label="made faster")
    axes.set_yticks([0, 1], ["new", "old"])
    if float(got) > 0:
        axes.axvline(1 / float(got), color=COLOURS[1], linestyle="--", label=f"yours: 1 / {float(got):.3g}")
    axes.set_xlim(0, 1.2)
    axes.legend(frameon=False, fontsize=8)
    label(axes, f"New time 1 / {expected:.3g}", "time [old step = 1]")
    return fig
