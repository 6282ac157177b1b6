# %% [markdown]
# # 07 · KV eviction: which tokens stay in the cache
#
# To predict the next token, a language model reads the keys and values of all tokens before it. They are stored in the
# **key-value cache** (KV cache), which grows with every token. Long texts and large batches fill the memory of a GPU
# with keys and values. At the same time most of them receive hardly any attention. **KV eviction** removes the keys and
# values of some tokens permanently. In this lesson we ask which tokens to evict, and what the model loses.
#
# We start with the simplest rule, a window of the newest tokens, and see it fail. Then you write the parts of **H2O**
# (heavy-hitter oracle; Zhang and others, 2023), which keeps the tokens that have received the most attention. A
# function of about 30 lines combines your parts into a cache that evicts while the real model reads. At the end we ask
# the model for something that may have been evicted.
#
# **Afterwards you can** write a KV cache that evicts, turn attention weights into one score per cached token, test a
# policy with a question that it could not foresee, and say when eviction saves time and when it saves only memory.
#
# **You need** lesson 00, sections 1, 3 and the end of section 4 (what the verdict on a claim means), and attention:
# queries, keys, values, softmax. The *loss* of a prediction is minus the natural logarithm of the probability of the
# right token, in nats. The *perplexity* of a text is the exponential of its mean loss (lesson 01).
#
# **Time**: the core path, sections 1 to 8, takes about two hours, 39 minutes of it for exercises. The optional sections
# 9 to 14 take a little over an hour and a half, 30 minutes of it for exercises.

# %%
import torch
from transformers import AttentionInterface, DynamicCache

from course_lib.data import corpora, needles
from course_lib.kv.cache import evicting
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.lessons.common import cache_speed, gpu
from course_lib.lessons.kv import claims, plots, steps, tables, widgets
from course_lib.measure.paired import wilson
from course_lib.models import load_model
from course_lib.workbook import check, mine

# %% [markdown]
# The model is SmolLM2-135M-Instruct. It uses **grouped-query attention** (Ainslie and others, 2023): several query
# heads share one **key-value head**, and only key-value heads have a cache. The text is a piece of Wikipedia with 384
# tokens.

# %%
model, tokenizer = load_model()
(text,) = corpora.windows("wikipedia", 1, 384, tokenizer, split="evaluation", seed=0)  # 384 tokens
n_layers, n_key_value_heads = model.config.num_hidden_layers, model.config.num_key_value_heads
n_query_heads, size_of_head = model.config.num_attention_heads, model.config.head_dim
print(f"{n_layers} layers, each with {n_query_heads} query heads and {n_key_value_heads} key-value heads")
print(f"size of a head: {size_of_head}")

# %% [markdown]
# ## 1. The idea in one picture
#
# We give the cache of every key-value head a fixed number of **slots**, its **budget**. A slot holds the key and the
# value of one token. When there are more tokens than slots, an **eviction policy** decides which tokens are kept.
#
# The next cell reads the beginning of a story, eight tokens at a time, with a budget of 32 slots and three policies:
#
# - a **window** keeps the newest tokens;
# - **4 sinks + window** always keeps the first four tokens as well, which are called *attention sinks* (StreamingLLM,
#   Xiao and others, 2023; lesson 08);
# - **H2O** uses half of its slots for the newest tokens, and the other half for the tokens that have received the most
#   attention so far.

# %%
story = tokenizer(steps.STORY, return_tensors="pt").input_ids[0]
three_policies = {"window": Window(32), "4 sinks + window": StreamingLLM(32, sinks=4), "H2O": H2O(32, recent=16)}
histories = {name: widgets.watch(model, tokenizer, story, policy) for name, policy in three_policies.items()}
kept_in_head = {name: history.kept[:, 12, 1] for name, history in histories.items()}  # layer 12, head 1
plots.streams(kept_in_head, histories["H2O"].n_read, "layer 12, head 1")

# %% [markdown]
# From left to right are the tokens of the story, and time runs downwards: each row shows the cache after eight more
# tokens. Dark tokens are in the cache, light grey ones have been evicted, and white ones have not been read yet. In the
# left panel a band of constant width moves to the right. In the middle panel there is also a vertical line at the left
# edge, the four sinks. In the right panel look at the other vertical lines: these tokens are old, but H2O keeps them
# because they have received much attention. The title counts them at the end: 15 of the 32 tokens that H2O has kept
# are not among the newest 32.
#
# The next view shows the same as text. Tokens in the cache are white on dark, evicted tokens are grey. In a running
# notebook you can play the text and choose the policy, the layer and the head. An exported page shows the last moment
# with H2O. Each key-value head keeps its own tokens. Which words stay for a long time? In this head, for example, the
# first four words, *The lighthouse keeper had*, are still in the cache at the end.

# %%
controls = widgets.explore(dict(reversed(histories.items())), 12, 1)

# %% [markdown]
# ## 2. How many tokens fit?
#
# In lesson 00 you computed the bytes of a cache from the number of tokens. Now we ask the reverse: the memory is given,
# so how large can the budget be? Every token needs one slot in each key-value head of each layer (in this lesson a
# *layer* is a whole transformer block). Query heads need no slots, because a query is used once and then thrown away.

# %% [markdown]
# ### How many tokens fit
# **Exercise** · difficulty 2 of 5 · 6 minutes · 2 points
#
# How many slots can each head have, so that the caches of `batch` sequences fit into `n_bytes`? First work out what one
# token costs. All sequences get the same number of slots. If the memory does not hold one token of each sequence, the
# answer is 0 (rounding down gives this).


# %% exercise="kv.slots"
def slots_that_fit(n_bytes, n_blocks, n_query, n_key_value, head_size, batch, value_bytes):
    """Compute the budget of each head, an integer.

    Each of the n_blocks transformer blocks has n_query query heads that share n_key_value
    key-value heads of size head_size. A number takes value_bytes bytes.
    """
    ### BEGIN SOLUTION
    bytes_per_token = 2 * n_blocks * n_key_value * head_size * value_bytes
    return n_bytes // (bytes_per_token * batch)
    ### END SOLUTION


# %%
check("kv.slots", slots_that_fit)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# One token of one sequence needs a key and a value in each key-value head of each block:
#
# $$ \text{bytes per token} = 2 \cdot \text{blocks} \cdot \text{key-value heads} \cdot \text{head size} \cdot
# \text{bytes per number} $$
#
# The batch needs this once per sequence, so we divide the memory by both and round down. For example, our model has
# 30 blocks and 3 key-value heads of size 64. In float32 a token takes $2 \cdot 30 \cdot 3 \cdot 64 \cdot 4 =
# 46{,}080$ bytes, so 1 GB holds 21,701 tokens of one sequence, or 678 tokens of each of 32 sequences.
#
# </details>
#
# Does the real model use as many bytes? The next function reads the text through any cache, 16 tokens per forward
# pass, and returns the loss of each prediction. We will use it for all caches of this lesson. `DynamicCache` is the
# usual cache of the transformers library, which keeps everything.


# %%
@torch.no_grad()
def losses_through(cache, token_ids=text, chunk=16):
    """Read a text in chunks; return the loss of every prediction in nats."""
    losses = []
    for start in range(0, len(token_ids) - 1, chunk):
        end = min(start + chunk, len(token_ids) - 1)
        logits = model(token_ids[None, start:end], past_key_values=cache).logits[0]
        losses.append(torch.nn.functional.cross_entropy(logits, token_ids[start + 1 : end + 1], reduction="none"))
    return torch.cat(losses)


full_cache = DynamicCache(config=model.config)
full_losses = losses_through(full_cache)
bytes_in_cache = sum(layer.keys.nbytes + layer.values.nbytes for layer in full_cache.layers)
print(f"{full_cache.get_seq_length()} tokens take {bytes_in_cache / 1e6:.2f} MB")
print(f"perplexity {full_losses.mean().exp():.1f}")

