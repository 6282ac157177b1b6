"""From a recipe to a model: parts in their order, prune, round, fit selectors, then the rest around the finished model.

Nothing but calibration text goes in, and nothing that the recipe declares is believed: what the model holds is in
`stored`, tensor by tensor.
"""

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache

from course_lib.compose.part import Ground, Making, Stored, tables_of
from course_lib.compose.recipe import Recipe
from course_lib.kv.layers import EvictingCache
from course_lib.models import layers_of
from course_lib.pruning.checks import check_calibration


@dataclass(frozen=True, eq=False, kw_only=True)
class Built:
    """A model made by a recipe.

    Args:
        made: the model, what is stored of it, and what its parts have fitted.
    """

    recipe: Recipe
    made: Making = field(repr=False)

    @property
    def model(self) -> PreTrainedModel:
        """Of its own: the dense one stays as it was. It is not whole outside of `running`."""
        return self.made.model

    @property
    def stored(self) -> Stored:
        """Every tensor that is kept, by PART/NAME."""
        return self.made.stored

    @contextmanager
    def running(self) -> Iterator[Cache]:
        """Inside, the model computes with every part; yields a fresh cache, to be given as `past_key_values`."""
        with ExitStack() as stack:
            opened = [stack.enter_context(make()) for make in self.made.inside]
            caches = [each for each in opened if isinstance(each, EvictingCache)]
            yield caches[0] if caches else DynamicCache()


def build(
    recipe: Recipe,
    model: PreTrainedModel,
    calibration: Int[Tensor, "n N"],
    folder: Path = Path(),
    progress: bool = False,
) -> Built:
    """The model of a recipe, a copy.

    Args:
        calibration: as `recipe.calibration.text(tokenizer)` gives it.
        folder: where the files lie that the recipe names.

    Raises:
        ValueError: settings that this model cannot have, or files that do not match the recipe.
    """
    check_calibration(model, calibration)
    dense = Built(recipe=Recipe(), made=Making(model=copy.deepcopy(model), stored=dense_tensors(model)))
    return extended(dense, recipe, calibration, folder, progress)


def extended(
    built: Built, recipe: Recipe, calibration: Int[Tensor, "n N"], folder: Path = Path(), progress: bool = False
) -> Built:
    """A recipe that goes on where another ended: its first parts are there already, and the model is shared.

    Raises:
        ValueError: a recipe that does not begin with the parts of the other; otherwise as `build`.
    """
    n_made = len(built.recipe.parts)
    if recipe.parts[:n_made] != built.recipe.parts:
        raise ValueError(
            f"got a model of {built.recipe.as_json()} for the recipe {recipe.as_json()}; expected one that begins with "
            "the same parts."
        )
    making, ground = built.made, Ground(calibration=calibration, folder=folder, progress=progress)
    for part in recipe.parts[n_made:]:
        making = part.apply(making, ground)
    return Built(recipe=recipe, made=making)


def dense_tensors(model: PreTrainedModel) -> Stored:
    """Every parameter in 16 bits, tied ones once: dense/LAYER of the blocks' linears, table/WHICH, other/NAME."""
    known = {id(layer.module.weight): f"dense/{layer.name}" for layer in layers_of(model)}
    known |= {id(weight): f"table/{which}" for which, weight in tables_of(model).items()}
    return {
        known.get(id(parameter), f"other/{name}"): parameter.detach().to(torch.float16)
        for name, parameter in model.named_parameters()
    }
