# %% [markdown]
# # 11 · Sparse attention: what need not be read, sent, heeded or loaded
#
# Every query of a text looks at every key before it, and most of what it looks at gets next to no weight. Lesson 07
# threw keys out of the cache while a model writes. Here the model reads, and the question is asked block by block, head
# by head: which keys does this query need? Four methods answer it in four ways, and a fifth loads the model less often
# without leaving anything out.
#
# **Afterwards you can** choose the blocks that hold a share of a head's attention, build a mask of blocks that is
# causal, send keys only where they have moved, steer heads to a sentence, say what a patch of an image is worth, verify
# drafted tokens so that the text stays the model's own, and say when each of these pays. **You need** lesson 00; lesson
# 07 knows caches, lesson 08 the first token. **Time**: two hours, 78 minutes of it for exercises.
#
# You will write eight functions. Under each is a `check`; it tells you what is wrong and, when it knows, which mistake
# it is. What follows an exercise uses your function on the real model once it is right, and the course's until then.

# %%
import torch

from course_lib.attention.delta.apply import delta_attention
from course_lib.attention.delta.spread import key_spread
from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.baselines import RandomBlocks
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.attention.prefill.lines import last_weights, on_columns
from course_lib.attention.speculative.cached import first_blocks
from course_lib.attention.speculative.draft import Lookup, model_draft
from course_lib.attention.steering.auto import as_prompt
from course_lib.attention.visual import training as visual_model
from course_lib.data import corpora
from course_lib.data.residents import passages
from course_lib.lessons.common import gpu
from course_lib.lessons.common.tables import say
from course_lib.lessons.sparse_attention import claims, deck, heads, live, optional_plots, plots, tables, widgets
from course_lib.lessons.sparse_attention.experiments import block_scores
from course_lib.measure.perplexity import window_losses
from course_lib.models import load_model
from course_lib.workbook import check, mine

# %%
model, tokenizer = load_model()
held_out = corpora.windows("wikipedia", 2, 1024, tokenizer, split="evaluation", seed=0)
seen = heads.heads_of_text(model, held_out[0])
n_layers, n_heads = len(seen.query), len(seen.query[0])
print(f"{len(held_out[0])} tokens; {n_layers} layers of {n_heads} heads; blocks of {heads.BLOCK} tokens")

# %% [markdown]
# ## 1. The idea in one picture
#
# Below are three of the 270 heads of our model as they read a text of 1,024 tokens, cut into blocks of 64. The darker a
# block, the more of its queries' attention goes there. (Faint attention is drawn darker than it is.)

# %%
shown = [(17, 4), (2, 2), (11, 6)]
plots.maps({head: seen.weights(head) for head in shown})

# %% [markdown]
# Each of these heads needs other blocks, and none of them all. What can be left out, and by whom is it found?

# %%
deck.four_ways()

# %% [markdown]
# - **FlexPrefill** (Lai and others, ICLR 2025) does not compute the blocks that hold little attention.
# - **DeltaLLM** (Qi and others, 2025) sends a key's channels only where they have changed.
# - **AutoPASTA** (Zhang and others, 2024) computes everything, and lets chosen heads heed one sentence.
# - **VFlowOpt** (Yang and others, ICCV 2025) drops most of an image's tokens before they are read.
#
# ## 2. FlexPrefill: which kind of head is it?
#
# To know which blocks matter one would have to compute them. FlexPrefill looks at the last block of queries alone,
# since it sees all keys, and asks first whether a cheaper guess would do: take the mean of these queries, the mean key
# of each block, and a softmax over blocks. That is the guess $\bar a$; the truth $\hat a$ is what the last queries do,
# summed over each block. How far are two distributions $p$ and $q$ apart? The Jensen–Shannon divergence compares both
# with their mean:
#
# $$ \mathrm{JSD}(p, q) = \tfrac12 \sum_j p_j \log \frac{p_j}{m_j} + \tfrac12 \sum_j q_j \log \frac{q_j}{m_j}, \qquad
# m = \tfrac12 (p + q) . $$
#
# Where $\sqrt{\mathrm{JSD}(\bar a, \hat a)} < \tau = 0.1$ the guess is good, and the head is called *query-aware*:
# block means say for every block of queries where it looks.

# %%
plots.divergence_pairs()

