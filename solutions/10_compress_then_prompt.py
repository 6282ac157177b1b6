# %% [markdown]
# # 10 · Compress, then prompt: prompt tuning for a compressed model
#
# Lessons 03 to 05 pruned and rounded the weights of a model. The model became smaller, and its perplexity rose. In this
# lesson we leave the compressed weights as they are and change only the input. We put a few trained vectors before
# every text, so that the compressed model predicts the text better. Such vectors are called a **soft prompt**, and to
# train them with gradient descent while all weights stay fixed is called **prompt tuning** (Lester, Al-Rfou and
# Constant, 2021). Xu and others (2023) use it to repair compressed models and call the recipe *Compress, Then Prompt*.
#
# Twenty vectors take as much memory as 20 of the 49,152 rows of our model's embedding table. How much of the damage can
# they repair? And how much would they gain on a model without any damage?
#
# **Afterwards you can** train a soft prompt with `inputs_embeds` while the model stays frozen, choose its
# initialisation, compare a model with and without a prompt on the same tokens, count the bytes of a model with 50 %
# sparsity and 4 bits, and judge how much of a prompt's gain transfers to another model.
#
# **You need** lessons 00 and 04, quantization from lesson 03 (GPTQ and SparseGPT), and gradients in PyTorch
# (`requires_grad`, `backward`). The optional section 7 also uses the sparse formats of lesson 01.
#
# **Time**: the core path, sections 1 to 6 and 8, takes about two hours, 45 minutes of it for exercises. The optional
# sections 7 and 9 to 11 take another hour, 16 minutes of it for exercises.

# %%
import copy

import torch
from torch.nn.functional import cross_entropy

from course_lib.data import corpora
from course_lib.lessons.compress import claims, plots, results, tables, widgets
from course_lib.lessons.compress.experiments import prompt_words
from course_lib.models import load_model
from course_lib.prompts import hard
from course_lib.prompts.small_llama import as_model, weights_of
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.workbook import check, mine

# %% [markdown]
# We load the model and two samples of Wikipedia that share no article. The prompt learns from the training windows, and
# we evaluate on the held-out ones. Then we remove half of the weights of every row with Wanda (lesson 04). This pruned
# model is the one that we want to repair.

# %%
model, tokenizer = load_model()
training = corpora.windows("wikipedia", 24, 64, tokenizer, split="calibration", seed=1)  # 24 windows of 64 tokens
held_out = corpora.windows("wikipedia", 12, 64, tokenizer, split="evaluation", seed=0)
calibration = corpora.windows("wikipedia", 4, 128, tokenizer, split="calibration", seed=0)

pruned = copy.deepcopy(model)
prune_model(pruned, Wanda(), calibration)
models = {"pruned": pruned, "dense": model}

losses_without = {}  # for each model (windows, tokens - 1), since the first token of a window cannot be predicted
with torch.no_grad():
    for name, each in models.items():
        logits = each(held_out, use_cache=False).logits[:, :-1]
        losses_without[name] = cross_entropy(logits.transpose(1, 2), held_out[:, 1:], reduction="none")
        print(f"{name}: perplexity {losses_without[name].mean().exp():.1f} without a prompt")

# %% [markdown]
# Pruning has more than doubled the perplexity. All losses of this lesson are in **nats** per token, that is, with the
# natural logarithm.
#
# ## 1. The idea in one picture
#
# A compressed model makes systematic errors: the same weights are missing for every text. Can the input tell the model
# to correct for them?

# %%
plots.idea()

# %% [markdown]
# The yellow cells are the soft prompt: $P$ vectors $E = (e_1, \dots, e_P)$ at the positions where the embeddings of
# tokens normally are. The gray cells are the text. The loss is computed at the output, and its gradient (red arrow)
# flows back through the whole model, but only the prompt is updated. With $\tilde W$ for the compressed weights and
# $p_{\tilde W}$ for the model's probabilities, we minimise the mean loss over the $T$ tokens $x_1, \dots, x_T$ of a
# text,
#
# $$ \mathcal{L}(E) = -\frac{1}{T} \sum_{t=1}^{T} \log p_{\tilde W}(x_t \mid E,\; x_1, \dots, x_{t-1}) $$
#
# over $E$ alone. Lester and others train a prompt for a *new task* of an intact model. Here the task is the old one,
# language modelling, and the model is damaged. The prompt is small. For example, 20 vectors for our model have
# $20 \cdot 576 = 11{,}520$ numbers, while the model has 134.5 million.
#
# ## 2. Vectors in place of embeddings
#
# The first layer of a language model receives vectors. Usually these are rows of the embedding table, but nothing in
# the model depends on that: with the argument `inputs_embeds`, a Hugging Face model takes any vectors. When we put a
# prompt before the text, two other inputs change as well. The **attention mask** becomes $P$ entries longer, and the
# text starts at position $P$ instead of 0. (The position determines the rotation of queries and keys, lesson 00.)

# %%
plots.positions_and_mask()

# %% [markdown]
# On the left are two texts with the same prompt of three vectors (yellow). The second text is shorter and was padded on
# the left. The padding (–) has no position: the text continues at 3, right after the prompt. The right panel shows the
# second text. Row $i$ marks in dark which vectors the $i$-th vector may attend to. The two padding columns are white in
# every row, so nothing attends to them.

# %% [markdown]
# ### The prompt before the text
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# A batch holds texts of different lengths, padded on the left or on the right. Put the prompt before every text, and
# return the three inputs that the model needs: vectors, attention mask and positions. Keep the vectors at the padding
# as they are; the mask makes sure that they are not used. The position of a vector is the number of vectors before it
# that are not padding. For example, after 3 prompt vectors and 2 padding vectors the first token has position 3.


