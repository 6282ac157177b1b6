"""The course's default model in small: its kind, fewer tokens and blocks, a quarter as wide, random weights.

What lessons measure on the default model takes a moment on this one: every call is made, and the numbers mean
nothing.
"""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from course_lib import models

# As many heads as there are, since lessons name some; the vocabulary is that of a part of the default model.
SIZES = {"num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": models.Part.n_tokens}
WIDTHS = {"hidden_size": 144, "head_dim": 16, "intermediate_size": 384, "max_position_embeddings": 8192}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}


def write_thin_model(folder: Path, n_blocks: int) -> Path:
    """A folder that `load_model` reads like the default model's."""
    tokenizer = AutoTokenizer.from_pretrained(models.asset_path(models.DEFAULT_MODEL))
    models.with_fewer_tokens(tokenizer, models.Part.n_tokens).save_pretrained(folder)
    config = LlamaConfig(**SIZES, **WIDTHS, num_hidden_layers=n_blocks, **TOKENS, tie_word_embeddings=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder
