"""Soft prompts as things: where they begin, which model they belong to, the disk; and the words of hard ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from prompted_by_hand import ids_of, lively
from safetensors.torch import load_file, save_file

import course_lib
from course_lib.models import tiny_model
from course_lib.prompts.hard import SENTENCES, hard_prompt, meaningless
from course_lib.prompts.initial import from_ids, from_normal, from_vocabulary
from course_lib.prompts.losses import prompted_window_losses
from course_lib.prompts.prompted import prompting
from course_lib.prompts.soft import SoftPrompt, fingerprint
from course_lib.prompts.store import load_prompt, save_prompt


def test_rows_are_copied():
    model = lively()
    table = model.get_input_embeddings().weight
    prompt, before = from_ids(model, torch.tensor([4, 96, 4])), table.detach().clone()
    assert torch.equal(prompt.vectors, table.detach()[[4, 96, 4]])
    prompt.vectors.add_(1)
    assert torch.equal(table, before)
    assert (prompt.n, prompt.n_bytes) == (3, 3 * 48 * 4)


def test_words_drawn_are_different_rows(generator):
    model = lively()
    prompt = from_vocabulary(model, 97, generator)
    order = [(model.get_input_embeddings().weight == vector).all(dim=1).nonzero().item() for vector in prompt.vectors]
    assert sorted(order) == list(range(97))
    assert order != list(range(97))


def test_noise_has_its_scale(generator):
    # 200 × 48 draws: the standard error of a spread is σ / √(2 · 9600) < 1 %.
    assert from_normal(lively(), 200, generator, scale=0.3).vectors.std().item() == pytest.approx(0.3, rel=0.05)
    assert from_normal(lively(), 200, generator).vectors.std().item() == pytest.approx(1.0, rel=0.05)


def test_a_prompt_goes_with_compressions_of_its_model_and_with_no_other(generator):
    model = lively()
    prompt, mark = from_vocabulary(model, 3, generator), fingerprint(model)
    model.model.layers[0].mlp.up_proj.weight.data.zero_()
    prompt.check(model)
    assert fingerprint(lively().to(torch.bfloat16)) == mark
    model.get_input_embeddings().weight.data[5] += 1
    with pytest.raises(ValueError, match=r"learned on, or one in which only the blocks .*moved_to\(model\)"):
        prompt.check(model)
    with pytest.raises(ValueError, match="embedding table"), prompting(model, prompt):
        pass
    with prompting(model, prompt.moved_to(model)):
        assert model(ids_of(1, 4)).logits.shape == (1, 4, 97)


def test_another_width_and_too_many_vectors_are_refused(generator):
    model = tiny_model()
    mark = fingerprint(model)
    wide = SoftPrompt(vectors=torch.zeros(2, 47), table=mark)
    with pytest.raises(ValueError, match="47 wide and a model with embeddings 48 wide"), prompting(model, wide):
        pass
    with pytest.raises(ValueError, match="expected the same width"):
        wide.moved_to(model)
    long = SoftPrompt(vectors=torch.zeros(256, 48), table=mark)
    with pytest.raises(ValueError, match="256 vectors for a model of 256 positions"), prompting(model, long):
        pass


@pytest.mark.parametrize("vectors", [torch.zeros(0, 4), torch.full((1, 4), float("nan")), torch.tensor([[1.0, -1e39]])])
def test_no_prompt_without_numbers(vectors):
    with pytest.raises(ValueError, match="got vectors"):
        SoftPrompt(vectors=vectors, table="")


@pytest.mark.parametrize(
    "attempt",
    [
        lambda model, g: from_vocabulary(model, 0, g),
        lambda model, g: from_vocabulary(model, 98, g),
        lambda model, g: from_normal(model, 0, g),
        lambda model, g: from_normal(model, 2, g, scale=0.0),
        lambda model, g: from_ids(model, torch.tensor([97])),
        lambda model, g: from_ids(model, torch.tensor([-1])),
        lambda model, g: from_ids(model, torch.tensor([], dtype=torch.long)),
    ],
)
def test_beginnings_that_cannot_be(attempt, generator):
    with pytest.raises(ValueError, match="expected"):
        attempt(tiny_model(), generator)


READ = """
import json, sys, torch
from pathlib import Path
from prompted_by_hand import ids_of, lively
from course_lib.prompts.losses import prompted_window_losses
from course_lib.prompts.store import load_prompt
torch.set_num_threads(int(sys.argv[2]))
model = lively()
prompt = load_prompt(Path(sys.argv[1]), model)
print(json.dumps([prompted_window_losses(model, prompt, ids_of(3, 9), progress=False).tolist(), prompt.origin]))
"""


def test_a_saved_prompt_gives_the_same_losses_in_a_fresh_process(generator, tmp_path):
    model = lively()
    prompt = from_normal(model, 5, generator, origin="Wanda 50 %, 100 steps")
    path = save_prompt(prompt, tmp_path / "new" / "prompt.safetensors")
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(course_lib.__file__).parents[1])])
    line = [sys.executable, "-c", READ, str(path), str(torch.get_num_threads())]
    done = subprocess.run(line, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=True)
    losses, origin = json.loads(done.stdout)
    assert losses == prompted_window_losses(model, prompt, ids_of(3, 9), progress=False).tolist()
    assert origin == "Wanda 50 %, 100 steps"


def test_the_file_holds_the_vectors_and_little_else(generator, tmp_path):
    model = lively()
    prompt = from_normal(model, 20, generator)
    whole, half = (save_prompt(prompt, tmp_path / str(t), t) for t in (torch.float32, torch.float16))
    assert 0 < whole.stat().st_size - prompt.n_bytes < 400
    assert whole.stat().st_size - half.stat().st_size == pytest.approx(prompt.n_bytes / 2, abs=16)
    assert torch.equal(load_prompt(whole, model).vectors, prompt.vectors)
    assert torch.equal(load_prompt(half, model).vectors, prompt.vectors.half().float())
    assert load_file(whole)["vectors"].shape == (20, 48)
    assert 20 * 576 * 4 == 46_080  # of the course's model


def test_a_save_that_fails_leaves_what_was_there(generator, tmp_path, monkeypatch):
    model, path = lively(), tmp_path / "prompt.safetensors"
    prompt = from_normal(model, 5, generator)
    before = save_prompt(prompt, path).read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("the disk is full")))
    with pytest.raises(OSError, match="full"):
        save_prompt(from_normal(model, 5, generator), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_files_that_are_no_prompt_of_this_model(generator, tmp_path):
    model, path = lively(), tmp_path / "prompt.safetensors"
    with pytest.raises(ValueError, match="not there"):
        load_prompt(path, model)
    save_prompt(from_normal(model, 5, generator), path)
    with pytest.raises(ValueError, match="embedding table"):
        load_prompt(path, lively(seed=4))
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match="cannot be read"):
        load_prompt(path, model)
    save_file({"vectors": torch.zeros(2, 48)}, path)
    with pytest.raises(ValueError, match="holds no soft prompt"):
        load_prompt(path, model)
    huge = SoftPrompt(vectors=torch.full((1, 48), 1e6), table=fingerprint(model))
    with pytest.raises(ValueError, match=r"up to 1e\+06, beyond"):
        save_prompt(huge, path, torch.float16)


def test_hard_prompts_are_their_tokens(tiny_tokenizer):
    assert tiny_tokenizer.convert_ids_to_tokens(hard_prompt(tiny_tokenizer, "c a a1").tolist()) == ["c", "a", "a1"]
    for nothing in ("", "  \n"):
        with pytest.raises(ValueError, match="has no words"):
            hard_prompt(tiny_tokenizer, nothing)


def test_the_two_sentences_differ():
    assert set(SENTENCES) == {"slides", "code"}
    assert all("weight matrix" in sentence for sentence in SENTENCES.values())
    assert SENTENCES["slides"].startswith("Please carefully")


def test_the_meaningless_control_is_as_long_and_drawn_by_seed(tiny_tokenizer):
    draws = [meaningless(tiny_tokenizer, 50, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert len(draws[0].unique()) == 50
    assert not set(draws[0].tolist()) & set(tiny_tokenizer.all_special_ids)
    with pytest.raises(ValueError, match="n=98 tokens"):
        meaningless(tiny_tokenizer, 98, torch.Generator())
