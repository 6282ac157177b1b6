# %% [markdown]
# # 05 · Minitron: a smaller dense model
#
# Lessons 03 and 04 set single weights to zero. The matrices keep their shapes, so nothing gets faster unless special
# software makes use of the zeros. In this lesson you remove whole neurons, attention heads, channels and blocks
# instead. The result is an ordinary dense model with smaller matrices. It is faster without any special software and
# loads with every tool, but its predictions get worse. Therefore we train it afterwards, with the original model as its
# teacher. The method is called **Minitron** (Muralidharan and others, 2024).
#
# **Afterwards you can** say which rows and columns of a transformer have to be removed together, prune a language
# model to a shape that you choose, score neurons, heads, channels and blocks with forward hooks, and write a
# distillation loop in plain PyTorch.
#
# **You need** lesson 00, and a PyTorch training loop that you have written yourself at least once. Lessons 03 and 04
# help, but they are not required.
#
# **Time**: the core path, sections 1 to 9, takes about two and a quarter hours, 41 minutes of it for exercises. The
# optional sections 10 to 14 take about an hour and a half more, 28 minutes of it for exercises.

# %%
from dataclasses import replace

import torch

from course_lib.data import corpora
from course_lib.lessons.minitron import claims, plots, tables
from course_lib.lessons.minitron.experiments import shapes
from course_lib.measure.perplexity import window_losses
from course_lib.models import load_model
from course_lib.pruning.structured.choice import Scores, everything
from course_lib.pruning.structured.shape import shape_of
from course_lib.pruning.structured.surgery import cut, take
from course_lib.workbook import check, mine

# %% [markdown]
# The model is SmolLM2-135M-Instruct. We need three samples of text: the **calibration set**, on which we observe
# activations, the training text for distillation, and the evaluation set, on which we measure the loss. The evaluation
# set has no article in common with the other two. The loss is the mean negative log-probability of the next token, in
# **nats** (that is, with the natural logarithm). Its exponential is the **perplexity**; lower is better.

# %%
model, tokenizer = load_model()
dense_shape = shape_of(model)
calibration = corpora.windows("wikipedia", 8, 256, tokenizer, split="calibration", seed=0)  # 8 windows of 256 tokens
training_text = corpora.windows("wikipedia", 20, 64, tokenizer, split="calibration", seed=1)
evaluation = corpora.windows("wikipedia", 4, 128, tokenizer, split="evaluation", seed=0)
print(f"{dense_shape}: {model.num_parameters():,} parameters")

# %% [markdown]
# ## 1. The idea in one picture
#
# **Unstructured pruning** removes single weights. **Structured pruning** removes whole rows and columns. In lesson 00,
# to prune meant to set to zero. In this lesson it means to take rows and columns out of the matrices, and we say
# *zeroing* for the other. When we remove one neuron of an MLP, what else can go with it?
#
# Recall the gated MLP of lesson 00. Neuron $j$ is computed from row $j$ of the gate projection and row $j$ of the up
# projection, and column $j$ of the down projection multiplies it. If the neuron is removed, these two rows and this
# column are useless. The same holds for a **key-value group**, that is, one key-value head together with the query
# heads that share it: its rows of q, k and v can go, and so can the columns of o that multiply its output. A
# **channel** is one entry of the residual stream, the vector of 576 numbers per token that all blocks read and write.
# It is an input or an output of all seven matrices. The figure shows one block of our model, drawn to scale.

# %%
plots.pruned_together()

# %% [markdown]
# The dark strips are removed together. For example, in the left panel the neuron takes one row of gate, one row of up
# and one column of down. In the middle panel a group takes the rows of three query heads, which is three times as wide
# a strip as its key and value rows. The channel in the right panel takes a strip of every matrix of every block, and
# also one column of the embedding and one weight of each norm.
#
# Minitron can remove four kinds of parts. Neurons, heads (single query heads or whole groups) and channels make the
# model narrower, and whole blocks make it shallower. *Width or depth?* in section 8 asks which of the two is better.
# (In our code, `width` is the number of channels alone.) The method has three steps:
#
# 1. **Score** all parts with one forward pass over a little text.
# 2. **Prune** the parts with the lowest scores. Every block keeps the same number of neurons and heads, so that a
#    configuration file can describe the smaller model with a few numbers.
# 3. **Distill**: train the smaller model to predict what the original model predicts.
#
# ## 2. Pruning one block
#
# We begin with step 2, because it has to be right before any score is worth computing. A wrong index raises no error.
# The model loads and runs, and its output is nonsense.

# %% [markdown]
# ### Prune one block
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# Reduce one block to the key-value groups and the neurons that are kept. The matrices have the shape of the weight of
# `torch.nn.Linear`, outputs × inputs. The residual stream keeps all of its channels. Which rows or columns does each
# of the seven matrices lose? For example, with 9 query heads and 3 key-value heads, key-value head 1 belongs to query
# heads 3, 4 and 5.


# %% exercise="minitron.group"
def cut_block(q, k, v, o, gate, up, down, groups, neurons, n_key_value):
    """Keep some key-value groups, with their query heads, and some neurons of a block.

    q: (H * S, D). k, v: (G * S, D). o: (D, H * S). gate, up: (F, D). down: (D, F), for H query
    heads and G = n_key_value key-value heads of size S, width D, F neurons. The S rows of a head
    are consecutive, and consecutive query heads share a key-value head.
    groups: (g,), the numbers of the key-value heads that are kept, ascending. neurons: (f,), the
    numbers of the neurons that are kept, ascending.
    Returns a dictionary of the smaller matrices under their names, "q" to "down". The kept rows
    and columns stay in their order.
    """
    ### BEGIN SOLUTION
    size, together = len(k) // n_key_value, len(q) // n_key_value  # rows of a key-value head, of its query heads
    keys = (groups[:, None] * size + torch.arange(size)).flatten()
    queries = (groups[:, None] * together + torch.arange(together)).flatten()
    attention = {"q": q[queries], "k": k[keys], "v": v[keys], "o": o[:, queries]}
    return attention | {"gate": gate[neurons], "up": up[neurons], "down": down[:, neurons]}
    ### END SOLUTION


# %%
check("minitron.group", cut_block)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# The size of a head is $S$ = rows of k / $G$. Key-value head $g$ has the rows $gS$ to $gS + S - 1$ of k and v. Its
# $H/G$ query heads have the rows $g\,SH/G$ to $(g+1)\,SH/G - 1$ of q, and the columns of o with the same numbers. For
# a neuron it is one row of gate and of up, and one column of down. In short: a matrix that computes the part loses
# rows, and a matrix that multiplies it loses columns.
#
# </details>
#
# How can we test that a model was pruned correctly? **Pruning must give the same output as zeroing.** If we set the
# columns of the down projection that belong to the removed neurons to zero, these neurons contribute nothing. The
# smaller MLP has to compute the same output without them. For a removed group, we set its columns of o to zero. We try
# both on block 15, where we keep every second neuron and key-value heads 0 and 2. (The attention below leaves out the
# rotation by positions, which acts on each head alone.)

# %%
PROJECTIONS = {name: f"self_attn.{name}_proj" for name in ("q", "k", "v", "o")}
PROJECTIONS |= {name: f"mlp.{name}_proj" for name in ("gate", "up", "down")}
block_15 = model.model.layers[15]
dense_matrices = [block_15.get_submodule(path).weight.detach() for path in PROJECTIONS.values()]
every_second = torch.arange(0, dense_shape.neurons, 2)
pruned = mine("minitron.group", cut_block)(*dense_matrices, torch.tensor([0, 2]), every_second, dense_shape.groups)


