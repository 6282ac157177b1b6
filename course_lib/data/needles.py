"""Needles in running text: prompts that contain a fact once, and questions about it.

Dimension key: L tokens of a prompt, Q of a question, A of an answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from course_lib.data.corpora import windows

DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
APART = 0.4  # distance of the second needle: from each of these depths it leads to another
# fmt: off
WORDS = (
    "apple", "river", "piano", "window", "garden", "silver", "doctor", "orange", "bridge", "winter",
    "engine", "castle", "rocket", "island", "candle", "mirror", "forest", "button", "camera", "basket",
    "yellow", "dragon", "guitar", "hammer", "kitchen", "market", "morning", "pencil", "potato", "purple",
    "rabbit", "school", "shadow", "summer", "teacher", "ticket", "tower", "turtle", "valley", "village",
)
# fmt: on


@dataclass(frozen=True)
class Sample:
    """A prompt with needles, and its questions with their answers, to be read after the prompt.

    A question ends where the answer begins, so a model that only continues text can answer it without an instruction.
    """

    prompt: Int[Tensor, "L"]
    questions: tuple[Int[Tensor, "_"], ...]
    answers: tuple[Int[Tensor, "_"], ...]
    depths: tuple[float, ...]  # where each needle lies: 0 is the start of the prompt, 1 its end

    def naive(self) -> "Sample":
        """The prompt with the first question at its end, which does not test the cache: for showing the leak."""
        none = self.questions[0][:0]
        return replace(self, prompt=torch.cat([self.prompt, self.questions[0]]), questions=(none, *self.questions[1:]))


@dataclass(frozen=True)
class Needle:
    """The wording of a task's needles: the first words of sentences that end with the answer.

    A word includes the space before it. Each digit is one token, and so is the space before the digits.
    """

    sentences: tuple[str, ...]
    digits: int = 0  # of the answer; 0: it is a common word

    def answers(self, filler: Int[Tensor, "L"], tokenizer: PreTrainedTokenizerBase, seed: torch.Generator) -> list[str]:
        """Draw one answer per sentence: digits, or different words of one token that do not occur in the filler."""
        n = len(self.sentences)
        if self.digits:
            digits = torch.randint(10, (n, self.digits), generator=seed)
            return ["".join(map(str, row)) for row in digits.tolist()]
        tokens = {word: _ids(tokenizer, " " + word) for word in WORDS}
        words = [word for word, ids in tokens.items() if len(ids) == 1 and ids[0] not in filler]
        return [" " + words[i] for i in torch.randperm(len(words), generator=seed)[:n].tolist()]


TASKS = {
    "word": Needle(("The secret word is",)),
    "digits": Needle(("The secret number is ",), digits=5),
    "two": Needle(("The secret word for the cellar door is", "The name of the captain's horse is")),
}


def samples(
    task: str,
    n: int,
    length: int,
    tokenizer: PreTrainedTokenizerBase,
    seed: int = 0,
    depths: Sequence[float] = DEPTHS,
    corpus: str = "wikipedia",
) -> list[Sample]:
    """Make n prompts of exactly `length` tokens, with each depth in turn; the filler is text of the evaluation split.

    Args:
        task: "word" (a common word), "digits" (five digits), or "two" (two needles, where the second question is about
            the needle that the first question did not ask for).
        depths: where the needle is. A second needle is 0.4 of the prompt later, modulo the prompt's length.

    Raises:
        ValueError: an unknown task, prompts that are too short for their needles, or more of them than there is text.
    """
    if task not in TASKS:
        raise ValueError(f"got task {task!r}; expected one of {', '.join(TASKS)}.")
    if not depths or any(not 0 <= depth <= 1 for depth in depths):
        raise ValueError(f"got depths {tuple(depths)}; expected at least one, each from 0 (the start) to 1 (the end).")
    filler = windows(corpus, n, length, tokenizer, "evaluation", seed)
    generator = torch.Generator().manual_seed(seed)
    return [_sample(TASKS[task], filler[i], depths[i % len(depths)], tokenizer, generator) for i in range(n)]


def _sample(
    needle: Needle,
    filler: Int[Tensor, "L"],
    depth: float,
    tokenizer: PreTrainedTokenizerBase,
    generator: torch.Generator,
) -> Sample:
    places = [round((depth + APART * i) % 1.0, 6) for i in range(len(needle.sentences))]
    answers = needle.answers(filler, tokenizer, generator)
    texts = [_ids(tokenizer, f" {s}{a}.") for s, a in zip(needle.sentences, answers, strict=True)]
    rest = len(filler) - sum(map(len, texts))
    if rest < 2 * sum(map(len, texts)):
        raise ValueError(f"got prompts of {len(filler)} tokens; expected at least three times the needles' length.")
    prompt = filler[:rest]
    cuts = [_between_sentences(prompt, int(place * rest), int(_ids(tokenizer, ".")[-1])) for place in places]
    for cut, text in sorted(zip(cuts, texts, strict=True), key=lambda pair: -pair[0]):  # from the end to the start
        prompt = torch.cat([prompt[:cut], text, prompt[cut:]])
    return Sample(
        prompt,
        tuple(_ids(tokenizer, f"{'.' if i else ''}\n\n{sentence}") for i, sentence in enumerate(needle.sentences)),
        tuple(_ids(tokenizer, answer) for answer in answers),
        tuple(places),
    )


def _between_sentences(text: Int[Tensor, "L"], wanted: int, full_stop: int) -> int:
    """Return the sentence end that is nearest to a place, or the place itself if none is near, as in tables."""
    ends = (text == full_stop).nonzero()[:, 0] + 1
    near = ends[(ends - wanted).abs() <= len(text) // 20]
    return int(near[(near - wanted).abs().argmin()]) if len(near) else wanted


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> Int[Tensor, "L"]:
    return torch.tensor(tokenizer(text, add_special_tokens=False).input_ids)
