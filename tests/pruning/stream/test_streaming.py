"""Pruning from file to file: as in memory, killed anywhere and resumed, within a memory limit, and what is refused."""

import errno
import json
import os
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from course_lib import discover
from course_lib.models import blocks, layers_of, load_model, tiny_model
from course_lib.pruning import methods
from course_lib.pruning.allocation.base import Uniform
from course_lib.pruning.allocation.one_ranking import OneRanking
from course_lib.pruning.allocation.owl import OWL
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.checks import PruningError
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.pruning.stream import run as stream
from course_lib.pruning.stream import safetensors_io
from course_lib.pruning.stream.reader import open_source
from course_lib.pruning.stream.run import prune_checkpoint
from course_lib.sparsity.patterns import NofM, Unstructured

WINDOWS = torch.randint(97, (5, 24), generator=torch.Generator().manual_seed(1))


def saved(folder, architecture="llama", dtype=torch.float32, shards="50MB"):
    """A checkpoint of a tiny model, and the model."""
    model = tiny_model(3, architecture).to(dtype)
    model.save_pretrained(folder, max_shard_size=shards)
    return model


def streamed(tmp_path, pruner=None, allocation=Uniform(), windows=WINDOWS, **more):  # noqa: B008, frozen
    source = open_source(tmp_path / "in")
    return prune_checkpoint(source, tmp_path / "out", pruner or Wanda(), windows, allocation, 0, progress=False, **more)


def same_weights(model, folder, dtype=torch.float32):
    got = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).state_dict()
    expected = model.state_dict()
    assert got.keys() == expected.keys()
    for name, weight in expected.items():
        assert got[name].dtype == dtype
        assert torch.equal(got[name], weight.to(dtype)), name


@pytest.mark.parametrize("shards", ["50MB", "30KB"], ids=["one file", "sharded"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3", "opt", "gpt2"])
def test_equals_pruning_in_memory_weight_for_weight(tmp_path, architecture, shards):
    model = saved(tmp_path / "in", architecture, shards=shards)
    assert (shards == "50MB") == (tmp_path / "in" / "model.safetensors").exists()
    report = streamed(tmp_path)
    expected = prune_model(model, Wanda(), WINDOWS, progress=False)
    same_weights(model, tmp_path / "out")
    assert report.sparsity == expected.sparsity
    assert report.total_sparsity == 0.5
    assert not list((tmp_path / "out").glob("unfinished*"))


@pytest.mark.parametrize(
    ("pruner", "allocation"),
    [
        (Magnitude(Unstructured(0.3)), OneRanking()),
        (Wanda(NofM(2, 4)), Uniform()),
        (Wanda(Unstructured(0.6, per="layer")), OWL(2.0)),
    ],
    ids=str,
)
def test_every_kind_of_method_and_allocation(tmp_path, pruner, allocation):
    model = saved(tmp_path / "in")
    report = streamed(tmp_path, pruner, allocation)
    expected = prune_model(model, pruner, WINDOWS, False, allocation)
    same_weights(model, tmp_path / "out")
    assert report.sparsity == expected.sparsity
    told = json.loads((tmp_path / "out" / "pruning.json").read_text())
    assert told["sparsity"] == report.sparsity
    assert told["method"] == repr(pruner)


@pytest.mark.parametrize("method", discover.subclasses(methods, LayerPruner), ids=lambda c: c.__name__)
def test_every_method_there_is(tmp_path, method):
    model = saved(tmp_path / "in")
    report = streamed(tmp_path, method())
    expected = prune_model(model, method(), WINDOWS, progress=False)
    same_weights(model, tmp_path / "out")
    assert report.notes == expected.notes


def test_batches_come_from_files_in_order(tmp_path, monkeypatch):
    from course_lib.pruning import block_inputs

    monkeypatch.setattr(block_inputs, "BATCH_TOKENS", 48)  # three batches, the last one smaller
    model = saved(tmp_path / "in")
    report = streamed(tmp_path)
    prune_model(model, Wanda(), WINDOWS, progress=False)
    same_weights(model, tmp_path / "out")
    assert report.bytes["activations"] < WINDOWS.numel() * 48 * 4 * 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_checkpoints_keep_their_type_and_are_pruned_as_load_model_loads_them(tmp_path, dtype):
    saved(tmp_path / "in", dtype=dtype)
    streamed(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "in", dtype=torch.float32)
    prune_model(model.eval(), Wanda(), WINDOWS, progress=False)
    same_weights(model, tmp_path / "out", dtype)


def test_names_without_the_models_prefix_and_tensors_that_the_model_does_not_use(tmp_path):
    """As the checkpoints of GPT-2 on the hub are."""
    from safetensors.torch import load_file, save_file

    model = saved(tmp_path / "in", "gpt2")
    path = tmp_path / "in" / "model.safetensors"
    weights = {name.removeprefix("transformer."): weight for name, weight in load_file(path).items()}
    save_file(weights | {"h.1.attn.bias": torch.ones(1, 1, 5, 5)}, path, metadata={"format": "pt"})
    streamed(tmp_path)
    prune_model(model, Wanda(), WINDOWS, progress=False)
    same_weights(model, tmp_path / "out")
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())["weight_map"]
    assert index.keys() == weights.keys() | {"h.1.attn.bias"}


def test_a_head_of_its_own_is_kept(tmp_path):
    model = saved(tmp_path / "in", "qwen2")
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    streamed(tmp_path)
    prune_model(model, Wanda(), WINDOWS, progress=False)
    same_weights(model, tmp_path / "out")


@pytest.mark.parametrize("family", ["GemmaConfig", "Gemma2Config", "Gemma3TextConfig", "Gemma4TextConfig"])
def test_an_embedding_with_a_buffer_keeps_its_tie_and_takes_no_memory(tmp_path, family):
    """Gemma scales its embedding by a buffer; Gemma 4 also stores a factor of each block, which is no parameter."""
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2}
    sizes |= {"head_dim": 8, "intermediate_size": 100, "vocab_size": 97, "max_position_embeddings": 256}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(getattr(transformers, family)(**sizes, pad_token_id=0)).eval()
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.fill_(0.5)
    model.save_pretrained(tmp_path / "in")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "in", dtype=torch.float32)
    empty = stream.Skeleton(open_source(tmp_path / "in"), torch.device("cpu")).model
    assert empty.lm_head.weight is empty.get_input_embeddings().weight
    assert all(parameter.is_meta for parameter in empty.parameters())
    streamed(tmp_path)
    prune_model(model, Wanda(), WINDOWS, progress=False)
    same_weights(model, tmp_path / "out")


