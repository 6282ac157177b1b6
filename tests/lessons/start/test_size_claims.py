"""Sizes that lectures name, counted from shapes by hand; and the verdict on batches."""

import math

import pytest
import torch

from course_lib.lessons.common.claim import Claim
from course_lib.lessons.start import claims
from course_lib.lessons.start.claims import about, linear
from course_lib.measure.roofline import LLAMA2_7B, LLAMA2_70B, Transformer


def test_sizes_of_two_models_by_hand():
    assert LLAMA2_7B.cache_bytes(100, value_bytes=4) == 100 * 2 * 32 * 32 * 128 * 4  # 100 MiB to the byte
    assert LLAMA2_70B.cache_bytes(8192, 64) == 64 * 8192 * 2 * 80 * 8 * 128 * 2  # 171.8 GB
    judged = {claim.id: claim.judge() for claim in vars(claims).values() if isinstance(claim, Claim)}
    assert [each.verdict for each in judged.values()] == ["holds"] * 6
    assert judged["start-seventy-cache"].ours == "172 GB or 160 GiB"


def test_another_model_has_other_sizes():
    small = Transformer(30, 576, 9, 3, 64, 1536, 49_152, tied=True)
    assert not about(small.n_weights * claims.SINGLE, 28, claims.GIB).holds
    assert not about(small.cache_bytes(100, value_bytes=claims.SINGLE), 100, claims.MIB).holds
    assert not about(claims.batch_bytes(small), 160, claims.GB).holds
    assert all(effect.holds for effect in linear(small).values())


@pytest.mark.parametrize(("counted", "holds"), [(100, True), (109, True), (92, True), (111, False), (90, False)])
def test_about_is_within_ten_per_cent(counted, holds):
    assert about(counted, 100, 1.0).holds is holds
    assert about(100, 100, 1.0).value == pytest.approx(math.log(1.1))


def test_a_cache_that_does_not_grow_is_not_linear():
    class Fixed(Transformer):
        def cache_bytes(self, n_tokens, batch=1, value_bytes=2):
            return 100 * batch

    assert [effect.holds for effect in linear(Fixed(1, 1, 1, 1, 1, 1, 1)).values()] == [False, True]


@pytest.mark.parametrize(
    ("sixteen", "verdict"),
    [([3.0, 3.1, 3.0, 2.9], "holds"), ([9.0, 9.1, 9.0, 8.9], "does not hold"), ([4.0, 16.0, 5.0, 11.0], "undecided")],
)
def test_a_batch_is_cheap_if_it_takes_less_than_eight_times_as_long(sixteen, verdict):
    sentence = claims.batching(torch.tensor([1.0, 1.01, 0.99, 1.0]), torch.tensor(sixteen))
    assert sentence.startswith(f"claim: 16 sequences take less than 8 times as long as one: {verdict}")


def test_the_closer_of_two_units_counts():
    """Llama-2-7B: 6.74 billion weights of 4 bytes are 27.0 GB and 25.1 GiB; 28 GB is 3.8 % away, 28 GiB 10.3 %."""
    counted = claims.LLAMA2_7B.n_weights * claims.SINGLE
    assert about(counted, 28, claims.GIB, claims.GB).value == pytest.approx(math.log(1.1) - math.log(28e9 / counted))
    assert not about(counted, 28, claims.GIB).holds
    assert claims.SEVEN_BILLION.judge().words == "holds"
    assert claims.SEVEN_BILLION.judge().ours == "25.1 GiB or 27 GB; 7·10⁹ weights of 4 bytes are 28 GB or 26.1 GiB"
    assert claims.SEVEN_BILLION.counts_as.startswith("within 10 % of the published size, read as GiB or GB")