# %% exercise="compress.before"
def before(prompt, text, real):
    """Put a prompt before each text and return (vectors, mask, positions).

    prompt: (P, D), the same for all texts. text: (B, T, D), the embeddings of B texts. real:
    (B, T), True at tokens of the text, False at padding.
    vectors: (B, P + T, D), the prompt first in every row, before the padding too.
    mask: (B, P + T), bool, True at everything that may be attended to.
    positions: (B, P + T), int; at padding they may have any value.
    """
    ### BEGIN SOLUTION
    first = prompt.expand(len(text), -1, -1)
    mask = torch.cat([torch.ones(first.shape[:2], dtype=torch.bool), real], dim=1)
    return torch.cat([first, text], dim=1), mask, mask.cumsum(dim=1) - 1
    ### END SOLUTION


# %%
check("compress.before", before)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# All $P$ vectors of the prompt are attended to, so the mask is $P$ times True followed by `real`. The cumulative sum of
# the mask counts the attended vectors up to and including each one, and one less is its position. In the second text of
# the figure the mask is 1 1 1 0 0 1 1 1 1, its cumulative sum 1 2 3 3 3 4 5 6 7, and the tokens get positions 3 to 6.
#
# </details>
#
# Xu and others began with sentences. A prompt of tokens is called a **hard prompt**; it is the special case in which
# every vector is a row of the embedding table. So we can test your function: with the embeddings of a sentence as the
# prompt, the model must compute the same as with the tokens of the sentence. We use the sentence from the authors'
# code. As a control we take equally many random tokens. Only what the sentence does beyond this **random-token
# control** is due to its words.

# %%
table = model.get_input_embeddings().weight.detach()  # (49152, 576)
sentence_ids = hard.hard_prompt(tokenizer, hard.SENTENCES["code"])
random_ids = hard.meaningless(tokenizer, len(sentence_ids), torch.Generator().manual_seed(0))
print(f"sentence: {tokenizer.decode(sentence_ids)}")
print(f"random tokens: {tokenizer.decode(random_ids[:6])!r} and {len(random_ids) - 6} more")

text = held_out[:2]
is_token = torch.ones_like(text, dtype=torch.bool)
vectors, mask, positions = mine("compress.before", before)(table[sentence_ids], table[text], is_token)
with torch.no_grad():
    from_vectors = pruned(inputs_embeds=vectors, attention_mask=mask.long(), position_ids=positions).logits
    from_tokens = pruned(torch.cat([sentence_ids.expand(2, -1), text], dim=1)).logits
print(f"largest difference of the logits: {(from_vectors - from_tokens).abs().max():.1e}")

# %% [markdown]
# The two sets of logits agree up to rounding, so a hard prompt is indeed a special case.
#
# **Cost**: $P$ more positions in the prefill of every text, unless their keys and values are kept from one text to the
# next. Section 8 comes back to that.
#
# ## 3. A label for each position
#
# To train the prompt we need a loss. At each of the $P + T$ positions the model predicts the next token. (From here on,
# a *position* is a place in the row of vectors, padding included.) In PyTorch, `cross_entropy` takes one **label** per
# position, the token that should be predicted there, and ignores positions with the label −100. (If you pass `labels`
# to a Hugging Face model, it shifts them itself. We call `cross_entropy` ourselves, so our labels must already be
# shifted.) Which positions have a label?

# %%
plots.labels()

# %% [markdown]
# The upper row is the input, the lower row the labels. Each label is the input one position to the right, if that is a
# token. The first two prompt vectors are followed by prompt vectors, which are no tokens, so their label is −100. The
# last prompt vector is followed by the first word and predicts it. The last position has nothing after it.

# %% [markdown]
# ### What is scored
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Return the labels of all positions. Here the padding comes after the text, and the mask `real` says which tokens are
# real. Without a prompt ($P = 0$) no position predicts the first token.


# %% exercise="compress.labels"
def labels(ids, real, n_prompt):
    """Return the token that each position should predict, −100 where there is none: (B, P + T).

    ids: (B, T), the tokens; at padding they have any value. real: (B, T), True at tokens of the
    text. The text begins at index 0 and has at least one token; padding follows. n_prompt: P, the
    number of vectors before the text, from 0.
    """
    ### BEGIN SOLUTION
    tokens = torch.where(real, ids, -100)
    ignored = torch.full((len(ids), n_prompt + 1), -100)
    return torch.cat([ignored[:, 1:], tokens, ignored[:, :1]], dim=1)[:, 1:]
    ### END SOLUTION


# %%
check("compress.labels", labels)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Write down the inputs with −100 in place of everything that is not a token, that is, $P$ times −100, the tokens, and
# −100 at the padding. Append one −100 and remove the first entry. This shifts everything one position to the left.
#
# </details>
#
# Now we can compute the loss at every position. The function below calls your two functions. We use it until the end of
# the lesson.


# %%
@torch.no_grad()
def losses_by_position(model, prompt, token_ids, before, labels):
    """Compute the loss at each position, 0 where there is no label: (windows, P + T - 1)."""
    is_token = torch.ones_like(token_ids, dtype=torch.bool)  # our windows have no padding
    vectors, mask, positions = before(prompt, model.get_input_embeddings()(token_ids), is_token)
    logits = model(inputs_embeds=vectors, attention_mask=mask.long(), position_ids=positions, use_cache=False).logits
    targets = labels(token_ids, is_token, len(prompt))
    return cross_entropy(logits.transpose(1, 2), targets, reduction="none")[:, :-1]  # nothing follows the last token