IGNORE = {
    "the first of a group": ["*.self_attn.q_proj"],
    "a whole group and one layer": ["*.self_attn.[qkv]_proj", "blocks.1.mlp.down_proj"],
    "the first block": ["blocks.0.*"],
    "the last block": ["blocks.1.*"],
}


@pytest.mark.parametrize(
    ("allocation", "pruner"),
    [
        (Uniform(), Wanda(Unstructured(0.3, per="layer"))),
        (OneRanking(), Magnitude(Unstructured(0.3))),
        (OWL(2.0), Wanda(Unstructured(0.3, per="layer"))),
    ],
    ids=["uniform", "one ranking", "OWL"],
)
@pytest.mark.parametrize("ignore", IGNORE.values(), ids=IGNORE)
def test_ignored_layers_stay_dense_in_memory_and_from_file_to_file(tmp_path, ignore, allocation, pruner):
    model, dense = saved(tmp_path / "in"), tiny_model(3)
    source = open_source(tmp_path / "in")
    streamed = prune_checkpoint(source, tmp_path / "out", pruner, WINDOWS, allocation, progress=False, ignore=ignore)
    report = prune_model(model, pruner, WINDOWS, False, allocation, ignore)
    same_weights(model, tmp_path / "out")
    ignored = [layer for layer in layers_of(model) if any(fnmatch(layer.name, pattern) for pattern in ignore)]
    for layer, before in zip(layers_of(model), layers_of(dense), strict=True):
        unchanged = torch.equal(layer.module.weight, before.module.weight)
        assert unchanged == (layer.name in {other.name for other in ignored}), layer.name
        assert (layer.name in report.sparsity) != unchanged
    assert streamed.n_ignored == report.n_ignored == len(ignored)
    assert streamed.sparsity == report.sparsity
    assert report.total_sparsity == pytest.approx(0.3, abs=2e-4)  # rounded to whole weights


def test_ignoring_the_first_of_a_group_leaves_what_the_others_read_as_it_was():
    some, every = tiny_model(3), tiny_model(3)
    prune_model(some, Wanda(), WINDOWS, False, ignore=["*.q_proj"])
    prune_model(every, Wanda(), WINDOWS, False)
    for part in ("k_proj", "v_proj"):  # of the first block, whose inputs are the same
        weights = [blocks(model)[0].self_attn.get_submodule(part).weight for model in (some, every)]
        assert torch.equal(*weights)


