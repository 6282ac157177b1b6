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