def gated_mlp(x, gate, up, down):
    return (torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T


def attention(x, q, k, v, o):
    queries, keys, values = ((x @ w.T).unflatten(1, (-1, 64)).transpose(0, 1)[None] for w in (q, k, v))  # heads of 64
    mixed = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
    return mixed[0].transpose(0, 1).flatten(1) @ o.T


def print_difference(name, of_pruned, of_zeroed):
    largest_difference = (of_pruned - of_zeroed).abs().max()
    print(f"{name}: largest difference {largest_difference:.0e}, largest output {of_zeroed.abs().max():.1f}")


q_15, k_15, v_15, o_15, gate_15, up_15, down_15 = dense_matrices
o_zeroed = o_15.index_fill(1, torch.arange(3 * 64, 6 * 64), 0.0)  # group 1: query heads 3, 4 and 5
down_zeroed = down_15.index_fill(1, every_second + 1, 0.0)
x = torch.randn(5, dense_shape.width, generator=torch.Generator().manual_seed(0))  # 5 random inputs
pruned_attention, pruned_mlp = ([pruned[name] for name in names] for names in ("qkvo", ("gate", "up", "down")))
print_difference("attention", attention(x, *pruned_attention), attention(x, q_15, k_15, v_15, o_zeroed))
print_difference("MLP", gated_mlp(x, *pruned_mlp), gated_mlp(x, gate_15, up_15, down_zeroed))
print({name: tuple(weight.shape) for name, weight in pruned.items()})

# %% [markdown]
# The outputs agree up to rounding, which differs where sums are computed in another order. The last line shows the
# shapes of the smaller matrices. For example, q has lost 192 of its 576 rows, that is, three heads of size 64.
#
# ## 3. Shapes and their sizes
#
# We prune to a budget of parameters. So we need to know how many parameters a model of a given shape has, and how many
# each kind of part is worth.

# %% [markdown]
# ### Count the parameters
# **Exercise** · difficulty 2 of 5 · 7 minutes · 2 points
#
# Compute the number of parameters of a Llama model from its sizes. Its tensors are those of lesson 00: the embedding,
# seven matrices and two norms per block, and the last norm.


# %% exercise="minitron.count"
def count_parameters(width, blocks, neurons, heads, groups, head_size, vocabulary):
    """Count the parameters of a Llama of this shape.

    All are integers: width of the residual stream, blocks, MLP neurons per block, query heads and
    key-value heads ("groups") per block, size of a head, number of tokens in the vocabulary. The
    MLP is gated (gate, up, down), no linear layer has a bias, the LM head is tied to the
    embedding, and an RMSNorm has one weight per channel: two norms per block and one after the
    last block. Returns an integer.
    """
    ### BEGIN SOLUTION
    attention = 2 * width * head_size * (heads + groups)
    block = attention + 3 * width * neurons + 2 * width
    return vocabulary * width + blocks * block + width
    ### END SOLUTION


# %%
check("minitron.count", count_parameters)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# With width $D$, $L$ blocks, $F$ neurons, $H$ query heads and $G$ key-value heads of size $S$, and $V$ tokens:
#
# $$ VD + L\,\big( 2DS(H + G) + 3DF + 2D \big) + D $$
#
# These are the embedding; in each block the attention (q and o with $H$ heads, k and v with $G$), the MLP and two
# norms; and at the end the last norm.
#
# </details>
#
# Now we can see what each part is worth. In every row of the table, one or two sizes differ from the dense model.

# %%
tables.sizes(mine("minitron.count", count_parameters), dense_shape)

# %% [markdown]
# Look at the last two rows. A model with 1,126 neurons per block and a model with 24 blocks have nearly the same number
# of parameters, 84 % of the dense model. We will compare these two throughout the lesson. Three heads per block (row 4:
# 6 heads, still 3 groups) are worth much less: removing them saves only 5 %.
#
# The embedding is a fifth of this model, and only a smaller width makes it smaller. In larger models it usually matters
# less, but a large vocabulary can change this. For example, Nemotron-4 has 15.6 billion parameters and 256,000 tokens.
# Its embedding is a tenth of the parameters, and its LM head, which is a matrix of its own, is another tenth.
#
# ## 4. Which neurons? One forward pass and two hooks
#
# Which neurons should we keep? Minitron's answer needs no gradient: keep the neurons with large activations. The
# activations of one block form a tensor of windows × tokens × neurons, and we need one number per neuron. So we have
# to aggregate over two axes. The paper compares several ways and recommends the mean of the absolute values over the
# tokens of a window, followed by the L2 norm over the windows. For example, a neuron whose mean absolute activation is
# 3 in one window and 4 in another window gets the score $\sqrt{3^2 + 4^2} = 5$.

# %% [markdown]
# ### One score from many tokens
# **Exercise** · difficulty 1 of 5 · 5 minutes · 2 points
#
# Aggregate over both axes in this way. The docstring says which axis is which. The order matters when you copy code: in
# the authors' code (written for the library Megatron) the tokens are axis 0 and the windows axis 1. The same line gives
# different scores here, and no error.


# %% exercise="minitron.aggregate"
def aggregate(activations):
    """Compute one score per neuron: the mean of |x| over tokens, then the L2 norm over windows.

    activations: (N, T, F): N windows of T tokens, F neurons. Returns (F,). Only the order of the
    scores matters, so scores that differ by a constant positive factor count as right.
    """
    ### BEGIN SOLUTION
    return activations.abs().mean(dim=1).norm(dim=0)
    ### END SOLUTION


# %%
check("minitron.aggregate", aggregate)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# The axes are windows (0), tokens (1), neurons (2). So take absolute values, then the mean over axis 1, and then the
# norm over axis 0, which is now the first of two axes. Without the absolute values, positive and negative activations
# would cancel.
#
# </details>
#
# Now the real model. As in section 5 of lesson 00, we use **hooks**, functions that PyTorch calls when a module runs:
#
# - `record_input` will be a forward pre-hook of every down projection. It is called just before the module runs, with
#   the module's inputs, that is, the activations of all neurons.
# - `record_output` will be a forward hook of every block, for section 5. It is called just after the block has run,
#   with its output, the residual stream.

# %%
recorded = {}


def record_input(module, arguments):
    recorded[module] = arguments[0]


def record_output(module, arguments, output):
    recorded[module] = output


def run_with_hooks(model, token_ids, hooks):
    """Run the transformer without its LM head, then remove the hooks."""
    with torch.no_grad():
        model.model(token_ids, use_cache=False)
    for hook in hooks:
        hook.remove()


decoder_blocks = model.model.layers
hooks = [block.mlp.down_proj.register_forward_pre_hook(record_input) for block in decoder_blocks]
hooks += [block.register_forward_hook(record_output) for block in decoder_blocks]
run_with_hooks(model, calibration, hooks)
neuron_activations = [recorded.pop(block.mlp.down_proj) for block in decoder_blocks]  # (windows, tokens, neurons) each
block_outputs = [recorded.pop(block) for block in decoder_blocks]  # (windows, tokens, channels) each
print(f"{len(neuron_activations)} tensors of activations, each {tuple(neuron_activations[0].shape)}")

# %% [markdown]
# Your function turns each of these tensors into one score per neuron.


# %%
def score_each(tensors, aggregate):
    return torch.stack([aggregate(x.clone()) for x in tensors])  # copies, in case that aggregate works in place


n_neurons = 1126  # of 1536 in each block
neuron_scores = score_each(neuron_activations, mine("minitron.aggregate", aggregate))
del neuron_activations  # to save memory
plots.pruned_scores(neuron_scores, n_neurons)

# %% [markdown]
# From left to right are the blocks, and the height is the fraction of a block's scores that the pruned neurons hold. We
# prune 27 % of the neurons in each block. If all neurons had equal scores, these would hold 27 % of the scores (the
# dotted line). Look at the dark curve with circles: the pruned neurons hold less in every block, between 7 and 23 % of
# the scores. The squared scores (red, squares), which weigh large activations more, fall below 2 % in blocks 11, 28 and
# 29, because a few neurons have very large activations there. In other words, the neurons do differ, and there is
# something to choose from.
#
# Is the choice any good? We prune the model with these scores and measure the loss. As a **baseline** we need a choice
# without any information: random scores, with two random seeds. A second idea that needs no text at all is to score a
# neuron by the norm of its weights. `cut` builds the smaller model from a shape and scores. It does for the whole
# model what your function does for one block.


# %%
def norm_of_weights(mlp):
    gate, up, down = (getattr(mlp, f"{name}_proj").weight.detach() for name in ("gate", "up", "down"))
    return (gate.square().sum(1) + up.square().sum(1) + down.square().sum(0)).sqrt()


weight_norms = torch.stack([norm_of_weights(block.mlp) for block in decoder_blocks])
all_scores = {"activations": neuron_scores, "weight norms": weight_norms}
for seed in range(2):
    all_scores[f"random, seed {seed}"] = torch.rand(neuron_scores.shape, generator=torch.Generator().manual_seed(seed))

narrow_shape = replace(dense_shape, neurons=n_neurons)
losses_by_model = {"dense": window_losses(model, evaluation, progress=False)}
for name, values in all_scores.items():
    losses_by_model[name] = window_losses(cut(model, narrow_shape, Scores(neurons=values)), evaluation, progress=False)
tables.losses(losses_by_model, f"{n_neurons} of {dense_shape.neurons} neurons per block, by score")

# %% [markdown]
# Pruning by activations raises the loss by 0.88 nats, and random scores raise it by 2.99 and 3.29. (For each window we
# take the difference between the loss of a model and that of the dense model. The number after ± is the standard error
# of the mean of these four differences.) The two random seeds differ from each other by 0.3 nats, so a single random
# trial would be a poor baseline.
#
# The surprise is the weight norms: with a perplexity of 520,000 they are far worse than random selection. Where does
# this happen? Let's use the weight norms in block 0 only, and then in all blocks except block 0.

# %%
in_first_block = torch.arange(dense_shape.blocks)[:, None] == 0
for name, use_weight_norms in {"block 0": in_first_block, "all other blocks": ~in_first_block}.items():
    mixed_scores = torch.where(use_weight_norms, all_scores["weight norms"], neuron_scores)
    mixed_losses = window_losses(cut(model, narrow_shape, Scores(neurons=mixed_scores)), evaluation, progress=False)
    print(f"weight norms in {name}, activations elsewhere: perplexity {mixed_losses.mean().exp():,.0f}")
largest = neuron_scores[0].topk(10).indices
n_lost = torch.isin(largest, all_scores["weight norms"][0].argsort()[:-n_neurons]).sum()
print(f"of the 10 neurons with the largest activations in block 0, weight norms prune {n_lost}")

# %% [markdown]
# In block 0 alone, the weight norms raise the perplexity from 66 to 2,477, which is a loss of 3.6 nats more. In the
# other 29 blocks together they raise it to 19,518, which costs 5.7 nats or 0.2 nats per block on average. So block 0
# suffers far more than the average block. There the weight norms prune all ten neurons with the largest activations.
# These neurons have large activations although the norms of their weights are small, so their inputs must be unusually
# large in the direction of these weights. A score that looks at weights alone cannot see this. Magnitude pruning fails
# for the same reason in lesson 04.
#
# Two seeds and four windows are little. In addition to your own results, the lesson shows stored results of longer
# experiments. (You do not have to run the commands that are named with them, here `course reproduce minitron`.) They
# used 32 windows of 256 tokens for the scores, 20 for evaluation, and at least ten random trials for each kind of part.
# Two things differ from your tables. There are more windows, and they are longer, so the perplexities differ: the dense
# model has 25.8 there and 27.2 here. And the activations of the tokens of a window are aggregated by their L2 norm,
# because in our model this loses less than the paper's mean (perplexity 52.3 and 56.2 with 1,126 neurons). So compare
# numbers within a figure or a table, not across.
#
# **The claim to test**: neurons, heads and channels chosen by activation norms have a lower loss than those chosen at
# random.

# %%
print(claims.LOTS.judge())
plots.scores()

# %% [markdown]
# Each row of the figure is one way to prune, and the horizontal axis is the perplexity divided by that of the dense
# model, on the six windows that all random trials used. The grey strokes are random trials, and the colored marks are
# scores; further left is better. Look at the first row, 1,126 neurons. The activations (dark circle) are at 1.7 times
# the dense perplexity, and the best of ten random trials is at 10 times. The rows of whole groups (1.5 and 3.6) and of
# 504 channels (2.5 and 6.7) look similar. (The triangles that point upwards and the diamonds are scores from gradients,
# the subject of the optional section 12.)
#
# The row of the heads is different: there random selection has a lower loss than the activations, by 0.46 nats on
# average. The best score in this row is "activations × weight norm" (red squares), which multiplies the size of a
# head's output by the norm of the columns of the output projection that multiply it. That is the idea of Wanda's score
# in lesson 04. So the verdict above the figure is mixed: the claim holds for neurons, groups and channels, and fails
# for heads. The optional section 10 is about heads.
#
# **Cost**: one forward pass over the calibration set, here 2,048 tokens.
#
# ## 5. Which blocks? How much a block changes the stream
#
# A block adds its output to the residual stream. If the stream has nearly the same direction after a block as before
# it, the block contributes little, and we may be able to remove it as a whole. **Block influence** (Men and others,
# 2024) measures this. For each token, it is one minus the cosine between the stream before and after the block. For
# example, if a block turns the stream by 20 degrees, then $1 - \cos 20° = 0.06$; if it turns it by 90 degrees, the
# influence is 1.

# %% [markdown]
# ### Block influence
# **Exercise** · difficulty 1 of 5 · 5 minutes · 2 points
#
# Compute the influence of every block, as a mean over tokens.


# %% exercise="minitron.influence"
def influence(states):
    """Compute one minus the cosine between input and output of each block, as a mean over tokens.

    states: (L + 1, T, D): the stream before the first block, and after each of the L blocks.
    Returns (L,).
    """
    ### BEGIN SOLUTION
    before, behind = states[:-1], states[1:]
    cosine = (before * behind).sum(-1) / (before.norm(dim=-1) * behind.norm(dim=-1))
    return (1 - cosine).mean(dim=1)
    ### END SOLUTION


# %%
check("minitron.influence", influence)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# With $x_t$ the stream of token $t$ before the block and $y_t$ after it, the influence is
#
# $$ \frac{1}{T} \sum_t \left( 1 - \frac{x_t \cdot y_t}{\lVert x_t \rVert\, \lVert y_t \rVert} \right) . $$
#
# The order matters: first a cosine per token, then the mean. The first token of a window has an extremely long vector
# (lesson 08 will show it). If you took the mean of the vectors first, this token alone would decide.
#
# </details>
#
# Section 4 has already recorded the stream.

# %%
n_blocks = 24  # of 30
embeddings = model.get_input_embeddings()(calibration).detach()
stream = torch.stack([embeddings, *block_outputs]).flatten(1, 2)  # (blocks + 1, tokens, channels)
block_scores = mine("minitron.influence", influence)(stream)
del stream, block_outputs  # to save memory
plots.block_influence(block_scores, dense_shape.blocks - n_blocks)

# %% [markdown]
# The bar of block 0 is cut off at the top: its influence is 1.00, because it turns the embeddings into something else
# entirely. The last block follows with 0.23. The six lowest bars (dark) belong to blocks 12 to 17 in the middle of the
# model, with an influence of 0.03 or less. These are the blocks that we remove. (Each influence was measured with all
# other blocks in place. The loss will tell us whether six of them can go together.)
#
# Now we compare the two models of equal size from section 3: 24 blocks, and 1,126 neurons per block.

# %%
shallow_shape = replace(dense_shape, blocks=n_blocks)
shallow_losses = window_losses(cut(model, shallow_shape, Scores(blocks=block_scores)), evaluation, progress=False)
equal_size = {
    "dense": losses_by_model["dense"],
    f"{n_neurons} neurons": losses_by_model["activations"],
    f"{n_blocks} blocks": shallow_losses,
}
difference = shallow_losses - losses_by_model["activations"]
standard_error = difference.std() / len(difference) ** 0.5
print(f"24 blocks minus 1126 neurons: {difference.mean():+.2f} ± {standard_error:.2f} nats per token")
tables.losses(equal_size, "Two models with 113 million parameters, without any training")

# %% [markdown]
# Without training, four windows do not show a clear difference between the two models: it is less than two standard
# errors. Section 8 shows what training makes of them.
#
# **Cost**: the same forward pass as for the neurons.
#
# ## 6. Distillation: the dense model as a teacher
#
# Pruning has made the model worse, and training can repair some of the damage. We could continue the usual training
# and predict the next token of some text. **Distillation** (Hinton, Vinyals and Dean, 2015) uses more information. The
# dense model, called the **teacher**, reads the same text as the pruned model, the **student**. The student learns to
# give every token of the vocabulary the same probability as the teacher does. That is 49,152 numbers per position,
# where the text itself provides only one, the token that came next.

# %%
plots.teacher_and_student()

# %% [markdown]
# Follow the arrows. Both models receive the same text. The teacher outputs the distribution $p$ and the student the
# distribution $q$. The loss compares them, and its gradient (dashed) goes to the student only.
#
# The loss is the **Kullback-Leibler divergence** $\mathrm{KL}(p \,\|\, q) = \sum_v p_v \log (p_v / q_v)$ with the
# teacher's distribution first, also called the **forward KL**. It is zero if the two distributions are equal, and
# large where the teacher gives a token a high probability and the student does not. For example, with two tokens,
# $p = (0.75, 0.25)$ and $q = (0.5, 0.5)$, it is $0.75 \log 1.5 + 0.25 \log 0.5 = 0.13$ nats.
#
# The **temperature** $\tau$ divides all logits before the softmax. With $\tau > 1$ the distributions become flatter,
# so that unlikely tokens count more. The gradient with respect to the logits then shrinks by about $\tau^2$, and a
# factor $\tau^2$ in front of the loss makes up for it. We will use $\tau = 1$.

# %% [markdown]
# ### The distillation loss
# **Exercise** · difficulty 4 of 5 · 12 minutes · 3 points
#
# Compute the loss and its gradient with respect to the student's logits. The gradient is a formula of one line, which
# you can derive on paper; you may also use autograd. The teacher receives no gradient.


# %% exercise="minitron.distil"
def distil(student, teacher, temperature):
    """Compute the distillation loss and its gradient with respect to the student's logits.

    student, teacher: logits (N, T, V): N windows of T tokens, vocabulary of V tokens.
    temperature: divides the logits of both.
    Returns (loss, gradient): the loss is temperature squared times KL(teacher || student), the
    forward KL divergence in nats, as a mean over all N * T tokens; the gradient is (N, T, V).
    Logits may be large, several hundred, so that some probabilities are rounded to zero.
    """
    ### BEGIN SOLUTION
    log_student = (student / temperature).log_softmax(dim=-1)
    log_teacher = (teacher / temperature).log_softmax(dim=-1)
    divergence = (log_teacher.exp() * (log_teacher - log_student)).sum(dim=-1)  # (N, T)
    gradient = temperature * (log_student.exp() - log_teacher.exp()) / divergence.numel()
    return temperature**2 * divergence.mean(), gradient
    ### END SOLUTION


# %%
check("minitron.distil", distil)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# Let $z$ be the student's logits for one token, $q = \mathrm{softmax}(z / \tau)$, and $p$ the same for the teacher.
# Only $-\sum_v p_v \log q_v$ depends on $z$, and $\log q_v = z_v / \tau - \log \sum_u e^{z_u / \tau}$. Its derivative
# with respect to $z_v$ gives
#
# $$ \frac{\partial\, \mathrm{KL}(p \| q)}{\partial z_v} = \frac{1}{\tau} (q_v - p_v) . $$
#
# One factor $1/\tau$ is visible. A second one is hidden: with flatter distributions, $q - p$ itself shrinks by about
# $\tau$. With the factor $\tau^2$ and the mean over $NT$ tokens, the gradient is $\frac{\tau}{NT} (q - p)$. In the
# example above it is $(-0.25, 0.25)$: a step against the gradient raises the first logit and lowers the second one. It
# is zero exactly if the student predicts what the teacher predicts.
#
# Work with `log_softmax`. The probability of a token can be so small that it is rounded to zero, and the logarithm of
# zero is infinite.
#
# </details>
#
# **Cost**: in each training step the teacher runs on the same tokens. Training costs 6 FLOP per student weight and
# token, and the forward pass of the teacher 2 FLOP per teacher weight. With our sizes a step is 1.4 times as
# expensive as one without a teacher.
#
# ## 7. The whole method on the real model
#
# The next cell is the whole of Minitron for neurons, in plain PyTorch: score, prune, check, distill. It calls three of
# your functions. A few lines need an explanation:
#
# - A smaller model needs a new configuration and smaller matrices. We copy the dictionary of all weights, replace the
#   seven matrices of each block, and load it into a model with the new configuration. All key-value groups are kept.
#   (`names` lists the seven matrices in the order of the arguments of `cut_block`.)
# - The check is the one of section 2: pruning must equal zeroing. `torch.func.functional_call` runs the dense model
#   with some of its weights replaced, without changing it.
# - `student_logits.backward(gradient)` starts backpropagation at the logits with the gradient that your function
#   returns, and continues to the weights of the student. To save memory, we do not train the embedding, which is also
#   the LM head, and delete what is no longer needed.


# %%
def prune_and_distill(model, calibration, batches, n_kept, aggregate, cut_block, distil):
    """Keep n_kept neurons per block, and train the smaller model for one step per batch."""
    # 1. Score: one forward pass, with a hook before each down projection.
    down_projections = [block.mlp.down_proj for block in model.model.layers]
    run_with_hooks(model, calibration, [down.register_forward_pre_hook(record_input) for down in down_projections])
    # 2. Prune: a copy of all weights, with smaller matrices in every block.
    dense_weights, all_groups = model.state_dict(), torch.arange(model.config.num_key_value_heads)
    weights, zeroed = dict(dense_weights), {}
    for number, down_proj in enumerate(down_projections):
        kept = aggregate(recorded.pop(down_proj)).topk(n_kept).indices.sort().values
        names = {short: f"model.layers.{number}.{path}.weight" for short, path in PROJECTIONS.items()}
        smaller = cut_block(*(dense_weights[name] for name in names.values()), all_groups, kept, len(all_groups))
        weights.update({names[short]: matrix for short, matrix in smaller.items()})
        zeroed[names["down"]] = dense_weights[names["down"]] * torch.zeros(down_proj.in_features).index_fill(0, kept, 1)
    config = type(model.config).from_dict(model.config.to_dict() | {"intermediate_size": n_kept})
    student = type(model)(config).eval()
    student.load_state_dict(weights)
    # 3. Check: pruning must equal zeroing.
    with torch.no_grad():
        expected = torch.func.functional_call(model, zeroed, (calibration[:1],)).logits
        print(f"pruning and zeroing differ by {(student(calibration[:1]).logits - expected).abs().max():.0e} at most")
    del weights, zeroed, smaller
    # 4. Distill: the student learns the teacher's distribution of the next token.
    student.get_input_embeddings().requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=2e-4)
    for batch in batches:
        with torch.no_grad():
            teacher_logits = model(batch, use_cache=False).logits
        student_logits = student(batch, use_cache=False).logits
        loss, gradient = distil(student_logits.detach(), teacher_logits, 1.0)
        student_logits.backward(gradient)
        optimizer.step()
        optimizer.zero_grad()
        print(f"KL {float(loss):.2f}", end="  ")
    return student


