# %% [markdown]
# # 07 · KV eviction: which tokens stay in the cache
#
# A language model keeps a key and a value of every token that it has read: the key-value cache. Long texts, and many
# of them at once, fill the memory with keys and values, and each new token reads all of them. Most of what it reads
# gets hardly any attention. Which part of the cache can be evicted?
#
# **Afterwards you can** write eviction policies for a key-value cache (a window, heavy hitters, counts, merging), test
# a policy with a question that it could not foresee, and say when evicting saves time and when it saves only memory.
# **You need** lesson 00, section 3, and attention: queries, keys, values, softmax. **Time**: two hours, more than half
# of them for exercises.
#
# This lesson builds the answers that people have found, from a window in two lines to merging and four bits. Each one
# runs on a real model, with tensors that really shrink. Why the first token of a text matters so much is the subject
# of lesson 08.
#
# Of the eight functions that you will write, four go to work on the real model as soon as they are right: the window,
# the attention that a key receives, H2O's step and the rounding.

# %%
import torch

from course_lib.data import corpora
from course_lib.lessons.kv.running import live
from course_lib.lessons.kv import heavy_hitters as heavy, questions, stories as written
from course_lib.lessons.kv.running import own_text, words
from course_lib.lessons.kv.experiments.heavy import STORY
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
from course_lib.lessons.kv.running.measure import beside, nearest_that_stays, race, slots_by_layer
from course_lib.models import blocks, heads, load_model
from course_lib.data.needles import samples
from course_lib.lessons.kv import figures as plots
from course_lib.lessons.kv import measured as results
from course_lib.lessons.common import cache_speed as speed
from course_lib.lessons.common import gpu
from course_lib.lessons.common.table import Table, number, plus_minus
from course_lib.lessons.common.results import load_measured, say
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
story = tokenizer(STORY, return_tensors="pt").input_ids[0]
print(f"{n_layers} layers, {sizes.n_query} query heads on {sizes.n_key_value} key-value heads of size {sizes.size}")

# %% [markdown]
# ## 1. The idea in one picture
#
# A cache with a *budget* has room for so many tokens; each place is a *slot*, which holds one key and one value. The
# model below reads the beginning of a story, eight tokens at a time, with 32 slots in every key-value head. Each row
# of the picture is a moment: dark tokens are in the cache, light grey ones have been evicted. A window keeps the
# newest tokens. H2O (Zhang and others, 2023) keeps half of its slots for the newest, and gives the other half to those
# that have received most attention so far.

