"""The exercise compress.frozen, "What learns": its cases and its named mistakes.

Dimension key: V tokens of the vocabulary, B texts, T tokens of a text, P vectors of the prompt, D width.
"""

from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from course_lib.checking.compare import close, short
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import near
from course_lib.prompts.small_llama import HEAD, TABLE, Weights, as_model, random_weights, weights_of

PARTS = ("prompt", "embedding table", "blocks and norms")
REAL_ROUNDING = 0.02  # of the largest move


def _agree(got: Any, expected: Any, case: Case) -> str | None:
    """The prompt up to the rounding of a gradient, and the weights as they came.

    On the real model, with 49,152 tokens and 30 layers, the gradient depends on the form of the right answer:
    `cross_entropy` of transposed logits differs from that of flattened ones by 0.4 % of the largest move.
    """
    if not isinstance(expected, tuple) or not isinstance(expected[0], Tensor):
        return close(got, expected)
    if not isinstance(got, tuple) or len(got) != 2:
        return f"got {short(got)}, expected 2 values: the prompt and the weights"
    rounding = 1e-5 * expected[0].abs().max().item()
    if isinstance(case.arguments[0], torch.nn.Module):
        rounding += REAL_ROUNDING * (expected[0] - case.arguments[1]).abs().max().item()
    if problem := near(got[0], expected[0], rounding):
        return f"prompt: {problem}"
    weights = got[1]
    if isinstance(weights, dict):  # a state_dict lists the table a second time, as the LM head
        weights = {name: weight for name, weight in weights.items() if name != HEAD}
    problem = close(weights, expected[1])
    return f"weights: {problem}" if problem else None


def _moves(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    """How far each part is from where it was."""
    from course_lib.lessons.common.answers import compare_bars

    before = weights_of(as_model(case.arguments[0]))

    def lengths(prompt: Any, weights: Any) -> Tensor:
        apart = {name: (torch.as_tensor(weights[name]) - old).double().norm() for name, old in before.items()}
        rest = torch.stack([length for name, length in apart.items() if name != TABLE]).norm()
        return torch.stack([(torch.as_tensor(prompt) - case.arguments[1]).double().norm(), apart[TABLE], rest])

    return compare_bars(lengths(*got), lengths(*expected), PARTS, "length of the move")


def _frozen(weights: Weights, prompt: Tensor, ids: Tensor, rate: float) -> tuple[Tensor, Weights]:
    parts = _leaves(weights, prompt)
    loss = _losses(*parts, ids).mean()
    gradients = _gradients(*parts, loss)
    return prompt - rate * gradients["prompt"], _plain(weights)


def _plain(weights: Weights) -> Weights:
    return weights_of(weights) if isinstance(weights, torch.nn.Module) else weights


def _leaves(weights: Weights, prompt: Tensor) -> tuple[Weights, Tensor, Tensor, Tensor]:
    """The weights and the prompt with gradients. The tied table is here twice: for the lookup, and as the LM head."""
    leaves = {name: weight.clone().requires_grad_() for name, weight in _plain(weights).items()}
    return leaves, prompt.clone().requires_grad_(), leaves[TABLE], leaves[TABLE].detach().clone().requires_grad_()


def _logits(leaves: Weights, head: Tensor, vectors: Tensor) -> Tensor:
    model = as_model({name: weight.detach() for name, weight in leaves.items()})
    inputs = {"inputs_embeds": vectors, "use_cache": False}
    return functional_call(model, {**leaves, HEAD: head}, kwargs=inputs, tie_weights=False).logits


def _before(prompt: Tensor, lookup: Tensor, ids: Tensor) -> Tensor:
    return torch.cat([prompt.expand(len(ids), -1, -1), lookup[ids]], dim=1)


def _losses(leaves: Weights, prompt: Tensor, lookup: Tensor, head: Tensor, ids: Tensor) -> Tensor:
    """The loss of each token, predicted from everything before it: (B, T)."""
    logits = _logits(leaves, head, _before(prompt, lookup, ids))[:, len(prompt) - 1 : -1]
    return cross_entropy(logits.transpose(1, 2), ids, reduction="none")


def _own_token(leaves: Weights, prompt: Tensor, lookup: Tensor, head: Tensor, ids: Tensor) -> Tensor:
    """Each position predicts its own token."""
    logits = _logits(leaves, head, _before(prompt, lookup, ids))[:, len(prompt) :]
    return cross_entropy(logits.transpose(1, 2), ids)


def _prompt_last(leaves: Weights, prompt: Tensor, lookup: Tensor, head: Tensor, ids: Tensor) -> Tensor:
    vectors = torch.cat([lookup[ids], prompt.expand(len(ids), -1, -1)], dim=1)
    logits = _logits(leaves, head, vectors)[:, : ids.shape[1] - 1]
    return cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="sum") + 0 * prompt.sum()


def _rows_in_the_head(
    leaves: Weights, prompt: Tensor, lookup: Tensor, head: Tensor, ids: Tensor, rows: Tensor
) -> Tensor:
    """The LM head has a logit for each vector of the prompt too."""
    logits = _logits(leaves, torch.cat([head, rows]), _before(prompt, lookup, ids))[:, len(prompt) - 1 : -1]
    return cross_entropy(logits.transpose(1, 2), ids)


