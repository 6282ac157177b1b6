# %% [markdown]
# # 00 · Start here
#
# Almost all that a language model does is multiply by large matrices. Sparsity means leaving out of this work what does
# not matter: weights, heads, tokens, experts. This first lesson shows how the workbook works, lets a real model write a
# few sentences, and measures where its time and its memory go on your machine. The lessons after it make one of these
# parts smaller and ask what that costs.
#
# **Afterwards you can** say whether a step of a language model waits for arithmetic or for memory, how fast a part must
# get for the whole to gain what you want, and how many bytes weights and cache take. **You need** Python and tensors in
# PyTorch; what a transformer is helps, but is not needed. **Time**: three quarters of an hour, of which the five
# exercises take a little over half an hour.

# %%
import math

import torch

from course_lib.lessons.common.table import Table, number, percent
from course_lib.lessons.common.tables import load_measured, say
from course_lib.measure import timing
from course_lib.measure.machine import measure_device
from course_lib.measure.paired import mean_and_error
from course_lib.models import blocks, linears, load_model, weight_of
from course_lib.lessons.start import figures as plots, plans
from course_lib.lessons.start.block import block_drawing
from course_lib.lessons.start.bounds import layer_works
from course_lib.measure.roofline import A100, GB, GIB, LLAMA2_70B, Device, Transformer
from course_lib.quantization.grid import most_values
from course_lib.sparsity.patterns import sparsity_of
from course_lib.lessons.common.verdicts import of_independent, verdict
from course_lib.workbook import check, mine, show_progress

# %%
model, tokenizer = load_model(device="cpu")
sizes = Transformer.of(model)
print(f"SmolLM2-135M-Instruct: {sizes.n_weights / 1e6:.1f} million weights in {sizes.n_blocks} blocks")

# %% [markdown]
# ## 1. How to work
#
# Under each exercise stands `check(...)`, which you may run as often as you like:
#
# - it tries your function on cases worked by hand and on random ones, and says where the first difference is;
# - where it recognises a common mistake, it names it;
# - it never blocks you, because the notebook runs on whatever you have solved. A cell with `mine(...)` goes on with
#   your function once it is right, and with the course's own until then.
#
# The inputs of a check may be float32 or float64 tensors, and you may return either. Give a tensor that you create in
# your function the dtype of the inputs: for example, `torch.zeros(n, dtype=x.dtype)` instead of `torch.zeros(n)`.
#
# If you are stuck, press the hint button under the check, or run `hint("start.sparsity")` in a new cell; each time you
# see one more hint. After a right answer you can unfold one way to solve the exercise, unless your copy came without
# solutions. `check_all()` in the last cell of each notebook lists all of its exercises and what grading would run.
# `show_progress()`, or `course progress` in a terminal, shows what you have solved. Your progress is kept outside the
# notebook, so you may rename or copy it.
#
# **What is graded, if you hand a notebook in.** For each exercise everything above its check runs that gives a value to
# a name which your function needs, or changes one (imports, definitions, loops, calls that fill a table, files written
# by `%%writefile`); then the function is called on the cases of `check` and on others. What loads a model, data or an
# experiment of the course does not run, nor do shell commands, plots and prints, so an answer must not need them.
# `course check-notebook FILE` in a terminal tells you beforehand what your notebook gets.
#
# First, the word this course is named after. The *sparsity* of a tensor is the share of its entries that are exactly
# zero, and its *density* is the rest. Zeros are *unstructured* when they may lie anywhere, and *structured* when whole
# rows, columns, heads or blocks are zero. They are *static* when they are the same for every input, as in a pruned
# weight, and *dynamic* when the input decides, as in a cache from which tokens leave.

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
# A model as it comes out of training is dense: hardly any weight is exactly zero, although many are small.

# %%
every_weight = torch.cat([weight_of(linear).flatten() for block in blocks(model) for linear in linears(block).values()])
print(f"{len(every_weight) / 1e6:.0f} million block weights, sparsity {sparsity_of(every_weight):.6f}")
small = every_weight.abs() < every_weight.square().mean().sqrt() / 10
print(f"{100 * small.double().mean():.1f} % are smaller than a tenth of the root mean square")

