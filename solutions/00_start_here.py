# %% [markdown]
# # 00 · Start here
#
# A language model spends nearly all of its time on products with large matrices. This course is about leaving out the
# parts of this work that matter little: weights, attention heads, cached tokens, or whole sub-networks (experts).
# Before we leave anything out, we should know what a model computes and where its time and memory go. This lesson
# measures both on your machine.
#
# You will read a block of a real language model in a few lines of PyTorch, check that it computes the same as the
# model, count its bytes and its arithmetic, and time it. Most of the other lessons make one of these parts smaller and
# measure the loss in quality.
#
# **Afterwards you can** explain every line of a Llama block in plain PyTorch, count the bytes of weights and of the
# key-value cache, and say whether a step is memory-bound or compute-bound. After the optional section 5 you can also
# compute how much faster one part has to become for a required speedup of the whole.
#
# **You need** Python, tensors in PyTorch, and matrix products. Section 2 recalls what a transformer computes; if all of
# it is new to you, read an introduction to transformers first, such as *The Illustrated Transformer* by J. Alammar.
#
# **Time**: the core path, sections 1 to 4 and 6, takes a little over an hour and a half, 27 minutes of it for
# exercises. Allow another quarter of an hour if you have not installed the course yet: the packages, the model and the
# texts take 3 to 4 GB on disk, and on Linux several GB more unless you choose the CPU version of PyTorch. Section 5 (20
# minutes, 8 of them for an exercise) and section 7, an open task of half an hour, are optional.

# %%
import time

import torch
from torch.nn import functional as F
from transformers import DynamicCache

from course_lib.lessons.common.table import Table, count, number, percent
from course_lib.lessons.common.results import say
from course_lib.lessons.start import claims, plots, tables
from course_lib.lessons.start.experiments import plans
from course_lib.measure.roofline import A100, LLAMA2_70B, Device, Work, linear_work
from course_lib.measure.timing import Timing
from course_lib.models import load_model
from course_lib.workbook import check, mine, show_progress

# %% [markdown]
# The model of this course is SmolLM2-135M-Instruct. It has the architecture of the Llama models, but it is small
# enough for a laptop. The next cell loads it and prints its sizes. You will need them all through the lesson.

# %%
model, tokenizer = load_model(device="cpu")
sizes = model.config
n_blocks, width, head_size = sizes.num_hidden_layers, sizes.hidden_size, sizes.head_dim
n_query, n_key_value = sizes.num_attention_heads, sizes.num_key_value_heads
print(f"{n_blocks} blocks; {width} numbers per token; vocabulary of {sizes.vocab_size:,} tokens")
print(f"per block: {n_query} query heads and {n_key_value} key-value heads of size {head_size}")

# %% [markdown]
# ## 1. How the course works
#
# You write short functions. Each exercise is followed by a call to `check(...)`, which you can run as often as you
# like.
#
# - It calls your function on cases worked out by hand and on random ones, and shows the first difference.
# - If it recognises a common mistake, it names the mistake.
# - It never blocks you: a notebook runs from top to bottom even with nothing solved. Later cells call
#   `mine("exercise", your_function)`. This is your function if its check is right, and the course's own otherwise.
#
# The inputs of a check may be float32 or float64 tensors, and you may return either. If your function creates a tensor,
# give it the dtype of the inputs: for example, write `torch.zeros(n, dtype=x.dtype)` and not `torch.zeros(n)`.
#
# If you are stuck, press the hint button under the check, or run `hint("start.sparsity")` in a new cell. Each call
# shows one more hint, and hints cost no points. After a right answer you can unfold a solution, unless your copy of the
# course came without solutions. `show_progress()`, or `course progress` in a terminal, shows what you have solved. Your
# progress is stored outside the notebook, so you can rename or copy the file.
#
# <details><summary>If your notebook will be graded</summary>
#
# For each exercise, the grader runs those parts of the code above the check that your function needs: imports,
# definitions, loops, calls that fill a table, and files written by `%%writefile`. Then it calls your function on the
# cases of `check` and on further ones. It does not run code that loads a model, data or an experiment of the course,
# nor shell commands, plots and prints, so your answer must not depend on them. The last cell of each notebook,
# `check_all()`, lists the result and the points of each exercise. Before you hand in, run `course check-notebook FILE`
# in a terminal: it runs your saved notebook as grading does, and prints for each exercise whether it is right, wrong or
# not attempted, and which statements were not run. It does not print points.
#
# </details>
#
# ### Sparse and dense
#
# The **sparsity** of a tensor is the fraction of its entries that are exactly zero, and its **density** is the
# remaining fraction. For example, a matrix of 100 entries with 30 zeros has a sparsity of 0.3 and a density of 0.7. To
# **prune** weights means to set them to zero. Zeros are **unstructured** if they can be anywhere, and **structured** if
# whole rows, columns, heads or blocks are zero. They are **static** if they are the same for every input, as in a
# pruned weight matrix, and **dynamic** if they depend on the input, for example if a different part of a matrix is left
# out for each token.

# %% [markdown]
# ### The sparsity of a tensor
# **Exercise** · difficulty 1 of 5 · 3 minutes · 1 point
#
# Return the sparsity of a tensor of any shape, as a number between 0 and 1.


# %% exercise="start.sparsity"
def sparsity(tensor):
    """Compute the fraction of the entries of `tensor` (any shape) that are zero."""
    ### BEGIN SOLUTION
    return (tensor == 0).double().mean().item()
    ### END SOLUTION


# %%
check("start.sparsity", sparsity)

# %% [markdown]
# A trained model is dense: hardly any weight is exactly zero, although many are small. Here are the numbers for all
# weight matrices in the blocks of our model:

# %%
is_linear = [module for module in model.model.modules() if isinstance(module, torch.nn.Linear)]
all_weights = torch.cat([linear.weight.detach().flatten() for linear in is_linear])
n_zero = len(all_weights) - torch.count_nonzero(all_weights)
is_small = all_weights.abs() < all_weights.square().mean().sqrt() / 10
print(f"{len(all_weights):,} weights, {n_zero:,} of them zero")
print(f"{100 * is_small.float().mean():.0f} % are smaller than a tenth of the root mean square")

# %% [markdown]
# Even the few zeros probably come from rounding and not from training. The course received the model in a file with 4
# bits per weight: 32 neighbouring weights of a row share a smallest value and a step, so each of them has one of 16
# equally spaced values. Loading the file converted the weights to float32, but the rounding remains visible:

# %%
groups = is_linear[0].weight.detach().reshape(-1, 32)
print(f"at most {max(len(group.unique()) for group in groups)} different values per group of 32 weights")

# %% [markdown]
# So whatever we measure on this model, we measure on weights that were rounded once. This includes the unpruned model,
# which the lessons call **dense**. We can compare methods with each other, because all of them start from the same
# weights. But a **perplexity** (the measure of quality in this course, defined in lesson 01) is not the one that you
# would measure with the authors' own weights. If you have a network connection,
# `load_model("HuggingFaceTB/SmolLM2-135M-Instruct")` loads those.
#
# ## 2. What a language model computes
#
# A language model maps a sequence of **tokens** (words or parts of words) to a probability for every token that could
# come next.

# %%
plots.next_tokens(model, tokenizer)

# %% [markdown]
# Each bar is the probability of one token of the vocabulary, and only the eight largest are shown. To generate text,
# we append the most probable token to the sequence and run the model again, token by token:

# %%
question = [{"role": "user", "content": "What is the capital of Italy, and what is it famous for?"}]
prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
output = model.generate(**prompt, max_new_tokens=48, do_sample=False)
say(tokenizer.decode(output[0, prompt.input_ids.shape[1] :], skip_special_tokens=True))

# %% [markdown]
# Inside, the model does three things. The **embedding** turns each token into a vector of 576 numbers. Then 30
# **blocks** change these vectors one after the other. All blocks are built in the same way, but each has its own
# weights. At the end, the **LM head** multiplies the vector of a token by one matrix and gets a score, the **logit**,
# for each of the 49,152 tokens of the vocabulary. (The LM head has nothing to do with the attention heads below. It
# is one large matrix, and in this model it is the same matrix as the embedding.) The drawing shows one block.

# %%
plots.block_drawing()

# %% [markdown]
# Follow the thick line from left to right. It is the **residual stream**, the vector of one token. The block takes
# its input from the stream twice and adds its output to it twice.
#
# **Attention** is the only place where tokens exchange information. Three matrices turn the input of a token into three
# vectors: a **query** $q$, a **key** $k$ and a **value** $v$. The query of a token is compared with the keys of all
# tokens up to and including itself, and softmax turns the results into weights that sum to 1. The output is the sum of
# the values with these weights. For a whole sequence, with one row per token in $Q$, $K$ and $V$, this is one equation:
#
# $$ \text{attention}(Q, K, V) = \text{softmax}\left(\frac{Q K^\top}{\sqrt{D}} + M\right) V $$
#
# $D$ is the size of a head, here 64. The **causal mask** $M$ is 0 where the key belongs to the token itself or to an
# earlier one, and $-\infty$ where it belongs to a later one, which softmax turns into a weight of 0. In other words, a
# token cannot see the future. The model computes nine such attentions per block in parallel, its **heads**. Three query
# heads always share one head of keys and values, which is called **grouped-query attention**. The results of the nine
# heads are joined to one vector of 9 · 64 = 576 numbers. A fourth matrix, the output projection (`o_proj`), turns it
# into the vector that is added to the stream.
#
# The **MLP** works on each token separately, with the input $y$ and three matrices. $W_\text{gate}$ and $W_\text{up}$
# have one row per **neuron**, 1,536 in this model:
#
# $$ \text{MLP}(y) = W_\text{down} \big( \text{SiLU}(W_\text{gate}\, y) \odot (W_\text{up}\, y) \big) $$
#
# Here $\odot$ multiplies entry by entry, and $\text{SiLU}(a) = a / (1 + e^{-a})$. So a block has seven matrices: query,
# key, value and output in attention, and gate, up and down in the MLP. In the drawing, the numbered circles are the
# inputs of the matrices. Query, key and value share one input, and so do gate and up. So a method that looks at the
# inputs of the matrices has four inputs per block to look at, and not seven.
#
# Two more parts are small. A **norm** divides a vector by its root mean square and multiplies its entries by learned
# weights. There is one before attention and one before the MLP. **Rotary position embeddings** rotate each query and
# key. Entries $j$ and $j + D/2$ form pair $j$, for $j$ from 0 to $D/2 - 1$. At position $i$, this pair is rotated by
# the angle $i \cdot \theta^{-2j/D}$ with a constant $\theta$, here 100,000. In the product of a query and a key, the
# positions then enter only through the distance between the two tokens. Without this, attention could not tell in which
# order the earlier tokens came.
#
# This is all of it. The next cell is a complete Llama block. It uses nothing but the weights of the model and the
# equations above. `llama_block` has two halves: the first is attention, where the rows of `q`, `k` and `v` are $Q$,
# $K$ and $V$ for all heads, and the second is the MLP. Each half ends with an addition to `x`, the residual stream.


# %%
def rms_norm(x, norm):
    """Divide each vector by its root mean square, then multiply by learned weights."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + norm.variance_epsilon) * norm.weight


def rotate(x, angles):
    """Rotate the pairs of entries j and j + D/2 by angles. x: (heads, tokens, D)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)


def llama_block(block, x, head_size, base):
    """Compute the output of a block for one sequence. x: (tokens, width)."""
    n_tokens, attention, mlp = len(x), block.self_attn, block.mlp
    angles = torch.arange(n_tokens)[:, None] * base ** -(torch.arange(0, head_size, 2) / head_size)

    y = rms_norm(x, block.input_layernorm)
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    # q: (9 heads, tokens, 64); k and v: (3 heads, tokens, 64)
    q, k, v = ((y @ p.weight.T).reshape(n_tokens, -1, head_size).transpose(0, 1) for p in projections)
    k, v = (each.repeat_interleave(len(q) // len(k), dim=0) for each in (k, v))  # query heads share key-value heads
    scores = rotate(q, angles) @ rotate(k, angles).transpose(1, 2) / head_size**0.5  # (heads, tokens, tokens)
    mask = torch.full((n_tokens, n_tokens), -torch.inf).triu(diagonal=1)
    heads = (scores + mask).softmax(dim=-1) @ v
    x = x + heads.transpose(0, 1).flatten(1) @ attention.o_proj.weight.T  # join the heads, then project

    y = rms_norm(x, block.post_attention_layernorm)
    return x + (F.silu(y @ mlp.gate_proj.weight.T) * (y @ mlp.up_proj.weight.T)) @ mlp.down_proj.weight.T


# %% [markdown]
# Now we run a prompt through all 30 blocks, from the embedding to the logits, and compare with the model. We compare
# the residual stream after each of the first 29 blocks, and divide each difference by the largest number in the model's
# stream. (After block 30 the model returns the stream only after the final norm, so there we compare the logits.)

# %%
token_ids = tokenizer(plots.PROMPT, return_tensors="pt").input_ids
differences = []
with torch.no_grad():
    expected = model(token_ids, output_hidden_states=True)
    x = model.model.embed_tokens.weight[token_ids[0]]
    for n_done, block in enumerate(model.model.layers, start=1):
        x = llama_block(block, x, head_size, base=sizes.rope_parameters["rope_theta"])
        if n_done < n_blocks:
            theirs = expected.hidden_states[n_done][0]
            differences.append((x - theirs).abs().max() / theirs.abs().max())
    logits = rms_norm(x[-1], model.model.norm) @ model.lm_head.weight.T
print(f"largest relative difference after a block: {max(differences):.0e}")
print(
    f"largest difference of a logit: {(logits - expected.logits[0, -1]).abs().max():.0e}, "
    f"for logits up to {logits.abs().max():.0f}"
)
print(f"our next token: {tokenizer.decode(logits.argmax())!r}")

# %% [markdown]
# Our blocks and the model agree. The remaining differences are rounding errors: float32 stores about seven digits, and
# the model adds up its products in another order than we do. From here on you know everything that a dense model
# computes. Can you point to the line with the causal mask, and to the two additions to the residual stream? The other
# lessons change one of these lines: for example, lesson 04 sets entries of the seven matrices to zero, lesson 07
# removes rows of `k` and `v`, and lesson 09 skips neurons of the MLP.
#
# ## 3. Where the memory goes
#
# A weight in float32 takes 4 bytes, and in float16 it takes 2. For example, the weights of a model with 7 billion
# parameters take 28 GB in float32. Which part of our model has the most weights?


# %%
def part_of(name):
    """Return the part of the model that a parameter or layer belongs to."""
    if "self_attn" in name:
        return "attention matrices"
    return "MLP matrices" if "mlp" in name else "norms" if "norm" in name else "LM head"


weights_of_part = {"attention matrices": 0, "MLP matrices": 0, "LM head": 0, "norms": 0}
for name, weight in model.named_parameters():
    weights_of_part[part_of(name)] += weight.numel()
total = sum(weights_of_part.values())
Table(
    [{"part": part, "weights": n, "fraction": n / total, "float32": 4 * n} for part, n in weights_of_part.items()],
    caption=f"SmolLM2-135M has {total:,} weights",
    formats={"weights": count, "fraction": percent, "float32": number(1, "MB", 1e-6)},
    note="The embedding and the LM head are one matrix, so it is counted once.",
)

# %% [markdown]
# The MLP has most of the weights, and the LM head more than a fifth. In a larger model with the same vocabulary the LM
# head matters much less: its size grows with the width of the model, but the size of the blocks grows with the square
# of the width.
#
# When a model generates text, the weights are not all that it needs. Look at the equation of attention again: for
# each new token we need the query of this token only, but the keys and values of *all* tokens so far. They do not
# change any more, because earlier tokens cannot see later ones. So the model keeps them in the **key-value cache**
# instead of computing them again. Generating text then has two phases:
#
# - **Prefill**: the whole prompt runs through the model in one pass, and its keys and values fill the cache.
# - **Decode**: each new token runs through the model alone. It needs one pass per token, which reads the cache and adds
#   one key and one value per key-value head of every block.
#
# The next cell does both by hand: a prefill with all tokens of the prompt but the last, then one decoding step.

# %%
with torch.no_grad():
    cache = DynamicCache(config=sizes)
    model(token_ids[:, :-1], past_key_values=cache)  # prefill: fills the cache
    decoded = model(token_ids[:, -1:], past_key_values=cache)  # decode: one token, with the cache of the others
difference = (decoded.logits[0, -1] - expected.logits[0, -1]).abs().max()
print(f"tokens in the cache: {cache.get_seq_length()}; largest difference of a logit: {difference:.0e}")

# %% [markdown]
# The result is the same as without a cache, except for rounding. The second call computed only one token. Often a
# model processes several independent sequences together. Their number is the **batch size**. All sequences of a batch
# share the weights, but each has its own cache.

# %% [markdown]
# ### The key-value cache
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Return the bytes of the cache. The model has `n_blocks` blocks, each with `n_query` query heads that share
# `n_key_value` key-value heads of size `head_size`. The batch has `batch` sequences of `n_tokens` tokens each, and
# each number takes `value_bytes` bytes.


# %% exercise="start.cache_bytes"
def cache_bytes(n_blocks, n_query, n_key_value, head_size, n_tokens, batch, value_bytes):
    """Compute the bytes of the keys and values of all blocks.

    In each block, the keys have shape (batch, heads, n_tokens, head_size), and so have the values.
    """
    ### BEGIN SOLUTION
    bytes_per_token = 2 * n_blocks * n_key_value * head_size * value_bytes
    return bytes_per_token * n_tokens * batch
    ### END SOLUTION


# %%
check("start.cache_bytes", cache_bytes)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# Queries are not cached, so the number of query heads does not matter. Each token has a key and a value of $D$ numbers
# in each of the $H$ key-value heads of each of the $L$ blocks. With $v$ bytes per number, these are $2\,L\,H\,D\,v$
# bytes per token. Multiply by the number of tokens and by the batch size. For SmolLM2-135M in float32 these are 2 · 30
# · 3 · 64 · 4 = 46,080 bytes per token.
#
# </details>
#
# Does your count agree with a real cache? The next cell adds up the bytes of its tensors, for the text generated
# above.

# %%
cache_bytes_of = mine("start.cache_bytes", cache_bytes)
with torch.no_grad():
    cache = model(output, use_cache=True).past_key_values
real_bytes = sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values))
expected_bytes = cache_bytes_of(n_blocks, n_query, n_key_value, head_size, output.shape[1], 1, 4)
print(f"{output.shape[1]} tokens: {real_bytes:,} bytes in the model's cache, {expected_bytes:,} by the function")
plots.memory(n_tokens=sizes.max_position_embeddings)

