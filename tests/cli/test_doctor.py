"""The doctor says what is wrong, what to do, and keeps going when a check itself breaks."""

import io
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from course_lib.cli import doctor, doctor_checks
from course_lib.cli.doctor_checks import Row
from course_lib.measure import machine
from course_lib.models import tiny_model


def ask(monkeypatch, *checks, width=160):
    """(exit code, printed text) of a doctor with only these checks."""
    monkeypatch.setattr(doctor, "CHECKS", checks)
    console = Console(file=io.StringIO(), width=width)
    return doctor.run(console), console.file.getvalue()


def test_all_well_is_exit_code_zero_and_no_column_of_remedies(monkeypatch):
    code, said = ask(monkeypatch, ("a", lambda: Row("a", "ok", "fine"), ""))
    assert code == 0
    assert "what to do" not in said
    assert "ready" in said


def test_a_warning_shows_its_remedy_and_is_no_error(monkeypatch):
    code, said = ask(monkeypatch, ("disk", lambda: Row("disk", "warning", "full", "Make room."), ""))
    assert code == 0
    assert "Make room." in said


def test_a_long_path_is_not_cut_at_80_columns(monkeypatch):
    path = "/home/student/" + "x" * 70
    _, said = ask(monkeypatch, ("cache", lambda: Row("cache", "warning", path, "Make room."), ""), width=80)
    assert "…" not in said
    assert said.count("x") >= 70


def test_an_error_is_exit_code_one(monkeypatch):
    code, said = ask(monkeypatch, ("cache", lambda: Row("cache", "error", "empty", "Run `course setup`."), ""))
    assert code == 1
    assert "Run `course setup`." in said
    assert "ready" not in said


def test_a_check_that_raises_becomes_a_row_and_the_others_still_come(monkeypatch):
    def broken():
        raise RuntimeError("no [driver] here\nsecond line")

    fine = ("b", lambda: Row("b", "ok", "still here"), "")
    code, said = ask(monkeypatch, ("GPU", broken, "Set CUDA_VISIBLE_DEVICES="), fine)
    assert code == 1
    assert "RuntimeError: no [driver] here" in said
    assert "second line" not in said
    assert "Set CUDA_VISIBLE_DEVICES=" in said
    assert "still here" in said


def test_an_empty_cache_names_every_asset_and_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "nowhere"))
    row = doctor_checks.check_cache()
    assert row.state == "error"
    assert all(asset.name in row.found for asset in doctor_checks.ASSETS)
    assert "course setup" in row.remedy


def test_a_full_disk_is_a_warning_even_before_the_cache_exists(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "not" / "yet"))
    monkeypatch.setattr(doctor_checks, "FREE_BYTES", 10**18)
    assert doctor_checks.check_disk().state == "warning"
    monkeypatch.setattr(doctor_checks, "FREE_BYTES", 0)
    assert doctor_checks.check_disk().state == "ok"


