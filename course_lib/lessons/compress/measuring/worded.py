"""Do sentences help, as the authors report, and more than as many tokens drawn by lot?"""

import torch

from course_lib.lessons.compress.measuring.ground import evaluated, subject, tokenizer
from course_lib.lessons.compress.measuring.sizes import Sizes
from course_lib.measure.experiment import Tables
from course_lib.prompts.hard import SENTENCES, hard_prompt, meaningless
from course_lib.prompts.initial import from_ids

LOTS = 3  # draws of tokens without meaning


def worded(sizes: Sizes, name: str, seed: int) -> Tables:
    """Both sentences, and tokens by lot, as many as the longer sentence has."""
    ids = {which: hard_prompt(tokenizer(), sentence) for which, sentence in SENTENCES.items()}
    n, generator = max(map(len, ids.values())), torch.Generator().manual_seed(seed)
    ids |= {f"lot {draw}": meaningless(tokenizer(), n, generator) for draw in range(LOTS)}
    rows = []
    for which, tokens in ids.items():
        prompt = from_ids(subject(name).model, tokens)
        rows.append(evaluated(sizes, name, prompt, seed) | {"prompt": which, "n_vectors": prompt.n})
    return {"words": rows}
