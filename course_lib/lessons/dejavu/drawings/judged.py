"""A drawing of how a choice is judged: two predictors with one recall, of which one misses the largest neuron.

Dimension key: F neurons.
"""

from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure, label

ADDED = (4.0, 1.5, 1.2, 1.0, 0.6, 0.4, 0.2, 0.1)  # |h| ‖w‖, in falling order
NEEDED = 4  # the label: the largest half
GUESSES = {"misses the largest": (1, 2, 3, 5), "misses the fourth": (0, 1, 2, 6)}


def recall(chosen: tuple[int, ...]) -> float:
    """The share of the needed neurons that is chosen."""
    return sum(neuron < NEEDED for neuron in chosen) / NEEDED


def energy_kept(chosen: tuple[int, ...]) -> float:
    """Σ (h ‖w‖)² over the chosen neurons, of that over all."""
    return sum(ADDED[neuron] ** 2 for neuron in chosen) / sum(added**2 for added in ADDED)


def recall_and_energy() -> Figure:
    """What two predictors choose of eight neurons, four of which are labelled as needed."""
    fig, panels = figure(n_columns=2, width=4.6, height=3.2)
    for axes, (name, chosen) in zip(panels, GUESSES.items(), strict=True):
        bars = axes.bar(range(len(ADDED)), ADDED, 0.75, color="white", edgecolor="black")
        for neuron in chosen:
            bars[neuron].set_facecolor(COLOURS[0])
        axes.axvline(NEEDED - 0.5, color=COLOURS[1], linestyle="--")
        axes.text(NEEDED - 0.4, 3.6, "not needed", fontsize=10)
        label(axes, f"{name}: recall {recall(chosen):.2f}, energy {energy_kept(chosen):.2f}", "neuron", "|h| ‖w‖")
    recalls = {recall(chosen) for chosen in GUESSES.values()}
    low, high = sorted(energy_kept(chosen) for chosen in GUESSES.values())
    same = "One recall" if len(recalls) == 1 else "Two recalls"
    fig.suptitle(f"{same}, and an energy of {low:.2f} or {high:.2f} (dark: chosen)", x=0.01, ha="left", fontsize=12)
    return fig