def _gradients(leaves: Weights, prompt: Tensor, lookup: Tensor, head: Tensor, loss: Tensor) -> dict[str, Any]:
    """By part; "blocks" are all weights without the table."""
    names = [name for name in leaves if name != TABLE]
    parts = [prompt, lookup, head, *(leaves[name] for name in names)]
    of_prompt, of_lookup, of_head, *rest = torch.autograd.grad(loss, parts, allow_unused=True, materialize_grads=True)
    blocks = dict(zip(names, rest, strict=True))
    return {"prompt": of_prompt, "lookup": of_lookup, "head": of_head, "blocks": blocks}


def _moved(weights: Weights, gradients: dict[str, Any], rate: float, *parts: str) -> Weights:
    """The weights after a step in which these parts learn."""
    changed = dict(_plain(weights))
    for part in parts:
        steps = gradients["blocks"] if part == "blocks" else {TABLE: gradients[part]}
        changed |= {name: changed[name] - rate * step for name, step in steps.items()}
    return changed


def _frozen_cases(generator: torch.Generator) -> list[Case]:
    def drawn(vocabulary: int, n_texts: int, n_tokens: int, n: int, heads: int, rate: float = 3.0, n_blocks: int = 1):
        weights = random_weights(generator, vocabulary, heads, n_blocks)
        prompt = torch.randn(n, 2 * heads, generator=generator)
        return weights, prompt, torch.randint(0, vocabulary, (n_texts, n_tokens), generator=generator), rate

    # Blocks that add nothing: the logits are the table times the prompt vector, divided by its root mean square.
    zeros = random_weights(generator, 2, 1)
    zeros |= {name: torch.zeros_like(weight) for name, weight in zeros.items() if "proj" in name}
    zeros[TABLE] = torch.tensor([[0.0, 1.0], [0.0, -1.0]])
    by_hand = zeros, torch.tensor([[1.0, 0.0]]), torch.tensor([[0]]), 2**0.5
    weights, prompt, ids, _ = drawn(9, 2, 6, 4, 3)
    turned = {name: weight.t().contiguous().t() for name, weight in weights.items()}
    return [
        Case("one vector, one token, blocks of zeros, by hand: the gradient is (0, −√2), the result (1, 2)", by_hand),
        Case("20 tokens of vocabulary, 3 texts of 8 tokens, 3 vectors", drawn(20, 3, 8, 3, 4)),
        Case("two blocks, 5 vectors", drawn(30, 2, 12, 5, 2, 2.0, n_blocks=2)),
        Case("a text longer than the vocabulary", drawn(4, 1, 15, 2, 3, 5.0)),
        Case("as many of everything", drawn(4, 4, 4, 4, 2)),
        Case("not contiguous", (turned, prompt.T.contiguous().T, ids, 1.5)),
    ]  # fmt: skip


def _library(
    weights: Weights | torch.nn.Module, prompt: Tensor, ids: Tensor, rate: float
) -> tuple[Tensor, dict[str, Tensor]]:
    from course_lib.lessons.compress.steps import prompt_step

    return prompt_step(weights, prompt, ids, rate)


FROZEN = Exercise(
    id="compress.frozen",
    title="What learns",
    difficulty=3,
    minutes=12,
    points=4,
    reference=_frozen,
    cases=_frozen_cases,
    agree=_agree,
    picture=_moves,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_frozen),
    also_right=(
        Variant("with an optimiser", lambda *given: _by_optimiser(*given)),
        Variant("text by text, gradients added up", lambda *given: _text_by_text(*given)),
        Variant("in float64", lambda w, p, i, r: (_frozen(_doubled(w), p.double(), i, r)[0], w)),
    ),
    hints=(
        "Freeze all parameters first; then only the prompt may require a gradient. Which position predicts the first "
        "token of the text, and which one the last?",
        "inputs_embeds = [prompt; model.get_input_embeddings()(ids)]. The logits at positions P − 1 to P + T − 2 "
        "predict the T tokens.",
        "model.requires_grad_(False), prompt = prompt.clone().requires_grad_(), then cross_entropy of "
        "logits[:, P − 1 : -1] and ids, loss.backward(), and prompt − rate · prompt.grad.",
    ),
)


def _doubled(weights: Weights) -> Weights:
    return {name: weight.double() for name, weight in weights.items()}


def _by_optimiser(weights: Weights, prompt: Tensor, ids: Tensor, rate: float) -> tuple[Tensor, Weights]:
    """The prompt as an embedding of its own; all parameters get a gradient, and only the prompt gets a step."""
    model, own = as_model(weights), torch.nn.Embedding.from_pretrained(prompt.clone(), freeze=False)
    optimiser = torch.optim.SGD(own.parameters(), lr=rate)
    first = own(torch.arange(len(prompt))).repeat(len(ids), 1, 1)
    outputs = model(inputs_embeds=torch.cat([first, model.model.embed_tokens(ids)], dim=1))
    log_probabilities = outputs.logits.log_softmax(dim=-1)[:, -ids.shape[1] - 1 : -1]
    log_probabilities.gather(2, ids[..., None]).mean().neg().backward()
    optimiser.step()
    return own.weight, dict(model.state_dict())


def _text_by_text(weights: Weights, prompt: Tensor, ids: Tensor, rate: float) -> tuple[Tensor, Weights]:
    model, vectors = as_model(weights).requires_grad_(False), torch.nn.Parameter(prompt.clone())
    for text in ids:
        logits = model(inputs_embeds=torch.cat([vectors, model.get_input_embeddings()(text)])[None]).logits[0]
        loss = torch.nn.functional.nll_loss(logits[len(prompt) - 1 : -1].log_softmax(1), text, reduction="sum")
        (loss / ids.numel()).backward()
    return vectors.data - rate * vectors.grad, weights_of(model)
