"""Load language models, and find their parts: the only file that uses Hugging Face attribute names.

Dimension key: O outputs of a linear layer, I its inputs.
"""

import copy
import json
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
import transformers
from jaxtyping import Float
from tokenizers import Tokenizer as Rules
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.pytorch_utils import Conv1D

from course_lib.data import hub
from course_lib.data.assets.cache import asset_path
from course_lib.settings import check_count

DEFAULT_MODEL = "smollm2-135m"
# Q4_1: at most 16 values in each group of 32 neighbours of a row. All our measurements are on a model that was
# rounded once.
WEIGHTS = "SmolLM2-135M-Instruct from a file with 4 bits per weight"


@dataclass(frozen=True)
class Architecture:
    """The names of the parts in a family of models. Paths are relative to the model, or to one block."""

    family: str
    blocks: str
    final_norm: str
    attention: tuple[str, ...]  # query, key, value, output; or one fused name for q, k, v, and output
    mlp: tuple[str, ...]  # inputs of the hidden neurons (gate, up), then their output (down)
    norms: tuple[str, ...]  # before attention, before the mlp
    fused: bool = False
    neurons_key: str = "intermediate_size"  # of the configuration
    head_size_key: str = ""  # of the configuration; empty if the head size is always width / heads

    @property
    def input_groups(self) -> tuple[tuple[str, ...], ...]:
        """Names of linears that share an input, in the order of the forward pass."""
        return (self.attention[:-1], self.attention[-1:], self.mlp[:-1], self.mlp[-1:])


ARCHITECTURES = (
    Architecture(
        "Llama, Qwen2, Qwen3, Mistral",
        blocks="model.layers",
        final_norm="model.norm",
        attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
        mlp=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
        norms=("input_layernorm", "post_attention_layernorm"),
        head_size_key="head_dim",
    ),
    Architecture(
        "OPT",
        blocks="model.decoder.layers",
        final_norm="model.decoder.final_layer_norm",
        attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"),
        mlp=("fc1", "fc2"),
        norms=("self_attn_layer_norm", "final_layer_norm"),
        neurons_key="ffn_dim",
    ),
    Architecture(
        "GPT-2",
        blocks="transformer.h",
        final_norm="transformer.ln_f",
        attention=("attn.c_attn", "attn.c_proj"),
        mlp=("mlp.c_fc", "mlp.c_proj"),
        norms=("ln_1", "ln_2"),
        fused=True,
        neurons_key="n_inner",
    ),
)


ACTIVATION_KEYS = ("hidden_act", "activation_function")  # of the configuration


@dataclass(frozen=True)
class Mixture:
    """The names of the experts in a family of models, relative to one block; all else is as in the dense family."""

    config: str  # the class of its configuration
    mlp: str  # contains all parts below
    gate: str
    into: str  # one tensor for all experts: rows of gate, then of up
    out: str
    experts_key: str  # of the configuration
    chosen_key: str


MIXTRAL = Mixture(
    "MixtralConfig",
    mlp="mlp",
    gate="mlp.gate.weight",
    into="mlp.experts.gate_up_proj",
    out="mlp.experts.down_proj",
    experts_key="num_local_experts",
    chosen_key="num_experts_per_tok",
)


def _part(module: nn.Module, path: str) -> nn.Module | None:
    try:
        return module.get_submodule(path)
    except AttributeError:
        return None


def _missing(block: nn.Module, architecture: Architecture) -> list[str]:
    names = architecture.attention + architecture.mlp + architecture.norms
    return [name for name in names if _part(block, name) is None]


def architecture(block: nn.Module) -> Architecture:
    """Return the block's family. It is detected from the structure, so that similar families work without being listed.

    Raises:
        ValueError: for an unknown block; the message lists, for each known family, the parts that are missing.
    """
    for candidate in ARCHITECTURES:
        if not _missing(block, candidate):
            return candidate
    lacks = "; ".join(f"{a.family}: lacks {', '.join(_missing(block, a))}" for a in ARCHITECTURES)
    raise ValueError(
        f"got a block of type {type(block).__name__} that fits no known family ({lacks}). "
        "Add its names to ARCHITECTURES in course_lib/models.py."
    )


