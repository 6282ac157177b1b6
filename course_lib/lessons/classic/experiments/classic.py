"""Optimal brain damage and surgeon on the problems of their papers, and on single rows of the default model.

Dimension key: O outputs (rows), I inputs of a layer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from course_lib.data import corpora
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import Part, blocks, linears, load_model, weight_of
from course_lib.pruning.classic.deletion import State, cheapest, delete, deletions, whole
from course_lib.pruning.classic.derivatives import full_hessian
from course_lib.pruning.classic.network import Network, Samples, convolution
from course_lib.pruning.classic.obd import obd_diagonal
from course_lib.pruning.classic.problems import DECAY, DIGITS_NETWORK, NETWORKS, XOR_NETWORK, digits, monks, xor
from course_lib.pruning.classic.quadratic import choices, quadratic
from course_lib.pruning.classic.rows import output_error, prune_row, row_surfaces
from course_lib.pruning.classic.surfaces import METHODS, Method, brain_surgeon
from course_lib.pruning.classic.training import levenberg_marquardt, quasi_newton, solved
from course_lib.pruning.input_statistics import input_gram

# Hassibi and Stork's abstract: reductions of 76, 62 and 90 %, of 58, 39 and 39 weights.
PUBLISHED = {1: 14, 2: 15, 3: 4}
# The training accuracy that a network must reach. Problem 3 has wrong labels, which no network should learn.
SOLVED = {1: 1.0, 2: 1.0, 3: 0.93}
SURFACES = {"as in the deck": ((0.1, -0.3), 0.0), "other weights": ((0.2, -0.3), 0.0), "turned": ((0.2, -0.3), 30.0)}
LAYERS = ("self_attn.q_proj", "mlp.gate_proj", "self_attn.o_proj")
START = 1.0  # scale of the initial weights of XOR networks

Point = dict[str, int | float]


@dataclass(frozen=True)
class Sizes:
    """How many networks of each kind are trained, and how many weights of the digit network are pruned per round."""

    xor_starts: int = 200
    xor_decays: tuple[float, ...] = (1e-7, 1e-5, 1e-3)
    monks_seeds: int = 10
    digits_seeds: int = 3
    digits_per_round: int = 75
    digits_training: int = 1200
    retraining_steps: int = 200
    layer_rows: int = 16
    calibration: int = 32
    held_out: int = 8
    length: int = 256


QUICK = Sizes(6, (1e-5,), 1, 1, 500, 200, 20, 2, 2, 1, 64)


def steps(sizes: Sizes) -> list[Step]:
    """List the steps, short ones first."""
    plan = [Step("two weights", two_weights), Step("the diagonal", recursion)]
    plan += [Step(f"xor, decay {decay:g}", partial(exclusive_or, sizes, decay)) for decay in sizes.xor_decays]
    plan += [
        Step(f"monks {problem}, seed {index}", partial(monk, sizes, problem, index))
        for problem in NETWORKS
        for index in range(sizes.monks_seeds)
    ]
    plan += [
        Step(f"digits {name}, seed {index}", partial(handwriting, sizes, name, index))
        for index in range(sizes.digits_seeds)
        for name in METHODS
    ]
    return plan + [Step(f"rows of {layer}", partial(rows_of_a_layer, sizes, layer)) for layer in LAYERS]


def two_weights(seed: int) -> Tables:
    """Compare the weight that each method deletes from a quadratic error of two, its predicted and its real cost."""
    table_rows = []
    for name, (minimum, degrees) in SURFACES.items():
        for choice in choices(quadratic(minimum, degrees)):
            numbers = {"deletes": choice.deletes + 1, "predicted": choice.predicted, "cost": choice.cost}
            table_rows.append({"surface": name, "method": choice.method} | numbers | {"weight": choice.weight.tolist()})
    return {"two_weights": table_rows}


def recursion(seed: int) -> Tables:
    """Measure the relative error of OBD's diagonal by layer, in deeper networks and in one that shares weights."""
    generator = torch.Generator().manual_seed(seed)
    networks = {f"{d} hidden layers": Network((8, *[6] * d, 2), hidden="tanh") for d in (1, 2, 3)}
    networks["convolution"] = convolution(8, 3, 2)
    table_rows = []
    for name, network in networks.items():
        inputs = torch.randn(200, 8, generator=generator, dtype=torch.float64)
        teacher = network.start(generator, 2.0)
        samples = Samples(inputs, network(teacher, inputs))
        state = levenberg_marquardt(whole(network, network.start(generator)), samples, 1e-4, 50)
        exact = full_hessian(network, state.theta, samples).diagonal()
        approximate = obd_diagonal(network, state.theta, samples)
        for index, members in enumerate(layer_members(network)):
            gap = (approximate[members] - exact[members]).norm() / exact[members].norm()
            table_rows.append({"network": name, "layer": index + 1, "relative_error": gap.item()})
    return {"recursion": table_rows}