# %% [markdown]
# The few zeros do not come from training. This model was stored in a file with 4 bits for each weight: 32 neighbours in
# a row share a smallest value and a step, and each of them is rounded to one of the 16 values that these two give. Some
# weights became exactly zero in that way. Loading turned all of them into float32 again, but the grid can still be
# seen.

# %%
Table(
    [
        {"layer": name, "different values": most_values(weight_of(linear).detach(), 32)}
        for name, linear in linears(blocks(model)[0]).items()
    ],
    caption="How many different values 32 neighbouring weights have at most",
)

# %% [markdown]
# So every number of this course is measured on a model that was rounded once, and even the model that the lessons call
# *dense* has lost something to rounding. Methods are compared on the same weights, which is fair to all of them, but a
# perplexity is not the one that the authors' own weights would give. Lesson 03 rounds these weights a second time and
# asks whether the first rounding decides the result of the second. With a network,
# `load_model("HuggingFaceTB/SmolLM2-135M-Instruct")` takes the weights as they were published.
#
# ## 2. The model speaks
#
# A language model gives a probability to every token that could come next. To make text, one picks the most probable
# token, appends it, and asks again.

# %%
plots.next_tokens(model, tokenizer)

# %%
question = [{"role": "user", "content": "What is the capital of Italy, and what is it famous for?"}]
prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
answer = model.generate(**prompt, max_new_tokens=48, do_sample=False)
say(tokenizer.decode(answer[0, prompt.input_ids.shape[1] :], skip_special_tokens=True))

# %% [markdown]
# This happens in two phases, and they behave differently:
#
# - **prefill**: the prompt goes through the model at once, all its tokens side by side;
# - **decode**: the answer comes one token at a time, and each of them needs a pass through the whole model.
#
# A pass goes through blocks that are all built alike. The drawing shows one of them; later lessons come back to it.

# %%
block_drawing(sizes)

# %% [markdown]
# Every token is carried through the model as a list of numbers, the *residual stream*. Each block reads it twice and
# adds to it twice.
#
# - **Attention** lets a token look at others. Its query is compared with the keys of all tokens up to it, softmax turns
#   the comparisons into weights, and the values are added up with these weights. Several heads do so side by side, and
#   some query heads share one head of keys and values (*grouped-query attention*).
# - The **MLP** works on each token by itself. Each of its neurons multiplies a gate with a value, and `down_proj`
#   writes the result back into the stream.
#
# A matrix of shape outputs × inputs multiplies the input whose number stands in the circle before it. Query, key and
# value read the same input, and so do gate and up. A method that looks at inputs therefore has only four of them to
# look at, although a block has seven matrices.
#
# ## 3. Where the time goes
#
# A processor does two things that take time: it computes, and it reads from memory. For a layer with a weight $W$ of
# shape (O, I) and N tokens of input it computes $2\,O\,I\,N$ FLOPs, a multiplication and an addition for each weight
# and token. It moves at least the weight, the inputs and the outputs. The FLOPs divided by the bytes are the
# **arithmetic intensity**.

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
# One token through a large float32 layer gives about half a FLOP a byte, because each weight has four bytes and is used
# for two FLOPs. How fast can that be? The **roofline** (Williams, Waterman and Patterson, 2009) answers with two rates
# of the machine, $\pi$ FLOP/s and $\beta$ byte/s. If computing and reading overlap perfectly, work of $F$ FLOPs and $Q$
# bytes takes at least
#
# $$ t \ge \max\left(\frac{F}{\pi}, \frac{Q}{\beta}\right). $$
#
# Below an intensity of $\pi / \beta$, the *ridge*, memory decides; above it, arithmetic does.
#
# A pass through the model is not one piece of work but a row of layers. A layer computes with what the layer before it
# returned, so it cannot begin earlier. Suppose that computing and reading overlap inside a layer, and that nothing
# overlaps across two layers: how long does the pass take at least?

