"""A tiny model and text for recipes."""

import pytest
import torch

from course_lib.compose.build import build
from course_lib.compose.recipe import from_json
from course_lib.models import tiny_model


@pytest.fixture(scope="session")
def model():
    """Nobody changes it: `build` works on a copy."""
    return tiny_model()


@pytest.fixture(scope="session")
def text():
    """Calibration windows."""
    return torch.randint(97, (4, 40), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def made(model, text):
    """From the JSON of a recipe to the model."""
    return lambda recipe, folder=None: build(from_json(recipe), model, text, **({"folder": folder} if folder else {}))
