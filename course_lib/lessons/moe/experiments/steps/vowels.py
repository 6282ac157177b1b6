"""Jacobs and others, 1991: three errors of one mixture, and perceptrons beside it, on the vowels of 76 speakers."""

from course_lib.measure.experiment import Tables
from course_lib.moe.classic.descent import report, train, vowel_samples
from course_lib.moe.classic.learners import Learner, Mixture, Perceptron

LEARNERS: dict[str, Learner] = {
    "4 experts, cooperative": Mixture("cooperative"),
    "4 experts, competitive": Mixture("competitive"),
    "4 experts, mixture": Mixture("mixture"),
    "8 experts, mixture": Mixture("mixture", n_experts=8),
    "perceptron, 6 hidden": Perceptron(6),
    "perceptron, 12 hidden": Perceptron(12),
}
SHARES = (0.88, 0.9)  # of the training samples right, to which epochs are counted


def vowels(name: str, n_seeds: int, epochs: int, rate: float, seed: int) -> Tables:
    """A row for each start. Epochs are None where a share was never reached; all else None for perceptrons."""
    training, test = vowel_samples()
    seeds = range(seed, seed + n_seeds)
    trained = train(LEARNERS[name], training, seeds, epochs, rate)
    found, reached = report(trained, test), {share: trained.epochs_to(share) for share in SHARES}
    rows = []
    for i, each in enumerate(seeds):
        row = {"learner": name, "seed": each, "epochs": epochs}
        row |= {f"epochs_to_{100 * share:.0f}": reached[share][i] for share in SHARES}
        for column, values in found._asdict().items():
            row[column] = None if values is None else round(values[i].item(), 4)
        rows.append(row | {"training_accuracy": round(trained.accuracy[-1, i].item(), 4)})
    return {"vowels": rows}