# %% [markdown]
# The horizontal axis is the number of tokens in the cache, and the vertical axis is memory in GB. The solid line shows
# the weights of our model, which stay the same. The dashed line is the cache of one sequence. It grows by 46,080 bytes
# with every token. At 8,192 tokens, the longest sequence that the model supports (its **context length**), it takes
# 0.38 GB, which is 70 % of the size of the weights.
#
# With a larger batch the cache can exceed the weights. Here is Llama-2-70B in float16, with 128 sequences that fill its
# context length of 4,096 tokens. The last line of the output is the time for reading both at the rate of an A100, an
# NVIDIA GPU for servers. (They do not fit into the memory of one A100, which has at most 80 GB, so a server needs
# several.)

# %%
large = LLAMA2_70B
large_cache = cache_bytes_of(large.n_blocks, large.n_query, large.n_key_value, large.head_size, 4096, 128, 2)
large_weights = 2 * large.n_weights
print(f"weights {large_weights / 1e9:.0f} GB, cache {large_cache / 1e9:.0f} GB ({large_cache / 2**30:.0f} GiB)")
seconds_to_read = (large_weights + large_cache) / A100.bytes_per_second
print(f"at the memory bandwidth of one A100, reading both once takes at least {seconds_to_read:.2f} s")

# %% [markdown]
# Note the two units: 1 GB is $10^9$ bytes and 1 GiB is $2^{30}$ bytes, 7 % more. Slides and papers often mix them.
#
# ## 4. Where the time goes
#
# A processor computes, and it moves numbers between its memory and its arithmetic units. Both take time. We count the
# arithmetic in **FLOPs**, floating-point operations: an addition is one FLOP, and so is a multiplication. A layer
# with a weight $W$ of shape (O, I) multiplies and adds once per weight and token. For $N$ tokens these are
# $2\,O\,I\,N$ FLOPs. The layer has to read at least its weight and its inputs, and to write its outputs. The ratio of
# FLOPs to bytes is the **arithmetic intensity**.

# %% [markdown]
# ### Arithmetic intensity
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Return the arithmetic intensity of one linear layer on `n_tokens` inputs. Each number (weight, input or output)
# takes `value_bytes` bytes and is read or written once.


# %% exercise="start.intensity"
def intensity(n_outputs, n_inputs, n_tokens, value_bytes):
    """Compute the FLOPs per byte of a layer.

    The weight has shape (n_outputs, n_inputs), the inputs have shape (n_tokens, n_inputs).
    """
    ### BEGIN SOLUTION
    flops = 2 * n_outputs * n_inputs * n_tokens
    n_values = n_outputs * n_inputs + n_tokens * n_inputs + n_tokens * n_outputs
    return flops / (value_bytes * n_values)
    ### END SOLUTION


# %%
check("start.intensity", intensity)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# The layer computes $2\,O\,I\,N$ FLOPs. It moves $O\,I$ weights, $N\,I$ inputs and $N\,O$ outputs, with $v$ bytes each:
#
# $$ \text{intensity} = \frac{2\,O\,I\,N}{v\,(O\,I + N\,I + N\,O)} $$
#
# While $N$ is small compared with $O$ and $I$, the weights are nearly all that moves, and the intensity is about
# $2N/v$.
#
# </details>
#
# Here is the intensity of one matrix of our model, for three numbers of tokens and two formats:

# %%
intensity_of = mine("start.intensity", intensity)
Table(
    [
        {"tokens": n}
        | {name: intensity_of(1536, 576, n, n_bytes) for name, n_bytes in (("float32", 4), ("float16", 2))}
        for n in (1, 16, 256)
    ],
    caption="Arithmetic intensity of up_proj (1536 × 576), in FLOP/byte",
    formats={"float32": number(1), "float16": number(1)},
)

# %% [markdown]
# With one token, a float32 weight of four bytes is used for two FLOPs: half a FLOP per byte. With 16 tokens the same
# weight is read once and used 16 times, so the intensity is nearly 16 times as high. With 256 tokens it is less than
# 256 times as high, because the inputs and outputs count as well. In float16 all intensities are twice as high, because
# each number takes half of the bytes.
#
# How fast can such a layer be? The **roofline model** (Williams, Waterman and Patterson, 2009) answers this with two
# numbers of the machine: it computes $\pi$ FLOP/s and reads $\beta$ byte/s, its **memory bandwidth**. Computing and
# reading can overlap, at best perfectly. So work of $F$ FLOPs and $B$ bytes takes at least
#
# $$ t \ge \max\left(\frac{F}{\pi}, \frac{B}{\beta}\right). $$
#
# If the second term is larger, the work is **memory-bound**: the arithmetic units wait for data. If the first term is
# larger, it is **compute-bound**. The two terms are equal at an intensity of $\pi / \beta$, the **ridge** of the
# machine. For example, a machine with 100 GFLOP/s and 10 GB/s has its ridge at 10 FLOP/byte. A layer with half a FLOP
# per byte is memory-bound there, and uses at most 5 % of the arithmetic.
#
# A pass through the model (in decoding also called a step) is not a single operation but a sequence of layers. A layer
# needs the output of the layer before it, so it cannot start earlier. Suppose that computing and reading overlap within
# a layer, and that nothing overlaps between two layers. How long does a pass take at least?

# %% [markdown]
# ### The roofline of a pass
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Return the shortest time, as one number, that a pass can take on a machine with these two rates. The first entries
# of `flops` and `n_bytes` belong to the first layer, the second ones to the second layer, and so on.


# %% exercise="start.step_seconds"
def step_seconds(flops, n_bytes, flops_per_second, bytes_per_second):
    """Compute a lower bound for the seconds of a pass through all layers.

    flops, n_bytes: (layers,), float64. The rates are plain numbers.
    """
    ### BEGIN SOLUTION
    computing, reading = flops / flops_per_second, n_bytes / bytes_per_second
    return torch.maximum(computing, reading).sum().item()
    ### END SOLUTION


# %%
check("start.step_seconds", step_seconds)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# Layer $l$ takes at least $\max(F_l / \pi, B_l / \beta)$ seconds, and the layers run one after the other, so these
# times add up. For example, on a machine with 100 GFLOP/s and 10 GB/s, a layer with 200 GFLOP and 1 GB takes 2 s, and a
# second layer with 20 GFLOP and 10 GB takes 1 s: together 3 s. If you add first and compare afterwards, you get 2.2 s.
# This would be possible only if the second layer were read while the first one computes.
#
# </details>
#
# Now we measure the two rates of your machine. For $\pi$ we multiply two square matrices, which is compute-bound. For
# $\beta$ we multiply a matrix of 256 MiB by a vector, which is memory-bound, like a layer with one token. The first
# call of a function is often slow, so we call it once before we start the timer. We take the shortest of several
# times, because other programs on the machine can only make a call slower.


# %%
def shortest_seconds(function, n_calls=10):
    """Time a function; the shortest of several calls counts."""
    function()  # warm up
    seconds = []
    for _ in range(n_calls):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


square = torch.rand(1536, 1536)
matrix, vector = torch.rand(8192, 8192), torch.rand(8192)
machine = Device(
    "this machine",
    flops_per_second=2 * 1536**3 / shortest_seconds(lambda: square @ square),
    bytes_per_second=matrix.nbytes / shortest_seconds(lambda: matrix @ vector),
    source="measured just now",
)
print(f"{machine.flops_per_second / 1e9:.0f} GFLOP/s, {machine.bytes_per_second / 1e9:.1f} GB/s")
print(f"ridge at {machine.ridge:.0f} FLOP/byte; an A100 has its ridge at {A100.ridge:.0f} FLOP/byte")

# %% [markdown]
# Next we time the model itself: prefill with prompts of 16, 64 and 256 tokens, and decoding with batch sizes of 1, 4
# and 16. Which tokens we use does not change the time. The function `work` counts the FLOPs and the bytes of a pass:
# every matrix once, the LM head for the last token of each sequence only, two products per query and key in attention,
# and the cache. It leaves out the inputs and outputs of the layers.
#
# The next cell is long but contains nothing new. The one after it prints the table. Look at the last column of the
# table: it is 100 % if a pass is as fast as the roofline model allows. Where is your machine furthest from it?


# %%
@torch.no_grad()
def time_prefill(batch_size, n_tokens):
    """Fill a cache with a prompt; return the seconds and the cache."""
    cache = DynamicCache(config=sizes)
    start = time.perf_counter()
    model(torch.full((batch_size, n_tokens), 5), past_key_values=cache, logits_to_keep=1)
    return time.perf_counter() - start, cache