# %% [markdown]
# The cache holds 383 tokens, because the last token of the text is only predicted. $383 \cdot 46{,}080$ bytes are the
# 17.65 MB that the cell counts. This loss with the full cache is the **baseline** of the lesson: no policy can be
# expected to do better with fewer tokens.
#
# ## 3. The window
#
# The simplest policy keeps the newest tokens. The cache gives it the positions of the tokens in its slots, one row for
# each head of each sequence. The order of the slots says nothing about age: in the course's library a new token takes
# any slot that is free.

# %% [markdown]
# ### A window in two lines
# **Exercise** · difficulty 1 of 5 · 5 minutes · 2 points
#
# Which slots are kept if each head keeps its newest `budget` tokens? Two lines are enough. Every head has at least
# `budget` slots, and keeps exactly `budget` of them. Positions may have gaps, since other tokens have been evicted
# before.


# %% exercise="kv.window"
def window_keep(position, budget):
    """Choose the slots that a window keeps.

    position: (B, H, N), of the token in each slot, all different within a head.
    Returns (B, H, N), bool, True = kept.
    """
    ### BEGIN SOLUTION
    newest = position.topk(budget, dim=-1).indices
    return (position < 0).scatter(-1, newest, True)
    ### END SOLUTION


# %%
check("kv.window", window_keep)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# The newest tokens have the highest positions, so `topk` finds their slots, and `scatter` writes True at these slots
# of a mask that is False everywhere else. Comparing positions with a threshold such as `last - budget` fails as soon
# as there are gaps. For example, with the positions 0, 1, 5, 9 and a budget of 2, the window keeps 5 and 9.
#
# </details>
#
# Now we evict from the cache of the real model. A `DynamicCache` holds two tensors per layer, `keys` and `values`, of
# shape (sequences, key-value heads, tokens, head size). To evict a token means to index these tensors, nothing more.
# There is one trap: the model counts positions from the length of the cache, and a cache that evicts is shorter than
# the text. So we pass the true positions of the new tokens as `position_ids`. Keys need no correction, because they are
# stored with their rotary position embedding already applied. The usual causal mask stays right, since all tokens in
# the cache are older than the new ones.


# %%
@torch.no_grad()
def losses_with_window(keep_newest_tokens, n_slots, chunk=16):
    """Read the text through a cache that evicts all but the newest tokens after every pass."""
    cache, position, losses = DynamicCache(config=model.config), torch.arange(0), []
    for start in range(0, len(text) - 1, chunk):
        new = torch.arange(start, min(start + chunk, len(text) - 1))
        logits = model(text[None, new], position_ids=new[None], past_key_values=cache).logits[0]
        losses.append(torch.nn.functional.cross_entropy(logits, text[new + 1], reduction="none"))
        position = torch.cat([position, new])
        if len(position) > n_slots:
            is_kept = keep_newest_tokens(position[None, None], n_slots)[0, 0]  # all heads keep the same tokens
            position = position[is_kept]
            for layer in cache.layers:
                layer.keys, layer.values = layer.keys[:, :, is_kept], layer.values[:, :, is_kept]
    print(f"{sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers) / 1e6:.2f} MB at the end")
    return torch.cat(losses)


n_slots = 64
window_losses = losses_with_window(mine("kv.window", window_keep), n_slots)
plots.excess({"window": window_losses}, full_losses, n_slots)

# %% [markdown]
# The memory has really shrunk: 64 slots take 2.95 MB. The figure divides the perplexity of the window by that of the
# full cache, in blocks of 32 tokens. Both caches read the same text, so difficult passages are difficult for both, and
# the ratio shows only the effect of the eviction. Up to the dotted line nothing has been evicted, and the ratio is 1.
# In the block after the line the ratio begins to rise. The first 16 predictions of this block come from a pass that
# still sees all tokens, because we evict after each pass. In the second block after the line the ratio is more than 7.
# Over all tokens after the dotted line, the window has 3.0 times the perplexity of the full cache.
#
# This is surprising, because the last 64 tokens should be enough to predict most words. The reason, as section 5 will
# show, is the beginning of the text: the model collapses when its first token is evicted. Lesson 08 explains why, and
# StreamingLLM avoids the problem with its sinks. Here we take another way: we let the attention decide which tokens are
# kept.
#
# **Cost**: a window needs no attention weights. Once the cache is full, each pass evicts as many tokens as it reads.
#
# ## 4. A few tokens receive most of the attention
#
# How much attention does each token receive? We ask the model for its attention weights. Only the implementation
# called "eager" returns them, since faster implementations never store the whole matrix. Every row of the matrix
# belongs to one query and sums to 1. We average over the heads and the queries of a layer, which leaves one number
# per token, the fraction of all attention that it receives.

# %%
usual_implementation = model.config._attn_implementation
model.set_attn_implementation("eager")
with torch.no_grad():
    attention_by_layer = torch.cat(model(text[None], output_attentions=True, use_cache=False).attentions)