functions = mine("compress.before", before), mine("compress.labels", labels)
losses_with = {
    ("pruned", "sentence"): losses_by_position(pruned, table[sentence_ids], held_out, *functions),
    ("pruned", "random tokens"): losses_by_position(pruned, table[random_ids], held_out, *functions),
}
first = len(sentence_ids) - 1  # the position that predicts the first token
for (_, prompt_name), losses in losses_with.items():
    print(f"{prompt_name}: {losses[:, first].mean():.2f} nats for the first token of a window, ", end="")
    print(f"{losses[:, first + 1 :].mean():.2f} for the others")

# %% [markdown]
# Look at the first token compared with the others; section 6 compares the prompts with each other. The first token of a
# window costs 11 to 13 nats. A uniform guess among the 49,152 tokens would cost $\ln 49{,}152 = 10.8$, so the model is
# confidently wrong: it expects that the prompt goes on, and a new text begins instead. Without a prompt the first token
# has no prediction at all. We have to remember that in section 6.
#
# ## 4. Freezing the weights
#
# The gradient reaches the prompt through all layers, but no weight may change. The compressed model is stored once and
# serves many prompts, for example one per language or per domain. We therefore **freeze** the weights: with
# `requires_grad_(False)` PyTorch computes no gradients for them, and only the prompt is given to the optimizer.
#
# One weight needs special attention. In our model, as in many small ones, the embedding table is also the LM head, that
# is, the matrix that computes the logits. The two are **tied**:

# %%
print("the LM head is the embedding table:", model.lm_head.weight is model.get_input_embeddings().weight)
n_prompt, n_model = 5 * table.shape[1], sum(parameter.numel() for parameter in model.parameters())
print(f"model: {n_model:,} numbers, {table.numel():,} of them in the embedding table")
print(f"prompt of 5 vectors: {n_prompt:,} numbers, {100 * n_prompt / n_model:.3f} % of the model")

# %% [markdown]
# If you add the prompt to the table as new rows and train the table, you train more than 28 million numbers instead of
# 2,880, and you change the LM head too.

# %% [markdown]
# ### What learns
# **Exercise** · difficulty 3 of 5 · 12 minutes · 4 points
#
# Take one step of gradient descent in which only the prompt learns:
#
# $$ E \leftarrow E - \eta \, \frac{\partial \mathcal{L}}{\partial E}, $$
#
# where $\mathcal{L}$ is the mean loss over all tokens of the batch, including the first token of each text. There is no
# padding. So that the check is fast, it uses small Llama models with random weights. `as_model` builds a model from a
# dictionary of weights, with `requires_grad=True` everywhere, as after loading any model. Afterwards your function
# takes one step on the real model. (The loop in section 5 uses AdamW instead.) Write it without your earlier functions:
# without padding, the model needs no mask and no positions, so the vectors are enough. `as_model` returns a model
# unchanged if it gets one, and `weights_of(model)` returns the dictionary of its weights.


# %% exercise="compress.frozen"
def learn_step(weights, prompt, ids, rate):
    """Take one step of gradient descent for a prompt in front of a frozen model.

    weights: the weights of a causal language model by name, or a model. prompt: (P, D), at least
    one vector.
    ids: (B, T), int, at least one token per text. rate: the learning rate.
    Returns (prompt, weights) after the step: (P, D), and weights_of(model), which must not have
    changed.
    """
    model = as_model(weights)  # a LlamaForCausalLM with tied embeddings
    ### BEGIN SOLUTION
    model.requires_grad_(False)
    prompt = prompt.clone().requires_grad_()
    text = model.get_input_embeddings()(ids)
    logits = model(inputs_embeds=torch.cat([prompt.expand(len(ids), -1, -1), text], dim=1)).logits
    mean_loss = cross_entropy(logits[:, len(prompt) - 1 : -1].flatten(0, 1), ids.flatten())
    mean_loss.backward()
    return prompt.detach() - rate * prompt.grad, weights_of(model)
    ### END SOLUTION


# %%
check("compress.frozen", learn_step)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# `requires_grad_(False)` on the model freezes every parameter, the tied table included. The prompt is a new tensor that
# requires a gradient. After the backward pass only `prompt.grad` is set. Freezing is not needed for the result, because
# `backward` alone moves nothing. But it prevents a mistake (an optimizer over all parameters), and it saves memory: the
# gradients of all weights would take as much memory as the weights, 538 MB here in 32 bits.
#
# </details>
#
# One step on the real pruned model, with five rows of the table as the prompt. We copy all weights before the step and
# compare them bit by bit afterwards.

# %%
weights_before = {name: weight.clone() for name, weight in pruned.named_parameters()}
first_rows = table[1000:1005]
moved_prompt, weights_after = mine("compress.frozen", learn_step)(pruned, first_rows, training[:2], 1.0)
n_moved = sum(not torch.equal(weights_after[name], weight) for name, weight in weights_before.items())
print(f"{n_moved} of {len(weights_before)} weight tensors moved")
print(f"each prompt vector moved by {(moved_prompt - first_rows).norm(dim=1).mean():.2f}")
del weights_before, weights_after

# %% [markdown]
# No weight has changed, and each vector of the prompt has. **Cost**: a forward pass, and a backward pass that costs
# about the same. In normal training the backward pass costs twice as much, because the gradients of the weights are
# computed as well.
#
# ## 5. Initialisation and the training loop
#
# Gradient descent needs a starting point, the **initialisation**. Vectors from a normal distribution $N(0, 1)$ are an
# obvious choice, but the model has never seen such vectors. How different are they from the embeddings of tokens?

# %%
random_vectors = torch.randn(table.shape, generator=torch.Generator().manual_seed(0))
for name, rows in {"embeddings": table, "N(0, 1)": random_vectors}.items():
    print(f"{name}: mean norm {rows.norm(dim=1).mean():.1f}, from {rows.norm(dim=1).min():.1f} upwards")
