"""Neurons: each token computes only those that a selector chooses. The selector is fitted to the compressed weights."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from course_lib import discover
from course_lib.compose.fields import chosen, exact_percent, settings_of
from course_lib.compose.kept import bytes_by_sizes, products_of, stored_of
from course_lib.compose.part import Ground, Making, Part
from course_lib.contextual import selectors
from course_lib.contextual.apply import contextual
from course_lib.contextual.selector import NeuronSelector, check_density
from course_lib.contextual.sizes import sizes_of

# Not those that look at what they should predict, compute all neurons to choose some, or want more than a fit.
SELECTORS = {
    kind.__name__: kind
    for kind in discover.subclasses(selectors, NeuronSelector)
    if kind.fits_alone and not kind.reads_hidden and kind.n_read_whole < 2
}
TAKEN = ("density", "by_block")
MOST_SETTING = 1024  # a rank, or lists


@dataclass(frozen=True, kw_only=True)
class NeuronsPart(Part):
    """The neurons of the blocks' MLPs.

    Args:
        selector: a class of course_lib/contextual/selectors that needs only calibration text.
        density: the fraction of neurons per token. by_block: a fraction for each block instead.
        settings: of the selector, such as {"rank": 64}.
    """

    selector: str
    density: float = 0.5
    by_block: tuple[float, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    name: ClassVar[str] = "neurons"
    place: ClassVar[int] = 2
    kind: ClassVar[str] = "selectors"

    def __post_init__(self) -> None:
        super().__post_init__()
        for share in (self.density, *self.by_block):
            check_density(share)
        self._selector()

    def _selector(self) -> NeuronSelector:
        kind = chosen(self.selector, SELECTORS, "selector")
        values = settings_of(kind, self.settings, TAKEN, self.name, 0, MOST_SETTING)
        return kind(density=float(self.density), by_block=tuple(map(float, self.by_block)), **values)

    def apply(self, making: Making, ground: Ground) -> Making:
        selector = self._selector()
        selector.check_sizes(sizes_of(making.model))
        selector = selector.fit(making.model, ground.calibration)
        return making.with_(self.name, selector, stored_of(selector), partial(contextual, making.model, selector))

    def n_bytes(self, making: Making) -> int:
        return bytes_by_sizes(making.found[self.name], making.model)

    def n_products(self, making: Making) -> int:
        return products_of(making.found[self.name], making.model)

    def in_words(self) -> str:
        fraction = "a different fraction in each block" if self.by_block else exact_percent(self.density)
        return f"Each token uses {fraction} of the neurons, chosen by {self.selector}."