student_model = prune_and_distill(
    model,
    calibration,
    training_text.split(2),  # ten batches of two windows of 64 tokens
    n_neurons,
    mine("minitron.aggregate", aggregate),
    mine("minitron.group", cut_block),
    mine("minitron.distil", distil),
)

# %% [markdown]
# Every step uses other text, so the divergence goes up and down from step to step. We judge the student by its loss on
# the evaluation set. The model before training is the one from section 4, so we have its losses already.

# %%
after_ten_steps = {
    "dense": losses_by_model["dense"],
    "pruned": losses_by_model["activations"],
    "pruned and distilled, 10 steps": window_losses(student_model, evaluation, progress=False),
}
del student_model  # to save memory
tables.losses(after_ten_steps, f"{n_neurons} neurons per block, before and after distillation")

# %% [markdown]
# Ten steps on 1,280 tokens bring the perplexity from 66 to 55. This is about a fifth of the loss that pruning has cost.
# Of course ten steps are only a beginning.
#
# Is the teacher worth its cost? Without it each step is cheaper, and for the same number of FLOP we can afford 1.4
# times as many steps. `course reproduce equal_compute` trained the pruned model in both ways, with the teacher for 300
# steps and from the text alone for 419, and in addition a model of the same shape from random weights. A step is four
# windows of 128 tokens.
#
# **The claim to test**: at equal compute, a pruned model ends with a lower loss with a teacher than from the text
# alone.

