"""A built model as the draft of speculative decoding: the text stays the dense model's, in fewer of its passes."""

from collections.abc import Iterator
from contextlib import contextmanager

from course_lib.attention.speculative.draft import ModelDraft, model_draft
from course_lib.compose.build import Built


@contextmanager
def drafting(built: Built) -> Iterator[ModelDraft]:
    """Inside, `speculate(dense, ids, 100, draft)` drafts with the built model, all its parts at work.

    Raises:
        ValueError: a recipe with a cache that evicts: a draft goes back when tokens fall, and what left cannot return.
    """
    if built.recipe.part("cache") is not None:
        raise ValueError(
            "got a recipe with a cache as a draft; expected one without: rejected tokens are taken back, and tokens "
            "that have left a cache cannot come back. Leave the cache out, its other parts draft alike."
        )
    with built.running():
        yield model_draft(built.model)