@torch.no_grad()
def time_decoding(cache, batch_size, n_steps=8):
    """Append one token per step to each sequence of the cache; return the seconds of each step."""
    seconds = []
    for _ in range(n_steps + 1):
        start = time.perf_counter()
        model(torch.full((batch_size, 1), 5), past_key_values=cache)
        seconds.append(time.perf_counter() - start)
    return torch.tensor(seconds[1:])  # the first step warms up


def work(batch_size, n_new, n_cached):
    """Count FLOPs and bytes of a pass: n_new tokens per sequence, after n_cached cached ones."""
    n_block_weights = weights_of_part["attention matrices"] + weights_of_part["MLP matrices"]
    flops = 2 * batch_size * (n_block_weights * n_new + weights_of_part["LM head"])
    n_pairs = sum(n_cached + position for position in range(1, n_new + 1))  # of a query and a key it can see
    flops += 4 * batch_size * n_blocks * n_query * head_size * n_pairs
    n_bytes = 4 * (n_block_weights + weights_of_part["LM head"])
    n_bytes += cache_bytes_of(n_blocks, n_query, n_key_value, head_size, n_cached + n_new, batch_size, 4)
    return Work(flops, n_bytes)


step_times, timings = {}, []
for batch_size in (1, 4, 16):
    _, cache = time_prefill(batch_size, 32)
    step_times[batch_size] = time_decoding(cache, batch_size)
    timings.append(Timing("decode", batch_size, work(batch_size, 1, 32), step_times[batch_size].median().item()))
for n_tokens in (16, 64, 256):
    fastest = min(time_prefill(1, n_tokens)[0] for _ in range(2))
    timings.append(Timing("prefill", n_tokens, work(1, n_tokens, 0), fastest))

# %%
Table(
    [
        {
            "phase": timing.kind,
            "tokens per pass": timing.n_tokens,
            "FLOP/byte": timing.work.intensity,
            "bound": f"{timing.work.bound(machine)}-bound",
            "lower bound": timing.work.seconds(machine),
            "measured": timing.seconds,
            "lower bound / measured": timing.work.seconds(machine) / timing.seconds,
        }
        for timing in timings
    ],
    caption="Passes through the model, and their lower bounds by the roofline model",
    formats={"FLOP/byte": number(1), "lower bound / measured": percent}
    | dict.fromkeys(("lower bound", "measured"), number(0, "ms", 1000)),
    note="In decoding, the number of tokens per pass is the batch size. The lower bound takes a pass as one operation.",
)

# %%
plots.roofline(machine, timings)

# %% [markdown]
# Both axes are logarithmic: arithmetic intensity from left to right, and FLOP/s from bottom to top. The black line is
# the roofline: memory limits the speed on the slope, and arithmetic on the flat part. Each point is a row of the table.
# Decoding with batch size 1 is at the far left, deep in the memory-bound region, and uses a small fraction of the
# arithmetic. A long prefill is at the right and should be compute-bound. No pass can really be above the line. If a
# point is, other programs slowed the machine down while we measured its two rates.
#
# This difference between the phases decides which kind of sparsity helps. In decoding with batch size 1, fewer bytes
# can make a step faster, but only if unpacking them takes less time than it saves. Lesson 01 measures when this is so.
# In a long prefill only skipped multiplications save time.
#
# The table took a pass as a single operation. Your function bounds it layer by layer. Here we count the 211 matrices,
# that is, seven in each of 30 blocks and the LM head, with their inputs and outputs but without attention and the
# cache. So compare the two columns with each other, and not with the table above.

# %%
bound_of = mine("start.step_seconds", step_seconds)
layers = [layer for layer in model.modules() if isinstance(layer, torch.nn.Linear)]
rows = []
for n_tokens in (1, 16, 64, 256):
    works = [linear_work(*layer.weight.shape, 1 if layer is model.lm_head else n_tokens, 4) for layer in layers]
    flops, n_bytes = (
        torch.tensor(counts).double() for counts in zip(*((w.flops, w.bytes) for w in works), strict=True)
    )
    single = max(flops.sum() / machine.flops_per_second, n_bytes.sum() / machine.bytes_per_second).item()
    by_layer = bound_of(flops, n_bytes, machine.flops_per_second, machine.bytes_per_second)
    rows.append({"tokens": n_tokens, "single operation": single, "layer by layer": by_layer})
Table(
    rows,
    caption="Two lower bounds for a prefill, from its 211 matrices alone",
    formats=dict.fromkeys(("single operation", "layer by layer"), number(1, "ms", 1000)),
)

# %% [markdown]
# For one token both bounds are equal, because every layer is memory-bound. For a long prompt the second one is larger:
# the blocks are compute-bound, but the LM head processes the last token only and is memory-bound. Under our assumption
# its weights are not read while the blocks compute, although a program that reads ahead could do this.
#
# **A claim to test.** In a memory-bound step the weights are read once for the whole batch, so a second sequence is
# nearly free. A step with 16 sequences has 16 times the FLOPs. We claim that it takes less than 8 times as long as a
# step with one sequence (8 is half of 16), and we test this with the eight steps that you timed at each batch size.

# %%
one, sixteen = step_times[1], step_times[16]
ratio = (sixteen.log().mean() - one.log().mean()).exp()
error = (sixteen.log().var() / len(sixteen) + one.log().var() / len(one)).sqrt()
print(f"16 sequences take {ratio:.1f} times as long as one, with a standard error of {100 * error:.0f} %")
print(claims.batching(one, sixteen))