# %%
print(claims.TEACHER.judge())
plots.equal_compute()

# %% [markdown]
# Left: perplexity against compute, in petaFLOP ($10^{15}$ FLOP). Look at the curve far above the others (triangles):
# the model that starts from random weights has a perplexity of 1,673 at the end of its run, after 107 thousand tokens,
# while both pruned models are below 48 at every point that is drawn (the first one is after 5 steps with the teacher).
# So a pruned model is an excellent *initialisation* for a small model. The remaining weights still contain much of what
# the large model has learned. (The two low curves are the pruned model with the teacher, dark circles, and from the
# text alone, red squares.)
#
# Right: the loss without the teacher minus the loss with it, at equal compute. Below zero, the text alone is better.
# That is the case at the first points, up to 20 of the 300 steps with the teacher. From 0.06 petaFLOP on (120 steps)
# the teacher is clearly better, and at the end by 0.115 nats. A likely reason, which we have not tested, is this. A few
# steps on the text are enough to learn what kind of text it is. What pruning has destroyed comes back slowly, and for
# this the teacher's 49,152 probabilities contain more information than a single token.
#
# After all 300 steps with the teacher, on 154 thousand tokens, the perplexity has fallen from 52.3 to 37.5; the dense
# model has 25.8. In nats, this is 47 % of the loss increase. The authors train much longer (section 8).
#
# ## 8. Width or depth?
#
# In section 5 we could not tell the two models of equal size apart before training. Which one is better *after*
# training? The next figure compares five models of 113 million parameters, right after pruning and after 40 steps of
# distillation with the same text: one with fewer neurons, and four with 24 blocks. The six blocks to remove were chosen
# in four ways: by influence, by the loss increase when the block alone is removed (in the figure: *perplexity drop*),
# the last six, and every fifth block (*even distances*). The first two are scores of the paper, and the last two are
# simple baselines. Here *width* stands for pruning neurons and *depth* for pruning blocks.
#
# **The claim to test**: 40 steps after pruning, a narrower model has a lower loss than one with fewer blocks, chosen by
# either of the paper's scores.

