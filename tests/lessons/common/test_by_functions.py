"""A model's layer pruned with two functions is that of the method which they spell out."""

import torch

from course_lib.lessons.common.by_functions import KeptBy, ScoredBy
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods.wanda import Wanda
from course_lib.sparsity.patterns import Unstructured


def test_a_score_gets_one_token_that_has_the_norms_of_all():
    gram = Gram(2, needs="diagonal")
    gram.add(torch.tensor([[3.0, 0.0], [4.0, 2.0]]))  # norms 5 and 2
    pruner = ScoredBy(
        KeptBy(lambda score, sparsity: score > 4), lambda weight, inputs: weight.abs() * inputs.norm(dim=0)
    )
    weight = torch.tensor([[1.0, -2.0], [0.5, 3.0]])  # scores 5, 4 and 2.5, 6
    assert torch.equal(pruner.score(weight, gram), torch.tensor([[5.0, 4.0], [2.5, 6.0]]))
    assert torch.equal(pruner.prune(weight, gram), torch.tensor([[1.0, 0.0], [0.0, 3.0]]))


def test_wanda_by_its_own_functions_is_wanda(generator):
    gram, weight = Gram(12), torch.randn(7, 12, generator=generator)
    gram.add(torch.randn(30, 12, generator=generator))
    pattern = KeptBy(lambda score, sparsity: Unstructured(sparsity).keep(score).float(), 0.25)
    pruner = ScoredBy(pattern, lambda weight, inputs: weight.double().abs() * inputs.norm(dim=0))
    assert torch.equal(pruner.prune(weight, gram), Wanda(Unstructured(0.25)).prune(weight, gram))
