# %% [markdown]
# # 00 · Start here
#
# A language model does almost nothing but multiply by large matrices. Sparsity is the art of leaving out what does not
# matter: weights, heads, tokens, experts. This first lesson shows how the workbook works, lets a real model speak, and
# measures where its time and memory go on your machine. Everything later tries to make one of these parts smaller.
#
# **Afterwards you can** say whether a step of a language model waits for arithmetic or for memory, how much a faster
# part speeds up the whole, and how many bytes weights and cache take. **You need** Python and tensors in PyTorch; what
# a transformer is helps, but is not needed. **Time**: three quarters of an hour.
#
# Reading takes ten minutes, the five exercises about half an hour.

# %%
import math

import torch

from course_lib.measure import timing
from course_lib.measure.machine import measure_device
from course_lib.measure.paired import mean_and_error
from course_lib.models import blocks, linears, load_model, weight_of
from course_lib.lessons.start import figures as plots
from course_lib.lessons.start.block import block_drawing
from course_lib.measure.roofline import A100, GB, GIB, LLAMA2_70B, Transformer
from course_lib.quantization.grid import most_values
from course_lib.sparsity.patterns import sparsity_of
from course_lib.lessons.common.verdicts import of_independent, verdict
from course_lib.workbook import check, show_progress

# %%
model, tokenizer = load_model(device="cpu")
sizes = Transformer.of(model)
print(f"SmolLM2-135M-Instruct: {sizes.n_weights / 1e6:.1f} million weights in {sizes.n_blocks} blocks")

# %% [markdown]
# ## 1. How to work
#
# Under each exercise stands `check(...)`. Run it as often as you like:
#
# - it tries your function on cases worked by hand and on random ones, and says where the first difference is;
# - when it recognises a common mistake, it names it;
# - it never blocks you: the notebook runs on whatever you have solved. From lesson 01 on, an experiment that follows an
#   exercise uses your function once it is right, and the course's own until then.
#
# Stuck? Run `hint("start.sparsity")` in a new cell; each call says a little more. `show_progress()`, or
# `course progress` in a terminal, shows what you have solved. Your progress lives outside the notebook, so you may
# rename or copy it.
#
# The word of this course first. The *sparsity* of a tensor is the share of its entries that are exactly zero; its
# *density* is the rest.

# %% [markdown]
# ### The sparsity of a tensor
# **Exercise** · difficulty 1 of 5 · 3 minutes · 1 point
#
# Return the sparsity of a tensor of any shape, as a number between 0 and 1.


# %% exercise="start.sparsity"
def sparsity(tensor):
    """Share of the entries of `tensor` (any shape) that are zero, between 0 and 1."""
    ### BEGIN SOLUTION
    return (tensor == 0).double().mean().item()
    ### END SOLUTION


# %%
check("start.sparsity", sparsity)

# %% [markdown]
# A model as it comes out of training is dense: next to no weight is exactly zero, though many are small.

# %%
every_weight = torch.cat([weight_of(linear).flatten() for block in blocks(model) for linear in linears(block).values()])
print(f"{len(every_weight) / 1e6:.0f} million block weights, sparsity {sparsity_of(every_weight):.6f}")
small = every_weight.abs() < every_weight.square().mean().sqrt() / 10
print(f"{small.double().mean():.1%} are smaller than a tenth of the root mean square")

# %% [markdown]
# Training did not leave those few zeros. This model comes from a file that holds 4 bits for each weight: 32 neighbours
# in a row share a smallest value and a step, and each of them is one of the 16 values that these make. Some weights
# were rounded to exactly zero. Loading turned them into float32 again, but the grid is still there to be seen.

# %%
for name, linear in linears(blocks(model)[0]).items():
    print(f"{name:<17} at most {most_values(weight_of(linear).detach(), 32)} different values among 32 neighbours")

