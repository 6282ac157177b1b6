"""Made-up residents: one answer a passage, reproducible, no word twice."""

import pytest

from course_lib.data.residents import MOST_RESIDENTS, passages


def test_the_first_of_a_seed():
    passage = passages(1, 3, seed=0)[0]
    assert passage.question.removeprefix("In which city does ").removesuffix(" live?") in passage.key_sentence
    assert passage.key_sentence.endswith(f" and lives in {passage.answer}.")
    assert passage.text == " ".join(passage.sentences)


@pytest.mark.parametrize("n_residents", [2, 6, MOST_RESIDENTS])
def test_each_question_has_one_answer(n_residents):
    for passage in passages(20, n_residents):
        assert len(set(passage.choices)) == len(passage.sentences) == n_residents
        assert passage.choices[passage.key] == passage.answer
        assert passage.text.count(passage.answer) == 1
        words = [sentence.split() for sentence in passage.sentences]
        for place in (0, 4):  # the name, the work
            assert len({sentence[place] for sentence in words}) == n_residents
        name = passage.question.split()[4]
        assert passage.text.count(f"{name} ") == 1


def test_a_seed_is_a_set():
    assert passages(5, seed=3) == passages(5, seed=3)
    assert passages(5, seed=3) == passages(9, seed=3)[:5]
    assert not {p.text for p in passages(50, seed=3)} & {p.text for p in passages(50, seed=4)}
    assert len({p.key for p in passages(50)}) == 6


@pytest.mark.parametrize("sizes", [(0, 6), (3, 1), (3, MOST_RESIDENTS + 1)])
def test_sizes_that_cannot_be_are_refused(sizes):
    with pytest.raises(ValueError, match=f"n={sizes[0]}, n_residents={sizes[1]}"):
        passages(*sizes)
