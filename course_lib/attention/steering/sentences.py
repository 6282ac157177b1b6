"""Sentences of a text: where they are among its tokens, and which of them somebody meant.

Dimension key: B prompts, P tokens of the longest.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor
from transformers import PreTrainedTokenizerBase

END = re.compile(r"(?<=[.!?])[\"')\]]*\s+")  # of a sentence: a full stop, and space behind it


def split_sentences(text: str) -> list[str]:
    """At full stops, question marks and line ends; abbreviations are not known."""
    return [part.strip() for line in text.splitlines() for part in END.split(line) if part.strip()]


@dataclass(frozen=True, eq=False)
class Highlighted:
    """Prompts as a model reads them, padded on the left, and which of their tokens are highlighted."""

    ids: Int[Tensor, "B P"]
    attention_mask: Int[Tensor, "B P"]
    columns: Bool[Tensor, "B P"]


def highlighted(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], pieces: Sequence[Sequence[str]]
) -> Highlighted:
    """Token ids of prompts, and the tokens of these pieces of each, wherever they stand in it.

    Raises:
        ValueError: no prompts, not as many lists of pieces, or a piece that is not in its prompt.
    """
    if not prompts or len(prompts) != len(pieces):
        raise ValueError(f"got {len(prompts)} prompts and pieces of {len(pieces)}; expected as many, at least one.")
    rows = [_tokens(tokenizer, prompt, of_it) for prompt, of_it in zip(prompts, pieces, strict=True)]
    shape = len(rows), max(len(ids) for ids, _ in rows)
    found = Highlighted(
        torch.full(shape, tokenizer.pad_token_id or tokenizer.eos_token_id or 0),
        torch.zeros(shape, dtype=torch.long),
        torch.zeros(shape, dtype=torch.bool),
    )
    for i, (ids, columns) in enumerate(rows):
        found.ids[i, shape[1] - len(ids) :] = torch.tensor(ids)
        found.attention_mask[i, shape[1] - len(ids) :] = 1
        found.columns[i, shape[1] - len(ids) :] = torch.tensor(columns)
    return found


def _tokens(tokenizer: PreTrainedTokenizerBase, prompt: str, pieces: Sequence[str]) -> tuple[list[int], list[bool]]:
    spans = [span for piece in pieces for span in _spans(prompt, piece)]
    encoded = tokenizer(prompt, add_special_tokens=False, return_offsets_mapping=True)
    # A token with a space before the piece's first word is one of the piece's.
    columns = [any(a < end and b > start for start, end in spans) for a, b in encoded.offset_mapping]
    return encoded.input_ids, columns


def _spans(prompt: str, piece: str) -> list[tuple[int, int]]:
    places = [found.start() for found in re.finditer(re.escape(piece), prompt)] if piece.strip() else []
    if not places:
        raise ValueError(f"got the sentence {piece[:80]!r}, which is not in the text {prompt[:80]!r}...")
    return [(start, start + len(piece)) for start in places]


@dataclass(frozen=True)
class Nearest:
    """The sentence of a text that is most like one that was said; a similarity of 0 says that no word is shared."""

    index: int
    sentence: str
    similarity: float


def nearest_sentence(said: str, sentences: Sequence[str]) -> Nearest:
    """By the cosine of word counts, weighted by how few of the sentences have the word (TF-IDF).

    Deviation: AutoPASTA compares the vectors of a sentence encoder. Models copy sentences nearly word for word, for
    which words do; what a model says in other words is found less well.

    Raises:
        ValueError: without a sentence that has words.
    """
    if not any(re.search(r"\w", sentence) for sentence in sentences):
        raise ValueError(f"got {len(sentences)} sentences without a word; expected those of the text.")
    words = TfidfVectorizer(token_pattern=r"\w+").fit(sentences)
    cosine = (words.transform(sentences) @ words.transform([said]).T).toarray()[:, 0]
    best = int(cosine.argmax())
    return Nearest(best, sentences[best], float(cosine[best]))
