# %% [markdown]
# # 08 · Attention sinks: why a stream needs its first tokens
#
# In a stream of text, such as a long chat, the KV cache (lesson 07) cannot keep every token. The obvious choice is a
# window: keep the newest tokens and evict the oldest. But with a window, the predictions of our model become much worse
# as soon as the very first token is evicted, whatever that token is. In this lesson you find out why, and you write
# **StreamingLLM** (Xiao, Tian, Chen, Han and Lewis, 2023), a method that reads text of any length in constant memory.
#
# We first measure where the attention goes and what is special about the first token. Then you write the parts of
# StreamingLLM, and one function of about 20 lines joins them and streams a text through the real model.
#
# **Afterwards you can** find the attention sinks and the massive activations of a model, stream a text through a cache
# of constant size, move the keys of a rotary cache to new positions, count what each way of reading a long text costs,
# and (optional section 8) write a softmax that needs no sink token.
#
# **You need** lesson 00, sections 2 and 4 (the residual stream, rotary embeddings, verdicts), the perplexity of lesson
# 01, lesson 07, sections 2 and 3 (the KV cache and the window), and rotations in the plane.
#
# **Time**: the core path, sections 1 to 7, takes a little over two hours, 49 minutes of it for exercises. The optional
# sections 8 to 12 take another hour, 18 minutes of it for exercises.

# %%
import torch
from transformers import DynamicCache

from course_lib.attention.windowed import Constant, attention_logits, attention_weights
from course_lib.attention.windowed import first_token, value_lengths, windowed
from course_lib.data import corpora
from course_lib.kv.analysis.streaming import streaming_perplexity
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.lessons.common import cache_speed
from course_lib.lessons.sinks import claims, optional_plots, plots, tables
from course_lib.lessons.sinks.experiments import first_tokens, four_ways
from course_lib.models import load_model, rotary_frequencies
from course_lib.workbook import check, mine

# %% [markdown]
# We use two texts of 512 tokens from Wikipedia: one to measure on, and one from another article for comparisons. The
# model is SmolLM2-135M-Instruct with 30 layers, numbered from 0, and 9 heads per layer. (In this lesson a *layer* is a
# transformer block.)

# %%
model, tokenizer = load_model()
text, other_text = corpora.windows("wikipedia", 2, 512, tokenizer, split="evaluation", seed=0)
print(f"The text begins: {tokenizer.decode(text[:12])!r}")
print(f"Its first token: {tokenizer.decode(text[:1])!r}")

# %% [markdown]
# ## 1. Where does the attention go?
#
# Our text begins in the middle of an article, so nothing in it is about its first token. How much attention would you
# expect that token to receive? We read the first 256 tokens of the text and average over all queries from token 64 on,
# because the first queries have few tokens to choose from.

# %%
start = 64
attention = attention_weights(model, text[None, :256])  # (layers, heads, queries, tokens)
share = attention[:, :, start:, 0].mean(dim=2)
uniform = (1 / torch.arange(start + 1, 257)).mean().item()  # if a query gave all tokens the same weight
plots.first_token_attention(share, uniform)

# %% [markdown]
# Look at the dark line, the mean of each layer. Up to layer 11 the first token receives less than 10 % of the
# attention. From layer 12 on it receives between a third and three quarters of the attention, where uniform attention
# (dotted) would give it 0.7 %. The grey dots are single heads: in most of the deeper layers, several of them spend
# nearly everything on the first token.
#
# A token that receives much attention without being relevant to the text is called an **attention sink** (Xiao and
# others, 2023). The figure shows the first token only. Do other tokens receive as much?

# %% [markdown]
# ### What each token receives
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# For every token, compute the attention that it receives: take the queries from `start` on that can see the token, and
# average their weights on it. Attention is causal, so a query sees its own token and all tokens before it, including
# those to which it gives a weight of 0. For example, with 256 tokens the last token is seen by a single query, so its
# sum is divided by 1.


# %% exercise="sinks.share"
def received(weights, start):
    """Compute what each token receives: the mean over the queries from `start` on that see it.

    weights: (L, H, T, T), row i holds the weights of query i; rows sum to 1. Returns (L, H, T).
    """
    ### BEGIN SOLUTION
    n_tokens = weights.shape[2]
    n_queries = n_tokens - torch.arange(n_tokens).clamp(min=start)
    return weights[:, :, start:].sum(dim=2) / n_queries
    ### END SOLUTION


# %%
check("sinks.share", received)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Token $j$ is seen by the queries $j, j + 1, \dots, T - 1$. Of these, only the ones from `start` on count, which are
# $T - \max(j, \text{start})$. We sum the columns of `weights[:, :, start:]` and divide column $j$ by this number.
#
# </details>
#
# Your function, averaged over all heads of the deeper half of the layers:

# %%
received_by_all = mine("sinks.share", received)(attention, start)
plots.received_by_token(received_by_all[15:].mean(dim=(0, 1)))

# %% [markdown]
# The red square on the left is the first token; no other token comes near it. (The last tokens on the right rise a
# little because only a few queries see them, and all of these are close to them.)
#
# Does the first token receive so much because of what it means, or because of its position? We read the beginning of
# the text five times, each time with another first token in place of its own (the first time with its own).

# %%
first_ids = {"its own": text[0].item(), "end of text": tokenizer.convert_tokens_to_ids("<|endoftext|>")}
first_ids |= {name: tokenizer(token).input_ids[0] for name, token in {"newline": "\n", "the": " the", "7": "7"}.items()}
attention_by_first_id = {}
for name, first_id in first_ids.items():
    changed_text = torch.cat([torch.tensor([first_id]), text[1:160]])
    attention_by_first_id[name] = attention_weights(model, changed_text[None])[:, :, start:, 0].mean(dim=(1, 2))
plots.attention_by_first_token(attention_by_first_id)

# %% [markdown]
# Each curve is one first token, from layer 0 on the left to layer 29. In the early layers a newline or *the* receives
# more than the others. But in layers 12 to 29, where the sink is strong, the five curves lie almost on top of each
# other. So the position makes this sink, and not the meaning of the token.
#
# ## 2. What is special about the first token
#
# Attention weights are computed from the **hidden states** that enter a layer (the residual stream of lesson 00). So we
# look at those next: we take the norm of the hidden state of every token at the input of every layer.

# %%
with torch.no_grad():
    states = model.model(text[None, :256], output_hidden_states=True, use_cache=False).hidden_states
hidden = torch.stack(states[:-1])[:, 0]  # (layers, tokens, features): the input of each layer
hidden_norms = hidden.norm(dim=-1)
plots.hidden_norms(hidden_norms)