def layer_members(network: Network) -> list[list[int]]:
    """Return the indices of the free weights in each layer."""
    free = torch.arange(network.n_weights) if network.share is None else torch.tensor(network.share)
    sizes = [(j + 1) * k for j, k in zip(network.sizes, network.sizes[1:], strict=False)]
    return [sorted(set(part[part >= 0].tolist())) for part in free.split(sizes)]


def exclusive_or(sizes: Sizes, decay: float, seed: int) -> Tables:
    """Count the networks that still solve XOR after one deletion, by choice of the weight and update of the others."""
    samples, generator = xor(), torch.Generator().manual_seed(seed)
    starts = [XOR_NETWORK.start(generator, START) for _ in range(sizes.xor_starts)]
    trained = [levenberg_marquardt(whole(XOR_NETWORK, start), samples, decay, 300) for start in starts]
    good = [state for state in trained if state.accuracy(samples) == 1.0]
    table_rows = []
    for name in METHODS:
        right = [after_one_deletion(state, name, samples) for state in good]
        plain, updated = (sum(correct[index] for correct in right) for index in (0, 1))
        numbers = {"n_nets": len(good), "right": updated if name == "OBS" else plain, "right_with_update": updated}
        table_rows.append(
            {"method": name, "decay": decay, "n_starts": len(starts)} | numbers | {"right_without": plain}
        )
    possible = [possible_deletions(state, samples) for state in good]
    label = {"decay": decay, "n_nets": len(good)}
    counts = {"some_plain": sum(p > 0 for p, _ in possible), "some_updated": sum(u > 0 for _, u in possible)}
    return {"xor": table_rows, "xor_possible": [label | counts]}


def after_one_deletion(state: State, name: str, samples: Samples) -> tuple[bool, bool]:
    """Check whether XOR stays solved after a method's deletion: with the others fixed, and with OBS's update."""
    q = cheapest(state, METHODS[name](state.network, state.theta, state.keep, samples))
    surfaces = (METHODS[method](state.network, state.theta, state.keep, samples) for method in ("magnitude", "OBS"))
    plain, updated = (delete(state, surface, q).accuracy(samples) == 1.0 for surface in surfaces)
    return plain, updated


def possible_deletions(state: State, samples: Samples) -> tuple[int, int]:
    """Count the weights, of nine, whose deletion keeps XOR solved: without an update, and with OBS's update."""
    counts = []
    for name in ("magnitude", "OBS"):
        surface = METHODS[name](state.network, state.theta, state.keep, samples)
        counts.append(sum(delete(state, surface, q).accuracy(samples) == 1.0 for q in range(len(state.theta))))
    return counts[0], counts[1]


def monk(sizes: Sizes, problem: int, index: int, seed: int) -> Tables:
    """Train one network for a MONK's problem and prune it with each method, without and with retraining."""
    training, test = monks(problem)
    generator = torch.Generator().manual_seed(1000 * seed + index)
    dense = solved(NETWORKS[problem], training, generator, SOLVED[problem], DECAY[problem])
    n_refit = 3 * sizes.retraining_steps // 10  # 60 steps; these networks are small
    table_rows, curves = [], []
    for name, method in monk_methods(problem).items():
        for refitted in (False, True):
            refit = partial(levenberg_marquardt, samples=training, decay=DECAY[problem], steps=n_refit)
            curve = list(curve_of(deletions(dense, training, method, refit if refitted else None), training, test))
            label = {"problem": problem, "seed": index, "method": name, "refit": refitted}
            table_rows.append(label | summary(curve, PUBLISHED[problem]))
            if index == 0:
                curves.append(label | {key: [point[key] for point in curve] for key in curve[0]})
    return {"monks": table_rows, "monks_curves": curves}


