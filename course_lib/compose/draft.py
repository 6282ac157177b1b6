"""A built model as the draft model of speculative decoding: the text is the dense model's, in fewer of its passes."""

from collections.abc import Iterator
from contextlib import contextmanager

from course_lib.attention.speculative.draft import ModelDraft, model_draft
from course_lib.compose.build import Built


@contextmanager
def drafting(built: Built) -> Iterator[ModelDraft]:
    """Let `speculate(dense, ids, 100, draft)` draft with the built model and all its parts inside the `with` block.

    Raises:
        ValueError: a recipe with eviction: rejected draft tokens must be removed, but evicted tokens cannot be
            restored.
    """
    for part in built.recipe.parts:
        if part.forgets:
            raise ValueError(
                f"got a recipe with a part {part.name} as a draft; expected one without: rejected tokens are removed "
                f"again, but evicted tokens cannot be restored. Leave the {part.name} out; the other parts can draft."
            )
    with built.running():
        yield model_draft(built.model)
