"""Tiny random models of many families, by name: two blocks 48 wide, 6 heads, 100 neurons, 97 tokens.

Weights are larger than fresh ones and norms and biases are not what they begin as, so that a factor, a norm or a
rotation that is left out shows in the logits.
"""

import torch
import transformers
from transformers import AutoModelForCausalLM

SIZES = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 100}
SIZES |= {"vocab_size": 97, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
GPT2 = {"n_embd": 48, "n_layer": 2, "n_head": 6, "n_inner": 100, "n_positions": 64}
OPT = {"ffn_dim": 100, "word_embed_proj_dim": 48}
GEMMA = {"head_dim": 8, "num_key_value_heads": 2}
ALL_FULL = ["full_attention"] * 2


def _rope(kind, **settings):
    parameters = {"rope_type": kind, "rope_theta": 10000.0, **settings}
    return {"num_key_value_heads": 2, "rope_parameters": parameters}


CONFIGURATIONS = {  # name -> class of the configuration, its settings beside SIZES
    "Llama": ("Llama", {"num_key_value_heads": 2}),
    "Llama, biases": ("Llama", {"num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True}),
    "Llama, wide heads": ("Llama", {"num_key_value_heads": 2, "head_dim": 12}),
    "Llama, linear": ("Llama", _rope("linear", factor=2.0)),
    "Llama, dynamic": ("Llama", _rope("dynamic", factor=2.0)),
    "Llama, YaRN": ("Llama", _rope("yarn", factor=4.0, original_max_position_embeddings=16)),
    "Llama, llama3": (
        "Llama",
        _rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16),
    ),
    "Llama, longrope": (
        "Llama",
        _rope("longrope", short_factor=[1.0] * 4, long_factor=[2.0] * 4, original_max_position_embeddings=16),
    ),
    "Mistral": ("Mistral", {"num_key_value_heads": 2, "sliding_window": None}),
    "Mistral, window": ("Mistral", {"num_key_value_heads": 2, "sliding_window": 4}),
    "Qwen2": ("Qwen2", {"num_key_value_heads": 2}),
    "Qwen3": ("Qwen3", {"num_key_value_heads": 2, "head_dim": 12}),
    "Gemma": ("Gemma", GEMMA),
    "Gemma 2": (
        "Gemma2",
        GEMMA | {"attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 16, "layer_types": ALL_FULL},
    ),
    "Gemma 3": ("Gemma3Text", GEMMA | {"sliding_window": 4, "query_pre_attn_scalar": 16}),
    "Granite": (
        "Granite",
        {
            "num_key_value_heads": 2,
            "attention_multiplier": 0.3,
            "residual_multiplier": 0.5,
            "embedding_multiplier": 3.0,
            "logits_scaling": 2.0,
        },
    ),
    "SmolLM3": ("SmolLM3", {"num_key_value_heads": 2, "no_rope_layers": [1, 0]}),
    "OLMo": ("Olmo", {"num_key_value_heads": 2, "clip_qkv": 0.05}),
    "OLMo 2": ("Olmo2", {"num_key_value_heads": 2}),
    "StableLM": ("StableLm", {"num_key_value_heads": 2}),
    "Phi": ("Phi", {"num_key_value_heads": 2}),
    "Phi 3": ("Phi3", {"num_key_value_heads": 2}),
    "GPT-2": ("GPT2", GPT2),
    "GPT-2, scaled by layer": ("GPT2", GPT2 | {"scale_attn_by_inverse_layer_idx": True}),
    "OPT": ("OPT", OPT),
    "OPT, norms behind": ("OPT", OPT | {"do_layer_norm_before": False}),
    "Cohere": ("Cohere", {"num_key_value_heads": 2}),
    "Starcoder 2": ("Starcoder2", {"num_key_value_heads": 2, "sliding_window": None}),
    "GPT-NeoX": ("GPTNeoX", {}),
    "Helium": ("Helium", GEMMA),
    "BitNet": ("BitNet", {"num_key_value_heads": 2}),
    "DiffLlama": ("DiffLlama", {"num_key_value_heads": 2}),
    "HunYuan": ("HunYuanDenseV1", GEMMA),
}


def family_model(name):
    """The model of a configuration, in evaluation mode."""
    kind, settings = CONFIGURATIONS[name]
    config = getattr(transformers, f"{kind}Config")(**SIZES | settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(4) if parameter.ndim > 1 else parameter.add_(0.1 * torch.randn(parameter.shape))
    return model