@pytest.mark.parametrize(
    ("ignore", "message"),
    [
        (["*.fc1"], r"got the pattern '\*.fc1' for layers to leave dense, which matches none; .*'\*.mlp.down_proj'"),
        (["*"], r"got \*, which leaves all layers dense"),
        ("*.mlp.*", r"got ignore='\*.mlp.\*'; expected a list of patterns"),
    ],
)
def test_a_pattern_that_ignores_nothing_or_all_is_refused(tmp_path, ignore, message):
    model = saved(tmp_path / "in")
    with pytest.raises(ValueError, match=message):
        prune_model(model, Wanda(), WINDOWS, False, ignore=ignore)
    with pytest.raises(ValueError, match=message):
        prune_checkpoint(open_source(tmp_path / "in"), tmp_path / "out", Wanda(), WINDOWS, ignore=ignore)
    assert not (tmp_path / "out").exists()


def test_a_pattern_that_does_not_fit_says_how_to_ignore_such_layers():
    with pytest.raises(ValueError, match=r"does not fit blocks.0.mlp.down_proj .* --ignore '\*.mlp.down_proj'"):
        prune_model(tiny_model(3), Wanda(NofM(4, 16)), WINDOWS, False)


def test_configuration_and_tokenizer_come_along(tmp_path, tiny_tokenizer):
    saved(tmp_path / "in")
    tiny_tokenizer.save_pretrained(tmp_path / "in")
    (tmp_path / "in" / "LICENSE").write_text("free")
    (tmp_path / "in" / "pytorch_model.bin").write_text("another copy of the weights")
    streamed(tmp_path)
    for path in (tmp_path / "in").iterdir():
        if path.name not in ("model.safetensors", "pytorch_model.bin"):
            assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert not (tmp_path / "out" / "pytorch_model.bin").exists()
    assert load_model(str(tmp_path / "out"), device="cpu")[1]("a b").input_ids


