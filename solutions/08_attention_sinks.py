# %% [markdown]
# # 08 · Attention sinks: the token that everybody looks at
#
# A cache that keeps the newest tokens sounds reasonable: what was said long ago matters least. It fails, and it fails
# at the moment in which the very first token leaves, whatever that token is. This lesson finds out why. It ends with a
# stream of any length in constant memory, and with a softmax that may decline to read.
#
# **Afterwards you can** find the attention sink of a model, keep a stream alive in constant memory, renumber the
# positions of a rotary cache, write a softmax that may give its weight to nobody, and say which of the papers' claims
# show at this size. **You need** lesson 07, sections 2 and 3, and rotations in the plane. **Time**: two hours, an hour
# of it for exercises.
#
# You will write eight short functions. Under each is a `check`; it tells you what is wrong and, when it knows, which
# mistake it is. Most of them then work on the real model: what follows an exercise uses your function once it is right,
# and the course's own until then.

# %%
import torch

from course_lib.data import corpora
from course_lib.attention.windowed import (
    Constant,
    attention_logits,
    attention_weights,
    first_token,
    value_lengths,
    windowed,
)
from course_lib.lessons.sinks.race import counted, race
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.models import blocks, load_model, rotary_frequencies
from course_lib.lessons.sinks import backcopy, training
from course_lib.lessons.common import cache_speed as speed
from course_lib.lessons.sinks import figures as plots
from course_lib.lessons.sinks import measured as results
from course_lib.lessons.sinks import tables as printed
from course_lib.lessons.sinks import trained
from course_lib.kv.analysis.streaming import streaming_perplexity
from course_lib.lessons.common.by_mask import ByMask
from course_lib.workbook import check, mine

# %%
model, tokenizer = load_model()
text, other = corpora.windows("wikipedia", 2, 512, tokenizer, split="evaluation", seed=0)
n_layers = len(blocks(model))
print(f"{len(text)} tokens to read, {len(other)} of another passage; {n_layers} layers")

# %% [markdown]
# ## 1. The idea in one picture
#
# Read a text from the middle of an article, and ask how much of all attention goes to its first token.

# %%
weights = attention_weights(model, text[None, :256])  # (layers, heads, queries, tokens)
start = 64  # the first queries see few tokens and have little choice
share = weights[:, :, start:, 0].mean(dim=2)
even = (1 / torch.arange(start + 1, weights.shape[2] + 1)).mean().item()
plots.share_over_depth(share, even)

# %%
print(f"The first token is {tokenizer.decode(text[:1])!r}. The text begins: {tokenizer.decode(text[:12])!r}")

# %% [markdown]
# Nothing in this text is about its first token. In the first layers hardly anybody looks at it; from some layer on
# almost everybody does. Xiao and others (2023, section 3.1) call it an **attention sink**.

# %% [markdown]
# ### The share of the first token
# **Exercise** · difficulty 1 of 5 · 5 minutes · 1 point
#
# Compute what the picture shows. The first queries do not count: the very first sees one token only.


# %% exercise="sinks.share"
def first_share(weights, start):
    """What the first token receives, the mean over the queries from `start` on.

    weights: (L, H, T, T), row i is what query i reads; rows sum to 1. Returns (L, H).
    """
    ### BEGIN SOLUTION
    return weights[:, :, start:, 0].mean(dim=2)
    ### END SOLUTION


# %%
check("sinks.share", first_share)

# %% [markdown]
# **Is it what the token says, or where it stands?** The same text behind five different first tokens, looked at with
# your function:

# %%
starts = {"its own": text[:1].tolist(), "newline": tokenizer("\n").input_ids, "the": tokenizer(" the").input_ids}
starts |= {"end of text": [tokenizer.convert_tokens_to_ids("<|endoftext|>")], "number": tokenizer("7").input_ids}
shares, by_layer, received = {}, {}, mine("sinks.share", first_share)
for name, first in starts.items():
    row = torch.cat([torch.tensor(first[:1]), text[1:160]])
    attention = attention_weights(model, row[None])
    shares[name] = attention[:, :, start:, 0].mean(dim=1)  # (layers, queries)
    by_layer[name] = received(attention, start).mean(dim=1)