# %% [markdown]
# ### How far apart two distributions are
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# After a softmax in 32 bits many blocks have a probability of exactly 0. What does such a block add?


# %% exercise="sparse_attention.divergence"
def divergence(p, q):
    """The Jensen–Shannon divergence of two distributions, for each head, in nats.

    p, q: (H, N), for each of H heads the attention to N blocks. Rows sum to 1; entries may be 0 in
    either or in both. Returns (H,): 0 where both are the same, log 2 where they share nothing.
    """
    ### BEGIN SOLUTION
    middle, total = (p + q) / 2, 0
    for each in (p, q):
        total = total + torch.where(each > 0, each * (each / middle).log(), 0).sum(dim=1)
    return total / 2
    ### END SOLUTION


# %%
check("sparse_attention.divergence", divergence)

# %%
apart = mine("sparse_attention.divergence", divergence)
distance = torch.stack([apart(*heads.guess_and_truth(seen, layer)).clamp(min=0).sqrt() for layer in range(30)])
plots.divergences(distance, tau=0.1)

# %% [markdown]
# Few heads of this model are query-aware, and those read mostly what is near. (The public code computes the quotient
# as it stands. With a 0 the divergence is NaN, NaN < τ is false, and the head becomes the other kind without a word.)
#
# ## 3. FlexPrefill: as many blocks as a head needs
#
# All heads of one layer get the same number of keys in a window or in a top-k cache. FlexPrefill gives each head as
# many blocks as it needs: the fewest that hold a share $\gamma$ of its attention,
#
# $$ \min |S| \quad \text{subject to} \quad \sum_{j \in S} a_j \ge \gamma \sum_j a_j . $$

# %% [markdown]
# ### As few as hold a share
# **Exercise** · difficulty 3 of 5 · 9 minutes · 3 points
#
# The largest come first. Two things are easily one off: the entry with which the share is reached belongs to the set,
# and no other one does.


# %% exercise="sparse_attention.smallest_set"
def smallest_set(mass, share):
    """The largest entries of each row, as few as hold a share of the row's sum.

    mass: (R, N), zero or above; every row has something above zero, and need not sum to 1. share:
    above 0, below 1. Returns (R, N), True for what stays: the largest of the row,
    until their sum is at least share times that of the whole row. Of equals any may be chosen, but
    only as many as are needed.
    """
    ### BEGIN SOLUTION
    largest, order = mass.double().sort(dim=1, descending=True)
    before = largest.cumsum(dim=1) - largest
    needed = before < share * largest.sum(dim=1, keepdim=True)
    return torch.zeros_like(mass, dtype=torch.bool).scatter(1, order, needed)
    ### END SOLUTION


# %%
check("sparse_attention.smallest_set", smallest_set)

# %% [markdown]
# How many blocks of keys hold 80, 90, 95 and 99 % of what the last queries attend to, head by head?

# %%
fewest = mine("sparse_attention.smallest_set", smallest_set)
pairs = list(zip(seen.query, seen.keys, strict=True))
columns = torch.cat([on_columns(last_weights(*pair, seen.scaling, heads.BLOCK), heads.BLOCK) for pair in pairs])
plots.needed({share: fewest(columns, share).sum(dim=1).float() for share in (0.8, 0.9, 0.95, 0.99)}, columns.shape[1])

# %% [markdown]
# The last few per cent are dear. The public code finds out how many *tokens* hold the share, divides by the size of a
# block, and takes that many blocks, as if the tokens stood side by side:

# %%
plots.tokens_or_blocks()

# %% [markdown]
# ## 4. Heads that look along lines
#
# Most heads are no query-aware ones. What the last queries see of them are lines: a *vertical* one is a key at which
# many queries look, as the first token; a *slash* is a distance at which they look, as the token before.

# %% [markdown]
# ### Columns and diagonals
# **Exercise** · difficulty 3 of 5 · 9 minutes · 3 points
#
# $$ v_j = \frac1R \sum_r a_{rj}, \qquad s_\delta = \frac1R \sum_{r}\, a_{r,\; i(r) - \delta} , $$
#
# where row $r$ of the $R$ last queries is token $i(r) = T - R + r$. Entries at a distance that few queries have are
# divided by $R$ all the same: then both sum to one, and a share of either is a share of the attention.