# %% [markdown]
# ### The roofline of a pass
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Return the least time, as one number, that a pass can take on a machine with these two rates. The first entries of
# `flops` and `n_bytes` belong to the first layer, the second ones to the second, and so on.


# %% exercise="start.step_seconds"
def step_seconds(flops, n_bytes, flops_per_second, bytes_per_second):
    """Seconds of a pass through all layers.

    flops, n_bytes: (layers,), float64. The rates are plain numbers.
    """
    ### BEGIN SOLUTION
    computing, reading = flops / flops_per_second, n_bytes / bytes_per_second
    return torch.maximum(computing, reading).sum().item()
    ### END SOLUTION


# %%
check("start.step_seconds", step_seconds)

# %% [markdown]
# Now to this machine and this model. The next cell measures the two rates, then decoding (1, 4 and 16 answers at once)
# and prefill (prompts of 16, 64 and 256 tokens). Beside each measured time stands the least time that the roofline
# gives for the whole pass, taken as one piece of work.

# %%
machine = measure_device()
timings = timing.time_decoding(model, (1, 4, 16)) + timing.time_prefill(model, (16, 64, 256))
print(f"{machine.name}: {machine.flops_per_second / 1e9:.0f} GFLOP/s, {machine.bytes_per_second / GB:.1f} GB/s")
print(f"ridge at {machine.ridge:.0f} FLOP/byte; an A100 has its ridge at {A100.ridge:.0f}")
Table(
    [
        {
            "phase": t.kind,
            "bound by": t.work.bound(machine),
            "tokens": t.n_tokens,
            "FLOP/byte": t.work.intensity,
            "least time (ms)": 1000 * t.work.seconds(machine),
            "measured (ms)": 1000 * t.seconds,
            "least / measured": t.of_roofline(machine),
        }
        for t in timings
    ],
    caption="Each step and its least time by the roofline",
    formats={
        "FLOP/byte": number(1),
        "least time (ms)": number(),
        "measured (ms)": number(),
        "least / measured": percent,
    },
)

# %%
plots.roofline(machine, timings)

# %% [markdown]
# Does the bound change when it is taken layer by layer? The function from the exercise answers this for prompts of
# several lengths. In a prefill the blocks work on all tokens, but the head works on the last one alone. So the head
# waits for memory while the blocks wait for arithmetic, and because they run one after the other, the head's bytes
# cannot be read while the blocks compute.

# %%
bound_of = mine("start.step_seconds", step_seconds)
bounds = []
for n_tokens in (1, 16, 64, 256):
    works = layer_works(sizes, n_tokens, value_bytes=4)
    one_piece = max(works[0].sum().item() / machine.flops_per_second, works[1].sum().item() / machine.bytes_per_second)
    by_layers = bound_of(*works, machine.flops_per_second, machine.bytes_per_second)
    bounds.append({"tokens": n_tokens, "as one piece (ms)": 1000 * one_piece, "layer by layer (ms)": 1000 * by_layers})
Table(
    bounds,
    caption="The least time of a prefill, computed in two ways",
    formats={"as one piece (ms)": number(), "layer by layer (ms)": number()},
)

# %% [markdown]
# **The claim.** Where memory decides, a second token at the same time is nearly free, because the weights are read once
# for both. So sixteen answers at once should cost less than half of sixteen single ones. Several steps of each kind are
# timed, and the verdict asks whether their ratio lies more than two of its standard errors below eight.

# %%
one, sixteen = timings[0], timings[2]
ratio = sixteen.seconds / one.seconds
logs = [mean_and_error(torch.tensor(timing_of.steps).log()) for timing_of in (sixteen, one)]
below_eight = of_independent(*logs, threshold=math.log(1 / 8))
print(f"16 answers at once take {ratio:.1f} times as long as one, with 16 times the FLOPs")
spread = f"{ratio:.1f} times ± {100 * below_eight.error:.0f} %"
print(f"Claim: they take less than 8 times as long. {spread}: {verdict(below_eight)}")

