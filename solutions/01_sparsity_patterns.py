# %% [markdown]
# # 01 · Sparsity patterns
#
# Pruning sets weights to zero. This alone makes a model neither smaller nor faster: a zero in an ordinary array takes
# as many bytes as any other number, and multiplying by it takes as long. Zeros pay off only if a **format** can leave
# them out and a **kernel**, that is, a program for one operation on one kind of hardware, can skip them. Whether that
# is possible depends on where the zeros are.
#
# In this lesson you compare the arrangements of zeros that matter for language models. For each of them we ask what it
# costs the model, how many bytes it saves, and how fast it runs. Most sections end with a line **Cost**, which says
# what you pay.
#
# **Afterwards you can** choose a sparsity pattern for a purpose and name its cost in quality, compress a matrix to 2:4,
# decode a bitmap, count the bytes of CSR, bitmap and 2:4, compute below which density a format saves bytes, and say
# when fewer bytes mean less time on a CPU and on a GPU.
#
# **You need** lesson 00, for bytes and the roofline model, and PyTorch tensors with `topk`, `reshape` and `gather`.
#
# **Time**: the core path, sections 1 to 3, 5, 6 and 8, takes a little over two hours, 56 minutes of it for exercises.
# The optional sections 4, 7, 9 and 10 take another hour and a quarter, 18 minutes of it for exercises. Run the cells of
# section 7 even if you skip its text, because section 8 uses one of them.

# %%
import math

import torch

from course_lib.data import corpora
from course_lib.lessons.common import gpu
from course_lib.lessons.common.table import Table, count, number, percent, plus_minus, with_range
from course_lib.lessons.patterns import claims, plots, tables, widgets
from course_lib.lessons.patterns.experiments import budget
from course_lib.measure.machine import measure_device
from course_lib.measure.perplexity import perplexity
from course_lib.models import load_model
from course_lib.sparsity import formats, patterns, speed
from course_lib.workbook import check, mine

# %% [markdown]
# Our example is one weight matrix of SmolLM2-135M-Instruct: the up projection in the MLP of block 10. PyTorch stores
# a weight matrix with one row per output and one column per input.

# %%
model, tokenizer = load_model()
weight = model.model.layers[10].mlp.up_proj.weight.detach()
n_outputs, n_inputs = weight.shape
print(f"our example matrix has {n_outputs} outputs (rows) and {n_inputs} inputs (columns)")

# %% [markdown]
# ## 1. Six sparsity patterns
#
# Lesson 00 defined the **sparsity** of a matrix, the fraction of its entries that are exactly zero, and its
# **density**, the rest. It also showed that a trained model has hardly any zeros. So we have to set weights to zero
# ourselves, in all matrices of the blocks:

# %%
linears = [module for module in model.model.layers.modules() if isinstance(module, torch.nn.Linear)]
matrices = [linear.weight.detach() for linear in linears]
n_weights = sum(matrix.numel() for matrix in matrices)
print(f"{n_weights:,} weights in {len(matrices)} matrices")

# %% [markdown]
# A **sparsity pattern** is a rule about where the zeros may be. A **mask** is one choice of zeros that obeys the rule:
# it says for each weight whether it is kept. The next cell defines six patterns, all with the same sparsity, and the
# figure shows a mask of each on the same part of our matrix. White entries are zero. In each panel we kept the largest
# weights that the pattern allows.


# %%
def six_patterns(sparsity):
    """Return one pattern of each kind, from the freest to the most regular."""
    n_kept = int(4 * (1 - sparsity))  # of four neighbours
    return {
        "unstructured": patterns.Unstructured(sparsity),
        f"{n_kept}:4": patterns.NofM(n_kept, 4),
        "blocks 4 × 4": patterns.Block(4, 4, sparsity),
        "blocks 16 × 16": patterns.Block(16, 16, sparsity),
        "columns": patterns.Columns(sparsity),
        "rows": patterns.Rows(sparsity),
    }


plots.masks(weight, six_patterns(0.5))

# %% [markdown]
# - **Unstructured** (first panel): any weight may be zero. To choose, we keep in each row the half with the larger
#   absolute values. This is the best choice for the model and the hardest one for hardware.
# - **N:M**, also called **semi-structured**: of every M neighbouring inputs, N weights are kept. In this course we
#   always count the weights that are *kept*. For 2:4 the other convention gives the same result, but 1:4 then means
#   that three of four are kept.
# - **Block**: whole tiles of the matrix are zero, here of 4 × 4 or 16 × 16 weights. These blocks, or tiles, of a matrix
#   have nothing to do with the blocks of the model.
# - **Structured** (the last two panels): whole columns, that is, inputs, or whole rows, that is, outputs, are zero.
#   The kept ones are an ordinary smaller matrix.
#
# Look at the titles of the panels. They give the sum of the squares of the kept weights, divided by that of all
# weights. From here on we say that a mask *keeps* so many per cent of the squares. The unstructured pattern keeps 93 %
# of them, columns only 54 %, although all panels have the same number of zeros. If we chose the zeros at random, we
# would keep about 50 %.
#
# Why is the difference so large? A regular pattern has fewer masks to choose from, and we can count them. If half of
# $n$ units (single weights, tiles, columns or rows) are kept, there are $\binom{n}{n/2}$ possible masks. For example,
# 2:4 has $\binom{4}{2} = 6$ possible masks for each group of four weights. So we need at least $\log_2 6 = 2.58$ bits
# to write down the mask of a group, that is, 0.65 bits per weight. The next cell computes this number for all six
# patterns.