# %%
print(claims.WIDTH.judge())
plots.width_or_depth()

# %% [markdown]
# From left to right is training, and the height is the perplexity. Follow the two lowest curves from the left edge:
# 1,126 neurons (dark circles) and 24 blocks chosen by influence (red squares). They start together, at perplexities of
# 52.3 and 53.7. After 40 steps the model with fewer blocks is at 35.4 and the one with fewer neurons at 41.7. *Which*
# blocks we remove matters even more. Removing every fifth block starts at 263. The model without the last six blocks is
# off the scale (its perplexities are written below the axis), and block influence would have warned us: the last block
# has a higher influence than any other block except the first. The claim compares the narrower model only with the
# blocks that the paper's two scores choose. With influence it fails, and with the loss increase the difference is not
# significant. So it does not hold at this scale.
#
# Sreenivas and others (2024) report the opposite: width pruning is better than depth pruning. They pruned Llama-3.1 8B
# to 4.5 billion parameters in both ways and distilled both models on 94 billion tokens. The narrower model was better
# on the benchmarks of their table, for example 60.5 % compared with 58.7 % on MMLU (exam questions) and 41.2 % compared
# with 16.8 % on GSM8K (arithmetic problems). Their *width* is more than ours: neurons and channels were removed
# together. So our result does not refute theirs, but you have to measure at your own budget.
#
# And how good is a pruned model compared with one that was trained from scratch? The next table is the Minitron
# paper's. Minitron 8B was pruned from Nemotron-4 15B and distilled on 94 billion tokens as well. Nemotron-3 8B was
# trained from scratch on 3.8 trillion tokens, 40 times as many.

# %%
tables.published_benchmarks()

