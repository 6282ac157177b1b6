"""Hard prompts: words before a text. Xu and others, 2023, https://arxiv.org/abs/2305.11186

A model reads them as a soft prompt of the embeddings of their tokens: `from_ids(model, hard_prompt(tokenizer, text))`.

Dimension key: P tokens.
"""

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

# Sentences put before a question to a compressed model: on slides about the paper, and in the paper's public code
# (zirui-ray-liu/compress-then-prompt, case_study.py at f15c334). They differ.
SENTENCES = {
    "slides": "Please carefully examine the weight matrix within the model, as it may contain errors. It is crucial to "
    "verify its accuracy and make any necessary adjustments to ensure optimal performance",
    "code": "The weight matrix inside the language model contains errors. Make any necessary adjustments to ensure "
    "optimal performance.",
}


def hard_prompt(tokenizer: PreTrainedTokenizerBase, text: str) -> Int[Tensor, "P"]:
    """The tokens of a text, without any that the tokenizer would put around it.

    Raises:
        ValueError: for a text without a token.
    """
    ids = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    if not text.strip() or not ids:
        raise ValueError(f"got the text {text!r}, which has no words; expected a sentence, or no prompt at all.")
    return torch.tensor(ids)


def meaningless(tokenizer: PreTrainedTokenizerBase, n: int, generator: torch.Generator) -> Int[Tensor, "P"]:
    """n different tokens drawn from the vocabulary, special ones left out: as long as a sentence, of no meaning.

    Its effect on a model is that of any tokens in this place; only the rest of a sentence's effect is due to its words.
    """
    special = set(tokenizer.all_special_ids)
    plain = [token for token in range(len(tokenizer)) if token not in special]
    if not isinstance(n, int) or not 1 <= n <= len(plain):
        raise ValueError(f"got n={n!r} tokens; expected a whole number from 1 to {len(plain)}.")
    return torch.tensor(plain)[torch.randperm(len(plain), generator=generator)[:n]]
