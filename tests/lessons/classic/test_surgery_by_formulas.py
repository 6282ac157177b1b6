"""Two formulas make the surgeon: with the library's own, a row ends as with the library's surface."""

import torch

from course_lib.lessons.classic.surgery import ByFormulas
from course_lib.pruning.classic.rows import output_error, prune_row, row_surfaces
from course_lib.workbook.catalogue import find


def test_the_course_own_formulas_prune_a_row_as_the_surgeon_does(generator):
    inputs, weight = torch.randn(300, 24, generator=generator), torch.randn(24, generator=generator)
    gram = inputs.T @ inputs
    surgeon = row_surfaces(gram, 300)["OBS"]
    formulas = ByFormulas(surgeon.inverse, *(find(f"classic.{n}").library for n in ("obs_saliency", "obs_update")))
    expected, got = prune_row(weight, surgeon, 10), prune_row(weight, formulas, 10)
    assert torch.equal(got == 0, expected == 0)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert output_error(gram, weight, got) < 2 * output_error(gram, weight, expected)


def test_what_the_functions_say_is_what_is_done():
    """The dearest is given the lowest price, and the update only writes a zero."""
    surface = ByFormulas(
        torch.eye(3, dtype=torch.float64),
        lambda weight, inverse: -weight.abs(),
        lambda weight, inverse, q: weight.index_fill(0, torch.tensor(q), 0.0),
    )
    pruned = prune_row(torch.tensor([1.0, -3.0, 2.0]), surface, 2)
    assert pruned.tolist() == [1.0, 0.0, 0.0]