# %% [markdown]
# Follow the red line, the first token; each grey dot is another token. At the input of layer 12 the norm of the first
# token jumps to 169 times the median of the other tokens (dark line). It keeps this size up to the input of layer 28,
# and at layer 29, the last one, it is still more than ten times the median. Layer 12 is also the first layer in which
# the first token is a strong sink (section 1). Which features make the norm so large?

# %%
for feature in hidden[12, 0].abs().topk(3).indices.tolist():
    print(f"feature {feature}: {hidden[12, 0, feature]:,.0f}")
print(f"all tokens and features at the input of layer 12: median absolute value {hidden[12].abs().median():.1f}")

# %% [markdown]
# A single feature, number 507, is 23,614, where a typical entry is below 2. Such values are called **massive
# activations** (Sun, Chen, Kolter and Liu, 2024): entries of the hidden states that are hundreds or thousands of times
# larger than the rest, at very few tokens. Here the layer before, number 11, writes it. You may remember this layer
# from lesson 04: its `down_proj` had one input feature that was huge at the first token alone.
#
# Sun and others report that massive activations sit at the first token and, in some models, also at **delimiter
# tokens** such as a period or a newline. Is this so for our model? In the figure of the norms above, some grey dots in
# layers 3 to 9 lie far above the rest. The next cell lists those at the input of layer 5, with the attention that they
# receive in layers 3 to 9.

# %%
early_attention = received_by_all[3:10].mean(dim=(0, 1))
is_large = hidden_norms[5] > 3 * hidden_norms[5].median()
for position in is_large.nonzero().flatten().tolist():
    largest = hidden[5, position].abs().argmax()
    token = tokenizer.decode(text[position])
    print(
        f"token {position}, {token!r}: norm {hidden_norms[5, position]:.0f}, feature {largest} is "
        f"{hidden[5, position, largest]:.0f}, receives {100 * early_attention[position]:.1f} %"
    )
print(
    f"median of all tokens: norm {hidden_norms[5].median():.0f}, absolute value {hidden[5].abs().median():.1f}, "
    f"receives {100 * early_attention.median():.1f} %"
)

# %% [markdown]
# At all seven tokens the same feature 507 is the largest: at the first one, at two spaces and at four occurrences of
# the word *the*. It is much smaller there than the 23,614 of layer 12, but still hundreds of times a typical entry.
# Each of these tokens receives 6 to 19 % of all attention, and the median token 0.2 %. So in these layers our model has
# several weak sinks, at tokens that carry little meaning. Punctuation is not among them: in this text, no period and no
# newline stands out. In layers 10 and 11 no norm stands out, and the first token receives almost nothing. From layer 12
# on, only the first token has a massive activation, and only the first token is a sink.
#
# So a massive activation and a sink come together, in the same layers and at the same tokens. Does the sink need the
# massive activation? To test this, we change the single number 23,614 while the model reads, with a **forward hook** on
# layer 11: a function that PyTorch calls with the output of a layer and that may return another output. The cell also
# prints the norm of the **values**, the vectors that attention adds up.


# %%
def change_massive_activation(number):
    """Set feature 507 of the first token after layer 11, by a hook; return the hook's handle."""

    def replace_number(layer, arguments, output):
        output = output.clone()
        output[:, 0, 507] = number
        return output

    return model.model.layers[11].register_forward_hook(replace_number)


@torch.no_grad()
def late_perplexity():
    """Compute the perplexity of the text from token 129 on."""
    logits = model(text[None], use_cache=False).logits[0, 128:-1]
    return torch.nn.functional.cross_entropy(logits, text[129:]).exp()


with torch.no_grad():
    other_states = model.model(other_text[None], output_hidden_states=True, use_cache=False).hidden_states
own_number, other_number = hidden[12, 0, 507].item(), other_states[12][0, 0, 507].item()
numbers = {"unchanged": own_number, "of the other text": other_number, "half": own_number / 2, "zero": 0.0}
for name, number in numbers.items():
    handle = change_massive_activation(number)
    on_first = attention_weights(model, text[None, :256])[12:, :, start:, 0].mean()
    lengths = value_lengths(model, text[None, :256])[12:]  # (layers, tokens)
    print(f"{number:,.0f} ({name}): perplexity {late_perplexity():,.1f}")
    print(f"    attention on the first token from layer 12 on: {100 * on_first:.0f} %")
    others = lengths[:, 8:].median()  # without the first few tokens, which are unusual too
    print(f"    median norm of the values: first token {lengths[:, 0].median():.1f}, other tokens {others:.1f}")
    handle.remove()

# %% [markdown]
# Compare each run with the first one, in which nothing is changed.
#
# - **The number of another text**, 25,272 instead of 23,614: almost nothing changes. With **half** of the number, the
#   perplexity rises from 14.0 to 18.8. So the number must be large, but the model does not need the exact one.
# - **Set to 0**: one of 512 · 576 = 294,912 numbers is changed, and the perplexity rises to more than a million, so the
#   model is much worse than a uniform guess over its 49,152 tokens. The first token still receives 40 % of the
#   attention (unchanged: 55 %). So the massive activation is not the only cause of the sink. But the values of the
#   first token are now nearly as long as those of the other tokens.
#
# The run with 0 shows one thing that the massive activation does in this model: it makes the value of the first token
# short. In the next figure you see these lengths for the unchanged model. We compute the values as each layer does: it
# normalizes its input and multiplies it by the matrix `v_proj`.

# %%
values = []
with torch.no_grad():
    for layer, layer_input in zip(model.model.layers, hidden, strict=True):
        values.append(layer.self_attn.v_proj(layer.input_layernorm(layer_input)))
values = torch.stack(values)  # (layers, tokens, heads · 64), for the 3 key-value heads of the model
plots.value_norms(values.unflatten(2, (-1, 64)).norm(dim=3).mean(dim=2))

# %% [markdown]
# From layer 12 on, the values of the first token (red) are several times shorter than the others. So a query that gives
# most of its attention to the first token adds little to its hidden state.
#
# Are the long values the reason for the perplexity above a million? We set the massive activation to 0 again, but give
# the first token its own short values from layer 12 on.

# %%
handles = [change_massive_activation(0.0)]
for layer, short_value in zip(model.model.layers[12:], values[12:, 0], strict=True):

    def restore_value(module, arguments, output, short_value=short_value):
        output = output.clone()
        output[:, 0] = short_value
        return output

    handles.append(layer.self_attn.v_proj.register_forward_hook(restore_value))
print(f"massive activation 0, short values restored: perplexity {late_perplexity():.1f}")
for handle in handles:
    handle.remove()