# %% exercise="sparse_attention.lines"
def lines(weights):
    """What each key gets and what each distance gets, on average over the queries: (vertical,
    slash).

    weights: (R, T), the attention of the last R of T tokens. Row 0 is token T - R, the last row
    token T - 1; rows sum to 1 and are 0 at later keys. vertical: (T,), what key j gets. slash:
    (T,), what is at distance delta = query - key; delta = 0 is the query itself. Each is a sum over
    the queries, divided by R.
    """
    ### BEGIN SOLUTION
    n_last, n_tokens = weights.shape
    offsets = [n_tokens - n_last - delta for delta in range(n_tokens)]
    slash = torch.stack([weights.diagonal(offset).sum() for offset in offsets])
    return weights.mean(dim=0), slash / n_last
    ### END SOLUTION


# %%
check("sparse_attention.lines", lines)

# %%
lines_of = mine("sparse_attention.lines", lines)
plots.lines({head: lines_of(seen.weights(head, heads.BLOCK)) for head in shown})

# %% [markdown]
# ## 5. From lines to a mask
#
# A processor reads blocks, not lines of one token. So the lines become columns and diagonals of blocks, as many of each
# as hold $\gamma$. Whatever they are, the first column stays, where the sink is, and the main diagonal, so that every
# query reads itself.

# %% [markdown]
# ### A mask of blocks
# **Exercise** · difficulty 3 of 5 · 11 minutes · 3 points
#
# Block $i$ of queries reads block $j$ of keys if $j$ is a chosen column, or $i - j$ a chosen diagonal. The last block
# may be shorter than the others. Inside a block on the diagonal a query still reads nothing that comes after it.


# %% exercise="sparse_attention.block_mask"
def block_mask(columns, diagonals, n_tokens, block_size):
    """Which keys each query reads: (T, T), True where it does.

    columns: (N,), True for a chosen column of blocks. diagonals: (N,), True at k for a chosen
    diagonal of blocks, query block i - key block j = k. N = T / block_size, rounded up; token t
    lies in block t // block_size. n_tokens: T.
    Read are the keys up to the query's own whose block lies in a chosen column or on a chosen
    diagonal, or in the first column of blocks, or on the main diagonal of blocks.
    """
    ### BEGIN SOLUTION
    i = torch.arange(n_tokens) // block_size
    apart = i[:, None] - i
    read = columns[i] | (i == 0) | diagonals[apart.clamp(min=0)] | (apart == 0)
    return read.tril()
    ### END SOLUTION


# %%
check("sparse_attention.block_mask", block_mask)

# %% [markdown]
# The three functions on real heads. Move γ, and choose the head: how much has to be read until next to nothing is
# missing?

# %%
parts = lines_of, fewest, mine("sparse_attention.block_mask", block_mask)
widgets.explore_masks({head: heads.Chosen(seen.weights(head), *parts) for head in [*shown, (10, 3)]}, gamma=0.9)

# %% [markdown]
# The share that is held is that of *all* queries. γ was reached on the last block, and the others were not asked; where
# they differ, more or less is covered.
#
# Now the whole model reads so, each head by its own pattern, and beside it with as many blocks drawn by lot:

# %%
rules = {f"γ = {gamma}": FlexPrefill(gamma=gamma, block_size=heads.BLOCK, min_budget=128) for gamma in (0.95, 0.8)}
read = {"dense": (window_losses(model, held_out, progress=False), 1.0)}
for name, rule in rules.items():
    with prefilling(model, rule, measured="none") as watch:
        losses = window_losses(model, held_out, progress=False)
    read[name] = losses, float(watch.density.mean())
with prefilling(model, RandomBlocks(density=read["γ = 0.8"][1], block_size=heads.BLOCK), measured="none"):
    read["by lot, as many"] = window_losses(model, held_out, progress=False), read["γ = 0.8"][1]
tables.losses_by_rule(read)

# %% [markdown]
# ### Measured
#
# Two windows of 1,024 tokens are few and short. `course reproduce sparse_attention` and `sparse_attention_further` have
# eight of each length, in blocks of 128 tokens as in the paper, and with a floor: every head reads at least 512 tokens
# of either kind of line.

# %%
display(tables.prefill_by_gamma())
print(claims.READ_AT_NO_LOSS.judge())

# %%
plots.over_gamma()

# %%
deck.by_head()

# %% [markdown]
# Is it the choice that does it, or the number of blocks? Others may read as many: the first tokens and a window
# (StreamingLLM, lesson 08), the best lines, but as many for every head (vertical-slash), and blocks drawn by lot.