@pytest.mark.parametrize(
    ("threads", "cores", "state"), [(1, 8, "warning"), (8, 2, "warning"), (4, 8, "ok"), (2, 2, "ok")]
)
def test_threads(monkeypatch, threads, cores, state):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(doctor_checks.os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    assert doctor_checks.check_threads().state == state


def test_another_environments_kernel_is_an_error(monkeypatch, tmp_path):
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

    other = KernelSpec(argv=[str(tmp_path / "python"), "-m", "ipykernel_launcher"])
    monkeypatch.setattr(KernelSpecManager, "get_kernel_spec", lambda self, name: other)
    assert doctor_checks.check_kernelspec().state == "error"


def test_the_cheap_checks_of_this_machine_have_no_error():
    names = {"Python", "torch", "threads", "GPU", "triton", "JupyterLab", "kernelspec", "disk"}
    checks = [check for name, check, _ in doctor_checks.CHECKS if name in names]
    assert len(checks) == len(names)
    assert [row for row in (check() for check in checks) if row.state == "error"] == []


@pytest.mark.real
def test_the_real_model_row():
    row = doctor_checks.check_model()
    assert row.state == "ok"
    assert "loss 1.627" in row.found


def test_a_damaged_model_is_an_error_row(monkeypatch):
    def refuse(model, tokenizer):
        raise ValueError("the loss of the test sentence is 9.0000")

    monkeypatch.setattr(doctor_checks, "verify_model", refuse)
    monkeypatch.setattr("course_lib.models.load_model", lambda **_: (tiny_model(), None))
    code, said = ask(monkeypatch, ("model", doctor_checks.check_model, "Run `course setup`."))
    assert code == 1
    assert "9.0000" in said


def test_measuring_gives_positive_rates_and_counts_bytes_as_it_says(monkeypatch):
    monkeypatch.setitem(machine.MATRIX, "cpu", 64)
    monkeypatch.setitem(machine.STREAM_BYTES, "cpu", 2**20)
    monkeypatch.setattr(machine, "fastest_seconds", lambda function, device: function() is None or 0.5)
    device = machine.measure_device()
    assert device.flops_per_second == 2 * 64**3 / 0.5
    assert device.bytes_per_second == 2**20 / 0.5
    assert machine.copy_bytes_per_second(torch.device("cpu")) == 2 * 2**20 / 0.5


@pytest.mark.parametrize(
    ("flops", "n_bytes", "state"),
    [(120e9, 18e9, "ok"), (70e9, 10e9, "ok"), (50e9, 18e9, "warning"), (1e12, 6e9, "warning")],
)
def test_a_machine_slower_than_half_of_the_usual_is_a_warning_with_the_factor(monkeypatch, flops, n_bytes, state):
    device = SimpleNamespace(flops_per_second=flops, bytes_per_second=n_bytes)
    monkeypatch.setattr(doctor_checks, "measure_device", lambda: device)
    monkeypatch.setattr(doctor_checks, "copy_bytes_per_second", lambda device: 1e9)
    row = doctor_checks.check_speed()
    assert row.state == state
    assert ("about 3 times" in row.remedy) == (n_bytes == 6e9)


@pytest.mark.parametrize(("percent", "state"), [(10.0, "ok"), (90.0, "warning")])
def test_other_programs_at_work_are_a_warning(monkeypatch, percent, state):
    monkeypatch.setattr(doctor_checks.psutil, "cpu_percent", lambda interval: percent)
    row = doctor_checks.check_load()
    assert (row.state, f"{percent:.0f} %" in row.found) == (state, True)
    code, said = ask(monkeypatch, ("load", lambda: row, ""))
    assert code == 0
    assert ("about the warnings" in " ".join(said.split())) == (state == "warning")


def test_an_unknown_device_is_refused():
    with pytest.raises(ValueError, match="got the device meta"):
        machine.measure_device("meta")


def test_the_fastest_run_is_taken_after_a_warm_up(monkeypatch):
    clock = iter([0.0, 0.0, 5.0, 10.0, 12.0, 20.0, 27.0, 27.0])  # now; start and stop three times; is it over?
    monkeypatch.setattr(machine, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    calls = []
    assert machine.fastest_seconds(lambda: calls.append(1), torch.device("cpu"), budget=1.0) == 2
    assert len(calls) == 4


@pytest.mark.parametrize("batch", [1, 3])
def test_decoding_feeds_one_token_a_step_on_a_growing_cache(batch):
    model, seen = tiny_model(), []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append((tuple(args[0].shape), kwargs["past_key_values"].get_seq_length())),
        with_kwargs=True,
    )
    assert machine.decode_seconds(model, context=7, batch=batch, steps=3) > 0
    assert seen == [((batch, 7), 0), ((batch, 1), 7), ((batch, 1), 8), ((batch, 1), 9), ((batch, 1), 10)]


def test_prefill_starts_from_an_empty_cache_each_time():
    model, seen = tiny_model(), []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append((tuple(args[0].shape), kwargs["past_key_values"].get_seq_length())),
        with_kwargs=True,
    )
    assert machine.prefill_seconds(model, 9, repeats=2) > 0
    assert seen == [((1, 9), 0), ((1, 9), 0)]


def test_a_missing_sandbox_is_a_warning_with_the_way_to_get_it(monkeypatch):
    from course_lib.grading.sandbox import bubblewrap

    monkeypatch.setattr(bubblewrap, "program", lambda: None)
    bubblewrap.variant.cache_clear()
    row = doctor_checks.check_sandbox()
    bubblewrap.variant.cache_clear()
    assert row.state == "warning"
    assert "bubblewrap" in row.remedy
