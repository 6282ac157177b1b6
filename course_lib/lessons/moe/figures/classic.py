"""Mixtures of 1991 and 1994: regions of a gate, and a climb of EM.

Dimension key: P samples, S learners, K experts.
"""

from collections.abc import Mapping

import torch
from matplotlib.figure import Figure

from course_lib.data.vowels import VOWELS
from course_lib.lessons.common.style import COLOURS, MARKERS, figure, label, line_style
from course_lib.lessons.moe.live.classic import Climb
from course_lib.moe.classic.descent import Samples, Trained, report


def regions(trained: Mapping[str, Trained], samples: Samples) -> Figure:
    """The vowels over the gate's regions: in each one expert is the likeliest. The first learner of each kind."""
    fig, panels = figure(n_columns=len(trained), width=4.8, height=3.6)
    x, y = (
        torch.linspace(float(column.min()) - 0.3, float(column.max()) + 0.3, 160) for column in samples.inputs.T[:2]
    )
    across, up = torch.meshgrid(x, y, indexing="xy")
    grid = torch.stack([across.flatten(), up.flatten(), torch.ones(across.numel())], dim=1)
    for axes, (name, each) in zip(panels, trained.items(), strict=True):
        prior, _ = each.learner.parts(each.weights, grid)
        likeliest = prior[0].argmax(dim=1).view(across.shape)
        axes.pcolormesh(x, y, likeliest, cmap="Greys", vmin=-0.5, vmax=6, shading="nearest", rasterized=True)
        for vowel, sound in enumerate(VOWELS):
            here = samples.inputs[samples.classes == vowel]
            look = {
                "color": COLOURS[vowel],
                "marker": MARKERS[vowel],
                "s": 12,
                "edgecolors": "white",
                "linewidths": 0.3,
            }
            axes.scatter(here[:, 0], here[:, 1], label=sound, **look)
        found = report(each, samples)
        said = f"{name}: {100 * found.accuracy.mean():.0f} % right by all experts,\n"
        title = f"{said}{100 * found.likeliest_accuracy.mean():.0f} % by the likeliest one alone"
        label(axes, title, "first formant (standard deviations)", "")
        axes.grid(False)
    panels[0].set_ylabel("second formant (standard deviations)")
    panels[-1].legend(frameon=True, fontsize=9, loc="upper right")
    return fig


def climbed(climb: Climb, depth: int) -> Figure:
    """The log-likelihood after every step of EM."""
    fig, (axes,) = figure(width=6.4, height=3.0)
    look = line_style(0) | {"markersize": 4}
    axes.plot(range(len(climb.log_likelihood)), climb.log_likelihood, **look)
    steps = zip(climb.log_likelihood, climb.log_likelihood[1:], strict=False)
    fell = sum(later < before - 1e-9 * abs(before) for before, later in steps)
    said = "never falls" if not fell else f"falls {fell} times"
    title = (
        f"The likelihood {said}; error on other samples: {climb.of_tree:.2f},\n"
        f"one linear map {climb.of_linear_map:.2f} (a tree of {2**depth} experts)"
    )
    label(axes, title, "steps of EM", "log-likelihood\n(nats a sample)")
    return fig