# %%
budget = 32
policies = {
    "window": Window(budget),
    "4 sinks + window": StreamingLLM(budget, sinks=4),
    "H2O": H2O(budget, recent=budget // 2),
}
histories = {name: live.watch(model, tokenizer, story, policy) for name, policy in policies.items()}
layer, head = 12, 1
kept = {name: history.kept[:, layer, head] for name, history in histories.items()}
plots.streams(kept, histories["H2O"].n_read, f"layer {layer}, head {head}")

# %% [markdown]
# The same as text: what is white on dark is in the cache, what is grey has been evicted. Every key-value head keeps
# tokens of its own, because each head looks for something else. In a running notebook there are controls above the
# text, with which you can play the stream and choose the policy, the layer and the head; an exported page shows the
# last moment under H2O. Which words stay for long?

# %%
controls = live.explore(dict(reversed(histories.items())), layer, head)

# %% [markdown]
# ## 2. What a memory holds
#
# In lesson 00 you computed how many bytes a cache takes. Now the question is the reverse: how many tokens fit into a
# given memory? A token takes a slot in every key-value head of every block. Query heads take none, because the query of
# a token is used once and never read again.

# %% [markdown]
# ### How many tokens fit
# **Exercise** · difficulty 2 of 5 · 6 minutes · 2 points
#
# How many slots may each head have, so that the caches of `batch` sequences fit into `n_bytes`? Work out first what one
# token costs. All sequences get the same number of slots; where the memory does not hold one token of each, it is 0.


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
# Does the memory really shrink? The model reads a text under two policies, and the bytes of all keys and values that
# are held after a pass are counted:

# %%
peak_memory = []
for name, policy in {"full": Full(), "window": Window(64)}.items():
    found = race(model, text[:257], {name: policy}, chunk=64)[name]
    peak_memory.append({"cache": name, "MB after a pass, at most": found.peak_bytes / 1e6})
display(Table(peak_memory, caption="Keys and values", formats={"MB after a pass, at most": number(2)}))
print(f"formula: {2 * n_layers * sizes.n_key_value * sizes.size * 4 * 64 / 1e6:.2f} MB for 64 slots")

# %% [markdown]
# ## 3. The window
#
# The simplest policy keeps the newest tokens. The cache hands it the positions of the tokens in its slots, one row for
# each head of each sequence. The order of the slots says nothing about age, because a new token takes whatever slot
# has become free.

# %% [markdown]
# ### A window in two lines
# **Exercise** · difficulty 1 of 5 · 5 minutes · 2 points
#
# Which slots stay, when each head may keep `budget` of them, its newest? Two lines are enough. Positions may have gaps,
# since other tokens have left before, but exactly `budget` slots stay.


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
# Those two lines are a policy. `course_lib/kv/policies/window.py` writes it as a score: the score of a slot is its
# position, and the slots with the lowest scores are evicted. The model now reads a text twice, once with a cache that
# keeps everything and once with one that asks your function which slots stay. The picture shows the ratio of the two
# perplexities. Some passages are harder than others, but they are equally hard for both caches, so that the ratio
# shows the cache alone.

# %%
budget, window = 64, mine("kv.window", window_keep)
by_window = ByMask(budget, stays=lambda slots: window(slots.position.long(), budget))
found = race(model, text, {"full": Full(), "window": by_window})
plots.excess({"window": found["window"].losses}, found["full"].losses, budget)

# %% [markdown]
# Nothing is lost while the cache fills up. The collapse begins when the first token of the text is evicted. Lesson 08
# finds out why, and repairs it by keeping that token. This lesson takes another way and lets the attention decide which
# tokens stay.
#
# ## 4. Few tokens receive most of the attention
#
# For every token, add up the attention that all queries give to it. If all tokens were alike, each would receive an
# even share.

# %%
statistics = attention_statistics(model, text)
plots.mass_by_rank(statistics.mass, (0, n_layers // 2, n_layers - 1))

# %% [markdown]
# Zhang and others (2023, section 3) call the tokens at the left **heavy hitters** and find that the attention they
# receive falls like a power of the rank, which is a straight line in this picture. The grey line is such a power,
# fitted to the middle layer from the second rank to half of all. Outside that range it does not fit: the first token
# stands far above it, and at the end the curves break off, because the last tokens were visible to few queries. Who
# are the heavy hitters?

# %%
plots.who_receives(statistics.by_kind(kinds_of(text, tokenizer)))

# %% [markdown]
# The paper's abstract explains the heavy hitters behind the first token: they are tokens that often occur together with
# others. Counted within a fixed reach, each occurrence has the same number of neighbours, so a token that occurs often
# also occurs often with others, and we may count occurrences. But then one part of the claim is true by arithmetic: ten
# occurrences of "the" collect more than one of them. The other part is not: does a *single* occurrence of a frequent
# token receive more than one of a rare token? We count both in four texts. What a token receives is divided by what it
# would receive if every query spread its attention evenly; the first token and the last quarter are left out.

# %%
passages = words.counted(
    model, tokenizer.decode, corpora.windows("wikipedia", 4, 384, tokenizer, split="evaluation", seed=0)
)
say(words.said(passages))
words.drawn(passages[1])

# %% [markdown]
# The sum, which is what H2O ranks by, follows how often a token occurs; a single occurrence follows it weakly. The word
# "the" is a heavy hitter for both reasons: there are many of it, and each single one receives more than an even share.
# `course reproduce heavy` counted the same in twice as many texts:

# %%
say(words.committed())

# %% [markdown]
# Since few tokens receive most, most weights are next to nothing. The paper counts a weight as negligible when it is
# below 1 % of the largest of its row, and reports that over 95 % of them are, in almost all layers of OPT. "Almost
# all" is read as 95 % of the layers here. The share grows with the length of the text, because each row has more
# entries beside its one largest; section 11 has the same count for texts of 1024 tokens.

# %%
sparsity = 100 * statistics.sparsity
above = int((sparsity > 95).sum())
word = verdict(of_count(above, n_layers, more_than=0.95), larger_models=True)
print(f"negligible: {sparsity.min():.0f} % to {sparsity.max():.0f} % by layer, mean {sparsity.mean():.0f} %")
say(f"Claim: over 95 % in almost all layers, on {len(text)} tokens: in {above} of {n_layers}: {word}")

# %% [markdown]
# That is counted over all heads of a layer. EMS, which section 7 describes, starts from the observation that heads
# differ in how sparse their attention is, and in how redundant their keys are, that is how much one key is like
# another. If so, one budget for all heads is too large for some and too small for others. Each dot is a head:

# %%
plots.by_head(statistics.sparsity_by_head)

# %% [markdown]
# Some head of nine always comes first, even where all are alike. So `course reproduce heavy` chose the first and the
# last head of each layer on one half of its texts, and compared them on the other half. Redundancy is measured as the
# cosine of a key with the one before it that is most like it.

# %%
say(heavy.heads_verdict())

# %% [markdown]
# If 95 % of the weights are negligible, are the other 5 % enough, and could a cache be 20 times smaller, as the talk on
# H2O concludes? `course reproduce heavy` tried it with an oracle: each query reads only its own largest weights, as
# many as 5, 10 or 20 % of the tokens it can see. No cache can do that, since it does not know the next query; what the
# oracle loses is the least that any policy of that size could hope for. And what happens when the heavy hitters are
# what is missing? A second measurement hides a share of the tokens of every head from all later queries: those that
# receive most, the same but for the first token, or as many drawn at random.

# %%
say(heavy.provenance())
display(heavy.enough_table())
say(heavy.enough_verdict())
heavy.masked()

# %%
say(heavy.masked_verdict())

# %% [markdown]
# To evict by attention we need one number for each slot. A key-value head is read by a *group* of query heads, three of
# them in this model (grouped-query attention). The heads of a group share one cache, so they have to decide together.
# The attention that key $j$ receives is summed over them and over the queries $i$:
#
# $$ m_j = \sum_{h \in \text{group}} \; \sum_{i} A^{(h)}_{ij} $$
#
# A sum over the keys instead would tell nothing, since each row of $A$ sums to 1.

# %% [markdown]
# ### What a key receives
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# From the attention of all query heads compute $m_j$ for each key-value head. Neighbouring query heads form a group.
# Shorter sequences of a batch are padded, and the rows of queries that are not `valid` hold numbers without meaning.
# The mean over a group in place of its sum is right too, since it puts the slots of a head in the same order; a mean
# over the queries is not, because sums of several passes are added up later.


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
# Your function adds up the attention of the story of section 1 in one layer. Which tokens receive most?

# %%
received, shown = mine("kv.group_mass", group_mass), story
in_layer = attention_weights(model, shown[None])[layer][None]  # (1, query heads, queries, tokens)
for head_mass in received(in_layer, torch.ones(1, len(shown), dtype=torch.bool), sizes.n_key_value)[0]:
    shares = head_mass / head_mass.sum()
    print("  ".join(f"{tokenizer.decode(shown[i])!r} {100 * shares[i]:.0f} %" for i in shares.topk(6).indices))

# %% [markdown]
# Each line is a key-value head with the six tokens that receive most.
#
# Two mistakes in public implementations arise at this step. Some repeat keys and values for every query head before
# they cache them, which triples the cache of this model before anything is saved. Others add up scores over the
# sequences of a batch, so that one text evicts tokens of another.
#
# ## 5. H2O: accumulate and evict
#
# H2O (algorithm 1) keeps a running sum for every slot. When a token comes, its attention is added to the sums of the
# slots that it reads; when there are too many slots, the lowest sum is evicted. A token that has just come has had no
# time to collect anything, so the newest `recent` tokens are protected. Later queries play no part in the choice. (The
# authors' code for benchmarks adds up all queries of a prompt, later ones included. That is an oracle, because a cache
# has to choose before those queries have come.)
#
# H2O's abstract calls this a dynamic submodular problem and claims a guarantee under mild assumptions. A function of
# sets is *submodular* when a token adds less, the more others are already there. If more tokens also never hurt,
# choosing greedily, the best token at each step, cannot end far from the best set. We do not measure whether the
# attention of a trained model meets these assumptions.

# %% [markdown]
# ### Accumulate and evict
# **Exercise** · difficulty 3 of 5 · 10 minutes · 4 points
#
# Write one step for all heads of a layer: add the new column sums, then choose the `budget` slots that stay. The newest
# `recent` tokens are among them; of the others the highest scores stay. Where scores are equal, any of them may stay,
# but never more than `budget` slots.


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
# Both of your functions now work together on the real model: `group_mass` adds up what a chunk of queries gives to each
# slot, `h2o_step` adds that to the scores and evicts. H2O is compared with the window, and with a window that also
# keeps the first four tokens, its *sinks*: StreamingLLM (Xiao and others, 2023). All have 64 slots.

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
# Nobody told H2O about the first token. It keeps this token because no other receives more attention.
#
# **A sum favours the old.** A token that came early has been visible to more queries, so its sum has had more time to
# grow. The paper's score is that sum; dividing it by the number of queries that could see the token gives a mean, which
# is the option `normalised` of the library's `H2O`. The left panel shows which tokens both choose, the right one
# whether the mean predicts better what follows the prompt.

# %%
heavy.bias()

# %% [markdown]
# **What it writes.** The talk on H2O shows three continuations of one story and says that H2O repeats fewer words than
# the full cache. Here is the same experiment with our model and our story, always taking the most likely token. A
# cache that evicts has slots for 20 % of the prompt.

# %%
print(written.stories())

# %% [markdown]
# One story is an anecdote, so the same was done behind twelve articles. The second column counts how many of the
# written tokens differ from each other; the third says how surprising the text is to the full cache, which alone has
# read all of the prompt.

# %%
display(written.written_table())
say(written.written_verdict())

# %% [markdown]
# Differing tokens are no sign of quality by themselves: a text that loses its thread repeats itself little. Perplexity
# on running text does not demand much of a memory either, because most words follow from the last few. A better test
# asks for something that was said long before.
#
# ## 6. A fair question
#
# The usual test hides a sentence in a text, compresses the cache, and then asks for the sentence. Many published
# comparisons put the question at the end of the prompt, and that leaks the answer: while a prompt is read, attention is
# complete. The last row of the prompt's logits, which predicts the first token of the answer, comes from a cache from
# which nothing has been evicted yet.
#
# The fair protocol ends the prompt before the question. First comes the eviction, then the question is read by what is
# left of the cache, and then the answer. Question and answer are *held back* until then. The question comes right
# before the answer, so it is called the *prefix* of what is held back.

# %% [markdown]
# ### Ask after the eviction
# **Exercise** · difficulty 3 of 5 · 8 minutes · 3 points
#
# Your function gets two sets of logits. `before` holds those of the prompt's tokens, computed while the cache was
# complete; a fair count must not rest on them. After the eviction the tokens `held_back` were read, first `n_prefix`
# (1 or more) tokens of the question, then the answer, and `after` holds their logits. Row $i$ of any logits predicts
# the token behind token $i$, so the last row of `after` predicts what would come behind the answer. How many of the
# answer's tokens are right, counted from its first up to the first wrong one, in predictions made after the eviction?


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
# Ten texts of 112 tokens each hide a secret word at a depth of 10, 30, 50, 70 or 90 %, and slots for a quarter of the
# tokens remain. The dark bars put the question into the prompt, the others follow the fair protocol. The full cache
# has to know the answer; otherwise the task would say nothing. Only the window and H2O are asked in both ways: the
# full cache evicts nothing, so both are the same for it, and SnapKV is the subject of the text below.

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
# With ten texts the intervals are wide, but the leak is too large to be missed: when the question stands in the prompt,
# a policy seems to know what it has thrown away.
#
# *SnapKV* (Li and others, 2024) compresses prompts and nothing else. Once, at the end of the prompt, it scores every
# token by the attention of the last few queries, spreads the scores over neighbouring tokens, so that phrases stay
# together, and evicts the rest; tokens that are generated later all stay. This suits a long prompt that ends with its
# question, since the last queries then are those of the question. Here the prompt ends with running text, which does
# not ask for anything, so SnapKV's choice is no better than that of the others.
#
# ## 7. Scissorhands: who mattered will matter
#
# Liu and others (2023) start from another observation, **persistence of importance**. They call a token *pivotal* for a
# query that gives it more than $1/t$, which is the even share of $t$ tokens. Of the tokens that are pivotal in the
# second half of a text, nearly all were pivotal in the first: over 95 % in most layers of OPT (section 3).

# %%
persistence = statistics.persistence("any")
plots.persistence(persistence.ratio, persistence.early)

# %% [markdown]
# The second line is what chance would give: the share of all early tokens that were pivotal. Where nearly every token
# is pivotal for some query, nearly every set of tokens persists, whatever the model does. A cache can use no more than
# the distance between the two lines.
#
# The method counts, over the last $w$ queries, how often the weight of a token was *low*, below its even share. When a
# head holds more than its budget $B$, it evicts the tokens with the highest counts, and half of the budget at once, so
# that evictions are rare (algorithms 1 and 2). The heads of a group are averaged first, which is this course's choice,
# because the paper's models have no groups.

# %% [markdown]
# ### Count how often nobody looks
# **Exercise** · difficulty 4 of 5 · 12 minutes · 4 points
#
# A query at position $p$ has seen $p + 1$ tokens, some of which have left since. A weight is low when the group's mean
# is below the even share of all tokens that the query has seen, and not low when it equals that share; only queries
# that could see the token count, those at its position or later. If there are more than `budget` slots, keep
# `budget - budget // 2` of them: the newest `recent` tokens, and of the others those with the lowest counts, whichever
# way ties fall. Otherwise all stay.


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
# **Other scores.** Three more policies appear in the tables of section 11. *TOVA* (Oren and others, 2024) has no memory
# at all: a token's score is the attention of the newest query alone, averaged over all heads, and all heads keep the
# same tokens. *StreamingH2O* is H2O for endless texts: it evicts inside the prompt too, and counts positions in slots,
# so that no position is ever larger than the cache (lesson 08 shows why that matters). *EMS* (Li and others, 2024)
# answers the bias of a sum with a *Global-Local score*: beside the attention that a token has received ever, it
# counts what the last queries gave it. With $g_j$ and $l_j$ for the two sums this course takes
#
# $$ \text{score}_j = \frac{g_j}{\operatorname{mean}(g)} + \frac{l_j}{\operatorname{mean}(l)} $$
#
# The abstract names the two parts; dividing each by its mean, so that both weigh the same, is our reading of it.
#
# **Not every layer needs as much.** Scissorhands gives later layers more slots, because importance persists less there.
# D2O (Wan and others, 2024) looks at the prompt: where attention is spread evenly, its variance is small, and more
# tokens are needed. EMS goes further and compresses every head by itself. D2O also keeps everything in three layers;
# "none spared" in the picture is D2O without that exception, so that all three ways share out the same number of slots
# but for rounding. Here D2O's line is nearly flat, for this reason: before the variance is taken, scores are scaled by
# the largest of their head, which in most heads is that of the first token, far above all others, and beside it every
# variance is small.

# %%
even = slots_by_layer(model, text[:256], H2O(budget, recent=16))
rise = slots_by_layer(model, text[:256], H2O(budget, recent=16, by_layer=rising(n_layers)))
spread = slots_by_layer(model, text[:256], D2O(budget, sinks=0, recent=16, spared=()))
plots.sizes_by_layer({"even": even, "rising": rise, "D2O (none spared)": spread})

# %% [markdown]
# ## 8. D2O and EMS: add it to a neighbour
#
# A token that is evicted could be added to a similar one that stays. Is there a similar one? The next cell evicts four
# fifths of a text as H2O does, and looks for the nearest key and the nearest value among those that stay.

# %%
plots.nearest(nearest_that_stays(model, text[:256], 51))

# %% [markdown]
# The key of a token decides which queries read it, its value what they read. Where the nearest keys are more alike than
# the nearest values, a merged slot is found by the same queries, but they read a mixture of what the two tokens held.
#
# D2O merges an evicted token into the kept slot whose key is nearest in direction, if their cosine $s$ reaches a
# threshold. The merged key is a weighted mean of the two. Its weights are a softmax over the cosines with the kept key,
# where the evicted key has the cosine $s$; what cosine has the kept key with itself? The value is merged with the same
# weights.

# %% [markdown]
# ### Merge instead of drop
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Merge one evicted token into the nearest slot if its cosine is at least the threshold; otherwise drop it. The formula
# of the mean is left to you.


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
# <details><summary>The mean as a formula</summary>
#
# The kept key has the cosine 1 with itself, so the softmax gives
#
# $$ k \leftarrow \frac{e \cdot k + e^{s} \cdot k_\text{evicted}}{e + e^{s}} $$
#
# </details>
#
# The weights of the mean sum to 1. Weights that do not, as in the authors' code, shorten keys and values with every
# merge. The threshold of D2O is not fixed. It is a moving average of how similar the evicted tokens have been lately,
# $\tau \leftarrow \tfrac12 \tau + \tfrac12 \operatorname{mean}(s)$, so that in every text some tokens are similar
# enough.
#
# EMS looks for the kept token whose key *and* value are similar to those of the evicted one: the product of the two
# cosines must be high. (That both must be above 0 is this course's addition, because two negative cosines have a
# positive product.) A token that is similar to none goes to a class of zeros, which means that it is dropped; so every
# head can be handled by the same operation, however many of its tokens are merged. Both policies are compared with H2O
# on the same text and budget:

# %%
policies = {"D2O": D2O(budget, sinks=4, recent=budget // 2), "EMS": EMS(budget, recent=budget // 2)}
found |= race(model, text, policies)
for name in ("H2O", *policies):
    print(f"{name} beside the full cache: {beside(found[name].losses, found['full'].losses, budget)}")

# %% [markdown]
# ## 9. Fewer bits for what stays
#
# A cache of fewer tokens can also spend fewer bits on each. A key is cut into groups of neighbouring numbers, and each
# group gets a grid of its own: as many evenly spaced levels as $b$ bits can number, the lowest at the smallest number
# of the group, the highest at the largest. Only the number of the level is stored for each entry, and for each group
# where its grid begins and how far apart its levels are.

# %% [markdown]
# ### Four bits on top
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Round a row to the grids of its groups, each number to the nearest level, and return the rounded row. How many levels
# are there, and how many steps between them? A group may consist of equal numbers, and the levels of a group of small
# numbers may be a hundred-thousandth apart; steps smaller than a millionth do not occur.


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
# <details><summary>The rounding as a formula</summary>
#
# With a step of $(\text{high} - \text{low}) / (2^b - 1)$ a number becomes
# $\text{low} + \operatorname{round}((x - \text{low}) / \text{step}) \cdot \text{step}$.
#
# </details>
#
# Now your function works on the real cache: the model reads 128 tokens, every key and value is rounded, and the next 64
# tokens are read with what came back. How much does their prediction suffer?

# %%
rounded = mine("kv.quantize", quantize_row)
exact = losses_after(model, text[:193], 128)
by_bits = []
for bits in (8, 4, 2):
    losses = losses_after(model, text[:193], 128, lambda vectors, bits=bits: rounded(vectors, bits, 32))
    more = losses - exact
    loss = {"loss increase (nats per token)": more.mean().item(), "error": (more.std() / len(more) ** 0.5).item()}
    by_bits.append({"bits": bits} | loss | {"times the perplexity": more.mean().exp().item()})
Table(
    by_bits,
    caption="What rounding keys and values costs",
    formats={
        ("loss increase (nats per token)", "error"): plus_minus(3, sign=True),
        "times the perplexity": number(3),
    },
)

# %% [markdown]
# In the library this is not a policy but a way to store vectors, so it can be combined with every policy. There the
# newest 16 tokens are not rounded until others have come, because after the first token they are read most.

# %%
h2o = {"H2O": H2O(budget, recent=budget // 2)}
for bits in (8, 4):
    small = race(model, text, h2o, vectors=Quantized(bits=bits, residual=16))["H2O"]
    share = small.peak_bytes / found["H2O"].peak_bytes
    print(f"{bits} bits: {share:.2f} of H2O's bytes; {beside(small.losses, found['H2O'].losses, budget)}")

# %% [markdown]
# ## 10. Recycled attention: nothing is lost
#
# What is evicted never comes back, and no policy knows the next question. Recycled attention (Xu and others, 2024)
# therefore keeps everything and only *reads* less. A full step reads all tokens and takes those with the highest
# attention as a working set; the steps after it read the working set alone. The next full step comes after a fixed
# number of steps, or when the query no longer resembles that of the last full step. Whether it comes in time for
# another question is measured in section 11. The method is meant to save time, and **not memory**: it holds all
# tokens, and a copy of the working set beside them.

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
# The live cells so far used one short text and ten hidden words. `course reproduce kv` measured what follows, with more
# of both.

# %%
measured = results.results()
say(printed.provenance(measured))
say(printed.attention_verdicts(measured))
say(printed.heavy_tokens(measured))

# %% [markdown]
# The last line names the heavy hitters of one text. Whether they are the frequent tokens, as H2O's abstract says, was
# counted in section 4.
#
# **How much of a prompt is enough?** Every policy compresses the same prompts, and the text behind each is predicted
# from what is left.

# %%
results.compressed(measured)

# %%
display(printed.heavy_table(measured))
say(printed.heavy_verdict(measured))

# %% [markdown]
# The first claim is large for a simple reason: a plain window loses the first token (lesson 08). The second claim asks
# what choosing by attention adds to a window that keeps its first tokens: some twenty to thirty times less. At the
# smallest budget, six prompts do not decide it.

# %% [markdown]
# **A stream** of 1280 tokens in a cache of 256 slots, which is full after a fifth of it. (D2O holds more, because it
# spares three layers. The stream is read sixteen tokens at a time, and SnapKV takes each such pass for a prompt.) The
# times are of this machine and this small model, where the weights take most of a step.

# %%
printed.streams_table(measured)

# %% [markdown]
# All policies read the same text, so the third column compares them with the full cache block by block, and differences
# of one to three per cent are significant: their 95 % intervals do not contain zero. That is a statement about this one
# text: it says that something was lost, and not that a reader would notice. Another text of the same length moves the
# perplexity by more (the errors of the second column). Only the plain window is worse in a way that shows.
#
# **Who forgets what?** Words were hidden at five depths, four at each, and asked for after the eviction. With a fifth
# of the prompt hardly any policy knows more than its end; the beginning is forgotten as well as the middle.

# %%
results.by_depth(measured)

# %%
questions.retrieval_table(measured)

# %% [markdown]
# **Is it worth choosing?** By perplexity the window was far behind, because it had lost the first token. These
# questions say something else: beside a plain window of as many slots no policy is clearly better, and some are clearly
# worse. With 20 questions only large differences can be told.

# %%
say(questions.window_verdict(measured))

# %% [markdown]
# **The leak**, on the same needles:

# %%
results.answers(measured)

# %% [markdown]
# **Four bits on top**, against the same policy with every number in float32. The newest tokens are rounded only when
# others have come. In a small cache they are a large part, and four bits take far more than an eighth of its bytes:

# %%
printed.bits_table(measured)

# %% [markdown]
# **A second question.** Each text hides two words, which are asked for one after the other. A policy that evicts cannot
# know the second question, while recycled attention can look again.

# %%
results.second_needle(measured)

# %%
display(questions.second_question_table(measured))
say(questions.recycled_verdict(measured))

# %% [markdown]
# Both ways to look again hold more bytes than the full cache does. A full step after a fixed number of steps finds
# nothing here, for a reason that is special to this test: all texts are asked in the same words, and the second full
# step falls on the first word of the second question, before it has said what it asks for. The full step by similarity
# comes later, when the question has turned to something else.

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
# decoding behind 4096 tokens, with the contestants in turn. The hatched bars are transformers' own: `StaticCache`,
# whose slots are reserved beforehand, and `DynamicCache` behind a text that was only a fifth as long, which is what
# evicting would gain if it cost nothing. `DynamicCache` is copied at every step, while the course's caches write into
# free slots as `StaticCache` does, so they gain before anything is evicted. The fair comparison is therefore with the
# bar of the same cache with nothing evicted.

# %%
speed.steps()

# %%
speed.prompts()

# %% [markdown]
# For one sequence, evicting four fifths gains far less than a factor of five over the same cache with everything in
# it, because a step still reads all weights. SnapKV gains more because it chose once, at the end of the prompt, and
# evicts nothing during these steps. Four bits save bytes and cost time: codes are turned back into numbers at every
# step. With eight sequences the cache outweighs the weights, and evicting gains more.
#
# To choose what is evicted takes thirty small decisions in every step, one for each layer. All policies therefore have
# the option `dropped`, after Scissorhands: a head over its budget evicts several tokens at once, and needs no further
# decision for as many steps.
#
# Evicting saves time where the cache, and not the weights, fills memory and bandwidth: with large models, long texts
# and many sequences. What the authors report from there is quoted, not measured here:

# %%
display(printed.published_speed())
display(printed.published_claims())

# %% [markdown]
# - **It does not pay** where the cache is small beside the weights: one sequence, a short text. There a step reads
#   the weights, and eviction saves nothing of them (lesson 00 has the roofline).
# - **Policies that look at attention need its weights.** Fused attention never writes them down. To add up columns, a
#   prompt's weights must be computed a second time or in pieces; a window and sinks need none. During decoding there is
#   one row a step, which is nearly free.
# - **Masks save nothing.** A cache that only hides what it has evicted still holds and reads all of its bytes. Count
#   the bytes of the tensors, and compare with a cache that was full: a budget above the length of the text evicts
#   nothing.
# - **A batch has one shape.** Heads with budgets of their own are padded to the longest of them, so the memory that the
#   shorter ones save is lost, unless the tensors are stored with a length for each head.
# - **What is evicted cannot come back.** Perplexity of running text hardly shows it; a question about something far
#   away does. Ask it after the eviction.
#
# On a GPU even that row is a matter of how it is written: a step of attention alone, over all of a text and over a
# fifth of it, without the weights that H2O adds up and with them; then the sums over a prompt's columns, where the
# kernel is given the logarithm of each query's sum, which fused attention knows.

# %%
print(gpu.provenance())
steps = ("batch 1, slots 1638", "batch 1, slots 8192", "batch 32, slots 1638", "batch 32, slots 8192")
display(gpu.table("decode_attention", contests=steps))
say(gpu.everywhere("decode_attention", "kernel, with weights"))
gpu.table("attention_mass", contests=("tokens: 4096",))

# %% [markdown]
# Writing the weights down, as plain torch must, costs more than torch's fused attention in every contest. A kernel that
# adds them up on the way (`kernels/cache/`) takes less time than plain torch wherever it was timed. A fifth of
# the slots has a fifth of the bound. With one sequence the time of torch's ways does not fall as far, because so little
# work does not fill the chip. With 32 the fused step comes nearer to it. (*Rolling*: keys are turned to their place in
# the cache at every step.)
#
# ## 13. An open task
#
# H2O chooses by attention, a window with sinks by age alone. Which of them makes better use of the same number of
# slots? On running text the two are close, because most words follow from the last few. Find a text on which H2O loses
# clearly less: something has to be said early, stay important, and be asked for when a window has long dropped it. Or
# find one on which choosing by attention is a mistake. Write the text, or let Python write it; at most its first 512
# tokens are read.

# %%
my_text = " ".join(f"{i} times {j} is {i * j}." for i in range(2, 9) for j in range(2, 10))

# %%
texts = own_text.stored(load_measured("kv", "own_text")["tables"]["texts"])
own_text.table(texts | {"yours": own_text.contest(model, tokenizer, my_text)})

# %% [markdown]
# The rows above yours are simple ideas, measured once with `course reproduce own_text`; the texts stand in
# `course_lib/lessons/kv/experiment_own_text.py`. The last column compares both caches on the same 32 tokens at a time,
# and says something where it is larger than twice its error. If your text does not do what you expected, look at what
# stays: `live.watch` of section 1 takes any tokens.
#
# ## To take home
#
# 1. Count the bytes of the tensors: they must really shrink, since a mask that only hides tokens saves nothing.
# 2. The query heads of a group share a cache, so they decide together.
# 3. The perplexity of running text hardly shows what is missing. Ask for something that was said long before, and
#    ask after the eviction.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>A paper compresses prompts that end with the question, keeps 10 % of them, and loses no accuracy.
# What has it shown?</summary>
#
# That the attention of the question finds the answer in the prompt before anything is evicted. This helps whoever asks
# one question that is known beforehand. It says nothing about a second question, or about one that comes later.
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
# - Oren and others: *Transformers are Multi-State RNNs*, 2024,
#   [arXiv:2401.06104](https://arxiv.org/abs/2401.06104). TOVA.
# - Li and others: *SnapKV: LLM Knows What You are Looking for Before Generation*, 2024,
#   [arXiv:2404.14469](https://arxiv.org/abs/2404.14469).
# - Xu, Goyal, Choi: *Recycled Attention: Efficient inference for long-context language models*, 2024,
#   [arXiv:2411.05787](https://arxiv.org/abs/2411.05787).
# - Ainslie and others: *GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints*, 2023,
#   [arXiv:2305.13245](https://arxiv.org/abs/2305.13245). Where the groups come from.
