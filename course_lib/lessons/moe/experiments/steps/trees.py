"""Jordan and Jacobs, 1994: hierarchical mixtures by EM on the forward dynamics of an arm of two joints."""

from itertools import islice

import torch

from course_lib.measure.experiment import Tables
from course_lib.moe.classic.arm import arm_samples
from course_lib.moe.classic.fit_tree import fit
from course_lib.moe.classic.tree import linear_map, relative_error, with_one


def arm(depth: int, n_training: int, n_test: int, em_steps: int, seed_of_run: int, seed: int) -> Tables:
    """A tree before its first EM step and after each: log-likelihood in training, relative error on new samples.

    Depth 0 is one linear map by least squares.
    """
    generator = torch.Generator().manual_seed(seed + seed_of_run)
    training, test = arm_samples(generator, n_training, n_test)
    inputs, new = with_one(training.inputs), with_one(test.inputs)
    row = {"depth": depth, "seed": seed + seed_of_run}
    if depth == 0:
        predicted = new @ linear_map(inputs, training.accelerations).mT
        return {"arm": [row | {"log_likelihood": None, "error": [relative_error(predicted, test.accelerations)]}]}
    likelihood, error = [], []
    for tree in islice(fit(inputs, training.accelerations, depth, generator), em_steps + 1):
        likelihood.append(tree.log_likelihood(inputs, training.accelerations))
        error.append(round(relative_error(tree.predict(new), test.accelerations), 5))
    return {"arm": [row | {"log_likelihood": likelihood, "error": error}]}