def blocks(model: nn.Module) -> nn.ModuleList:
    """Return the transformer blocks of a causal language model, in order.

    Raises:
        ValueError: if there is no list of blocks; the message names the paths tried.
    """
    for path in dict.fromkeys(a.blocks for a in ARCHITECTURES):
        part = _part(model, path)
        if isinstance(part, nn.ModuleList) and len(part):
            architecture(part[0])
            return part
    tried = ", ".join(dict.fromkeys(a.blocks for a in ARCHITECTURES))
    raise ValueError(
        f"got a {type(model).__name__} without a list of blocks at {tried}. "
        "Add its names to ARCHITECTURES in course_lib/models.py."
    )


def check_is_model(model: object) -> None:
    """Raise ValueError for anything but a causal language model of transformers, such as a torch.compile result."""
    if not isinstance(model, PreTrainedModel):
        compiled = hasattr(model, "_orig_mod")
        remedy = " Give the model itself, which is its attribute `_orig_mod`." if compiled else ""
        raise ValueError(
            f"got a {type(model).__name__} for a model; expected a causal language model of transformers.{remedy}"
        )


def without_hooks(module: nn.Module) -> nn.Module:
    """Return a copy that shares all weights and has no hooks, for trial passes that must not trigger hooks."""
    twin = copy.copy(module)
    twin._modules = {name: child and without_hooks(child) for name, child in module._modules.items()}
    for name in list(vars(twin)):
        if name.startswith(("_forward_hooks", "_forward_pre_hooks")):  # and which of them take keyword arguments
            setattr(twin, name, OrderedDict())
    return twin


def trunk(model: nn.Module) -> nn.Module:
    """Return the part of a model that takes token ids and runs the blocks, with or without an LM head around it."""
    return model.get_submodule(architecture(blocks(model)[0]).blocks.rpartition(".")[0])


def input_groups(block: nn.Module) -> tuple[tuple[str, ...], ...]:
    """Return the names of the block's linears, grouped by shared input (q, k, v have one input; gate, up another)."""
    return architecture(block).input_groups


def linears(block: nn.Module) -> dict[str, nn.Module]:
    """Return the block's weight matrices by name, in the order of the forward pass, without norms and biases."""
    return {name: block.get_submodule(name) for group in input_groups(block) for name in group}


@dataclass(frozen=True, eq=False, kw_only=True)
class Layer:
    """A weight matrix of a model, with its names and its block."""

    name: str  # such as "blocks.3.mlp.up_proj", for all families
    part: str  # its name in the block, such as "mlp.up_proj"
    module: nn.Module
    block: nn.Module
    group: tuple[str, ...]  # names of the layers with the same input, in the order of the forward pass

    @property
    def is_first(self) -> bool:
        """Whether it is the first of the layers that share its input."""
        return self.name == self.group[0]

    @property
    def block_name(self) -> str:
        return self.name.removesuffix(f".{self.part}")


def layers_of(model: nn.Module) -> list[Layer]:
    """Return every weight matrix of every block, in the order of the forward pass. Call it once and reuse the list.

    Raises:
        ValueError: for a model of an unknown family.
    """
    layers = []
    for index, block in enumerate(blocks(model)):
        for parts in input_groups(block):
            group = tuple(f"blocks.{index}.{part}" for part in parts)
            layers += [
                Layer(name=name, part=part, module=block.get_submodule(part), block=block, group=group)
                for name, part in zip(group, parts, strict=True)
            ]
    return layers


def by_block(layers: Iterable[Layer]) -> dict[nn.Module, list[Layer]]:
    """Group the layers by block; blocks are in order."""
    layers_in: dict[nn.Module, list[Layer]] = {}
    for layer in layers:
        layers_in.setdefault(layer.block, []).append(layer)
    return layers_in


def weight_of(linear: nn.Module) -> Float[Tensor, "O I"]:
    """Return a view of a layer's weight as (outputs, inputs). GPT-2's Conv1D stores the transpose."""
    return linear.weight.detach().T if isinstance(linear, Conv1D) else linear.weight.detach()


def final_norm(model: nn.Module) -> nn.Module:
    """Return the norm between the last block and the LM head.

    Raises:
        ValueError: for a model without one, such as opt-350m, which has post-norm blocks.
    """
    path = architecture(blocks(model)[0]).final_norm
    norm = _part(model, path)
    if norm is None:
        raise ValueError(
            f"got a {type(model).__name__} without a norm after its last block, at {path} (do_layer_norm_before=False, "
            "as in opt-350m); expected one whose blocks have their norms before attention and MLP."
        )
    return norm


def head(model: PreTrainedModel) -> nn.Module:
    """Return the LM head, which turns hidden states into logits; it is often tied to the embedding."""
    return model.get_output_embeddings()


@dataclass(frozen=True)
class Heads:
    """Attention heads: `n_query` query heads; each group of `group` query heads shares one key-value head."""

    n_query: int
    n_key_value: int
    size: int

    @property
    def group(self) -> int:
        return self.n_query // self.n_key_value


def heads(model: PreTrainedModel) -> Heads:
    """Return the number of query and key-value heads of each block, and their size."""
    config = model.config
    n_query = config.num_attention_heads
    n_key_value = getattr(config, "num_key_value_heads", None) or n_query
    size = getattr(config, "head_dim", None) or config.hidden_size // n_query
    return Heads(n_query, n_key_value, size)


def attention_of(block: nn.Module) -> nn.Module:
    """Return the module that contains the block's query, key, value and output matrices."""
    return block.get_submodule(architecture(block).attention[0].rpartition(".")[0])


def is_rotated(block: nn.Module) -> bool:
    """Return whether RoPE rotates the queries and keys of this block. Some families omit it in some blocks (NoPE)."""
    return bool(getattr(attention_of(block), "use_rope", True))


def rotary_frequencies(model: PreTrainedModel) -> Float[Tensor, "half"]:
    """Return RoPE's angle per position (D/2,) for each pair of dimensions (i, i + D/2), in float32.

    The angles hold for the blocks for which `is_rotated` is true.

    Raises:
        ValueError: for a model without RoPE, or one whose angles depend on the length, cover only part of a head, or
            rotate other pairs.
    """
    module = _rotary(model)
    kind, frequencies = getattr(module, "rope_type", "default"), module.inv_freq.float()
    if kind in ("dynamic", "longrope") or 2 * len(frequencies) != heads(model).size:
        raise ValueError(
            f"got RoPE of type {kind!r} over {2 * len(frequencies)} of {heads(model).size} dimensions; expected fixed "
            "angles over whole heads."
        )
    _check_pairs(model, module)
    return frequencies


# How some families change the LM head's output, by configuration key; 1, or a missing key, changes nothing.
LOGIT_KEYS = (
    "final_logit_softcapping",
    "logits_soft_cap",
    "logit_scale",
    "logits_scaling",
    "lm_head_multiplier",
    "output_multiplier",
    "logits_mup_width_multiplier",
)


def changed_logits(model: nn.Module) -> dict[str, float]:
    """Return the settings that make this model's logits differ from its LM head's output: soft caps and factors."""
    config = model.config.get_text_config()
    settings = {key: getattr(config, key, None) for key in LOGIT_KEYS}
    return {key: value for key, value in settings.items() if value is not None and (value != 1 or "cap" in key)}


def n_positions(model: nn.Module) -> int | None:
    """Return the maximum length of a window for learned positions, as in OPT and GPT-2; None with RoPE."""
    rotary = any(hasattr(part, "inv_freq") for part in model.modules())
    return None if rotary else getattr(model.config, "max_position_embeddings", None)


def check_tokens(model: PreTrainedModel, ids: object, name: str = "windows") -> None:
    """Raise ValueError unless `ids` are token ids of this model with at most `n_positions` tokens along the last axis.

    Args:
        name: the caller's name for them, for the message.
    """
    check_is_model(model)
    if not isinstance(ids, Tensor) or ids.ndim < 1 or ids.dtype not in (torch.int64, torch.int32) or not ids.numel():
        what = f"{tuple(ids.shape)} {ids.dtype}" if isinstance(ids, Tensor) else type(ids).__name__
        raise ValueError(f"got {name} {what}; expected a tensor of token ids, at least one. Use corpora.windows(...).")
    low, high, size = int(ids.min()), int(ids.max()), model.config.vocab_size
    if low < 0 or high >= size:
        raise ValueError(
            f"got token ids {low} to {high}; expected 0 to {size - 1}. Make the {name} with this model's tokenizer."
        )
    check_length(model, ids.shape[-1], name)


