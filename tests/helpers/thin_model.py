"""The course's default model in small: its tokenizer and its kind, fewer blocks, a quarter as wide, random weights.

What lessons measure on the default model takes a moment on this one: every call is made, and the numbers mean
nothing.
"""

import shutil
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from course_lib import models

# As many heads as there are, since lessons name some; the vocabulary is the tokenizer's.
SIZES = {"num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152}
WIDTHS = {"hidden_size": 144, "head_dim": 16, "intermediate_size": 384, "max_position_embeddings": 8192}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}


def write_thin_model(folder: Path, n_blocks: int) -> Path:
    """A folder that `load_model` reads like the default model's."""
    for path in models.asset_path(models.DEFAULT_MODEL).iterdir():
        if path.name.startswith(("tokenizer", "chat_template")):
            shutil.copy(path, folder)
    config = LlamaConfig(**SIZES, **WIDTHS, num_hidden_layers=n_blocks, **TOKENS, tie_word_embeddings=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder
