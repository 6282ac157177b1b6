"""The claims of lesson 01, from made-up results: paired windows, and bytes and times of formats."""

import pytest
import torch

from course_lib.lessons.patterns import claims

WINDOWS = (0.0, 2.0, 4.0)  # windows differ far more than patterns do


def perplexities(levels, paired=True):
    """A result whose windows have these losses above their own difficulty, or that stores no losses of windows."""
    table = []
    for name, level in levels.items():
        losses = torch.tensor([level + window + 0.01 * i for i, window in enumerate(WINDOWS)])
        mean = losses.mean().exp().item()
        error = mean * losses.std().item() / len(losses) ** 0.5
        row = {"pattern": name, "sparsity": 0.25, "perplexity": mean, "standard_error": error, "n_tokens": 100}
        table.append(row | ({"losses": losses.tolist()} if paired else {}))
    return {"tables": {"perplexity": table}}


LEVELS = {"unstructured": 0.0, "3:4": 0.5, "blocks 4 × 4": 1.0, "rows": 3.0, "columns": 2.0}


def test_patterns_are_compared_window_by_window():
    judged = claims.ORDER_QUARTER.judge(perplexities(LEVELS))
    assert judged.words == "holds"
    assert judged.estimates["3:4 above unstructured"].value == pytest.approx(0.5)
    assert judged.estimates["3:4 above unstructured"].error == pytest.approx(0, abs=1e-6)
    assert claims.ORDER_QUARTER.judge(perplexities(LEVELS, paired=False)).verdict == "undecided"


def test_an_order_that_is_broken_once_is_mixed():
    judged = claims.ORDER_QUARTER.judge(perplexities(LEVELS | {"columns": 0.2}))
    assert judged.words == "mixed (holds in 3; fails in 1)"


def side(name, contest, times, bytes_, spread=1.01):
    return {
        "contest": contest,
        "side": name,
        "anchor": "dense",
        "bytes": bytes_,
        "times_anchor": times,
        "times_anchor_low": times / spread,
        "times_anchor_high": times * spread,
    }


def bitmap(csr, csr_bytes=50, bitmap_bytes=60, spread=1.01):
    """CSR at half and a tenth, with these speedups."""
    rows = [side("dense", f"density {density}", 1.0, 100) for density in csr]
    rows += [side("CSR", f"density {density}", times, csr_bytes, spread) for density, times in csr.items()]
    rows += [side("bitmap, decode then dense", f"density {density}", 0.1, bitmap_bytes) for density in csr]
    return {"tables": {"sides": rows}}


def packed(times):
    return {"tables": {"sides": [side("dense", "2:4", 1.0, 100), side("unpacked", "2:4", times, 60)]}}


@pytest.mark.parametrize(
    ("csr", "slower", "smaller"),
    [
        ({0.5: 0.7, 0.1: 0.8}, "holds", "does not hold"),
        (
            {0.5: 0.7, 0.1: 3.0},
            "mixed (holds in density 0.5; fails in density 0.1)",
            "mixed (holds in density 0.1; fails in density 0.5)",
        ),
        ({0.5: 2.0, 0.1: 3.0}, "does not hold", "holds"),
        ({0.5: 1.0, 0.1: 1.0}, "undecided", "undecided"),
    ],
)
def test_csr_on_both_sides_of_dense(csr, slower, smaller):
    assert claims.CSR_NO_FASTER.judge(bitmap(csr)).words == slower
    assert claims.CSR_FASTER_WHEN_SMALLER.judge(bitmap(csr)).words == smaller
    assert claims.CSR_AT_HALF.judge(bitmap(csr)).ours.startswith(f"{csr[0.5]:.2f}")


def test_formats_with_the_same_bytes_need_not_be_faster():
    bench = bitmap({0.5: 0.5, 0.1: 3.0})
    next(row for row in bench["tables"]["sides"] if row["side"] == "CSR")["bytes"] = 96
    assert claims.CSR_FASTER_WHEN_SMALLER.judge(bench).words == "holds"


@pytest.mark.parametrize(("bytes_", "word"), [(60, "holds"), (100, "does not hold")])
def test_the_bytes_of_a_bitmap_are_counted(bytes_, word):
    assert claims.BITMAP_SMALLER.judge(bitmap({0.5: 1.0}, bitmap_bytes=bytes_)).words == word


@pytest.mark.parametrize(("times", "word"), [(0.1, "holds"), (2.0, "does not hold"), (1.0, "undecided")])
def test_packed_weights_compared_with_dense(times, word):
    assert claims.PACKED_NO_FASTER.judge(packed(times)).words == word