# Runs in one process of its own: forks a child that dies at its n-th fsync, by a signal that nothing can catch, then
# one that goes on; until a child finishes. Forking is safe there because torch has not started a thread.
KILLED_EVERYWHERE = """
import hashlib, os, shutil, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from course_lib.pruning.allocation.owl import OWL
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.stream.run import prune_checkpoint
from course_lib.pruning.stream.reader import open_source
from course_lib.sparsity.patterns import Unstructured
folder = Path(sys.argv[1])
windows = torch.arange(120).reshape(5, 24) % 97

def in_a_child(out, die_at):
    child = os.fork()
    if child == 0:
        fsync, calls = os.fsync, [0]
        def deadly(handle):
            calls[0] += 1
            if calls[0] == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            fsync(handle)
        os.fsync = deadly
        try:
            pruner = Wanda(Unstructured(0.5, per="layer"))
            prune_checkpoint(open_source(folder / "in"), out, pruner, windows, OWL(2.0), 0, progress=False)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(3)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def digests(out):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in out.iterdir() if p.name != "pruning.json"}

assert in_a_child(folder / "whole", 0) == 0
expected = digests(folder / "whole")
# Each file is synced and then its folder, before and after it gets its name: 1, 4, 5, 8, 9, ... meets both by turns.
for n in (x for x in range(1, 1000) if x % 4 < 2):
    out = folder / f"killed-{n}"
    code = in_a_child(out, n)
    if code == 0:
        break
    assert code == -signal.SIGKILL, (n, code)
    assert not (out / "model.safetensors.index.json").exists() or not list(out.glob("*.part")), n
    assert in_a_child(out, 0) == 0, n
    assert digests(out) == expected, n
    shutil.rmtree(out)
print("killed at", n)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_killed_at_any_moment_it_goes_on_and_ends_the_same(tmp_path):
    saved(tmp_path / "in", shards="30KB")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", KILLED_EVERYWHERE, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(run.stdout.split()[-1]) > 20


class StopsAt(Wanda):
    """Works until its tenth layer, the third of the second block."""

    calls = 0

    def prune(self, weight, inputs):
        type(self).calls += 1
        if self.calls == 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().prune(weight, inputs)


@pytest.fixture
def stopped(tmp_path):
    """A run that stopped in its second block."""
    model = saved(tmp_path / "in")
    StopsAt.calls = 0
    message = r"stopped at blocks.1.self_attn.v_proj, after 7 layers.*No space left.*give the same command again"
    with pytest.raises(PruningError, match=message):
        streamed(tmp_path, StopsAt())
    return model


def test_what_is_finished_is_not_done_again(tmp_path, stopped):
    first = tmp_path / "out" / "model-00001-of-00003.safetensors"
    written = first.stat().st_mtime_ns
    report = streamed(tmp_path, StopsAt())
    assert first.stat().st_mtime_ns == written
    assert StopsAt.calls == 10 + 7
    assert len(report.sparsity) == 14
    prune_model(stopped, Wanda(), WINDOWS, progress=False)
    same_weights(stopped, tmp_path / "out")


def test_a_finished_file_that_is_gone_is_said_before_going_on(tmp_path, stopped):
    (tmp_path / "out" / "model-00001-of-00003.safetensors").unlink()
    with pytest.raises(ValueError, match="lacks model-00001-of-00003.safetensors, which an earlier run wrote.*Remove"):
        streamed(tmp_path, StopsAt())
    assert (tmp_path / "out" / "unfinished" / "state.json").is_file()


def test_hidden_states_that_are_gone_are_not_promised_to_come_back(tmp_path, stopped):
    for path in (tmp_path / "out" / "unfinished").rglob("*.pt"):
        path.unlink()
    for path in (tmp_path / "out" / "unfinished").rglob("*.safetensors"):
        path.unlink()
    with pytest.raises(PruningError, match=r"Remove .*out and give the command again\.$"):
        streamed(tmp_path, StopsAt())


def test_nothing_loads_before_the_end(tmp_path, stopped):
    with pytest.raises(ValueError, match="Unrecognized model"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "out")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"pruner": StopsAt(NofM(2, 4))}, r"begun with method StopsAt\(pattern=Unstructured.*this one has .*NofM"),
        ({"pruner": Wanda()}, r"begun with method StopsAt.*this one has Wanda"),
        ({"allocation": OWL()}, r"begun with allocation Uniform\(\), this one has OWL"),
        ({"windows": WINDOWS[:3]}, "begun with windows 5 x 24, this one has 3 x 24"),
        ({"windows": WINDOWS.flip(0)}, "begun with tokens"),
        ({"ignore": ["*.q_proj"]}, r"begun with ignore None, this one has \*.q_proj"),
    ],
    ids=["pattern", "method", "allocation", "windows", "tokens", "ignore"],
)
def test_other_settings_do_not_go_on_with_it(tmp_path, stopped, changed, said):
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.safetensors")}
    with pytest.raises(ValueError, match=said + ".*Finish it with the settings that it was begun with, or give a new"):
        streamed(tmp_path, **({"pruner": StopsAt()} | changed))
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.safetensors")}


def test_a_checkpoint_that_changed_meanwhile_is_another_one(tmp_path, stopped):
    os.utime(tmp_path / "in" / "model.safetensors", ns=(1, 1))
    with pytest.raises(ValueError, match="begun with checkpoint"):
        streamed(tmp_path, StopsAt())


def test_a_state_that_cannot_be_read_is_said(tmp_path, stopped):
    (tmp_path / "out" / "unfinished" / "state.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read as the state of a run; remove"):
        streamed(tmp_path, StopsAt())


def test_two_runs_never_write_into_one_folder(tmp_path, stopped):
    from filelock import FileLock

    with (
        FileLock(tmp_path / "out" / "unfinished" / "lock"),
        pytest.raises(ValueError, match="another run is writing to"),
    ):
        streamed(tmp_path, StopsAt())
    streamed(tmp_path, StopsAt())


def test_a_full_disk_is_said_and_leaves_no_half_files(tmp_path, monkeypatch):
    model, calls = saved(tmp_path / "in"), [0]

    def full(handle):
        calls[0] += 1
        if calls[0] == 9:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(safetensors_io.os, "fsync", full)
    with pytest.raises(PruningError, match="OSError.*No space left on device.*Finished blocks are kept"):
        streamed(tmp_path)
    assert not list(tmp_path.rglob("*.part"))
    streamed(tmp_path)
    prune_model(model, Wanda(), WINDOWS, progress=False)
    same_weights(model, tmp_path / "out")


def spoil_nan(folder, part):
    model = tiny_model(3)
    model.get_submodule(part).weight.data[1] = torch.nan
    model.save_pretrained(folder)


def cut(path, n_bytes):
    path.write_bytes(path.read_bytes()[:n_bytes])


def without(folder, key):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights[key]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def stored_as(folder, dtype):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.mlp.up_proj.weight"] = weights["model.layers.0.mlp.up_proj.weight"].to(dtype)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def config(folder, **changed):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


SPOILT = {
    "nan in the embedding": (lambda f: spoil_nan(f, "model.embed_tokens"), "48 NaN .* in model.embed_tokens.weight"),
    "nan in a late block": (lambda f: spoil_nan(f, "model.layers.1.mlp.up_proj"), "NaN .* model.layers.1.mlp.up_proj"),
    "cut short": (lambda f: cut(f / "model.safetensors", 9000), "bytes, its header says .*; fetch or copy it again"),
    "cut in the header": (lambda f: cut(f / "model.safetensors", 90), "no safetensors file, or is cut short; fetch"),
    "empty": (lambda f: cut(f / "model.safetensors", 0), "no safetensors file, or is cut short"),
    "another kind": (
        lambda f: (f / "model.safetensors").write_bytes((9).to_bytes(8, "little") + b"no json at all"),
        "its header is no JSON",
    ),
    "a weight lacks": (
        lambda f: without(f, "model.layers.1.mlp.up_proj.weight"),
        "lacks model.layers.1.mlp.up_proj.weight; expected every weight",
    ),
    "no embedding": (lambda f: without(f, "model.embed_tokens.weight"), "lacks model.embed_tokens.weight"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "neither model.safetensors nor .* save_pretrained"),
    "no index": (
        lambda f: (f / "model.safetensors").rename(f / "model-00001-of-00001.safetensors"),
        r"has no model.safetensors.index.json, .*model-00001-of-00001.safetensors\).*Fetch it from where",
    ),
    "an adapter": (
        lambda f: [(f / "adapter_config.json").write_text("{}"), (f / "config.json").unlink()],
        "holds an adapter .*merge_and_unload",
    ),
    "another name": (
        lambda f: (f / "model.safetensors").rename(f / "consolidated.safetensors"),
        "neither model.safetensors nor .* save_pretrained",
    ),
    "an index of numbers": (
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": 3}}'),
        "names the file 3; expected files next to it",
    ),
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json; expected a folder"),
    "a config cut short": (lambda f: (f / "config.json").write_text('{"a": 1'), r"config.json is no valid JSON \(Exp"),
    "a config of bytes": (lambda f: (f / "config.json").write_bytes(b"\xff{}"), r"config.json is no valid JSON \('utf"),
    "a list as config": (lambda f: (f / "config.json").write_text("[1]"), "config.json holds a list; expected names"),
    "an empty index": (lambda f: (f / "model.safetensors.index.json").write_text("{}"), "json has no weight_map"),
    "integers": (lambda f: stored_as(f, torch.int8), "up_proj.weight is torch.int8; expected float32, bfloat16 or"),
    "eight bits": (lambda f: stored_as(f, torch.float8_e4m3fn), "stored as F8_E4M3; expected float32"),
    "quantised": (lambda f: config(f, quantization_config={"quant_method": "gptq"}), "holds a quantised model"),
    "other sizes": (lambda f: config(f, intermediate_size=104), r"has shape \(100, 48\), the model .* \(104, 48\)"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_checkpoint_that_cannot_be_pruned_is_refused_and_nothing_is_left_behind(tmp_path, name):
    spoil, message = SPOILT[name]
    saved(tmp_path / "in")
    spoil(tmp_path / "in")
    with pytest.raises(ValueError, match=message):
        streamed(tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_place_where_no_folder_can_be_is_refused_in_words(tmp_path):
    saved(tmp_path / "in")
    source = open_source(tmp_path / "in")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        ValueError, match=r"file/a/out lies below .*file, which is a file; .* Give a new folder elsewhe"
    ):
        prune_checkpoint(source, tmp_path / "file" / "a" / "out", Wanda(), WINDOWS, progress=False)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder in which the system makes none")
def test_a_folder_that_the_system_refuses_is_refused_in_words(tmp_path):
    saved(tmp_path / "in")
    with pytest.raises(ValueError, match=r"/proc/nothing/unfinished cannot be made \(No such file.* Give a new folder"):
        prune_checkpoint(open_source(tmp_path / "in"), Path("/proc/nothing"), Wanda(), WINDOWS, progress=False)


def test_a_shard_that_lacks_is_named(tmp_path):
    saved(tmp_path / "in", shards="30KB")
    index = json.loads((tmp_path / "in" / "model.safetensors.index.json").read_text())["weight_map"]
    first = tmp_path / "in" / index["model.layers.1.mlp.up_proj.weight"]
    shutil.copy(first, tmp_path / "kept")
    first.unlink()
    with pytest.raises(ValueError, match=f"{first.name} is missing; expected all files"):
        streamed(tmp_path)
    shutil.copy(tmp_path / "in" / index["model.norm.weight"], first)
    with pytest.raises(ValueError, match=f"{first.name} lacks model.layers.* places there"):
        streamed(tmp_path)


def test_an_index_beside_a_single_file_that_it_does_not_name_is_refused(tmp_path):
    """from_pretrained would load the single file, so the perplexity before and after would be of two models."""
    saved(tmp_path / "in", shards="30KB")
    tiny_model(4).save_pretrained(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "model.safetensors", tmp_path / "in")
    with pytest.raises(ValueError, match=r"names other files, and model.safetensors too: .*Move the one"):
        streamed(tmp_path)
    assert not (tmp_path / "out").exists()


def test_an_index_of_the_single_file_is_no_second_model(tmp_path):
    saved(tmp_path / "in")
    keys = open_source(tmp_path / "in").keys
    index = {"weight_map": dict.fromkeys(keys, "model.safetensors")}
    (tmp_path / "in" / "model.safetensors.index.json").write_text(json.dumps(index))
    assert streamed(tmp_path).total_sparsity == 0.5


def test_bad_arguments_are_refused_as_in_memory(tmp_path):
    saved(tmp_path / "in")
    with pytest.raises(ValueError, match=r"NofM\(n=3, m=7\) does not fit blocks.0.self_attn.q_proj"):
        streamed(tmp_path, Wanda(NofM(3, 7)))
    with pytest.raises(ValueError, match="expected 0 to 96"):
        streamed(tmp_path, windows=WINDOWS + 50)
    with pytest.raises(ValueError, match="with a sparsity to vary"):
        streamed(tmp_path, Wanda(NofM(2, 4)), OWL())
    assert not (tmp_path / "out").exists()


def test_a_folder_with_anything_in_it_stays_as_it_is(tmp_path):
    saved(tmp_path / "in")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is there already and not an empty folder"):
        streamed(tmp_path)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_a_block_holds_weights_only_while_it_is_used(tmp_path):
    saved(tmp_path / "in")
    skeleton = stream.Skeleton(open_source(tmp_path / "in"), torch.device("cpu"))
    assert all(p.is_meta for p in skeleton.model.parameters())
    with skeleton.block(1) as block:
        assert block is blocks(skeleton.model)[1]
        assert not any(p.is_meta for p in block.parameters())
        assert all(p.is_meta for p in blocks(skeleton.model)[0].parameters())
    with skeleton.embedded() as model:
        assert not model.model.embed_tokens.weight.is_meta
    assert all(p.is_meta for p in skeleton.model.parameters())


# 240 MB of weights in 20 blocks, with room for 96 MB more than Python and torch take by themselves.
LIMITED = """
import json, resource, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.pruning.stream.run import prune_checkpoint
from course_lib.pruning.stream.reader import open_source
from course_lib.models import tiny_model
source, out, room = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
windows = torch.arange(256).reshape(2, 128) % 97
prune_model(tiny_model(), Wanda(), windows, progress=False)  # what is loaded or allocated once, is now
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
limit = 1024 * int(status["VmData"].split()[0]) + room
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = prune_checkpoint(open_source(source), out, Wanda(), windows, progress=False)
grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
total = sum(path.stat().st_size for path in source.glob("*.safetensors"))
try:
    kept = torch.ones(total, dtype=torch.uint8)
    holds = False
except RuntimeError:
    holds = True
print(json.dumps({"total": total, "grown": grown, "holds": holds, "sparsity": report.total_sparsity}))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory limit is Linux's")
def test_a_checkpoint_larger_than_the_memory_it_may_use(tmp_path, generator):
    from transformers import LlamaConfig

    size = {"hidden_size": 512, "intermediate_size": 1280, "num_attention_heads": 8, "vocab_size": 97}
    config = LlamaConfig(**size, num_hidden_layers=20, max_position_embeddings=256)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    (tmp_path / "in").mkdir()
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(tmp_path / "in")
    safetensors_io.write(tmp_path / "in" / "model.safetensors", dict(model.state_dict()))
    del model
    room = 96 * 2**20
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "in"), str(tmp_path / "out"), str(room)]
    run = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    said = json.loads(run.stdout.splitlines()[-1])

    assert said["total"] > 2.3 * room
    assert said["grown"] < room
    assert said["holds"], "the limit was none"
    assert said["sparsity"] == 0.5
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] > 2.3 * room