# %% [markdown]
# The perplexity is 57.5 instead of more than a million, so most of the damage comes from the long values: each head
# that attends to the first token adds a wrong vector to the hidden state. (It is still far above 14, because the keys
# of the first token have changed as well.)
#
# Why is the value so short? A likely explanation is the **normalization** at the input of each layer: it divides a
# hidden state by its root mean square. A state with one huge feature becomes nearly the same vector in every text, and
# the layers can learn to give this fixed vector a key that fits all queries and a short value.
#
# Why would a model learn this? Our **hypothesis**: a softmax must distribute a total weight of 1, so a head that finds
# nothing relevant puts its weight on the sink and changes little. The first token is suitable because every later query
# sees it. Nothing in this lesson trains such a large model, so we cannot test this here. Section 10 shows a tiny model
# in which a head does exactly this.
#
# ## 3. What happens when the sink is evicted
#
# A softmax turns numbers, the **logits**, into weights. In attention, the logit is the product of a query and a key,
# divided by $\sqrt D$ (not to be confused with the logits of the LM head). Equation 1 of the StreamingLLM paper writes
# the logit $x_1$ of the sink apart, which is much larger than the others (the paper counts tokens from 1, we count from
# 0):
#
# $$ \operatorname{softmax}(x)_i = \frac{e^{x_i}}{e^{x_1} + \sum_{j=2}^{N} e^{x_j}}, \qquad x_1 \gg x_j $$
#
# If the first token is evicted, the largest term of the denominator is missing. What happens to the other weights?

# %% [markdown]
# ### What the others get
# **Exercise** · difficulty 2 of 5 · 6 minutes · 2 points
#
# Some tokens are evicted from the cache. You know the attention weights before the eviction, but not the logits.
# Compute the weights of the tokens that are kept, if their logits stay the same. In every row, some kept token has a
# weight above 0.


# %% exercise="sinks.evict"
def after_eviction(weights, keep):
    """Compute the attention weights after some tokens have been evicted.

    weights: (Q, N), rows sum to 1. keep: (N,), bool, True = kept. Returns (Q, kept tokens).
    """
    ### BEGIN SOLUTION
    left = weights[:, keep]
    return left / left.sum(dim=1, keepdim=True)
    ### END SOLUTION


# %%
check("sinks.evict", after_eviction)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# The numerators of the kept tokens do not change. The new denominator is the sum of these numerators, so we divide the
# kept weights by their sum. If a token with the fraction $s$ of the attention is evicted, all other weights grow by
# the factor $1 / (1 - s)$. For example, without a sink that had 90 % of the attention, all other weights are ten times
# as large.
#
# </details>
#
# Here is this factor for every head of our model when the first token is evicted, computed from its mean share of the
# attention in section 1:

# %%
growth_factor = 1 / (1 - share)  # (layers, heads)
plots.growth(growth_factor)

# %% [markdown]
# Each box shows the nine heads of a layer, and the line in it is their median. Up to layer 11 the factor is close to 1.
# In the deeper layers the median head has a factor of 2.3, and some heads have one above 5. Does the output of
# attention grow as well? The values of the other tokens are not short, so it could. We measure it, once with all tokens
# and once with a window of 128 tokens: inside of `windowed(model, window=128)`, every token attends to the newest 128
# tokens only, itself among them. (So the first token leaves the window at token 128.)


# %%
def attention_output_norms(**window):
    """Collect the norm of the output of attention in every layer, from token 130 on."""
    norms = []
    handles = [
        layer.self_attn.o_proj.register_forward_hook(lambda _, x, output: norms.append(output[0, 130:].norm(dim=-1)))
        for layer in model.model.layers
    ]
    with torch.no_grad(), windowed(model, **window):
        model(text[None], use_cache=False)
    for handle in handles:
        handle.remove()
    return torch.stack(norms)  # (layers, tokens)


growth_of_output = (attention_output_norms(window=128) / attention_output_norms()).median(dim=1).values
print(f"layers 12 to 29: with the window, {growth_of_output[12:].median():.2f} times the norm (median)")
print(f"layers 0 to 11: {growth_of_output[:12].median():.2f} times")

# %% [markdown]
# In layers 12 to 29 it is 1.7 times as long (median), and in the layers before 1.03 times. So a typical deep layer adds
# a vector to the hidden state that is much longer than with the sink.
#
# Does this harm the model? We let it read the text with a window of 128 tokens. With a mask, one pass over the text is
# enough: row $i$ of the mask allows the tokens that would be in the cache when token $i$ is read. Positions stay those
# of the text.


# %%
@torch.no_grad()
def losses_with(keep):
    """Compute the loss of every prediction, with `keep` (T, T) as the attention mask."""
    additive = torch.zeros(keep.shape).masked_fill(~keep, -torch.inf)[None, None]
    logits = model(text[None], attention_mask=additive, use_cache=False).logits[0, :-1]
    return torch.nn.functional.cross_entropy(logits, text[1:], reduction="none")


budget = 128
position_of_query, position_of_key = torch.arange(512)[:, None], torch.arange(512)
is_causal = position_of_key <= position_of_query
is_recent = position_of_key > position_of_query - budget
stream_losses = {"newest tokens": losses_with(is_causal & is_recent), "all tokens": losses_with(is_causal)}
plots.streams(stream_losses, budget)

# %% [markdown]
# The horizontal axis is the token that is predicted, and each point averages over 64 tokens. The dashed red line, with
# all tokens, shows how difficult the text itself is; the dark line is the window. The two are equal up to token 128,
# where the cache is full, and separate there. At this point only one thing happens: the first token is evicted. From
# there on, the perplexity with the window is 3.5 times as high. (In section 2 the perplexity rose far more, although
# the first token was still there. It kept 40 % of the attention with a long value, whereas here this attention goes to
# tokens of the text.)
#
# What does a model *write* in this state? Six chats of two rounds were written with a cache of 64 slots
# (`course reproduce four_ways`). The table shows the second answer in one of them. Over all six chats we claim that the
# answers repeat themselves much more without the first tokens:

# %%
print(claims.CHAT_COLLAPSES.judge())
tables.chat()

# %% [markdown]
# The first row keeps all tokens. With the newest tokens alone (second row), the model repeats itself over and over.
# With four first tokens in addition to the newest ones (third row), it stays fluent, and that is the method of the next
# section. The claim also prints a perplexity: how likely the full cache finds both answers, compared with those that it
# wrote itself. It does not decide the claim, because a text that repeats itself is easy to predict.
#
# ## 4. Never evict the sinks
#
# The remedy is simple: never evict the first few tokens, and let the window move next to them. This is how StreamingLLM
# chooses its tokens. It needs no training and no scores, and it makes the same choice in all layers and heads. The
# first tokens that are kept are called **sinks**, and the number of slots in the cache is the **budget**.

