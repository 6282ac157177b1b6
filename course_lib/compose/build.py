"""From a recipe to a model: apply the parts in order: prune, quantize, fit selectors, and add the rest to the model.

The only input is calibration text, and we trust no declaration of a recipe: `stored` holds everything that the model
contains, tensor by tensor.
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
    """A model built from a recipe.

    Args:
        made: the model, its stored tensors, and what its parts have fitted.
    """

    recipe: Recipe
    made: Making = field(repr=False)

    @property
    def model(self) -> PreTrainedModel:
        """The compressed model, a copy of the dense one. It is only complete inside of `running`."""
        return self.made.model

    @property
    def stored(self) -> Stored:
        """All stored tensors by PART/NAME."""
        return self.made.stored

    @contextmanager
    def running(self) -> Iterator[Cache]:
        """Let the model compute with every part inside the `with` block; yield a new cache for `past_key_values`."""
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
    """Build the model of a recipe as a copy.

    Args:
        calibration: the result of `recipe.calibration.text(tokenizer)`.
        folder: where the files are that the recipe names.

    Raises:
        ValueError: settings that do not fit this model, or files that do not match the recipe.
    """
    check_calibration(model, calibration)
    dense = Built(recipe=Recipe(), made=Making(model=copy.deepcopy(model), stored=dense_tensors(model)))
    return extended(dense, recipe, calibration, folder, progress)


def extended(
    built: Built, recipe: Recipe, calibration: Int[Tensor, "n N"], folder: Path = Path(), progress: bool = False
) -> Built:
    """Continue the build of another recipe, which has the first parts of this one; the two share their model.

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
    """Return every parameter in 16 bits, tied ones once: dense/LAYER for linears of blocks, table/WHICH, other/NAME."""
    known = {id(layer.module.weight): f"dense/{layer.name}" for layer in layers_of(model)}
    known |= {id(weight): f"table/{which}" for which, weight in tables_of(model).items()}
    return {
        known.get(id(parameter), f"other/{name}"): parameter.detach().to(torch.float16)
        for name, parameter in model.named_parameters()
    }