# %%
display(tables.prefill_rules())
print(claims.THAN_WINDOW.judge())

# %% [markdown]
# StreamingLLM reads the first tokens and what is near, whatever the head, and loses hardly more: on running text that
# is most of what counts. The floor does much of the work too. Without it, and as the public code counts:

# %% [markdown]
# ### On the clock
#
# Who reads half of the blocks computes half of the products. Is that half of the time? On a processor blocks are read
# in a loop, and choosing them is a product of the last block of queries with all keys
# (`course bench sparse_prefill`, one text).

# %%
display(tables.prefill_times())
print(claims.WHOLE_FASTER.judge())

# %%
plots.over_density()

# %% [markdown]
# The longer the text, the fewer of its blocks are read, and the less the choice weighs. Of what a density promises
# about half is left, or less: a loop over blocks does not run at the speed of one call over all, and neither does
# `flex_attention` of torch on a processor, which compiles a kernel for the same blocks. On a GPU, this is a kernel that
# reads the blocks of an index (`kernels/cache/block_sparse_prefill.py`), the choice not counted:

# %%
print(gpu.provenance())
densities = ("tokens: 8192, density 1.00", "tokens: 8192, density 0.50", "tokens: 8192, density 0.10")
display(gpu.table("block_sparse_prefill", contests=densities))
say(gpu.everywhere("block_sparse_prefill", "kernel"))

# %% [markdown]
# With all blocks it is slower than torch's fused attention, which a library wrote for this card, at every length. At a
# tenth it is faster, by less than ten times.
#
# ## 6. DeltaLLM: send what has moved
#
# Keys of neighbouring tokens resemble each other, channel by channel. Who has the last key needs only what has changed.
# Of DeltaLLM only the abstract could be read: full attention in a window, an approximation by deltas outside. What
# follows is ours, after the delta networks that it builds on (Neil and others, 2016). With $\hat K_0 = K_0$ and a
# threshold $\theta$ for each channel,
#
# $$ d_j = K_j - \hat K_{j-1}, \qquad \hat K_j = \hat K_{j-1} + d_j \cdot 1[\,|d_j| \ge \theta\,], \qquad
# s_{ij} = q_i \cdot K_j \text{ near, } q_i \cdot \hat K_j = s_{i,j-1} + q_i \cdot \hat d_j \text{ far.} $$
#
# The comparison is with the last value that was *sent*. With the token before, many small steps are never sent:

# %%
optional_plots.walk()

# %% [markdown]
# ### Send what has moved
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# Go through the tokens and hold, for every channel, what was sent last. The error must stay below θ everywhere, and
# θ = 0 must be exact.


# %% exercise="sparse_attention.delta"
def delta_keys(keys, theta):
    """The keys that are held where only what has moved is sent: (held, sent).

    keys: (T, D). theta: (D,), zero or above, a threshold for each channel in the keys' own unit.
    held: (T, D), for each token and channel the value that was sent last, its own among them. sent:
    (T, D), True where it was sent: all channels of the first token, later those that differ from
    the value sent last by theta or more.
    """
    ### BEGIN SOLUTION
    held, sent = keys.clone(), torch.ones_like(keys, dtype=torch.bool)
    for j in range(1, len(keys)):
        sent[j] = (keys[j] - held[j - 1]).abs() >= theta
        held[j] = torch.where(sent[j], keys[j], held[j - 1])
    return held, sent
    ### END SOLUTION


# %%
check("sparse_attention.delta", delta_keys)

# %% [markdown]
# The keys of one head, with θ half of the standard deviation of each channel:

# %%
_, (keys,) = seen.of((10, 3))
theta = 0.5 * keys.std(dim=0)
held, sent = mine("sparse_attention.delta", delta_keys)(keys, theta)
print(f"below θ everywhere: {bool(((keys - held).abs() < theta).all())}, over {len(keys)} tokens")
optional_plots.sent(sent[:160], "layer 10, keys of head 3")

# %% [markdown]
# The whole model with deltas beyond a window of 64 tokens, on 512 tokens of the text; θ in standard deviations of each
# channel, measured on other text:

