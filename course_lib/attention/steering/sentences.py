"""Sentences of a text: the tokens that they consist of, and the one nearest to a sentence that a model wrote.

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

END = re.compile(r"(?<=[.!?])[\"')\]]*\s+")  # end of a sentence: a full stop followed by white space


def split_sentences(text: str) -> list[str]:
    """Split at full stops, question marks, exclamation marks and line ends; abbreviations are not recognised."""
    return [part.strip() for line in text.splitlines() for part in END.split(line) if part.strip()]


@dataclass(frozen=True, eq=False)
class Highlighted:
    """Token ids of prompts, padded on the left, and which tokens are highlighted."""

    ids: Int[Tensor, "B P"]
    attention_mask: Int[Tensor, "B P"]
    columns: Bool[Tensor, "B P"]


def highlighted(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], pieces: Sequence[Sequence[str]]
) -> Highlighted:
    """Tokenize prompts, and mark the tokens of the given pieces wherever they occur in their prompt.

    Raises:
        ValueError: there are no prompts, another number of piece lists than prompts, or a piece is not in its prompt.
    """
    if not prompts or len(prompts) != len(pieces):
        raise ValueError(
            f"got {len(prompts)} prompts and {len(pieces)} lists of pieces; expected one list per prompt, at least one."
        )
    rows = [_tokens(tokenizer, prompt, prompt_pieces) for prompt, prompt_pieces in zip(prompts, pieces, strict=True)]
    shape = len(rows), max(len(ids) for ids, _ in rows)
    batch = Highlighted(
        torch.full(shape, tokenizer.pad_token_id or tokenizer.eos_token_id or 0),
        torch.zeros(shape, dtype=torch.long),
        torch.zeros(shape, dtype=torch.bool),
    )
    for i, (ids, columns) in enumerate(rows):
        batch.ids[i, shape[1] - len(ids) :] = torch.tensor(ids)
        batch.attention_mask[i, shape[1] - len(ids) :] = 1
        batch.columns[i, shape[1] - len(ids) :] = torch.tensor(columns)
    return batch


def _tokens(tokenizer: PreTrainedTokenizerBase, prompt: str, pieces: Sequence[str]) -> tuple[list[int], list[bool]]:
    """Return the token ids of a prompt, and which of its tokens overlap one of the pieces."""
    spans = [span for piece in pieces for span in _spans(prompt, piece)]
    encoding = tokenizer(prompt, add_special_tokens=False, return_offsets_mapping=True)
    # A token that contains the space before a piece overlaps the piece, so it is highlighted too.
    columns = [any(a < end and b > start for start, end in spans) for a, b in encoding.offset_mapping]
    return encoding.input_ids, columns


def _spans(prompt: str, piece: str) -> list[tuple[int, int]]:
    starts = [match.start() for match in re.finditer(re.escape(piece), prompt)] if piece.strip() else []
    if not starts:
        raise ValueError(f"got the sentence {piece[:80]!r}, which is not in the text {prompt[:80]!r}...")
    return [(start, start + len(piece)) for start in starts]


@dataclass(frozen=True)
class Nearest:
    """The sentence of a text most similar to a query sentence; similarity 0 means that they have no word in common."""

    index: int
    sentence: str
    similarity: float


def nearest_sentence(said: str, sentences: Sequence[str]) -> Nearest:
    """Return the sentence with the highest cosine similarity of TF-IDF vectors: word counts, weighted by rarity.

    Deviation: AutoPASTA compares the embeddings of a sentence encoder. Models copy sentences almost word for word, so
    comparing words is enough; paraphrases are matched less reliably.

    Raises:
        ValueError: if no sentence contains a word.
    """
    if not any(re.search(r"\w", sentence) for sentence in sentences):
        raise ValueError(f"got {len(sentences)} sentences without a word; expected the sentences of the text.")
    words = TfidfVectorizer(token_pattern=r"\w+").fit(sentences)
    cosine = (words.transform(sentences) @ words.transform([said]).T).toarray()[:, 0]
    best = int(cosine.argmax())
    return Nearest(best, sentences[best], float(cosine[best]))
