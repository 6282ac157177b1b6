"""Ratios of paired losses worked by hand, the grid of prompts and models, and the words near a vector."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from prompted_by_hand import ids_of, lively

from course_lib.prompts.initial import from_ids, from_normal
from course_lib.prompts.losses import prompted_window_losses
from course_lib.prompts.soft import SoftPrompt
from course_lib.prompts.transfer import paired_ratio, share_of_gain, transfer_grid
from course_lib.prompts.words import nearest_words


def test_a_paired_ratio_by_hand():
    # Differences −1 and −3: mean −2, s = √2, s / √2 = 1.
    found = paired_ratio([4.0, 6.0], [5.0, 9.0])
    assert found.value == pytest.approx(math.exp(-2))
    assert found.standard_error == pytest.approx(math.exp(-2))


def test_how_hard_a_window_is_drops_out():
    base = torch.tensor([1.0, 5.0, 9.0], dtype=torch.float64)
    found = paired_ratio(base - 0.1, base)
    assert found.value == pytest.approx(math.exp(-0.1))
    assert found.standard_error == pytest.approx(0, abs=1e-12)
    perplexities = (base - 0.1).exp().mean() / base.exp().mean()  # the same here, where all windows gain alike
    assert found.value == pytest.approx(perplexities.item(), rel=1e-6)
    only_hardest = base - torch.tensor([0.0, 0.0, 0.3])
    assert (only_hardest.exp().mean() / base.exp().mean()).item() < 0.75  # it alone decides the mean of perplexities
    assert paired_ratio(only_hardest, base).value == pytest.approx(math.exp(-0.1))


def test_a_share_of_gain_by_hand():
    # Own gains 1 and 3 are 2 ± 1: no more than two errors, so that there may be nothing to share.
    assert math.isnan(share_of_gain([4.5, 7.5], [4.0, 6.0], [5.0, 9.0]).value)
    # Own gains 2 and 2, foreign ones .5 and 1.5: a share of ½, and errors of the foreign gain / 2 = .5 / 2.
    found = share_of_gain([4.5, 7.5], [3.0, 7.0], [5.0, 9.0])
    assert (found.value, found.standard_error) == (pytest.approx(0.5), pytest.approx(0.25))


def test_a_share_beyond_what_any_model_gains_by_hand():
    # The dense model gains .5 in both windows: of 2 and 2 there are 1.5 and 1.5, of .5 and 1.5 there are 0 and 1.
    control = ([3.0, 4.0], [2.5, 3.5])
    found = share_of_gain([4.5, 7.5], [3.0, 7.0], [5.0, 9.0], control)
    assert (found.value, found.standard_error) == (pytest.approx(1 / 3), pytest.approx(0.5 / 1.5))
    # A prompt that does as much for the dense model leaves nothing of which a share could be told.
    assert math.isnan(share_of_gain([4.5, 7.5], [3.0, 7.0], [5.0, 9.0], ([5.0, 9.0], [3.0, 7.0])).value)


@given(st.floats(-2, 2), st.integers(0, 99))
def test_a_share_that_all_windows_agree_on_is_certain(share, seed):
    generator = torch.Generator().manual_seed(seed)
    base = 3 + torch.rand(6, generator=generator, dtype=torch.float64)
    gain = 1 + 0.1 * torch.rand(6, generator=generator, dtype=torch.float64)
    found = share_of_gain(base - share * gain, base - gain, base)
    assert found.value == pytest.approx(share, abs=1e-9)
    assert found.standard_error == pytest.approx(0, abs=1e-9)


def test_other_windows_are_refused():
    with pytest.raises(ValueError, match="losses of the same windows"):
        paired_ratio([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="losses of the same windows"):
        share_of_gain([1.0], [1.0, 2.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="losses of the same windows"):
        share_of_gain([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], ([1.0], [2.0]))


def pruned():
    model = lively()
    for block in model.model.layers:
        block.mlp.up_proj.weight.data[::2] = 0
    return model


def test_the_grid_pairs_every_prompt_with_every_model():
    windows, generator, loaded = ids_of(3, 9), torch.Generator().manual_seed(0), []
    prompts = {"words": from_ids(lively(), torch.tensor([5, 6])), "noise": from_normal(lively(), 3, generator)}

    def models():
        for name, make in (("dense", lively), ("half", pruned)):
            loaded.append(name)
            yield name, make()

    cells = transfer_grid(models(), prompts, windows, progress=False)
    assert loaded == ["dense", "half"]
    assert [(cell.model, cell.prompt) for cell in cells] == [
        (model, prompt) for model in ("dense", "half") for prompt in ("words", "noise")
    ]
    alone, with_noise = (prompted_window_losses(pruned(), p, windows, progress=False) for p in (None, prompts["noise"]))
    assert cells[3].base == tuple(alone.tolist())
    assert cells[3].prompted == tuple(with_noise.tolist())
    assert cells[3].ratio == paired_ratio(with_noise, alone)
    assert cells[0].base != cells[2].base


def test_a_grid_that_cannot_be():
    with pytest.raises(ValueError, match="got no prompts"):
        transfer_grid([("dense", lively())], {}, ids_of(2, 5))
    foreign = {"foreign": from_ids(lively(seed=9), torch.tensor([5]))}
    with pytest.raises(ValueError, match="embedding table"):
        transfer_grid([("dense", lively())], foreign, ids_of(2, 5))


@pytest.mark.parametrize("measure", ["cosine", "distance"])
def test_the_nearest_word_of_a_word_is_itself(measure, tiny_tokenizer):
    model = lively()
    found = nearest_words(model, tiny_tokenizer, from_ids(model, torch.tensor([7, 50])), k=2, measure=measure)
    assert [row[0].id for row in found] == [7, 50]
    assert found[0][0].token == tiny_tokenizer.decode([7])
    assert found[0][0].value == pytest.approx(1 if measure == "cosine" else 0, abs=1e-5)
    values = [near.value for near in found[1]]
    assert values == sorted(values, reverse=measure == "cosine")


def test_long_words_are_near_by_angle_and_far_by_distance(tiny_tokenizer):
    model = lively()
    table = model.get_input_embeddings().weight.data
    table[9] = 20 * table[8]
    prompt = from_ids(model, torch.tensor([8]))
    prompt = SoftPrompt(vectors=1.01 * prompt.vectors, table=prompt.table)
    by_angle, by_distance = (
        nearest_words(model, tiny_tokenizer, prompt, k=97, measure=measure)[0] for measure in ("cosine", "distance")
    )
    assert {near.id for near in by_angle[:2]} == {8, 9}
    assert (by_distance[0].id, by_distance[-1].id) == (8, 9)
    assert by_distance[0].value == pytest.approx(0.01 * table[8].norm().item(), rel=1e-3)


def test_words_that_cannot_be_asked_for(tiny_tokenizer):
    model = lively()
    prompt = from_ids(model, torch.tensor([8]))
    with pytest.raises(ValueError, match="k=98 words"):
        nearest_words(model, tiny_tokenizer, prompt, k=98)
    with pytest.raises(ValueError, match="embedding table"):
        nearest_words(lively(seed=3), tiny_tokenizer, prompt)
