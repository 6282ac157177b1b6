"""Tables of lesson 06: what the notebook has just computed, stored results, and published numbers."""

from collections.abc import Mapping
from statistics import fmean, stdev

from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.results import Measured, load_measured, load_published, rows
from course_lib.lessons.common.table import Table, number, percent, plus_minus
from course_lib.lessons.moe import pairs
from course_lib.lessons.moe.experiments.moe_upcycling import ARMS, DENSE
from course_lib.lessons.moe.plots import with_routers

QUALITY = "negative log perplexity"

# Values that the notebook has just computed.


def router_gradients(norm_by_weights: Mapping[str, Float[Tensor, ""]]) -> Table:
    """The norm of the router's gradient, by kind of weights."""
    return Table(
        [{"experts and weights": name, "norm of the gradient": float(norm)} for name, norm in norm_by_weights.items()],
        caption="The gradient of the router",
        formats={"norm of the gradient": "{:.1e}".format},
    )


def noisy_copies(change_by_noise: Mapping[float, Tensor], norm_by_noise: Mapping[float, Tensor]) -> Table:
    """Upcycling one MLP: how much the copies change the output, and how large the router's gradient is."""
    return Table(
        [
            {"noise": noise, "change of the output": float(change)}
            | {"gradient of the router": float(norm_by_noise[noise])}
            for noise, change in change_by_noise.items()
        ],
        caption="One MLP of SmolLM2 as four copies with noise",
        formats={
            "noise": number(2),
            "change of the output": "{:.1e}".format,
            "gradient of the router": "{:.1e}".format,
        },
        note="noise: standard deviation relative to that of the matrix. change: norm of the change divided by the norm "
        "of the MLP's output.",
    )


def router_estimates(mean_by_estimate: Mapping[str, Float[Tensor, "E"]]) -> Table:
    """The mean of each estimate over all random trials, and the exact gradient, which comes first."""
    exact = next(iter(mean_by_estimate.values()))
    frame = []
    for name, gradient in mean_by_estimate.items():
        values = {f"logit {expert}": value for expert, value in enumerate(gradient.tolist())}
        frame.append({"estimate": name} | values | {"error": ((gradient - exact).norm() / exact.norm()).item()})
    return Table(
        frame,
        caption="The gradient with respect to four router logits: the mean of each estimate",
        formats={f"logit {expert}": number(3) for expert in range(len(exact))} | {"error": number(1, "%", 100)},
    )


# Stored results.


def trained_models(measured: Measured | None = None) -> Table:
    """For every kind of model: weights, FLOP per byte, the loss over the seeds, and the load of the busiest expert."""
    measured = measured or load_measured("moe")
    frame = []
    for name in dict.fromkeys(row["model"] for row in rows(measured, "models")):
        of_model = rows(measured, "models", model=name)
        losses = [row["loss"] for row in of_model]
        busiest = [pairs.busiest(block) for row in of_model for block in row["blocks"]]
        frame.append(
            {"model": name, "weights": of_model[0]["parameters"], "FLOP per byte": of_model[0]["flops_a_byte"]}
            | {"loss (nats per byte)": fmean(losses), "deviation": stdev(losses) if len(losses) > 1 else None}
            | {"busiest expert": max(busiest) if busiest else None}
        )
    return Table(
        frame,
        caption="Byte models after 800 steps",
        formats={
            "weights": number(),
            "FLOP per byte": number(),
            ("loss (nats per byte)", "deviation"): plus_minus(3),
            "busiest expert": percent,
        },
        note="FLOP of training. Loss: mean ± standard deviation over the seeds. Busiest expert: the largest fraction "
        "of the choices of a block that one expert has, over blocks and seeds.",
    )


UPCYCLED_NAMES = {
    "copies, top-2": "equal copies, top-2",
    "copies with noise, top-2": "copies with noise 0.1, top-2",
    "half redrawn, top-2": "half of the neurons random, top-2",
    "copies, top-1": "equal copies, top-1",
}


