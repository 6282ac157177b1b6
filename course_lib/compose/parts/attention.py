"""Attention: the blocks of keys that a prompt's queries read. This part stores nothing and does not affect decoding."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from course_lib import discover
from course_lib.attention import prefill
from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.pattern import SparsePrefill
from course_lib.compose.fields import chosen, settings_of
from course_lib.compose.part import Ground, Making, Part

RULES = {kind.__name__: kind for kind in discover.subclasses(prefill, SparsePrefill)}


@dataclass(frozen=True, kw_only=True)
class AttentionPart(Part):
    """Sparse prefill.

    Args:
        rule: a class of course_lib/attention/prefill. settings: of the rule, such as {"gamma": 0.9}.
    """

    rule: str
    settings: dict[str, Any] = field(default_factory=dict)

    name: ClassVar[str] = "attention"
    place: ClassVar[int] = 3
    excludes: ClassVar[dict[str, str]] = {"cache": "since both put an attention function of their own into the model"}

    def __post_init__(self) -> None:
        super().__post_init__()
        self.prefill  # noqa: B018, refuses what is no rule

    @property
    def prefill(self) -> SparsePrefill:
        kind = chosen(self.rule, RULES, "rule")
        return kind(**settings_of(kind, self.settings, (), self.name))

    def apply(self, making: Making, ground: Ground) -> Making:
        return making.with_(
            self.name, self.prefill, {}, partial(prefilling, making.model, self.prefill, measured="none")
        )

    def in_words(self) -> str:
        return f"Attention over the prompt is sparse, by {self.rule}."