plots.first_words(by_layer)

# %%
print(printed.position_verdict(shares))

# %% [markdown]
# **What do they read there?** Attention is multiplied with values. Here is how long the values of the first token are,
# beside those of all others:

# %%
plots.values_over_depth(value_lengths(model, text[None, :256]))

# %% [markdown]
# So a query that looks at the first token reads little of it, though not nothing: section 4 takes that little away and
# measures what it was worth. Softmax makes every row sum to 1: a query that looks for something which is not there must
# still give its weight to somebody. The model learnt to give it to a token that is always visible and says little. The
# first token is the only one that every query can see.
#
# ## 2. What happens when it leaves
#
# Equation 1 of the paper, with $x_1 \gg x_j$ for the sink:
#
# $$ \operatorname{softmax}(x)_i = \frac{e^{x_i}}{e^{x_1} + \sum_{j=2}^{N} e^{x_j}} $$
#
# Take the first token away, and the largest term of the denominator is gone.

# %% [markdown]
# ### What the others get
# **Exercise** · difficulty 2 of 5 · 6 minutes · 2 points
#
# Some tokens leave. From the attention weights alone, without logits, compute what the others get now.


# %% exercise="sinks.evict"
def after_eviction(weights, keep):
    """Attention when only some tokens are left.

    weights: (Q, N), rows sum to 1. keep: (N,), bool, True = stays. Returns (Q, tokens that stay).
    """
    ### BEGIN SOLUTION
    left = weights[:, keep]
    return left / left.sum(dim=1, keepdim=True)
    ### END SOLUTION


# %%
check("sinks.evict", after_eviction)

# %% [markdown]
# With a share of $s$ gone, all other weights grow by $1 / (1 - s)$, and so does what is read from them. Here for every
# head of the model:

# %%
plots.growth(share)

# %% [markdown]
# Every layer now hands on far more than it did in training, and the next one reads that.
#
# Does it matter? Let the text stream through a cache of 128 slots that keeps the newest tokens.

# %%
budget = 128
losses = {}
for name, policy in {"newest tokens": Window(budget), "all tokens": Full()}.items():
    losses[name] = streaming_perplexity(model, text, policy, chunk=32, skip=budget).losses
plots.streams(losses, budget)

# %% [markdown]
# The line of all tokens says how hard the text is. The two part where the cache is full: all that happens there is that
# the first token leaves.
#
# ## 3. The fix: two lines
#
# Keep the first few tokens for good, and let the window move beside them. That is all of StreamingLLM's choice of
# tokens.

# %% [markdown]
# ### Sinks and a window
# **Exercise** · difficulty 2 of 5 · 7 minutes · 2 points
#
# Which tokens are in a cache of `budget` slots after `n_tokens`, when the first `sinks` never leave? Sinks take up
# slots too.


# %% exercise="sinks.slots"
def kept_tokens(n_tokens, sinks, budget):
    """The tokens in the cache, counted from 0, in any order.

    sinks < budget. Returns a list, a set or a tensor of whole numbers.
    """
    ### BEGIN SOLUTION
    if n_tokens <= budget:
        return list(range(n_tokens))
    return [*range(sinks), *range(n_tokens - (budget - sinks), n_tokens)]
    ### END SOLUTION


# %%
check("sinks.slots", kept_tokens)

# %% [markdown]
# In the library it is the policy `StreamingLLM(budget, sinks)`. Here your function says which tokens stay, with one
# sink and with four, of the same 128 slots:

# %%
kept = mine("sinks.slots", kept_tokens)


def in_list(slots, sinks):
    """Which slots hold a token that stays."""
    return torch.isin(slots.position, torch.as_tensor(kept(int(slots.n_seen), sinks, budget)))