# %% [markdown]
# Every claim of this course gets such a verdict from a number and its standard error, which give a 95 % confidence
# interval. The claim *holds* if the whole interval is on the claimed side of the limit, it *does not hold* if the whole
# interval is on the other side, and otherwise it is *undecided*. If a claim is about several cases, the verdict can be
# a mixture, which says in how many or in which cases it holds.
#
# A larger batch does not help forever. At some batch size the arithmetic takes longer than reading the weights. In
# addition, each sequence reads its own cache, so with long sequences the caches take most of the bytes.
#
# ## 5. Optional: how much a faster part can gain
#
# If you are short of time, go on with section 6.
#
# At best, pruning makes some of the matrices faster, and the rest of a step takes as long as before. Which parts of a
# decoding step take the time? We measure it with **hooks**, functions that PyTorch calls before and after a layer runs.
# The first one starts a timer, and the second one adds the elapsed time to the part that the layer belongs to. (Calling
# the hooks takes time, too, which is counted under *everything else*.)

# %%
seconds = dict.fromkeys(("attention matrices", "MLP matrices", "LM head"), 0.0)
part_of_layer, started, handles = {}, {}, []


def start_timer(layer, arguments):
    started[layer] = time.perf_counter()


def stop_timer(layer, arguments, layer_output):
    seconds[part_of_layer[layer]] += time.perf_counter() - started[layer]


_, cache = time_prefill(1, 32)
time_decoding(cache, 1, n_steps=1)  # warm up, still without hooks
for name, layer in model.named_modules():
    if isinstance(layer, torch.nn.Linear):
        part_of_layer[layer] = part_of(name)
        handles += [layer.register_forward_pre_hook(start_timer), layer.register_forward_hook(stop_timer)]
start = time.perf_counter()
with torch.no_grad():
    for _ in range(8):
        model(torch.full((1, 1), 5), past_key_values=cache)
seconds["everything else"] = time.perf_counter() - start - sum(seconds.values())
for handle in handles:
    handle.remove()

plots.parts(
    {part: total_seconds / 8 for part, total_seconds in seconds.items()},
    {part: 4 * weights_of_part[part] for part in part_of_layer.values()},
)

# %% [markdown]
# For each part, the solid bar is its fraction of the time and the hatched bar its fraction of the weights.
# *Everything else* is attention itself, the norms, and the overhead of calling hundreds of small operations from
# Python. It has hardly any weights, so pruning weights does not make it faster, and it limits what pruning can gain.
#
# The formula for this limit is **Amdahl's law** (after Amdahl, 1967, who argued in words): if a part takes the fraction
# $p$ of the time and becomes $s$ times as fast, the whole becomes
#
# $$ \frac{1}{(1 - p) + p / s} $$
#
# times as fast. The first term is the rest, which takes as long as before. For example, if the part takes half of the
# time and becomes twice as fast, the whole becomes $1 / (0.5 + 0.25) \approx 1.33$ times as fast. Even if the part took
# no time at all, the whole would be only $1 / (1 - p)$ times as fast, in the example twice.
#
# In practice the question is usually the other way round: the whole has to become 1.5 times as fast, say. How much
# faster must the part become, and is it possible at all?

# %% [markdown]
# ### How fast a part must get
# **Exercise** · difficulty 3 of 5 · 8 minutes · 2 points
#
# A part takes the given fraction of the time. Return the factor by which this part must become faster, so that the
# whole becomes `goal` times as fast. Return 0 if no factor is enough.


# %% exercise="start.speedup"
def speedup(fraction, goal):
    """Compute the factor that the part needs, or 0.

    fraction: above 0 and up to 1. goal: at least 1.
    """
    ### BEGIN SOLUTION
    left = 1 / goal - (1 - fraction)
    return fraction / left if left > 0 else 0.0
    ### END SOLUTION


# %%
check("start.speedup", speedup)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# Let the old step take 1 second, and let the whole become $g$ times as fast. The new step may take $1 / g$ seconds,
# and the rest needs $1 - p$ of them. The part took $p$ seconds, so the factor is
#
# $$ s = \frac{p}{1 / g - (1 - p)} $$
#
# if the denominator is positive. Otherwise no factor is enough. For example, with $p = 0.75$ a step becomes twice as
# fast if the part becomes 0.75 / 0.25 = 3 times as fast, but it can never become four times as fast. (Rounding can turn
# a denominator of 0 into a tiny positive number. For example, Python computes `1 / 5 - (1 - 0.8)` as 5.6e-17. A program
# that has to handle such cases would compare with a small tolerance.)
#
# </details>
#
# How fast would the matrices of the blocks have to become on your machine?

# %%
fraction = (seconds["attention matrices"] + seconds["MLP matrices"]) / sum(seconds.values())
print(f"the matrices of the blocks take {100 * fraction:.0f} % of a decoding step")
print(f"without them it would be {1 / (1 - fraction):.2f} times as fast")
factor_for = mine("start.speedup", speedup)
Table(
    [
        {"speedup of the step": goal, "speedup of the matrices": factor_for(fraction, goal) or None}
        for goal in (1.25, 1.5, 2, 4)
    ],
    caption="How many times as fast the matrices of the blocks must become",
    formats={"speedup of the matrices": number(1)},
    note="A dash: the matrices alone cannot do it.",
)

