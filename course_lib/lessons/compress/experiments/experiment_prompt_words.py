"""Simple ideas for the open task of lesson 10: words before the texts of a pruned model, and of the dense one.

One table, sentences: the loss of every window, without a sentence ("") and behind each of them.
"""

from dataclasses import dataclass
from functools import partial

from course_lib.data.corpora import windows
from course_lib.lessons.compress.live.learning import half_pruned
from course_lib.lessons.compress.live.sentences import IDEAS, MODELS, of_idea
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import load_model
from course_lib.prompts.losses import prompted_window_losses


@dataclass(frozen=True)
class Sizes:
    """How much is read, and which of the ideas are measured."""

    evaluation: int = 24
    length: int = 64
    ideas: tuple[str, ...] = tuple(IDEAS)


def steps(sizes: Sizes) -> list[Step]:
    """One a model: the pruned one is made once."""
    return [Step(name, partial(read, sizes, name)) for name in MODELS]


def read(sizes: Sizes, name: str, seed: int) -> Tables:
    """The model without a sentence, and behind each."""
    model, tokenizer = load_model()
    model = model if name == MODELS[1] else half_pruned(tokenizer)
    texts = windows("wikipedia", sizes.evaluation, sizes.length, tokenizer, split="evaluation", seed=seed)
    alone = prompted_window_losses(model, None, texts, progress=False)
    made = [("", 0, alone)]
    for idea in sizes.ideas:
        found = of_idea(idea, model, tokenizer, texts, seed)
        made.append((idea, found.n_tokens, found.losses))
    rows = [
        {"model": name, "idea": idea, "n_tokens": n_tokens, "losses": [round(loss, 5) for loss in losses.tolist()]}
        for idea, n_tokens, losses in made
    ]
    return {"sentences": rows}


EXPERIMENT = Experiment("Sentences before a pruned model", Sizes(), Sizes(2, 16, tuple(IDEAS)[:1]), steps)
