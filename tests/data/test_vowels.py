"""The vowels: how many, whose, and that no speaker is both trained on and tested."""

import torch

from course_lib.data.vowels import KINDS, VOWELS, by_speaker, vowels

TOKENS = vowels()


def test_as_many_as_in_the_study():
    assert len(TOKENS.vowel) == 608
    speakers = [len(set(TOKENS.speaker[TOKENS.kind == kind].tolist())) for kind in range(len(KINDS))]
    assert speakers == [33, 28, 15]
    assert TOKENS.vowel.bincount().tolist() == [152] * 4
    assert TOKENS.speaker.bincount().tolist() == [8] * 76


def test_the_first_speaker_and_the_last():
    assert TOKENS.formants[:8].tolist() == [
        [240, 2280], [280, 2400], [390, 2030], [310, 1980], [740, 1070], [800, 1060], [590, 1250], [620, 1300],
    ]  # fmt: skip
    assert KINDS[TOKENS.kind[0]] == "man"
    assert KINDS[TOKENS.kind[-1]] == "child"


def test_formants_are_ordered_as_mouths_are():
    """The smaller the speaker, the higher; [i] has the lowest first formant and the highest second, [ɑ] the reverse."""
    means = torch.stack(
        [
            torch.stack([TOKENS.formants[(TOKENS.kind == kind) & (TOKENS.vowel == v)].mean(dim=0) for v in range(4)])
            for kind in range(len(KINDS))
        ]
    )
    assert (means[1:] > means[:-1]).all()
    for kind in means:
        assert VOWELS[kind[:, 0].argmin()] == VOWELS[kind[:, 1].argmax()] == "i"
        assert VOWELS[kind[:, 0].argmax()] == VOWELS[kind[:, 1].argmin()] == "ɑ"
    merged = TOKENS.formants[:, 0] >= TOKENS.formants[:, 1]
    assert TOKENS.formants[merged].tolist() == [[970.0, 970.0]]  # one child's [ɑ], where both are one peak


def test_nobody_is_heard_in_training_and_in_the_test():
    training, test = by_speaker(TOKENS)
    assert (len(training.vowel), len(test.vowel)) == (408, 200)
    assert not set(training.speaker.tolist()) & set(test.speaker.tolist())
    assert set(test.kind.tolist()) == {0, 1, 2}
