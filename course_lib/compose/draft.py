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
    for part in built.recipe.parts:
        if part.forgets:
            raise ValueError(
                f"got a recipe with a part {part.name} as a draft; expected one without: rejected tokens are taken "
                f"back, and tokens that have left cannot come back. Leave the {part.name} out, its other parts draft "
                "alike."
            )
    with built.running():
        yield model_draft(built.model)