model.set_attn_implementation(usual_implementation)
print(tuple(attention_by_layer.shape), "= (layers, query heads, queries, keys)")
mass_by_layer = attention_by_layer.mean(dim=(1, 2))  # (layers, keys)
plots.mass_by_rank(mass_by_layer, (0, n_layers // 2, n_layers - 1))

# %% [markdown]
# In each layer we have sorted the tokens by the attention that they receive: rank 1 is the token that receives most.
# Both axes are logarithmic. If all tokens received the same, the curves would lie on the dotted line. Instead they fall
# steeply. Look at the title: over all 30 layers, the 5 % of the tokens that receive most get between 18 and 85 % of the
# attention. Zhang and others call these tokens **heavy hitters**. They report that attention is proportional to a power
# of the rank. With two logarithmic axes this is a straight line. The grey line is such a power, fitted to layer 15 from
# rank 2 to half of all tokens. At rank 1 the curves of layers 15 and 29 are far above any such line.
#
# Which tokens are these? The next figure splits the attention of every layer into three parts: the first token of the
# text, the 16 nearest tokens of each query (itself included), and all others.

# %%
is_near = torch.ones(len(text), len(text)).tril().triu(-15)  # (queries, keys): the query itself and 15 tokens before it
is_near[:, 0] = 0  # the first token is counted on its own
to_first = mass_by_layer[:, 0]
to_near = (attention_by_layer * is_near).sum(dim=3).mean(dim=(1, 2))
strongest = mass_by_layer[:, 1:].max(dim=1)  # of all tokens after the first
for layer in (5, 15):
    place = 1 + int(strongest.indices[layer])
    other = f"{tokenizer.decode(text[place])!r} at position {place}: {100 * strongest.values[layer]:.1f} %"
    print(f"layer {layer}: {tokenizer.decode(text[0])!r} at position 0: {100 * to_first[layer]:.1f} %, {other}")
print("layers in which another token receives more:", (strongest.values > to_first).nonzero().flatten().tolist())
plots.receivers({"first token": to_first, "16 nearest": to_near, "all others": 1 - to_first - to_near})

# %% [markdown]
# From left to right are the layers. Look at the dark area, the first token: in layers 3 to 9 it receives about a fifth
# of all attention, and from layer 12 on between 36 and 79 %. It has no special meaning in this text: it is *jan*, the
# end of a name whose beginning was cut off. The nearest tokens (red, hatched) receive 28 % on average. The other 31 %
# (green, dotted) go to all the rest of the text, and the early layers contribute most of it.
#
# The printed lines name the strongest competitor of the first token. In layer 5 it is a single space at position 21,
# which receives even more than the first token. The last line shows that in each of the first twelve layers another
# token receives more. From layer 12 on the first token is the strongest, and in layer 15, for example, no other token
# comes close. This explains the points at rank 1 of layers 15 and 29 in the previous figure.
#
# To evict by attention we need one score per slot. A key-value head is read by a **group** of query heads, three in
# this model. They share one cache, so they have to decide together: we add up the attention that key $j$ receives
# over the heads $h$ of the group and over the queries $i$,
#
# $$ m_j = \sum_{h \in \text{group}} \; \sum_{i} A^{(h)}_{ij} $$
#
# For example, take one query and a group of two heads with the weights (0.6, 0.3, 0.1) and (0.2, 0.2, 0.6). The group
# gives the three keys 0.8, 0.5 and 0.7. Alone, the first head would evict key 2 (keys are counted from 0). The group
# evicts key 1.

# %% [markdown]
# ### What a key receives
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Compute $m_j$ for each key-value head from the attention of all query heads. Neighbouring query heads form a group:
# with six query heads and two key-value heads, heads 0 to 2 are the first group. Shorter sequences of a batch are
# padded, and the rows of queries that are not `valid` hold meaningless (but finite) numbers. You may take the mean over
# the group in place of its sum, because this does not change the order of the slots of a head. You may not take the
# mean over the queries, because later we add up the results of several passes.


# %% exercise="kv.group_mass"
def group_mass(weights, valid, n_key_value):
    """Add up the attention that each key receives.

    weights: (B, heads, Q, N), softmax rows. valid: (B, Q), bool.
    Returns (B, n_key_value, N).
    """
    ### BEGIN SOLUTION
    masked_weights = weights * valid[:, None, :, None]
    by_group = masked_weights.unflatten(1, (n_key_value, -1))  # (B, H, G, Q, N)
    return by_group.sum(dim=(2, 3))
    ### END SOLUTION


# %%
check("kv.group_mass", group_mass)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Set the rows of padding to zero, split the axis of the query heads into (groups, heads of a group), and sum over the
# heads of the group and over the queries. The axis of the keys must stay: a sum over the keys is 1 for every query,
# whatever the attention is.
#
# Two other mistakes are easy to make at this step. If you repeat keys and values for every query head before you cache
# them, the cache of this model becomes three times as large. If you add up the scores over all sequences of the batch,
# one text evicts tokens of another one.
#
# </details>
#
# We apply your function to layer 12. Which tokens of the text receive the most attention in each key-value head?

# %%
all_valid = torch.ones(1, len(text), dtype=torch.bool)
received = mine("kv.group_mass", group_mass)(attention_by_layer[12][None], all_valid, n_key_value_heads)[0]
for head, mass_of_keys in enumerate(received / received.sum(dim=1, keepdim=True)):
    top = mass_of_keys.topk(5).indices.tolist()
    print(f"head {head}:", ", ".join(f"{tokenizer.decode(text[i])!r} {100 * mass_of_keys[i]:.1f} %" for i in top))

# %% [markdown]
# Each line shows a key-value head with its five heaviest tokens. The first entry is the first token of the text in all
# three heads. Compare the remaining four entries: they differ from head to head, which is why each head needs its own
# slots.
#
# ## 5. H2O: accumulate and evict
#
# H2O (algorithm 1 of the paper) keeps a running sum for every slot. After each pass it adds the attention that the
# slots have just received. If there are more tokens than slots, it evicts the tokens with the lowest sums. A token that
# has just arrived had no time to collect attention, so the newest `recent` tokens are protected. Here is one pass in
# which five tokens compete for four slots and the newest token is protected:
#
# | position of the token | 0 | 6 | 2 | 9 | 3 |
# |:--|--:|--:|--:|--:|--:|
# | score so far | 2.0 | 0.5 | 0.9 | 0.0 | 0.4 |
# | attention of this pass | 0.3 | 0.1 | 0.1 | 0.2 | 0.3 |
# | new score | 2.3 | **0.6** | 1.0 | protected | 0.7 |
#
# Token 6 is evicted. If we chose before adding, token 3 would be evicted. Without protection it would be token 9, whose
# new score is only 0.2.

# %% [markdown]
# ### Accumulate and evict
# **Exercise** · difficulty 3 of 5 · 10 minutes · 4 points
#
# Write one step for all heads of a layer: add the new column sums, then choose the `budget` slots that are kept. There
# are at least `budget` slots, and `recent` is between 1 and `budget`. The newest `recent` tokens are always among the
# kept ones. Of the others, keep the ones with the highest scores. If scores are equal, you may keep any of them, but
# never more than `budget` slots.


# %% exercise="kv.h2o_step"
def h2o_step(score, new, position, budget, recent):
    """Accumulate, then evict.

    score: (H, N), sums so far, 0 for a token that has just arrived.
    new: (H, N), column sums of this step. position: (H, N).
    Returns (keep, score): (H, N), bool, True = kept; and (H, N), the new scores. The scores of
    evicted slots may be anything.
    """
    ### BEGIN SOLUTION
    total = score + new
    safe = position.topk(recent, dim=1).indices
    protected = total.scatter(1, safe, float("inf"))
    keep = (position < 0).scatter(1, protected.topk(budget, dim=1).indices, True)
    return keep, total
    ### END SOLUTION


# %%
check("kv.h2o_step", h2o_step)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Add first, then decide, so that the attention of this step counts. Protection is easiest with an infinite score for
# the newest tokens: a `topk` over the protected scores then always contains them. Return the sums without the
# infinities, because the next step goes on adding to them. Choose by `topk` and not with a threshold, since a
# threshold keeps too many slots if scores are equal.
#
# </details>
#
# Now the whole method on the real model. In section 3 the transformers library stored and read the cache for us. H2O
# needs the attention weights of every pass, so we write the attention ourselves. `AttentionInterface` accepts a
# function that the model then calls in every layer, with the queries, keys and values of the new tokens (positions
# are already applied). In each call our function does five things:
#
# 1. **Append** the new keys and values to the slots of the layer.
# 2. **Attend**: compute the attention of the new queries to all slots.
# 3. **Score**: add up what each slot has received (your `group_mass`).
# 4. **Keep**: if there are more tokens than slots, choose the slots that are kept (your `h2o_step`).
# 5. **Gather** these slots into smaller tensors. The others are gone.
#
# We call the model with `use_cache=False`, because the cache is now ours. We ignore its `mask`, because we compare
# positions ourselves. `module` is the attention module of a layer, and we use it as the key under which we store the
# tensors of this layer. The function returns the output and, in place of the attention weights, None.


# %%
def h2o_attention(n_slots, n_recent, column_sums, accumulate_and_evict):
    """Make an attention function with a cache that evicts. For one sequence."""
    cache = {}  # by attention module of a layer: keys, values (1, H, N, D), positions and scores (H, N)

    def attention(module, query, key, value, mask, scaling, position_ids, **settings):
        n_heads, new = key.shape[1], position_ids.expand(key.shape[1], -1)  # (H, Q)
        empty = key[:, :, :0], value[:, :, :0], new[:, :0], torch.zeros(n_heads, 0)
        keys, values, positions, sums = cache.get(module, empty)
        # 1. Append: one more slot per new token in every key-value head.
        keys, values = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
        positions, sums = torch.cat([positions, new], dim=1), torch.cat([sums, torch.zeros(new.shape)], dim=1)
        # 2. Attend: the query heads of a group read the slots of their key-value head, but no later token.
        logits = scaling * query.unflatten(1, (n_heads, -1)) @ keys[:, :, None].mT  # (1, H, G, Q, N)
        is_later = positions[:, None, :] > new[:, :, None]  # (H, Q, N)
        attention_weights = logits.masked_fill(is_later[:, None], -torch.inf).softmax(dim=-1)
        output = (attention_weights @ values[:, :, None]).flatten(1, 2)  # (1, query heads, Q, D)
        # 3. Score.
        all_queries = torch.ones(1, new.shape[1], dtype=torch.bool)
        new_sums = column_sums(attention_weights.flatten(1, 2), all_queries, n_heads)[0]
        if positions.shape[1] > n_slots:
            # 4. Keep. 5. Gather: every head keeps n_slots tokens of its own.
            is_kept, sums = accumulate_and_evict(sums, new_sums, positions, n_slots, n_recent)
            index = is_kept.nonzero()[:, 1].view(n_heads, n_slots)
            positions, sums = positions.gather(1, index), sums.gather(1, index)
            index = index[None, :, :, None].expand(-1, -1, -1, key.shape[3])
            keys, values = keys.gather(2, index), values.gather(2, index)
        else:
            sums = sums + new_sums
        cache[module] = keys, values, positions, sums
        return output.transpose(1, 2), None

    attention.cache = cache
    return attention


@torch.no_grad()
def losses_with_attention(attention, chunk=16):
    """Read the text in chunks with an attention function of our own."""
    AttentionInterface.register("my_attention", attention)
    model.set_attn_implementation("my_attention")
    losses = []
    for start in range(0, len(text) - 1, chunk):
        new = torch.arange(start, min(start + chunk, len(text) - 1))
        logits = model(text[None, new], position_ids=new[None], use_cache=False).logits[0]
        losses.append(torch.nn.functional.cross_entropy(logits, text[new + 1], reduction="none"))
    model.set_attn_implementation(usual_implementation)
    return torch.cat(losses)


my_attention = h2o_attention(n_slots, 32, mine("kv.group_mass", group_mass), mine("kv.h2o_step", h2o_step))
h2o_losses = losses_with_attention(my_attention)
bytes_of_slots = sum(keys.nbytes + values.nbytes for keys, values, _, _ in my_attention.cache.values())
print(f"{bytes_of_slots / 1e6:.2f} MB at the end")

# %% [markdown]
# The library does the same in `evicting(model, policy)`. It also handles batches, padding, `model.generate`, other
# models and other policies. Does it keep the same tokens as your functions?

# %%
with evicting(model, H2O(n_slots, recent=32)) as cache_of_library:
    losses_of_library = losses_through(cache_of_library)
    n_different = sum(
        int((slots.position[0].sort(dim=1).values != mine_kept[2].sort(dim=1).values).sum())
        for slots, mine_kept in zip(cache_of_library.slots, my_attention.cache.values(), strict=True)
    )
print(f"slots with another token: {n_different} of {n_layers * n_key_value_heads * n_slots}")
print(f"largest difference of a loss: {(h2o_losses - losses_of_library).abs().max():.0e} nats")
n_with_first = sum(int((positions == 0).sum()) for _, _, positions, _ in my_attention.cache.values())
print(f"heads that keep the first token: {n_with_first} of {n_layers * n_key_value_heads}")

# %% [markdown]
# The first number should be 0, and the second one is rounding error. From here on we can use the library. We compare
# H2O with the window, and with a window that keeps the first four tokens. All three have 64 slots.

# %%
with evicting(model, StreamingLLM(n_slots, sinks=4)) as cache_with_sinks:
    sinks_losses = losses_through(cache_with_sinks)
losses_by_policy = {"window": window_losses, "4 sinks + window": sinks_losses, "H2O": h2o_losses}
plots.excess(losses_by_policy, full_losses, n_slots)

# %% [markdown]
# The curve at the top is the window from section 3. The other two stay close to 1: H2O has 1.07 times the perplexity of
# the full cache, and the window with sinks 1.14 times. H2O contains no rule about the first token. But this token
# receives so much attention that 86 of the 90 heads keep it to the end, as printed above.
#
# So the two lower curves share the first token, and they differ far less from each other than from the window. Section
# 7 measures the difference on more texts.
#
# **Cost**: one number per slot, and the attention weights of every query. A fused attention kernel, such as
# FlashAttention, never stores these weights, so H2O needs a kernel of its own (section 8).
#
# ## 6. A fair question
#
# Perplexity on running text is a weak test of memory, because most words follow from the last few. A better test hides
# one sentence in a long text, a **needle**, and asks for it at the end. But *when* do we ask? Many published
# comparisons put the question at the end of the prompt. This leaks the answer. Here the prompt is read in a single
# pass, as in a usual prefill, and the policy evicts at the end of this pass (in section 5 we read 16 tokens per pass).
# So while the prompt is read, attention still sees all its tokens. The last row of the prompt's logits predicts the
# first token of the answer, and nothing has been evicted when it is computed.
#
# The fair protocol ends the prompt before the question. First the prompt is read, then the policy evicts, and only
# then the model reads the question. We call the tokens of the question the **question tokens**. For example:
#
# | | prompt | after the eviction |
# |:--|:--|:--|
# | leak | … The secret word is garden. … The secret word is | garden |
# | fair | … The secret word is garden. … | The secret word is garden |

# %% [markdown]
# ### Ask after the eviction
# **Exercise** · difficulty 3 of 5 · 8 minutes · 3 points
#
# You get two sets of logits. `before` holds those of the prompt, computed with the full cache. A leaky count would
# start from its last row; a fair count must not use them. After the eviction the model read `question_and_answer`:
# first `n_question` (1 or more) question tokens, then the right answer. `after` holds the logits of these tokens. Row
# $i$ of any logits predicts the token after token $i$. So the last row of `after` predicts a token after the answer.
# How many tokens of the answer are predicted correctly after the eviction, counted from the first one up to the first
# error?


# %% exercise="kv.deferred"
def leading_right(before, after, question_and_answer, n_question):
    """Count the right tokens of the answer before the first wrong one.

    before: (P, V). after: (K, V). question_and_answer: (K,), token ids. Returns an integer.
    """
    ### BEGIN SOLUTION
    predicted = after[n_question - 1 : -1].argmax(dim=-1)
    is_right = predicted == question_and_answer[n_question:]
    return int(is_right.long().cumprod(dim=0).sum())
    ### END SOLUTION


# %%
check("kv.deferred", leading_right)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# The first token of the answer has index `n_question`, so the row before it predicts it: the row of the last question
# token. The last row predicts something that is not part of the answer, so we leave it out. A running product of
# zeros and ones stays 1 up to the first zero, so its sum counts the right tokens before the first error. For example,
# if the predictions are right, right, wrong, right, the running product is 1, 1, 0, 0, and the answer is 2.
#
# </details>
#
# Now we compare both protocols on the real model. Ten texts of 112 tokens each hide a secret word at a depth of 10, 30,
# 50, 70 or 90 % of the text. The cache keeps 28 slots, a quarter of the tokens. All answers are a single token, so your
# function would return 0 or 1 for each text, and the cell compares this one prediction directly. (Longer answers need
# your count.) `Window(1.0)` keeps 100 % of the tokens, that is, everything.

# %%
haystacks = needles.samples("word", 10, 112, tokenizer, seed=0)
prompt_ids = torch.stack([sample.prompt for sample in haystacks])
question_ids = torch.stack([sample.questions[0] for sample in haystacks])
answer_ids = torch.stack([sample.answers[0] for sample in haystacks])
print(f"question {tokenizer.decode(question_ids[0])!r}, answer {tokenizer.decode(answer_ids[0])!r}")


@torch.no_grad()
def fraction_right(policy, asked_in_prompt):
    """Ask for the secret words; return the fraction of right answers with its 95 % interval."""
    with evicting(model, policy) as cache:  # the policy evicts at the end of every pass
        if asked_in_prompt:
            tokens = torch.cat([prompt_ids, question_ids], dim=1)
        else:
            model(prompt_ids, past_key_values=cache, logits_to_keep=1)
            tokens = question_ids
        logits_after_question = model(tokens, past_key_values=cache, logits_to_keep=1).logits
    n_right_answers = int((logits_after_question[:, -1].argmax(dim=1) == answer_ids[:, 0]).sum())
    return n_right_answers / len(answer_ids), wilson(n_right_answers, len(answer_ids))


quarter = {"full": Window(1.0), "window": Window(28), "4 sinks + window": StreamingLLM(28, sinks=4)}
quarter["H2O"] = H2O(28, recent=14)
by_protocol = {
    "asked in the prompt": {name: fraction_right(quarter[name], True) for name in ("window", "H2O")},
    "asked after the eviction": {name: fraction_right(policy, False) for name, policy in quarter.items()},
}
plots.answers(by_protocol, len(haystacks))

# %% [markdown]
# Compare the dark bars (asked in the prompt) with the hatched ones. With the leak, window and H2O seem to answer
# every question, although most of the secret words have been evicted. In the fair test the window answers two
# questions of ten and H2O three. The bar of the full cache is a control: if it could not answer, the task would be
# too difficult for the model and the other bars would mean nothing. With ten texts the error bars (95 % intervals)
# are long, but the leak is far larger.
#
# For the next figure we repeated the fair test with 20 texts of 384 tokens, with the policies of this lesson and five
# more that evict (section 13 describes them). Rows are policies, and columns show how deep in the text the needle was.
# The claim below the figure compares every policy with a plain window of the same size: is it worth choosing at all?
#
# Every claim of the course prints a verdict (lesson 00, section 4): it *holds*, *does not hold*, or is *undecided*, and
# with several cases it can be *mixed*. *Not at this scale* means that the claim is about larger models and does not
# hold for this one.

# %%
display(plots.by_depth())
print(claims.CHOOSING.judge())

# %% [markdown]
# Each cell is the percentage of four needles that were found. Look at the left panel, where a fifth of the prompt is
# kept (in the right one it is half). Nearly all policies find the needle only in the last column, at a depth of 90 %,
# where even a window still holds it. Needles at the beginning and in the middle are lost. So the perplexity of a text
# can be close to that of the full cache while most of the text has been forgotten.
#
# The 42 cases of the claim are seven policies with three budgets on two kinds of needles, words and numbers. In none of
# them is a policy significantly better than the window. In 14 of them it is significantly worse if we test each case on
# its own. Of 42 tests, however, some succeed by chance. The verdict corrects for their number (Holm's method), and then
# none of the 14 is left, so it is *undecided*. With 20 questions we can see only large differences: the largest one in
# favour of a policy is 10 points, the largest one against it 30 points. In other words, none of these policies can
# foresee which sentence the question will be about.
#
# **Cost**: the fair test needs the same forward passes as the leaky one.
#
# ## 7. Is it worth choosing?
#
# In section 5 H2O had a lower perplexity than a window with sinks, on one text. For the next figure we compressed six
# prompts of 512 tokens with eight policies and four budgets, and measured the perplexity of the 128 tokens after each
# prompt (`course reproduce kv`). The claim compares H2O with the window that keeps four sinks, prompt by prompt: does
# attention choose better than age?

# %%
display(plots.compressed())
print(claims.THAN_SINKS.judge())

# %% [markdown]
# In the left panel one curve is far above all others: the plain window (dark blue, circles), which has lost the first
# token. The right panel shows only the other policies. They all approach the full cache (dotted) as the budget grows.
# Look at the left end, where only 10 % of the prompt is kept: even the best policy has 1.14 times the perplexity of
# the full cache. At 50 %, H2O is within 2 % of it.
#
# Now the claim. The perplexity of the window with sinks is 4 to 8 % higher than that of H2O, depending on the budget.
# Compare this with the plain window, whose perplexity is 3.1 to 4.4 times that of H2O. So keeping the first token
# matters most. Choosing the other tokens by attention seems to add a little, but at three of the four budgets six
# prompts are not enough to tell this from chance.
#
# ## 8. What it costs, and when it does not pay off
#
# Eviction saves memory in any case. Does it also save time? Generating one token reads all weights of the model once,
# and the whole cache of every sequence once. Let's compare the two. Before you run the cell, estimate: if we keep a
# fifth of a cache of 4,096 tokens, how many times as fast can a step be at best, when only the bytes count?

# %%
bytes_per_slot = 2 * n_layers * n_key_value_heads * size_of_head * 4  # float32
weight_bytes = sum(parameter.nbytes for parameter in model.parameters())
print(f"weights {weight_bytes / 1e6:.0f} MB; one token in the cache {bytes_per_slot / 1e3:.0f} kB")
for batch_size in (1, 32):
    n_tokens_alike = weight_bytes // (bytes_per_slot * batch_size)
    print(f"batch size {batch_size}: the cache is as large as the weights at {n_tokens_alike:,} tokens per sequence")
for batch_size in (1, 8):
    cache_bytes = batch_size * 4096 * bytes_per_slot
    at_best = (weight_bytes + cache_bytes) / (weight_bytes + cache_bytes / 5)
    print(f"batch size {batch_size}, a fifth of 4,096 tokens: at best {at_best:.2f} times as fast")

# %% [markdown]
# With one sequence, the cache of this model is as large as the weights only after more than 11,000 tokens; at 4,096
# tokens it is a third of them. So by bytes alone we expect at most 1.26 times the speed. With 32 sequences the cache is
# as large as the weights after a few hundred tokens. We measured the time on two cores of a server's processor
# (`course bench kv`): eight steps of decoding after 4,096 tokens, with one sequence and with eight.

# %%
display(cache_speed.steps())
display(tables.published_speed())
print(claims.LATENCY_CLAIM.judge())

# %% [markdown]
# The figure shows how many times as fast each cache is as `DynamicCache`. The hatched bars belong to the transformers
# library (`StaticCache`, and `DynamicCache` with only a fifth of the text); the others are the course's own caches.
# First compare `DynamicCache` (the line at 1) with *nothing evicted*: the course's cache is faster even without
# eviction, because `DynamicCache` copies all keys and values at every step. So the fair baseline is *nothing evicted*.
# Against it, H2O with 20 % of the slots is 1.2 times as fast with one sequence (by bytes, at best 1.26), and 1.7 times
# with eight (at best 2.44). Each step needs one decision per layer. Decisions can be made rarer: with *8 leave at once*
# eight tokens are evicted in one step and none in the next seven. SnapKV, a policy that evicts once at the end of the
# prompt, gains most because it has no decisions to make during the steps. Rounding to 4 bits (section 12) makes each
# step slower, since the numbers have to be converted back.
#
# The table below the figure quotes what the authors report for larger models on GPUs. Compare the last two rows,
# OPT-30B on a T4: H2O generates 18.83 tokens per second, and FlexGen 8.5. FlexGen moves data between the GPU and the
# memory of the host. A smaller cache needs fewer of these transfers, so part of the gain does not come from the GPU.
#
# The claim is from the abstract of H2O, which reports up to 1.9 times lower latency at the same batch size. With one
# sequence our processor stays clearly below this, and with eight the error is too large to tell. So the verdict is *not
# at this scale*.
#
# Do the attention weights of H2O cost time on a GPU? The table shows the attention of one decoding step, with 1 or 32
# sequences and 8,192 slots:

# %%
print(gpu.provenance())
gpu.table("decode_attention", contests=("batch 1, slots 8192", "batch 32, slots 8192"))

# %% [markdown]
# *sdpa* is PyTorch's fused attention, which gives no weights. Plain PyTorch (*eager*), which stores them, takes 9 and
# 21 times as long as *sdpa*, with 1 and 32 sequences. The course's kernel adds them up while it attends. It takes 5 %
# less time than *sdpa* with one sequence, and 21 % more with 32.
#
# Attention is only one part of a step. The same run also timed whole steps of a model with the shape of Llama-3-8B. Its
# weights are random, so this table is about speed alone:

# %%
decoding = ("batch 8, 32,768 tokens", "batch 32, 8,192 tokens")
decoding += tuple(f"largest batch, 32,768 tokens: {name}" for name in ("Full", "H2O, 20 %"))
methods = ("Full", "StaticCache, sdpa", "window, 20 %", "H2O, 20 %", "H2O, 20 %, 4 bits", "SnapKV, 20 %")
display(gpu.whole_model("decoding", contests=decoding, sides=methods))
print(claims.LATENCY_ON_A_GPU.judge())

# %% [markdown]
# The number of sequences and the number of tokens decide what H2O saves. With 20 % of the slots it decodes 1.57 times
# as fast as the full cache at batch size 8 and 32,768 tokens, 2.03 times at batch size 32 and 8,192 tokens, but only
# 1.02 times with one sequence of 8,192 tokens, where the weights dominate.
#
# - **Bytes are not everything.** By bytes alone, 2.26 times would be possible at batch size 8. But a step takes 3.7 ms
#   longer than its bytes need with the full cache, and 4.6 ms longer with H2O. Fusing the small operations that every
#   cache pays for (normalization, rotary embedding, activation) saves about 1.6 ms of each, and H2O is then 1.69 times
#   as fast.
# - **A smaller cache allows a larger batch.** At 32,768 tokens, 144 sequences fit instead of 29. The last two rows show
#   these batches: together the 144 decode 6.2 times as many tokens per second.
# - **4 bits save memory, not time** (0.79 times): in each step a separate kernel unpacks the codes before attention.
# - **Launching kernels takes time, too.** All steps in this table are recorded as CUDA graphs and replayed. Without a
#   graph, a step of the full cache with one sequence of 8,192 tokens takes 25.8 ms instead of 7.4 ms, and H2O, which
#   launches more kernels, is slower than the full cache.
# - **StaticCache** of the transformers library takes 12 times as long as our full cache. It passes a mask, and with a
#   mask, version 5.17 of the library repeats the keys and values of each group before *sdpa*.
#
# When does eviction pay off, then, and what does it cost?
#
# - **It does not pay off** when the cache is small compared with the weights, that is, for one sequence and a short
#   text. Each step then reads the weights, and eviction saves none of them.
# - **Attention scores need attention weights.** In decoding this is only one row per query head and step, so it needs
#   little memory. But the usual fused kernel does not return it, and plain PyTorch is many times slower. It takes
#   little time only with a kernel that adds up the weights while it attends. For a long prompt, the weights must be
#   computed a second time or in pieces. A window needs no weights.
# - **A mask saves nothing.** A cache that only hides evicted tokens still stores and reads them. Count the bytes of the
#   tensors, as in sections 3 and 5.
# - **A batch has one shape.** Some policies give each head a different budget. All heads of a tensor are then padded to
#   the largest one.
# - **Evicted tokens cannot come back.** Perplexity hardly shows this. A question does.
#
# This is the end of the core path. Go on with the optional sections, or jump to *To take home*.
#
# ## 9. Optional: a closer look at heavy hitters
#
# Section 4 showed that few tokens receive most of the attention, so most weights must be close to zero. Zhang and
# others call a weight **negligible** if it is below 1 % of the largest weight of its row.

# %%
is_visible = torch.ones_like(attention_by_layer, dtype=torch.bool).tril()  # a query sees no later token
is_negligible = is_visible & (attention_by_layer < 0.01 * attention_by_layer.amax(dim=3, keepdim=True))
negligible_by_layer = is_negligible.sum(dim=(1, 2, 3)) / is_visible.sum(dim=(1, 2, 3))
least, most = 100 * negligible_by_layer.min(), 100 * negligible_by_layer.max()
print(f"negligible weights: {least:.0f} % to {most:.0f} % by layer, mean {100 * negligible_by_layer.mean():.0f} %")
print(f"over 95 % in {int((negligible_by_layer > 0.95).sum())} of {n_layers} layers")

# %% [markdown]
# On average 88 % of the weights are negligible. For larger models Zhang and others report over 95 % in almost all
# layers. The number grows with the length of the text, because every row sums to 1: in a longer row, most weights are
# smaller compared with the largest one. On 16 articles of 1,024 tokens, 16 of our 30 layers are above 95 % instead of
# 4.
#
# If 95 % of the weights are negligible, could a cache be 20 times smaller? We tested it with an **oracle**, that is,
# with a method that uses information which no real method has: every query reads only its own largest weights, as many
# as 5 % of the tokens that it sees (divided by their sum, so that they sum to 1 again). No cache can do this, because
# it would have to know the next query in advance.

# %%
print(claims.FIVE_PER_CENT.judge())

# %% [markdown]
# Even with the perfect choice for every query, 5 % of the tokens are not enough: the perplexity is 1.6 times the
# original. Many negligible weights together are not negligible. A policy with 5 % of the slots should do worse still,
# since it keeps the same tokens for all later queries.
#
# Who are the heavy hitters? The abstract of H2O says that they are tokens which often occur together with others.
# Frequent tokens have many neighbours, so we ask: does a token that occurs more often receive more attention? There are
# two ways to count. All occurrences of "the" together can receive much only because there are many of them. Or each
# single occurrence can receive much. The next cell counts both. We divide by the attention that a token would receive
# if every query spread its attention evenly, and leave out the first token and the last quarter of the text, which few
# queries can see.

# %%
# With even attention, query i gives 1/(i + 1) to each of the tokens 0 to i.
even_mass = (1 / torch.arange(1, len(text) + 1)).flip(0).cumsum(0).flip(0) / len(text)
counted_part = slice(1, 3 * len(text) // 4)
times_even = (mass_by_layer.mean(dim=0) / even_mass)[counted_part]
token_ids, token_index, n_occurrences = text[counted_part].unique(return_inverse=True, return_counts=True)
times_even_in_all = torch.zeros(len(token_ids)).index_add(0, token_index, times_even)
for i in times_even_in_all.topk(6).indices:
    each = times_even_in_all[i] / n_occurrences[i]
    name = repr(tokenizer.decode(token_ids[i]))
    print(f"occurrences of {name}: {n_occurrences[i]}; together {times_even_in_all[i]:.1f} times even, each {each:.1f}")

# %% [markdown]
# Most of the tokens with the largest totals are frequent ones. For example, 19 commas together receive 19.5 times even
# attention, although each one receives just as much as with even attention. The digits 1 and 2 occur ten times or more,
# but each occurrence receives only about half of even attention. The token `' the'` occurs only once in this part,
# which is mostly a list of names and competitions, and receives 7.1 times even attention. So the total follows the
# count, and a single occurrence hardly does: in eight texts (`course reproduce heavy`) the rank correlation of a
# token's count is +0.60 with the attention of all its occurrences, and only +0.16 with the attention of a single one.
#
# How important are the heavy hitters for the model? We let the model read whole texts, but hide some tokens of every
# head from all queries that come after them: either the tokens that receive the most attention, or the same without the
# first token, or random ones.

# %%
display(plots.masked())
print(claims.MASKED_BUT_FIRST.judge())

# %% [markdown]
# The horizontal axis is the fraction of the tokens that are hidden, the vertical one the perplexity compared with the
# full model; both are logarithmic. Without the heaviest 10 % of the tokens (dark) the perplexity is more than 20 times
# as high. But this curve mixes two things, since the first token is by far the heaviest one. The fair curve is the
# middle one (red), where the first token is spared: the other heavy hitters matter as well, but far less.
#
# There is one more thing to know about the sum of H2O: it favours old tokens, because a token that arrived early was
# visible to more queries. If we divide the sum by the number of these queries, we rank by the mean instead (the option
# `normalised` of `H2O`). In eight prompts we counted how many of the slots for older tokens hold tokens from the first
# quarter of the prompt. Without a bias this fraction would be 25 %. Ranking by the sum gives 44 to 51 %, depending on
# the budget. Ranking by the mean gives 13 to 25 %, so the mean rather favours new tokens. Whether the mean is the
# better choice is undecided: the perplexity of the text after the prompt does not differ significantly.
#
# ## 10. Optional: Scissorhands
#
# Liu and others (2023) start from another observation, the **persistence of importance**. They call a token **pivotal**
# for a query that gives it more than $1/t$, where $t$ is the number of tokens that the query sees. Take the tokens of
# the first half of a text that are pivotal for at least one query of the second half. Nearly all of them were already
# pivotal for at least one query of the first half: over 95 % in most layers of OPT. If this holds, a cache can tell
# from the past which tokens it will need. We test it on 16 articles of 1,024 tokens, with the same threshold for all
# queries: $t$ is 512, half of the length.

# %%
display(plots.persistence())
print(claims.PERSISTENCE.judge())

# %% [markdown]
# From left to right are the layers. The upper curve (dark) is the persistence of our model. It is above the mark of
# 95 % nearly everywhere. But look at the second curve (red): it is the fraction of all tokens of the first half that
# are pivotal for at least one query of this half. This is what a random set of tokens would score, and it is nearly as
# high. A result that chance almost reaches says little.
#
# The claim uses a stricter count: a token is pivotal in a half of the text if its mean weight, over all queries of this
# half that can see it, is more than $1/t$. So a single query is not enough. With this count, 98 % of the later pivotal
# tokens were pivotal before, and chance gives 39 %. So importance does persist.
#
# The method counts, over the last $w$ queries, how often the weight of a token was **low**, that is, below $1/t$. When
# a head holds more tokens than its budget, it evicts the tokens with the highest counts until only half of the budget
# is filled (rounded up), so that evictions are rare (algorithms 1 and 2). The models of the paper do not use
# grouped-query attention; we average over the heads of a group first.

# %% [markdown]
# ### Count how often attention is low
# **Exercise** · difficulty 4 of 5 · 12 minutes · 4 points
#
# A query at position $p$ has seen $p + 1$ tokens, some of which have been evicted since. A weight is low if the mean of
# the group is below $1 / (p + 1)$; it is not low if it equals this number. Count only those queries that could see the
# token, that is, queries at its position or later. If there are more than `budget` slots, keep `budget - budget // 2`
# of them: the newest `recent` tokens, and of the others those with the lowest counts (ties may fall either way).
# `recent` is at least 1 and at most the number of slots that are kept. If there are no more than `budget` slots, keep
# all.


# %% exercise="kv.scissorhands"
def scissorhands_keep(weights, query_position, position, budget, recent):
    """Choose the slots of one key-value head that are kept.

    weights: (G, W, N), attention of the last W queries of each head of the group.
    query_position: (W,). position: (N,), N may be below the budget.
    Returns (N,), bool, True = kept.
    """
    ### BEGIN SOLUTION
    keep = position >= 0
    if len(position) <= budget:
        return keep
    low = weights.mean(dim=0) < 1 / (query_position[:, None] + 1)
    could_see = position <= query_position[:, None]
    count = (low & could_see).sum(dim=0)
    count[position.topk(recent).indices] = -1
    evicted = count.topk(len(position) - (budget - budget // 2)).indices
    return keep.index_fill(0, evicted, False)
    ### END SOLUTION


# %%
check("kv.scissorhands", scissorhands_keep)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Average over the group, compare with the threshold of each query, and count only where the query is not older than the
# token. Protect the newest tokens with a count below all others. Then evict the highest counts with `topk` until
# `budget - budget // 2` slots are left. For example, with a budget of 4 and 5 tokens, 2 tokens are kept and 3 are
# evicted.
#
# </details>
#
# ## 11. Optional: merge instead of drop
#
# So far evicted tokens are lost. We could also add each of them to a similar token that is kept. Is there a similar
# one? Section 5 left us with the positions that H2O kept, and section 2 with all keys and values. For every evicted
# token we look for the kept key with the highest cosine similarity, and do the same for values.

# %%
similarities = {"keys": [], "values": []}
for layer, (_, _, kept_positions, _) in zip(full_cache.layers, my_attention.cache.values(), strict=True):
    is_in_cache = torch.zeros(layer.keys.shape[1:3], dtype=torch.bool).scatter(1, kept_positions, True)  # (H, tokens)
    for name, vectors in (("keys", layer.keys[0]), ("values", layer.values[0])):
        unit_vectors = vectors / vectors.norm(dim=2, keepdim=True)
        cosines = (unit_vectors @ unit_vectors.mT).masked_fill(~is_in_cache[:, None], -1)  # (H, tokens, kept tokens)
        similarities[name].append(cosines.amax(dim=2)[~is_in_cache])
plots.nearest({name: torch.stack(by_layer) for name, by_layer in similarities.items()})

# %% [markdown]
# The key of a token decides which queries read it, its value what they read. In all layers but the first the upper
# curve, for the keys, is clearly above the one for the values: the median cosine is 0.80 for keys and 0.50 for
# values. If we merge two tokens, the same queries find them, but they read a mixture of two different values.
#
# **D2O** (Wan and others, 2024) merges an evicted token into the kept token with the most similar key, if the cosine
# $s$ of the two keys reaches a threshold. The merged key is a weighted mean of the two. The weights are a softmax over
# the cosines with the *kept* key: the evicted key has the cosine $s$, and the kept key has its own cosine with itself.
# The value is merged with the same weights.

# %% [markdown]
# ### Merge instead of drop
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Merge one evicted token into the slot with the most similar key if their cosine is at least the threshold; otherwise
# drop the token. Work out the weights of the mean first. You may change `keys` and `values` in place.


# %% exercise="kv.merge"
def merge_token(key, value, keys, values, threshold):
    """Merge one evicted token into the kept ones.

    key, value: (D,), of the evicted token. keys, values: (N, D), of the kept tokens.
    Returns (keys, values).
    """
    ### BEGIN SOLUTION
    cosine = (keys / keys.norm(dim=1, keepdim=True)) @ (key / key.norm())
    best, slot = cosine.max(dim=0)
    if best < threshold:
        return keys, values
    weight = (best - 1).sigmoid()  # e^s / (e + e^s)
    keys[slot] += weight * (key - keys[slot])
    values[slot] += weight * (value - values[slot])
    return keys, values
    ### END SOLUTION


# %%
check("kv.merge", merge_token)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# The kept key has the cosine 1 with itself, so the softmax gives
#
# $$ k \leftarrow \frac{e \cdot k + e^{s} \cdot k_\text{evicted}}{e + e^{s}} $$
#
# For example, with $k = (1, 0)$ and $k_\text{evicted} = (0.8, 0.6)$ the cosine is 0.8, the evicted key has the weight
# $e^{0.8} / (e + e^{0.8}) = 0.45$, and the merged key is $(0.91, 0.27)$. The weights sum to 1. In the authors' code
# they do not, so every merge shortens keys and values.
#
# </details>
#
# D2O does not use a fixed threshold but a moving average of recent similarities,
# $\tau \leftarrow \tfrac12 \tau + \tfrac12 \operatorname{mean}(s)$, so that some tokens are similar enough in any text.
# Does merging help?

# %%
print(claims.D2O_MERGES.judge())
print(claims.MERGING.judge())

# %% [markdown]
# We see no gain: with 10 and 20 % of the slots, D2O has a significantly higher perplexity than H2O, which drops the
# evicted tokens, although D2O holds up to 1.9 times as many bytes. The two differ in more than the merging, since D2O
# also keeps everything in three layers and gives the other layers budgets of their own. The second claim compares D2O
# with the same policy without merging, whose perplexity is 6 and 2 % lower. So here the merging itself does harm.
# **EMS** (Li and others, 2024) is more careful and merges only if key *and* value are similar. The table in section 13
# compares all of them.
#
# Wan and others report over 3 times the throughput of the full cache. On the GPU of section 8, our D2O reaches 0.19
# times, each with the largest batch that fits: it merges in plain PyTorch in every step, without a CUDA graph, which
# takes far longer than reading a full cache would.
#
# ## 12. Optional: fewer bits for the kept tokens
#
# A cache can also use fewer bits per number. We split a key into groups of neighbouring numbers. Each group gets its
# own **quantization grid**: evenly spaced levels, as many as $b$ bits can number, from the smallest number of the
# group to its largest. For every number we then store only the index of the nearest level, and for every group its
# smallest number and its step size.

# %% [markdown]
# ### Four bits on top
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Round a row to the grids of its groups, each number to the nearest level, and return the rounded row. How many levels
# are there, and how many steps between them? If all numbers of a group are equal, the step is 0 and you must not divide
# by it: return these numbers unchanged. All other steps are larger than a millionth (some are about a
# hundred-thousandth), so a lower bound for the step must not be larger than a millionth.


# %% exercise="kv.quantize"
def quantize_row(row, n_bits, group_size):
    """Round a row to n_bits bits per number.

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
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# $b$ bits number $2^b$ levels with $2^b - 1$ steps between them. With a step of
# $(\text{high} - \text{low}) / (2^b - 1)$ a number $x$ becomes
# $\text{low} + \operatorname{round}((x - \text{low}) / \text{step}) \cdot \text{step}$. For example, 2 bits and a group
# from 0 to 3 give the levels 0, 1, 2, 3, so that 2.2 becomes 2. If all numbers are equal the step is 0, and a small
# lower bound avoids the division by zero.
#
# </details>
#
# Now your function works on the real cache. The model reads 128 tokens, we round every key and value in the cache,
# and the model reads the next 64 tokens.


# %%
@torch.no_grad()
def losses_after_rounding(round_row=None):
    """Return the losses of 64 tokens after a prompt of 128 whose keys and values are rounded."""
    cache = DynamicCache(config=model.config)
    model(text[None, :128], past_key_values=cache)
    for layer in cache.layers if round_row else ():
        for vectors in (layer.keys, layer.values):
            vectors.copy_(round_row(vectors.flatten()).reshape(vectors.shape))
    logits = model(text[None, 128:192], past_key_values=cache).logits[0]
    return torch.nn.functional.cross_entropy(logits, text[129:193], reduction="none")


round_to_grid = mine("kv.quantize", quantize_row)
exact_losses = losses_after_rounding()
for n_bits in (8, 4, 2):
    increase = losses_after_rounding(lambda row, bits=n_bits: round_to_grid(row, bits, 32)) - exact_losses
    error = increase.std() / len(increase) ** 0.5
    print(f"{n_bits} bits: loss increase {increase.mean():+.3f} ± {error:.3f} nats per token")
print(claims.FEWER_BITS.judge())

# %% [markdown]
# The number after ± is the standard error over the 64 tokens. With 8 bits nothing changes. With 4 bits the change is
# not larger than its error. With 2 bits the loss rises by 0.66 nats, that is, the perplexity nearly doubles. The claim
# is about caches that also evict, measured on six prompts. There 4 bits cost 0.7 % more perplexity, clearly less than
# the 5 % up to which this course speaks of *no loss* (the spread between texts is about as large). So the claim holds.
# With a stricter limit of 1 %, six prompts would not be enough to decide.
#
# 4 bits do not make the cache 8 times smaller than float32, because every group also stores its smallest number and its
# step size. In the course's library both take 16 bits. With groups of 32, a number takes 4 + 32/32 = 5 bits, so the
# cache is 6.4 times smaller. In addition, the 32 newest tokens stay in full precision.
#
# ## 13. Optional: all policies compared, and recycled attention
#
# Further policies differ from H2O in what decides, or in what happens to evicted tokens:
#
# - **TOVA** (Oren and others, 2024) scores a token by the attention of the newest query alone.
# - **SnapKV** (Li and others, 2024) evicts once, at the end of the prompt. It scores each token by the attention of the
#   last few queries and spreads the scores over neighbouring tokens. SnapKV works best if the prompt ends with the
#   question. In the fair test the prompt does not end with the question.
# - **Scissorhands** counts how often a token received little (section 10), and evicts until half of its budget is left.
# - **D2O** merges evicted tokens (section 11). It keeps everything in three layers, so it needs more memory.
# - **EMS** adds the attention of all queries and that of the last queries, each divided by its mean. It merges as well.
# - **Recycled attention** (Xu and others, 2024) evicts nothing. Most steps *read* only a fifth of the tokens. Now and
#   then a **full step** reads all tokens, and those with the most attention become the working set of the next steps.

# %%
tables.policies()

# %% [markdown]
# Read the table column by column.
#
# - **Loss increase**: H2O and EMS have the smallest one, but most policies lie within one or two standard errors of
#   each other. Only the window is far off.
# - **Needles** and **second question**: among the policies that evict, none answers more than 20 %.
# - **Memory**: D2O holds 28 % instead of 20 %, Scissorhands 10 %, and recycled attention 119 %, because it keeps the
#   full cache and a copy of its working set.
# - **ms per token**: in this small model the weights take most of the time, so no policy is clearly faster than the
#   full cache. EMS needs 3 ms more for its merges. Each time comes from one run, so small differences mean nothing.
#
# The *second question* column comes from texts that hide two words. We ask for one word after the other. A policy
# that evicts cannot know the second question when it evicts. Recycled attention can look again:

# %%
display(plots.second_needle())
print(claims.LOOKS_AGAIN.judge())

# %% [markdown]
# Look at the three groups on the right. Without any further full step, recycled attention forgets the second word. With
# a full step every eight steps it finds the first word but not the second. With a full step whenever the query has
# changed (*by similarity*: every five steps we compute its cosine with the query of the last full step, and take a full
# step if it is below 0.8), it finds 95 % of the second words. The failure of the fixed interval has a simple reason in
# our test: the second full step falls on the first word of the second question, before the question says which word it
# is about.
#
# So recycled attention may save time, but it **saves no memory**.
#
# ## 14. Optional: an open task
#
# H2O chooses by attention, a window with sinks by age alone. On running text the two are close. Find a text on which
# H2O has a clearly lower perplexity: something has to be said early, stay important, and be needed long after a
# window has evicted it. Or find a text on which choosing by attention is a mistake. There is no right answer, and
# nothing is graded. Write the text or let Python write it. It needs at least 256 tokens, and at most 512 are read.

# %%
my_text = " ".join(f"{i} times {j} is {i * j}." for i in range(2, 9) for j in range(2, 10))

# %%
tables.own_texts(steps.contest(model, tokenizer, my_text))

# %% [markdown]
# The rows above yours are simple ideas that we measured with `course reproduce own_text`. Both caches have 64 slots.
# The last column is the loss with the window with sinks minus that with H2O, in nats per token, on the same blocks of
# text; positive numbers mean that H2O is better. A difference is clear if its absolute value is more than about twice
# its standard error. For example, *who has what* repeats eight facts in a changing order and strongly favours H2O. If
# your text does not do what you expected, use `widgets.watch` from section 1 to see which tokens are kept.
#
# ## To take home
#
# 1. Evicting means indexing the tensors of the cache. Count their bytes: a mask that only hides tokens saves nothing.
# 2. The query heads of a group share one cache, so they decide together, and each group keeps its own tokens.
# 3. The first token matters most. Choosing the others by attention adds little.
# 4. Ask after the eviction. Perplexity on running text hardly shows what has been lost, and a question in the prompt
#    leaks the answer.
# 5. Eviction saves time only where the cache, and not the weights, dominates memory traffic.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>A paper compresses prompts that end with the question, keeps 10 % of them, and loses no accuracy.
# What has it shown?</summary>
#
# It has shown that the attention of the question finds the answer in the prompt before anything is evicted. This is
# useful if you ask a single question that is known in advance. It says nothing about a second question, or about one
# that comes later.
#
# </details>
#
# <details><summary>H2O adds up attention over all queries so far. Which tokens does a sum favour, and what would be
# fairer?</summary>
#
# It favours old tokens, because they were visible to more queries. The mean over the queries that could see the token
# is fairer. But the mean of a token that has just arrived comes from one or two queries, so it can be low (or high) by
# chance, and the newest tokens still need their protection.
#
# </details>
#
# <details><summary>You evict 80 % of this model's cache with one sequence of 500 tokens. How much faster is a
# step?</summary>
#
# Hardly at all. The cache of 500 tokens takes 23 MB in float32, and a step also reads more than 500 MB of weights.
#
# </details>
#
# ## Reading
#
# - Zhang and others: *H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models*, NeurIPS
#   2023, [arXiv:2306.14048](https://arxiv.org/abs/2306.14048). Read algorithm 1.
# - Xiao and others: *Efficient Streaming Language Models with Attention Sinks*, 2023,
#   [arXiv:2309.17453](https://arxiv.org/abs/2309.17453). StreamingLLM.
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
