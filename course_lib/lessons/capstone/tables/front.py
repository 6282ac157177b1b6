"""Recipes that none beats, the fewest bytes at a small loss, and what keeps to a budget."""

from collections.abc import Sequence

from course_lib.lessons.capstone.found import DENSE, DOMAINS, above, cost, one, worse
from course_lib.lessons.capstone.measured import best
from course_lib.lessons.capstone.tables.quoted import CLOSE, less_than_close
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.tables import listed, percent
from course_lib.lessons.common.verdicts import claim, said

SHARES = (1 / 2, 1 / 3, 1 / 4)  # of the dense model's bytes


def front(recipes: Sequence[Row], domain: str = "wikipedia", read: bool = False) -> str:
    """Those that none beats on a text, the cheapest first, with the numbers that they have in the figure."""
    what = "read" if read else "held"
    lines = [f"{what:<64}{'of dense':>8}" + "".join(f"{name:>14}" for name in DOMAINS.values())]
    dense = one(recipes, DENSE)
    for number, point in enumerate(best(recipes, domain, read), 1):
        row = one(recipes, point.name)
        cells = "".join(f"{said(above(row, dense, each), 2):>14}" for each in DOMAINS)
        lines.append(f"{number:<3}{point.name:<62}{percent(cost(row, read) / cost(dense, read)):>7}{cells}")
    lines.append("nats a token above dense" if dense else "not measured: `course reproduce capstone`")
    return "\n".join(lines)


def within(recipes: Sequence[Row], held: float, read: float) -> list[Row]:
    """Those that keep to both shares of the dense model's bytes, the best first: by the text on which more is lost."""
    dense = one(recipes, DENSE)
    fit = [row for row in recipes if cost(row) <= held * cost(dense) and cost(row, True) <= read * cost(dense, True)]
    return sorted(fit, key=lambda row: worse(row, dense).value)


def cheapest(recipes: Sequence[Row]) -> str:
    """The best recipe within shares of the bytes held, and whether it loses next to nothing on both texts."""
    lines, effects = [], {}
    for share in SHARES if recipes else ():
        if fit := within(recipes, share, 1.0):
            lost = worse(fit[0], one(recipes, DENSE))
            lines.append(f"at most {percent(share)} held: {fit[0]['name']}, {said(lost)} nats")
            effects[percent(share)] = less_than_close(lost)
    text = f"recipes of at most {listed(list(effects)) if effects else 'half'} of the bytes held"
    return "\n".join([*lines, claim(f"{text} lose less than {CLOSE} nats", effects.values())])