# %%
short, other = held_out[:, :512], corpora.windows("wikipedia", 1, 512, tokenizer, split="calibration", seed=0)
spread, coded = key_spread(model, other), {"dense": (window_losses(model, short, progress=False), 0.0)}
for threshold in (0.5, 1.0):
    with delta_attention(model, threshold, spread, window=64) as watch:
        losses = window_losses(model, short, progress=False)
    coded[f"θ = {threshold}"] = losses, watch.sparsity
tables.losses_by_rule(coded, "not multiplied")

# %% [markdown]
# More windows, thresholds and variants (`course reproduce delta`):

# %%
display(tables.deltas())
print(claims.NOTHING_LOST.judge())

# %%
optional_plots.over_threshold()

# %% [markdown]
# What is saved are multiplications and bytes that some hardware would have to leave out. In torch nothing is saved:
# zeros that lie anywhere cost as much as other numbers (lesson 01).
#
# ## 7. AutoPASTA: heed this sentence
#
# A text holds the answer in one of its sentences. PASTA (Zhang and others, 2023) multiplies, in chosen heads, the
# weight of every *other* token of the prompt by $\alpha = 0.01$, and makes rows sum to one again:
#
# $$ \tilde A = \mathrm{softmax}(l + \log \alpha \cdot \mathrm{lowered}), \qquad \text{since} \qquad
# e^{\,l + \log \alpha} = \alpha\, e^{\,l} . $$
#
# Which sentence it is, AutoPASTA has the model say itself.

# %%
optional_plots.steered_weights()

# %% [markdown]
# ### Steered attention
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Three kinds of columns are not lowered: those that are highlighted, those that the model has written itself, and the
# first token, on which heads rest when they have nothing to say (lesson 08; the paper lowers it too).


# %% exercise="sparse_attention.steer"
def steer(logits, highlighted, chosen, alpha):
    """Attention weights with some heads steered to what is highlighted: (H, Q, T), rows sum to 1.

    logits: (H, Q, T), of the newest Q of T tokens, before the softmax; at keys later than the query
    they are -10,000, so that their weight is 0. highlighted: (P,), True for highlighted tokens of
    the prompt, which are the first P of the T tokens; what follows is generated. chosen: (H,), True
    for heads that are steered. alpha: a number above 0.
    In chosen heads the weight of prompt tokens that are not highlighted is multiplied by alpha
    before rows are made to sum to 1; token 0 is spared, and so are generated tokens.
    """
    ### BEGIN SOLUTION
    scale = torch.ones(logits.shape[2], dtype=logits.dtype)
    scale[1 : len(highlighted)][~highlighted[1:]] = alpha
    weights = logits.softmax(dim=2)
    scaled = weights * scale
    return torch.where(chosen[:, None, None], scaled / scaled.sum(dim=2, keepdim=True), weights)
    ### END SOLUTION


# %%
check("sparse_attention.steer", steer)

# %% [markdown]
# Six residents of six cities, all made up, so nothing can be known by heart. First: which sentence does the model name?
# Dark is the one nearest to what it says, underlined the one that answers.

# %%
(passage,) = passages(1, seed=3)
asked = widgets.name_key_sentences(model, tokenizer, passage, n=3)
widgets.explore_passage(passage, asked)

# %% [markdown]
# Then your function, in all heads of all layers. The model has begun its answer with the name and "lives in"; which
# city comes next?

# %%
steering_by = mine("sparse_attention.steer", steer)
wrong = passage.sentences[(passage.key + 1) % len(passage.sentences)]
ways = {"nothing steered": None, "the key sentence": passage.key_sentence, "another sentence": wrong}
found = {
    name: live.probabilities(model, tokenizer, passage, sentence, steering_by) for name, sentence in ways.items()
}
optional_plots.cities(found, passage.answer)

# %% [markdown]
# Steering is strong, and it does not know what is true: steered to another sentence, the model says what that says. All
# depends on the sentence that is named. One passage says little; here are 32 of them, also with heads that were chosen
# on others:

# %%
display(tables.steered_answers())
print(claims.STEERED.judge())

# %%
optional_plots.answers()

# %% [markdown]
# A milder α does less. Steered to a random sentence, the model answers from that one: no answer is right.
#
# Two things are asked: is the right city the likeliest of the six, and how likely is it among all that could be said?
# Steering all heads does the first, and not the second; heads were chosen by the second.

# %% [markdown]
# Of questions that nobody made up for this (SciQ, with the text that comes with each) most are right as it is. Here the
# heads are those that the residents chose:

