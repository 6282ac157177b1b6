"""A tiny checkpoint for the commands that prune one, and text that is random numbers."""

import pytest
import torch

from course_lib.data import corpora
from course_lib.models import tiny_model


@pytest.fixture
def checkpoint(tmp_path, tiny_tokenizer, monkeypatch):
    tiny_model(5).save_pretrained(tmp_path / "in")
    tiny_tokenizer.save_pretrained(tmp_path / "in")

    def windows(corpus, n, length, tokenizer, split, seed):
        return torch.randint(97, (n, length), generator=torch.Generator().manual_seed(seed))

    monkeypatch.setattr(corpora, "windows", windows)
    return tmp_path / "in"