plots.lengths()

# %% [markdown]
# The dark histogram shows the norms of all 49,152 embeddings, the yellow one those of as many random vectors. The
# random vectors are 7 times as long, and the two histograms do not overlap. Lester and others found that the embeddings
# of tokens are the better initialisation. (In our own runs it makes no significant difference, as the optional section
# 10 shows, but nothing is lost by it.) The published code of Xu and others takes the first rows of the table. In our
# model these are special tokens and single characters, so we choose rows at random instead.

# %% [markdown]
# ### Where a prompt begins
# **Exercise** · difficulty 1 of 5 · 5 minutes · 2 points
#
# How can you choose $P$ different rows at random? Give every token of the vocabulary a random number (its entry in
# `keys`, which has nothing to do with the keys of attention) and take the tokens with the $P$ largest ones. This is
# sampling without replacement. Then subtract `step`, the first training step, from these rows. Be careful: the model
# still uses the table, so it must not change. (In the loop below `step` is zero, because there AdamW takes the first
# step.)


# %% exercise="compress.initial"
def first_prompt(table, keys, n, step):
    """Initialise a prompt with rows of the table and take its first step; return (prompt, table).

    table: (V, D), the embeddings, which the model continues to use. keys: (V,), a number per token,
    all different.
    n: the number of vectors P, 1 to V. step: (P, D), what the first step subtracts from the
    vectors.
    Vector 0 starts as the row of the token with the largest key, vector 1 as that with the second
    largest, and so on.
    """
    ### BEGIN SOLUTION
    largest = torch.argsort(keys, descending=True)[:n]
    return table[largest] - step, table
    ### END SOLUTION


# %%
check("compress.initial", first_prompt)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Sort the random numbers in descending order and take the first $P$ indices. Indexing the table with a tensor of
# indices copies the rows, so the subtraction does not change the table. A slice of rows would be a view: with `-=` the
# table would change too.
#
# </details>
#
# Now the whole method. The next cell trains a prompt as Xu and others do, but with fewer steps, another learning rate,
# and rows chosen at random. For each batch it
#
# 1. puts the prompt before the text (your `before`),
# 2. runs the frozen model on `inputs_embeds`,
# 3. computes the loss with your `labels`,
# 4. and lets AdamW update the prompt.
#
# Three details. `mine` calls your function on copies, and no gradient flows through copies. So the loop replaces the
# first $P$ vectors by the trainable prompt once more. The learning rate falls linearly towards zero. And the gradient
# is clipped to norm 1, so that a single unusual batch cannot move the prompt far.


# %%
def train_prompt(model, prompt, token_ids, before, labels, batch_size=2, learning_rate=0.02):
    """Train a soft prompt, each window once; return the prompt after every step, and the losses."""
    for weight in model.parameters():
        weight.requires_grad_(False)
    prompt = prompt.detach().clone().requires_grad_()
    optimizer = torch.optim.AdamW([prompt], lr=learning_rate, weight_decay=0.0)
    history, losses = [prompt.detach().clone()], []
    batches = token_ids.split(batch_size)
    for step, batch in enumerate(batches):
        is_token = torch.ones_like(batch, dtype=torch.bool)
        vectors, mask, positions = before(prompt.detach(), model.get_input_embeddings()(batch), is_token)
        vectors = torch.cat([prompt.expand(len(batch), -1, -1), vectors[:, len(prompt) :]], dim=1)
        logits = model(inputs_embeds=vectors, attention_mask=mask.long(), position_ids=positions).logits
        batch_loss = cross_entropy(logits.flatten(0, 1), labels(batch, is_token, len(prompt)).flatten())
        optimizer.param_groups[0]["lr"] = learning_rate * (1 - step / len(batches))
        optimizer.zero_grad()
        batch_loss.backward()
        torch.nn.utils.clip_grad_norm_([prompt], 1.0)
        optimizer.step()
        history.append(prompt.detach().clone())
        losses.append(batch_loss.item())
    return torch.stack(history), losses


keys = torch.rand(len(table), generator=torch.Generator().manual_seed(0))
initial, _ = mine("compress.initial", first_prompt)(table, keys, 5, torch.zeros(5, table.shape[1]))
runs = {name: train_prompt(each, initial, training, *functions) for name, each in models.items()}
for name, (_, losses) in runs.items():
    first_three, last_three = sum(losses[:3]) / 3, sum(losses[-3:]) / 3
    print(f"{name}: loss of the first three batches {first_three:.2f}, of the last three {last_three:.2f}")

# %% [markdown]
# We trained five vectors for 12 steps on the pruned model, and five more on the *dense* model, on the same windows in
# the same order. The second prompt is our **control**: it shows what a prompt gains when there is nothing to repair.
# Every batch has other text, so the losses above are noisy and do not tell yet whether the prompts help.
#
# The library does the same in `course_lib.prompts.training.train_prompt`. It can also resume a run. Like the published
# code, it leaves the first token of a text out of the loss.
#
# What has the prompt learned? We look up the nearest token of the vocabulary for each vector, by the cosine of the
# angle between them. In the table below each row is a vector and each column a training step.

# %%
widgets.nearest_tokens(model, tokenizer, *runs["pruned"])