for sinks in (1, 4):
    policy = ByMask(budget, stays=lambda slots, sinks=sinks: in_list(slots, sinks))
    losses[f"{sinks} + {budget - sinks}"] = streaming_perplexity(model, text, policy, chunk=32, skip=budget).losses
plots.streams(losses, budget)

# %%
print(printed.collapse_verdict({name: each[budget:] for name, each in losses.items()}))

# %% [markdown]
# **Do the first tokens matter, or that there are any?** The paper replaces the first four by newlines (table 1). The
# text is the same from token 4 on:

# %%
newlines = torch.cat([torch.tensor(tokenizer("\n").input_ids * 4), text[4:]])
found = streaming_perplexity(model, newlines, StreamingLLM(budget, sinks=4), chunk=32, skip=budget)
after = {name: each[budget:] for name, each in losses.items()}
after = {"newest tokens": after["newest tokens"], "4 newlines + 124": found.losses[budget:]} | after
print(printed.newline_verdict(after))
by_cache = {name: each.mean().exp().item() for name, each in after.items()}
plots.bars(by_cache, printed.newline_finding(by_cache))

# %% [markdown]
# That was one short text. `course reproduce kv` let a long one stream through a cache, with rolling positions (section
# 5), and read as much of it with everything kept as memory allows. The result is part of the course:

# %%
measured = results.results()
print(results.provenance())
print(results.stream_verdict(measured))

# %%
results.by_sinks(measured)

# %% [markdown]
# How good is a stream after thousands of tokens, and how long does a token take? The work of a step does not depend on
# how many tokens went before. Where the curves of times move all the same, the machine was busy with something else.

# %%
results.long_stream(measured)

# %%
print(printed.published_table())

# %% [markdown]
# The paper's collapse is far deeper than ours, and its model is a hundred times larger. (Its numbers are taken from
# public notes and slides.) Whether the one comes from the other you can try with any model that your machine holds.

# %% [markdown]
# ## 4. Is it the token at all?
#
# If queries go to the sink to read nothing, the token should be replaceable by a constant. Take **another** passage;
# note for every head the average logit that its queries have with its first token, and the value of that token. Then
# read our text with a window and no first token, and put into every softmax that constant instead: one number and one
# vector a head, whatever the query and whatever the text.

# %%
constant = first_token(model, other[None])
without_value = Constant(constant.logit, torch.zeros_like(constant.value))
settings = {
    "window": {"window": budget},
    "window, a logit without value": {"window": budget, "constant": without_value},
    "window, a logit and a value": {"window": budget, "constant": constant},
    "window and the first token": {"window": budget, "sinks": 1},
}
perplexities = {}
for name, setting in settings.items():
    with torch.no_grad(), windowed(model, **setting):
        logits = model(text[None], use_cache=False).logits[0, budget:-1]
    perplexities[name] = torch.nn.functional.cross_entropy(logits, text[budget + 1 :]).exp().item()
plots.bars(perplexities, printed.constant_finding(perplexities))

# %% [markdown]
# These runs take one pass over the text, with a band for a mask: each token attends to what a cache would have left it.
#
# The logit alone does a part at best: short as the value is, it gets most of the weight, and the layers behind count on
# it. A softmax that may decline, in section 7, has only such a logit, so it cannot replace the token in a model that
# was trained with one. With the value, a constant from another text does nearly all that the token did. A sink is a
# **bias** of the head.
#
# ## 5. Places instead of positions
#
# A stream goes on. After a million tokens the first one is a million positions away, and the model was trained on a few
# thousand. Which tokens are kept does not help with that: the distance to the sinks is too large for it. StreamingLLM
# counts positions **in the cache** (section 3.2).

# %%
n_trained = model.config.max_position_embeddings
plots.places([0, 1, 2, 3, *range(24, 32)], trained=16)

# %% [markdown]
# Llama-like models tell a key its position by turning it (RoPE), before it is stored. To move it, turn it on.

