# %% [markdown]
# # 01 · Sparsity patterns
#
# A matrix with zeros can be stored in fewer bytes and multiplied in fewer steps. Whether it *is* smaller and faster
# depends on where the zeros are. This lesson looks at the arrangements of zeros that matter for language models: what
# each of them costs the model, how many bytes it takes, and how fast it runs on this machine.
#
# **Afterwards you can** choose an arrangement of zeros for a purpose and say what it costs: what the model loses, how
# many bytes a format takes and from which density on it pays, and what a CPU and a GPU make of it. **You need** lesson
# 00, for bytes and the roofline, and tensors in PyTorch. **Time**: two hours, more than half of them for the eight
# exercises, and as long as you like for the open task at the end.

# %%
import torch
from torch.nn.functional import linear

from course_lib.data import corpora
from course_lib.lessons.common import gpu
from course_lib.lessons.common.table import Table, number, percent
from course_lib.lessons.common.tables import load_measured, say
from course_lib.lessons.patterns.experiment import measured
from course_lib.measure.machine import measure_device
from course_lib.measure.perplexity import perplexity
from course_lib.models import blocks, head, linears, load_model, weight_of
from course_lib.lessons.patterns import budget, drawings
from course_lib.lessons.patterns import figures as plots
from course_lib.lessons.patterns import tables as printed
from course_lib.lessons.patterns.speed import bench_on_a_cpu, gpu_verdict
from course_lib.lessons.patterns.explorer import explore
from course_lib.measure.roofline import H100, Transformer, linear_work
from course_lib.lessons.patterns.measure import (
    dynamic_and_static,
    inputs_of,
    keep_most_active,
    one_of_each,
    pruned_by_magnitude,
    stored_in_each_group,
)
from course_lib.sparsity import bitpacking
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
# The figure shows the same part of one weight matrix six times. Each time half of all weights of the matrix are set to
# zero (white): those with the smallest squares, as far as the pattern allows.

# %%
plots.masks(weight, one_of_each(0.5))

# %% [markdown]
# - **Unstructured**: any weight may be removed. This choice keeps the largest weights whatever their place, and is
#   the hardest for hardware to use.
# - **n:m** (semi-structured): of every m neighbouring inputs, n weights are kept. This course always counts those that
#   are *kept*. For 2:4 that makes no difference; 1:4 and 3:4 mean something else where the removed ones are counted.
# - **Blocks**: whole tiles are removed.
# - **Columns, rows** (structured): whole inputs or outputs are removed. What remains is an ordinary smaller matrix.
#
# The *sparsity* of a matrix is the fraction of its entries that are exactly zero; the rest is its *density*. A trained
# model is hardly sparse at all, because training has no reason to end at exactly zero:

# %%
matrices = [weight_of(layer) for block in blocks(model) for layer in linears(block).values()]
zeros = sum(int((matrix == 0).sum()) for matrix in matrices)
n_weights = sum(matrix.numel() for matrix in matrices)
share = 100 * zeros / n_weights
print(f"exact zeros in the trained model: {zeros:,} of {n_weights:,} weights in the blocks ({share:.3f} %)")
Table(
    [
        {"pattern": name, "sparsity": sparsity_of(pattern.keep(weight.square()))}
        for name, pattern in one_of_each(0.5).items()
    ],
    caption="The sparsity that each pattern of the library has when half of the weights are asked for",
    formats={"sparsity": number(3)},
)

# %% [markdown]
# The few zeros of the model come from the file, which rounds its weights to 4 bits. The patterns of the library reach
# their sparsity exactly, even where many weights are equal, because they select by rank and never by a threshold.
#
# From the first pattern to the last the zeros get more regular. A regular pattern is easier for hardware, and it has
# fewer masks to choose from. How many fewer can be counted: of $n$ units, half are removed in $\binom{n}{n/2}$ ways, so
# that a mask takes at least $\log_2 \binom{n}{n/2}$ bits to write down. For single weights that is nearly one bit a
# weight. 2:4 has $\binom{4}{2} = 6$ choices in a group of four weights, $\tfrac14 \log_2 6 = 0.65$ bits a weight. For
# 16 × 16 blocks it is one bit for 256 weights.