def gpu_run(torch, kernel, of_bitmap):
    """One contest per number."""
    product = [side("torch semi-structured", f"tokens: {n}", times, 60) for n, times in enumerate(torch)]
    product += [side("N:M kernel", f"tokens: {n}", times, 60) for n, times in enumerate(kernel)]
    of_bitmap = [side("bitmap kernel", f"density {n}", times, 60) for n, times in enumerate(of_bitmap)]
    return {"benches": {"nm_matmul": {"rows": product}, "bitmap_matvec": {"rows": of_bitmap}}}


@pytest.mark.parametrize(
    ("times", "word"),
    [
        ((0.4, 1.2), "mixed (holds in tokens: 1; fails in tokens: 0)"),
        ((1.1, 1.2), "holds"),
        ((0.4, 0.8), "does not hold"),
    ],
)
def test_on_a_gpu_each_number_of_tokens_counts(times, word):
    others = (0.5,), (2.0,)
    run = gpu_run(times, *others)
    assert claims.ON_A_GPU.judge(run).words == word
    assert claims.OWN_KERNEL_ON_A_GPU.judge(run).words == "does not hold"
    assert claims.BITMAP_KERNEL_ON_A_GPU.judge(run).words == "holds"
    run = gpu_run(*others, times)
    assert claims.OWN_KERNEL_ON_A_GPU.judge(run).words == "holds"
    assert claims.BITMAP_KERNEL_ON_A_GPU.judge(run).words == word.replace("tokens: ", "density ")


def test_tokens_of_a_kernel_that_was_rewritten_do_not_count():
    run = gpu_run([1.2] * 66, [2.0, 2.0, *[0.5] * 63, 2.0], (2.0,))  # 2 to 64 tokens lose
    assert claims.OWN_KERNEL_ON_A_GPU.judge(run).words == "holds"
    assert list(claims.OWN_KERNEL_ON_A_GPU.judge(run).effects) == ["tokens: 0", "tokens: 1", "tokens: 65"]


@pytest.mark.parametrize(
    ("csr", "word", "shown"),
    [
        ({0.5: 0.7, 0.1: 3.0}, "holds", "1 of 2 densities"),  # one example is enough
        ({0.5: 0.7, 0.1: 0.8}, "does not hold", "0 of 2 densities"),
    ],
)
def test_one_density_shows_that_csr_can_be_faster(csr, word, shown):
    judged = claims.CSR_CAN_BE_FASTER.judge(bitmap(csr))
    assert judged.words == word
    assert judged.ours.startswith(shown)


@pytest.mark.parametrize(
    ("csr", "word"),
    [
        ({0.5: 0.7, 0.4: 0.8, 0.1: 3.0}, "holds"),
        ({0.5: 1.4, 0.4: 2.0, 0.1: 0.1}, "does not hold"),
        ({0.5: 0.7, 0.4: 2.0, 0.1: 0.1}, "mixed (holds in density 0.5; fails in density 0.4)"),
    ],
)
def test_densities_that_keep_quality(csr, word):
    assert claims.CSR_AT_QUALITY.judge(bitmap(csr)).words == word


@pytest.mark.parametrize(
    ("csr", "bytes_", "word"),
    [
        (2.0, 60, "holds"),
        (0.5, 60, "mixed (holds in memory, with a bitmap, multiplications; fails in time, in CSR)"),
        (0.5, 120, "mixed (holds in multiplications; fails in memory, with a bitmap, time, in CSR)"),
    ],
)
def test_what_zeros_save(csr, bytes_, word):
    judged = claims.ZEROS_SAVE.judge(bitmap({0.5: csr}, bitmap_bytes=bytes_))
    assert judged.words == word
    assert "2 times (multiplications)" in judged.ours


ONE_STEP = "mixed (holds in 2:4 over unstructured; fails in rows over 2:4, columns over 2:4)"
ROWS_ALONE = "mixed (holds in rows over dense; fails in columns over dense)"
HALF = {"dense": 0.0, "unstructured": 1.0, "2:4": 2.0, "columns": 5.0, "rows": 6.0}


def at_half(**changed):
    result = perplexities(HALF | changed)
    for row in result["tables"]["perplexity"]:
        row["sparsity"] = 0.0 if row["pattern"] == "dense" else 0.5
    return result


@pytest.mark.parametrize(
    ("changed", "between", "harms"),
    [
        ({}, "holds", "holds"),
        ({"columns": 0.3, "rows": 0.2}, ONE_STEP, "does not hold"),
        ({"unstructured": 2.5, "columns": 0.3, "rows": 1.0}, "does not hold", ROWS_ALONE),
    ],
)
def test_two_four_lies_between_unstructured_and_structured(changed, between, harms):
    assert claims.BETWEEN.judge(at_half(**changed)).words == between
    assert claims.STRUCTURED_HARMS.judge(at_half(**changed)).words == harms