# %% [markdown]
# ### Places in the cache
# **Exercise** · difficulty 3 of 5 · 8 minutes · 3 points
#
# Each head holds keys that were turned to their `position` in the text; slots are in no order. The oldest token of a
# row has place 0, the next one place 1, and so on. By how many positions is each key to be turned on?


# %% exercise="sinks.positions"
def turn_by(position):
    """How far each key is turned to stand at its place in the cache.

    position: (H, N), whole numbers, each different from the others in its row. Returns (H, N),
    whole numbers.
    """
    ### BEGIN SOLUTION
    place = position.argsort(dim=1).argsort(dim=1)
    return place - position
    ### END SOLUTION


# %%
check("sinks.positions", turn_by)

# %% [markdown]
# Rotations add, so the way from `position` to the place is one more rotation. RoPE turns pairs of dimensions, and there
# are two layouts. The paper and the files of Meta pair neighbours, $2i$ and $2i + 1$; the code of Hugging Face for
# Llama, which we use, pairs dimension $i$ of a key with dimension $i + D/2$. From one position to the next, the pair
# turns by the angle $\theta_i$.

# %% [markdown]
# ### Turn a key on
# **Exercise** · difficulty 4 of 5 · 10 minutes · 3 points
#
# Turn each key on by a number of positions, forwards or backwards.


# %% exercise="sinks.rotate"
def turn(keys, by, frequencies):
    """Keys turned on.

    keys: (N, D). by: (N,), whole numbers. frequencies: (D/2,), the angle a position of the pair
    (i, i + D/2). Returns (N, D).
    """
    ### BEGIN SOLUTION
    angle = by[:, None] * frequencies
    low, high = keys.chunk(2, dim=1)
    return torch.cat([low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()], dim=1)
    ### END SOLUTION


# %%
check("sinks.rotate", turn)

# %% [markdown]
# Both functions on real keys. The model reads 32 tokens; 4 sinks and the 8 newest stay, and their keys are turned to
# their places in the cache. In the first layer a key depends on its token and its position alone. So they must be the
# keys of a text that consists of these 12 tokens and nothing else:

# %%
with torch.no_grad():
    stay = torch.tensor([0, 1, 2, 3, *range(24, 32)])
    in_text = model.base_model(text[None, :32], use_cache=True).past_key_values.layers[0].keys[0]  # (heads, 32, D)
    in_places = model.base_model(text[None, stay], use_cache=True).past_key_values.layers[0].keys[0]
(by,) = mine("sinks.positions", turn_by)(stay[None])
turned = mine("sinks.rotate", turn)(in_text[0, stay], by, rotary_frequencies(model))
for name, keys in {"as they were": in_text[0, stay], "turned": turned}.items():
    difference = (keys - in_places[0]).abs().max()
    print(f"{name}: largest difference {difference:.1e}, of entries up to {keys.abs().max():.1f}")

# %% [markdown]
# Does it matter? Within the trained length it cannot matter much: the distances are all known to the model. So we set a
# gap: after the fourth token, positions jump ahead by twice the trained length, as if so many tokens had come and gone.

# %%
gap = 2 * n_trained
beyond, with_sinks = {}, StreamingLLM(budget, sinks=4)
for name, policy, positions in (
    ("newest tokens", Window(budget), "original"),
    ("4 + 124, original", with_sinks, "original"),
    ("4 + 124, rolling", with_sinks, "rolling"),
):
    stream = streaming_perplexity(model, text, policy, positions, chunk=32, skip=budget, gap=gap)
    beyond[name] = stream.losses[budget:]
print(printed.rolling_verdict(beyond, gap))
perplexities = {name: each.mean().exp().item() for name, each in beyond.items()}
plots.bars(perplexities, printed.rolling_finding(perplexities, gap))

# %% [markdown]
# With positions as in the text, sinks are now **worse** than none: at such a distance the model does not know them. In
# a plain window distances are small either way; what difference there is comes from the time when the first tokens,
# far away, were still in it. How far is too far? The same with gaps of many sizes:

# %%
results.gaps(measured)