def upcycled(measured: Measured | None = None) -> Table:
    """For each way to make copies: the router's gradient at the start, and the gain over the dense model by seed."""
    measured = measured or load_measured("moe", "experiments/moe_upcycling")
    last = max(row["steps"] for row in rows(measured, "models"))
    frame = []
    for name in ARMS:
        gradients = rows(measured, "gradients", model=name)
        ratio = fmean(row["gate_gradient"] / row["expert_gradient"] for row in gradients)
        gains = [effect.value for effect in pairs.lower(measured, name, DENSE, steps=last).values()]
        gain = {"lower loss than dense (nats per byte)": fmean(gains), "deviation": stdev(gains)}
        frame.append({"experts": UPCYCLED_NAMES[name], "router gradient (%)": 100 * ratio} | gain)
    return Table(
        frame,
        caption=f"Upcycling a byte model: {last} more steps",
        formats={
            "router gradient (%)": "{:.2g}".format,
            ("lower loss than dense (nats per byte)", "deviation"): plus_minus(4, sign=True),
        },
        note="router gradient: at the start, relative to that of the experts. Last column: loss of the dense model "
        "minus that of the mixture after as many steps, mean ± standard deviation over three seeds.",
    )


CONTROLS = {  # other router: matched control
    "top-1, balanced, jitter": "top-1, balanced",
    "top-2, balanced, z-loss": "top-2, balanced",
    "top-2, sigmoid, bias": "top-2, sigmoid",
    "expert choice": "top-2, balanced",
}


def regularisers(both: tuple[Measured, Measured] | None = None) -> Table:
    """For each other router and its matched control: the difference of the losses by seed, and the loads."""
    joined = pairs.joined(*(both or with_routers()))
    frame = []
    for name, control in CONTROLS.items():
        gains = [effect.value for effect in pairs.lower(joined, name, control).values()]
        load, control_load = (fmean(pairs.of_seeds(joined, each, pairs.busiest).values()) for each in (name, control))
        frame.append(
            {"model": name, "control": control, "lower loss (nats per byte)": fmean(gains), "deviation": stdev(gains)}
            | {"busiest expert": load, "of the control": control_load}
        )
    return Table(
        frame,
        caption="Other routers and regularisers, each compared with its matched control",
        formats={("lower loss (nats per byte)", "deviation"): plus_minus(4, sign=True)}
        | dict.fromkeys(("busiest expert", "of the control"), percent),
        note="Lower loss: loss of the control minus that of the model, mean ± standard deviation over three seeds. "
        "Busiest expert: its fraction of the choices, mean over blocks and seeds.",
    )


def classic(measured: Measured | None = None) -> Table:
    """Four models from before the transformer, each compared with a model without experts or of another error."""
    measured = measured or load_measured("moe", "experiments/moe_classic")

    def vowels(learner: str, key: str) -> float:
        return fmean(row[key] for row in rows(measured, "vowels", learner=learner))

    def arm(depth: int) -> float:
        return fmean(row["error"][-1] for row in rows(measured, "arm", depth=depth))

    def recurrent(name: str) -> float:
        return fmean(row["loss"] for row in rows(measured, "recurrent", model=name))

    mixture, blended = "4 experts, mixture", "4 experts, cooperative"
    alone = "accuracy of one expert alone (%)"
    compared = [
        ("1991", "mixture error", alone, 100 * vowels(mixture, "likeliest_accuracy"),
         "blended error", 100 * vowels(blended, "likeliest_accuracy"), 1),
        ("1991", "mixture error", "epochs to 90 % accuracy", vowels(mixture, "epochs_to_90"),
         "12 hidden neurons", vowels("perceptron, 12 hidden", "epochs_to_90"), 0),
        ("1994", "tree of 16 experts, EM", "error on the robot arm", arm(4), "one linear map", arm(0), 3),
        ("2017", "4 of 16 experts in an LSTM", "loss (nats per byte)", recurrent("4 of 16 experts, balanced"),
         "dense neurons", recurrent("dense"), 3),
    ]  # fmt: skip
    return Table(
        [
            {"year": year, "model": model, "quantity": quantity, "value": number(digits)(value)}
            | {"compared with": other, "its value": number(digits)(other_value)}
            for year, model, quantity, value, other, other_value, digits in compared
        ],
        caption="Mixtures of experts before the transformer",
        note="Means over 10, 10, 5 and 3 seeds. The LSTM has a balance loss.",
    )


# Published numbers.


def published_capacity() -> Table:
    """Switch's Table 1: top-1 and top-2 with two capacity factors, compared with a dense model."""
    headings = {"capacity factor": "capacity_factor", QUALITY: "quality", "examples per second": "examples_per_second"}
    return Table(
        [
            {"model": row["model"]} | {heading: row[key] for heading, key in headings.items()}
            for row in rows(load_published("moe"), "switch_capacity")
        ],
        caption="Published, not measured here: two capacity factors (Fedus and others, 2021, Table 1)",
        formats={QUALITY: number(3), "examples per second": number()},
    )