# %%
plots.freedom(weight, one_of_each(0.5))

# %% [markdown]
# ## 2. What a pattern costs the model
#
# The freer a pattern is, the more of the weights' squares it can keep, at every sparsity. The straight line is what a
# choice at random would keep.

# %%
plots.square_kept_curves(weight)

# %% [markdown]
# The sum of the squares says how much of the matrix is kept, not how well the model predicts. So we prune a quarter of
# every matrix in every block, by magnitude, with each pattern, and let the model read articles that the course keeps
# apart for evaluation. (Whether they were among the model's training texts is not known.) No weight is updated
# afterwards and no text is used for calibration. It is the crudest method there is, and it treats all patterns alike.

# %%
held_out = corpora.windows("wikipedia", 5, 128, tokenizer, split="evaluation", seed=0)
found = {"dense": perplexity(model, held_out, progress=False)}
for name, pattern in one_of_each(0.25).items():
    with pruned_by_magnitude(model, pattern):  # afterwards the model has its weights back
        found[name] = perplexity(model, held_out, progress=False)
vocabulary = weight_of(head(model)).shape[0]
plots.perplexities({0.25: found}, vocabulary)

# %%
times = [{"pattern": name, "perplexity / dense": each.value / found["dense"].value} for name, each in found.items()]
display(
    Table(
        times,
        caption="Perplexity after pruning, as a multiple of the dense model's",
        formats={"perplexity / dense": number(2)},
    )
)
print(f"on these {len(held_out)} windows, each compared with itself:")
print(printed.order_verdict(found))

# %% [markdown]
# That was a small sample of text. `course reproduce patterns` used a larger one, and pruned half of the weights as well
# as a quarter of them. Here and in all figures the model is SmolLM2-135M-Instruct, whose weights come from a file of 4
# bits each.

# %%
plots.perplexities(measured(), vocabulary)

# %% [markdown]
# A model that gives every token of its vocabulary the same probability has a perplexity as large as the vocabulary. In
# the grey area a model does worse than that; it is broken, and how large its perplexity is has no meaning any more. The
# regular patterns end there because they have to remove weights that the model needs. This is why methods for
# structured pruning choose more carefully and train afterwards (lesson 05). With half of the weights removed, magnitude
# is a poor choice even for single weights: lessons 03 and 04 find better scores.
#
# One thing does not fit the curves above. Rows keep more squares of our matrix than 16 × 16 blocks do, and yet the
# model without rows is far worse. The squares say how far the matrix moves, not how far its output moves. Where a row
# is removed, an output is zero for every token, and everything that reads this output goes without; where tiles are
# removed, most outputs only lose some of their terms. That is a likely reason, and this lesson does not test it. What a
# weight does to the output is the subject of lessons 02 to 04.
#
# ## 3. Structured: rows and columns
#
# If regular zeros cost so much, why use them? Because nothing else is needed to profit from them. A column of $W$
# (shape: outputs, inputs) belongs to one input. Without the column this input need not be computed at all, and what
# remains is a dense matrix with fewer columns, $W_{:,S}\, x_S$. Every device multiplies it with the kernels that it
# has.

# %% [markdown]
# ### Remove whole inputs
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Keep exactly `n_kept` columns, those with the largest Euclidean norm. Which of two equal ones you keep is up to you.
# Return the smaller matrix, with its columns in their old order, and the indices of these columns, ascending.


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
print(f"the half of the columns with the largest norms holds {100 * share:.0f} % of the squares")

# %% [markdown]
# ## 4. Blocks
#
# Between single weights and whole rows lie blocks. A block that is large enough fills a vector unit or a tensor core,
# so that a kernel can run dense code on each block it finds and skip the others.

# %% [markdown]
# ### A block mask
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Divide the matrix into blocks of `rows` × `columns`; both sizes divide it. Keep exactly `n_kept` of all blocks, those
# with the largest sum of absolute values. Which of two equal ones you keep is up to you.