# %% [markdown]
# Compare the columns *Minitron 8.3B* and *Nemotron-3 8.5B* (higher is better): Minitron is better in eight of the nine
# rows, all except ARC-challenge. The 8 trillion tokens on which its teacher was trained are not counted: pruning is
# cheap only if you already have the large model.
#
# The lesson from all of these comparisons: **the candidate with the lowest loss right after pruning is not always the
# one that recovers best.** For example, the documentation of NVIDIA's Model-Optimizer compares two ways to prune
# Qwen3-8B to 80 % of its memory: removing 8 of the 36 blocks, and Puzzletron, a search that gives every block its own
# shape. Right after pruning, MMLU is 50.8 % with fewer blocks and 59.1 % with Puzzletron. After 100 iterations of
# distillation the order is reversed: 73.0 % and 69.2 %. Minitron therefore ranks its candidates after a short
# distillation of 400 iterations.
#
# ## 9. What it costs, and when it does not pay off
#
# A smaller dense matrix needs no format, no kernel and no special hardware. Is it really faster by as much as it is
# smaller? In lesson 00 you saw that decoding is memory-bound: its time is proportional to the bytes that are read. The
# time for a long prompt is proportional to the FLOP. `course bench structured` timed five models on a CPU.
#
# **The claim to test**: a structurally pruned model is faster without special kernels.

# %%
print(claims.CUT_FASTER.judge())
plots.speeds()

# %% [markdown]
# The left and the middle panel show decoding with one sequence and with eight, and the right one a long prompt. The
# dots are measured speedups over the dense model (the bars show how much the repetitions differ), and the short
# horizontal lines are the predictions from bytes (left and middle) and FLOP (right). Compare 1,126 neurons with 24
# blocks in any panel. They have the same number of parameters, but the model with fewer blocks is faster. For example,
# in the left panel the bytes predict a speedup of 1.19 for both, and the measured speedups are 1.22 with fewer blocks
# and 1.16 with fewer neurons. Each block has costs that do not depend on its number of neurons, such as its attention
# and its norms.
#
# - **It costs quality.** With SparseGPT, half of the weights of all blocks can be set to zero for 2.2 times the dense
#   perplexity (lesson 03). Here, removing 27 % of the neurons (16 % of all parameters) multiplies it by 2.0 (on all 20
#   windows; by 1.7 on the six windows of the figure in section 4). Choosing single weights loses least, because the
#   choice is finest. Structured pruning gives speed on any machine, and its quality has to be restored by training.
# - **It needs a teacher and tokens.** The scores are cheap. Distillation is training, with a second model in memory: on
#   two CPU cores, a step with 512 tokens took 4.7 s with the teacher and 3.5 s without (1.3 times; section 6 estimated
#   1.4).
# - **It does not pay off** when no training is possible, when a model of the right size already exists and is as good,
#   or when only memory matters; then quantization saves more.
#
# `course prune MODEL FOLDER --shape neurons=1126 --distil 40` does everything for a model of your choice: score,
# prune, refit (section 13), distill and save. `from_pretrained` loads the result.
#
# This is the end of the core path. Go on with the optional sections, or jump to *To take home*.
#
# ## 10. Optional: heads and groups
#
# Heads are scored like neurons, by the norm of a head's output before the output projection. But we cannot remove
# just any head. Our model has nine query heads and three key-value heads, and its configuration contains only these
# two numbers. Query head $h$ uses key-value head $\lfloor h / 3 \rfloor$; nothing else tells the model which one
# belongs to it. So there are two ways to remove three query heads: one from each group, or a whole group.

# %% [markdown]
# ### Heads within their group
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# Some key-value groups are kept, and in each of them the best few query heads. If you ranked all heads of a block
# together, one group might keep three heads and another one none. The remaining heads would then be assigned to
# the wrong keys.


# %% exercise="minitron.heads"
def keep_heads(scores, groups, n_groups, n_each):
    """Choose the query heads to keep: the best n_each of every key-value group that is kept.

    scores: (L, H), one row per block; heads with high scores are kept. Consecutive query heads
    share one of the n_groups key-value heads.
    groups: (L, g), the key-value heads that are kept in each block, ascending.
    Returns (L, g * n_each), the numbers of the kept query heads, in an order in which the smaller
    model's heads use the same keys as before.
    """
    ### BEGIN SOLUTION
    size = scores.shape[1] // n_groups
    members = groups[:, :, None] * size + torch.arange(size)  # (L, g, H/G)
    inside = scores.gather(1, members.flatten(1)).view(members.shape)
    best = inside.topk(n_each, dim=2).indices.sort(dim=2).values
    return members.gather(2, best).flatten(1)
    ### END SOLUTION


# %%
check("minitron.heads", keep_heads)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Give the scores an axis for the groups, $(L, G, H/G)$, select the groups that are kept, and take the best `n_each`
# along the last axis. These are positions within a group. To get the number of a head, add the number of the first
# head of its group, $g\,H/G$. The result has to list the heads group after group, because in the smaller model the
# position of a head decides which keys it uses.
#
# </details>
#
# We compare both ways, with scores from a hook before each output projection and, to save time, from four of the eight
# windows. The score of a group is the sum of the scores of its heads. `take` builds the smaller model from the numbers
# of the parts that are kept, and `everything` lists all of them. Which of the two ways do you expect to cost more?

# %%
output_projections = [block.self_attn.o_proj for block in decoder_blocks]
run_with_hooks(model, calibration[:4], [o.register_forward_pre_hook(record_input) for o in output_projections])
head_outputs = [recorded.pop(o).unflatten(2, (dense_shape.heads, -1)) for o in output_projections]
head_norms = [x.norm(dim=3) for x in head_outputs]  # (windows, tokens, heads) each
head_scores = score_each(head_norms, mine("minitron.aggregate", aggregate))  # (blocks, heads)
group_scores = head_scores.unflatten(1, (dense_shape.groups, -1)).sum(dim=2)

every_group = torch.arange(dense_shape.groups).repeat(dense_shape.blocks, 1)
two_of_three = mine("minitron.heads", keep_heads)(head_scores, every_group, dense_shape.groups, 2)
spread_model = take(model, replace(everything(dense_shape), heads=two_of_three))
group_model = cut(model, replace(dense_shape, heads=6, groups=2), Scores(heads=head_scores, groups=group_scores))
without_heads = {"dense": losses_by_model["dense"]}
for name, smaller_model in {"one head of every group": spread_model, "one whole group": group_model}.items():
    print(f"without {name}: {smaller_model.num_parameters():,} parameters")
    without_heads[f"without {name}"] = window_losses(smaller_model, evaluation, progress=False)
del spread_model, group_model, smaller_model  # to save memory
tables.losses(without_heads, "Three of nine query heads removed per block")

# %% [markdown]
# The model that loses *more* parameters has the lower loss by far: 41 compared with 178 in perplexity. Presumably one
# group of a block often contributes little, and the sum of the scores finds it. Within a group, however, hardly any
# head can be spared. And the activation score is a poor guide there: the figure in section 4 shows that random
# selection within the groups is better on average. A score has to be tested on the decision that we use it for (here:
# which head of a group).
#
# ## 11. Optional: width, and a norm that notices
#
# An RMSNorm normalizes the residual stream before attention, before the MLP and before the LM head. It divides by the
# root of the *mean* of the squares. Suppose we remove channels that were zero anyway. Then the sum of the squares stays
# the same, but the mean is now over fewer channels, so it grows. For example, the vector $(3, 4, 0, 0)$ has a mean
# square of $25 / 4 = 6.25$, and $(3, 4)$ has $12.5$. The norm notices that channels are missing, even though they were
# zero.

# %% [markdown]
# ### An RMSNorm with fewer channels
# **Exercise** · difficulty 3 of 5 · 8 minutes · 2 points
#
# Find the weight and the epsilon with which the norm over fewer channels gives exactly the same output as before,
# whenever the removed channels are zero. Write down both norms and compare the terms under the root.