# %% [markdown]
# ## 6. When sparsity does not pay off
#
# - Zeros that are stored and multiplied like other numbers save nothing. You need a format that leaves them out and
#   code that makes use of it. Lesson 01 is about both.
# - A compute-bound step becomes faster only if multiplications are skipped, and fast hardware can skip them only in
#   regular patterns, such as 2:4, where two of every four neighbouring weights are kept.
# - Pruning weights does not make the cache smaller, and evicting tokens does not make the weights smaller. So measure
#   first which of the two takes more of your time or memory. For example, for a single short conversation nearly all
#   bytes are weights.
#
# This is the end of the core path. Go on with the optional sections 5 and 7, or jump to *To take home*.
#
# ## 7. Optional: an open task
#
# Make a decoding step at least twice as fast, and leave out as few of its bytes as you can. There is no formula, and
# nothing is graded. You choose the situation: the batch size, and the number of tokens in the cache of each sequence.
# Then you choose which fractions to keep of three things: the neurons of every MLP, the blocks, and the tokens in
# every cache. Only speed counts here. The other lessons are about the loss in quality.
#
# Think before you try. What does a step in your situation read most of? Is it memory-bound or compute-bound? Which part
# of the time does none of your choices change? Then change the five numbers in the next cell and run both cells. For
# example, `neurons=0.5` keeps half of the neurons. An attempt measures for about eight seconds.

# %%
plan = plans.Plan(batch_size=1, context=64, neurons=1.0, blocks=1.0, tokens=1.0)

# %%
tables.plans(plans.attempt(model, plan))

# %% [markdown]
# The last row is yours, measured just now. The rows above it are simple ideas that `course reproduce plans` measured
# once on another machine. *Bytes not read* is the fraction of the bytes of weights and cache that the reduced model
# leaves out. We run a step of the whole model and a step of the reduced model in turns, and compare them in pairs. We
# measure the processor time of one thread, because other programs disturb it least.
#
# Compare the columns *roofline* and *measured*. Which ideas gain less than the roofline model predicts, and which gain
# more? Which leave out a lot and gain little, and why? Is yours twice as fast with fewer bytes left out than any of
# these? (For a fair comparison, try the idea that you want to beat on your machine, too.)
#
# <details><summary>No step is faster than its roofline. How can a speedup be larger than the roofline model predicts?
# </summary>
#
# A speedup compares two steps, and neither of them reaches its roofline. If the whole model is further from its bound
# than the reduced model, the speedup is larger than the ratio of the bounds. With long caches there is a reason for
# this: at each step, the library `transformers` copies the keys and values of every sequence to append the new token.
# Our count of bytes leaves this out.
#
# </details>
#
# ## To take home
#
# 1. A Llama block is attention and an MLP, seven matrices in all, and fits into a few lines of PyTorch.
# 2. Decoding with batch size 1 is memory-bound, and a long prefill is compute-bound on most machines. The ridge of the
#    machine is the intensity where one becomes the other. A larger batch raises the intensity of the weights, but not
#    of the cache, because each sequence reads its own.
# 3. All sequences of a batch share the weights, but each of them has its own cache.
# 4. If a part takes the fraction $p$ of the time, making it faster gains at most a factor of $1 / (1 - p)$ (section 5).
#
# Three questions. Answer first, then unfold.
#
# <details><summary>A laptop computes 200 GFLOP/s and reads 50 GB/s. From how many tokens per pass is a large float32
# layer compute-bound?</summary>
#
# The ridge is at 4 FLOP/byte. A large layer needs $2\,O\,I\,N$ FLOPs for $4\,O\,I$ bytes of weights, which is $N / 2$
# FLOP/byte. So it is compute-bound from about 8 tokens on.
#
# </details>
#
# <details><summary>Half of the weights in all blocks are pruned, and a perfect program reads only the other half. Why
# is a decoding step not twice as fast?</summary>
#
# The LM head, attention itself, the norms and the overhead of each call take as long as before. They limit the speedup
# (Amdahl's law, section 5). In addition, a sparse format has to store the positions of the kept weights, which costs
# bytes as well.
#
# </details>
#
# <details><summary>A server decodes 128 long conversations in one batch. Would you rather prune its weights or its
# cache?</summary>
#
# The cache, if it is the larger part: the weights are read once for all 128 conversations, but each conversation has
# its own cache. For Llama-2-70B with 4,096 tokens per conversation, the cache is larger than the weights.
#
# </details>
#
# ## What comes next
#
# The course has thirteen lessons. The table shows which cost each of them reduces. Most names are those of methods,
# which the lessons explain.
#
# | cost | lessons |
# |:--|:--|
# | weights that are stored and read | 01 patterns · 02 OBD and OBS · 03 SparseGPT · 04 Wanda · 05 Minitron |
# | weights that are used per token | 06 MoE routing · 09 Deja Vu |
# | the cache | 07 KV eviction · 08 attention sinks |
# | the prompt | 10 compress, then prompt · 11 sparse attention |
# | everything | 00, this lesson · 12 capstone |
#
# ## Reading
#
# - Williams, Waterman, Patterson: *Roofline: An Insightful Visual Performance Model for Multicore Architectures*,
#   CACM 52(4), 2009, [doi:10.1145/1498765.1498785](https://doi.org/10.1145/1498765.1498785).
# - Pope and others: *Efficiently Scaling Transformer Inference*, 2022,
#   [arXiv:2211.05102](https://arxiv.org/abs/2211.05102). Prefill and decoding on large machines.
# - Amdahl: *Validity of the Single Processor Approach to Achieving Large Scale Computing Capabilities*, AFIPS 1967,
#   [doi:10.1145/1465482.1465560](https://doi.org/10.1145/1465482.1465560).

# %%
show_progress()