# %% [markdown]
# ## 8. VFlowOpt: what a patch is worth
#
# A model that sees reads an image as hundreds of tokens, and most show nothing that a question asks for. VFlowOpt drops
# most of them before the question is read. Ours is small and trained here (`course reproduce visual_model`): 12 × 12
# patches with digits and clutter, and five questions.
#
# A patch counts if others look at it, and if it holds something. Let $K$ be the patches that get more attention than
# the average times $t$, and $H_i$ the entropy of the grey levels of patch $i$ in bits (equations 1 to 4):
#
# $$ I_i = \sum_{k \in K} A_{ki} + \alpha\, \mathrm{softmax}(H)_i, \qquad H_i = - \sum_v p_v \log_2 p_v . $$
#
# What is pruned is *recycled*: of each cell of neighbours one token is left, at the place of the most important of them
# (equations 6 and 7),
#
# $$ x_c = \sum_{i \in c} I_i\, x_i \Big/ \sum_{i \in c} I_i . $$

# %% [markdown]
# ### What a patch is worth
# **Exercise** · difficulty 3 of 5 · 12 minutes · 4 points
#
# $p_v$ is how often grey level $v$ occurs among the pixels of the patch. A patch of one level has 0 bits; one of 16
# pixels, all different, has 4.


# %% exercise="sparse_attention.recycle"
def recycle(grey, attention, alpha, tokens, cell):
    """What N patches are worth, and the tokens that pruned ones become: (importance, fused, place).

    grey: (N, P), whole numbers 0 to 255, the pixels of each patch. attention: (N,), what the
    patches of K attend to each. alpha: the weight of the entropies, 0 or more. tokens: (N, D).
    cell: (N,), whole numbers, to which of C cells a pruned token belongs, 0 to C - 1; -1 for a
    token that stays. Every cell has at least one token. Attention is 0 or more, and no cell's
    importances sum to 0.
    importance: (N,), the attention plus alpha times the softmax, over all N patches, of the
    entropies in bits. fused: (C, D), the mean of a cell's tokens, weighed by importance. place:
    (C,), the number, among all N, of the most important token of each cell (ties do not occur).
    """
    ### BEGIN SOLUTION
    entropy = []
    for row in grey:
        p = row.unique(return_counts=True)[1] / len(row)
        entropy.append(-(p * p.log2()).sum())
    importance = attention + alpha * torch.stack(entropy).softmax(dim=0)
    fused, place = [], []
    for number in range(int(cell.max()) + 1):
        members = (cell == number).nonzero().flatten()
        weight = importance[members] / importance[members].sum()
        fused.append(weight @ tokens[members])
        place.append(members[weight.argmax()])
    return importance, torch.stack(fused), torch.stack(place)
    ### END SOLUTION


# %%
check("sparse_attention.recycle", recycle)

# %% [markdown]
# Your function on a canvas: 36 tokens stay, and each cell of 3 × 3 of the others leaves one. Without the entropy, and
# with it:

# %%
small, canvas = visual_model.load(), live.canvas_of(seed=3)
worth_of = mine("sparse_attention.recycle", recycle)
optional_plots.patches(canvas, {f"α = {alpha}": live.worth(small, canvas, worth_of, alpha) for alpha in (0, 50)})

# %% [markdown]
# The full method prunes in three stages, with ratios $R_1, R_2, R_3$ before each third of the layers. What the layers
# read on average is
#
# $$ \bar R = \tfrac13\, (R_1 + R_1 R_2 + R_1 R_2 R_3) , $$
#
# and $t$, $\alpha$, the size of a cell and the ratios are searched so that the last token's vector in the last layer
# keeps its direction (equations 5 and 8).

# %%
deck.kept_tokens(share=0.25)

# %%
optional_plots.accuracy_over_share()

# %%
display(tables.visual_tokens())
print(claims.A_TENTH.judge())

# %% [markdown]
# At a tenth, 14 of 144 tokens, who is told where the digits are keeps nearly all of their patches (13 on average), and
# is no better than attention alone. So behind the encoder not all that a question needs stands where the digits stood.
# There the recycled tokens decide, which are means over all the rest.

# %%
deck.what_parts_add()

# %% [markdown]
# The paper's numbers are of other models and questions, so they stand beside ours, and are not compared:

# %%
tables.visual_published()

# %% [markdown]
# ## 9. Fewer than 100 loads for 100 tokens
#
# A quiz: a model that writes 100 tokens is loaded from memory 100 times, once a token. Can it be loaded less often, and
# the text still be distributed exactly as the model's own?
#
# Yes: *speculative decoding* (Leviathan and others, 2023). Something cheap drafts $k$ tokens, each drawn from its own
# distribution $q$. The model reads them in one pass, which gives its distributions $p$ at all $k$ places and one more.
# A drafted token $x$ stays with probability $\min(1, p(x)/q(x))$. At the first that falls, another one is drawn from
# what the draft gave too little of,
#
# $$ p'(x) = \frac{(p(x) - q(x))_+}{\sum_y (p(y) - q(y))_+} , $$
#
# and the rest of the draft is forgotten. If all stay, one more is drawn from $p$ at the place behind them.

# %%
plots.overlaps()

# %% [markdown]
# ### Which drafted tokens stay
# **Exercise** · difficulty 3 of 5 · 11 minutes · 4 points
#
# Chance comes from outside here, so that a check can compare: `luck` are the numbers, drawn evenly between 0 and 1,
# that decide. A token stays if its luck is below $p(x)/q(x)$.


# %% exercise="sparse_attention.accept"
def accept(drafted, q, p, luck):
    """How many of the drafted tokens stay, and what the next is drawn from: (n, distribution).

    drafted: (k,), token numbers. q: (k, V), the distributions that they were drawn from. p:
    (k + 1, V), the model's at the same places and at the one behind them. luck: (k,), numbers in
    [0, 1). Token x at place i stays if luck[i] is below p[i, x] / q[i, x]; the first that does not
    ends the pass. n: how many stay before that. distribution: (V,), sums to 1: where a token fell,
    what p has more than q at its place; where all stay, the last row of p.
    """
    ### BEGIN SOLUTION
    for n, token in enumerate(drafted):
        if luck[n] * q[n, token] >= p[n, token]:
            more = torch.relu(p[n] - q[n])
            return n, more / more.sum()
    return len(drafted), p[len(drafted)]
    ### END SOLUTION


# %%
check("sparse_attention.accept", accept)

# %% [markdown]
# Is the text the model's own? With five words and one drafted token all cases can be gone through: every word with its
# probability in the draft, and every luck alike.

