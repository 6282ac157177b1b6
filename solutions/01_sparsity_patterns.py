# %% [markdown]
# # 01 · Sparsity patterns
#
# A matrix with zeros can be stored in fewer bytes and multiplied in fewer steps. Whether it *is* smaller and faster
# depends on where the zeros are. This lesson looks at the arrangements that matter for language models, what each costs
# the model, how many bytes each takes, and how fast each runs on this machine.
#
# **Afterwards you can** choose an arrangement of zeros for a purpose and say what it costs: how many bytes a format
# takes and from which density on it pays, what a CPU and a GPU make of it, and what the model loses. **You need**
# lesson 00, for bytes and the roofline, and tensors in PyTorch. **Time**: two hours, more than half of them for
# exercises.
#
# You will write eight short functions. Under each is a `check`; it tells you what is wrong and, when it knows, which
# mistake it is. What follows an exercise uses your function once it is right, and the course's until then.

# %%
import torch
from torch.nn.functional import linear

from course_lib.data import corpora
from course_lib.lessons.patterns.experiment import measured
from course_lib.measure.machine import measure_device
from course_lib.models import blocks, head, linears, load_model, weight_of
from course_lib.lessons.patterns import figures as plots
from course_lib.lessons.patterns import tables as printed
from course_lib.lessons.patterns.speed import bench_on_a_cpu
from course_lib.lessons.patterns.explorer import explore
from course_lib.measure.roofline import H100, Transformer, linear_work
from course_lib.lessons.patterns.measure import (
    dynamic_and_static,
    inputs_of,
    keep_most_active,
    one_of_each,
    perplexity_of_patterns,
    stored_in_each_group,
)
from course_lib.sparsity.formats import CSR, Bitmap, BlockSparse, Dense, NofMPacked
from course_lib.sparsity.patterns import Block, Columns, NofM, Unstructured, sparsity_of
from course_lib.sparsity.speed import layer_speed, speed_by_round
from course_lib.workbook import check, mine

# %%
model, tokenizer = load_model()
weight = weight_of(linears(blocks(model)[10])["mlp.up_proj"])
print(f"{len(blocks(model))} blocks; our matrix has {weight.shape[0]} outputs (rows) and {weight.shape[1]} inputs")

# %% [markdown]
# ## 1. The idea in one picture
#
# Below is a part of one weight matrix of the model, six times. Each time half of the weights are zero (white): those
# with the smallest squares that the pattern allows to remove.

# %%
plots.masks(weight, one_of_each(0.5), first=64)

# %% [markdown]
# - **Unstructured**: any weight may go. The best choice, and the hardest to make use of.
# - **n:m** (semi-structured): of every m neighbours along the inputs, n stay. This course always counts those that
#   *stay*; 2:4 reads the same either way, 1:4 and 3:4 do not.
# - **Blocks**: whole tiles go.
# - **Columns, rows** (structured): whole inputs or outputs go. What stays is an ordinary smaller matrix.
#
# From the first to the last the pattern gets more regular: easier for hardware, and less free to keep the right
# weights. The *sparsity* of a matrix is the fraction of its entries that are exactly zero; the rest is its *density*.

# %%
matrices = [weight_of(layer) for block in blocks(model) for layer in linears(block).values()]
zeros = sum(int((matrix == 0).sum()) for matrix in matrices)
n_weights = sum(matrix.numel() for matrix in matrices)
print(f"exact zeros in the trained model: {zeros:,} of {n_weights:,} weights in the blocks ({zeros / n_weights:.3%})")
for name, pattern in one_of_each(0.5).items():
    print(f"{name:15} {sparsity_of(pattern.keep(weight.square())):.3f}")

# %% [markdown]
# Training leaves next to no zeros, and those few by rounding: somebody has to put them there. The patterns of the
# library hit their count exactly, whatever the ties, because they select by rank and never by a threshold.
#
# ## 2. Structured: rows and columns
#
# A column of $W$ (shape: outputs, inputs) belongs to one input. If a column goes, that input need not be computed at
# all, and what stays is a dense matrix with fewer columns, $W_{:,S}\, x_S$: any device runs it without new kernels.

# %% [markdown]
# ### Remove whole inputs
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Keep the columns with the largest Euclidean norm, exactly `n_kept` of them: which of two equal ones stays is up to
# you. Return the smaller matrix, its columns in their old order, and the indices of the columns kept, ascending.


