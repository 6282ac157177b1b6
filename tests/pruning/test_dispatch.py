"""Models that accelerate spreads over memory and disk are pruned like any other, where their weights are kept."""

import importlib.util

import pytest
import torch
from transformers import AutoModelForCausalLM

from course_lib.models import tiny_model
from course_lib.pruning import device_map
from course_lib.pruning.allocation.owl import OWL
from course_lib.pruning.device_map import prune_dispatched
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.sparsity.patterns import NofM

pytest.importorskip("accelerate")
WINDOWS = torch.randint(97, (5, 24), generator=torch.Generator().manual_seed(1))
OUTSIDE = {
    "llama": ("model.layers", ["model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head"]),
    "gpt2": ("transformer.h", ["transformer.wte", "transformer.wpe", "transformer.ln_f", "lm_head"]),
}


def on_disk(architecture):
    """The second block, and nothing else, on disk."""
    blocks, outside = OUTSIDE[architecture]
    return dict.fromkeys([*outside, f"{blocks}.0"], "cpu") | {f"{blocks}.1": "disk"}


def saved(tmp_path, architecture):
    model = tiny_model(3, architecture)
    model.save_pretrained(tmp_path / "in")
    return model


@pytest.mark.parametrize("architecture", OUTSIDE)
def test_blocks_on_disk(tmp_path, architecture):
    model = saved(tmp_path, architecture)
    before = (tmp_path / "in" / "model.safetensors").read_bytes()
    report = prune_dispatched(
        tmp_path / "in", tmp_path / "out", Wanda(), WINDOWS, OWL(), on_disk(architecture), progress=False
    )
    expected = prune_model(model, Wanda(), WINDOWS, False, OWL())
    got = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert all(torch.equal(got[name], weight) for name, weight in model.state_dict().items())
    assert report.sparsity == expected.sparsity
    assert (tmp_path / "in" / "model.safetensors").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


@pytest.mark.parametrize("architecture", OUTSIDE)
def test_blocks_in_memory_that_are_fetched_when_they_run(architecture):
    from accelerate import cpu_offload

    model, plain = tiny_model(3, architecture), tiny_model(3, architecture)
    cpu_offload(model, execution_device=torch.device("cpu"))
    assert all(p.is_meta for p in model.parameters())
    prune_model(model, Wanda(NofM(2, 4)), WINDOWS, progress=False)
    prune_model(plain, Wanda(NofM(2, 4)), WINDOWS, progress=False)
    assert all(p.is_meta for p in model.parameters())
    with torch.no_grad():
        assert torch.equal(model(WINDOWS).logits, plain(WINDOWS).logits)


def test_weights_without_a_place_of_their_own_are_refused(tmp_path):
    saved(tmp_path, "llama")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "in", device_map=on_disk("llama"))
    with pytest.raises(ValueError, match=r"blocks.1.self_attn.q_proj is read from the checkpoint.*offload_folder"):
        prune_model(model, Wanda(), WINDOWS, progress=False)


def test_without_accelerate_one_line_says_so(tmp_path, monkeypatch):
    saved(tmp_path, "llama")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="needs accelerate, which is not installed: run `pip install accelerate`"):
        device_map.prune_dispatched(tmp_path / "in", tmp_path / "out", Wanda(), WINDOWS)


def test_a_place_where_no_folder_can_be_is_refused_in_words(tmp_path):
    saved(tmp_path, "llama")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=r"file is there already and not an empty folder"):
        prune_dispatched(tmp_path / "in", tmp_path / "file", Wanda(), WINDOWS)
    with pytest.raises(
        ValueError, match=r"the folder .*file/a cannot be made \(Not a directory\); .* new folder elsewhere"
    ):
        prune_dispatched(tmp_path / "in", tmp_path / "file" / "a" / "out", Wanda(), WINDOWS)


def test_a_folder_with_anything_in_it_stays_as_it_is(tmp_path):
    saved(tmp_path, "llama")
    with pytest.raises(ValueError, match="in is there already and not an empty folder"):
        prune_dispatched(tmp_path / "in", tmp_path / "in", Wanda(), WINDOWS)