# %% [markdown]
# A step cannot really be faster than its roofline. Where the table says so, the machine was busier with other programs
# while its two rates were measured than while the step ran.
#
# While a single answer is decoded, reading memory is the bottleneck. A compressed weight can then make decoding faster
# even though it has to be unpacked before use. In a long prefill arithmetic is the bottleneck, and only multiplications
# that are not done save time.
#
# Neither phase reaches its roof. Which parts of a decoding step take the time?

# %%
seconds, n_bytes = timing.part_seconds(model), timing.part_bytes(model)
plots.parts(seconds, n_bytes)

# %% [markdown]
# "The rest" is attention itself, the norms, and what it costs to call many small operations from Python. No weights are
# read there, so pruning weights does not make this part faster, and it limits what any such method can gain. Amdahl
# (1967) put the limit into a formula: if a share $p$ of the time is made $s$ times faster, the whole becomes
#
# $$ \frac{1}{(1 - p) + p / s} $$
#
# times faster. Even if the part took no time at all, the rest would still take as long as before, so the whole gains at
# most $1 / (1 - p)$.
#
# In practice the question is the other way round. Somebody wants the whole to be, say, 1.5 times as fast, and you have
# to say what the part must gain for that, or that it cannot be done with this part alone.

# %% [markdown]
# ### How fast a part must get
# **Exercise** · difficulty 3 of 5 · 8 minutes · 2 points
#
# Return how many times faster the part that takes `share` of the time must get, for the whole to get `goal` times
# faster. Return 0 where no factor is enough.


# %% exercise="start.speedup"
def speedup(share, goal):
    """The factor that the part needs, or 0; `share` above 0 and up to 1, `goal` at least 1."""
    ### BEGIN SOLUTION
    left = 1 / goal - (1 - share)
    return share / left if left > 0 else 0.0
    ### END SOLUTION


# %%
check("start.speedup", speedup)

# %%
share = (seconds["attention matrices"] + seconds["MLP matrices"]) / sum(seconds.values())
print(f"The matrices of the blocks take {100 * share:.0f} % of a decoding step;")
print(f"without them it would be {1 / (1 - share):.2f} times as fast.")
needed_for = mine("start.speedup", speedup)
Table(
    [{"whole step": goal, "matrices of the blocks": needed_for(share, goal)} for goal in (1.25, 1.5, 2, 4)],
    caption="How many times as fast the matrices must become for a faster step",
    formats={"matrices of the blocks": number(1)},
    note="A dash: the matrices alone cannot do it.",
)

# %% [markdown]
# ## 4. Where the memory goes
#
# The weights take most of it at first: 7 billion in float32 are 28 GB. While a model decodes, each block also keeps the
# keys and values of all earlier tokens, because otherwise they would have to be computed again for every new one. This
# is the **key-value cache**, and it grows with every token of every sequence.

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
# Does the formula count what a real cache holds? The next cell adds up its tensors, byte by byte.

# %%
with torch.no_grad():
    cache = model(answer, use_cache=True).past_key_values
really = sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values))
expected = sizes.cache_bytes(answer.shape[1], batch=1, value_bytes=4)
print(f"{answer.shape[1]} tokens: {really} bytes in the model's cache, {expected} by the formula")

# %%
plots.memory(sizes, 4, model.config.max_position_embeddings, "SmolLM2-135M")

# %% [markdown]
# On a server the cache can overtake the weights. The example is Llama-2-70B in float16 with 128 sequences of
# 4096 tokens, all that this model was trained on.

# %%
big = LLAMA2_70B.cache_bytes(4096, batch=128)
weights = LLAMA2_70B.n_weights * 2
print(f"weights {weights / GB:.0f} GB, cache {big / GB:.0f} GB ({big / GIB:.0f} GiB)")
print(f"reading both once takes {(weights + big) / A100.bytes_per_second:.2f} s at the bandwidth of one A100")