# %% exercise="minitron.norm"
def narrower_norm(weight, eps, kept):
    """Compute weight and epsilon of an RMSNorm over fewer channels.

    The kept channels have the same output as before whenever the removed channels are zero.

    weight: (D,). eps: a number. kept: (d,), the channels that are kept, ascending. Returns
    (new weight (d,), new epsilon).
    RMSNorm: x / sqrt(mean(x^2) + eps) * weight, with the mean over channels.
    """
    ### BEGIN SOLUTION
    share = len(weight) / len(kept)
    return weight[kept] * share**0.5, eps * share
    ### END SOLUTION


# %%
check("minitron.norm", narrower_norm)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# With $S$ for the sum of the squares, $D$ channels before and $d$ after, we need
#
# $$ \frac{x}{\sqrt{S/d + \varepsilon'}}\, w' = \frac{x}{\sqrt{S/D + \varepsilon}}\, w
#    \qquad\text{which holds for}\qquad w' = w \sqrt{D/d}, \quad \varepsilon' = \varepsilon\, D/d . $$
#
# With this $\varepsilon'$ the term under the root on the left is $D/d$ times the one on the right, and $w'$ cancels
# the root of this factor.
#
# </details>
#
# Training can learn the factor of the weights. Without training it comes for free. How much do your norms help when we
# keep 504 of 576 channels? The score of a channel is its aggregated activation after an RMSNorm, summed over all 61
# norms.

# %%
all_norms = [module for name, module in model.named_modules() if name.endswith("norm")]
run_with_hooks(model, calibration[:4], [norm.register_forward_hook(record_output) for norm in all_norms])
normed = (recorded.pop(norm) for norm in all_norms)  # (windows, tokens, channels) each
channel_scores = score_each(normed, mine("minitron.aggregate", aggregate)).sum(dim=0)
plots.channels(channel_scores, 576 - 504)

# %% [markdown]
# Each dot is one channel. If all channels were equal, the lowest 72 (dark circles) would hold 12.5 % of the scores.
# They hold 10 %, nearly as much, so the channels hardly differ in importance and there is little to choose from.


# %%
def narrow_model_with(norm_function):
    """Keep 504 channels; a function gives weight and epsilon of every norm, unless it is None."""
    # rescale=False: cut leaves the weights and epsilons of the norms as they are
    narrower = cut(model, replace(dense_shape, width=504), Scores(width=channel_scores), rescale=False)
    if norm_function is not None:
        kept_channels = channel_scores.topk(504).indices.sort().values
        new_norms = [module for name, module in narrower.named_modules() if name.endswith("norm")]
        for old, new in zip(all_norms, new_norms, strict=True):
            new_weight, new.variance_epsilon = norm_function(old.weight.detach(), old.variance_epsilon, kept_channels)
            new.weight.data.copy_(torch.as_tensor(new_weight))
    return narrower


narrow_losses = {"dense": losses_by_model["dense"]}
for name, function in {"old norms": None, "your norms": mine("minitron.norm", narrower_norm)}.items():
    narrow_losses[f"504 channels, {name}"] = window_losses(narrow_model_with(function), evaluation, progress=False)
tables.losses(narrow_losses, "504 of 576 channels")

# %% [markdown]
# With the old norms the loss increases by 1.30 nats, with your norms by 1.10. The remaining damage is large. These 72
# channels are 12.5 % of all parameters, fewer than the neurons of section 4 (15.8 %), and yet they cost more. The
# reason may be that all blocks read and write each channel.
#
# ## 12. Optional: scores from the gradient
#
# Large activations are not necessarily important ones. We really want to know how the loss changes when a neuron is
# removed. LLM-Pruner (Ma, Fang and Wang, 2023) uses Taylor's formula to estimate the loss after a neuron has been
# removed.

# %% [markdown]
# ### The first-order change of the loss
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# By how much does the loss change, to first order, if all weights of a neuron's column of the down projection become
# zero? Compute two scores. In the first one, the changes of single weights may cancel within the column. In the
# second one they cannot.


# %% exercise="minitron.taylor"
def taylor(weight, gradient):
    """Estimate how the loss changes, to first order, when a neuron's column of down becomes zero.

    weight: (D, F), of the down projection, one column per neuron. gradient: (D, F), of the loss
    with respect to the weight.
    Returns two scores, each (F,) and never negative: the absolute change of the loss, and the sum
    of the absolute changes that the single weights of the column cause.
    """
    ### BEGIN SOLUTION
    change = weight * gradient
    return change.sum(dim=0).abs(), change.abs().sum(dim=0)
    ### END SOLUTION


# %%
check("minitron.taylor", taylor)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# Taylor's formula gives $L(w + \delta) \approx L(w) + \sum_i g_i \delta_i$, and removing the column means
# $\delta = -w$. With $w$ the column and $g$ its gradient, the scores are $|\sum_i w_i g_i|$ and $\sum_i |w_i g_i|$.
# For example, with $w = (1, 2)$ and $g = (3, -1)$ they are $|3 - 2| = 1$ and $3 + 2 = 5$. LLM-Pruner calls the first
# one *vectorize* and the second one *param first*.
#
# The first score has a second meaning. Multiply the neuron's output by a number $m$ with the value 1. Then
# $\partial L / \partial m = \sum_i w_i g_i$, so the score is the absolute gradient of $m$. Multiplying the neuron's row
# of the up projection by $m$ has the same effect on its output. So the sum of weight times gradient over this row is
# the same number, and it does not matter which of the two we use.
#
# </details>
#
# A backward pass is expensive, so we compute the gradients on two of the eight windows, one at a time.

# %%
down_weights = [block.mlp.down_proj.weight.requires_grad_(True) for block in decoder_blocks]
gradients = [torch.zeros_like(down) for down in down_weights]
for window in calibration[:2].split(1):
    window_loss = model(window, labels=window, use_cache=False).loss / 2
    for total, gradient in zip(gradients, torch.autograd.grad(window_loss, down_weights), strict=True):
        total += gradient


def score_columns(taylor):
    return [taylor(down.detach(), gradient) for down, gradient in zip(down_weights, gradients, strict=True)]


pairs = score_columns(mine("minitron.taylor", taylor))
gradient_scores = dict(zip(("vectorize", "param first"), map(torch.stack, zip(*pairs, strict=True)), strict=True))

by_gradient = {"activations": losses_by_model["activations"]}
kept_by_activations = neuron_scores >= neuron_scores.topk(n_neurons).values[:, -1:]
for name, values in gradient_scores.items():
    kept_by_gradient = values >= values.topk(n_neurons).values[:, -1:]
    overlap = (kept_by_gradient & kept_by_activations).sum() / kept_by_activations.sum()
    print(f"{name} keeps {100 * overlap:.0f} % of the neurons that activations keep")
    by_gradient[name] = window_losses(cut(model, narrow_shape, Scores(neurons=values)), evaluation, progress=False)
tables.losses(by_gradient, f"{n_neurons} neurons, chosen by gradients")

# %% [markdown]
# Compared with the activations, the scores from the gradient are worse, *vectorize* by 0.73 nats and *param first* by
# 0.11. It may be that two windows are too few for *param first*. So the stored experiment repeats the comparison with
# 16 windows for the gradients and 32 for the activations, and also for groups and heads. **The claim to test**:
# neurons, heads and channels chosen by activation norms have a lower loss than those chosen by gradients.

# %%
print(claims.GRADIENTS.judge())

