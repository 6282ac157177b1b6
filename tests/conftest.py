"""Shared fixtures. Shape annotations of the library are enforced while tests run (jaxtyping + beartype)."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may depend on a hub
os.environ.setdefault("MPLBACKEND", "Agg")

from jaxtyping import install_import_hook  # noqa: E402

_hook = install_import_hook(["course_lib"], "beartype.beartype")
_hook.__enter__()

import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture
def generator():
    """A seeded generator, so that a failing test fails again."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def real_model():
    """The course's default model and tokenizer; tests that change weights must load their own."""
    from course_lib.models import load_model

    return load_model()