# %% [markdown]
# If the nearest token is still the one that a vector started from, the cosine tells how far the vector has turned away
# from it. A trained vector need not come close to any other token. So the nearest tokens show where a prompt started,
# and not what it does.
#
# **Cost**: 12 steps with two windows each take some seconds on a CPU. The published recipe uses 30,000 steps.
#
# ## 6. Does the prompt help, and is it a repair?
#
# Both models are evaluated on the same windows, so we compare them window by window (lesson 04). There are two traps in
# the computation, and a third one in the interpretation, which comes after the exercise.
#
# - **The first token.** With a prompt it has a prediction, without one it has none. We must leave it out.
# - **Zeros.** The loss at a position without a label is 0. If you average over all positions, every prompt seems to
#   help. For example, 100 vectors before 1,024 tokens turn a perplexity of 20 into about 15, even if they do nothing.
#   The evaluation in the published code averages in this way. We do not know whether the paper's tables were made with
#   it.

# %% [markdown]
# ### With and without a prompt
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# Let $d_w$ be the mean loss of window $w$ with the prompt minus the mean loss without it, over the tokens that *both*
# score. The ratio of the perplexities and its standard error are
#
# $$ r = \exp(\bar d), \qquad \mathrm{se}(r) = r \cdot \frac{s_d}{\sqrt N}, $$
#
# where $s_d$ is the standard deviation of the $N$ differences, with $N - 1$ in the denominator. Which columns of the
# two tensors belong to the same token?


# %% exercise="compress.metric"
def compare(prompted, plain, real):
    """Return the ratio of the perplexities with and without a prompt, and its standard error.

    prompted: (N, P + T - 1), the losses with P vectors before each window, P at least 1: at each
    position the loss of what follows it, and 0 where that is a vector of the prompt.
    plain: (N, T - 1), the losses without a prompt, of tokens 1 to T - 1.
    real: (N, T), True at the tokens of the window, at least two, from index 0 on. Padding follows;
    the losses there have any value. Every window has the same weight. There are at least two
    windows.
    """
    ### BEGIN SOLUTION
    start = prompted.shape[1] - plain.shape[1]
    scored = real[:, 1:].double()
    differences = ((prompted[:, start:] - plain) * scored).sum(dim=1) / scored.sum(dim=1)
    ratio = differences.mean().exp()
    return ratio, ratio * differences.std() / len(differences) ** 0.5
    ### END SOLUTION


# %%
check("compress.metric", compare)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Column $j$ of `plain` belongs to token $j + 1$. In `prompted` the first $P - 1$ columns belong to prompt vectors and
# the next one to token 0, so the same token is in column $P + j$. We drop the first $P$ columns, take the mean over the
# real tokens of each window, and then the mean and the standard deviation over windows. The error of $e^{\bar d}$ is
# the derivative $e^{\bar d}$ times the error of $\bar d$.
#
# </details>
#
# Your function on the real models:

# %%
for name, each in models.items():
    history, _ = runs[name]
    losses_with[name, "own prompt, 5 vectors"] = losses_by_position(each, history[-1], held_out, *functions)
is_token = torch.ones_like(held_out, dtype=torch.bool)
compared = []
for (name, prompt_name), losses in losses_with.items():
    without = losses_without[name]
    ratio, error = mine("compress.metric", compare)(losses, without, is_token)
    compared.append((name, prompt_name, without.mean().exp().item(), ratio, error))
display(tables.comparison(compared))
plots.ratios([(name, prompt_name, ratio, error) for name, prompt_name, _, ratio, error in compared], len(held_out))

# %% [markdown]
# A ratio below 1 (left of the dotted line) means that the prompt helps. The sentence and the random tokens do harm:
# they raise the perplexity by 15 % and 27 %. Compared with the control, the words of the sentence help a little
# ($1.15 / 1.27 \approx 0.91$), but even with them the model is worse than with no prompt at all. The pruned model's own
# prompt lowers its perplexity by 11 %, and this alone would be a success story. But look at the last row: the *dense*
# model, which has nothing to repair, gains 8 % from its own prompt. A prompt that has learned what Wikipedia looks like
# helps any model. This is the third trap. We call it a **repair** only if the compressed model gains more than the
# dense one. (This is our definition. Even then, a part of the gain may be general knowledge of Wikipedia that the
# pruned model has lost.)

# %%
gain = {}
for name in models:
    with_prompt = losses_with[name, "own prompt, 5 vectors"][:, 5:]
    gain[name] = (losses_without[name] - with_prompt).mean(dim=1)  # nats per token, one number per window
repair = gain["pruned"] - gain["dense"]
error = repair.std() / len(repair) ** 0.5
print(f"gain of the pruned minus gain of the dense model: {repair.mean():+.3f} ± {error:.3f} nats")
averaged = losses_with["pruned", "own prompt, 5 vectors"].mean().exp()
correct = losses_with["pruned", "own prompt, 5 vectors"][:, 5:].mean().exp()
print(f"the second trap: perplexity {correct:.1f}, or {averaged:.1f} when averaged over all positions")

# %% [markdown]
# The difference is 0.03 nats with a standard error of nearly the same size. So after 12 steps, and with 12 windows to
# evaluate on, we cannot tell whether the prompt repairs anything. (The last line shows the second trap: with the
# prompt's own positions in the average, the perplexity seems to be 46.5 instead of 54.4.) We therefore repeated the
# comparison with 20 vectors, 32 steps, 24 windows, more models and stronger compression (`course reproduce prompts`):

# %%
print(tables.provenance())
display(plots.gains())
print(claims.BEYOND_DENSE.judge())

