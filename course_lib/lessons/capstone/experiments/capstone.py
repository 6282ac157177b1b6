"""The cost of each part of a recipe, alone and with the others: all 32 subsets of five parts, and the order of two.

Tables:

    subsets   each of the 32: bytes stored and read, multiply-adds, the loss of every window of two domains
    orders    pruned then rounded, rounded then pruned, both in one sweep: on the same windows

Pruning by SparseGPT at 50 %, rounding to 3 bits in groups of 64 (4 bits show little on this model, whose weights were
4-bit once), H2O with a fifth of the slots in 4 bits, CATS with half of the neurons, a prompt of 20 vectors. Shapley
values and pair interactions follow from the table (course_lib/compose/shares.py). Sparse prefill is not included:
it stores and reads the same bytes for a decoded token, and cannot be combined with a cache that evicts.

`course reproduce capstone_front` measures the grid. Minutes planned on one idle core: 55 and 100.
"""

import copy
from functools import partial

from course_lib.compose.build import Built
from course_lib.compose.part import Making
from course_lib.compose.recipe import Recipe
from course_lib.compose.shares import Subset
from course_lib.lessons.capstone.experiments import ground
from course_lib.lessons.capstone.experiments.ground import QUICK, Sizes
from course_lib.lessons.capstone.experiments.recipes import PRUNE, ROUND, by_weights, five
from course_lib.lessons.common.subject import loaded
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.quantization.gptq import gptq
from course_lib.quantization.grid import Quantization
from course_lib.sparsity.footprint import sparsity_report
from course_lib.sparsity.patterns import Unstructured

NOTHING = "nothing"


def name_of(chosen: Subset) -> str:
    """Return the name of a subset, "cache + prune"; "nothing" for the dense model."""
    return " + ".join(sorted(chosen)) or NOTHING


def steps(sizes: Sizes) -> list[Step]:
    """List the steps; subsets with the same weights are consecutive."""
    plan = [Step(name_of(chosen), partial(subset, sizes, chosen)) for chosen in by_weights()[: sizes.recipes]]
    names = list(orders())[: sizes.orders]
    return plan + [Step(f"order: {name}", partial(order, sizes, name)) for name in names]


def subset(sizes: Sizes, chosen: Subset, seed: int) -> Tables:
    """Measure one recipe."""
    return {"subsets": [{"parts": sorted(chosen)} | ground.row_of(ground.made(five(chosen), sizes, seed), sizes, seed)]}


def orders() -> dict[str, tuple[LayerPruner, ...]]:
    """Return the pruners that change the dense model, in this order."""
    grid = Quantization(ROUND["bits"], ROUND["group"])
    by_row, by_layer = Unstructured(PRUNE["pattern"], per="row"), Unstructured(PRUNE["pattern"], per="layer")
    return {
        "Wanda, then GPTQ": (Wanda(by_row), gptq(grid)),
        "GPTQ, then Wanda": (gptq(grid), Wanda(by_row)),
        "SparseGPT, then GPTQ": (SparseGPT(by_layer), gptq(grid)),
        "GPTQ, then SparseGPT": (gptq(grid), SparseGPT(by_layer)),
        "both in one sweep": (SparseGPT(by_layer, quantization=grid),),
    }


def order(sizes: Sizes, name: str, seed: int) -> Tables:
    """Losses of a model made by hand. GPTQ, then SparseGPT moves weights off their grid again: what that order costs
    is a lower bound there."""
    model = copy.deepcopy(loaded()[0])
    for pruner in orders()[name]:
        prune_model(model, pruner, ground.calibration(sizes, seed), progress=False)
    built = Built(recipe=Recipe(), made=Making(model=model))
    losses = {domain: ground.losses_of(built, domain, sizes, seed) for domain in ground.DOMAINS}
    return {"orders": [{"order": name, "sparsity": sparsity_report(model).sparsity} | losses]}


EXPERIMENT = Experiment("What each part costs, alone and with others", Sizes(), QUICK, steps)