# %% [markdown]
# ### Sinks and a window
# **Exercise** · difficulty 2 of 5 · 7 minutes · 2 points
#
# Which tokens are in a cache of `budget` slots after `n_tokens` have been read, if the first `sinks` tokens are never
# evicted? Sinks take up slots too, and a short text does not fill the cache. For example, after 10 tokens with 2 sinks
# and 6 slots, the cache holds 0, 1, 6, 7, 8 and 9.


# %% exercise="sinks.slots"
def kept_tokens(n_tokens, sinks, budget):
    """List the tokens in the cache, counted from 0, in any order.

    0 ≤ sinks < budget. Returns a list, a set or a tensor of whole numbers.
    """
    ### BEGIN SOLUTION
    if n_tokens <= budget:
        return list(range(n_tokens))
    return [*range(sinks), *range(n_tokens - (budget - sinks), n_tokens)]
    ### END SOLUTION


# %%
check("sinks.slots", kept_tokens)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# If the text fits, everything is kept. Otherwise, `budget - sinks` slots remain for the newest tokens, so these are the
# tokens from `n_tokens - (budget - sinks)` on.
#
# </details>
#
# The next function turns your answer into the mask of a whole text: row $i$ allows the tokens that are in the cache
# when token $i$ is read, including token $i$ itself. It also counts the position of each of these tokens **in the
# cache**, which section 6 will need.


# %%
def window_and_positions(n_tokens, sinks, budget, kept_tokens):
    """For each query: which tokens it attends to, and the position of each of them in the cache.

    Returns (T, T), bool, and (T, T), whole numbers; one row per query.
    """
    keep = torch.zeros(n_tokens, n_tokens, dtype=torch.bool)
    for query in range(n_tokens):
        in_cache = kept_tokens(query + 1, sinks, budget)  # the token of the query is the newest one
        keep[query, torch.as_tensor(list(in_cache)).long()] = True
    position_in_cache = keep.cumsum(dim=1) - 1  # the number of kept tokens before this one
    return keep, position_in_cache


plots.mask_and_positions(*window_and_positions(12, 2, 6, mine("sinks.slots", kept_tokens)))

# %% [markdown]
# Each row of the drawing is a query, and the filled squares in it are the tokens to which it attends, for 2 sinks and 6
# slots. The red squares are the query's own token. Up to row 5 nothing is evicted. From row 6 on, the two columns on
# the left stay, and a window of four tokens moves to the right. (The numbers in the squares are positions in the
# cache; ignore them for now.)
#
# Now the real text, with one sink and with four sinks, both in 128 slots:

# %%
for n_sinks in (1, 4):
    allowed_tokens, _ = window_and_positions(512, n_sinks, budget, mine("sinks.slots", kept_tokens))
    stream_losses[f"{n_sinks} + {budget - n_sinks}"] = losses_with(allowed_tokens)
plots.streams(stream_losses, budget)

# %% [markdown]
# The numbers in the legend are the perplexities from token 128 on. The curves with one sink (1 + 127) and with four
# sinks (4 + 124) stay close to the dashed one with all tokens. So a single first token, for which the window gives up
# one slot, undoes the collapse.
#
# Do we need the text's own first tokens? Xiao and others replace the first four by newlines (table 1), and we do the
# same. `sinks=4` keeps the first four tokens in addition to the window.

# %%
newlines = torch.tensor(tokenizer("\n").input_ids * 4)
with torch.no_grad(), windowed(model, window=budget - 4, sinks=4):
    logits = model(torch.cat([newlines, text[4:]])[None], use_cache=False).logits[0, budget:-1]
newline_loss = torch.nn.functional.cross_entropy(logits, text[budget + 1 :])
late_losses = {name: losses[budget:].mean() for name, losses in stream_losses.items()}
restored = (late_losses["newest tokens"] - newline_loss) / (late_losses["newest tokens"] - late_losses["4 + 124"])
print(f"perplexity with four newlines as sinks: {newline_loss.exp():.1f}")
print(f"of the extra loss that the text's own four tokens take away, the newlines take away {100 * restored:.0f} %")

# %% [markdown]
# Newlines do nearly as well, which fits section 1.
#
# This was one short text. `course reproduce kv` streamed 20,480 tokens through a cache of 256 slots. We claim that one
# sink undoes most of the collapse, and the figure compares our result with that of Xiao and others:

# %%
print(tables.stream_provenance())
print(claims.ONE_SINK.judge())
plots.by_sinks()

# %% [markdown]
# Both panels show the perplexity by the number of first tokens that are kept. On the left, for Llama-2-7B, the
# perplexity without sinks is 3,360; one sink reduces it to 11.88, and eight to 9.54. Xiao and others conclude that one
# or two sinks are not enough, since 11.88 is a quarter more than 9.54. On the right, for our model, the points for 1, 2
# and 4 sinks agree within 0.1 %: one sink is enough. The collapse is also much smaller here, from 18.84 to 42.62. We
# have not tested why the two models differ.
#
# The **cost** is the slots of the sinks, at most four here. In the stream of `course reproduce kv`, neither the memory
# nor the time per token grows with the length of the text.
#
# ## 5. A sink acts like a bias
#
# If queries attend to the sink in order to add little, then a constant might do the same job. We test this. From
# **another** text we take two things for every head: the average logit between its queries and the first token, and the
# value of that token. Then the model reads our text with a window, so that from token 128 on its own first token is
# gone, and we add that constant to every softmax as if it were one more token. It is one number and one vector per
# head, the same for every query. (`first_token` measures both, and a `Constant` holds them.)

# %%
constant = first_token(model, other_text[None])
logit_alone = Constant(constant.logit, torch.zeros_like(constant.value))
sink_settings = {
    "window": {},
    "window, a logit without a value": {"constant": logit_alone},
    "window, a logit and a value": {"constant": constant},
    "window and the first token": {"sinks": 1},
}
ppl_by_setting = {}
for name, setting in sink_settings.items():
    with torch.no_grad(), windowed(model, window=budget, **setting):
        logits = model(text[None], use_cache=False).logits[0, budget:-1]
    ppl_by_setting[name] = torch.nn.functional.cross_entropy(logits, text[budget + 1 :]).exp().item()
plots.constant_as_sink(ppl_by_setting)

