"""Compressed models: what is stored comes back, bytes are counted from it, and a file is sound or made again."""

from dataclasses import replace

import pytest
import torch
from prompted_by_hand import ids_of, lively

from course_lib.measure.perplexity import window_losses
from course_lib.models import layers_of, weight_of
from course_lib.prompts.compressed import files, store
from course_lib.prompts.compressed.catalogue import CATALOGUE, named
from course_lib.prompts.compressed.kinds import Cut, Layerwise
from course_lib.prompts.compressed.layouts import Codes, Grouped, Halves, NonZeroCodes, NonZeros
from course_lib.prompts.compressed.store import compressed, dense, load_compressed
from course_lib.prompts.initial import from_ids
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.structured.shape import n_parameters, shape_of
from course_lib.quantization.grid import Quantization, before_rounding
from course_lib.quantization.storage import dense_bytes, sparse_bytes
from course_lib.sparsity.footprint import sparsity_report
from course_lib.sparsity.patterns import NofM, Unstructured
from course_lib.sparsity.sizes import bitmap_bytes, nofm_bytes

WANDA = Layerwise(Wanda(Unstructured(0.5, per="row")))


def drawn(rows, columns, sparse=False, seed=0):
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    return weight * NofM(2, 4).keep(weight.abs()) if sparse else weight


def bytes_of(stored):
    return sum(part.nbytes for part in stored.values())


def on_tiny(name):
    """The compression of that name, for a model of two blocks."""
    compression = named(name)
    return replace(compression, depth=0.5, share=0.4) if isinstance(compression, Cut) else compression


@pytest.mark.parametrize("shape", [(8, 64), (5, 100)])
@pytest.mark.parametrize("bits", [2, 3, 4])
def test_codes_come_back_and_take_the_bytes_of_the_formula(shape, bits):
    layout, weight = Codes(Quantization(bits, 64)), drawn(*shape)
    stored = layout.encode(weight, weight)
    assert bytes_of(stored) == dense_bytes(*shape, bits, 64)
    back = layout.decode(stored, shape)
    step = (weight.max() - weight.min()) / (2**bits - 1)
    assert (back - weight).abs().max() <= step  # half a step, and as much again where zero moves the grid
    torch.testing.assert_close(layout.decode(layout.encode(back, weight), shape), back)


@pytest.mark.parametrize("shape", [(8, 64), (5, 100)])
@pytest.mark.parametrize("bits", [2, 3, 4])
def test_codes_of_what_is_not_zero_take_the_bytes_of_the_formula(shape, bits):
    layout, before, weight = NonZeroCodes(Quantization(bits, 64)), drawn(*shape), drawn(*shape, sparse=True)
    stored = layout.encode(weight, before)
    back = layout.decode(stored, shape)
    assert bytes_of(stored) == sparse_bytes(*shape, int((back != 0).sum()), bits, 64)
    assert not back[weight == 0].any()
    torch.testing.assert_close(
        back, Codes(layout.quantization).decode(Codes(layout.quantization).encode(weight, before), shape)
    )


def test_a_row_of_half_and_four_bits_by_hand():
    # Grid: 0 to 15 in steps of 1. Three codes of four bits, one bit each for eight, two starts, a scale, a zero.
    weight = torch.tensor([[0.0, 15, 0, 3, 0, 0, 8.2, 0]])
    stored = NonZeroCodes(Quantization(4)).encode(weight, weight)
    assert stored["codes_0"].tolist() == [[15 + 3 * 16, 8]]
    assert stored["bitmap"].tolist() == [[2 + 8 + 64]]
    assert bytes_of(stored) == 2 + 1 + 2 * 4 + 2 + 1
    assert NonZeroCodes(Quantization(4)).decode(stored, (1, 8)).tolist() == [[0, 15, 0, 3, 0, 0, 8, 0]]


def test_sixteen_bits_with_a_bitmap_or_places():
    weight = drawn(8, 64, sparse=True)
    for layout, n_bytes in ((NonZeros(), bitmap_bytes(8, 64, 256, 2)), (Grouped(2, 4), nofm_bytes(8, 64, 2))):
        stored = layout.encode(weight, weight)
        assert bytes_of(stored) == n_bytes
        assert torch.equal(layout.decode(stored, (8, 64)), weight.half().float())
    assert bytes_of(Halves().encode(weight, weight)) == 2 * 8 * 64


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_compressed_model_comes_back(name, tmp_path):
    model, ids, compression = lively(), ids_of(4, 12), on_tiny(name)
    found = load_compressed(name, compression, model, ids, tmp_path, progress=False)
    made, _ = compression.compress(model, ids, progress=False)
    losses = [window_losses(each, ids, progress=False) for each in (found.model, made, model)]
    # Stored in half precision: three digits of a weight. On these random weights compression moves a loss by far more.
    torch.testing.assert_close(losses[0], losses[1], atol=5e-3, rtol=0)
    assert (losses[2] - losses[1]).abs().max() > 5e-3
    assert found.n_bytes < dense(model).n_bytes
    assert found.n_bytes == found.weight_bytes + 2 * found.n_others
    assert found.made["compression"] == repr(compression)
    from_ids(model, torch.tensor([5])).check(found.model)  # its prompts go with it


