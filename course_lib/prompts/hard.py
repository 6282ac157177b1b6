"""Hard prompts: words before a text. Xu and others, 2023, https://arxiv.org/abs/2305.11186

For the model it is a soft prompt of the embeddings of its tokens: `from_ids(model, hard_prompt(tokenizer, text))`.

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
    """Return the tokens of a text, without the special tokens that the tokenizer adds around it.

    Raises:
        ValueError: the text has no tokens.
    """
    ids = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    if not text.strip() or not ids:
        raise ValueError(f"got the text {text!r}, which has no words; expected a sentence, or no prompt at all.")
    return torch.tensor(ids)


def meaningless(tokenizer: PreTrainedTokenizerBase, n: int, generator: torch.Generator) -> Int[Tensor, "P"]:
    """Sample n different tokens from the vocabulary, without special ones: as long as a sentence, but without meaning.

    Such a prompt is a control: only an effect beyond its effect is due to the words of a sentence.
    """
    special = set(tokenizer.all_special_ids)
    plain = [token for token in range(len(tokenizer)) if token not in special]
    if not isinstance(n, int) or not 1 <= n <= len(plain):
        raise ValueError(f"got n={n!r} tokens; expected a whole number from 1 to {len(plain)}.")
    return torch.tensor(plain)[torch.randperm(len(plain), generator=generator)[:n]]