# %% exercise="patterns.columns"
def keep_columns(weight, n_kept):
    """Remove whole inputs.

    weight: (O, I). n_kept: how many columns stay.
    Returns (smaller weight (O, n_kept), indices (n_kept,)).
    """
    ### BEGIN SOLUTION
    columns = weight.norm(dim=0).topk(n_kept).indices.sort().values
    return weight[:, columns], columns
    ### END SOLUTION


# %%
check("patterns.columns", keep_columns)

# %%
smaller, columns = mine("patterns.columns", keep_columns)(weight, weight.shape[1] // 2)
print(f"{tuple(weight.shape)} becomes {tuple(smaller.shape)}; the first inputs kept are {columns[:6].tolist()}")
share = smaller.square().sum() / weight.square().sum()
print(f"the half of the columns with the largest norms holds {share:.0%} of the squares")

# %% [markdown]
# ## 3. Blocks
#
# Between single weights and whole rows lie blocks. A block that is large enough fills a vector unit or a tensor core,
# so a kernel can run dense code on each block it finds, and skip the others.

# %% [markdown]
# ### A block mask
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Divide the matrix into blocks of `rows` × `columns`. Of all blocks, keep the `n_kept` with the largest sum of absolute
# values, exactly so many: which of two equal ones stays is up to you. Both sizes divide the matrix.


# %% exercise="patterns.blocks"
def keep_blocks(weight, rows, columns, n_kept):
    """Which weights stay when whole blocks leave.

    weight: (O, I). Returns (O, I), bool, True = stays.
    """
    ### BEGIN SOLUTION
    # (O, I) -> (O / rows, rows, I / columns, columns): axes 1 and 3 run inside a block
    tiles = weight.reshape(weight.shape[0] // rows, rows, weight.shape[1] // columns, columns)
    total = tiles.abs().sum(dim=(1, 3))
    keep = torch.zeros(total.numel(), dtype=torch.bool)
    keep[total.flatten().topk(n_kept).indices] = True
    return keep.reshape(total.shape).repeat_interleave(rows, 0).repeat_interleave(columns, 1)
    ### END SOLUTION


# %%
check("patterns.blocks", keep_blocks)

# %%
block_mask = mine("patterns.blocks", keep_blocks)
for size in (2, 4, 16, 64):
    keep = block_mask(weight, size, size, weight.numel() // size**2 // 2)
    share = weight[keep].square().sum() / weight.square().sum()
    print(f"half of all blocks of {size:2} × {size:2}: {sparsity_of(keep):.0%} sparse, {share:.0%} of the squares stay")

# %% [markdown]
# ## 4. n of m
#
# The compromise that GPUs support: of every 4 neighbouring inputs 2 stay (Mishra and others, 2021). Every row then has
# the same number of values, and the place of a value in its group fits into two bits.
#
# Why a pattern of its own? Because an unstructured mask of the same sparsity does not fit it. If each weight stayed by
# the toss of a coin, a group of four would keep more than two with probability
# $\left(\binom{4}{3} + \binom{4}{4}\right) / 2^4 = 5/16 \approx 31\,\%$. Does a real matrix behave like that?

# %%
plots.groups(stored_in_each_group(Unstructured(0.5).keep(weight.abs())))

# %% [markdown]
# ### Compress to 2:4
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# Compress a matrix to 2:4. Of every four neighbouring inputs keep the two largest in absolute value. Return the values
# that stay, and for each its place in its group (0 to 3). Within a group the places ascend. Which of two equal sizes
# stays is up to you.


# %% exercise="patterns.nofm"
def compress(weight):
    """Two of every four inputs, as values and places.

    weight: (O, I), I a multiple of 4. Returns (values (O, I / 2), places (O, I / 2)).
    """
    ### BEGIN SOLUTION
    groups = weight.unflatten(1, (-1, 4))  # (O, I / 4, 4)
    places = groups.abs().topk(2, dim=2).indices.sort(dim=2).values
    return groups.gather(2, places).flatten(1), places.flatten(1)
    ### END SOLUTION


# %%
check("patterns.nofm", compress)

# %% [markdown]
# A place needs two bits, so four of them share a byte. The order of the bits is a convention; kernels depend on it.

# %% [markdown]
# ### Four places in a byte
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Pack the places of each row, four to a byte, the first in the lowest two bits. A row whose length is no multiple of
# four ends in a byte whose upper bits are zero; the next row begins with a new byte.


# %% exercise="patterns.pack"
def pack(places):
    """Two-bit numbers, four to a byte.

    places: (O, K), integers from 0 to 3. Returns (O, ceil(K / 4)), uint8.
    """
    ### BEGIN SOLUTION
    missing = -places.shape[1] % 4
    padded = torch.nn.functional.pad(places.long(), (0, missing)).unflatten(1, (-1, 4))
    return (padded << torch.tensor([0, 2, 4, 6])).sum(dim=2).to(torch.uint8)
    ### END SOLUTION


# %%
check("patterns.pack", pack)

# %%
values, places = mine("patterns.nofm", compress)(weight)
bits = mine("patterns.pack", pack)(places)
packed = NofMPacked(values, bits, 2, 4, tuple(weight.shape))
print(f"values {tuple(values.shape)} {values.dtype}, places {tuple(bits.shape)} {bits.dtype}")
print(f"{packed.n_bytes:,} bytes in all, dense {Dense.encode(weight).n_bytes:,}")
decoded = packed.decode()
share = decoded.square().sum() / weight.square().sum()
print(f"read back: {sparsity_of(decoded):.0%} zeros, {share:.0%} of the squares stay")

# %% [markdown]
# ## 5. Explore
#
# Choose a matrix, a pattern and a sparsity. On the left, what stays of the upper left corner; on the right, the bytes
# of the whole matrix in each format. (Executed without a browser, the first choice is all you see.)

# %%
controls = explore(model)

# %% [markdown]
# ## 6. What a pattern costs the model
#
# The freer the pattern, the more of the weights' squares it can keep. The grey line is what a random choice keeps.

# %%
plots.square_kept_curves(weight)

# %% [markdown]
# Squares are not quality. So we prune a quarter of every matrix in every block of the model, by magnitude, with each
# pattern, and let it read articles held out from everything that this course fits. No repair, no calibration: the
# bluntest method, the same for all.

# %%
held_out = corpora.windows("wikipedia", 5, 128, tokenizer, split="evaluation", seed=0)
found = perplexity_of_patterns(model, held_out, one_of_each(0.25))
vocabulary = weight_of(head(model)).shape[0]
plots.perplexities({0.25: found}, vocabulary)

# %% [markdown]
# That was a little text. `course reproduce patterns` read more, and removed half of the weights too. (The weights of
# this model come from a file of 4 bits each.) Its result:

# %%
plots.perplexities(measured(), vocabulary)

# %% [markdown]
# A perplexity above the size of the vocabulary is worse than guessing with no model at all, and how much worse says
# nothing more. Regular patterns remove what the model needs, and without repair it breaks. That is why methods for
# structured pruning choose more carefully and train afterwards (lesson 05). At half the weights even single weights,
# chosen by magnitude, go wrong: lessons 03 and 04 find better scores.

# %%
for name, result in found.items():
    print(f"{name:15} perplexity × {result.value / found['dense'].value:,.2f}")
print(f"on these {len(held_out)} windows, each compared with itself:")
print(printed.order_verdict(found))

# %% [markdown]
# ## 7. Bytes
#
# For $Z$ stored values of $v$ bytes in a matrix of $O \times I$:
#
# | format | holds | bytes |
# |---|---|---|
# | dense | every entry | $OIv$ |
# | CSR | values, their columns (4 bytes each), row starts | $Z(v + 4) + 4(O + 1)$ |
# | bitmap | values, one bit an entry, row starts | $Zv + O\lceil I/8\rceil + 4(O + 1)$ |
# | 2:4 | $I/2$ values a row, 2 bits each for their place | $O\,(vI/2 + \lceil I/8\rceil)$ |
# | blocks | whole tiles, one column number a tile | $Zv + 4Z/rc + 4(O/r + 1)$ |

# %% [markdown]
# ### Bytes of four formats
# **Exercise** · difficulty 2 of 5 · 10 minutes · 3 points
#
# Compute the bytes of the first four. Column numbers and row starts are 4-byte integers; row starts hold one number for
# each row and one for the end. Each row of the bitmap, and of the places of 2:4, begins on a byte of its own. 2:4 does
# not depend on the number stored: it always holds half.


# %% exercise="patterns.bytes"
def format_bytes(rows, columns, n_stored, value_bytes):
    """Bytes of a matrix in four formats.

    columns is a multiple of 4. Returns {"dense": ..., "CSR": ..., "bitmap": ..., "2:4": ...}.
    """
    ### BEGIN SOLUTION
    row_starts = 4 * (rows + 1)
    kept = columns // 2
    return {
        "dense": rows * columns * value_bytes,
        "CSR": n_stored * (value_bytes + 4) + row_starts,
        "bitmap": n_stored * value_bytes + rows * -(-columns // 8) + row_starts,
        "2:4": rows * (kept * value_bytes + -(-kept // 4)),
    }
    ### END SOLUTION


# %%
check("patterns.bytes", format_bytes)

# %% [markdown]
# To read a matrix back, or to multiply with it, a kernel has to undo the encoding. For the bitmap:

# %% [markdown]
# ### Read a bitmap
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Decode. Bit $i \bmod 8$ of `bitmap[o, i // 8]`, counted from the lowest, says whether entry $(o, i)$ is stored. The
# values follow each other row by row. Each row of the map begins on a byte of its own.


# %% exercise="patterns.bitmap"
def decode_bitmap(values, bitmap, columns):
    """The dense matrix of a bitmap and its values.

    values: (Z,). bitmap: (O, ceil(I / 8)), uint8. columns: I. Returns (O, I).
    """
    ### BEGIN SOLUTION
    bits = (bitmap[:, :, None] >> torch.arange(8)) & 1  # (O, P, 8), the lowest bit first
    keep = bits.flatten(1)[:, :columns].bool()
    dense = torch.zeros(keep.shape, dtype=values.dtype)
    dense[keep] = values
    return dense
    ### END SOLUTION


# %%
check("patterns.bitmap", decode_bitmap)

# %%
pruned = weight * Unstructured(0.5).keep(weight.abs())
stored = Bitmap.encode(pruned)
decoded = mine("patterns.bitmap", decode_bitmap)(stored.values, stored.bitmap, weight.shape[1])
print(f"{stored.n_bytes:,} bytes read back; every entry as it was: {torch.equal(decoded, pruned)}")

# %% [markdown]
# A format starts to pay at the density where it takes as many bytes as dense. Row starts hardly count: leave them out.

# %% [markdown]
# ### Where a format starts to pay
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# At which density does CSR take as many bytes as dense, and at which a bitmap? Solve on paper, return the two formulas.


# %% exercise="patterns.break_even"
def break_even(value_bytes, index_bytes):
    """Below these densities CSR and a bitmap are smaller than dense.

    value_bytes: bytes of one value, 0.5 for 4 bits. index_bytes: bytes of one column number.
    Returns (CSR, bitmap).
    """
    ### BEGIN SOLUTION
    # CSR: d (v + i) = v. Bitmap: d v + 1/8 = v.
    return value_bytes / (value_bytes + index_bytes), 1 - 1 / (8 * value_bytes)
    ### END SOLUTION


# %%
check("patterns.break_even", break_even)

# %% [markdown]
# And CSR against a bitmap: 4 bytes for each value stored against one bit for each entry meet at a density of 1/32,
# whatever the width of a value. The narrower the values, the more the indices weigh. Lines are the formulas; dots are a
# real matrix, pruned, encoded, and its tensors counted.

# %%
plots.bytes_per_weight(weight)

# %% [markdown]
# At half the weights in float16, CSR is *larger* than dense. A bitmap or 2:4 is 1.8 times smaller, not 2: the map costs
# one bit a weight. CSR wins only where a few per cent are left, as in scientific computing, not in language models.

# %%
half = weight.half()
tile = 16
encoded = {
    "dense": Dense.encode(half),
    "CSR": CSR.encode(half * Unstructured(0.5).keep(half.abs())),
    "bitmap": Bitmap.encode(half * Unstructured(0.5).keep(half.abs())),
    "2:4": NofMPacked.encode(half * NofM(2, 4).keep(half.abs())),
    "blocks": BlockSparse.encode(half * Block(tile, tile, 0.5).keep(half.abs()), tile, tile),
    "columns": Dense.encode(half[:, Columns(0.5).keep(half.abs())[0]]),
}
for name, format in encoded.items():
    print(f"{name:8} {format.n_bytes:9,} bytes, dense / this = {encoded['dense'].n_bytes / format.n_bytes:.2f}")

# %% [markdown]
# ## 8. Speed
#
# A layer has to do FLOPs and to move bytes. The two overlap, and the slower one decides: the *roofline* (Williams,
# Waterman and Patterson, 2009). For $N$ tokens and a dense layer,
#
# $$ t \;\ge\; \max\left(\frac{2\,O\,I\,N}{\text{FLOP/s}},\; \frac{(OI + NO + NI)\,v}{\text{bytes/s}}\right) $$
#
# Lesson 00 has it as an exercise; here it says what zeros can save.

# %%
machine = measure_device()
print(f"{machine.name}: {machine.flops_per_second / 1e9:.0f} GFLOP/s, {machine.bytes_per_second / 1e9:.1f} GB/s")
print(f"below {machine.ridge:.1f} FLOPs a byte memory decides, above it arithmetic")
for n_tokens in (1, 8, 64):
    work = linear_work(*weight.shape, n_tokens, value_bytes=4)
    print(f"  {n_tokens:3} tokens: {work.intensity:5.2f} FLOPs a byte, bound by {work.bound(machine)}")

# %% [markdown]
# With one token at a time, as in generation, memory decides: fewer bytes should mean less time, in the ratio of the
# bytes. With many tokens arithmetic decides, and a format helps only if it skips zeros faster than the dense code runs
# over them. Here is what happens on this machine, with a matrix larger than its cache: rows of the model's head, pruned
# to several densities. CSR and blocks run in MKL where torch has it, columns as a smaller dense product.

# %%
large = weight_of(head(model))[:24576].clone()
faster = layer_speed(large, densities=[0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7], tokens=(1, 64))
plots.speed(faster)

# %%
for n_tokens, formats in faster.items():
    csr, columns = formats["CSR"][0.5], formats["columns"][0.5]
    print(f"half of the weights, {n_tokens:2} tokens: CSR × {csr:.2f}, columns × {columns:.2f} against dense")
again = {n_tokens: speed_by_round(large, 0.5, n_tokens) for n_tokens in faster}  # all take turns, round by round
claims = {"CSR": "scattered zeros make a layer a tenth faster", "columns": "removed columns do, in an ordinary product"}
for name, claim in claims.items():
    print(printed.speed_verdict(claim, {n_tokens: logs[name] for n_tokens, logs in again.items()}))

# %% [markdown]
# Half of the columns are half of the bytes and half of the products, so the roofline allows a factor of two and no
# more. Where the factor is larger, the dense product ran below its own roof, and the zeros have no part in that.
#
# The formats without a place in torch are those that half of the weights would need: bitmap and 2:4. Their arithmetic
# is short, but plain torch must first rebuild the dense matrix. `course bench` timed them on a quiet machine:

# %%
bench_on_a_cpu()

# %% [markdown]
# **What a GPU needs.** Tensor cores multiply dense tiles, and 2:4 tiles at twice the rate. Scattered zeros save them
# no arithmetic. A kernel can still read fewer bytes and expand on the chip, which helps where memory decides. The
# figure is a calculation from a data sheet, an upper limit and no measurement; `course bench` measures, given a GPU.

# %%
plots.limits(11008, 4096, H100)

# %% [markdown]
# Columns halve bytes and arithmetic, 2:4 nearly so, a bitmap saves bytes alone, and CSR at this density is slower even
# on paper. Real kernels stay below all of these.
#
# ## 9. Static and dynamic
#
# So far the zeros were fixed: *static* sparsity, the same for every input. Zeros may also be chosen for each input:
# *dynamic* sparsity. If a neuron is nearly silent for this token, its column of the next matrix need not be read for
# this token. Mixtures of experts, eviction from the key-value cache and contextual sparsity (lessons 06, 07 and 09) are
# all of this kind.

# %% [markdown]
# ### A pattern that depends on the input
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# For each token keep the `k` inputs that are largest in absolute value, exactly `k` where some tie; set the others to
# zero, and apply the layer.


# %% exercise="patterns.dynamic"
def dynamic_linear(weight, inputs, k):
    """A linear layer that reads only k inputs of each token.

    weight: (O, I). inputs: (N, I), one row per token. Returns (N, O).
    """
    ### BEGIN SOLUTION
    kept = inputs.abs().topk(k, dim=1).indices
    keep = torch.zeros_like(inputs).scatter_(1, kept, 1.0)
    return linear(inputs * keep, weight)
    ### END SOLUTION


# %%
check("patterns.dynamic", dynamic_linear)

# %% [markdown]
# On the real model: the neurons of one MLP, for every token of some text. Keep a fraction of them, chosen for each
# token, or chosen once for all tokens by their average size, and look at the output of the layer that reads them.

# %%
layer = linears(blocks(model)[15])["mlp.down_proj"]
neurons = inputs_of(model, layer, held_out)
errors = dynamic_and_static(weight_of(layer), neurons, shares=(0.05, 0.1, 0.25, 0.5, 0.75))
print(f"neurons that are exactly zero: {sparsity_of(neurons):.1%}")
plots.activity(keep_most_active(neurons, neurons.shape[1] // 10), errors)

# %%
dynamic, dense_output = mine("patterns.dynamic", dynamic_linear), linear(neurons, weight_of(layer))
for k in (77, 154, 384):
    error = (dynamic(weight_of(layer), neurons, k) - dense_output).square().sum(1) / dense_output.square().sum(1)
    print(f"{k:4} of {neurons.shape[1]} neurons for each token: squared error {error.mean():.1%} of the output's")

# %% [markdown]
# This model's activation function (SiLU) makes no exact zeros, unlike ReLU; yet few neurons matter for one token, and
# others for the next. Choosing by token keeps more for the same count. Its price: the choice must be known *before* the
# work is done, it must be made again for every token, and a batch of tokens together needs nearly all columns.
#
# ## 10. Cost, and when it does not pay
#
# The arithmetic of memory, with units that matter (GB is $10^9$ bytes, GiB is $2^{30}$):

# %%
shape = Transformer.of(model)
dense_bytes = shape.matrix_weights * 4
step = shape.decode_step(context=512, value_bytes=4)
print(f"one token of this model in float32: {step.flops / 1e6:.0f} MFLOP, {step.bytes / 1e6:.0f} MB, ", end="")
print(f"at least {1e3 * step.seconds(machine):.0f} ms here, bound by {step.bound(machine)}")
bitmap_share = encoded["bitmap"].n_bytes / encoded["dense"].n_bytes
blocks_part = shape.n_blocks * shape.block_weights / shape.matrix_weights
print(f"blocks half empty as bitmaps: weights take {1 - blocks_part * (1 - bitmap_share):.0%} of the bytes (float16)")

# %% [markdown]
# Sparsity does not pay
#
# - in CSR above a density of a third (float16): it is larger than dense;
# - for unstructured zeros on tensor cores when many tokens are processed at once;
# - when a smaller dense model of the same cost is as good: always compare with that;
# - when the rest dominates: at long contexts the key-value cache, on small models the head.
#
# ## To take home
#
# 1. The more regular the zeros, the more hardware can make of them, and the more the model loses.
# 2. Indices are bytes too. At half the weights a bitmap and 2:4 make a float16 matrix 1.8 times smaller, and CSR makes
#    it larger.
# 3. With one token bytes decide, with many tokens skipped arithmetic does.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>Why is a float16 matrix larger in CSR than dense when half of its weights are zero?</summary>
#
# Each stored value takes 2 bytes and its column number 4. For half of the entries that is $6 / 2 = 3$ bytes an entry;
# dense it is 2.
#
# </details>
#
# <details><summary>2:4 makes a float16 matrix 1.78 times smaller. And one of 4 bits a weight?</summary>
#
# The places cost one bit an entry, whatever the values are: $4 / (2 + 1) = 1.33$ times. The narrower the values, the
# more their indices weigh.
#
# </details>
#
# <details><summary>Half of the columns leave, or half of the single weights. Why does the first cost the model
# more?</summary>
#
# A column is kept or dropped as a whole, so that large weights leave with small ones. Of all choices of half the
# weights, only few consist of columns, and the best of them is worse than the best of all.
#
# </details>
#
# ## Reading
#
# - Hoefler, Alistarh, Ben-Nun, Dryden, Peste (2021), *Sparsity in Deep Learning*, JMLR 22. https://arxiv.org/abs/2102.00554
# - Mishra and others (2021), *Accelerating Sparse Deep Neural Networks*: 2:4. https://arxiv.org/abs/2104.08378
# - Gale, Zaharia, Young, Elsen (2020), *Sparse GPU Kernels for Deep Learning*. https://arxiv.org/abs/2006.10901
# - Williams, Waterman, Patterson (2009), *Roofline*, CACM 52 (4). https://doi.org/10.1145/1498765.1498785
