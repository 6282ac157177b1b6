"""Safetensors files in pieces, held against the library that defines them."""

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from course_lib.pruning.stream.safetensors_io import TYPES, places, whole, write


def tensors(generator):
    values = torch.randint(-5, 5, (3, 4), generator=generator)
    found = {str(dtype).removeprefix("torch."): values.to(dtype) for dtype in TYPES.values()}
    return found | {"scalar": torch.tensor(2.5), "none": torch.ones(0, 4), "strided": torch.arange(6.0).view(2, 3).T}


def test_the_library_reads_what_is_written(tmp_path, generator):
    expected = tensors(generator)
    write(tmp_path / "a.safetensors", expected)
    got = load_file(tmp_path / "a.safetensors")
    assert got.keys() == expected.keys()
    assert all(got[name].dtype == t.dtype and torch.equal(got[name], t) for name, t in expected.items())
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_what_the_library_writes_is_read(tmp_path, generator):
    expected = {name: tensor.contiguous() for name, tensor in tensors(generator).items()}
    save_file(expected, tmp_path / "a.safetensors", metadata={"format": "pt", "more": "words"})
    got = places(tmp_path / "a.safetensors")
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (got[name].dtype, got[name].shape, got[name].n_bytes) == (tensor.dtype, tensor.shape, tensor.nbytes)
        assert torch.equal(got[name].read(), tensor)


def test_tensors_are_copied_from_one_file_to_another(tmp_path, generator):
    save_file({"x": torch.ones(2), "y": torch.arange(5)}, tmp_path / "a.safetensors")
    write(tmp_path / "b.safetensors", {"y": places(tmp_path / "a.safetensors")["y"], "z": torch.zeros(3)})
    assert load_file(tmp_path / "b.safetensors")["y"].tolist() == [0, 1, 2, 3, 4]


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    (tmp_path / "a").write_text("before")
    with pytest.raises(TypeError), whole(tmp_path / "a") as file:
        file.write([file.write(b"half")])
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "before"


def test_a_file_that_shrinks_while_it_is_read_is_noticed(tmp_path):
    save_file({"x": torch.ones(100)}, tmp_path / "a.safetensors")
    place = places(tmp_path / "a.safetensors")["x"]
    (tmp_path / "a.safetensors").write_bytes((tmp_path / "a.safetensors").read_bytes()[:-4])
    with pytest.raises(ValueError, match="ends in the middle of its data"):
        place.read()