def check_length(model: nn.Module, n_tokens: int, name: str = "windows") -> None:
    """Raise ValueError for more tokens than a model with learned positions has positions for."""
    most = n_positions(model)
    if most is not None and n_tokens > most:
        raise ValueError(
            f"got {name} of {n_tokens} tokens; expected at most {most}, as many as this {type(model).__name__} has "
            f"positions for. Make shorter {name}."
        )


def rotary_scaling(model: PreTrainedModel) -> float:
    """Return the factor by which RoPE scales queries and keys: 1, except for YaRN."""
    return float(getattr(_rotary(model), "attention_scaling", 1.0))


def check_all_rotated(model: PreTrainedModel) -> None:
    """Raise ValueError for a model that omits RoPE in some blocks."""
    plain = [index for index, block in enumerate(blocks(model)) if not is_rotated(block)]
    if plain:
        raise ValueError(
            f"got a {type(model).__name__} without RoPE in blocks {plain[:8]} (no_rope_layers); expected RoPE in every "
            "block, whose keys can be turned on to other positions."
        )


def _rotary(model: PreTrainedModel) -> nn.Module:
    module = next((part for part in model.modules() if hasattr(part, "inv_freq")), None)
    if module is None:
        raise ValueError(
            f"got a {type(model).__name__}, which has no rotary position embedding of one kind; this needs RoPE that "
            "is the same in all blocks."
        )
    return module


def _check_pairs(model: PreTrainedModel, rotary: nn.Module) -> None:
    """Test the family's rotation: Llama rotates pairs (i, i + D/2), others (2i, 2i + 1) with the same angles."""
    family = type(attention_of(blocks(model)[0]))
    turn = getattr(sys.modules.get(family.__module__), "apply_rotary_pos_emb", None)
    half = len(rotary.inv_freq)
    one = torch.zeros(1, 1, 1, 2 * half, device=rotary.inv_freq.device)
    one[..., 0] = 1.0  # the rotation moves this entry to the other one of its pair
    position = torch.ones(1, 1, dtype=torch.long, device=one.device)
    other = turn(one, one, *rotary(one, position))[1].flatten().nonzero().flatten().tolist() if turn else []
    if other != [0, half]:
        raise ValueError(
            f"got a {type(model).__name__}, whose RoPE turns other pairs of dimensions than (i, i + {half}), as that "
            "of Llama does; expected a family of that kind."
        )


def activation(model: PreTrainedModel) -> str:
    """Return transformers' name for the nonlinearity of the MLPs: "silu", "relu", "gelu_new".

    Raises:
        ValueError: if the configuration names none.
    """
    names = (getattr(model.config, key, None) for key in ACTIVATION_KEYS)
    found = next((name for name in names if isinstance(name, str)), None)
    if found is None:
        raise ValueError(f"got a {type(model).__name__} that names no activation as {' or '.join(ACTIVATION_KEYS)}.")
    return found


def n_neurons(block: nn.Module) -> int:
    """Return the number of hidden neurons of the block's MLP, which are the inputs of its last linear."""
    return weight_of(block.get_submodule(architecture(block).mlp[-1])).shape[1]


def n_active_neurons(model: PreTrainedModel) -> int:
    """Return the number of hidden neurons per block that one token uses: the whole MLP, or the chosen experts."""
    chosen = getattr(model.config, MIXTRAL.chosen_key, None)
    return chosen * model.config.intermediate_size if chosen else n_neurons(blocks(model)[0])


@contextmanager
def _without_bars(quiet: bool) -> Iterator[None]:
    """Disable progress bars: a model loads from the cache in an instant, and a bar would only clutter a notebook."""
    silenced = quiet and transformers.utils.logging.is_progress_bar_enabled()
    if silenced:
        transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        if silenced:
            transformers.utils.logging.enable_progress_bar()


