"""Score continuations of contexts in the same way as lm-evaluation-harness."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.data.benchmarks import Request
from course_lib.measure.likelihood import target_log_probs
from course_lib.measure.progress import bar
from course_lib.measure.token_tree import TokenTree, grow_trees, tree_hidden_states

TREE_TOKENS = {"cpu": 512, "cuda": 4096}  # the attention mask is square, so a tree stays smaller than a batch


@dataclass(frozen=True)
class Encoded:
    """A request as tokens; the model reads all except the last."""

    context: list[int]
    continuation: list[int]

    @property
    def read(self) -> list[int]:
        return (self.context + self.continuation)[:-1]


def encode(request: Request, tokenizer: PreTrainedTokenizerBase, most_tokens: int) -> Encoded:
    """Tokenise context and continuation together; every token after the context's own tokens is scored.

    The space between them belongs to the continuation: " yes" is one token, while "yes" after a separate " " would be a
    pair of tokens that hardly occurs in training. A context that is too long loses its first tokens.
    """
    bare = request.context.rstrip()
    continuation = request.context[len(bare) :] + request.continuation
    whole = tokenizer(bare + continuation, add_special_tokens=False, verbose=False).input_ids
    context = tokenizer(bare, add_special_tokens=False, verbose=False).input_ids
    scored = whole[len(context) :]
    if not scored:
        raise ValueError(f"got the continuation {request.continuation!r}, which adds no token to its context.")
    if not context:
        context = [tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id]
    return Encoded(context[-max(1, most_tokens + 1 - len(scored)) :], scored)


@dataclass(frozen=True)
class Score:
    """The sum of the continuation's log-probabilities, and whether greedy decoding would produce it."""

    log_likelihood: float
    greedy: bool


def score_requests(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, requests: list[Request], progress: bool = True
) -> list[Score]:
    """Score requests; return one score per request, in the same order."""
    limit = getattr(model.config, "max_position_embeddings", None) or 1 << 20
    encoded = [encode(request, tokenizer, limit) for request in requests]
    order = sorted(range(len(encoded)), key=lambda i: encoded[i].read)
    scores: dict[int, Score] = {}
    with bar(progress) as shown:
        task = shown.add_task("scoring", total=len(order))
        for tree in grow_trees([encoded[i].read for i in order], TREE_TOKENS[model.device.type]):
            members = order[len(scores) : len(scores) + len(tree.paths)]
            scores |= zip(members, _score_tree(model, tree, [encoded[i] for i in members]), strict=True)
            shown.advance(task, len(members))
    return [scores[i] for i in range(len(encoded))]


def _score_tree(model: PreTrainedModel, tree: TokenTree, members: list[Encoded]) -> Iterator[Score]:
    # The token at a path's place k predicts token k + 1; the continuation begins after the context.
    places = [path[len(e.context) - 1 :] for path, e in zip(tree.paths, members, strict=True)]
    position = torch.tensor([place for path in places for place in path])
    target = torch.tensor([token for e in members for token in e.continuation])
    log_prob, likeliest = target_log_probs(model, tree_hidden_states(model, tree), position, target)
    sizes = [len(e.continuation) for e in members]
    for values, hits in zip(log_prob.double().split(sizes), likeliest.split(sizes), strict=True):
        yield Score(values.sum().item(), bool(hits.all()))