# %% [markdown]
# ## 6. Streaming against recomputing
#
# There is a way that needs neither sinks nor rotations: for every new token, read the last $W$ tokens afresh. Then the
# window has a first token of its own, and all positions begin at 0. It is the paper's strongest rival, and slow.

# %% [markdown]
# ### Streaming against recomputing
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Count the FLOPs for one more token, both ways. A token costs 2 FLOPs a weight. Each pair of a query and a token that
# it reads (itself included) costs 4 × `width` in each layer: 2 for the logit, 2 for adding up the value. Attention is
# causal. When streaming, the new token reads `window` tokens.


# %% exercise="sinks.cost"
def flops_a_token(n_weights, n_layers, width, window):
    """FLOPs for one more token. Returns (streaming, recomputing)."""
    ### BEGIN SOLUTION
    pair = 4 * n_layers * width
    streaming = 2 * n_weights + pair * window
    recomputing = 2 * n_weights * window + pair * window * (window + 1) // 2
    return streaming, recomputing
    ### END SOLUTION


# %%
check("sinks.cost", flops_a_token)

# %%
windows = (32, 64, 128, 256)
flops = {name: [each / 1e9 for each in values] for name, values in counted(model, windows).items()}
seconds = race(model, text, windows)
print(printed.race_verdict(windows, flops, seconds))
plots.costs(windows, flops, seconds)

# %% [markdown]
# The clock shows a smaller ratio than the count of FLOPs: with one token at a time the machine waits for weights from
# memory (lesson 00) and computes less in a second. The ratio grows with the window all the same. On larger windows, as
# `course bench kv` measured it on the machine that it names:

# %%
speed.streams()

# %% [markdown]
# ## 7. A softmax that may decline
#
# The sink exists because softmax has no way to say "nothing". Give it one: a term in the denominator that belongs to no
# token (equation 2 of the paper has $e^0 = 1$ there, after Miller, 2023):
#
# $$ p_j = \frac{e^{x_j}}{e^{s} + \sum_i e^{x_i}} $$
#
# $s = 0$ is softmax-off-by-one; with $s = -\infty$ it is softmax again; a learned $s$ for every head is what gpt-oss
# (2025) has.

# %% [markdown]
# ### A softmax that may decline
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Write it, for logits of any size: rows, heads and sinks may be hundreds apart, and nothing may become NaN.


# %% exercise="sinks.softmax"
def softmax_with_sink(logits, sink):
    """Attention weights that sum to less than 1.

    logits: (H, Q, N); −inf where a query may not look. sink: (H,), a logit for each head, which may
    be far from those of the tokens. Returns (H, Q, N).
    """
    ### BEGIN SOLUTION
    column = sink[:, None, None].expand(-1, logits.shape[1], 1)
    return torch.cat([logits, column], dim=2).softmax(dim=2)[:, :, :-1]
    ### END SOLUTION


# %%
check("sinks.softmax", softmax_with_sink)

# %% [markdown]
# Your function on the real model's logits. Take the first token away, and set beside the others a sink with the logit
# that queries had with that token on average, in every head of a layer with a strong sink. What do the others get?

# %%
layer, logits = 20, attention_logits(model, text[None, :96])[20]  # (heads, queries, tokens)
whole, others = logits.softmax(dim=2)[:, 32:, 1:], logits[:, 32:, 1:]
declines = mine("sinks.softmax", softmax_with_sink)(others, logits[:, 32:, 0].mean(dim=1))
for name, weights in {"softmax": others.softmax(dim=2), "softmax with a sink": declines}.items():
    print(
        f"{name}: the others get {weights.sum(dim=2).mean():.0%} of the attention, with the first token "
        f"{whole.sum(dim=2).mean():.0%}; a query's weights differ by {(weights - whole).abs().sum(dim=2).mean():.2f}"
    )

# %% [markdown]
# Fast attention does not show its weights. But it knows the denominator: many kernels return the logarithm of it, the
# log-sum-exp, $\mathrm{lse} = \log \sum_i e^{x_i}$.

