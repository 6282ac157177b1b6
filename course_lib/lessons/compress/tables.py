"""The tables of lesson 10, from the stored results, the published numbers and the notebook's own runs."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from course_lib.lessons.common.results import Measured, load_measured, load_published, origin, rows, wrapped
from course_lib.lessons.common.table import Table, number, plus_minus
from course_lib.lessons.common.verdicts import NOT_MEASURED, of_samples, said
from course_lib.lessons.compress import claims, results
from course_lib.lessons.compress.claims import BOTH
from course_lib.lessons.compress.experiments import prompt_words
from course_lib.lessons.compress.experiments.prompt_words import MODELS, Attempt
from course_lib.lessons.compress.experiments.rivals import SMALL, WANDA
from course_lib.lessons.compress.results import loss_gain, model_name
from course_lib.prompts.compressed.store import DENSE

Number = float | Tensor


def provenance(measured: Measured | None = None) -> str:
    """The command, the machine, the date and the amount of text of the measurement, and the steps that it lacks."""
    measured = measured or results.load()
    sizes = measured["sizes"]
    amounts = f"prompts of {sizes['n_vectors']} vectors, {sizes['n_steps']} steps of {sizes['batch']} × "
    amounts += f"{sizes['text_length']} tokens; {sizes['evaluation']} windows of {sizes['length']} to evaluate"
    text = origin(measured, amounts)
    if missing := results.missing(measured):
        steps = f"Not measured: {len(missing)} steps of the plan, the first of them {'; '.join(missing[:3])}."
        text += "\n" + wrapped(f"{steps} `course reproduce prompts_rest` measures them.")
    return text


def comparison(rows: Sequence[tuple[str, str, float, Number, Number]]) -> Table:
    """Model, prompt, perplexity without it, and the ratio of perplexities with its standard error."""
    table = [
        {"model": model, "prompt": prompt, "perplexity": perplexity * float(ratio)}
        | {"ratio": float(ratio), "error": float(error)}
        for model, prompt, perplexity, ratio, error in rows
    ]
    return Table(
        table,
        caption="Perplexity with a prompt, and its ratio to the perplexity without one",
        formats={"perplexity": number(1), ("ratio", "error"): plus_minus(3)},
        note="± one standard error over the windows. Below 1 the prompt helps.",
    )


def fractions(values: Mapping[str, tuple[Number, Number]]) -> Table:
    """By source of a transferred prompt: the fraction of the own prompt's repair that it reaches."""
    table = [
        {"prompt trained on": model_name(source), "fraction of the repair": float(value), "error": float(error)}
        for source, (value, error) in values.items()
    ]
    return Table(
        table,
        caption="Fraction of the own prompt's repair that a transferred prompt reaches on GPTQ 3 bits",
        formats={("fraction of the repair", "error"): plus_minus(2, sign=True)},
        note="± one standard error over 24 windows.",
    )


def published(measured: Measured | None = None) -> Table:
    """A row per claim of the papers; the published side quotes abstracts and code."""
    measured = measured or results.load()
    quoted = load_published("compress")
    by_claim = {row["claim"]: row["published"] for row in rows(quoted, "claims")}
    settings, lora = rows(quoted, "settings")[0], rows(quoted, "beside_lora")[0]
    sizes = measured["sizes"]
    ours = f"{sizes['n_vectors']}, {sizes['n_steps']}, {sizes['batch']} × {sizes['text_length']} tokens"
    theirs = f"{settings['vectors']}, {settings['steps']:,}, {settings['batch']} × {settings['tokens']:,} tokens"
    table = [
        ("vectors, steps, batch", theirs, ours),
        ("50 % and 4 bits: times smaller", str(by_claim["times smaller"]), _times_smaller(measured)),
        ("the same with a prompt: loss increase over dense", by_claim["quality"], _above_dense(measured)),
        ("prompts transfer to", by_claim["transfers to"], _transfer(measured)),
        ("gain compared with LoRA (Hoang and others)", lora["published"], _than_lora(measured)),
    ]
    return Table(
        [dict(zip(("", "published: LLaMA-7B", "here: SmolLM2-135M"), row, strict=True)) for row in table],
        caption="What the papers report and what we measured",
    )


def _times_smaller(measured: Measured) -> str:
    """In the blocks, and of the whole model with its prompt."""
    dense, pair = results.row_of(measured, "models", model=DENSE), results.with_and_without(measured, BOTH)
    if not dense or not pair:
        return NOT_MEASURED
    alone, own = pair
    whole = dense["bytes"] / (alone["bytes"] + own["prompt_bytes"])
    return f"{dense['weight_bytes'] / alone['weight_bytes']:.2f} (blocks), {whole:.2f} (whole model)"


def _above_dense(measured: Measured) -> str:
    effect = claims.above_dense(measured, BOTH)
    return f"{said(effect, 2)} nats" if effect else NOT_MEASURED


def _transfer(measured: Measured) -> str:
    helped, by_pair, _ = claims.transferred(measured)
    if not helped:
        return NOT_MEASURED
    halves = sum(fraction.above(0.5).holds for fraction in by_pair.values())
    n_helped = sum(effect.holds for effect in helped.values())
    return f"perplexity falls in {n_helped} of {len(helped)} pairs; over half of the repair in {halves}"


def _than_lora(measured: Measured) -> str:
    prompt, *others = claims.ways(measured, WANDA) or [None]
    lora = next((row for row in others if row["way"] == SMALL), None)
    return f"{said(loss_gain(prompt, lora), 2)} nats (equal bytes)" if lora else NOT_MEASURED


def sentences(yours: Mapping[str, tuple[Tensor, Attempt]] | None = None, ideas: list[dict] | None = None) -> Table:
    """Each stored idea for the open task on the pruned and on the dense model; yours comes last.

    Args:
        yours: by model, the loss of each window without your sentence, and your attempt on the same windows.
    """
    ideas = ideas or rows(load_measured("compress", "prompt_words"), "sentences")
    attempts = {model: prompt_words.stored(ideas, model) for model in MODELS}
    effects = {model: prompt_words.gains(each) for model, each in attempts.items()}
    n_tokens = {idea: each.n_tokens for idea, each in attempts[MODELS[0]].items()}
    note = "± one standard error over the windows. Positive numbers: the sentence lowers the loss."
    if yours:
        note += f" Yours: {len(yours[MODELS[0]][0])} windows."
        n_tokens["yours"] = yours[MODELS[0]][1].n_tokens
        for model, (alone, attempt) in yours.items():
            effects[model]["yours"] = of_samples(alone - attempt.losses)
    table = []
    for idea in effects[MODELS[0]]:
        row = {"before the text": idea, "tokens": n_tokens[idea]}
        for model, by_idea in effects.items():
            row |= {f"gain, {model}": by_idea[idea].value, f"error, {model}": by_idea[idea].error}
        table.append(row)
    formats = {(f"gain, {model}", f"error, {model}"): plus_minus(3, sign=True) for model in MODELS}
    return Table(table, caption="Gain of a sentence before the text, in nats per token", formats=formats, note=note)