# %% [markdown]
# Read the bars from top to bottom. The logit alone (second bar) restores only a part of what the first token does. With
# the value (third bar), the constant from another text does nearly all of it. So the value of the sink is short, but it
# matters, because it is multiplied by most of the weight. In other words, the sink acts like a **bias** inside the
# softmax: a constant logit and a constant value, the same for every text. (The vector that it adds is not quite
# constant, because the weight of the sink also depends on the other logits.)
#
# ## 6. Positions that stay small
#
# The window and the sinks solve one problem of a long stream. The second one is distance. After a million tokens, the
# sinks are a million positions away from the query, and our model was trained on texts of at most 8,192 tokens.
# StreamingLLM therefore counts positions **in the cache** (section 3.2 of the paper): the token in the first slot has
# position 0, the next one has position 1, and so on.

# %%
plots.cache_positions([0, 1, 2, 3, *range(24, 32)], trained=16)

# %% [markdown]
# The drawing shows one cache with four sinks and eight recent tokens. Above, with positions of the text, the newest
# token (diamond) is 31 positions away from the first. Below, with positions in the cache, it is 11 positions away, and
# this distance stays the same for the rest of the stream. In the drawing of section 4 these positions are the numbers
# in the squares: no number is above 5, however long the text is. (The shaded part stands for distances beyond a trained
# length, in the drawing 16.)
#
# Llama models encode positions by **rotary position embeddings** (RoPE; Su and others, 2021, and lesson 00): each pair
# of features of a key is rotated before the key is stored, by an angle that is proportional to its position, and
# queries are rotated in the same way. The attention logit then depends only on the difference of the two positions. To
# move a stored key to another position, we have to rotate it further. (Xiao and others store the keys without rotation
# and rotate them at every step. The result is the same.)

# %% [markdown]
# ### Positions in the cache
# **Exercise** · difficulty 3 of 5 · 8 minutes · 3 points
#
# Each head holds keys that were rotated to some `position`. The slots are in no particular order. In each row, the
# token with the smallest position must get position 0, the next one position 1, and so on. By how many positions must
# each key be rotated? For example, a key at position 24 that gets position 4 must be rotated by 4 − 24 = −20.


# %% exercise="sinks.positions"
def turn_by(position):
    """Compute by how many positions each key must be rotated.

    position: (H, N), whole numbers, all different within a row. Returns (H, N), whole numbers.
    """
    ### BEGIN SOLUTION
    place = position.argsort(dim=1).argsort(dim=1)
    return place - position
    ### END SOLUTION


# %%
check("sinks.positions", turn_by)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# The new position of a token is its rank within the row, that is, the number of older tokens. `argsort` once gives the
# slots in order of position. `argsort` a second time inverts this permutation and gives the rank of each slot. The
# result is the rank minus the position.
#
# </details>
#
# Rotations add up: a key that was rotated by 24 positions and then by −20 is where a rotation by 4 puts it. RoPE
# rotates pairs of features, and there are two conventions for these pairs. The RoPE paper and the original Llama code
# pair the neighbours $2i$ and $2i + 1$. The Llama code of Hugging Face, which we use, pairs feature $i$ of a key with
# feature $i + D/2$. From one position to the next, pair $i$ is rotated by the angle $\theta_i$. (This
# angle is $\theta^{-2i/D}$ with the constant $\theta$ of lesson 00.)

# %% [markdown]
# ### Rotate a key
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Rotate each key by a number of positions, forwards or backwards. For example, with D = 2 and $\theta_0 = \pi/2$, the
# key (1, 0) rotated by one position is (0, 1).