def test_bytes_of_a_pruned_model_by_formula(tmp_path):
    model = lively()
    found = load_compressed("x", WANDA, model, ids_of(4, 12), tmp_path, progress=False)
    weights = [weight_of(layer.module) for layer in layers_of(found.model)]
    assert found.weight_bytes == sum(bitmap_bytes(*w.shape, int((w != 0).sum()), 2) for w in weights)
    n_all = sum(parameter.numel() for parameter in model.parameters())
    assert found.n_others == n_all - sum(w.numel() for w in weights)
    assert dense(model).n_bytes == 2 * n_all
    assert sparsity_report(found.model).sparsity == pytest.approx(0.5, abs=0.02)  # rows of odd length


@pytest.fixture
def stored(tmp_path):
    """A compressed model on the disk, and how to ask for it again: the number of times that it was made."""
    made = []

    class Counted(Layerwise):
        def compress(self, *args):
            made.append(1)
            return super().compress(*args)

    def ask(pruner=WANDA.pruner, seed=0):
        load_compressed("x", Counted(pruner), lively(seed=seed), ids_of(4, 12), tmp_path, progress=False)
        return len(made)

    ask()
    return tmp_path / "x.safetensors", ask


def test_a_sound_file_is_read(stored):
    assert stored[1]() == 1


@pytest.mark.parametrize("harm", ["cut", "altered", "nothing", "no safetensors"])
def test_a_harmed_file_is_made_again(stored, harm):
    path, ask = stored
    sound = path.read_bytes()
    harmed = {"cut": sound[:-9], "altered": sound[:-9] + bytes([sound[-9] ^ 1]) + sound[-8:], "nothing": b""}
    path.write_bytes(harmed.get(harm, b"something else altogether"))
    assert ask() == 2
    assert path.read_bytes()[8:][-64:] == sound[8:][-64:]
    assert ask() == 2


def test_another_recipe_or_model_is_made_anew(stored):
    _, ask = stored
    assert ask(Wanda(Unstructured(0.625, per="row"))) == 2
    assert ask(Wanda(Unstructured(0.625, per="row")), seed=1) == 3


def test_a_recipe_is_the_same_with_any_number_of_threads(real_model):
    n, ids, found = torch.get_num_threads(), ids_of(2, 5), set()
    try:
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            found.add(store.recipe_of(WANDA, real_model[0], ids))
    finally:
        torch.set_num_threads(n)
    assert len(found) == 1


def test_a_run_killed_while_writing_leaves_nothing(stored, monkeypatch):
    path, ask = stored
    path.unlink()

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            ask()
    assert [each.name for each in path.parent.iterdir() if each.suffix != ".lock"] == []
    assert ask() == 3


def test_a_cut_keeps_as_many_neurons_as_the_share_pays_for():
    model = lively()
    now = shape_of(model)
    linears = sum(weight_of(layer.module).numel() for layer in layers_of(model))
    most = n_parameters(model, now) - linears + 0.45 * linears
    shape = Cut(depth=0.5, share=0.45).shape(model)
    assert (shape.blocks, shape.width) == (1, now.width)
    assert n_parameters(model, shape) <= most
    assert shape.neurons == now.neurons or n_parameters(model, replace(shape, neurons=shape.neurons + 1)) > most
    with pytest.raises(ValueError, match="not even one neuron fits"):
        Cut(depth=1.0, share=0.01).shape(model)


def test_an_unknown_model_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match="expected one of wanda-50, "):
        named("wanda-51")


@pytest.mark.parametrize("group", [64, None])
def test_the_origin_of_the_weights_does_not_favour_the_grids(real_model, group):
    """Rounding the weights of the 4-bit file loses as much as rounding them with the lost half steps drawn anew."""
    weight = weight_of(layers_of(real_model[0])[104].module)
    anew = before_rounding(weight, 32, 4, torch.Generator().manual_seed(0))
    errors = [float((Quantization(4, group).grid(w).round(w) - w).norm() / w.norm()) for w in (weight, anew)]
    assert errors[0] == pytest.approx(errors[1], rel=0.02)


def test_the_dense_model_counts_in_sixteen_bits(real_model):
    found = compressed("dense")
    assert (found.weight_bytes, found.n_bytes) == (2 * 106_168_320, 2 * 134_515_008)