# %% [markdown]
# ### A sink for any attention
# **Exercise** · difficulty 3 of 5 · 8 minutes · 3 points
#
# Given what some attention read without a sink, and its log-sum-exp, give what it reads with one.


# %% exercise="sinks.gate"
def with_a_sink(output, lse, sink):
    """The output of attention with a sink.

    output: (H, Q, D), without. lse: (H, Q). sink: (H,). Returns (H, Q, D).
    """
    ### BEGIN SOLUTION
    return output * (lse - sink[:, None]).sigmoid()[..., None]
    ### END SOLUTION


# %%
check("sinks.gate", with_a_sink)

# %%
generator = torch.Generator().manual_seed(0)
values, sink = torch.randn(9, 96, 64, generator=generator), torch.randn(9, generator=generator)
long_way = mine("sinks.softmax", softmax_with_sink)(logits, sink) @ values
short_way = mine("sinks.gate", with_a_sink)(logits.softmax(-1) @ values, logits.logsumexp(-1), sink)
print(f"weights first, or σ(lse − sink) last: largest difference {(long_way - short_way).abs().max():.1e}")
plots.gate()

# %% [markdown]
# ## 8. Trained with a sink from the start
#
# The paper trains models that way: with a **zero sink**, $s = 0$ in every softmax, and with a **learnable sink**, one
# more token, learnt like a word, before every text. `course reproduce sink_pretraining` trained three small models on
# the texts that the course has, byte by byte, and streamed held-out articles through each. Under each row stand the
# paper's own numbers, published and not measured here, for models with 160 million parameters that read tokens.
#
# Before you read a verdict: the learning rate of the three was **chosen, after a look at several settings, because a
# sink stays there**. It is the highest of the rates below, and the models trained at lower ones read better. There is
# one training of each kind. So whether a sink comes by itself is not tested here; what happens to a model that has one
# is.

# %%
measured = training.results()
print(training.table(measured))

# %%
training.streaming_bars(measured)

# %%
print(trained.pretraining_verdict(measured))

# %% [markdown]
# Only the model with a learnable sink loses anything, and it loses a token that it had at every moment of its training.
# The other two never put anything into a first slot, so there was nothing to be cured. The zero sink does not end the
# matter in the paper either: without any first token its perplexity is 29,214, with one 19.90, with two 18.27. The
# paper recommends the learnable token.
#
# Where does the attention of these models go?

# %%
print(trained.idlest(measured))
training.first_slot_by_layer(measured)

# %%
training.training_curves(measured)

# %% [markdown]
# The first byte is another one in each sample: to make a sink of it, a model has to find out where it stands. A learned
# token is the same each time, and easier to find. In these models it is read in the first layer alone; the sink of the
# real model, in section 1, begins some layers up. Whether a sink is found depends on the training: sinks emerge after
# effective optimization on enough text, also in small models, say Gu and others (2025). Here are shorter trainings at
# three learning rates, each with a learnable sink:

# %%
training.rates(measured)

# %% [markdown]
# These three do not bear that out: at the two higher rates a sink is there after 50 steps, before the model has learnt
# much, and at the middle one it shrinks while the loss falls. The highest rate, that of the models above, keeps its
# sink and has the worst loss. Here a sink is no sign of a good model. Each curve is one training.

# %% [markdown]
# ## 9. A tiny language with a sink
#
# Why would a head want one? Guo and others (2024) found a tiny language in which that can be seen, *bigram-backcopy*:
# letters follow each other as in English, but after a trigger, here a vowel, comes a copy of the letter before the
# trigger. A head has to look back at vowels, and has nothing to look for anywhere else. `course reproduce backcopy`
# trained models of one layer and one head on it, five of each kind. How one with a learnable sink reads a line:

# %%
idle = backcopy.results()
backcopy.sample(idle)

# %%
print(backcopy.verdict(idle))
backcopy.costs(idle)

# %% [markdown]
# Need or habit? These models have eight hidden units behind the head. With more of them, that network could undo what
# the head brings when it is not asked. Is there a sink all the same, and is it needed?