# %% exercise="sinks.rotate"
def turn(keys, by, frequencies):
    """Rotate keys by a number of positions.

    keys: (N, D). by: (N,), whole numbers. frequencies: (D/2,), the angle per position of the pair
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
# <details><summary>Solution (open it once your check is right)</summary>
#
# A pair $(a, b)$ that is rotated by the angle $\varphi$ becomes $(a \cos\varphi - b \sin\varphi,\; b \cos\varphi + a
# \sin\varphi)$. With `low` and `high` for the two halves of each key, the angle of key $n$ and pair $i$ is
# `by[n] * frequencies[i]`.
#
# </details>
#
# Now the whole method. The next cell reads a text token by token with a cache of constant size, and it uses three of
# your functions. For each token it does three things:
#
# - **Read**: the model reads the token at the next free position of the cache and predicts the next token.
# - **Evict**: `kept_tokens` lists the tokens that may stay. In every layer we keep the keys and values of these slots.
# - **Rotate**: the tokens after an evicted one move forward by one slot. `turn_by` computes by how many positions their
#   keys must be rotated, and `turn` rotates them.
#
# Like the library, the loop evicts after it has read, so a token attends to itself and to as many others as there are
# slots, one token more than in the mask of section 4. `DynamicCache` is the cache of Hugging Face; its layers hold keys
# and values of shape (batch, heads, slots, D).


# %%
@torch.no_grad()
def stream_with_sinks(model, token_ids, sinks, budget, kept_tokens, turn_by, turn):
    """Read a text token by token with StreamingLLM; return the loss of every prediction."""
    cache, losses = DynamicCache(config=model.config), []
    frequencies = rotary_frequencies(model)
    in_cache = torch.zeros(0, dtype=torch.long)  # the tokens in the cache, oldest first
    for n_read, token in enumerate(token_ids[:-1], start=1):
        position = torch.tensor([[len(in_cache)]])  # the next free position in the cache
        output = model(token.view(1, 1), position_ids=position, past_key_values=cache, use_cache=True)
        losses.append(torch.nn.functional.cross_entropy(output.logits[0], token_ids[n_read][None]))
        in_cache = torch.cat([in_cache, torch.tensor([n_read - 1])])
        allowed = torch.as_tensor(list(kept_tokens(n_read, sinks, budget))).long()
        slots = torch.isin(in_cache, allowed).nonzero().flatten()
        if len(slots) < len(in_cache):
            offsets = turn_by(slots[None])[0]  # from the old to the new position in the cache
            for layer in cache.layers:
                rotated = [turn(keys, offsets, frequencies) for keys in layer.keys[0, :, slots]]
                layer.keys = torch.stack(rotated)[None]
                layer.values = layer.values[:, :, slots]
            in_cache = in_cache[slots]
    return torch.stack(losses)


my_losses = stream_with_sinks(
    model,
    text[:96],
    4,
    48,
    mine("sinks.slots", kept_tokens),
    mine("sinks.positions", turn_by),
    mine("sinks.rotate", turn),
)
print(f"{len(my_losses)} predictions in 48 slots: perplexity {my_losses.mean().exp():.2f}")

# %% [markdown]
# The library does the same with `StreamingLLM` and `positions="rolling"`. It also handles batches, chunks of several
# tokens per pass and other models. Does it compute the same losses?

# %%
library = streaming_perplexity(model, text[:96], StreamingLLM(48, sinks=4), positions="rolling", chunk=1)
print(f"largest difference of a loss: {(library.losses - my_losses).abs().max():.0e} nats")

# %% [markdown]
# The difference should be rounding errors only. (Losses are in **nats**, that is, computed with the natural logarithm.)
# From here on we can use the library, which is faster when it reads several tokens per pass (`chunk`). It then evicts
# only after each pass, so the last token of a pass of 32 attends to 31 tokens more.
#
# Do positions in the cache matter? Within the trained length we expect no large effect, because the model has seen all
# these distances. So we make a gap: after the fourth token, the positions jump ahead by twice the trained length, as if
# so many tokens had been read and evicted in between.

# %%
gap = 2 * model.config.max_position_embeddings
gap_settings = {"4 + 124, positions of the text": "original", "4 + 124, positions in the cache": "rolling"}
ppl_after_gap = {}
for name, positions in gap_settings.items():
    after_gap = streaming_perplexity(model, text, StreamingLLM(budget), positions, chunk=32, skip=budget, gap=gap)
    ppl_after_gap[name] = after_gap.losses[budget:].mean().exp().item()
times = ppl_after_gap["4 + 124, positions of the text"] / ppl_after_gap["4 + 124, positions in the cache"]
title = f"{gap:,} positions from the sinks: {times:.0f} times the perplexity\nwith positions of the text"
plots.bars(ppl_after_gap, title)

# %% [markdown]
# With positions of the text, the sinks are at a distance that the model has never seen, and its perplexity is far
# higher than in section 3, without any sinks. With positions in the cache, the gap has no effect, as it must be: these
# positions do not contain it. From which gap on does the model collapse? `course reproduce kv` measured gaps of several
# sizes on another text, and we claim that sinks far away need positions counted in the cache:

# %%
print(claims.ROLLING.judge())
plots.gaps()

# %% [markdown]
# The horizontal axis is the number of positions between the sinks and the rest of the text. Up to 8,192 positions, the
# trained length, both curves are equal. At 16,384, the curve for positions of the text (dark) is 60 times as high, and
# the other one hardly moves: it is 1 % higher there, and 3 % higher at 65,536.
#
# **Cost**: our loop rotates all keys at every step. A kernel can do this while it reads the keys, so that it needs no
# additional memory traffic.
#
# ## 7. What it costs
#
# There is a way that needs neither sinks nor rotations: for every new token, read the last $L$ tokens again from
# scratch, without a cache. Then the window has a first token of its own, and its positions begin at 0. This is called a
# **sliding window with recomputation**. The drawing shows the four ways to read a text of $T$ tokens: dense attention,
# a plain window, recomputation, and StreamingLLM. Light squares are computed again for the newest token, and yellow
# squares are sinks.

# %%
plots.four_patterns()

# %% [markdown]
# The formulas in the titles count pairs of a query and a token. For example, with $T = 10{,}000$ and $L = 1{,}000$,
# dense attention needs about $10^8$ pairs, a window $10^7$, and recomputation $10^{10}$ (up to a factor of about 2,
# because attention is causal).

# %% [markdown]
# ### What one more token costs
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Count the FLOPs for one more token in three of these ways. Every weight is used once for each token that goes through
# the model, in a multiplication and an addition, so it costs 2 FLOPs. In each layer, a pair of a query and a token
# multiplies and adds `width` numbers for the logits and `width` numbers for the values (all heads together), 2 FLOPs
# each. A query attends to its own token too, which takes one of the `window` slots. Before `window` tokens have been
# read, the window is not full.


# %% exercise="sinks.cost"
def flops_a_token(n_weights, n_layers, width, n_read, window):
    """Count the FLOPs for one more token, the last of `n_read` tokens read.

    Returns (dense with a cache, streaming with a cache of `window` slots, recomputed window).
    """
    ### BEGIN SOLUTION
    token, pair, held = 2 * n_weights, 4 * n_layers * width, min(n_read, window)
    dense = token + pair * n_read
    streaming = token + pair * held
    return dense, streaming, token * held + pair * held * (held + 1) // 2
    ### END SOLUTION


# %%
check("sinks.cost", flops_a_token)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# A token costs two FLOPs per weight. A pair costs $2 \cdot \text{width}$ FLOPs for the logit and as many for the value,
# in each layer. With a cache, only the new token is a query: it reads $T$ tokens (dense) or $\min(T, L)$ tokens
# (streaming). Without a cache, all $\min(T, L) = W$ tokens go through the weights, and the causal mask leaves
# $1 + 2 + \dots + W = W (W + 1) / 2$ pairs.
#
# </details>

# %%
sizes, count_flops = four_ways.shape(model), mine("sinks.cost", flops_a_token)
counts = [count_flops(*sizes, n_tokens, four_ways.SHOWN) for n_tokens in four_ways.N_READ]
flops_by_way = dict(zip(("dense", "streaming", "recomputation"), zip(*counts, strict=True), strict=True))
plots.flop_counts(four_ways.N_READ, flops_by_way, four_ways.SHOWN)

# %% [markdown]
# For short texts (left), dense attention (dark) is as cheap as streaming, because nearly all FLOPs are those of the
# weights. From about 3,000 tokens on, its pairs cost more than the weights, and the curve rises. At the right end, a
# recomputed window of 256 tokens costs about 250 times as much as a streaming step, because 256 tokens go through all
# the weights instead of one.
#
# The wall-clock ratio is smaller than that of the counts. A single token needs all weights from memory for little
# arithmetic (lesson 00: it is memory-bound), while a whole window keeps the arithmetic units busy. `course bench kv`
# timed a streaming step and a recomputed window on a CPU. Look at the distance of the two lines, which is their ratio:

# %%
cache_speed.streams()

# %% [markdown]
# The ratio grows with the window, up to 34 for 2,048 tokens, although the FLOPs differ more than a thousandfold. Xiao
# and others report up to 22.2 times, on a GPU and with larger models.
#
# And how good are the four ways? `course reproduce four_ways` read one text of 9,024 tokens, which is longer than the
# trained length of 8,192. Because recomputation is slow, only 48 predictions after the trained length are compared. We
# claim that StreamingLLM is about as good as recomputation, as in the paper:

# %%
print(claims.AS_AFRESH.judge())
tables.four_ways()

# %% [markdown]
# The last column compares each way with StreamingLLM on the same predictions. The plain window has about 1.7 times the
# perplexity of StreamingLLM, and recomputation nearly the same.
#
# The row *dense* looks different from the paper's. There, dense attention collapses beyond the trained length, with a
# perplexity of 5,641; here it does not. But our text is only a tenth longer than the trained length, and the paper's
# is many times as long. In section 6 our model collapsed too, at distances of twice the trained length.
#
# ### When it does not pay off
#
# - **While the text fits into the cache**, nothing is evicted, and there is nothing to gain.
# - **When the answer has left the window.** An evicted token is lost, however long the stream goes on. Perplexity
#   hardly shows this, because most predictions depend on nearby tokens. Lesson 07 therefore asks questions about the
#   text.
# - **When quality is all that counts** and the window is short, recomputation is as good and simpler, at the price
#   shown above.
#
# This is the end of the core path. Go on with the optional sections, or jump to *To take home*.
#
# ## 8. Optional: a softmax with a sink
#
# If a softmax must distribute a weight of 1, then a natural idea is to change the softmax. We add one term to the
# denominator that belongs to no token:
#
# $$ p_j = \frac{e^{x_j}}{e^{s} + \sum_i e^{x_i}} $$
#
# The weights then sum to less than 1. With $s = 0$ this is **softmax-off-by-one** (Miller, 2023; equation 2 of the
# StreamingLLM paper). With $s \to -\infty$ it is the usual softmax. A learned $s$ for every head is part of gpt-oss
# (OpenAI, 2025). For example, with two logits of 0 and $s = 0$, each token gets 1/3, and 1/3 goes to no token.

# %% [markdown]
# ### A softmax with a sink
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Write this softmax for logits of any size. They may be large, positive or negative, and may differ by hundreds between
# rows, between heads, and from the sink. A query that sees no token gets a row of zeros.


# %% exercise="sinks.softmax"
def softmax_with_sink(logits, sink):
    """Compute attention weights that sum to less than 1.

    logits: (H, Q, N); −inf where a query may not look, which may be a whole row. sink: (H,), one
    finite logit per head, which may be far from those of the tokens. Returns (H, Q, N).
    """
    ### BEGIN SOLUTION
    column = sink[:, None, None].expand(-1, logits.shape[1], 1)
    return torch.cat([logits, column], dim=2).softmax(dim=2)[:, :, :-1]
    ### END SOLUTION


# %%
check("sinks.softmax", softmax_with_sink)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Treat the sink as one more token: append its logit as a column, take the usual softmax over all columns, and drop that
# column. PyTorch's softmax subtracts the maximum of each row, so nothing overflows. Because the sink is finite, no row
# consists of −inf only.
#
# </details>
#
# Now we use your function on logits of the real model, in layer 20, which has a strong sink. We remove the first token
# and give each head a sink in its place, with the average logit between its queries and that token. How close are the
# weights of the other tokens to those with the first token?

# %%
layer_logits = attention_logits(model, text[None, :96])[20][:, 32:]  # (heads, queries, tokens)
with_first = layer_logits.softmax(dim=2)[:, :, 1:]
other_logits, sink_logits = layer_logits[:, :, 1:], layer_logits[:, :, 0].mean(dim=1)
weights_by_name = {
    "first token kept": with_first,
    "first token removed": other_logits.softmax(dim=2),
    "removed, with a sink": mine("sinks.softmax", softmax_with_sink)(other_logits, sink_logits),
}
for name, weights in weights_by_name.items():
    difference = (weights - with_first).abs().sum(dim=2).mean()
    print(f"{name}: the others get {100 * weights.sum(dim=2).mean():.0f} %, difference per query {difference:.2f}")

# %% [markdown]
# The difference per query is the sum of the absolute differences of its weights. Compare the last two lines. With the
# sink in the denominator, the weights of the other tokens are almost as they were with the first token.
#
# Fast attention kernels do not return their weights, so we cannot add anything to their denominator afterwards. But
# many of them return its logarithm, the **log-sum-exp** $\mathrm{lse} = \log \sum_i e^{x_i}$, and this is enough.

# %% [markdown]
# ### A sink for any attention kernel
# **Exercise** · difficulty 3 of 5 · 8 minutes · 3 points
#
# You know the output of attention without a sink, and its log-sum-exp. Compute the output with a sink. Every query sees
# at least one token.


# %% exercise="sinks.gate"
def with_a_sink(output, lse, sink):
    """Compute the output of attention with a sink.

    output: (H, Q, D), without a sink. lse: (H, Q). sink: (H,). Returns (H, Q, D).
    """
    ### BEGIN SOLUTION
    return output * (lse - sink[:, None]).sigmoid()[..., None]
    ### END SOLUTION


# %%
check("sinks.gate", with_a_sink)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# Only the denominator changes, from $e^{\mathrm{lse}}$ to $e^{\mathrm{lse}} + e^{s}$. So the output is multiplied by
# $e^{\mathrm{lse}} / (e^{\mathrm{lse}} + e^{s}) = \sigma(\mathrm{lse} - s)$, where $\sigma$ is the sigmoid.
#
# </details>

# %%
generator = torch.Generator().manual_seed(0)
random_values = torch.randn(9, 95, 64, generator=generator)
output_by_weights = weights_by_name["removed, with a sink"] @ random_values
output_without, lse = weights_by_name["first token removed"] @ random_values, other_logits.logsumexp(dim=2)
output_by_gate = mine("sinks.gate", with_a_sink)(output_without, lse, sink_logits)
print(f"largest difference between the two functions: {(output_by_weights - output_by_gate).abs().max():.0e}")
plots.gate()

# %% [markdown]
# The two functions agree up to rounding errors. The figure shows the factor: to the right of 0, where the log-sum-exp
# of the tokens is above the sink, most of the output remains (solid). To the left of 0, most of the weight goes to the
# sink (dashed).
#
# Such a sink has a logit but no value. We saw in section 5 that this is not enough for a model that was trained with a
# usual softmax. It is meant for models that are trained with it.
#
# ## 9. Optional: models that are trained with a sink
#
# Xiao and others train models of 160 million parameters in three ways: with the usual softmax (*vanilla*), with a
# **zero sink**, $s = 0$ in every softmax, and with a **learnable sink**, one learned token before every text, which has
# a key and a value, unlike the learned $s$ of section 8. `course reproduce sink_pretraining` trained three small models
# in the same ways, on bytes of text, and streamed articles through each. The table lists the perplexity by how many of
# the first slots are kept. The claim above it: without its first slots, each of the three models has over 5 % more
# perplexity.

# %%
print(claims.SLOT_MISSED.judge())
tables.pretraining()

# %% [markdown]
# In the published rows, all three models lose much when no first slot is kept, and the learnable sink needs only one.
# In our rows, only the model with a learnable sink loses anything, and one slot is enough for it as well. Our vanilla
# and zero-sink models never developed a sink: the first slot receives at most 0.5 % of the attention in every head.
#
# The learning rate of 0.012 was chosen by hand: at lower rates the loss was lower, but the learned token kept little
# attention. There is only one training of each kind. So this experiment shows what happens to a model that has a sink.
# It does not show that a sink develops by itself in training, as Gu and others (2025) report for larger models that are
# trained well on enough data.
#
# ## 10. Optional: a head that has nothing to do
#
# Section 2 stated a hypothesis: a head puts its weight on the sink when it finds nothing relevant. Guo and others
# (2024) designed a small language in which this can be observed, *bigram-backcopy*. Letters follow each other as in
# English, but after certain letters, in our version the vowels, comes a copy of the letter *before* the vowel. For
# example, *the* is followed by another *h*. So when the current letter is a vowel, the head must look at the letter
# before it. At all other letters it has nothing to do. `course reproduce backcopy` trained models with one layer and
# one head on this language. The figure shows one of them, with a learnable sink. The two claims above it are about all
# five trainings: does the sink receive more attention from a head with nothing to do, and do the models need their
# sinks?

# %%
print(claims.IDLE.judge())
print(claims.NEEDS_ITS_SINK.judge())
optional_plots.backcopy_sample()

# %% [markdown]
# Each row is a query, and dark squares are the letters to which it attends. The queries with a bold red label are
# vowels: they attend to the letter just before them, and not to the sink in the first column. All other queries, the
# **idle** ones, give most of their weight to the sink. This model behaves as the hypothesis says.
#
# In all five trainings idle queries give the sink far more attention than the others do, between 18 and 82 points more,
# and the loss of the model rises without its sink, by 0.13 to 4.0 nats per letter. But only in two of the trainings do
# the idle queries give it more than half of their attention. So the figure shows a clear case, and not the rule. With
# the usual softmax no sink forms in this small model: its first slot receives less than 0.1 % of the attention.
#
# These models have eight hidden units in the MLP after the head. With 64 units, the idle queries still give 40 to 66 %
# of their attention to the sink, but removing it costs less than 0.004 nats per letter. In other words, a sink can be
# used without being needed.
#
# ## 11. Optional: registers in vision transformers
#
# Darcet and others (2024) found patches (the pieces of an image that are its tokens) in large vision transformers whose
# norms are far above all others, and which attract attention. The authors add a few learned tokens, called
# **registers**, and the norms of the patches become normal, which resembles massive activations and a learnable sink.
# In our small vision transformers for digits of 8 × 8 pixels (`course reproduce sink_pretraining`), the largest norm of
# a patch is about twice the median with and without registers, so they are too small to test this.
#
# ## 12. Optional: an open task
#
# A stream needs a place for the attention that its heads have no other use for. Which tokens make the best one? You may
# put any text of up to 16 tokens before each of ten passages. These tokens are never evicted, and each of them takes
# one of 48 slots. If you give a number instead of a text, that many of the passage's own first tokens are kept. All
# starts are evaluated on the same predictions. Find the start with the lowest perplexity.

# %%
my_start = "The"
tables.first_tokens(first_tokens.attempt(model, tokenizer, my_start))

# %% [markdown]
# The rows above yours are simple ideas that we measured on the same passages (`course reproduce first_tokens`). The
# last column compares each with the first row, the text's own first four tokens, passage by passage. A difference is
# clear if it is more than about twice its standard error. If a program searches for you, let it search on other
# passages (`split="calibration"` in `corpora.windows`): the best of a hundred starts on these ten passages is partly
# luck.
#
# ## To take home
#
# 1. From layer 12 on, our model gives between a third and three quarters of its attention to the first token, whatever
#    that token is. In the same layer a massive activation appears at this token, which makes its value short.
# 2. The sink acts like a bias inside the softmax: the massive activation of another text works as well, and a constant
#    logit with a constant value does nearly as well.
# 3. If the sink is evicted, the weights of all other tokens grow, and the perplexity rises. If it is kept, a window can
#    go on for as long as you like.
# 4. Count positions in the cache and not in the text. Then all distances stay small, and far beyond the trained length
#    the model does not work.
# 5. A stream of any length does not remember everything: an evicted token is lost.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>Why does the first token become the sink, whatever it says?</summary>
#
# What we measured: the position matters, and not the meaning. A plausible reason is that the first token is the only
# one that every query can see, and that it sees only itself. But this is not the whole story: in layers 3 to 9 our
# model has weak sinks at spaces and at *the*, and other models are reported to have massive activations at periods and
# newlines (Sun and others).
#
# </details>
#
# <details><summary>Softmax-off-by-one adds $e^0$ to the denominator. To which additional token does that
# correspond?</summary>
#
# To a token whose logit is 0 for every query and whose value is zero. The first token of a trained model differs in
# both: its logits are large, and its value is short but not zero. So in section 5 even the right logit was not enough
# without the value.
#
# </details>
#
# <details><summary>A stream has run for a million tokens in 1,024 slots. You ask the model how the text began. What
# will it answer?</summary>
#
# Something fluent, from the tokens in its window and from its weights. The first tokens are still in the cache, but as
# sinks; all that followed them has been evicted.
#
# </details>
#
# ## Reading
#
# - Xiao, Tian, Chen, Han, Lewis: *Efficient Streaming Language Models with Attention Sinks*, ICLR 2024,
#   [arXiv:2309.17453](https://arxiv.org/abs/2309.17453). Read section 3.
# - Sun, Chen, Kolter, Liu: *Massive Activations in Large Language Models*, 2024,
#   [arXiv:2402.17762](https://arxiv.org/abs/2402.17762). Read sections 2 to 4.
# - Gu and others: *When Attention Sink Emerges in Language Models: An Empirical View*, ICLR 2025,
#   [arXiv:2410.10781](https://arxiv.org/abs/2410.10781).
# - Guo, Pai, Bai, Jiao, Jordan, Mei: *Active-Dormant Attention Heads: Mechanistically Demystifying Extreme-Token
#   Phenomena in LLMs*, 2024, [arXiv:2410.13835](https://arxiv.org/abs/2410.13835). Read section 2.
# - Miller: *Attention Is Off By One*, 2023, [evanmiller.org](https://www.evanmiller.org/attention-is-off-by-one.html).
# - OpenAI: *gpt-oss-120b & gpt-oss-20b Model Card*, 2025, [arXiv:2508.10925](https://arxiv.org/abs/2508.10925). A
#   learned sink in every head.
# - Darcet, Oquab, Mairal, Bojanowski: *Vision Transformers Need Registers*, ICLR 2024,
#   [arXiv:2309.16588](https://arxiv.org/abs/2309.16588).
# - Su and others: *RoFormer: Enhanced Transformer with Rotary Position Embedding*, 2021,
#   [arXiv:2104.09864](https://arxiv.org/abs/2104.09864).