# %% [markdown]
# ## 5. When sparsity does not pay
#
# - Zeros that are stored and multiplied like other numbers save nothing. It takes a format that leaves them out (lesson
#   01), and code that uses this format.
# - With many tokens at once arithmetic decides, and then only structure helps that the hardware can skip.
# - Pruned weights leave the cache as large as it was, and tokens that leave the cache do not change the weights. So
#   before choosing a method, measure which of the two takes the larger share of your time or memory.
#
# ## 6. An open task
#
# Make a step of decoding at least twice as fast, and leave out as little as you can of what the step reads. You choose
# the situation, that is how many answers are decoded at once and how many tokens each has behind it, and you choose
# which shares are kept of three things: the neurons of every MLP, the blocks, and the tokens in every cache. Only speed
# counts here; what the loss does to the text is what the other lessons are about. There is no formula, and nothing is
# graded.
#
# Before you try, use what you know: what does the step read most of in your situation, does memory or arithmetic
# decide, and which part of the time does none of your choices touch?

# %%
plan = plans.Plan(answers=1, context=64, neurons=1.0, blocks=1.0, tokens=1.0)

# %%
measured = load_measured("start", "plans")
there = Device(**measured["tables"]["machine"][0], source="measured")
plans.table(plans.stored(measured["tables"]["ideas"], sizes) | {"yours": plans.attempt(model, plan)}, there)

# %% [markdown]
# The rows above yours are simple ideas, measured once on the machine that `course reproduce plans` ran on; your row was
# measured just now on yours. Steps of the whole and of the reduced model took turns, and the clock counted processor
# time of one thread, because other programs disturb that least. *Not read* is the share of the bytes of weights and
# cache that the reduced model leaves out, *roofline* is the gain that these bytes and FLOPs promise, *measured* the
# gain with the standard error of its logarithm, and *pairs* says how many steps of each it comes from. Which ideas gain
# less than the roofline promises, and does any gain more? Which of them leave out much and gain little, and why? Is
# yours twice as fast with less left out than any of these?
#
# <details><summary>No step is faster than its roofline. How can the gain exceed what the rooflines promise?</summary>
#
# The gain compares two steps, and neither is at its roofline. If the whole model is further from its bound than the
# reduced one, the gain is larger than bytes and FLOPs predict. With long caches there is a reason for this:
# transformers copies the keys and values of every answer at each step, to add the new token, and the count of bytes
# leaves this out.
#
# </details>
#
# ## To take home
#
# 1. One token at a time is bound by memory, many tokens at once by arithmetic. The ridge of the machine says at
#    which intensity the one turns into the other.
# 2. A method that makes one part of the work faster saves at most the share of the time that this part takes.
# 3. Weights are read once for all answers that are decoded at the same time, while every answer has a cache of its
#    own that must be read for it.
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
# The head, attention itself, the norms and the overhead of each call take as long as before, so Amdahl's limit applies.
# Besides, a sparse format has to store where the remaining weights are, and this costs bytes as well.
#
# </details>
#
# <details><summary>A server answers 128 long conversations at once. Would you rather prune its weights or its
# cache?</summary>
#
# The cache, where it is the larger part, because the weights are read once for all 128 conversations and every cache
# for its own. For Llama-2-70B with 4096 tokens in each conversation it is larger than the weights.
#
# </details>
#
# ## What comes next
#
# The course has thirteen lessons. Each makes something cheaper that you pay for.
#
# | you pay for | lessons |
# |:--|:--|
# | weights read and stored | 01 patterns · 02 OBD and OBS · 03 SparseGPT · 04 Wanda · 05 Minitron |
# | weights used for a token | 06 MoE routing · 09 Deja Vu |
# | the cache | 07 KV eviction · 08 attention sinks |
# | the prompt | 10 compress, then prompt · 11 sparse attention |
# | everything | 00, this lesson · 12 capstone |
#
# **Reading.** Williams, Waterman, Patterson: *Roofline: an insightful visual performance model for multicore
# architectures*, CACM 52(4), 2009, <https://doi.org/10.1145/1498765.1498785>. Pope and others: *Efficiently scaling
# transformer inference*, 2022, <https://arxiv.org/abs/2211.05102>. Amdahl: *Validity of the single processor approach
# to achieving large scale computing capabilities*, AFIPS 1967, <https://doi.org/10.1145/1465482.1465560>.

# %%
show_progress()