# %% [markdown]
# More windows do not change the order for neurons: with *param first*, the loss is 0.12 nats higher with 1,126 neurons
# and 0.20 nats higher with 1,024. For whole groups it is even 3.1 nats higher. Only for single heads, where the
# activations were worse than random, are the gradients better, by 0.83 nats.
#
# ## 13. Optional: repair by least squares
#
# There is a repair that needs no training. The remaining neurons can take over part of what the removed ones
# contributed, if we change the weights of the down projection. Let $X$ be the activations of all neurons on the
# calibration set (one row per token) and $W$ the down projection. The index $S$ selects the kept neurons: $X_S$ and
# $W_S$ are their columns of $X$ and $W$, $H_{:S}$ their columns of $H$, and $H_{SS}$ their rows and columns. $I$ is the
# identity matrix. We look for the matrix $W'$ that gives nearly the same output as before:
#
# $$ \lVert X_S W'^\top - X W^\top \rVert^2 + \lambda \lVert W' - W_S \rVert^2
#    \qquad\Rightarrow\qquad W' = (W H_{:S} + \lambda W_S)(H_{SS} + \lambda I)^{-1}, \quad H = X^\top X . $$
#
# This is ridge regression with one difference: the penalty $\lambda$ pulls $W'$ towards the old weights $W_S$, not
# towards zero. In other words, with a large $\lambda$ nothing changes, and with a small one we trust the calibration
# set completely. Each row of $W'$ has 1,126 unknowns, and we have 2,048 tokens to determine them, which is not much. So
# we need a considerable $\lambda$: twice the median of the diagonal of $H$. (A few neurons have extremely large
# activations at single tokens. Their squares dominate the mean of the diagonal, but not the median.)

# %%
down_projections = [block.mlp.down_proj for block in decoder_blocks]
run_with_hooks(model, calibration, [down.register_forward_pre_hook(record_input) for down in down_projections])
kept_neurons = neuron_scores.topk(n_neurons).indices.sort().values  # (blocks, kept neurons)
refit_model = cut(model, narrow_shape, Scores(neurons=neuron_scores))
for number, kept_in_block in enumerate(kept_neurons):
    inputs = recorded.pop(down_projections[number]).flatten(0, 1)  # (tokens, neurons)
    hessian = (inputs.T @ inputs).double()
    penalty = 2 * hessian.diagonal().median()
    down = down_projections[number].weight.detach().double()
    right_side = down @ hessian[:, kept_in_block] + penalty * down[:, kept_in_block]
    system = hessian[kept_in_block][:, kept_in_block] + penalty * torch.eye(n_neurons, dtype=torch.float64)
    refit_model.model.layers[number].mlp.down_proj.weight.data.copy_(torch.linalg.solve(system, right_side.T).T)
refit_losses = {
    "pruned": losses_by_model["activations"],
    "pruned, refit": window_losses(refit_model, evaluation, progress=False),
}
tables.losses(refit_losses, "Least squares after pruning, without training")

# %% [markdown]
# The refit lowers the loss by 0.11 nats, an eighth of what pruning has cost. Is it still worth it if you train the
# model afterwards? **The claim to test**: a least-squares refit lowers the loss, right after pruning and 40 steps
# later.

# %%
print(claims.REFIT.judge())

# %% [markdown]
# Yes, but less. In this experiment, with twice as much calibration text as in your notebook, the refit gains 0.119 nats
# before training and 0.035 nats after 40 steps of distillation. Training repairs much of the same damage.
#
# ## 14. Optional: an open task
#
# What is the best model of at most 100 million parameters that you can make from this one by pruning alone, without
# training? Choose its sizes. There is no right answer, and nothing is graded. The library selects the parts with the
# scores of sections 4, 5, 10 and 11. Use what you have learned: what is each part worth (section 3), and what did it
# cost to remove?


# %%
def sizes():
    """Return sizes that differ from the dense model's, by name.

    The names are "width", "blocks", "neurons", "heads" and "groups". Combine them as you like. Each
    size is a positive integer up to the dense value, "heads" is a multiple of "groups", and there
    are at most 3 heads per group. The example has 99.99 million parameters; a shape that is too
    large gives an error that says by how much.
    """
    return {"neurons": 870}


# %%
tables.shapes(shapes.measure(sizes(), (model, tokenizer)))

# %% [markdown]
# The rows above yours are simple ideas that we measured on the same eight windows (`course reproduce shapes`). The
# last column is the loss with fewer neurons alone minus the loss of the row, window by window, in nats per token.
# Unlike in the other tables of this lesson, a positive number is better. Is any shape clearly better, that is, by more
# than two standard errors? Is yours? Would the order be the same after training?
#
# ## To take home
#
# 1. Rows and columns that are useless without each other are removed together. The result is an ordinary dense model.
# 2. Test pruning by zeroing: both must give the same output.
# 3. One forward pass over a little text tells us which neurons, groups and channels to remove. The norms of the
#    weights do not.
# 4. A pruned model is a good initialisation, and distillation trains it with a full distribution per token.
# 5. The best candidate right after pruning is not always the best one after training. Rank after a short distillation.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>You prune a model, and its loss is 10 nats higher. How do you find out whether the choice of the
# parts is bad or the pruning itself is wrong?</summary>
#
# Set the removed parts of the dense model to zero and compare. If the outputs are equal, the matrices were pruned
# correctly and the choice is bad.
#
# </details>
#
# <details><summary>(Section 10) A model has 32 query heads and 8 key-value heads. Someone removes the 8 query heads
# with the lowest scores of each block, wherever they are, and saves the model. It loads. What is wrong with
# it?</summary>
#
# The configuration now says 24 query heads and 8 key-value heads, so head $h$ of the new model uses key-value head
# $\lfloor h / 3 \rfloor$. Unless each group lost exactly one head, many heads now use keys that they were not trained
# with.
#
# </details>
#
# <details><summary>The distillation loss is 0 on some text. Is the student as good as the teacher on this text? On
# other text?</summary>
#
# On this text both models give the same probabilities at every token, so yes. On other text they may differ. The loss
# says nothing about text that was not part of the training, and a student that was trained on a few hundred short
# windows has not seen much.
#
# </details>
#
# ## Reading
#
# - Muralidharan and others: *Compact Language Models via Pruning and Knowledge Distillation*, NeurIPS 2024,
#   [arXiv:2407.14679](https://arxiv.org/abs/2407.14679). Minitron. Read sections 2 and 3.
# - Sreenivas and others: *LLM Pruning and Distillation in Practice: The Minitron Approach*, 2024,
#   [arXiv:2408.11796](https://arxiv.org/abs/2408.11796). Width and depth at 4 billion parameters.
# - Ma, Fang, Wang: *LLM-Pruner: On the Structural Pruning of Large Language Models*, NeurIPS 2023,
#   [arXiv:2305.11627](https://arxiv.org/abs/2305.11627). Scores from gradients.
# - Men and others: *ShortGPT: Layers in Large Language Models are More Redundant Than You Expect*, 2024,
#   [arXiv:2403.03853](https://arxiv.org/abs/2403.03853). Block influence.
# - NVIDIA: *Model-Optimizer*, [github.com/NVIDIA/Model-Optimizer](https://github.com/NVIDIA/Model-Optimizer), folder
#   `examples/pruning`. The maintained code, with measurements.
# - Hinton, Vinyals, Dean: *Distilling the Knowledge in a Neural Network*, 2015,
#   [arXiv:1503.02531](https://arxiv.org/abs/1503.02531).
