# %% [markdown]
# # 07 · KV eviction: which tokens stay in the cache
#
# A language model keeps a key and a value of every token that it has read. Long texts, and many of them at once, fill
# memory with that; and each new token reads all of it. Most of it is hardly ever looked at. Which part can go?
#
# **Afterwards you can** write a window, heavy hitters, counts and merging for a key-value cache, test a policy with a
# question that it could not foresee, and say when evicting saves time and when bytes alone. **You need** lesson 00,
# section 4, and attention: queries, keys, values, softmax. **Time**: two hours, more than half of them for exercises.
#
# This lesson builds the answers that people have found, from a window in two lines to merging and four bits. Each one
# runs on a real model, with tensors that really shrink. What happens at the first token of the text, and why, is lesson
# 08.
#
# You will write eight short functions. Under each is a `check`; it tells you what is wrong and, when it knows, which
# mistake it is. Four of them then work on the real model: what follows an exercise uses your function once it is right,
# and the course's own until then.

# %%
import torch

from course_lib.data import corpora
from course_lib.lessons.kv.running import live
from course_lib.lessons.kv.claims import asked as questions, own_text
from course_lib.kv.analysis.attention_statistics import attention_statistics, kinds_of
from course_lib.kv.policies.d2o import D2O
from course_lib.kv.policies.ems import EMS
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policies.scissorhands import rising
from course_lib.kv.policies.snapkv import SnapKV
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.kv.quantized import Quantized
from course_lib.kv.recycled import Recycled, recycling
from course_lib.lessons.kv.running.measure import nearest_that_stays, race, slots_by_layer
from course_lib.models import blocks, heads, load_model
from course_lib.data.needles import samples
from course_lib.lessons.kv import figures as plots
from course_lib.lessons.kv import measured as results
from course_lib.lessons.common import cache_speed as speed
from course_lib.lessons.common.tables import load_measured
from course_lib.lessons.common.verdicts import of_count, verdict
from course_lib.lessons.kv import tables as printed
from course_lib.attention.windowed import attention_weights
from course_lib.kv.analysis.retrieval import read, retrieve
from course_lib.lessons.common.by_mask import ByMask
from course_lib.lessons.kv.running.own import ByStep, losses_after
from course_lib.workbook import check, mine

# %%
model, tokenizer = load_model()
n_layers, sizes = len(blocks(model)), heads(model)
(text,) = corpora.windows("wikipedia", 1, 384, tokenizer, split="evaluation", seed=0)
print(f"{n_layers} layers, {sizes.n_query} query heads on {sizes.n_key_value} key-value heads of size {sizes.size}")

# %% [markdown]
# ## 1. The idea in one picture
#
# A text streams by, eight tokens at a time. The cache has 32 slots. Each row of the picture is a moment: dark tokens
# are in the cache, light grey ones have left. A window keeps the newest. H2O keeps half of its slots for the newest and
# gives the others to those that received most attention so far.