# %% exercise="patterns.blocks"
def keep_blocks(weight, rows, columns, n_kept):
    """Which weights stay when whole blocks are removed.

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
by_size = []
for size in (2, 4, 16, 64):
    keep = block_mask(weight, size, size, weight.numel() // size**2 // 2)
    kept_squares = (weight[keep].square().sum() / weight.square().sum()).item()
    by_size.append({"weight tile": f"{size} × {size}", "sparsity": sparsity_of(keep), "squares kept": kept_squares})
Table(
    by_size,
    caption="Half of all tiles of a matrix are kept",
    formats={"sparsity": percent, "squares kept": percent},
)

# %% [markdown]
# The larger the blocks are, the more alike are their sums, and the less is gained by choosing among them.
#
# ## 5. n of m
#
# GPUs support a compromise: of every 4 neighbouring inputs, 2 are kept (Mishra and others, 2021). Every row then has
# the same number of values, and the place of a value in its group fits into two bits.
#
# Why is a pattern of its own needed for that? Because an unstructured mask of the same sparsity does not fit it. If
# each weight were kept by the toss of a coin, a group of four would keep more than two with probability
# $\left(\binom{4}{3} + \binom{4}{4}\right) / 2^4 = 5/16 \approx 31\,\%$. Does a real matrix behave like that?

# %%
plots.groups(stored_in_each_group(Unstructured(0.5).keep(weight.abs())))

# %% [markdown]
# ### Compress to 2:4
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# Compress a matrix to 2:4: of every four neighbouring inputs keep the two weights that are largest in absolute value.
# Return the weights kept and, for each, its place in its group, from 0 to 3. Within a group the places ascend. Which of
# two equally large weights you keep is up to you.


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
# A place needs two bits, so four of them share a byte: place $j$ of a row is shifted left by $2\,(j \bmod 4)$ bits.
# This order is a convention on which the kernels rely.

# %%
values, places = mine("patterns.nofm", compress)(weight)
packed = NofMPacked(values, bitpacking.pack(places.to(torch.uint8), bits=2), 2, 4, tuple(weight.shape))
print(f"the first places {places[0, :4].tolist()} make the byte {int(packed.positions[0, 0]):#010b}")
print(f"{packed.n_bytes:,} bytes in all, dense {Dense.encode(weight).n_bytes:,}")
decoded = packed.decode()
share = decoded.square().sum() / weight.square().sum()
print(f"read back: {100 * sparsity_of(decoded):.0f} % zeros, {100 * share:.0f} % of the squares kept")

# %% [markdown]
# ## 6. Bytes
#
# A format must say which entries it stores. This index costs bytes as well, and each format pays for it in its own way.

# %%
drawings.formats()

# %% [markdown]
# - **CSR** (compressed sparse rows) stores the values row by row, for each value the number of its column, and for each
#   row where it starts in the list of values. The starts hold one number more, the end of the last row.
# - A **bitmap** stores the same values and starts, and one bit for every entry of the matrix that says whether it is
#   stored. Each row of the map begins on a byte of its own, which is why a row of 10 entries takes two bytes.
# - **2:4** stores two values of every four and a place of two bits for each. It needs no starts, because every row has
#   the same length. Its places begin on a new byte in each row, too. Where a group has fewer than two weights, zeros
#   fill it up, so that it always holds half of the entries.

# %% [markdown]
# ### Bytes of four formats
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# Work out the bytes of a dense matrix, of CSR, of a bitmap and of 2:4. Column numbers and row starts are integers of 4
# bytes. Check your formulas with the small matrix of the figure first: it has 3 rows, 8 columns and 7 values.


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
# Which format is the best depends on the mask, and not every format can hold every mask. There is a fifth one: store
# the columns in which anything is kept as a dense matrix, and the number of each of them in 4 bytes.

# %% [markdown]
# ### Choose a format
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Choose the format that holds the weights of a mask in the fewest bytes, without losing any. `sizes` has what the last
# exercise gives for as many weights as the mask keeps. 2:4 is always among them, whether or not this mask fits it; when
# does it fit? Add the fifth format, `"columns"`, and return the name of the smallest and its bytes.


# %% exercise="patterns.choose"
def choose_format(keep, sizes, value_bytes):
    """The format of fewest bytes that can hold a mask.

    keep: (O, I), bool. sizes: {"dense": ..., "CSR": ..., "bitmap": ..., "2:4": ...}, bytes.
    Returns (name, bytes).
    """
    ### BEGIN SOLUTION
    able = dict(sizes)
    if keep.shape[1] % 4 != 0 or keep.unflatten(1, (-1, 4)).sum(dim=2).max() > 2:
        del able["2:4"]  # one group of three is enough to lose a weight
    able["columns"] = int(keep.any(dim=0).sum()) * (keep.shape[0] * value_bytes + 4)
    name = min(able, key=able.get)
    return name, able[name]
    ### END SOLUTION


# %%
check("patterns.choose", choose_format)

# %%
choose, count = mine("patterns.choose", choose_format), mine("patterns.bytes", format_bytes)
cheapest_formats = []
for density in (0.5, 0.25, 0.02):
    masks = one_of_each(1 - density) if density > 0.1 else {"unstructured": Unstructured(1 - density)}
    for name, pattern in masks.items():
        keep = pattern.keep(weight.abs())
        form, n_bytes = choose(keep, count(*weight.shape, int(keep.sum()), 2), 2)
        row = {"pattern": name, "cheapest format": form, "weights kept": density}
        cheapest_formats.append(row | {"bytes / dense": n_bytes / (2 * weight.numel())})
Table(
    cheapest_formats,
    caption="The format with the fewest bytes, by pattern and density",
    formats={"weights kept": percent, "bytes / dense": number(1, "%", 100)},
)

# %% [markdown]
# With half or a quarter of the weights the answer is a bitmap, unless the zeros are 2:4 or whole columns. CSR is chosen
# only where two per cent of the weights are left. For 1:4, rows and blocks none of the five formats is made. (The
# library stores rows as a smaller matrix, too, blocks as tiles with one column number each, and 1:4 like 2:4.)
#
# To multiply with an encoded matrix, a kernel has to undo the encoding. For the bitmap:

# %% [markdown]
# ### Read a bitmap
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Decode a bitmap. Bit $i \bmod 8$ of `bitmap[o, i // 8]`, counted from the lowest, says whether entry $(o, i)$ is
# stored. The stored values follow each other row by row. Each row of the map begins on a byte of its own.


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
# A format starts to pay at the density at which it takes as many bytes as the dense matrix. Row starts hardly count in
# matrices of this size, so leave them out.

# %% [markdown]
# ### Where a format starts to pay
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# At which density does CSR take as many bytes as the dense matrix, and at which density does a bitmap? Solve both on
# paper, for any width of values and of indices, and return the two formulas.


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
# CSR and a bitmap compare in the same way: 4 bytes for each stored value equal one bit for each entry at a density of
# 1/32, whatever the width of a value. The narrower the values are, the larger is the share of the bytes that goes into
# the index. In the figure, lines are the formulas; dots are a real matrix, pruned and encoded, with the bytes of its
# tensors counted.

# %%
plots.bytes_per_weight(weight)

# %% [markdown]
# With half of the weights in float16, CSR is *larger* than dense. A bitmap or 2:4 is 1.8 times smaller and not 2 times,
# because the index costs one bit a weight. CSR is the smallest only where a few per cent of the weights are left, as in
# scientific computing, and not in language models.

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
Table(
    [
        {"format": name, "bytes": form.n_bytes, "dense bytes / its bytes": encoded["dense"].n_bytes / form.n_bytes}
        for name, form in encoded.items()
    ],
    caption="The same matrix in each format, half of its weights pruned",
    formats={"bytes": number(), "dense bytes / its bytes": number(2)},
)

# %% [markdown]
# ## 7. Explore
#
# Choose a matrix, a pattern and a sparsity. On the left you see what is kept of the upper left corner; on the right the
# bytes of the whole matrix in each format. (When the notebook is executed without a browser, there is only the first
# choice.)

# %%
controls = explore(model)

# %% [markdown]
# ## 8. Speed
#
# A layer has to do FLOPs and to move bytes. The two overlap, and the slower one decides: the *roofline* (Williams,
# Waterman and Patterson, 2009). For $N$ tokens and a dense layer with values of $v$ bytes,
#
# $$ t \;\ge\; \max\left(\frac{2\,O\,I\,N}{\text{FLOP/s}},\; \frac{(OI + NO + NI)\,v}{\text{bytes/s}}\right) $$
#
# In lesson 00 it was an exercise; here it tells how much time zeros can save.

# %%
machine = measure_device()
print(f"{machine.name}: {machine.flops_per_second / 1e9:.0f} GFLOP/s, {machine.bytes_per_second / 1e9:.1f} GB/s")
print(f"below {machine.ridge:.1f} FLOPs a byte memory decides, above it arithmetic")
works = {n_tokens: linear_work(*weight.shape, n_tokens, value_bytes=4) for n_tokens in (1, 8, 64)}
Table(
    [{"batch size": n, "FLOP/byte": work.intensity, "bound by": work.bound(machine)} for n, work in works.items()],
    caption="What limits a dense layer",
    formats={"FLOP/byte": number(2)},
)

# %% [markdown]
# With one token at a time, as in generation, memory decides, and fewer bytes should mean less time, in the ratio of the
# bytes. With many tokens arithmetic decides, and a format helps only if it skips zeros faster than the dense code runs
# over them. The next figure shows what happens on this machine, with a matrix that is larger than its cache: rows of
# the model's head, pruned to several densities. CSR and blocks run in MKL where torch has it; columns run as a smaller
# dense product.

# %%
large = weight_of(head(model))[:24576].clone()
faster = layer_speed(large, densities=[0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7], tokens=(1, 64))
plots.speed(faster)

# %%
speedups = [
    {"batch size": n_tokens, "CSR": formats["CSR"][0.5], "columns": formats["columns"][0.5]}
    for n_tokens, formats in faster.items()
]
display(
    Table(
        speedups,
        caption="Speedup over the dense layer with half of the weights",
        formats={"CSR": number(2), "columns": number(2)},
    )
)
again = {n_tokens: speed_by_round(large, 0.5, n_tokens) for n_tokens in faster}  # all take turns, round by round
claims = {
    "CSR": "with half of the weights, CSR makes a layer a tenth faster",
    "columns": "with half of the columns, a smaller dense product does",
}
for name, claim in claims.items():
    print(printed.speed_verdict(claim, {n_tokens: logs[name] for n_tokens, logs in again.items()}))

# %% [markdown]
# Half of the columns take half of the bytes and half of the products, so the roofline allows a factor of two and no
# more. In CSR half of the weights take as many bytes as all of them do densely in float32, because a column index
# stands beside every value. There the roofline allows no gain at all. Where a factor is larger than that, the dense
# product ran below its own roof, and the zeros have no part in it. If the machine was busy meanwhile, the error is
# large.
#
# For half of the weights the two good formats are bitmap and 2:4, and torch has no kernel for either on a CPU. In plain
# torch they have to be decoded first, and that costs far more than it saves. `course bench` timed it on a quiet
# machine:

# %%
bench_on_a_cpu()

# %% [markdown]
# This is a statement about kernels, not about CPUs. An engine written for unstructured zeros reached 1.82 times the
# dense speed at 50 % on a CPU (Frantar and Alistarh, 2023, table 7: OPT-2.7B, 400 tokens, DeepSparse).
#
# **What a GPU needs.** Tensor cores multiply dense tiles, and 2:4 tiles at twice the rate. Scattered zeros save them no
# arithmetic. A kernel can still read fewer bytes and expand them on the chip, which helps where memory decides. The
# figure is a calculation from a data sheet, an upper limit and no measurement.

# %%
plots.limits(11008, 4096, H100)

# %% [markdown]
# Columns halve bytes and arithmetic, 2:4 nearly so. A bitmap saves bytes alone, and CSR is slower even on paper at this
# density. Real kernels stay below these limits: with 2048 tokens, 2:4 made the layers of OPT-175B 1.54 to 1.79 times
# faster on an A100 (the same paper, table 8). And this is what was measured, on another card. The bound beside each
# time is the roofline's.

# %%
print(gpu.provenance())
display(gpu.table("nm_matmul", contests=("2:4, tokens: 1", "2:4, tokens: 4096")))
display(gpu.table("bitmap_matvec", contests=("density 0.5", "density 0.1")))
for side in ("torch semi-structured", "N:M kernel"):
    say(gpu.everywhere("nm_matmul", side))
say(gpu.everywhere("bitmap_matvec", "bitmap kernel"))
say(gpu_verdict())

# %% [markdown]
# A saved byte is time only if a kernel takes it. Torch's 2:4 product is made for many tokens: with one, where bytes
# decide, it is slower than the dense product. At 4096 arithmetic decides and its bound is half of the dense one; the
# lines say where it won. Half of the weights in CSR are slower than all of them, as their bytes foretell. Beside a
# bitmap they take little more than half of the bytes, but the kernel comes less near to that bound than the dense
# product to its own, because bits have to be counted before a value can be put in its place.
#
# ## 9. Static and dynamic
#
# So far the zeros were the same for every input: *static* sparsity. They may also be chosen for each input: *dynamic*
# sparsity. If a neuron is nearly zero for this token, its column of the next matrix need not be read for this token.
# Mixtures of experts, eviction from the key-value cache and contextual sparsity (lessons 06, 07 and 09) are of this
# kind.

# %% [markdown]
# ### A pattern that depends on the input
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# For each token keep the `k` inputs that are largest in absolute value, and exactly `k` where some are equal. Set the
# others to zero and apply the layer.


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
# We try it on the neurons of one MLP, for every token of some text. A fraction of the neurons is kept, chosen for each
# token, or chosen once for all tokens by their average size. The error is that of the layer that reads them.

# %%
layer = linears(blocks(model)[15])["mlp.down_proj"]
neurons = inputs_of(model, layer, held_out)
errors = dynamic_and_static(weight_of(layer), neurons, shares=(0.05, 0.1, 0.25, 0.5, 0.75))
print(f"neurons that are exactly zero: {100 * sparsity_of(neurons):.1f} %")
plots.activity(keep_most_active(neurons, neurons.shape[1] // 10), errors)

# %%
dynamic, dense_output = mine("patterns.dynamic", dynamic_linear), linear(neurons, weight_of(layer))
errors_by_k = []
for k in (77, 154, 384):
    error = (dynamic(weight_of(layer), neurons, k) - dense_output).square().sum(1) / dense_output.square().sum(1)
    errors_by_k.append(
        {"neurons kept per token": k, "of": neurons.shape[1], "squared error / output": error.mean().item()}
    )
Table(
    errors_by_k,
    caption="The error of a layer that keeps the largest neurons of each token",
    formats={"squared error / output": number(1, "%", 100)},
)

# %% [markdown]
# This model's activation function (SiLU) makes no exact zeros, unlike ReLU. Even so, a few neurons carry most of what
# one token needs, and for the next token they are others. A choice made anew for each token therefore has a smaller
# error than one choice for all, with the same number of neurons. It has a price: the choice must be known *before* the
# work is done, it must be made again for every token, and a batch of tokens together needs nearly all columns.
#
# ## 10. Cost, and when it does not pay
#
# What would a sparse model save when it writes one token? (GB is $10^9$ bytes, GiB is $2^{30}$.)

# %%
shape = Transformer.of(model)
dense_bytes = shape.matrix_weights * 4
step = shape.decode_step(context=512, value_bytes=4)
print(f"one token of this model in float32: {step.flops / 1e6:.0f} MFLOP, {step.bytes / 1e6:.0f} MB, ", end="")
print(f"at least {1e3 * step.seconds(machine):.0f} ms here, bound by {step.bound(machine)}")
bitmap_share = encoded["bitmap"].n_bytes / encoded["dense"].n_bytes
blocks_part = shape.n_blocks * shape.block_weights / shape.matrix_weights
share = 1 - blocks_part * (1 - bitmap_share)
print(f"blocks half empty as bitmaps: weights take {100 * share:.0f} % of the bytes (float16)")

# %% [markdown]
# Sparsity does not pay
#
# - in CSR above a density of a third (float16), because it is larger than dense;
# - for unstructured zeros on tensor cores when many tokens are processed at once, because no product is skipped;
# - when a smaller dense model of the same cost is as good: always compare with that;
# - when something else dominates: the key-value cache at long contexts, the head of a small model.
#
# ## 11. An open task
#
# All patterns above removed the same share of every matrix. Now you choose freely: which weights are kept of each
# matrix, so that all block matrices together take at most 70 % of their dense float16 bytes, and the model reads
# held-out text as well as you can make it? Each matrix is stored in the cheapest format that can hold its mask, so
# regular zeros buy you room for more weights, and scattered zeros buy you a better choice. There is no formula, and
# nothing is graded.
#
# Your function gets one matrix and returns its mask. Before you try: how many weights can a bitmap keep at 70 % of the
# bytes? Which matrices would you rather leave dense? A choice over the budget is counted, but not read.


# %%
def keep(part, depth, weight):
    """Which weights of a matrix are kept.

    part: its name, such as "mlp.up_proj" or "self_attn.q_proj". depth: 0 for the first block, 1 for
    the last.
    weight: (O, I). Returns (O, I), bool.
    """
    return Unstructured(1 - 0.633).keep(weight.abs())


# %%
ideas = budget.stored(load_measured("patterns", "budget")["tables"]["ideas"])
budget.table(ideas, budget.attempt(keep, model, tokenizer))

# %% [markdown]
# The rows above yours are simple ideas, measured once on the same text (`course reproduce budget`). *Relative size* is
# the relative importance of Zhang and others (2024): a weight beside the other weights of its row and of its column.
# The last column compares each choice with the first one, window by window, so that how hard a window is cancels. A
# choice differs from the first where its number is larger than twice its error. Is any idea clearly better than the
# same density everywhere? What does a regular format win back in bytes, and is it worth it?
#
# ## To take home
#
# 1. The more regular the zeros are, the better hardware can use them, and the more the model loses.
# 2. The index takes bytes, too. With half of the weights a bitmap and 2:4 make a float16 matrix 1.8 times smaller,
#    and CSR makes it larger.
# 3. With one token at a time, what counts is the bytes that are not read; with many tokens at once, the arithmetic
#    that is not done.
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
# <details><summary>2:4 makes a float16 matrix 1.78 times smaller. How many times smaller is one of 4 bits a
# weight?</summary>
#
# The places cost one bit an entry, whatever the values are: $4 / (2 + 1) = 1.33$ times. The narrower the values are,
# the larger is the share of their index.
#
# </details>
#
# <details><summary>Could a cleverer format than the bitmap say with fewer bits which half of the weights is kept? And
# for 2:4?</summary>
#
# For an unstructured half of the weights, hardly. There are $\binom{n}{n/2} \approx 2^n / \sqrt{\pi n / 2}$ masks of
# $n$ weights, which takes nearly one bit a weight to tell apart, and a bitmap takes one. 2:4 stores one bit a weight,
# too, but has only 6 masks for four weights: $\log_2 6 = 2.58$ bits would be enough where 4 are spent, because hardware
# wants each place on its own.
#
# </details>
#
# ## Reading
#
# - Hoefler, Alistarh, Ben-Nun, Dryden, Peste (2021), *Sparsity in Deep Learning*, JMLR 22.
#   [arXiv:2102.00554](https://arxiv.org/abs/2102.00554).
# - Frantar, Alistarh (2023), *SparseGPT*, appendix E: speed on a CPU and a GPU.
#   [arXiv:2301.00774](https://arxiv.org/abs/2301.00774).
# - Zhang and others (2024), *Plug-and-Play*: relative importance. ICLR.
#   [Its poster](https://iclr.cc/virtual/2024/poster/18549).
# - Mishra and others (2021), *Accelerating Sparse Deep Neural Networks*: 2:4.
#   [arXiv:2104.08378](https://arxiv.org/abs/2104.08378).
# - Gale, Zaharia, Young, Elsen (2020), *Sparse GPU Kernels for Deep Learning*.
#   [arXiv:2006.10901](https://arxiv.org/abs/2006.10901).
# - Williams, Waterman, Patterson (2009), *Roofline*, CACM 52 (4).
#   [doi:10.1145/1498765.1498785](https://doi.org/10.1145/1498765.1498785).