# %%
keeps = mine("sparse_attention.accept", accept)
p, q = (1.2 * torch.randn(2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).softmax(dim=1)
plots.exactness(p, q, live.comes_out(p, q, keeps, n=100), list("abcde"))

# %% [markdown]
# Now the real model with two drafts. *Lookup* takes what followed when the last tokens stood in the text before, and
# costs nothing. The *early exit* is the model's own first 24 of 30 blocks, which reads most of the weights itself.

# %%
copying = as_prompt(tokenizer, f"Repeat this text word for word:\n\n{passage.text}")
prompt = torch.tensor(tokenizer(copying, add_special_tokens=False).input_ids)
drafts = {"lookup": Lookup(model.config.vocab_size), "first 24 blocks": model_draft(first_blocks(model, 24))}
for name, draft in drafts.items():
    new, passes = live.write(model, prompt, 32, draft, keeps, k=4, temperature=0.5)
    print(f"{name}: {len(new)} tokens in {len(passes)} passes, {100 * len(passes) / len(new):.0f} loads for 100 tokens")
    say(tokenizer.decode(new))

# %% [markdown]
# How many tokens a pass gives depends on how often a drafted one stays, $\alpha = \sum_x \min(p(x), q(x))$ on average:
# $(1 - \alpha^{k+1}) / (1 - \alpha)$ of them (equation 1). This $\alpha$ is not that of steering, and each text has its
# own. The draft has to be loaded too.

# %%
plots.tokens_per_pass()

# %% [markdown]
# Measured on running text, and on a text that has just been read once. There $\alpha$ is that of the copy as it is
# *given*, and of that a lookup foretells nine tokens in ten. But what the model writes by itself behind it, at
# temperature 1, is mostly no copy, so what $\alpha$ foretells is not what comes. (Above it was told to repeat, at 0.5.)

# %%
display(tables.drafts_by_text())
print(claims.FEWER_LOADS.judge())

# %%
deck.passes()

# %% [markdown]
# ## 10. Cost, and when it does not pay
#
# - **Blocks that are not read** save time in long texts: here attention took less of it at 8,192 tokens, with the
#   choice counted, and more at 2,048. The whole prefill gained nothing up to 4,096, where choosing and reading takes
#   about as long as reading all.
# - **Deltas** save nothing without hardware that leaves out single zeros.
# - **Steering** saves nothing at all. It costs a second pass, and attention whose logits can be changed, which fused
#   kernels do not give. It pays where the right sentence is known.
# - **Dropped visual tokens** save in proportion to $\bar R$, in prefill and in cache. The encoder still reads the whole
#   image, and what a question needs may be gone before it was asked.
# - **Speculative decoding** pays while weights are what is waited for: one text at a time. In a large batch they are
#   read once for many texts already.
#
# ## 11. An open task
#
# Read three tenths of the causal blocks, as many in every head, and lose as little as possible. What is a block worth?
# There is no formula, and nothing is graded.


# %%
def my_blocks(query, keys, scaling):
    """What each block is worth: (heads, N, N), high stays; first column and diagonal do anyway.

    query: (heads, T, D). keys: (heads, T, D), those of grouped heads repeated. Blocks have 64
    tokens.
    """
    return block_scores.nearest(query, keys, scaling)


# %%
tables.block_scores(block_scores.measure(my_blocks, model, held_out))

# %% [markdown]
# The rows above yours are simple ideas on the same windows (`course reproduce block_scores`).

# %% [markdown]
# A score is one only on windows that were not looked at while it was made: to tune, take `split="calibration"`.
#
# ## To take home
#
# 1. A share of the attention is a promise, a number of blocks is a budget. Heads differ, so the same share takes very
#    different numbers of blocks.
# 2. Compare with what was sent last, not with the neighbour: then errors stay below θ and never add up.
# 3. log α before the softmax is α times the weight. Steering makes a model heed a sentence, right or wrong.
# 4. min(p, q) and (p − q)₊ add up to p. Whatever the draft, the text is the model's own; a good draft only saves loads.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>A rule reaches γ = 0.95 on the last block of queries. Why may a query in the middle of the text have
# less than 95 % of its attention?</summary>
#
# The lines were chosen by what the last queries look at. An earlier query may look elsewhere, at a key that none of
# the last ones needs. Nothing was promised for it; the coverage of all queries has to be measured.
#
# </details>
#
# <details><summary>Keys are compared with the token before, and steps below θ are left out. Each step is small. What
# goes wrong?</summary>
#
# Steps in one direction add up, and none of them is ever sent. After n tokens the error can be n times θ. Beside the
# value that was sent last it is below θ at every token.
#
# </details>
#
# <details><summary>A draft is right in 90 % of the tokens and has half the size of the model. With k = 4, is writing
# faster?</summary>
#
# Yes, somewhat. A pass gives (1 − 0.9⁵) / 0.1 = 4.1 tokens. It loads the model once and the draft four times, three
# models in all: 3 / 4.1 = 0.73 loads a token. With a draft of a tenth of the size it would be 1.4 / 4.1 = 0.34.
#
# </details>
#
# ## Reading
#
# - Lai, Lu, Luo, Ma, Zhou: *FlexPrefill: A Context-Aware Sparse Attention Mechanism for Efficient Long-Sequence
#   Inference*, ICLR 2025, [arXiv:2502.20766](https://arxiv.org/abs/2502.20766).
# - Qi and others: *DeltaLLM*, 2025, [arXiv:2507.19608](https://arxiv.org/abs/2507.19608). Its roots: Neil and others,
#   *Delta Networks*, 2016, [arXiv:1612.05571](https://arxiv.org/abs/1612.05571).
# - Zhang and others: *Tell Your Model Where to Attend*, 2023, [arXiv:2311.02262](https://arxiv.org/abs/2311.02262), and
#   *Model Tells Itself Where to Attend*, 2024, [arXiv:2409.10790](https://arxiv.org/abs/2409.10790). PASTA, AutoPASTA.
# - Yang and others: *VFlowOpt*, ICCV 2025, [arXiv:2508.05211](https://arxiv.org/abs/2508.05211).
# - Leviathan, Kalman, Matias: *Fast Inference from Transformers via Speculative Decoding*, 2023,
#   [arXiv:2211.17192](https://arxiv.org/abs/2211.17192).
