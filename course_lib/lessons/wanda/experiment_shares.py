"""Simple ideas for the open task of lesson 04: which layers lose how much, 40 % in all."""

from dataclasses import replace

from course_lib.lessons.common.ideas import by_idea
from course_lib.lessons.wanda.shares import IDEAS, attempt
from course_lib.measure.experiment import Tables
from course_lib.models import Part
from course_lib.pruning.allocation.owl import OWL

EQUAL, BY_OUTLIERS = "equal shares", "by outliers (OWL)"


def row(idea: str, seed: int) -> Tables:
    """One model, pruned by one idea."""
    made = attempt({EQUAL: None, BY_OUTLIERS: OWL()}.get(idea) or IDEAS.get(idea), seed)
    return {"ideas": [{"idea": idea, "sparsity": made.sparsity, "losses": made.losses.tolist()}]}


# With all neurons: of fewer not enough weights may leave.
EXPERIMENT = replace(
    by_idea("Shares by layer", (EQUAL, *IDEAS, BY_OUTLIERS), (EQUAL, "the MLP alone"), row),
    quick_part=Part(n_neurons=1536),
)
