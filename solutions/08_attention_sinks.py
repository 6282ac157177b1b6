# %% [markdown]
# # 08 · Attention sinks: the token that everybody looks at
#
# A cache that keeps the newest tokens sounds reasonable, because what was said long ago matters least. But the model
# fails, and it fails as soon as the very first token is evicted, whatever that token is. This lesson finds out why. It
# ends with a stream of any length in constant memory, and with a softmax that may decline to read.
#
# **Afterwards you can** find the attention sink of a model, keep a stream alive in constant memory, renumber the
# positions of a rotary cache, write a softmax that may give its weight to nobody, and say which of the papers' claims
# can be seen at this size. **You need** lesson 07, sections 2 and 3, and rotations in the plane. **Time**: a bit more
# than two hours, of which the exercises take one.
#
# Each of the eight functions that you will write is small. Once they are right, the cells behind them find the sink,
# keep the stream alive and turn the keys of the real model with yours.

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
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.models import blocks, load_model, rotary_frequencies
from course_lib.lessons.common import cache_speed as speed
from course_lib.lessons.sinks import figures as plots
from course_lib.lessons.sinks import tables as printed
from course_lib.lessons.sinks import drawings
from course_lib.lessons.sinks.experiments import first_tokens, four_ways
from course_lib.lessons.sinks.results import backcopy, stream as results, training, ways
from course_lib.lessons.common.results import load_measured, say
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
# The model reads a text from the middle of an article. How much of all attention goes to its first token?

# %%
weights = attention_weights(model, text[None, :256])  # (layers, heads, queries, tokens)
start = 64  # the first queries see few tokens and have little choice
share = weights[:, :, start:, 0].mean(dim=2)
even = (1 / torch.arange(start + 1, weights.shape[2] + 1)).mean().item()
plots.share_over_depth(share, even)

# %%
say(f"The first token is {tokenizer.decode(text[:1])!r}. The text begins: {tokenizer.decode(text[:12])!r}")

# %% [markdown]
# Nothing in this text is about its first token. In the first layers hardly any query looks at it; from some layer on
# almost every query does. Xiao and others (2023, section 3.1) call such a token an **attention sink**.
#
# The picture looked at the first token alone. Perhaps other tokens receive as much?

# %% [markdown]
# ### What each token receives
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Compute for every token what it receives: the mean over those queries, from `start` on, that can see it. Attention is
# causal, so a query sees its own token and the ones before it, even those to which it gives a weight of 0. A comparison
# is fair only if no token is charged for queries that could not have looked at it.


# %% exercise="sinks.share"
def received(weights, start):
    """What each token receives, the mean over the queries from `start` on that see it.

    weights: (L, H, T, T), row i is what query i reads; rows sum to 1. Returns (L, H, T).
    """
    ### BEGIN SOLUTION
    n_tokens = weights.shape[2]
    n_queries = n_tokens - torch.arange(n_tokens).clamp(min=start)
    return weights[:, :, start:].sum(dim=2) / n_queries
    ### END SOLUTION


# %%
check("sinks.share", received)

# %% [markdown]
# Your function on the weights of the picture, as the mean over all heads of the deeper half of the layers:

# %%
look = mine("sinks.share", received)
plots.by_token(look(weights, start)[n_layers // 2 :].mean(dim=(0, 1)))

# %% [markdown]
# No other token comes near. (The last tokens rise a little because few queries see them, and each of those is close.)
#
# **Is it what the token says, or where it stands?** Put the same text behind five different first tokens, and look
# again.

# %%
starts = {"its own": text[:1].tolist(), "newline": tokenizer("\n").input_ids, "the": tokenizer(" the").input_ids}
starts |= {"end of text": [tokenizer.convert_tokens_to_ids("<|endoftext|>")], "number": tokenizer("7").input_ids}
shares, by_layer = {}, {}
for name, first in starts.items():
    row = torch.cat([torch.tensor(first[:1]), text[1:160]])
    attention = attention_weights(model, row[None])
    shares[name] = attention[:, :, start:, 0].mean(dim=1)  # (layers, queries)
    by_layer[name] = look(attention, start)[:, :, 0].mean(dim=1)
plots.first_words(by_layer)

# %%
say(printed.position_verdict(shares))

# %% [markdown]
# **What do they read there?** What a query reads of a token is its attention times the value of the token. Here is how
# long the values of the first token are, beside those of all others.

# %%
plots.values_over_depth(value_lengths(model, text[None, :256]))

# %% [markdown]
# So a query that looks at the first token reads little from it, though not nothing; section 4 takes that little away
# and measures what it contributed.
#
# The reason lies in softmax, which makes every row sum to 1. A query that looks for something which is not in the text
# must still give its weight to some token. The model learnt to give it to a token that is always visible and says
# little, and the first token is the only one that every query can see.
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
# Some tokens leave the cache. You have the attention weights of before and no logits: compute what the others get now.


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
# <details><summary>By which factor the others grow</summary>
#
# When a token with a fraction $s$ of the attention leaves, all other weights grow by the factor $1 / (1 - s)$, and so
# does what is read from them.
#
# </details>
#
# By how much do the other weights grow? This is the factor for every head of the model, when the first token leaves:

# %%
plots.growth(share)

# %% [markdown]
# Every deep layer now returns vectors far larger than any it returned in training, and the next layer has to work with
# them. To see whether it matters, let the text stream through a cache of 128 slots that keeps the newest tokens.

# %%
budget = 128
losses = {}
for name, policy in {"newest tokens": Window(budget), "all tokens": Full()}.items():
    losses[name] = streaming_perplexity(model, text, policy, chunk=32, skip=budget).losses
plots.streams(losses, budget)

# %% [markdown]
# The line of all tokens shows how hard the text itself is. The two lines separate where the cache is full, and the only
# thing that happens there is that the first token is evicted.
#
# ## 3. The fix: two lines
#
# Keep the first few tokens for good, and let the window move beside them. That is all of StreamingLLM's choice of
# tokens.

# %% [markdown]
# ### Sinks and a window
# **Exercise** · difficulty 2 of 5 · 7 minutes · 2 points
#
# Which tokens are in a cache of `budget` slots after `n_tokens`, when the first `sinks` never leave? Mind that sinks
# take up slots too, and that a short text does not fill the cache.


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
display(printed.perplexities(filled := {name: each[budget:] for name, each in losses.items()}))
say(printed.collapse_verdict(filled))

# %% [markdown]
# **Do the first tokens matter, or that there are any?** The paper replaces the first four by newlines (table 1). The
# text is the same from token 4 on:

# %%
newlines = torch.cat([torch.tensor(tokenizer("\n").input_ids * 4), text[4:]])
found = streaming_perplexity(model, newlines, StreamingLLM(budget, sinks=4), chunk=32, skip=budget)
after = {name: each[budget:] for name, each in losses.items()}
after = {"newest tokens": after["newest tokens"], "4 newlines + 124": found.losses[budget:]} | after
say(printed.newline_verdict(after))
worst_first = sorted(after, key=lambda name: after[name].mean().item(), reverse=True)
by_cache = {name: after[name].mean().exp().item() for name in worst_first}
plots.bars(by_cache, printed.newline_finding(by_cache))

# %% [markdown]
# That was one short text. `course reproduce kv` let a long one stream through a cache of 256 slots, with rolling
# positions (section 5). The result is part of the course.

# %%
measured = results.results()
print(results.provenance())
say(results.stream_verdict(measured))
print(printed.source("sinks"))

# %%
results.by_sinks(measured)

# %% [markdown]
# The paper says that one or two first tokens are not enough, and that four are enough. Its own numbers show why both
# sentences can be right. In both panels a single sink undoes nearly all of the collapse. What then remains is a quarter
# of the perplexity for Llama-2-7B, and too little to be measured for our model.
#
# How good is a stream after thousands of tokens, and how long does a token take? The work of a step does not depend on
# how many tokens went before, so the right panel should be flat. Where it moves all the same, the machine was busy with
# something else.

# %%
results.long_stream(measured)

# %% [markdown]
# **The same in a chat.** The perplexity of a given text is one thing; what does the model *write* itself when its sink
# has been evicted? Six chats of two rounds were written through a cache of 64 slots (`course reproduce four_ways`).
# Here is the second answer of one of them. Each is one sample, drawn with the same seed.

# %%
compared = ways.results()
print(ways.chat(compared))

# %% [markdown]
# Without sinks the model repeats itself over and over. We therefore count repetition: the share of all runs of three
# words that occurred before in the same answer. (The loss would not do as a measure: a text that repeats itself is easy
# to predict.)

# %%
say(ways.chat_verdict(compared))
ways.chat_repeats(compared)

# %% [markdown]
# ## 4. Is it the token at all?
#
# If queries look at the sink in order to read nothing, a constant should serve as well. Take **another** passage, and
# note two things for every head: the average logit that its queries have with the first token, and the value of that
# token. Then read our text with a window that lacks its first token, and put that constant into every softmax instead.
# It is one number and one vector a head, whatever the query and whatever the text.

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
# The logit alone does only a part of the work. The value is short, but it gets most of the weight, and the layers
# behind have learnt to expect what it adds. That is why a softmax that may decline (section 7), which has only such a
# logit, cannot replace the token in a model that was trained with one. With the value, a constant from another text
# does nearly all that the token did. A sink is a **bias** of the head.
#
# ## 5. Places instead of positions
#
# A stream goes on. After a million tokens the first one is a million positions away, and the model was trained on a few
# thousand. The choice of tokens does not help with that, since the sinks stay where they were in the text and the
# distance to them keeps growing. StreamingLLM therefore counts positions **in the cache** (section 3.2).

# %%
n_trained = model.config.max_position_embeddings
plots.places([0, 1, 2, 3, *range(24, 32)], trained=16)

# %% [markdown]
# Models like Llama tell a key its position by turning it before it is stored (rotary positions, RoPE): the key of
# position $m$ is turned by $m$ steps. What a query sees is the difference of two positions. To move a key that is
# already stored, it has to be turned on.

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
# Rotations add up, so a key that was turned to its `position` gets to its place by one more rotation. RoPE turns pairs
# of dimensions, and there are two layouts. The paper and the files of Meta pair neighbours, $2i$ and $2i + 1$; the code
# of Hugging Face for Llama, which we use, pairs dimension $i$ of a key with dimension $i + D/2$. From one position to
# the next, pair $i$ turns by the angle $\theta_i$.

# %% [markdown]
# ### Turn a key on
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
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
# Does it matter? Within the trained length it cannot matter much, because the model knows all distances. So we make a
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
say(printed.rolling_verdict(beyond, gap))
perplexities = {name: each.mean().exp().item() for name, each in beyond.items()}
plots.bars(perplexities, printed.rolling_finding(perplexities, gap))

# %% [markdown]
# With positions as in the text, sinks are now **worse** than none, because the model has never seen such a distance.
# The plain window suffers from the gap only as long as the first tokens, now far away, are still in it; later all its
# distances are small in any case. How far is too far? Here are gaps of many sizes.

# %%
results.gaps(measured)

# %% [markdown]
# ## 6. Four ways to read on, and what they cost
#
# There is a way that needs neither sinks nor rotations: for every new token, read the last $L$ tokens afresh. Then the
# window has a first token of its own, and all positions begin at 0. With that, there are four ways to read a text of
# $T$ tokens. In the drawing light squares are computed again for the newest token, and yellow ones are first tokens
# that stay.

# %%
drawings.four_patterns()

# %% [markdown]
# ### What one more token costs
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Count the FLOPs for one more token in three of these ways; a multiplication is one and an addition is one. Every
# weight is used once for each token that goes through the model. In each layer, attention takes for each pair of a
# query and a token that it reads a dot product of `width` numbers, and a sum that adds up as many numbers of the value.
# A query also reads its own token. Before `window` tokens have been read, the window is not full.


# %% exercise="sinks.cost"
def flops_a_token(n_weights, n_layers, width, n_read, window):
    """FLOPs for one more token, the last of the `n_read` tokens that have been read by then.

    Returns (dense with a cache, streaming with a cache of `window` slots, the window read afresh).
    """
    ### BEGIN SOLUTION
    token, pair, held = 2 * n_weights, 4 * n_layers * width, min(n_read, window)
    dense = token + pair * n_read
    streaming = token + pair * held
    return dense, streaming, token * held + pair * held * (held + 1) // 2
    ### END SOLUTION


# %%
check("sinks.cost", flops_a_token)

# %%
sizes, count = four_ways.shape(model), mine("sinks.cost", flops_a_token)
flops = zip(*(count(*sizes, n, four_ways.SHOWN) for n in four_ways.N_READ), strict=True)
ways.costs(four_ways.N_READ, dict(zip(("dense", "streaming", "read afresh"), flops, strict=True)), four_ways.SHOWN)

# %% [markdown]
# On the clock the ratio is smaller. With one token at a time the machine waits for weights from memory (lesson 00),
# while a whole window keeps its arithmetic busy, so that the operations of reading afresh are quick ones. This is what
# `course bench kv` measured on the machine that its result names:

# %%
print(printed.published_speed())
speed.streams()

# %% [markdown]
# And how well do they read? `course reproduce four_ways` read one text that is longer than the trained length in all
# four ways. Reading afresh is slow, so that only some of the predictions behind that length are compared, the same for
# all.

# %%
print(ways.provenance(compared))
say(ways.ways_verdict(compared))
ways.along_the_text(compared)

# %%
print(printed.source("ways"))
ways.beside_the_paper(compared)

# %% [markdown]
# Three things can be seen. The window is worse throughout, because its sink is gone. The stream reads as well as a
# window that is read afresh, at a small part of the work. And the dense model, which must break somewhere, has not
# broken yet: our text is only a tenth longer than the trained length, while the paper's is many times as long. (In
# section 5 distances of twice the trained length did break this model.) The collapse of the paper is far deeper than
# ours, and its model is a hundred times larger. You can test with any model that fits on your machine whether the one
# comes from the other.
#
# ## 7. A sink that is no token
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
# Write it for logits of any size. Rows, heads and sinks may lie hundreds apart, and nothing may become NaN, not even
# where a query sees no token at all.


# %% exercise="sinks.softmax"
def softmax_with_sink(logits, sink):
    """Attention weights that sum to less than 1.

    logits: (H, Q, N); −inf where a query may not look, which may be the whole row. sink: (H,), a
    finite logit for each head, which may be far from those of the tokens. Returns (H, Q, N).
    """
    ### BEGIN SOLUTION
    column = sink[:, None, None].expand(-1, logits.shape[1], 1)
    return torch.cat([logits, column], dim=2).softmax(dim=2)[:, :, :-1]
    ### END SOLUTION


# %%
check("sinks.softmax", softmax_with_sink)

# %% [markdown]
# Now your function on the real model's logits, in a layer with a strong sink. Take the first token away and put a sink
# in its place, with the logit that the queries of each head had with that token on average. What do the others get?

# %%
layer, logits = 20, attention_logits(model, text[None, :96])[20]  # (heads, queries, tokens)
whole, others = logits.softmax(dim=2)[:, 32:, 1:], logits[:, 32:, 1:]
declines = mine("sinks.softmax", softmax_with_sink)(others, logits[:, 32:, 0].mean(dim=1))
for name, weights in {"softmax": others.softmax(dim=2), "softmax with a sink": declines}.items():
    others, before = (100 * each.sum(dim=2).mean() for each in (weights, whole))
    differ = (weights - whole).abs().sum(dim=2).mean()
    print(f"{name}: the others get {others:.0f} % of the attention, with the first token {before:.0f} %;")
    print(f"    a query's weights differ by {differ:.2f}")

# %% [markdown]
# Fast attention kernels do not return the weights, so nothing can be added to their denominator afterwards. But many of
# them return its logarithm, the log-sum-exp $\mathrm{lse} = \log \sum_i e^{x_i}$, and that is enough.

# %% [markdown]
# ### A sink for any attention
# **Exercise** · difficulty 3 of 5 · 8 minutes · 3 points
#
# You know what some attention read without a sink, and its log-sum-exp. Derive what it reads with one.


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
# the texts that the course has, byte by byte, and streamed held-out articles through each.
#
# Before you see a result, two things about the setting. The learning rate, 0.012, was **picked by hand among four
# (0.008 to 0.02), because at it the learned token keeps its attention**; the figure shows trainings at three rates,
# of 800 steps, and the models below were trained at the highest of these, for 4,000 steps. And there is one training of
# each kind. So whether a sink comes by itself is not tested here; what happens to a model that has one is.

# %%
measured = training.results()
training.rates(measured)

# %% [markdown]
# Gu and others (2025) report that sinks emerge after effective optimization on enough text, also in small models. These
# three trainings do not bear that out. At the two higher rates a sink is there after 50 steps, before the model has
# learnt much. At the middle rate it shrinks while the loss falls, and the rate that keeps it has the worst loss. Here a
# sink is no sign of a good model.

# %%
print(printed.source("pretraining"))
say(training.pretraining_verdict(measured))
training.beside_the_paper(measured)

# %% [markdown]
# Of our three models only the one with a learned token loses anything, and it loses a token that it had at every moment
# of its training. The other two never put anything into a first slot, so there was nothing to be cured. In the paper
# the zero sink alone is not enough either, since it needs other first tokens beside it; the paper recommends the
# learned token.
#
# Where does the attention of these models go?

# %%
training.first_slot_by_layer(measured)

# %% [markdown]
# The learned token is read in the first layer alone. The sink of the real model, in section 1, begins some layers up,
# so this is another phenomenon under the same name. A learned token is the same in each sample and easy to find, while
# the first byte differs: to make a sink of it, a model has to find out where it stands.
#
# ## 9. A tiny language with a sink
#
# Why would a head want a sink? Guo and others (2024) found a tiny language that shows it, *bigram-backcopy*. Letters
# follow each other as in English, but after a trigger, here a vowel, comes a copy of the letter before the trigger. A
# head has to look back at vowels, and has nothing to look for anywhere else. `course reproduce backcopy` trained models
# of one layer and one head on it, five of each kind. How one with a learnable sink reads a line:

# %%
idle = backcopy.results()
backcopy.sample(idle)

# %%
say(backcopy.verdict(idle))
backcopy.costs(idle)

# %% [markdown]
# Is that need or habit? These models have eight hidden units in the network behind the head. A wider network could
# cancel what the head adds in places where nothing should be added, and then the head would need no sink.

# %%
backcopy.by_width(idle)

# %% [markdown]
# With 64 units the head still gives its sink about half of the attention that it has nothing else to do with, but it
# loses next to nothing without it. So a sink may be used without being needed.
#
# ## 10. The same in vision
#
# Darcet and others (2023) found patches of plain background in large vision transformers whose norms are far above all
# others. Attention goes there, because the model uses these patches as notepads. A few learned tokens beside the
# patches, *registers*, take that over. We trained a small vision transformer on digits of 8 × 8 pixels, three times
# without and three times with registers. It is too small for the claim: no patch stands out, so that registers have
# nothing to take over.

# %%
say(training.registers_verdict(measured))
training.register_norms(measured)

# %% [markdown]
# ## 11. When it does not pay
#
# - **While the text fits into the cache** nothing leaves, and keys are turned for nothing.
# - **When the answer has left the window.** A token that has been evicted is lost, however long the stream.
#   Perplexity hardly shows that, since most tokens depend on near ones; lesson 07 asks questions instead.
# - **When turning costs more than reading.** Rolling positions turn keys at every step, unless the kernel that reads
#   them does it.
# - **When the window is short and quality is all that counts.** Then read it afresh, at the price of section 6.
#
# ## 12. An open task
#
# A stream needs a place for the attention that the heads have no other use for. Which tokens make the best one? You may
# put any text before each of ten passages, up to 16 tokens. They stay in the cache for good, and each takes one of the
# 48 slots; a number instead of a text keeps so many of the passage's own first tokens. All starts predict the same
# words. Get the perplexity as low as you can.

# %%
my_start = "The"

# %%
ideas = first_tokens.stored(load_measured("sinks", "first_tokens")["tables"]["ideas"])
first_tokens.table(ideas, first_tokens.attempt(model, tokenizer, my_start))

# %% [markdown]
# The rows above yours are simple ideas, measured once (`course reproduce first_tokens`). The last column compares each
# with the first row passage by passage, and says something where it is larger than twice its error. If you let a
# program search, let it search on other passages (`split="calibration"` in `corpora.windows`): the best of a hundred
# starts on these ten is partly luck.
#
# ## To take home
#
# 1. Softmax has to give its weight to some token. Models learn where to put the attention that they do not need.
# 2. As long as that place is kept, a window of tokens can go on for as long as you like.
# 3. Count positions in the cache and not in the text, because distances are what the model was trained on.
# 4. A stream without end does not remember: what has left the window is gone.
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