def monk_methods(problem: int) -> dict[str, Method]:
    """Return all methods; OBS twice, with alpha equal to the weight decay and with a very small alpha."""
    with_decay = {"OBS": partial(brain_surgeon, alpha=DECAY[problem])}
    return METHODS | with_decay | {"OBS, alpha 1e-8": brain_surgeon}


def curve_of(states: Iterator[State], training: Samples, test: Samples) -> Iterator[Point]:
    """Return the number of weights and both accuracies after each round."""
    for state in states:
        yield {"n_left": state.n_left, "train": state.accuracy(training), "test": state.accuracy(test)}


def summary(curve: list[Point], published: int) -> Point:
    """Return the last points before the training accuracy and before either accuracy falls, and the published size."""
    dense = curve[0]
    stopped = last_before(curve, lambda point: point["train"] < dense["train"])
    unchanged = last_before(
        curve, lambda point: min(point["train"] - dense["train"], point["test"] - dense["test"]) < 0
    )
    at_published = next(point for point in curve if point["n_left"] == published)
    return {
        "dense_train": dense["train"],
        "dense_test": dense["test"],
        "n_left": stopped["n_left"],
        "test": stopped["test"],
        "n_left_unchanged": unchanged["n_left"],
        "train_at_published": at_published["train"],
        "test_at_published": at_published["test"],
    }


def last_before(curve, bad) -> Point:
    """Return the last point before the first bad one."""
    first = next((i for i, point in enumerate(curve) if bad(point)), len(curve))
    return curve[first - 1]


def handwriting(sizes: Sizes, name: str, index: int, seed: int) -> Tables:
    """Prune a digit network step by step: without retraining, retrained once, and retrained after every round."""
    generator = torch.Generator().manual_seed(1000 * seed + index)
    training, test = digits(generator, sizes.digits_training)
    retrain = partial(quasi_newton, samples=training, decay=1e-4, steps=sizes.retraining_steps)
    network = DIGITS_NETWORK
    dense = retrain(whole(network, network.start(generator)), steps=2 * sizes.retraining_steps)
    method = partial(brain_surgeon, alpha=1e-4) if name == "OBS" else METHODS[name]
    once = deletions(dense, training, method, per_round=sizes.digits_per_round)
    often = deletions(dense, training, method, retrain, per_round=sizes.digits_per_round)
    table_rows = []
    for state, refitted in zip(once, often, strict=True):
        accuracies = {
            "pruned": state.accuracy(test),
            "retrained": (retrain(state) if state.n_left < network.n_weights else state).accuracy(test),
            "retrained_each_round": refitted.accuracy(test),
        }
        sparsity = 1 - state.n_left / network.n_weights
        table_rows.append({"method": name, "seed": index, "n_left": state.n_left, "sparsity": sparsity} | accuracies)
    return {"digits": table_rows}


def rows_of_a_layer(sizes: Sizes, layer: str, seed: int) -> Tables:
    """Prune half of the weights of single rows of a layer of the default model.

    The error is the squared change of the output relative to the squared output, on calibration and on held-out text.
    """
    model, tokenizer = load_model()
    texts = {"calibration": sizes.calibration, "evaluation": sizes.held_out}
    ids = {t: corpora.windows("wikipedia", n, sizes.length, tokenizer, t, seed) for t, n in texts.items()}
    gram, held_out = (input_gram(model, ids[text], 15, layer) for text in texts)
    weight = weight_of(linears(blocks(model)[15])[layer])
    chosen = torch.randperm(len(weight), generator=torch.Generator().manual_seed(seed))[: sizes.layer_rows]
    surfaces, n_leaving = row_surfaces(gram.matrix, gram.n_tokens), weight.shape[1] // 2
    table_rows = []
    for row in chosen.tolist():
        for name, surface in surfaces.items():
            pruned = prune_row(weight[row], surface, n_leaving)
            errors = [output_error(text_gram.matrix, weight[row], pruned) for text_gram in (gram, held_out)]
            label = {"layer": layer, "row": row, "method": name, "n_inputs": weight.shape[1], "n_leaving": n_leaving}
            table_rows.append(label | dict(zip(("calibration", "held_out"), errors, strict=True)))
    return {"rows": table_rows}


EXPERIMENT = Experiment(
    "Brain damage and brain surgeon on small networks", Sizes(), QUICK, steps, quick_part=Part(n_blocks=16)
)