# %% [markdown]
# The left panel shows pruned models, the right panel quantized ones. The horizontal axis is the sparsity or the number
# of bits, and the height of a point is the gain of a model's own prompt. (The Minitron models are structurally pruned,
# as in lesson 05, to as many bytes as the sparse models. GPTQ with 2 bits gains 2.8 nats, beyond the axis.) The dotted
# line with its gray band is the control, the gain of the dense model. Points within the band are no repair: Wanda at
# 50 % sparsity and GPTQ with 4 bits, the two models with the smallest loss increases, gain about as much as the dense
# model. Follow one method from left to right: the more it prunes or the fewer bits it leaves, the further its point is
# above the line. The error bars come from the evaluation windows only. With another random seed for the training, the
# gain changed by 0.03 nats (section 10), so read no meaning into differences of this size. But a large gain does not
# make a good model: Wanda at 75 % gains 1.2 nats and still has a perplexity of hundreds.
#
# ## 7. Optional: the bytes of 50 % and 4 bits
#
# (Section 8 does not need this section. Lesson 12 counts such bytes again.)
#
# Half of the weights and a quarter of the bits make the model eight times smaller, says the paper. Let's count. At 50 %
# sparsity we store a code of 4 bits for each kept weight, on average $\tfrac12 \cdot 4 = 2$ bits per weight. But the
# codes do not say *which* weights are kept. A **bitmap** needs one more bit for every weight, kept or not (lesson 01).
# So we need 3 bits per weight on average, and not 2, and the compression is at most $16 / 3 = 5.3$. The scales and zero
# points of the quantization come on top, and the embedding table is neither pruned nor rounded.

# %%
codes, bitmap, scales = 0.5 * 4, 1, (16 + 4) / 128  # bits per weight; a scale and a zero point per 128 columns
print(f"{codes:.2f} + {bitmap:.2f} + {scales:.2f} = {codes + bitmap + scales:.2f} bits per weight")
plots.bits()

# %% [markdown]
# Each bar is the average over all weights of the blocks, zeros included, for one group size of the quantization. The
# codes (dark) take 2 bits, the bitmap (yellow) 1 bit and a little for the row starts. Smaller groups need more scales
# (gray). At groups of 128 the total is 3.22 bits per weight, slightly more than in the line above the figure. The
# reasons are the row starts, and that a row of 576 columns has four and a half groups and needs five scales. The blocks
# are 4.97 times smaller than in 16 bits.

# %% [markdown]
# ### Bytes of 50 % and 4 bits
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# For each layer with $O$ rows and $I$ columns we store:
#
# - a code of `bits` bits for each non-zero weight, all codes of the layer one after the other without gaps;
# - a bitmap, one bit per weight, each row in whole bytes;
# - the starts of the rows, $O + 1$ numbers of 4 bytes (lesson 01);
# - for each row and each group of `group` columns (the last group may be shorter) a scale of 16 bits and a zero point
#   of `bits` bits; the zero points of a row fill whole bytes.
#
# All other numbers of the model and the numbers of the prompt have 16 bits. We compare with a dense model in which
# every number has 16 bits and which has no prompt.