# %%
print(backcopy.widths(idle))
backcopy.emergence(idle)

# %% [markdown]
# ## 10. The same in vision
#
# Darcet and others (2023) found patches of plain background in large vision transformers with norms far above all
# others, which attention goes to: the model uses them as notepads. A few learned tokens beside the patches,
# *registers*, take that over. Here a small vision transformer, trained on digits of 8 × 8 pixels, three times without
# and three times with registers. It is too small for the claim: no patch stands out, so registers have nothing to take
# over.

# %%
print(trained.registers_verdict(measured))
training.register_norms(measured)

# %% [markdown]
# ## 11. What it costs, and when it does not pay
#
# - **Memory** is `budget` slots a head, however long the stream. **Time** a token is that of a cache of this size.
# - **It forgets.** A token that has left the window is gone: what the text said before is not in the cache, however
#   long the stream. Perplexity hardly shows that, since most tokens depend on near ones. Lesson 07 asks questions.
# - **It does not pay** while the text fits into the cache: then nothing leaves, and keys are turned for nothing.
# - **Rolling positions** turn keys at every step, those that are not in their places, unless the kernel that reads
#   them does it.
# - **Recomputing** a window is exact in another way, and its cost grows with the square of the window; use it where the
#   window is short. Its quality was measured on the small models alone, in the last column of their table.
#
# ## To take home
#
# 1. Softmax has to give its weight to somebody. Models learn where to put what they do not need.
# 2. Keep that place, and a window of tokens can stream for as long as you like.
# 3. Positions belong to the cache and not to the text: what the model was trained on are distances.
# 4. Endless is not the same as remembering: what has left the window is gone.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>Why does the first token become the sink, whatever it says?</summary>
#
# It is the only token that every query can see, and it looks the same from everywhere: nothing precedes it. A model
# that needs a fixed place to look at has no other choice.
#
# </details>
#
# <details><summary>Softmax-off-by-one adds $e^0$ to the denominator. To which extra token does that
# correspond?</summary>
#
# To one whose logit is 0 for every query and whose value is zero. The first token of a trained model differs in both:
# its logits are large and its value is small but not zero, which is why a logit alone does not replace it.
#
# </details>
#
# <details><summary>A stream has run for a million tokens in 1024 slots. Somebody asks how it began. What will the model
# say?</summary>
#
# Something fluent, from what stands in its window and in its weights. The first tokens are still in the cache, but only
# as the place that attention needs; what followed them is gone.
#
# </details>
#
# ## Reading
#
# - Xiao, Tian, Chen, Han, Lewis: *Efficient Streaming Language Models with Attention Sinks*, ICLR 2024,
#   [arXiv:2309.17453](https://arxiv.org/abs/2309.17453). Read section 3.
# - Miller: *Attention Is Off By One*, 2023, [evanmiller.org](https://www.evanmiller.org/attention-is-off-by-one.html).
# - Guo, Pai, Bai, Jiao, Jordan, Mei: *Active-Dormant Attention Heads: Mechanistically Demystifying Extreme-Token
#   Phenomena in LLMs*, 2024, [arXiv:2410.13835](https://arxiv.org/abs/2410.13835). Read section 2.
# - Gu and others: *When Attention Sink Emerges in Language Models: An Empirical View*, ICLR 2025,
#   [arXiv:2410.10781](https://arxiv.org/abs/2410.10781).
# - Darcet, Oquab, Mairal, Bojanowski: *Vision Transformers Need Registers*, ICLR 2024,
#   [arXiv:2309.16588](https://arxiv.org/abs/2309.16588).
# - OpenAI: *gpt-oss-120b & gpt-oss-20b Model Card*, 2025, [arXiv:2508.10925](https://arxiv.org/abs/2508.10925). A
#   learned sink in every head.
# - Su and others: *RoFormer: Enhanced Transformer with Rotary Position Embedding*, 2021,
#   [arXiv:2104.09864](https://arxiv.org/abs/2104.09864).