@dataclass(frozen=True)
class Part:
    """A part of the default model: the first blocks, neurons of each MLP, dimensions and tokens; all heads are kept."""

    n_blocks: int = 4
    n_neurons: int = 192
    width: int | None = 144  # of the residual stream, a multiple of the heads; None keeps it
    n_tokens: int = 4096  # with the full vocabulary, the logits would take most of a part's time

    def __post_init__(self) -> None:
        for name in ("n_blocks", "n_neurons", "n_tokens"):
            check_count(name, getattr(self, name))
        if self.width is not None:
            check_count("width", self.width)


_PART: ContextVar[Part | None] = ContextVar("what is loaded of the default model", default=None)


@contextmanager
def part_only(part: Part) -> Iterator[None]:
    """Inside, load only a part of the default model.

    Runs that take minutes then take seconds; such a model produces noise. The library's caches that may hold the model
    are emptied on entry and on exit, so that the part is never mistaken for the whole model.
    """
    _forget()
    token = _PART.set(part)
    verbosity = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()  # else transformers lists all weights that are not loaded
    try:
        yield
    finally:
        transformers.utils.logging.set_verbosity(verbosity)
        _PART.reset(token)
        _forget()


def part_loaded() -> Part | None:
    """Return the part of the default model that is loaded now; None for all of it."""
    return _PART.get()


def _forget() -> None:
    """Empty the caches of functions that may hold the default model."""
    library = [(name, module) for name, module in sys.modules.items() if name.startswith("course_lib.")]
    modules = [module for name, module in library if not name.startswith("course_lib.data.")]  # which keeps texts
    for kept in {id(each): each for module in modules for each in vars(module).values()}.values():
        if kept is not _part_of and callable(getattr(kept, "cache_clear", None)):  # its key contains the part's sizes
            kept.cache_clear()


@lru_cache(maxsize=1)
def _part_of(source: str, dtype: torch.dtype, part: Part) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a part, loaded once: a copy takes milliseconds, loading model and tokenizer most of a second."""
    model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, num_hidden_layers=part.n_blocks)
    tokenizer = AutoTokenizer.from_pretrained(source)
    return _narrowed(model, part), with_fewer_tokens(tokenizer, part.n_tokens)


def _narrowed(model: PreTrainedModel, part: Part) -> PreTrainedModel:
    """Cut the model to the part's neurons, dimensions and tokens, in place."""
    names, head_size = architecture(blocks(model)[0]), heads(model).size
    model.resize_token_embeddings(part.n_tokens)
    embedding, norms = model.get_input_embeddings(), [final_norm(model)]
    for block in blocks(model):
        norms += [block.get_submodule(name) for name in names.norms]
        for inside, (*first, last) in ((None, names.attention), (part.n_neurons, names.mlp)):
            for name in first:
                _cut(block.get_submodule(name), inside, part.width)
            _cut(block.get_submodule(last), part.width, inside)
    for norm in norms:
        norm.weight = nn.Parameter(norm.weight[: part.width].detach().clone())
    _cut(embedding, None, part.width)
    head(model).weight = embedding.weight
    width = embedding.embedding_dim = head(model).in_features = embedding.weight.shape[1]
    model.config.update({"intermediate_size": part.n_neurons, "hidden_size": width, "head_dim": head_size})
    return model


def _cut(module: nn.Module, n_rows: int | None, n_columns: int | None) -> None:
    """Keep only the first rows and columns of a module's weight; None keeps all."""
    module.weight = nn.Parameter(module.weight[:n_rows, :n_columns].detach().clone())
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape


def with_fewer_tokens(tokenizer: PreTrainedTokenizerBase, n_tokens: int) -> PreTrainedTokenizerBase:
    """Remove the later merges of the default tokenizer, each of which makes a token: a text then has more tokens."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = {token: index for token, index in rules["model"]["vocab"].items() if index < n_tokens}
    merges = [merge for merge in rules["model"]["merges"] if "".join(merge) in vocabulary]
    rules["model"] |= {"vocab": vocabulary, "merges": merges}
    tokenizer._tokenizer = Rules.from_str(json.dumps(rules))
    return tokenizer


def load_model(
    name: str = DEFAULT_MODEL, device: str | torch.device | None = None, dtype: torch.dtype | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a pretrained causal language model and its tokenizer, ready for evaluation.

    Args:
        name: "smollm2-135m" (from the course's cache; its weights were once rounded to 4 bits, and are float32 again),
            a folder, or any model name on the Hugging Face hub.
        device: by default the GPU if there is one, else the CPU.
        dtype: by default float32 for the default model and on the CPU; otherwise the checkpoint's own.

    Raises:
        ValueError: the model is not in the cache, not a folder and not available from the hub; no such device or type.
    """
    name, device = str(name), _device(device)
    _refuse_unknown_type(dtype)
    source = str(asset_path(name)) if name == DEFAULT_MODEL else name
    keeps_own = device.type != "cpu" and name != DEFAULT_MODEL
    part = _PART.get() if name == DEFAULT_MODEL else None
    try:
        source = source if Path(source).is_dir() else hub.name_or_folder(source)
        with _without_bars(quiet=name == DEFAULT_MODEL):
            if part is not None:
                kept, tokenizer = _part_of(source, dtype or torch.float32, part)
                return copy.deepcopy(kept).to(device).eval(), tokenizer
            model = AutoModelForCausalLM.from_pretrained(
                source, dtype=dtype or ("auto" if keeps_own else torch.float32)
            )
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"got the model name {name!r}, which could not be loaded: {str(error).splitlines()[0]} "
            f"Use {DEFAULT_MODEL!r} (no network needed), a folder of save_pretrained, or a hub name with a network."
        ) from error
    return model.to(device).eval(), tokenizer


def _device(asked: object) -> torch.device:
    try:
        device = torch.device(asked or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:  # unknown to torch, or not on this machine
        raise ValueError(
            f"got device {asked!r}, which is not here: {str(error).splitlines()[0]} Expected 'cpu', or 'cuda' where "
            "there is a GPU; leave it out to have it chosen."
        ) from None
    return device


def _refuse_unknown_type(dtype: object) -> None:
    if not (dtype is None or (isinstance(dtype, torch.dtype) and dtype.is_floating_point)):
        raise ValueError(f"got dtype {dtype!r}; expected torch.float32, torch.bfloat16 or torch.float16, or None.")


# Sizes are unusual on purpose: powers of two could hide a swapped axis.
_TINY = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "vocab_size": 97}
_TINY_GROUPED = _TINY | {"num_key_value_heads": 2, "intermediate_size": 100, "max_position_embeddings": 256}
_TINY_CONFIGS = {
    "llama": ("LlamaConfig", _TINY_GROUPED | {"tie_word_embeddings": True}),
    "mistral": ("MistralConfig", _TINY_GROUPED | {"sliding_window": None}),
    "qwen2": ("Qwen2Config", _TINY_GROUPED),
    "qwen3": ("Qwen3Config", _TINY_GROUPED | {"head_dim": 12}),
    "opt": ("OPTConfig", _TINY | {"ffn_dim": 100, "max_position_embeddings": 256, "word_embed_proj_dim": 48}),
    "gpt2": (
        "GPT2Config",
        {"n_embd": 48, "n_layer": 2, "n_head": 6, "n_inner": 100, "n_positions": 256, "vocab_size": 97},
    ),
}


def tiny_model(seed: int = 0, architecture: str = "llama") -> PreTrainedModel:
    """Make a random model with two blocks and unusual sizes for tests: width 48, 6 heads (2 key-value), 100 neurons.

    Its vocabulary has 97 tokens.

    Raises:
        ValueError: for an architecture without a tiny configuration.
    """
    if architecture not in _TINY_CONFIGS:
        raise ValueError(f"got architecture {architecture!r}; expected one of {', '.join(_TINY_CONFIGS)}.")
    config_name, sizes = _TINY_CONFIGS[architecture]
    config = getattr(transformers, config_name)(**sizes, bos_token_id=1, eos_token_id=2, pad_token_id=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