# %%
n_blocks = {size: weight.numel() // size**2 for size in (4, 16)}
n_masks = {  # by pattern: the number of possible masks, and for how many weights
    "unstructured": (math.comb(n_inputs, n_inputs // 2), n_inputs),
    "2:4": (math.comb(4, 2), 4),
    "blocks 4 × 4": (math.comb(n_blocks[4], n_blocks[4] // 2), weight.numel()),
    "blocks 16 × 16": (math.comb(n_blocks[16], n_blocks[16] // 2), weight.numel()),
    "columns": (math.comb(n_inputs, n_inputs // 2), weight.numel()),
    "rows": (math.comb(n_outputs, n_outputs // 2), weight.numel()),
}
by_pattern = []
for name, pattern in six_patterns(0.5).items():
    keep = pattern.keep(weight.square())  # True where a weight is kept
    kept = (weight[keep].square().sum() / weight.square().sum()).item()
    bits = math.log2(n_masks[name][0]) / n_masks[name][1]
    sparsity = (~keep).float().mean().item()
    by_pattern.append({"pattern": name, "sparsity": sparsity, "squares kept": kept, "bits per weight": bits})
Table(
    by_pattern,
    caption="How free is each pattern, and how much does it keep?",
    formats={"sparsity": number(1, "%", 100), "squares kept": percent, "bits per weight": number(4)},
    note="bits per weight: the least that is needed to write down which weights are kept.",
)

# %% [markdown]
# Compare the last two columns. The fewer bits a pattern leaves for the choice, the less it keeps, from unstructured
# with nearly one bit per weight to columns with less than a thousandth of a bit. Only rows are an exception: they have
# less freedom than 16 × 16 blocks, but keep more, because the rows of this matrix differ in their norms. The sparsity
# is exactly 50 % everywhere, although many weights are equal. A threshold could keep too many of them. So the library
# ranks the weights and keeps exactly half.
#
# **Cost**: to store only the kept weights, we must also store where they were. This information is the **index** of a
# format. A format for every mask of the pattern cannot take fewer bits for it than the last column says. Section 6
# shows how many real formats take.
#
# ## 2. What a pattern costs the model
#
# The sum of the squares tells us how much of a matrix is kept, but not how well the model still predicts. So we prune
# the model and measure its **perplexity**, that is, the exponential of its mean loss per token (lower is better). The
# loss of a token is minus the natural logarithm of the probability that the model gave it, and its unit is called
# **nat**. We remove the weights with the smallest absolute values from every matrix, without any further adjustment.
# This is **magnitude pruning**, the simplest method there is. It serves as a **baseline**: it is the same for all
# patterns, and better methods follow in lessons 03 to 05.
#
# The next cell prunes a quarter of the weights with each pattern and evaluates the model on **held-out** text, that is,
# on articles that the course uses for evaluation only. (We do not know whether the model saw them in training.) At the
# end the cell restores the weights.

# %%
evaluation = corpora.windows("wikipedia", 5, 128, tokenizer, split="evaluation", seed=0)  # 5 windows of 128 tokens
originals = [matrix.clone() for matrix in matrices]
results = {"dense": perplexity(model, evaluation, progress=False)}
try:
    for name, pattern in six_patterns(0.25).items():
        for matrix, original in zip(matrices, originals, strict=True):
            matrix.copy_(original * pattern.keep(original.square()))  # the model uses this very memory
        results[name] = perplexity(model, evaluation, progress=False)
finally:
    for matrix, original in zip(matrices, originals, strict=True):
        matrix.copy_(original)

losses = {name: torch.tensor(result.losses) for name, result in results.items()}  # nats per token, one per window
table = []
for name, result in results.items():
    increase = losses[name] - losses["dense"]  # window by window, so that the difficulty of a window cancels
    row = {"pattern": name, "perplexity": result.value, "times dense": result.value / results["dense"].value}
    error = increase.std() / len(increase) ** 0.5
    table.append(row | {"loss increase": increase.mean().item(), "error": error.item()})
Table(
    table,
    caption="The model with a quarter of its weights pruned",
    formats={
        "perplexity": count,
        "times dense": number(1),
        ("loss increase", "error"): plus_minus(2, sign=True),
    },
    note="loss increase: nats per token above the dense model, ± one standard error over the windows.",
)

# %% [markdown]
# Read the column *times dense* from top to bottom. Pruning single weights does the least harm, 3:4 about doubles the
# perplexity, and with blocks the model is of no use any more. The numbers come from five short windows, so look at the
# order and not at the digits.
#
# **A claim to test.** More regular patterns do more harm. We compare n:4 (here 3:4) with unstructured pruning, 4 × 4
# blocks with n:4, and rows as well as columns with 4 × 4 blocks. For the next figure and the verdict, `course reproduce
# patterns` repeated the measurement with more text, for a quarter and for half of the weights.

# %%
plots.perplexities()

# %%
print(claims.ORDER_QUARTER.judge())

# %% [markdown]
# In the figure each row is a pattern. The horizontal axis is the perplexity, on a logarithmic scale, and the dashed
# line is the dense model. If we gave the same probability to all 49,152 tokens of the vocabulary, the perplexity would
# be 49,152. In the grey area a model is worse than that. It is broken, and how large its perplexity is has no meaning
# any more. With a quarter of the weights pruned (dark, circles), 16 × 16 blocks are at the border of this area, and
# columns and rows are far inside. The verdict is about this case.
#
# With half of the weights pruned (red, squares), even the perplexity of unstructured pruning is 14 times that of the
# dense model. In other words, even if the choice is free, the absolute value of a weight is a poor measure of its
# importance. Lessons 03 and 04 introduce better criteria, and lesson 05 removes whole rows and columns more carefully
# and trains the model afterwards.
#
# One result does not match section 1. There, rows kept more squares of our matrix than 16 × 16 blocks. Here, blocks
# take the model to the border of the grey area, while removing rows takes it far inside. (Section 1 was about one
# matrix at one half, and this is about all matrices at a quarter.) The squares measure how far the matrix moves, not
# how far its output moves. If a row is removed, one output is zero for every token, and everything that uses this
# output has to do without it. If tiles are removed, most outputs only lose some of their terms. This is a likely
# reason, which we do not test here. Lessons 02 to 04 are about the effect of a weight on the output.
#
# ## 3. Structured sparsity: remove whole inputs
#
# If regular zeros cost the model so much, why does anyone use them? Because you need neither a special format nor a
# special kernel. A column of $W$ belongs to one input. If the column is zero, we do not need the input either, and the
# layer computes $W_{:,S}\, x_S$, where $S$ is the set of kept inputs. For example, if we keep the first and the third
# of three inputs:
#
# $$ \begin{pmatrix} 1 & 0 & 3 \\ 4 & 0 & 6 \end{pmatrix} \begin{pmatrix} x_1 \\ x_2 \\ x_3 \end{pmatrix}
# = \begin{pmatrix} 1 & 3 \\ 4 & 6 \end{pmatrix} \begin{pmatrix} x_1 \\ x_3 \end{pmatrix} $$
#
# The result is an ordinary dense product with a smaller matrix, which every device can compute.

# %% [markdown]
# ### Remove whole inputs
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Keep exactly `n_kept` columns, those with the largest Euclidean norm. If two norms are equal, you may keep either
# column. Return the smaller matrix, with its columns in their original order, and the indices of these columns in
# ascending order.


# %% exercise="patterns.columns"
def keep_columns(weight, n_kept):
    """Remove whole inputs.

    weight: (O, I). n_kept: the number of columns to keep.
    Returns (smaller weight (O, n_kept), indices (n_kept,)).
    """
    ### BEGIN SOLUTION
    columns = weight.norm(dim=0).topk(n_kept).indices.sort().values
    return weight[:, columns], columns
    ### END SOLUTION


# %%
check("patterns.columns", keep_columns)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# `weight.norm(dim=0)` gives one norm per input. `topk` returns the indices in the order of the norms, so we sort them
# before we index the matrix with them. Otherwise the columns would not match the inputs, which arrive in their own
# order.
#
# </details>

# %%
smaller, columns = mine("patterns.columns", keep_columns)(weight, n_inputs // 2)
x = torch.randn(n_inputs, generator=torch.Generator().manual_seed(0))
masked = torch.zeros_like(weight).index_copy(1, columns, smaller)  # the same weights in a matrix of the old shape
difference = (masked @ x - smaller @ x[columns]).abs().max()
print(f"{tuple(weight.shape)} becomes {tuple(smaller.shape)}; the first inputs kept are {columns[:6].tolist()}")
print(f"squares kept: {100 * smaller.square().sum() / weight.square().sum():.0f} %")
print(f"largest difference between the masked product and the smaller one: {difference:.0e}")

# %% [markdown]
# The masked matrix and the smaller one give the same outputs up to rounding, but the second needs half of
# the bytes and half of the multiplications.
#
# **Cost**: hardly anything at run time, only the selection of the inputs. The price is paid in quality, because with
# each column we also lose its large weights.
#
# ## 4. Optional: blocks
#
# Blocks are a compromise between single weights and whole columns. If a block is large enough to fill a vector unit of
# a CPU or a tensor core (a unit of NVIDIA GPUs that multiplies small dense matrices), a kernel can run dense code on
# each block that is kept, and skip the others.

# %% [markdown]
# ### A block mask
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Divide the matrix into blocks of `rows` × `columns` weights; both sizes divide it. Keep exactly `n_kept` of all
# blocks, those with the largest sum of absolute values. If two sums are equal, you may keep either block.


# %% exercise="patterns.blocks"
def keep_blocks(weight, rows, columns, n_kept):
    """Choose the weights to keep when whole blocks are removed.

    weight: (O, I). Returns (O, I), bool, True = kept.
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

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# A `reshape` to (O / rows, rows, I / columns, columns) gives each block two axes of its own, 1 and 3. For example, a
# 4 × 6 matrix in blocks of 2 × 3 becomes (2, 2, 2, 3). The sum over these two axes is one number per block. We rank
# these sums, and `repeat_interleave` enlarges the small mask to the size of the matrix.
#
# </details>


# %%
def keep_half_of_all_tiles(keep_blocks, sizes):
    """Prune our matrix with square tiles of several sizes; return the rows of a table."""
    rows = []
    for size in sizes:
        keep = keep_blocks(weight, size, size, weight.numel() // size**2 // 2)
        kept = (weight[keep].square().sum() / weight.square().sum()).item()
        rows.append({"weight tile": f"{size} × {size}", "density": keep.float().mean().item(), "squares kept": kept})
    return rows


Table(
    keep_half_of_all_tiles(mine("patterns.blocks", keep_blocks), (2, 4, 16, 64)),
    caption="Our example matrix with half of its tiles kept",
    formats={"density": percent, "squares kept": percent},
)

# %% [markdown]
# With tiles of 2 × 2 we keep 77 % of the squares, with tiles of 64 × 64 only 51 %, hardly more than by a random choice.
# The sum over a large tile is a sum of many weights, and such sums differ little, compared with their size. So there is
# little to gain by choosing among them. (Section 1 ranked blocks by their squares, and so kept slightly more.)
#
# **Cost**: one index per tile. A tile of 16 × 16 holds 256 weights, so an index of 4 bytes does not matter.
#
# ## 5. N:M, a pattern for GPUs
#
# NVIDIA GPUs since 2020 support another compromise, 2:4: of every four neighbouring inputs, two are kept (Mishra and
# others, 2021). Every row then stores the same number of values, and two bits are enough for the position of a value
# in its group.
#
# Could we store an unstructured mask with the same sparsity as 2:4? If each weight were kept by the toss of a coin, a
# group of four would keep more than two with probability $\left(\binom{4}{3} + \binom{4}{4}\right) / 2^4 = 5/16 \approx
# 31\,\%$, and would not fit. Let's count the groups of the real matrix:

# %%
keep = patterns.Unstructured(0.5).keep(weight.abs())
n_kept = keep.unflatten(1, (-1, 4)).sum(dim=2)  # (outputs, groups): how many of each four are kept
plots.groups(torch.bincount(n_kept.flatten(), minlength=5) / n_kept.numel())

# %% [markdown]
# The dark bars (our matrix) are as high as the hatched bars (coin tosses): 31 % of the groups keep three or four
# weights. In this respect the large weights of a row are spread as if at random. So we have to choose a 2:4 mask group
# by group.

# %% [markdown]
# ### Compress to 2:4
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# Compress a matrix to 2:4: of every four neighbouring inputs keep the two weights with the largest absolute values.
# Return the kept weights and the position of each weight in its group, an integer from 0 to 3. Within a group the
# positions ascend. If two absolute values are equal, you may keep either weight. For example, the group (7, −8, 3, 0)
# gives the values (7, −8) and the positions (0, 1).


# %% exercise="patterns.nofm"
def compress(weight):
    """Keep two of every four inputs, as values and positions.

    weight: (O, I), I a multiple of 4.
    Returns (values (O, I / 2), positions (O, I / 2)).
    """
    ### BEGIN SOLUTION
    groups = weight.unflatten(1, (-1, 4))  # (O, I / 4, 4)
    positions = groups.abs().topk(2, dim=2).indices.sort(dim=2).values
    return groups.gather(2, positions).flatten(1), positions.flatten(1)
    ### END SOLUTION


# %%
check("patterns.nofm", compress)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# `unflatten(1, (-1, 4))` gives each group an axis of its own. `topk` of the absolute values returns the positions in
# the order of size, so we sort them. Then `gather` picks the values at these positions, with their signs.
#
# </details>
#
# A position needs two bits, so four of them share a byte. By convention the first position is in the lowest bits:
# position number $j$ of a row, counted from 0, is shifted left by $2\,(j \bmod 4)$ bits. Kernels rely on such a
# convention.

# %%
values, positions = mine("patterns.nofm", compress)(weight)
shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8)
packed = (positions.byte().unflatten(1, (-1, 4)) << shifts).sum(dim=2, dtype=torch.uint8)
print(f"the positions {positions[0, :4].tolist()} make the byte {packed[0, 0].item():08b}")
print(f"{values.nbytes:,} bytes of values and {packed.nbytes:,} bytes of positions; dense: {weight.nbytes:,} bytes")
print(f"squares kept: {100 * values.square().sum() / weight.square().sum():.0f} %")

# %% [markdown]
# Read the byte from right to left, two bits at a time: `10`, `11`, `01` and `10` are the positions 2, 3, 1 and 2.
#
# **Cost**: 2:4 keeps 87 % of the squares of our matrix, where the unstructured pattern keeps 93 %. The index takes one
# bit per weight of the dense matrix.
#
# ## 6. Formats and their bytes
#
# A sparse format has to store which entries it holds. This index costs bytes as well, and each format pays for it in
# its own way. The drawing shows every number that three formats store for the same small matrix, which is at the top on
# the left.

# %%
plots.formats()

# %% [markdown]
# - **CSR** (compressed sparse rows, on the right at the top) stores the values row by row, the column index of each
#   value, and for each row the index of its first value. These *row starts* have one entry more than there are rows:
#   the last one is the end of the last row. For example, the starts 0, 4, 4, 7 mean that row 0 has the values 0 to 3,
#   row 1 has none, and row 2 has the values 4 to 6.
# - A **bitmap** (in the middle) stores the same values and row starts. In place of column indices it has one bit per
#   entry of the matrix, which is 1 if the entry is stored. Each row of the map begins on a new byte, so a row with 10
#   entries takes two bytes.
# - **2:4** (at the bottom) stores two values of every four and a position of two bits for each of them. It needs no
#   row starts, because all rows have the same length. The positions of each row begin on a new byte, too. If a group
#   has fewer than two non-zero weights, it is filled up with zeros. So 2:4 always stores half of the entries.
#
# Look at the title: with 4-byte values, the smallest format for this matrix is the bitmap. What about others?

# %% [markdown]
# ### Bytes of four formats
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# Compute the bytes of a dense matrix, of CSR, of a bitmap and of 2:4. Column indices and row starts are integers of 4
# bytes. Test your formulas with the small matrix of the drawing first: it has 3 rows, 8 columns and 7 stored values,
# and the title of the drawing gives its bytes.


# %% exercise="patterns.bytes"
def format_bytes(rows, columns, n_stored, value_bytes):
    """Compute the bytes of a matrix in four formats.

    columns is a multiple of 4.
    Returns {"dense": ..., "CSR": ..., "bitmap": ..., "2:4": ...}.
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
# <details><summary>Solution (open it once your check is right)</summary>
#
# With $O$ rows, $I$ columns, $Z$ stored values and $v$ bytes per value:
#
# | format | bytes | the small matrix |
# |:--|:--|--:|
# | dense | $O I v$ | 96 |
# | CSR | $Z (v + 4) + 4 (O + 1)$ | 72 |
# | bitmap | $Z v + O \lceil I / 8 \rceil + 4 (O + 1)$ | 47 |
# | 2:4 | $O \left(\frac{I}{2} v + \lceil I / 8 \rceil\right)$ | 51 |
#
# In Python, `-(-n // 8)` divides by 8 and rounds up.
#
# </details>
#
# The best format depends on the mask, and not every format can store every mask. There is also a fifth one for
# structured sparsity: store the columns that have at least one kept weight as a dense matrix, with an index of 4 bytes
# for each of them.

# %% [markdown]
# ### Choose a format
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Choose the format that stores the kept weights of a mask in the fewest bytes, without losing any weight. `sizes` is
# the result of the last exercise for this mask. It always has an entry for 2:4, even if the mask does not fit 2:4 or
# its number of columns is not a multiple of four. When does it fit? Add the fifth format, `"columns"`, and return the
# name of the smallest format and its bytes.


# %% exercise="patterns.choose"
def choose_format(keep, sizes, value_bytes):
    """Choose the format with the fewest bytes that can store a mask.

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

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# A mask fits 2:4 if the number of inputs is a multiple of four and no group keeps more than two weights. Fewer than two
# are no problem, since zeros fill the group up. The fifth format takes $O v + 4$ bytes for each column in which
# anything is kept.
#
# </details>


# %%
def cheapest_formats(format_bytes, choose_format, value_bytes=2):
    """Choose a format for our matrix at three densities; return the rows of a table."""
    rows = []
    for density in (0.5, 0.25, 0.02):
        chosen = six_patterns(1 - density) if density > 0.1 else {"unstructured": patterns.Unstructured(1 - density)}
        for name, pattern in chosen.items():
            keep = pattern.keep(weight.abs())
            sizes = format_bytes(n_outputs, n_inputs, int(keep.sum()), value_bytes)
            best, n_bytes = choose_format(keep, sizes, value_bytes)
            row = {"density": density, "pattern": name, "cheapest format": best}
            rows.append(row | {"bytes / dense": n_bytes / sizes["dense"]})
    return rows


Table(
    cheapest_formats(mine("patterns.bytes", format_bytes), mine("patterns.choose", choose_format)),
    caption="The format with the fewest bytes for our matrix in float16",
    formats={"density": percent, "bytes / dense": number(1, "%", 100)},
)

# %% [markdown]
# At densities of 50 % and 25 % the answer is nearly always the bitmap. 2:4 and whole columns have a cheaper format of
# their own, although the difference is tiny for 2:4, which saves only the row starts. CSR is chosen only when 2 % of
# the weights are left. Rows, blocks and 1:4 are regular as well, but none of our five formats makes use of it.
#
# To multiply by an encoded matrix, a kernel has to decode it. You now do this for the bitmap.

# %% [markdown]
# ### Read a bitmap
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Decode a bitmap. Bit $i \bmod 8$ of `bitmap[o, i // 8]`, counted from the lowest bit, is 1 if entry $(o, i)$ is
# stored. The stored values are listed row by row. Each row of the map begins on a new byte. The result has the dtype of
# `values`.


# %% exercise="patterns.bitmap"
def decode_bitmap(values, bitmap, columns):
    """Decode a bitmap and its values into a dense matrix.

    values: (Z,). bitmap: (O, ceil(I / 8)), uint8. columns: I.
    Returns (O, I).
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

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Shift every byte right by 0 to 7 and take the lowest bit: this gives an axis of 8 bits, which we flatten into the row.
# For example, the byte 5 is `00000101` in binary, so entries 0 and 2 are stored. An assignment through the
# mask fills the entries that are True row by row, which is the order of the values.
#
# </details>
#
# Section 7 decodes a real matrix with your function. First we ask: at which density does a format start to save bytes?
# This **break-even density** is the one at which the format takes as many bytes as the dense matrix. Row starts hardly
# matter in matrices of this size, so leave them out.

# %% [markdown]
# ### Where a format starts to pay
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# At which density does CSR take as many bytes as the dense matrix, and at which density does a bitmap? Solve both
# equations on paper, for any number of bytes per value and per index, and return the two formulas.


# %% exercise="patterns.break_even"
def break_even(value_bytes, index_bytes):
    """Compute the densities below which CSR and a bitmap are smaller than dense.

    value_bytes: bytes per value, 0.5 for 4 bits. index_bytes: bytes per column index.
    Returns (CSR, bitmap).
    """
    ### BEGIN SOLUTION
    # CSR: d (v + i) = v. Bitmap: d v + 1/8 = v.
    return value_bytes / (value_bytes + index_bytes), 1 - 1 / (8 * value_bytes)
    ### END SOLUTION


# %%
check("patterns.break_even", break_even)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# Count bytes per entry of the matrix, with $v$ bytes per value and $i$ bytes per index. Dense takes $v$. At density
# $d$, CSR takes $d (v + i)$, because only stored entries need an index. A bitmap takes $d v + \frac18$, because every
# entry has a bit. Setting each of them equal to $v$ gives
#
# $$ \text{CSR: } d = \frac{v}{v + i} \qquad \text{bitmap: } d = 1 - \frac{1}{8 v} $$
#
# For example, in float16 with 4-byte indices these are $2/6 = 33\,\%$ and $15/16 = 94\,\%$. CSR and the bitmap take the
# same bytes where $4 d = \frac18$, that is, at a density of $1/32 = 3\,\%$, whatever the width of a value.
#
# </details>

# %%
plots.bytes_per_weight(weight)

# %% [markdown]
# The left panel is for float32 and the right one for float16. In each of them, the horizontal line is the dense matrix.
# Lines are the formulas, and dots are our matrix, pruned and encoded, with the bytes of its tensors counted. (The
# titles give the break-even densities. They include the row starts, so they are slightly lower than yours.) Look at a
# density of 0.5 in the right panel: CSR (steepest line) is far *above* the dense line. The bitmap and 2:4 (star) are at
# 1.13 and 1.125 bytes per weight, that is, 1.8 times smaller than dense and not 2 times, because their index costs one
# bit per weight. CSR is the smallest format only at densities below about 3 %. In section 2 only half of the weights
# were removed, and even with the freest pattern the perplexity was already 14 times as high.
#
# Compare with section 1: for unstructured zeros nearly one bit per weight is the least, and the bitmap takes one. For
# 2:4, 0.65 bits would be enough, and the format takes one.
#
# The narrower the values, the larger the fraction of the bytes that goes into the index. For weights of 4 bits, for
# example, CSR saves bytes only below a density of 11 %, and a bitmap below 75 %.
#
# ## 7. Optional: one matrix in three formats
#
# This section puts everything together. Its code is not needed to understand section 8, but run its cells, because
# section 8 uses `encode`. The next cell encodes a matrix in three formats, decodes it again, and multiplies it by a
# vector $x$. For 2:4 and CSR the product uses the stored values directly.
#
# - `encode` builds the tensors of the drawing in section 6. The row starts are the cumulative sum of the counts per
#   row, with a zero in front. Bits and positions are shifted into bytes as in section 5 (your `compress`).
# - `decode_and_multiply` goes back. CSR is a tensor type of its own in PyTorch, `torch.sparse_csr`, so we only hand
#   over our three tensors. The bitmap uses your `decode_bitmap`. In 2:4, value $j$ of a row belongs to group
#   $\lfloor j / 2 \rfloor$, so it multiplies input $4 \lfloor j / 2 \rfloor$ plus its position.


# %%
def encode(pruned, compress):
    """Encode a matrix that fits 2:4 and whose width is a multiple of 8 in three formats."""
    stored = pruned != 0
    row_starts = torch.nn.functional.pad(stored.sum(dim=1).cumsum(dim=0), (1, 0)).int()
    bits = stored.byte().unflatten(1, (-1, 8)) << torch.arange(8, dtype=torch.uint8)
    pairs, positions = compress(pruned)
    codes = positions.byte().unflatten(1, (-1, 4)) << torch.arange(0, 8, 2, dtype=torch.uint8)
    return {
        "CSR": (pruned[stored], stored.nonzero()[:, 1].int(), row_starts),
        "bitmap": (pruned[stored], bits.sum(dim=2, dtype=torch.uint8), row_starts),
        "2:4": (pairs, codes.sum(dim=2, dtype=torch.uint8)),
    }


def decode_and_multiply(encoded, x, decode_bitmap):
    """Decode each format into a dense matrix, and multiply it by x; return both."""
    values, columns, row_starts = encoded["CSR"]
    shape = (len(row_starts) - 1, len(x))
    csr = torch.sparse_csr_tensor(row_starts, columns, values, shape, check_invariants=True)
    dense = decode_bitmap(*encoded["bitmap"][:2], len(x))
    pairs, packed = encoded["2:4"]
    positions = (packed[:, :, None] >> torch.arange(0, 8, 2, dtype=torch.uint8) & 3).flatten(1)
    inputs = 4 * (torch.arange(pairs.shape[1]) // 2) + positions  # the input that each value multiplies
    return {
        "CSR": (csr.to_dense(), csr @ x),
        "bitmap": (dense, dense @ x),
        "2:4": (torch.zeros_like(dense).scatter_(1, inputs, pairs), (pairs * x[inputs]).sum(dim=1)),
    }


# %% [markdown]
# We prune our matrix to 2:4, so that all three formats can store it, and count the bytes of the tensors. (PyTorch may
# warn that its sparse CSR tensors are in beta. You can ignore that.)

# %%
pruned = weight * patterns.NofM(2, 4).keep(weight.abs())
encoded = encode(pruned, mine("patterns.nofm", compress))
decoded = decode_and_multiply(encoded, x, mine("patterns.bitmap", decode_bitmap))
for name, tensors in encoded.items():
    matrix, product = decoded[name]
    n_bytes = sum(tensor.nbytes for tensor in tensors)
    print(f"{name}: {n_bytes:,} bytes, decoded exactly: {torch.equal(matrix, pruned)}", end=", ")
    print(f"largest error of the product: {(product - pruned @ x).abs().max():.0e}")

# %% [markdown]
# All three formats store exactly the same matrix. In float32 the dense matrix has 3,538,944 bytes. CSR has slightly
# more: the values and the column indices take half of the bytes of the dense matrix each, and the row starts come on
# top. Now we compare our tensors with the library's formats and with the CSR tensor that PyTorch builds itself, and
# count the bytes for float16 as well:


# %%
def count_bytes(tensors, value_bytes):
    """Count the bytes of values and indices, with so many bytes per value."""
    return sum(part.numel() * (value_bytes if part.is_floating_point() else part.element_size()) for part in tensors)


library = {
    "CSR": formats.CSR.encode(pruned),
    "bitmap": formats.Bitmap.encode(pruned),
    "2:4": formats.NofMPacked.encode(pruned),
}
theirs = {name: [t for t in vars(form).values() if isinstance(t, torch.Tensor)] for name, form in library.items()}
is_equal = {name: all(map(torch.equal, encoded[name], theirs[name])) for name in encoded}
print("equal to the library, tensor by tensor:", is_equal)
csr = pruned.to_sparse_csr()
tensors = {"dense": (weight,), **encoded, "torch.sparse_csr": (csr.values(), csr.col_indices(), csr.crow_indices())}
table = []
for name, parts in tensors.items():
    n_bytes = {f"float{8 * width}": count_bytes(parts, width) for width in (4, 2)}
    table.append({"format": name} | n_bytes | {"float16 / dense": n_bytes["float16"] / (2 * weight.numel())})
Table(
    table,
    caption="Bytes of our matrix, pruned to 2:4",
    formats={"float32": count, "float16": count, "float16 / dense": number(1, "%", 100)},
)

# %% [markdown]
# CSR and the bitmap are equal to the library's. 2:4 may differ in one or two bytes, although it decodes to the same
# matrix: two groups of our matrix have only one non-zero weight, and your function may choose another position for the
# zero that fills the group. Then you see `'2:4': False`. Both are right.
#
# The last row of the table is larger than our CSR, because `to_sparse_csr` stores indices with 8 bytes each. When you
# count the bytes of a sparse tensor, count its indices too, and look at their type.
#
# **Cost**: encoding takes milliseconds and happens once. Decoding has to happen whenever the matrix is used. Section 8
# shows what that means for the time.
#
# ### Explore
#
# Choose a matrix, a pattern and a sparsity. On the left you see the upper left corner of the pruned matrix, on the
# right the bytes of the whole matrix in each format. For example, compare "n of 4" with "columns" at the same sparsity:
# which one keeps more of the squares, and which one takes fewer bytes? (If the notebook runs without a browser, you see
# only the first choice.)
#
# <details><summary>Answer for half of the weights</summary>
#
# "n of 4" keeps more of the squares. Columns take slightly fewer bytes, because they store one index per column and not
# one position per kept weight.
#
# </details>

# %%
controls = widgets.explore(model)

# %% [markdown]
# ## 8. Does it save time?
#
# Lesson 00 gave a lower bound for the time of a layer, the **roofline model** (Williams, Waterman and Patterson, 2009).
# For $N$ tokens per pass (this $N$ has nothing to do with N:M) and values of $v$ bytes,
#
# $$ t \;\ge\; \max\left(\frac{2\,O\,I\,N}{\text{FLOP/s}},\; \frac{(OI + NO + NI)\,v}{\text{bytes/s}}\right) $$
#
# Remember that a layer is memory-bound if its arithmetic intensity is below the **ridge** of the machine, and
# compute-bound above it. The next cell measures the ridge of your machine and computes the intensity for our matrix.

# %%
machine = measure_device()
ridge = machine.flops_per_second / machine.bytes_per_second
print(f"{machine.name}: {machine.flops_per_second / 1e9:.0f} GFLOP/s, {machine.bytes_per_second / 1e9:.1f} GB/s")
print(f"ridge at {ridge:.1f} FLOP/byte")
table = []
for n_tokens in (1, 8, 64):
    n_bytes = 4 * (n_outputs * n_inputs + n_tokens * (n_outputs + n_inputs))
    intensity = 2 * n_tokens * n_outputs * n_inputs / n_bytes
    limited_by = "memory" if intensity < ridge else "compute"
    table.append({"tokens per pass": n_tokens, "FLOP/byte": intensity, "limited by": limited_by})
Table(table, caption="A dense layer in float32", formats={"FLOP/byte": number(2)})

# %% [markdown]
# The number of tokens per pass is the batch size in decoding, and the length of the prompt in prefill. With one token,
# as when a model generates text for one user, each weight is read for a single multiplication and addition, and the
# layer is memory-bound. Fewer bytes should then mean less time, in the ratio of the bytes. With many tokens the layer
# is compute-bound, and a format helps only if it skips multiplications faster than the dense kernel does them.
#
# Let's measure it, with half of the weights and with a matrix of 57 MB, which is larger than the on-chip cache of most
# laptops: the first 24,576 rows of the LM head. All contestants take turns, so that a busy moment of the machine
# affects all of them.

# %%
large = model.lm_head.weight.detach()[:24_576].clone()
smaller, columns = mine("patterns.columns", keep_columns)(large, large.shape[1] // 2)
encoded = encode(large * patterns.NofM(2, 4).keep(large.abs()), mine("patterns.nofm", compress))
values, column_indices, row_starts = encoded["CSR"]
csr = torch.sparse_csr_tensor(row_starts, column_indices, values, large.shape, check_invariants=True)


def products(inputs, decode_bitmap):
    """Return four ways to multiply, as functions without arguments."""
    return {
        "dense": lambda: large @ inputs,
        "half of the columns": lambda: smaller @ inputs[columns],
        "CSR": lambda: csr @ inputs,
        "bitmap, decoded first": lambda: decode_bitmap(*encoded["bitmap"][:2], large.shape[1]) @ inputs,
    }


table = []
for n_tokens in (1, 64):
    inputs = torch.randn(large.shape[1], n_tokens, generator=torch.Generator().manual_seed(0))
    contestants = products(inputs, mine("patterns.bitmap", decode_bitmap))
    seconds = {name: torch.tensor(times) for name, times in speed.rounds(contestants, seconds=2.0).items()}
    for name in list(contestants)[1:]:
        low, middle, high = (seconds["dense"] / seconds[name]).quantile(torch.tensor([0.1, 0.5, 0.9])).tolist()
        row = {"tokens per pass": n_tokens, "half of the weights": name}
        table.append(row | {"speedup": middle, "10 %": low, "90 %": high})
Table(
    table,
    caption="Speed compared with the dense product, on this machine",
    formats={("speedup", "10 %", "90 %"): with_range(2)},
    note="speedup: dense time over time, median of the rounds; in brackets, 10 % to 90 % of the rounds.",
)

# %% [markdown]
# - **Half of the columns** need half of the bytes and half of the multiplications, so the roofline model allows a
#   speedup of two, and no more. (If your processor has a very large cache, the smaller matrix may fit into it and be
#   even faster.)
# - **CSR** with half of the weights takes as many bytes as the dense matrix in float32, but half of the
#   multiplications. With one token, where bytes decide, the roofline model therefore allows no speedup. If you see a
#   number above 1 there, the dense product ran slower than the machine can. With 64 tokens the dense layer may be
#   compute-bound on your machine, and then the roofline model allows CSR a speedup of up to two. How much of it does
#   PyTorch's kernel reach? Compare the two rows.
# - **Bitmap**: PyTorch has no CPU kernel for bitmaps, and none for 2:4. So we decode first, which takes much longer
#   than the product itself. A kernel that decodes only small pieces, inside the processor's cache, could save time.
#
# Whether CSR and bitmaps are slow depends on the kernel, not only on the CPU. DeepSparse, an engine that was written
# for unstructured sparsity, is reported to be 1.82 times as fast as dense at 50 % sparsity on a CPU (Frantar and
# Alistarh, 2023, table 7: OPT-2.7B, 400 tokens). With so many tokens, skipped multiplications matter more than saved
# bytes.
#
# ### On a GPU
#
# The **tensor cores** of NVIDIA GPUs multiply dense tiles, and 2:4 tiles at twice the rate. Scattered zeros save tensor
# cores no arithmetic. A kernel can still load fewer bytes and decode them on the chip, which should help when memory is
# the limit.
#
# We measured a layer with 4,096 rows and 14,336 columns in bfloat16 on an H200. In both tables each row is a program:
# its time, its lower bound by the roofline model, and its speed compared with the dense product. The first table is
# about 2:4: PyTorch's product, and a kernel of this course that saves bytes but no multiplications. The second one is
# about other formats, with one token.
#
# **A claim to test.** On a GPU, PyTorch's 2:4 product is faster than the dense one, with every number of tokens. The
# verdict counts the six numbers of tokens that we measured, from 1 to 4,096.

# %%
print(gpu.provenance())
display(gpu.table("nm_matmul", contests=("2:4, tokens: 1", "2:4, tokens: 4096")))
gpu.table("bitmap_matvec", contests=("density 0.5", "density 0.35", "density 0.1"))

# %%
print(claims.ON_A_GPU.judge())

# %% [markdown]
# Compare the times with the bounds in the first table. PyTorch's product is made for many tokens. At 4,096 tokens the
# layer is compute-bound, the bound is half of the dense one, and the product is 1.22 times as fast. With one token the
# bound is little more than half of the dense one, but the product takes almost three times as long. The course's kernel
# saves bytes alone: it is 1.35 times as fast with one token and slower with many. Real speedups stay below the bounds.
# For example, Frantar and Alistarh report that 2:4 made the layers of OPT-175B 1.54 to 1.79 times faster on an A100
# (2,048 tokens, table 8).
#
# And the other formats (second table)? With one token and half of the weights, CSR takes 1.6 times as long as dense,
# because it has more bytes. The course's bitmap kernel reads little more than half of the bytes, but takes 1.3 times as
# long. It comes less close to its bound than the dense product, probably because it has to count bits before it knows
# where a value belongs. The two are about even at a density of 35 %, and at a density of 10 % it is 1.78 times as fast
# as dense. In other words, **a saved byte saves time only if a kernel makes use of it.** All measurements are on
# [the page of claims](../docs/claims.md).
#
# ### What it saves, and when it does not pay off
#
# How many bytes of weights does the model read to generate one token? We compare float16 weights with bitmaps at half
# density in all blocks, and take the ratio of bytes of our example matrix for all of them. The embedding is the same
# matrix as the LM head, so we count it once.

# %%
sizes = mine("patterns.bytes", format_bytes)(n_outputs, n_inputs, n_outputs * n_inputs // 2, 2)
ratio = sizes["bitmap"] / sizes["dense"]
block_bytes, head_bytes = 2 * n_weights, 2 * model.lm_head.weight.numel()
for name, n_bytes in {"dense": block_bytes + head_bytes, "bitmaps": ratio * block_bytes + head_bytes}.items():
    milliseconds = 1e3 * n_bytes / machine.bytes_per_second
    print(f"{name}: {n_bytes / 1e6:.0f} MB per token, at least {milliseconds:.0f} ms on this machine")
print(f"bitmaps need {100 * (ratio * block_bytes + head_bytes) / (block_bytes + head_bytes):.0f} % of the bytes")

# %% [markdown]
# Half of the block weights are gone, and two thirds of the bytes remain: the index and the LM head of this small
# model take the rest. Sparsity does not pay off
#
# - in CSR above a density of one third (float16), because it is larger than dense;
# - with unstructured zeros on tensor cores and many tokens, because no multiplication is skipped;
# - if a smaller dense model with the same cost is as good, so always compare with one;
# - if something else dominates, such as the key-value cache in long contexts or the LM head of a small model.
#
# This is the end of the core path. Go on with the optional sections, or jump to *To take home*.
#
# ## 9. Optional: a preview of lessons 06 and 09
#
# So far the zeros were static (lesson 00). Now we choose them for each input, so they are dynamic. For example, if a
# neuron of the MLP is nearly zero for one token, we need not read its column of the next matrix for this token.
# Mixtures of experts (lesson 06) and contextual sparsity (lesson 09) are of this kind, and so is the eviction of tokens
# from the key-value cache (lesson 07). Here you only see why this is promising.

# %% [markdown]
# ### A pattern that depends on the input
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# For each token keep the `k` inputs with the largest absolute values, and exactly `k` of them even if some are equal.
# Set the others to zero and apply the layer.


# %% exercise="patterns.dynamic"
def dynamic_linear(weight, inputs, k):
    """Apply a linear layer to only k inputs of each token.

    weight: (O, I). inputs: (N, I), one row per token. Returns (N, O).
    """
    ### BEGIN SOLUTION
    kept = inputs.abs().topk(k, dim=1).indices
    keep = torch.zeros_like(inputs).scatter_(1, kept, 1.0)
    return (inputs * keep) @ weight.T
    ### END SOLUTION


# %%
check("patterns.dynamic", dynamic_linear)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# `topk` of the absolute values along `dim=1` gives exactly $k$ indices for each token. `scatter_` puts ones at these
# places of a matrix of zeros. We multiply the inputs by it, so they keep their signs, and then apply the layer. (This
# needs as many multiplications as the dense layer. A fast kernel would read only the chosen columns.)
#
# </details>
#
# We try it on the neurons of one MLP, that is, on the inputs of `down_proj` in block 15. A forward pre-hook, a function
# that PyTorch calls with the inputs of a layer, collects them. We leave out the first token of each window, whose
# activations are unusual (lesson 08). Then we keep a fraction of the neurons, chosen for each token (your function) or
# once for all tokens by their mean absolute value, and measure the relative squared error of the output.

# %%
layer, collected = model.model.layers[15].mlp.down_proj, []
handle = layer.register_forward_pre_hook(lambda module, arguments: collected.append(arguments[0][:, 1:].flatten(0, 1)))
with torch.no_grad():
    model(evaluation)
handle.remove()
neurons, down = collected[0], layer.weight.detach()  # (tokens, neurons), (outputs, neurons)


def output_errors(dynamic_linear, weight, inputs, fractions):
    """Compute the relative squared error of the output for each fraction that is kept."""
    dense = inputs @ weight.T
    errors = {"chosen for each token": {}, "chosen once for all": {}}
    for fraction in fractions:
        k = int(fraction * inputs.shape[1])
        static = inputs.abs().mean(dim=0).topk(k).indices
        outputs = (dynamic_linear(weight, inputs, k), inputs[:, static] @ weight[:, static].T)
        for name, output in zip(errors, outputs, strict=True):
            error = (output - dense).square().sum(dim=1) / dense.square().sum(dim=1)
            errors[name][fraction] = error.mean().item()
    return errors


errors = output_errors(mine("patterns.dynamic", dynamic_linear), down, neurons, (0.05, 0.1, 0.25, 0.5, 0.75))
threshold = neurons.abs().topk(neurons.shape[1] // 10, dim=1).values[:, -1:]
print(f"neurons that are exactly zero: {100 * (neurons == 0).float().mean():.1f} %")
plots.activity(neurons.abs() >= threshold, errors)

# %% [markdown]
# On the left each row is a token, and black marks are the largest tenth of its neurons. Two tokens have on average only
# 23 % of them in common. (If each token chose at random, it would be 10 %.) On the right you see the consequence: if a
# quarter of the neurons is kept, the error is 0.09 when we choose for each token (dark, circles), and 0.43 when we
# choose once for all tokens (red, squares). The activation function of this model (SiLU) makes no exact zeros, unlike
# ReLU. But a few neurons carry most of the output for one token, and for the next token they are others.
#
# **Cost**: the choice must be known *before* the work is done, it must be made again for every token, and a batch of
# many tokens together needs many more columns than one token. Lessons 06 and 09 are about these three problems.
#
# ## 10. Optional: an open task
#
# All patterns above removed the same fraction of every matrix. Now you choose freely which weights of each matrix are
# kept. All block matrices together may take at most 70 % of their dense float16 bytes, and the model should have the
# lowest perplexity that you can reach. Each matrix is stored in the cheapest format that fits its mask. (In addition to
# our five formats, the library stores rows as a smaller matrix, blocks as tiles with one column index each, and 1:4
# like 2:4.) So a regular pattern gives you room for more weights, and an unstructured one gives you a better choice.
# There is no right answer, and nothing is graded.
#
# Your function receives one matrix and returns its mask. Before you try: how many weights can a bitmap keep with 70 %
# of the bytes? (The function below starts with this density.) Which matrices would you rather leave dense? If your
# choice takes too many bytes, you see how many, but no perplexity. An attempt can take a minute or two.


# %%
def keep_in_budget(part, depth, weight):
    """Choose the weights of a matrix to keep.

    part: the matrix, such as "mlp.up_proj" or "self_attn.q_proj".
    depth: 0 for the first block, 1 for the last. weight: (O, I).
    Returns (O, I), bool, True = kept.
    """
    density = 0.633  # what a bitmap can keep with 70 % of the bytes
    return patterns.Unstructured(1 - density).keep(weight.abs())


# %%
tables.ideas(budget.attempt(keep_in_budget, model, tokenizer))

# %% [markdown]
# The rows above yours are simple ideas that we measured on the same text (`course reproduce budget`). *Relative size*
# is the relative importance of Zhang and others (2024): the size of a weight compared with the other weights of its row
# and of its column. The last column compares each choice with the first row, window by window. With 16 windows a single
# difference is significant (at the 5 % level) if it is larger than 2.13 standard errors. If you compare many choices,
# some of them exceed this by chance. Is any idea clearly better than the same density everywhere? How many bytes does a
# regular format save, and is it worth the loss?
#
# ## To take home
#
# 1. The more regular the zeros, the better hardware can use them, and the more the model loses.
# 2. An index takes bytes, too. With half of the weights, a bitmap and 2:4 make a float16 matrix 1.8 times smaller, and
#    CSR makes it 1.5 times larger.
# 3. With one token per pass, the bytes that are not read determine the speedup. With many tokens, the multiplications
#    that are not done determine it. In both cases a kernel has to make use of the pattern.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>Why is a float16 matrix larger in CSR than dense if half of its weights are zero?</summary>
#
# Each stored value takes 2 bytes and its column index 4. For half of the entries this is $6 / 2 = 3$ bytes per entry,
# and dense it is 2.
#
# </details>
#
# <details><summary>2:4 makes a float16 matrix 1.78 times smaller. How many times smaller is a matrix with 4 bits per
# weight?</summary>
#
# The positions cost one bit per entry, whatever the values are: $4 / (2 + 1) = 1.33$ times. The narrower the values,
# the larger the fraction of the bytes that goes into the index.
#
# </details>
#
# <details><summary>Could a cleverer format than the bitmap record with fewer bits which half of the weights is kept?
# And for 2:4?</summary>
#
# For unstructured sparsity, hardly. There are $\binom{n}{n/2} \approx 2^n / \sqrt{\pi n / 2}$ masks of $n$ weights,
# which needs nearly one bit per weight, and a bitmap takes one. 2:4 also stores one bit per weight, that is, four bits
# per group. It has only 6 masks for a group, so $\log_2 6 = 2.58$ bits would be enough, or 0.65 per weight. It probably
# spends more so that hardware can read each position by itself.
#
# </details>
#
# ## Reading
#
# - Hoefler, Alistarh, Ben-Nun, Dryden, Peste (2021), *Sparsity in Deep Learning*, JMLR 22.
#   [arXiv:2102.00554](https://arxiv.org/abs/2102.00554). A survey.
# - Frantar, Alistarh (2023), *SparseGPT*, appendix E: speed on a CPU and a GPU.
#   [arXiv:2301.00774](https://arxiv.org/abs/2301.00774).
# - Zhang and others (2024), *Plug-and-Play*: relative importance. ICLR.
#   [Its poster](https://iclr.cc/virtual/2024/poster/18549).
# - Mishra and others (2021), *Accelerating Sparse Deep Neural Networks*: 2:4.
#   [arXiv:2104.08378](https://arxiv.org/abs/2104.08378).
# - Gale, Zaharia, Young, Elsen (2020), *Sparse GPU Kernels for Deep Learning*.
#   [arXiv:2006.10901](https://arxiv.org/abs/2006.10901). Kernels for unstructured zeros.
# - Williams, Waterman, Patterson (2009), *Roofline*, CACM 52 (4).
#   [doi:10.1145/1498765.1498785](https://doi.org/10.1145/1498765.1498785).
