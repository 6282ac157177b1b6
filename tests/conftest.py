"""Shared fixtures. Shape annotations of the library are enforced while tests run (jaxtyping + beartype)."""

import contextlib
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may depend on a hub
os.environ.setdefault("MPLBACKEND", "Agg")

import announced_instructions
import long_first
import pytest
import shape_annotations
import torch
from what_changed import SECONDS

with contextlib.suppress(ImportError):  # a machine that has a GPU need not have it
    from hypothesis import settings

    settings.register_profile("course", deadline=None)  # how long an example takes says what else the machine does
    settings.load_profile("course")

announced_instructions.avoid_those_that_are_missing()

shape_annotations.enforce("course_lib")


@pytest.fixture
def generator():
    """A seeded generator, so that a failing test fails again."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def real_model():
    """The course's default model and tokenizer; tests that change weights must load their own."""
    from course_lib.models import load_model

    return load_model()


@pytest.fixture
def tiny_tokenizer():
    """A word-level tokenizer over the 97 tokens of the tiny models."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<unk>", "<s>", "</s>"] + [chr(ord("a") + i % 26) + str(i // 26 or "") for i in range(94)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def pytest_collection_modifyitems(items):
    """Long files first; tests of the real model are skipped, with the remedy, where `course setup` has not run."""
    if n_workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0)):
        seconds = long_first.INTERPRETED if os.environ.get("TRITON_INTERPRET") == "1" else SECONDS
        items[:] = long_first.dealt_out(items, n_workers, seconds)
    items = [item for item in items if item.get_closest_marker("real")]
    if not items:
        return  # so that the kernels' tests need none of the packages that fetch the model
    from course_lib.data.assets.cache import asset_path

    try:
        asset_path("smollm2-135m"), asset_path("wikipedia")
    except (ValueError, FileNotFoundError):
        for item in items:
            item.add_marker(pytest.mark.skip(reason="the model is not in the cache: run `course setup`"))
