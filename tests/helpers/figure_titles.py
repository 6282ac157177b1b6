"""The titles of a figure's panels, which say what it found."""


def title(figure, index=0):
    return figure.axes[index].get_title(loc="left")


def titles(figure):
    return [axes.get_title(loc="left") for axes in figure.axes]


def drawn_title(figure, index=0):
    """The same of a figure that can be drawn: some mistakes in its texts and scales show only then."""
    figure.canvas.draw()
    return title(figure, index)