# %%
budget = 32
policies = {
    "window": Window(budget),
    "4 sinks + window": StreamingLLM(budget, sinks=4),
    "H2O": H2O(budget, recent=budget // 2),
}
histories = {name: live.watch(model, tokenizer, text[:160], policy) for name, policy in policies.items()}
layer, head = 12, 1
kept = {name: history.kept[:, layer, head] for name, history in histories.items()}
plots.streams(kept, histories["H2O"].n_read, f"layer {layer}, head {head}")

# %% [markdown]
# The same as text. Play it, and change the policy, the layer and the head: every key-value head keeps tokens of its
# own. White on dark is in the cache, grey has left. Which words stay for long?

# %%
controls = live.explore(dict(reversed(histories.items())), layer, head)

# %% [markdown]
# ## 2. How many tokens fit
#
# In lesson 00 you computed the bytes of a cache. Now the other way round: how many tokens fit into a given memory? A
# token takes a slot in every key-value head of every block, and each slot holds a key and a value.

# %% [markdown]
# ### How many tokens fit
# **Exercise** · difficulty 2 of 5 · 6 minutes · 2 points
#
# How many slots may each head have, so that the caches of `batch` sequences fit into `n_bytes`? All sequences get the
# same number, and where memory does not hold one token of each, it is 0.


# %% exercise="kv.slots"
def slots_that_fit(n_bytes, n_blocks, n_query, n_key_value, head_size, batch, value_bytes):
    """The budget of each head, a whole number.

    n_blocks blocks have n_query query heads, which share n_key_value key-value heads of size
    head_size. A number takes value_bytes bytes. 0 where not even one token fits.
    """
    ### BEGIN SOLUTION
    bytes_per_token = 2 * n_blocks * n_key_value * head_size * value_bytes
    return n_bytes // (bytes_per_token * batch)
    ### END SOLUTION


# %%
check("kv.slots", slots_that_fit)

# %% [markdown]
# Is the memory really given back? Read the text under two policies, and count the bytes of keys and values:

# %%
for name, policy in {"full": Full(), "window": Window(64)}.items():
    found = race(model, text[:257], {name: policy}, chunk=64)[name]
    print(f"{name:<7}{found.peak_bytes / 1e6:6.2f} MB of keys and values after a pass, at most")
print(f"formula: {2 * n_layers * sizes.n_key_value * sizes.size * 4 * 64 / 1e6:.2f} MB for 64 slots")

# %% [markdown]
# ## 3. The window
#
# The simplest policy: the newest tokens stay. The cache hands it the positions of the tokens that its slots hold. The
# order of the slots says nothing, since a new token takes the place of one that left.

# %% [markdown]
# ### A window in two lines
# **Exercise** · difficulty 1 of 5 · 5 minutes · 2 points
#
# In two lines: which slots stay, when each head may keep `budget` of them, its newest? Positions may have gaps; exactly
# `budget` stay.


# %% exercise="kv.window"
def window_keep(position, budget):
    """The mask of a window.

    position: (B, H, N), of the token in each slot, all different within a head. Returns (B, H, N),
    bool, True = stays.
    """
    ### BEGIN SOLUTION
    newest = position.topk(budget, dim=-1).indices
    return (position < 0).scatter(-1, newest, True)
    ### END SOLUTION


# %%
check("kv.window", window_keep)

# %% [markdown]
# Those two lines are a policy. `course_lib/kv/policies/window.py` has the same as a score: the position itself, and the
# lowest leave. Now the model reads a text twice: with a cache that keeps everything, and with one that asks your
# function which slots stay. The picture shows the ratio of the two perplexities: some passages are harder than others,
# but they are so for both.

# %%
budget, window = 64, mine("kv.window", window_keep)
by_window = ByMask(budget, stays=lambda slots: window(slots.position.long(), budget))
found = race(model, text, {"full": Full(), "window": by_window})
plots.excess({"window": found["window"].losses}, found["full"].losses, budget)

# %% [markdown]
# Nothing is lost while the cache fills up. The collapse begins when the first token of the text leaves. Lesson 08 finds
# out why, and repairs it by keeping that token. Here we go another way: let the attention say who stays.
#
# ## 4. Few tokens receive most of the attention
#
# Add up, for every token, what all queries give to it. If all tokens were alike, each would get an even share.

# %%
statistics = attention_statistics(model, text)
plots.mass_by_rank(statistics.mass, (0, n_layers // 2, n_layers - 1))

# %% [markdown]
# Zhang and others (2023, section 3) call them **heavy hitters** and find that their mass falls like a power of the
# rank. A power is a straight line in this picture. The curves are straight in their middle at best: from the first rank
# to the second they fall steeply, and at the end they break off. Section 11 fits the middle and says from where to
# where. Who are they?

# %%
plots.who_receives(statistics.by_kind(kinds_of(text, tokenizer)))

# %% [markdown]
# And most weights are next to nothing. The paper counts those below 1 % of the largest of their row, and reports over
# 95 % of them in almost all layers of OPT. "Almost all" is read as 95 % of the layers here. The share grows with the
# text, since each row has more entries beside one largest: section 11 has the same count for texts of 1024 tokens.

# %%
sparsity = 100 * statistics.sparsity
above = int((sparsity > 95).sum())
word = verdict(of_count(above, n_layers, more_than=0.95), larger_models=True)
print(f"negligible: {sparsity.min():.0f} % to {sparsity.max():.0f} % by layer, mean {sparsity.mean():.0f} %")
print(f"Claim: over 95 % in almost all layers, on {len(text)} tokens: in {above} of {n_layers}: {word}")

# %% [markdown]
# To evict by attention we need one number for each slot. A key-value head is read by a *group* of query heads, three of
# them in this model. They share one cache, so they decide together:
#
# $$ m_j = \sum_{h \in \text{group}} \; \sum_{i} A^{(h)}_{ij} $$
#
# The sum runs over the queries $i$, not over the keys: each row of $A$ sums to 1 whatever happens.

# %% [markdown]
# ### What a key receives
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# From the attention of all query heads compute $m_j$ for each key-value head. Neighbouring query heads form a group.
# Sequences are padded: rows of queries that are not `valid` mean nothing. The mean over a group in place of its sum is
# right too, since it puts the slots of a head in the same order; a mean over the queries is not.


# %% exercise="kv.group_mass"
def group_mass(weights, valid, n_key_value):
    """What each key receives.

    weights: (B, heads, Q, N), softmax rows. valid: (B, Q), bool. Returns (B, n_key_value, N).
    """
    ### BEGIN SOLUTION
    asked = weights * valid[:, None, :, None]
    by_group = asked.unflatten(1, (n_key_value, -1))  # (B, H, G, Q, N)
    return by_group.sum(dim=(2, 3))
    ### END SOLUTION


# %%
check("kv.group_mass", group_mass)

# %% [markdown]
# On a real text: the attention of the first 96 tokens in one layer, added up by your function. Which tokens receive
# most?

# %%
received, shown = mine("kv.group_mass", group_mass), text[:96]
in_layer = attention_weights(model, shown[None])[layer][None]  # (1, query heads, queries, tokens)
for head_mass in received(in_layer, torch.ones(1, len(shown), dtype=torch.bool), sizes.n_key_value)[0]:
    shares = head_mass / head_mass.sum()
    print("  ".join(f"{tokenizer.decode(shown[i])!r} {shares[i]:.0%}" for i in shares.topk(6).indices))

# %% [markdown]
# Each line is a key-value head with the six tokens that receive most.
#
# Public implementations for older models repeat keys and values for every query head before they cache them, which
# triples this cache before anything is saved; others add scores over the sequences of a batch, so that one text
# evicts tokens of another.
#
# ## 5. H2O: accumulate and evict
#
# H2O (algorithm 1) keeps a running sum for every slot. When a token comes, its attention is added; when there are too
# many slots, the lowest sum leaves. A token that has just come has had no time to collect anything, so the newest
# `recent` tokens are safe. It looks only at what the cache has seen: no query of the future takes part. (The authors'
# code for benchmarks adds up all queries of a prompt, later ones included: an oracle, which no generation has.)

# %% [markdown]
# ### Accumulate and evict
# **Exercise** · difficulty 3 of 5 · 10 minutes · 4 points
#
# One step for all heads of a layer: add the new column sums, then choose the `budget` slots that stay. The newest
# `recent` tokens are among them; of the others the highest scores stay, whichever way ties fall.


# %% exercise="kv.h2o_step"
def h2o_step(score, new, position, budget, recent):
    """Accumulate, then evict.

    score: (H, N), sums so far, of any size, 0 for a token that has just come. new: (H, N), column
    sums of this step. position: (H, N). Returns (keep, score): (H, N), bool, True = stays; and
    (H, N), the new score of every slot that stays (those of the others may be anything).
    """
    ### BEGIN SOLUTION
    total = score + new
    safe = position.topk(recent, dim=1).indices
    worth = total.scatter(1, safe, float("inf"))
    keep = (position < 0).scatter(1, worth.topk(budget, dim=1).indices, True)
    return keep, total
    ### END SOLUTION


# %%
check("kv.h2o_step", h2o_step)

# %% [markdown]
# Now both of your functions at work on the real model: `group_mass` adds up what a chunk of queries gives to each slot,
# `h2o_step` adds that to the scores and evicts. Beside it the window, and a window with four sinks. All have 64 slots.

# %%
my_h2o = ByStep(budget, recent=budget // 2, mass=received, step=mine("kv.h2o_step", h2o_step))
policies = {"4 sinks + window": StreamingLLM(budget, sinks=4), "H2O": my_h2o}
found |= race(model, text, policies)
plots.excess(
    {name: found[name].losses for name in ("window", *policies)},
    found["full"].losses,
    budget,
)

# %% [markdown]
# H2O was not told about the first token. It found it: nobody receives more. Perplexity on running text, however, asks
# little of a memory, because most words follow from the last few. A better test asks for something far away.
#
# ## 6. A fair question
#
# Hide a sentence in a text, compress the cache, then ask for it. Many published comparisons put the question at the
# end of the prompt. That is a leak. While the prompt is read, attention is complete. The prompt's last row of logits
# then predicts the first token of the answer, and it comes from a cache from which nothing has left yet.
#
# The fair protocol ends the prompt before the question. First comes the eviction, then the question is read by what is
# left of the cache, and then the answer. The question comes right before the answer, so it is called the *prefix* of
# what is held back.

# %% [markdown]
# ### Ask after the eviction
# **Exercise** · difficulty 3 of 5 · 8 minutes · 3 points
#
# `before` are the logits of the prompt's tokens, made while everything was there; no answer may rest on them. After the
# eviction the tokens `held_back` were read: `n_prefix` (1 or more) tokens of the question, then the answer; `after` are
# their logits, row by row. Row $i$ of any logits predicts the token behind token $i$; the last row of `after` predicts
# what would come behind the answer. How many of the answer's tokens are right, counted from its first up to the first
# wrong one, in predictions made after the eviction?


# %% exercise="kv.deferred"
def leading_right(before, after, held_back, n_prefix):
    """A number of tokens.

    before: (P, V). after: (K, V). held_back: (K,), token ids.
    """
    ### BEGIN SOLUTION
    said = after[n_prefix - 1 : -1].argmax(dim=-1)
    right = said == held_back[n_prefix:]
    return int(right.long().cumprod(dim=0).sum())
    ### END SOLUTION


# %%
check("kv.deferred", leading_right)

# %% [markdown]
# Ten texts of 112 tokens, each with a secret word at a depth of 10, 30, 50, 70 or 90 %. A quarter of the slots remains.
# First the leak, with the question inside the prompt, then the fair protocol. If the full cache did not know the
# answer, the task would say nothing.

# %%
asked = samples("word", 10, 112, tokenizer, seed=0)
slots = 28
contestants = {
    "full": Full(),
    "window": Window(slots),
    "H2O": H2O(slots, recent=slots // 2),
    "SnapKV": SnapKV(slots, recent=8),
}
early = {name: retrieve(model, [each.naive() for each in asked], contestants[name]) for name in ("window", "H2O")}
late = {name: retrieve(model, asked, policy) for name, policy in contestants.items()}
protocols = {"asked in the prompt": early, "asked after the eviction": late}
shares = {protocol: {n: (r.exact, r.interval) for n, r in rows.items()} for protocol, rows in protocols.items()}
plots.answers(shares, len(asked))

# %% [markdown]
# With ten texts the intervals are wide, but the leak is not subtle. Asked in the prompt, a policy seems to know what it
# has thrown away. *SnapKV* (Li and others, 2024) scores tokens by the attention of the last few queries of the prompt:
# it is made for questions that stand there. Here the prompt ends with running text, which asks for nothing.
#
# ## 7. Scissorhands: who mattered will matter
#
# Liu and others (2023) start from another observation, **persistence of importance**. Call a token pivotal for a query
# that gives it more than $1/t$, the even share of $t$ tokens. Of the tokens that are pivotal in the second half of a
# text, nearly all were pivotal in the first: over 95 % in most layers of OPT (section 3).

# %%
persistence = statistics.persistence("any")
plots.persistence(persistence.ratio, persistence.early)

# %% [markdown]
# The second line is what chance would give: the share of all early tokens that were pivotal. Where nearly every token
# is pivotal for some query, nearly every set of tokens persists, whatever the model does. A cache can use no more than
# the distance between the two lines.
#
# The method counts, over the last $w$ queries, how often a token was *low*. When a head holds more than its budget $B$,
# the tokens with the highest counts leave, and half of the budget at once, so that evictions are rare (algorithms 1 and
# 2). Heads of a group are averaged first, which is this course's choice: the paper's models have no groups.

# %% [markdown]
# ### Count how often nobody looks
# **Exercise** · difficulty 4 of 5 · 12 minutes · 4 points
#
# A query at position $p$ has seen $t = p + 1$ tokens. A weight is low when the group's mean is below $1/t$; only
# queries that could see the token count, those at its position or behind. If there are more than `budget` slots, keep
# `budget - budget // 2`: the newest `recent` tokens, and of the others those with the lowest counts, whichever way ties
# fall. Otherwise all stay.


# %% exercise="kv.scissorhands"
def scissorhands_keep(weights, query_position, position, budget, recent):
    """Which slots of one key-value head stay.

    weights: (G, W, N), attention of the last W queries of each head of the group.
    query_position: (W,). position: (N,), N may be below the budget. Returns (N,), bool,
    True = stays.
    """
    ### BEGIN SOLUTION
    keep = position >= 0
    if len(position) <= budget:
        return keep
    low = weights.mean(dim=0) < 1 / (query_position[:, None] + 1)
    could_see = position <= query_position[:, None]
    count = (low & could_see).sum(dim=0)
    count[position.topk(recent).indices] = -1
    leaving = count.topk(len(position) - (budget - budget // 2)).indices
    return keep.index_fill(0, leaving, False)
    ### END SOLUTION


# %%
check("kv.scissorhands", scissorhands_keep)

# %% [markdown]
# **Not every layer needs as much.** Scissorhands gives later layers more, since importance persists less there. D2O
# (Wan and others, 2024) looks at the prompt: where attention is spread evenly, and its variance is small, more tokens
# are needed. It also keeps everything in three layers; "none spared" is D2O without that, so that the sums differ by
# rounding alone. Here its line is nearly flat. Scores are scaled by the largest of their head before the variance is
# taken; in most heads that is the first token's, far above all others, and beside it every variance is small.

# %%
even = slots_by_layer(model, text[:256], H2O(budget, recent=16))
rise = slots_by_layer(model, text[:256], H2O(budget, recent=16, by_layer=rising(n_layers)))
spread = slots_by_layer(model, text[:256], D2O(budget, sinks=0, recent=16, spared=()))
plots.sizes_by_layer({"even": even, "rising": rise, "D2O, none spared": spread})

# %% [markdown]
# ## 8. Merge instead of drop
#
# What leaves could be added to something similar that stays. Is there anything similar? Evict four fifths of a text as
# H2O does, and look for the nearest key and the nearest value among those that stay.

# %%
plots.nearest(nearest_that_stays(model, text[:256], 51))

# %% [markdown]
# The key of a token decides which queries read it, its value what they read. Where the nearest keys are more alike than
# the nearest values, a merged slot is found by the same queries, but they read a mixture of what the two tokens held.
#
# D2O merges an evicted token into the kept slot whose key is nearest in direction, at cosine $s$, if $s$ reaches a
# threshold. The weights are a softmax over the cosines with the kept key: $s$ for the evicted one, 1 for the kept one
# itself:
#
# $$ k \leftarrow \frac{e \cdot k + e^{s} \cdot k_\text{evicted}}{e + e^{s}} $$
#
# and the value likewise. They sum to 1. Weights that do not, as in the authors' code, shorten keys and values with
# every merge.

# %% [markdown]
# ### Merge instead of drop
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Merge one evicted token, or drop it when no cosine reaches the threshold.


# %% exercise="kv.merge"
def merge_token(key, value, keys, values, threshold):
    """The slots after one token has left.

    key, value: (D,), of the token that leaves. keys, values: (N, D), of those that stay.
    Returns (keys, values).
    """
    ### BEGIN SOLUTION
    cosine = (keys / keys.norm(dim=1, keepdim=True)) @ (key / key.norm())
    best, slot = cosine.max(dim=0)
    if best < threshold:
        return keys, values
    share = (best - 1).sigmoid()  # e^s / (e + e^s)
    keys[slot] += share * (key - keys[slot])
    values[slot] += share * (value - values[slot])
    return keys, values
    ### END SOLUTION


# %%
check("kv.merge", merge_token)

# %% [markdown]
# EMS (Li and others, 2024) looks for the kept token whose key *and* value are similar to those of the evicted one: the
# product of the two cosines must be high. (That both must be above 0 is this course's addition: two negative cosines
# have a positive product.) A token that is similar to none goes to a class of zeros: it is dropped.
# Both beside H2O, on the same text and budget:

# %%
policies = {"D2O": D2O(budget, sinks=4, recent=budget // 2), "EMS": EMS(budget, recent=budget // 2)}
found |= race(model, text, policies)
for name in ("H2O", *policies):
    times = (found[name].losses - found["full"].losses)[budget:].mean().exp()
    print(f"{name:<5} {times:.3f} times the perplexity of the full cache")

# %% [markdown]
# ## 9. Four bits on top
#
# Fewer tokens, and fewer bits for each. A key is cut into groups of neighbouring numbers; each group has a lowest value
# and a step, and every number becomes a code of 4 bits:
#
# $$ x \approx \text{low} + \operatorname{round}\left(\frac{x - \text{low}}{\text{step}}\right) \text{step}, \qquad
# \text{step} = \frac{\text{high} - \text{low}}{2^{b} - 1} $$

# %% [markdown]
# ### Four bits on top
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Round a row to the grids of its groups and return the rounded row. A group may consist of equal numbers, and a quiet
# one may have a step of a hundred-thousandth beside a loud one; steps smaller than a millionth do not occur.


# %% exercise="kv.quantize"
def quantize_row(row, n_bits, group_size):
    """The row as it comes back from so few bits.

    row: (D,), D divisible by group_size; a group is group_size neighbours. Returns (D,).
    """
    ### BEGIN SOLUTION
    groups = row.reshape(-1, group_size)
    low, high = groups.amin(dim=1, keepdim=True), groups.amax(dim=1, keepdim=True)
    step = ((high - low) / (2**n_bits - 1)).clamp(min=1e-30)
    codes = ((groups - low) / step).round()
    return (low + codes * step).reshape(row.shape)
    ### END SOLUTION


# %%
check("kv.quantize", quantize_row)

# %% [markdown]
# Your function on the real cache: the model reads 128 tokens, every key and value is rounded, and the next 64 tokens
# are read with what came back. How much does the prediction of those suffer?

# %%
rounded = mine("kv.quantize", quantize_row)
exact = losses_after(model, text[:193], 128)
for bits in (8, 4, 2):
    losses = losses_after(model, text[:193], 128, lambda vectors, bits=bits: rounded(vectors, bits, 32))
    more = losses - exact
    error = more.std() / len(more) ** 0.5
    print(f"{bits} bits: {more.mean():+.3f} ± {error:.3f} nats a token, {more.mean().exp():.3f} times the perplexity")

# %% [markdown]
# In the library this is not a policy but a way to store vectors, so it goes with any of them. There the newest 16
# tokens stay as they are until others have come: after the first token they are read most.

# %%
h2o = {"H2O": H2O(budget, recent=budget // 2)}
for bits in (8, 4):
    small = race(model, text, h2o, vectors=Quantized(bits=bits, residual=16))["H2O"]
    times = (small.losses - found["H2O"].losses)[budget:].mean().exp()
    share = small.peak_bytes / found["H2O"].peak_bytes
    print(f"{bits} bits: {share:.2f} of H2O's bytes, {times:.3f} times its perplexity")

# %% [markdown]
# ## 10. Recycled attention: nothing is lost
#
# What is evicted never comes back, and no policy knows the next question. Recycled attention (Xu and others, 2024)
# keeps everything and only *reads* little: a full step takes the tokens with the highest attention as a working set,
# the steps after it read those alone. It looks at everything again after a fixed number of steps, or when the query no
# longer resembles that of the last full step. Whether that comes in time for another question is measured in section
# 11. It is meant to save time, and **not memory**: it holds all tokens, and a copy of the working set beside them.

# %%
token, n_steps = asked[0].prompt[None], 24
with torch.no_grad(), recycling(model, Recycled(budget=slots, every=8)) as cache:
    for _ in range(1 + n_steps):  # the prompt, then token by token
        token = read(model, token, cache).argmax(dim=-1)[:, None]
n_full = cache.n_full[0] - 1  # the prompt is a full step too
print(f"{n_full} of {n_steps} steps read all {cache.get_seq_length()} tokens or nearly so, the others {slots}")
print(f"held: {cache.bytes_held / 1e6:.1f} MB; a cache that keeps every token once: {cache.bytes_of_all / 1e6:.1f} MB")

# %% [markdown]
# ## 11. The claims, measured
#
# What you have seen so far comes from one short text and a handful of needles. `course reproduce kv` measured what
# follows, with more of both.

# %%
measured = results.results()
print(printed.provenance(measured))
print(printed.attention_verdicts(measured))

# %% [markdown]
# **How much of a prompt is enough?** Every policy compresses the same prompts, and the text behind them is scored.

# %%
results.compressed(measured)

# %%
print(printed.heavy_verdict(measured))

# %% [markdown]
# The first claim is large for a simple reason: a plain window loses the first token (lesson 08). What choosing adds to
# a window that keeps its first tokens is the second claim, some twenty to thirty times smaller, and measured on six
# prompts.

# %% [markdown]
# **A stream** of a few thousand tokens in a cache of constant size. The times are of this machine and this small model,
# where the weights take most of a step.

# %%
print(printed.streams_table(measured))

# %% [markdown]
# **Who forgets what?** Words hidden at five depths, asked for after the eviction, four at each depth. With a fifth of
# the prompt hardly anybody knows more than its end; the beginning is forgotten as well as the middle.

# %%
results.by_depth(measured)

# %%
print(questions.retrieval_table(measured))

# %% [markdown]
# **Is it worth choosing?** By perplexity the window was far behind, because it had lost the first token. These
# questions say something else: beside a plain window of as many slots no policy is clearly better, and some are clearly
# worse. With 20 questions only large differences can be told.

# %%
print(questions.window_verdict(measured))

# %% [markdown]
# **The leak**, on the same needles:

# %%
results.answers(measured)

# %% [markdown]
# **Four bits on top**, against the same tokens in float32:

# %%
print(printed.bits_table(measured))

# %% [markdown]
# **A second question.** Two words in each text, asked for one after the other. An eviction cannot know the second
# question; recycled attention can look again.

# %%
results.second_needle(measured)

# %%
print(questions.recycled_verdict(measured))

# %% [markdown]
# Both ways to look again hold more bytes than the full cache does, and a look on a fixed beat finds nothing here: all
# texts are asked in the same words, and the second full step falls on the first word of the second question, before it
# has said what it asks for. The look by similarity comes after the question has turned to something else.

# %% [markdown]
# ## 12. What it costs, and when it does not pay

# %%
per_slot = 2 * n_layers * sizes.n_key_value * sizes.size * 4
weights = sum(parameter.nbytes for parameter in model.parameters())
print(f"weights {weights / 1e6:.0f} MB; a slot in every head {per_slot / 1e3:.0f} kB")
print(
    f"as many bytes as the weights: 1 sequence of {weights // per_slot:,} tokens, or 32 of {weights // per_slot // 32}"
)

# %% [markdown]
# What that means in time was measured on two cores of a server's processor with `course bench kv`: eight steps of
# decoding behind 4096 tokens, the sides in turn. The hatched bars are transformers' own cache of a text that was never
# longer than a fifth: what it would be to forget for nothing. That cache is copied at every step, while the others
# write into free slots. So they gain before anything leaves: compare with the bar of the same cache with nothing
# evicted.

# %%
speed.steps()

# %%
print(speed.prompts())

# %% [markdown]
# For one sequence, evicting four fifths at every step buys nothing over the same cache with everything in it. SnapKV is
# faster because it chose once, at the end of the prompt, and evicts nothing during these steps. Four bits save bytes
# and cost time: codes are turned back into numbers at every step. With eight sequences the cache outweighs the weights,
# and most ways gain.
#
# Choosing who leaves costs thirty small decisions a step, one a layer. All policies take `dropped`, Scissorhands' way
# out: over its budget a head loses some tokens more at once, and then has peace for as many steps.
#
# Speed comes where the cache, and not the weights, fills memory and bandwidth: large models, long texts, many
# sequences. What the authors report from there is quoted, not measured here:

# %%
print(printed.published_table())

# %% [markdown]
# - **It does not pay** where the cache is small beside the weights: one sequence, a short text. There a step reads
#   the weights, and eviction saves nothing of them (lesson 00 has the roofline).
# - **Policies that look at attention need it.** Fused attention never writes its weights down. To add up columns, a
#   prompt's weights must be computed a second time or in pieces; a window and sinks need none. During decoding there is
#   one row a step, which is nearly free.
# - **Masks save nothing.** A cache that only hides what it has evicted has all of its bytes, and as many to read. Count
#   the bytes of the tensors, and compare with a cache that was full: a budget above the length of the text evicts
#   nothing.
# - **A batch has one shape.** Heads with budgets of their own are padded to the longest; what the shorter ones save is
#   lost unless storage is ragged.
# - **What leaves cannot come back.** Perplexity of running text hardly shows it; a question about something far away
#   does. Ask it after the eviction.
#
# ## 13. An open task
#
# H2O chooses by attention, a window with sinks by age alone. Of the same number of slots, who makes better use? On
# running text the two are close, because most words follow from the last few. Find a text on which H2O loses clearly
# less: something has to be said early, stay important, and be asked for when a window has long dropped it. Or find one
# on which choosing by attention is a mistake. Write it, or let Python write it; of a long text the first 512 tokens are
# read.

# %%
my_text = " ".join(f"{i} times {j} is {i * j}." for i in range(2, 9) for j in range(2, 10))

# %%
texts = own_text.stored(load_measured("kv", "own_text")["tables"]["texts"])
print(own_text.table(texts | {"yours": own_text.contest(model, tokenizer, my_text)}))

# %% [markdown]
# The rows above yours are simple ideas, measured once (`course reproduce own_text`, where you can read the texts). The
# last column compares both caches on the same 32 tokens at a time, and says something where it is larger than twice
# its error. If your text does not do what you expected, look at what stays: `live.watch` of section 1 takes any tokens.
#
# ## To take home
#
# 1. Count the bytes of tensors that really shrink; a mask that hides tokens saves nothing.
# 2. The query heads of a group share a cache, so they decide together.
# 3. Running text hardly notices what is gone. Ask for something far away, and ask after the eviction.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>A paper compresses prompts that end with the question, keeps 10 % of them, and loses no accuracy.
# What has it shown?</summary>
#
# That the attention of the question finds its answer in the prompt before anything leaves. This helps whoever asks one
# question that is known beforehand. It says nothing about a second question, or about one that comes later.
#
# </details>
#
# <details><summary>H2O adds up attention over all queries so far. Which tokens does a plain sum favour, and what would
# be fairer?</summary>
#
# Old ones: they have been visible to more queries. Dividing by the number of queries that could see a token, or letting
# old sums fade, removes that; then a token that has just come has a high average by chance, and still needs its
# protection.
#
# </details>
#
# <details><summary>With one sequence of 500 tokens, how much faster does a step get when 80 % of this model's cache
# leaves?</summary>
#
# Hardly at all. The cache of 500 tokens takes 23 MB in float32, the weights that a step reads more than 500 MB.
#
# </details>
#
# ## Reading
#
# - Zhang and others: *H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models*, NeurIPS
#   2023, [arXiv:2306.14048](https://arxiv.org/abs/2306.14048). Algorithm 1.
# - Liu and others: *Scissorhands: Exploiting the Persistence of Importance Hypothesis for LLM KV Cache Compression at
#   Test Time*, NeurIPS 2023, [arXiv:2305.17118](https://arxiv.org/abs/2305.17118). Algorithms 1 and 2.
# - Wan and others: *D2O: Dynamic Discriminative Operations for Efficient Generative Inference of Large Language
#   Models*, 2024, [arXiv:2406.13035](https://arxiv.org/abs/2406.13035).
# - Li and others: *EMS: Adaptive Evict-then-Merge Strategy for Head-wise KV Cache Compression Based on Global-Local
#   Importance*, 2024, [arXiv:2412.08521](https://arxiv.org/abs/2412.08521).
# - Li and others: *SnapKV: LLM Knows What You are Looking for Before Generation*, 2024,
#   [arXiv:2404.14469](https://arxiv.org/abs/2404.14469).
# - Xu, Goyal, Choi: *Recycled Attention: Efficient inference for long-context language models*, 2024,
#   [arXiv:2411.05787](https://arxiv.org/abs/2411.05787).
# - Ainslie and others: *GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints*, 2023,
#   [arXiv:2305.13245](https://arxiv.org/abs/2305.13245). Where the groups come from.