# %% [markdown]
# So every number of this course is measured on a model that was rounded once, and what the lessons call *dense* has
# paid for that already. Methods are compared on the same weights, which is fair to all of them; a perplexity is not
# that of the model as its authors trained it. Lesson 03, which rounds these weights a second time, asks whether the
# first rounding prejudges the second. With a network, `load_model("HuggingFaceTB/SmolLM2-135M-Instruct")` takes the
# weights as they were published.
#
# ## 2. The model speaks
#
# A language model gives a probability to every token that could come next. Picking the most probable one, appending it
# and asking again makes text.

# %%
plots.next_tokens(model, tokenizer)

# %%
question = [{"role": "user", "content": "What is the capital of Italy, and what is it famous for?"}]
prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
answer = model.generate(**prompt, max_new_tokens=48, do_sample=False)
print(tokenizer.decode(answer[0, prompt.input_ids.shape[1] :], skip_special_tokens=True))

# %% [markdown]
# There are two phases, and they behave differently:
#
# - **prefill**: the prompt goes through the model at once, all its tokens side by side;
# - **decode**: the answer comes one token at a time, each needing one pass through the whole model.
#
# A pass goes through blocks that are all built alike. This is one of them; later lessons come back to this drawing.

# %%
block_drawing(sizes)

# %% [markdown]
# Every token is a list of numbers, the *residual stream*. A block reads it twice and adds to it twice.
#
# - **Attention** looks at other tokens. The query of a token is compared with the keys of all tokens up to it, softmax
#   turns the comparisons into weights, and the values are added up with these weights. Several heads do so side by
#   side; some query heads share one head of keys and values (*grouped-query attention*).
# - The **MLP** works on each token by itself. Each of its neurons multiplies a gate with a value, and `down_proj`
#   writes what comes out back into the stream.
#
# A matrix of shape outputs × inputs multiplies what stands in the circle before it. Query, key and value read the same
# input, and so do gate and up: seven matrices, but only four inputs to look at.
#
# ## 3. Where the time goes
#
# A processor computes, and it reads from memory. Per layer with weight $W$ of shape (O, I) and N tokens of input, it
# computes $2\,O\,I\,N$ FLOPs (a multiplication and an addition per weight and token), and it moves at least the weight,
# the inputs and the outputs. FLOPs divided by bytes is the **arithmetic intensity**.

# %% [markdown]
# ### FLOPs a byte
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Return the arithmetic intensity of one linear layer on `n_tokens` inputs. Each number (weight, input, output) takes
# `value_bytes` bytes and crosses the memory bus once.


# %% exercise="start.intensity"
def intensity(n_outputs, n_inputs, n_tokens, value_bytes):
    """FLOPs a byte of a layer: weight (n_outputs, n_inputs), inputs (n_tokens, n_inputs)."""
    ### BEGIN SOLUTION
    flops = 2 * n_outputs * n_inputs * n_tokens
    n_values = n_outputs * n_inputs + n_tokens * n_inputs + n_tokens * n_outputs
    return flops / (value_bytes * n_values)
    ### END SOLUTION


# %%
check("start.intensity", intensity)

# %% [markdown]
# One token through a float32 layer gives about half a FLOP a byte, whatever the layer's size. How fast can that be? The
# **roofline** (Williams, Waterman and Patterson, 2009) answers with two numbers of the machine, $\pi$ FLOP/s and
# $\beta$ byte/s. Work of $F$ FLOPs and $Q$ bytes takes at least
#
# $$ t \ge \max\left(\frac{F}{\pi}, \frac{Q}{\beta}\right). $$
#
# Below an intensity of $\pi / \beta$, the *ridge*, memory decides; above it, arithmetic.

# %% [markdown]
# ### The roofline
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Return the least time that a step of `flops` FLOPs and `n_bytes` bytes can take on a machine with these two rates.


# %% exercise="start.step_seconds"
def step_seconds(flops, n_bytes, flops_per_second, bytes_per_second):
    """Seconds that the step takes at least, when computing and reading overlap perfectly."""
    ### BEGIN SOLUTION
    return max(flops / flops_per_second, n_bytes / bytes_per_second)
    ### END SOLUTION


# %%
check("start.step_seconds", step_seconds)

# %% [markdown]
# Now this machine and this model. We measure the two rates, then decoding (1, 4 and 16 answers at once) and prefill
# (prompts of 16, 64 and 256 tokens), and set each beside the work that the model's sizes imply.