# %% exercise="compress.bytes"
def stored_bytes(layers, others, prompt, bits, group):
    """Count the bytes of a compressed model with its prompt, and how many times smaller it is.

    layers: (rows, columns, number of non-zero weights) of each layer. others: how many numbers are
    neither pruned nor rounded. prompt: how many numbers the prompt has, P * D. bits: of a code, 2,
    4 or 8. group: columns per group.
    A byte that is only partly used counts as a whole byte. Returns two numbers.
    """
    ### BEGIN SOLUTION
    n_bytes = 2 * (others + prompt)
    for rows, columns, n_stored in layers:
        groups = -(-columns // group)
        bytes_per_row = -(-columns // 8) + 2 * groups + -(-groups * bits // 8)
        n_bytes += -(-n_stored * bits // 8) + rows * bytes_per_row + 4 * (rows + 1)
    return n_bytes, 2 * (others + sum(rows * columns for rows, columns, _ in layers)) / n_bytes
    ### END SOLUTION


# %%
check("compress.bytes", stored_bytes)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# `-(-a // b)` is $\lceil a / b \rceil$. A row has $g = \lceil I / \text{group} \rceil$ groups. It takes
# $\lceil I / 8 \rceil$ bytes of bitmap, $2g$ bytes of scales and $\lceil g \cdot \text{bits} / 8 \rceil$ bytes of zero
# points. A layer adds the bytes of its codes and $4 (O + 1)$ bytes of row starts.
#
# </details>
#
# Your count for our pruned model with its five vectors, if its kept weights were rounded to 4 bits in groups of 128:

# %%
shapes = tuple(
    (*module.weight.shape, int(module.weight.count_nonzero()))
    for module in pruned.model.layers.modules()
    if isinstance(module, torch.nn.Linear)
)
others = model.num_parameters() - sum(rows * columns for rows, columns, _ in shapes)
counts = {"blocks": (0, 0), "whole model": (others, 0), "whole model and prompt": (others, initial.numel())}
for part, (n_others, n_prompt) in counts.items():
    n_bytes, times = mine("compress.bytes", stored_bytes)(shapes, n_others, n_prompt, 4, 128)
    print(f"{part}: {n_bytes / 1e6:.2f} MB, {times:.2f} times smaller than in 16 bits")
print(claims.EIGHT_TIMES.judge())

# %% [markdown]
# The blocks alone are nearly five times smaller, the whole model only 2.7 times, because the embedding table of this
# small model is a fifth of its parameters and stays in 16 bits. The prompt adds practically nothing. (The verdict is
# about our stored model, which has groups of 64, so it says 4.76 and not 4.97.)
#
# ## 8. Cost, and when it does not pay off
#
# The prompt is small on a disk. In use, however, its vectors are processed like tokens in the prefill of every text.

# %%
plots.prompt_cost()

# %% [markdown]
# Each curve is a prompt of 5, 20 or 100 vectors, the horizontal axis is the length of the text, and the height is the
# fraction of the prefill that the prompt takes. For example, 100 vectors before a question of 32 tokens are three
# quarters of the work. Before 1,024 tokens they are 9 %.
#
# A server can avoid this work. No prompt vector attends to the text, so the keys and values of the prompt are the same
# for every text and can be computed once. In both cases every vector takes a slot in the key-value cache of every
# layer, and every query attends to it.
#
# A prompt also has rivals. **LoRA** (Hu and others, 2021) trains two thin matrices next to each frozen weight. A
# **refit** recomputes the kept weights with least squares (lessons 03 and 05). **Distillation** trains all weights with
# the dense model as a teacher (lesson 05).

# %%
display(plots.rivals())
print(claims.RIVALS["LoRA of as many bytes"].judge())

# %% [markdown]
# On the left is the model pruned by Wanda, on the right a structurally pruned one (Minitron, lesson 05). The dotted
# line is the gain of the prompt. On both models LoRA with equally many bytes (46 kB each, in 32 bits) and about the
# same number of tokens gains roughly twice as much. Distillation gains four times as much on the right, needs about
# twice the time, and changes the weights. SparseGPT in place of Wanda (the last row on the left) changes the weights
# too, and gains nothing here.
#
# The papers report other results for larger models. Their tables were not available to us, so we quote their abstracts
# and the settings of the published script:

# %%
tables.published()

# %% [markdown]
# Compare the two columns of the first row: the published prompts were trained for about 1,000 times as many
# steps, on a model fifty times larger. So our numbers do not refute the paper.
#
# - **It pays off** where only the input can be changed, for example because the program or its kernel accepts no
#   adapter, and where texts are long compared with the prompt or the prompt's keys and values are kept.
# - **It does not pay off** where an adapter can be stored next to the model, or where the weights may change: LoRA and
#   distillation gain more at this scale.
# - **It does not restore the dense model.** No compressed model with its prompt comes within 0.05 nats of the dense
#   model without a prompt here.
#
# This is the end of the core path. Go on with the optional sections, or jump to *To take home*.
#
# ## 9. Optional: transfer to another model
#
# Can a prompt that was trained on one compressed model be used on another, for example with another sparsity or with
# quantization instead of pruning? This is called **transfer**, and it is the main claim of the paper. First we try it
# with our two prompts: each is used on the model that the other one was trained on.

# %%
swapped = []
for name, other in (("pruned", "dense"), ("dense", "pruned")):
    history, _ = runs[other]
    losses = losses_by_position(models[name], history[-1], held_out, *functions)
    ratio, error = mine("compress.metric", compare)(losses, losses_without[name], is_token)
    swapped.append((name, f"prompt of the {other} model", losses_without[name].mean().exp().item(), ratio, error))
tables.comparison(compared[2:] + swapped)

# %% [markdown]
# Compare the two rows of each model: with the other model's prompt the ratio is closer to 1 than with its own, and not
# significantly below 1. So little transfers after 12 steps. But even if the ratio were lower, it would not show that a
# *repair* transfers, because a prompt that has learned about Wikipedia helps every model. To measure how much of the
# repair transfers, we need the control again.

# %% [markdown]
# ### How much transfers
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# Compute the fraction of the repair that transfers, and its standard error. For each window, let $g$ be the gain of a
# prompt, that is, the loss without it minus the loss with it. There are three gains: of the transferred prompt on the
# compressed model ($g^\text{moved}$), of the compressed model's own prompt ($g^\text{own}$), and of the dense model's
# own prompt on the dense model ($g^\text{dense}$). With $a = g^\text{moved} - g^\text{dense}$ and
# $b = g^\text{own} - g^\text{dense}$ for each window, the fraction of the repair that transfers is
#
# $$ q = \frac{\bar a}{\bar b}, \qquad \mathrm{se}(q) = \frac{s_{a - q b}}{\sqrt N\, |\bar b|} . $$
#
# For example, if the transferred prompt gains 0.16 nats, the own one 0.20 and the dense model 0.12, then
# $q = 0.04 / 0.08 = 0.5$. Here $s_{a - qb}$ is the standard deviation of the $N$ numbers $a_w - q\, b_w$, with $N - 1$
# in the denominator.


# %% exercise="compress.transfer"
def share_of_gain(plain, own, moved, dense, dense_own):
    """Return the fraction of the repair that a transferred prompt reaches, and its standard error.

    All (N,), mean losses of the same windows, N at least 2. Of the compressed model: plain without
    a prompt, own with its own prompt, moved with the transferred one. Of the dense model: dense
    without a prompt, dense_own with its own.
    The mean of b is not 0, but it may be negative. The fraction may be below 0 or above 1.
    """
    ### BEGIN SOLUTION
    control = dense - dense_own
    a, b = plain - moved - control, plain - own - control
    fraction = a.mean() / b.mean()
    return fraction, (a - fraction * b).std() / len(a) ** 0.5 / b.mean().abs()
    ### END SOLUTION


# %%
check("compress.transfer", share_of_gain)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# First compute the dense model's gain of each window and subtract it from both gains of the compressed model. The
# fraction is a ratio of means, not a mean of ratios, because in single windows the denominator may be close to zero.
# For the error, use the differences of each window, and the absolute value of the mean in the denominator.
#
# </details>
#
# Our own runs are too short for this: where $b$ is close to zero, the ratio means nothing. So we use the stored losses
# of longer runs. The target is the model that GPTQ rounded to 3 bits.

# %%
stored = results.load()
reached = {}
for source in ("dense", "wanda-50", "sparsegpt-50-4bit"):
    plain, own, moved, dense, dense_own = (
        torch.tensor(row["losses"], dtype=torch.float64) for row in results.transfer_rows(stored, source, "gptq-3")
    )
    reached[source] = mine("compress.transfer", share_of_gain)(plain, own, moved, dense, dense_own)
tables.fractions(reached)

# %% [markdown]
# A fraction of 1 would mean that the transferred prompt is as good as the model's own, 0 that it is no better than what
# any prompt for Wikipedia gains. All three fractions are below 0, by about two standard errors or more, so we see no
# repair that transfers to this model.

# %%
display(plots.transfer())
print(claims.HALF_TRANSFERS.judge())

# %% [markdown]
# Rows say where a prompt was trained, columns where it is used. The framed diagonal is each model's own prompt and has
# the lowest ratio of its column. Most other ratios in the first four columns are a little below 1, and the row of the
# dense model is as good as the rows of the compressed ones. So what transfers is knowledge of the text. The prompt for
# Wanda at 75 % (last row) does harm everywhere else.
#
# ## 10. Optional: what the gain depends on
#
# We changed one setting at a time, for the model pruned by Wanda to 50 %:

# %%
display(plots.settings())
print(claims.MORE_STEPS.judge())

# %% [markdown]
# The first row is the main run, and the second one the same with another **random seed**: other initial tokens and
# another order of the text. The gray band between them is 0.03 nats wide. Two seeds are too few to estimate the
# variation between seeds, so we only take 0.03 nats as its order of magnitude. The error bars, which come from the
# evaluation windows, do not include it. Only three runs differ significantly from both seeds: 96 steps gain twice as
# much as 32, 80 vectors gain half as much again as 20, and 8 steps gain less. The initialisation makes no significant
# difference here, not even $N(0, 1)$ with its long vectors.
#
# Does a prompt trained on Wikipedia also help on other text? On the paragraphs of BoolQ it does, with a repair of 0.18
# nats for GPTQ with 3 bits. But these paragraphs also come from Wikipedia, so this says little about another domain. On
# 100 questions of each of three benchmarks we saw no significant change. All verdicts are on
# [the page of claims](../docs/claims.md).
#
# ## 11. Optional: an open task
#
# A hard prompt costs no training, and everyone can read it. Which words before the text, at most 40 tokens, help the
# pruned model most? There is no right answer, and nothing is graded.


# %%
def my_sentence():
    """Return the words to put before every text of the pruned model."""
    return hard.SENTENCES["code"]


# %%
yours = {
    stored_name: (
        losses_without[name].double().mean(dim=1),
        prompt_words.measure(my_sentence(), models[name], tokenizer, held_out),
    )
    for name, stored_name in (("pruned", "Wanda 50 %"), ("dense", "dense"))
}
tables.sentences(yours)

# %% [markdown]
# The rows above yours are simple ideas that we measured on 24 windows (`course reproduce prompt_words`). Only the
# shortest one, a line break, helps the pruned model significantly, and it helps the dense model too, so it is no
# repair. A possible reason: the first token of a text attracts much attention, whatever it is (lesson 08), and now a
# token before the text can take this role. A gain counts only on windows that you did not look at while you chose the
# sentence. To try many, replace `held_out` in the cell above by
# `corpora.windows("wikipedia", 12, 64, tokenizer, split="calibration", seed=2)`, and compute `losses_without` for these
# windows first.
#
# ## To take home
#
# 1. A soft prompt is a trained input. It makes the attention mask longer, shifts the positions, and needs labels only
#    at tokens.
# 2. In prompt tuning all weights are frozen, including the embedding table, which is often the LM head as well.
# 3. Compare with and without a prompt on the same tokens, window by window. Averaged zeros look like a gain.
# 4. A prompt also helps a model that was never damaged. Only the gain beyond that control is a repair, and only of this
#    can we ask how much transfers.
# 5. At 50 % sparsity with 4-bit codes, the average weight takes 3 bits, because the bitmap needs a bit per weight.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>A colleague prunes a model, trains a prompt on 5,000 documents of a website, and reports that the
# perplexity on other documents of this site fell by a fifth. Has the prompt repaired the model?</summary>
#
# We cannot tell. A prompt that has learned what these documents look like helps the dense model as well. Train a prompt
# for the dense model on the same documents and with as many steps, and subtract its gain.
#
# </details>
#
# <details><summary>Half of the weights, and 4 bits instead of 16: why is the file not eight times smaller?</summary>
#
# A kept weight takes 4 bits, and every weight takes one bit of the bitmap: 3 bits per weight on average, and not 2. The
# scales come on top, and the embedding table, which was neither pruned nor rounded, stays in 16 bits.
#
# </details>
#
# <details><summary>The prompt takes a few kilobytes on a disk. What else does it cost for every text?</summary>
#
# It costs $P$ slots in the cache of every layer, and $P$ more keys for each query. Unless the prompt's keys and values
# are kept from one text to the next, there are also $P$ more positions in each prefill. For a short question, 100
# vectors are then most of the work.
#
# </details>
#
# ## Reading
#
# - Xu and others: *Compress, Then Prompt: Improving Accuracy-Efficiency Trade-off of LLM Inference with Transferable
#   Prompt*, 2023, [arXiv:2305.11186](https://arxiv.org/abs/2305.11186). At ICML 2024 as *Soft Prompt Recovers
#   Compressed LLMs, Transferably*.
# - Lester, Al-Rfou, Constant: *The Power of Scale for Parameter-Efficient Prompt Tuning*, EMNLP 2021,
#   [arXiv:2104.08691](https://arxiv.org/abs/2104.08691). Prompt tuning.
# - Hu and others: *LoRA: Low-Rank Adaptation of Large Language Models*, 2021,
#   [arXiv:2106.09685](https://arxiv.org/abs/2106.09685). The rival.
# - Hoang and others: *Do Compressed LLMs Forget Knowledge? An Experimental Study with Practical Implications*, 2023,
#   [arXiv:2310.00867](https://arxiv.org/abs/2310.00867). Prompts compared with LoRA on questions.