# %%
machine = measure_device()
timings = timing.time_decoding(model, (1, 4, 16)) + timing.time_prefill(model, (16, 64, 256))
print(f"{machine.name}: {machine.flops_per_second / 1e9:.0f} GFLOP/s, {machine.bytes_per_second / GB:.1f} GB/s")
print(f"ridge at {machine.ridge:.0f} FLOP/byte; an A100 has its ridge at {A100.ridge:.0f}")
print("phase    tokens  FLOP/byte  bound by   least [ms]  measured [ms]  of the roofline")
for t in timings:
    least, bound = 1000 * t.work.seconds(machine), t.work.bound(machine)
    print(
        f"{t.kind:8} {t.n_tokens:6} {t.work.intensity:10.1f}  {bound:8} {least:11.0f} {1000 * t.seconds:14.0f} "
        f"{t.of_roofline(machine):16.0%}"
    )

# %%
plots.roofline(machine, timings)

# %% [markdown]
# **The claim.** Where memory decides, a second token at the same time is nearly free: the weights are read once for
# both. Sixteen answers at once should cost less than half of sixteen single ones. Each of a few steps is timed, and the
# verdict asks whether the ratio lies more than two of its standard errors below eight.

# %%
one, sixteen = timings[0], timings[2]
ratio = sixteen.seconds / one.seconds
logs = [mean_and_error(torch.tensor(timing_of.steps).log()) for timing_of in (sixteen, one)]
below_eight = of_independent(*logs, threshold=math.log(1 / 8))
print(f"16 answers at once take {ratio:.1f} times as long as one, with 16 times the FLOPs")
spread = f"{ratio:.1f} times ± {100 * below_eight.error:.0f} %"
print(f"Claim: they take less than 8 times as long. {spread}: {verdict(below_eight)}")

# %% [markdown]
# (A step that beats its roofline tells that the machine was busier while its own two rates were measured.)
#
# So a compressed weight can speed up decoding even when it must be unpacked before use: bytes are what is scarce. For
# prefill, only skipped arithmetic helps.
#
# Neither phase reaches its roof. Which parts of a decoding step take the time?

# %%
seconds, n_bytes = timing.part_seconds(model), timing.part_bytes(model)
plots.parts(seconds, n_bytes)

# %% [markdown]
# "The rest" is attention itself, the norms, and the overhead of a small model in Python; no weights are read there, and
# no pruning of weights makes it faster. That limits what any method can gain. Amdahl (1967): if a share $p$ of the time
# is made $s$ times faster, the whole becomes
#
# $$ \frac{1}{(1 - p) + p / s} $$
#
# times faster.

# %% [markdown]
# ### What is left when a part gets faster
# **Exercise** · difficulty 2 of 5 · 6 minutes · 2 points
#
# Return how many times faster the whole gets when `share` of its time is made `factor` times faster. The factor may be
# infinite.


# %% exercise="start.speedup"
def speedup(share, factor):
    """Old time divided by new time; `share` between 0 and 1, `factor` at least 1."""
    ### BEGIN SOLUTION
    return 1 / (1 - share + share / factor)
    ### END SOLUTION


# %%
check("start.speedup", speedup)

# %%
share = (seconds["attention matrices"] + seconds["MLP matrices"]) / sum(seconds.values())
print(f"the matrices of the blocks take {share:.0%} of a decoding step")
print(f"twice as fast: the step gains {1 / (1 - share + share / 2):.2f} times; free: {1 / (1 - share):.2f} times")

# %% [markdown]
# ## 4. Where the memory goes
#
# Weights come first: 7 billion in float32 are 28 GB. While a model decodes, each block also keeps the keys and values
# of all earlier tokens, so that they are not computed again: the **key-value cache**. It grows with every token of
# every sequence.

# %% [markdown]
# ### The key-value cache
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Return the bytes of the cache. The model has `n_blocks` blocks, each with `n_query` query heads that share
# `n_key_value` key-value heads of size `head_size`; `batch` sequences have `n_tokens` tokens each.


# %% exercise="start.cache_bytes"
def cache_bytes(n_blocks, n_query, n_key_value, head_size, n_tokens, batch, value_bytes):
    """Bytes of keys and values, each (batch, n_key_value, n_tokens, head_size), in every block."""
    ### BEGIN SOLUTION
    bytes_per_token = 2 * n_blocks * n_key_value * head_size * value_bytes
    return bytes_per_token * n_tokens * batch
    ### END SOLUTION


# %%
check("start.cache_bytes", cache_bytes)

# %% [markdown]
# The formula against a real cache, byte by byte:

# %%
with torch.no_grad():
    cache = model(answer, use_cache=True).past_key_values
really = sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values))
expected = sizes.cache_bytes(answer.shape[1], batch=1, value_bytes=4)
print(f"{answer.shape[1]} tokens: {really} bytes in the model's cache, {expected} by the formula")

# %%
plots.memory(sizes, 4, model.config.max_position_embeddings, "SmolLM2-135M")

# %% [markdown]
# At the size of a server the cache overtakes the weights. Llama-2-70B in float16, 64 sequences of 8192 tokens:

# %%
big = LLAMA2_70B.cache_bytes(8192, batch=64)
weights = LLAMA2_70B.n_weights * 2
print(f"weights {weights / GB:.0f} GB, cache {big / GB:.0f} GB ({big / GIB:.0f} GiB)")
print(f"reading both once takes {(weights + big) / A100.bytes_per_second:.2f} s at the bandwidth of one A100")

# %% [markdown]
# ## 5. When sparsity does not pay
#
# - Zeros that are stored and multiplied like other numbers save nothing. It takes a format that leaves them out (lesson
#   01) and code that uses it.
# - On many tokens at once arithmetic decides; only structure that hardware can skip helps there.
# - Pruned weights leave the cache as it is, and the other way round. Measure first which of the two you pay for.
#
# ## To take home
#
# 1. A token alone is bound by memory, many tokens together by arithmetic. The ridge of the machine says where one turns
#    into the other.
# 2. A part of the time bounds what any method can gain on it.
# 3. Weights are read once for everybody who is served at the same time; a cache is read for its own sequence alone.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>A laptop computes 100 GFLOP/s and reads 10 GB/s. From how many tokens at once is a large float32
# layer bound by arithmetic?</summary>
#
# The ridge is 10 FLOP a byte. A large layer computes $2\,O\,I\,N$ FLOPs on $4\,O\,I$ bytes of weights, $N / 2$ FLOP a
# byte. So from about 20 tokens on.
#
# </details>
#
# <details><summary>Half of the weights in all blocks are gone, and a perfect kernel reads only the other half. Why is a
# step of decoding not twice as fast?</summary>
#
# The head, attention itself, the norms and the overhead of each call take as long as before (Amdahl). And a format has
# to say where the weights were, which costs bytes as well.
#
# </details>
#
# <details><summary>A server answers 64 long conversations at once. Would you rather prune its weights or its
# cache?</summary>
#
# The cache, as long as it is the larger part: the weights are read once for all 64 conversations, every cache for its
# own. For Llama-2-70B with 8192 tokens each it is larger than the weights.
#
# </details>
#
# ## What comes next
#
# | you pay for | lessons |
# |:--|:--|
# | weights read and stored | 01 patterns · 02 OBD and OBS · 03 SparseGPT · 04 Wanda · 05 Minitron |
# | weights used per token | 06 MoE routing · 09 Deja Vu |
# | the cache | 07 KV eviction · 08 attention sinks |
# | the prompt | 10 compress, then prompt · 11 sparse attention |
#
# **Reading.** Williams, Waterman, Patterson: *Roofline: an insightful visual performance model for multicore
# architectures*, CACM 52(4), 2009, <https://doi.org/10.1145/1498765.1498785>. Pope and others: *Efficiently scaling
# transformer inference*, 2022, <https://arxiv.org/abs/2211.05102>. Amdahl: *Validity of the single processor approach
# to achieving large scale computing capabilities*, AFIPS 1967, <https://doi.org/10.1145/1465482.1465560>.

# %%
show_progress()
