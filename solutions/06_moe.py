# %% [markdown]
# # 06 · Mixture of experts: more parameters at the same cost per token
#
# The lessons before this one removed weights from a model, the same weights for every text. A **mixture of experts**
# (MoE) keeps all weights, but uses only a few of them for each token. In each transformer block it replaces the MLP
# by several MLPs, the **experts**, and a small linear map, the **router**, chooses one or two of them per token. In
# this way a model can have many more parameters than it multiplies with for one token.
#
# The idea fits into one sentence, but training it is difficult: the choice of an expert has no gradient, and a router
# that is trained carelessly sends nearly all tokens to the same few experts. In this lesson you write the parts of an
# MoE layer and train a small language model with it.
#
# **Afterwards you can** write an MoE layer and its training loop in plain PyTorch, say which weights give a router a
# gradient and which do not, explain capacity, dropped tokens and the balance loss, and say when an MoE model is
# faster than a dense model and when it is not.
#
# **You need** lesson 00, softmax and `topk` in PyTorch, and autograd. Lessons 01 to 05 are not required.
#
# **Time**: the core path, sections 1 to 8, takes about two hours, 50 minutes of it for exercises. The optional sections
# 9 to 16 are independent of each other and take about two and a half hours more, 33 minutes of it for exercises.

# %%
import torch
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from course_lib.attention.small_models.byte_model import byte_losses, byte_windows, configuration, untrained
from course_lib.data import corpora
from course_lib.lessons.common import gpu
from course_lib.lessons.common.results import load_measured
from course_lib.lessons.moe import budget, claims, drawings, optional_plots, plots, tables, widgets
from course_lib.lessons.moe.experiments import moe_ideas
from course_lib.models import load_model
from course_lib.moe.classic.descent import vowel_samples
from course_lib.moe.small_models.byte_mixture import load_byte_mixture, routings
from course_lib.workbook import check, mine

# %% [markdown]
# In sections 2 to 5 we build experts from a real MLP. We therefore need the inputs of one MLP of our model,
# SmolLM2-135M-Instruct (lesson 00). We take block 15 (of blocks 0 to 29) and read the inputs with a **forward
# pre-hook**, a function that PyTorch calls with the arguments of a module just before the module runs. The router is a
# matrix with one row per expert. For now it has small random weights, that is, it has not learned anything yet. Its
# products with a token are called **logits**.

# %%
model, tokenizer = load_model()
held_out = corpora.windows("wikipedia", 4, 128, tokenizer, split="evaluation", seed=0)  # 4 windows of 128 tokens
mlp = model.model.layers[15].mlp
captured = []
handle = mlp.register_forward_pre_hook(lambda module, arguments: captured.append(arguments[0]))
with torch.no_grad():
    model.model(held_out, use_cache=False)
handle.remove()

mlp_tokens = captured[0].flatten(0, 1)  # T = 512 tokens, D = 576 channels
router_weight = 0.02 * torch.randn(4, 576, generator=torch.Generator().manual_seed(0))  # E = 4 experts
router_logits = mlp_tokens @ router_weight.T
print(f"tokens {tuple(mlp_tokens.shape)}, router logits {tuple(router_logits.shape)}")

# %% [markdown]
# ## 1. The idea in one picture
#
# How can a model have more parameters without more work per token? The figure shows a layer with eight experts. Each
# expert is an MLP of the size of SmolLM2's, with its three matrices *gate*, *up* and *down*.

# %%
drawings.one_layer()

# %% [markdown]
# Start at the top. The router computes one logit per expert and turns the logits into probabilities (the bars with
# numbers). The two experts with the highest probabilities (dark) compute their output for this token, and the outputs
# are multiplied by their weights and added. The six pale experts are stored, but this token does not use them. So the
# layer stores 21.2 million weights, but a token is multiplied with only 5.3 million of them, a quarter. These are its
# **active parameters**. The router is the thin line at the top: its 4,608 weights cost next to nothing.
#
# Choosing the $k$ experts with the highest logits is called **top-k routing**. Here $k = 2$.
#
# ## 2. The gate
#
# Which weights should the outputs get? With $E$ experts $E_i$ and router logits $h(x) = W x$, Switch Transformers
# (Fedus, Zoph and Shazeer, 2021, equations 1 and 2) uses
#
# $$ p_i(x) = \frac{e^{h(x)_i}}{\sum_j e^{h(x)_j}}, \qquad y = \sum_{i \in \mathcal{T}} p_i(x)\, E_i(x), $$
#
# where $\mathcal{T}$ is the set of the $k$ experts with the highest logits. (The paper has $k = 1$.) The function from
# logits to weights is called the **gate**. (It has nothing to do with the *gate* matrix inside each expert.)

# %% [markdown]
# ### The weights of the gate
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Write this gate: the softmax over *all* experts, kept for the $k$ best experts of each token and zero for the
# others. Mixtral (Jiang and others, 2024) takes the softmax over the $k$ best logits only. Before you write, think:
# in which of the two versions do the weights of a token add up to one?


# %% exercise="moe.gate"
def gate_weights(logits, k):
    """Compute the weights of the experts: p_i(x) for the k best experts of a token, else zero.

    logits: (T, E), T tokens and E experts; they may be large. k: the number of experts per token,
    1 to E.
    p is the softmax over all E experts of a token. Returns (T, E) with exactly k chosen experts in
    every row; among equal logits you may choose any.
    """
    ### BEGIN SOLUTION
    of_all = logits.softmax(dim=1)
    best = logits.topk(k, dim=1).indices  # (T, k)
    return torch.zeros_like(of_all).scatter(1, best, of_all.gather(1, best))
    ### END SOLUTION


# %%
check("moe.gate", gate_weights)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Take the softmax of each row, find the columns of the $k$ highest logits with `topk`, and copy the probabilities of
# these columns into a tensor of zeros with `scatter`. The order matters: if you apply `topk` first and the softmax to
# the $k$ logits, the weights add up to one, and the probability of the other experts is lost.
#
# </details>
#
# The figure shows both versions for one token with four experts.

# %%
drawings.top_k_then_softmax()

# %% [markdown]
# Compare the two dark bars in each panel. On the left they are the probabilities themselves, 0.51 and 0.31, and they
# add up to 0.82. On the right the same two logits give 0.62 and 0.38, which add up to 1. The right weights are the
# left ones divided by their sum.
#
# Does the difference matter? Let's take four copies of the real MLP as experts. All copies have the same output, so
# their weighted sum is the output of the MLP multiplied by the sum of the weights.

# %%
with torch.no_grad():
    mlp_output = mlp(mlp_tokens)
probability_weights = mine("moe.gate", gate_weights)(router_logits, 2)
renormalized_weights = probability_weights / probability_weights.sum(dim=1, keepdim=True)
for name, gate_of_tokens in {"probabilities": probability_weights, "sum to one": renormalized_weights}.items():
    mixed_output = sum(gate_of_tokens[:, [expert]] * mlp_output for expert in range(4))
    print(f"{name}: output has {mixed_output.norm() / mlp_output.norm():.2f} times the norm of the MLP's output")

# %% [markdown]
# With probabilities, the output shrinks to 0.52 times its norm. An untrained router is almost undecided, so that even
# the two best of four experts together have hardly more than half of the probability. With weights that sum to one, the
# four copies compute exactly what the MLP computed.
#
# Now the same in all 30 blocks of the real model: we replace each MLP by four copies of itself, with an untrained
# router. Since we know the result (the MLP's output times the sum of the weights), we do not need the copies. A forward
# hook that rescales the output of each MLP is enough. We measure the **perplexity**, the exponential of the mean loss
# per token; lower is better.


# %%
@torch.no_grad()
def perplexity_with_copies(gate_weights, router_seed=0):
    """The perplexity with four copies of every MLP, two per token, weighted by the gate."""
    generator = torch.Generator().manual_seed(router_seed)

    def rescale(module, arguments, output):
        router = 0.02 * torch.randn(4, output.shape[-1], generator=generator)
        sums = gate_weights(arguments[0].flatten(0, 1) @ router.T, 2).sum(dim=1)
        return output * sums.view(*output.shape[:2], 1)

    handles = [block.mlp.register_forward_hook(rescale) for block in model.model.layers]
    nats = model(held_out, labels=held_out, use_cache=False).loss
    for handle in handles:
        handle.remove()
    return nats.exp().item()


with torch.no_grad():
    dense_perplexity = model(held_out, labels=held_out, use_cache=False).loss.exp().item()
print(f"dense, or copies whose weights sum to one: perplexity {dense_perplexity:.1f}")
print(f"copies weighted by probabilities: perplexity {perplexity_with_copies(mine('moe.gate', gate_weights)):.1f}")

# %% [markdown]
# With weights that sum to one the model is unchanged. With probabilities the model is destroyed, although every expert
# is a perfect copy.
#
# Neither gate is wrong. Switch and OLMoE (Muennighoff and others, 2024) use the probability itself. Shazeer and
# others (2017), GShard and Mixtral use weights that sum to one. But a model that was trained with one gate cannot be
# run with the other.
#
# **Cost**: a softmax and a partial sort of $E$ numbers per token.
#
# ## 3. What trains the router
#
# The choice of an expert has no gradient: a small change of a logit changes nothing, until one logit overtakes
# another. So how can a router learn at all? Only through the weights that multiply the outputs.

# %% [markdown]
# ### A weight that trains the router
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# With one expert per token, the output is $y = p_i(x) E_i(x)$ for the most likely expert $i$. Return the weight $p_i$
# and the gradient of the loss with respect to all logits. You are given the derivative of the loss with respect to
# the weight. You can derive the gradient on paper in one line (what happens to the other probabilities when $p_i$
# rises?) or use autograd.


# %% exercise="moe.top1"
def top_one(logits, slope):
    """Compute the weight of each token's most likely expert in Switch, and the router's gradient.

    logits: (T, E), all different for each token; they may be large. slope: (T,), the derivative of
    the loss with respect to each token's weight.
    Returns (weight, gradient): (T,), the factor of the chosen expert's output, equation 2 with p
    the softmax over all E experts; and (T, E), the derivative of the loss with respect to the
    logits. The choice itself has no gradient.
    """
    ### BEGIN SOLUTION
    of_all = logits.softmax(dim=1)
    weight, chosen = of_all.max(dim=1)
    of_choice = torch.nn.functional.one_hot(chosen, logits.shape[1])
    return weight, (slope * weight)[:, None] * (of_choice - of_all)
    ### END SOLUTION


# %%
check("moe.top1", top_one)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# The derivative of a softmax is $\partial p_i / \partial h_j = p_i (\delta_{ij} - p_j)$. With $s$ for the slope, the
# gradient is
#
# $$ \frac{\partial L}{\partial h_j} = s\, p_i (\delta_{ij} - p_j). $$
#
# So all logits get a gradient, not only the chosen one. For example, with $p = (0.7, 0.2, 0.1)$ and a slope of 1, the
# gradient is $(0.21, -0.14, -0.07)$. But it contains only one piece of information: whether the weight of the chosen
# expert should be larger or smaller. It does not know whether another expert would have done better.
#
# </details>
#
# Which gates give the router a gradient? We need experts that differ. The next cell stacks four copies of the MLP into
# two tensors, as MoE libraries do: `into` of shape $(E, 2F, D)$ holds the gate and up matrices for $F$ = 1,536 neurons,
# and `out` of shape $(E, D, F)$ holds the down matrices. With `noise=0.3` we add random numbers with 0.3 times the
# standard deviation of each matrix.


# %%
def mlp_copies(noise, n_copies=4, seed=0):
    """Copies of the MLP of block 15 with noise: (E, 2F, D) and (E, D, F)."""
    generator = torch.Generator().manual_seed(seed)

    def noisy_stack(matrix):
        copies = matrix.detach().expand(n_copies, -1, -1)
        return copies + noise * matrix.detach().std() * torch.randn(copies.shape, generator=generator)

    gates, ups, downs = (noisy_stack(part.weight) for part in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
    return torch.cat([gates, ups], dim=1), downs


def run_all_experts(into, out, x):
    """The outputs of all experts for all tokens: (E, T, D)."""
    gate_half, up_half = (x @ into.mT).chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate_half) * up_half) @ out.mT


equal_outputs = run_all_experts(*mlp_copies(noise=0.0), mlp_tokens)
different_outputs = run_all_experts(*mlp_copies(noise=0.3), mlp_tokens)

# %% [markdown]
# Now we compute the gradient of the router with autograd, for several gates. Any loss will do for this purpose; we
# use the squared distance to a random target. Your gate decides which experts are chosen, and autograd differentiates
# the softmax. The first row of the table uses no autograd: it is the gradient from your `top_one`.

# %%
random_target = torch.randn(mlp_tokens.shape, generator=torch.Generator().manual_seed(1))


def router_gradients(cases, gate_weights):
    """The norm of the router's gradient for each (outputs, k, whether weights sum to one)."""
    norm_by_case = {}
    for case, (expert_outputs, k, sum_to_one) in cases.items():
        router = router_weight.clone().requires_grad_()
        logits = mlp_tokens @ router.T
        weights = logits.softmax(dim=1) * (gate_weights(logits.detach(), k) > 0)
        if sum_to_one:
            weights = weights / weights.sum(dim=1, keepdim=True)
        mixed = torch.einsum("te,etd->td", weights, expert_outputs)
        ((mixed - random_target).square().sum(dim=1).mean() / 2).backward()
        norm_by_case[case] = router.grad.norm()
    return norm_by_case


def gradient_from_top_one(expert_outputs, top_one):
    """The same norm for one expert per token, with the gradient of your function."""
    chosen_output = expert_outputs[router_logits.argmax(dim=1), torch.arange(len(mlp_tokens))]
    weight, _ = top_one(router_logits, torch.zeros(len(mlp_tokens)))
    slope = ((weight[:, None] * chosen_output - random_target) * chosen_output).sum(dim=1) / len(mlp_tokens)
    return (top_one(router_logits, slope)[1].T @ mlp_tokens).norm()


gradient_cases = {
    "top-1, probability, with autograd": (different_outputs, 1, False),
    "top-1, weights sum to one": (different_outputs, 1, True),
    "top-2, weights sum to one": (different_outputs, 2, True),
    "top-2, weights sum to one, equal experts": (equal_outputs, 2, True),
    "top-2, probabilities, equal experts": (equal_outputs, 2, False),
}
norm_with_yours = gradient_from_top_one(different_outputs, mine("moe.top1", top_one))
tables.router_gradients(
    {"top-1, probability, with your gradient": norm_with_yours}
    | router_gradients(gradient_cases, mine("moe.gate", gate_weights))
)

# %% [markdown]
# - **Rows 1 and 2** agree: your formula is what autograd computes.
# - **Row 3** is zero up to rounding. A single weight divided by itself is always 1, so the loss does not depend on
#   the logits, and the router cannot learn. This is why Switch, with one expert per token, uses the probability
#   itself.
# - **Row 4**: with two experts the router compares their outputs. It has a gradient as long as the experts differ.
# - **Row 5**: equal experts do not differ, and the gradient is zero up to rounding error.
# - **Row 6**: with probabilities, even equal experts give a gradient, but it can only make the same output larger or
#   smaller. It does not help the router to choose.
#
# In other words, a router learns from the task only through weights that can change, in front of outputs that differ.
#
# **Cost**: the gradient of the router is one product of an $(E, T)$ and a $(T, D)$ matrix, which is small compared with
# the experts.
#
# ## 4. Dispatch
#
# Most weights of a token are zero. If we computed all experts for all tokens and multiplied by zeros, the result
# would be right, but we would pay for every parameter, $E / k$ times too much. How do we compute only what is needed?
#
# The sorting of tokens by their experts is called **dispatch**. The figure shows it for four tokens with two experts
# each.

# %%
drawings.dispatch()

# %% [markdown]
# Follow token a from the left. It chose experts 0 and 1, so it appears twice in the sorted column, once in the rows
# of expert 0 and once in the rows of expert 1. Each expert then reads one block of neighboring rows and runs once. On
# the right, the weighted outputs are added up per token. The numbers at the bottom are the **ends** of the blocks: 3,
# 6, 6, 8 means that expert 0 has rows 0 to 2, expert 1 rows 3 to 5, expert 2 no rows, and expert 3 rows 6 and 7.

# %% [markdown]
# ### Each expert runs once
# **Exercise** · difficulty 4 of 5 · 12 minutes · 4 points
#
# Sort the $T \cdot k$ pairs of a token and an expert by expert, run each expert once on its rows, and add the
# weighted outputs up per token. Two questions on the way: if two experts write to the same token, what happens to the
# first result? And what if no token chose an expert?


# %% exercise="moe.dispatch"
def dispatch(tokens, chosen, weights, into, out):
    """Compute the output of an MoE layer in which each expert runs once, on the rows of its tokens.

    tokens: (T, D). chosen: (T, k), each token's experts, all different. weights: (T, k), the
    factors of their outputs. into: (E, 2F, D), out: (E, D, F). Expert e maps a row x to
    (silu(g) * u) @ out[e].T, where g and u are the first and second half of x @ into[e].T.
    Returns (token, ends, output): (T * k,), which token is in each row once the pairs are sorted by
    expert, expert 0 first; (E,), where the rows of each expert end
    (an expert without tokens ends where the one before it does); (T, D), the weighted sum over each
    token's experts. Do not run an expert without tokens: its weights may hold anything.
    """
    ### BEGIN SOLUTION
    expert, order = chosen.flatten().sort(stable=True)  # pair number = token * k + choice
    token, weight = order // chosen.shape[1], weights.flatten()[order, None]
    ends = expert.bincount(minlength=len(out)).cumsum(0)
    output = torch.zeros_like(tokens)
    for e, rows in enumerate(torch.arange(len(order)).tensor_split(ends[:-1])):
        gate, up = (tokens[token[rows]] @ into[e].T).chunk(2, dim=1)
        output.index_add_(0, token[rows], weight[rows] * ((torch.nn.functional.silu(gate) * up) @ out[e].T))
    return token, ends, output
    ### END SOLUTION


# %%
check("moe.dispatch", dispatch)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Flatten `chosen` to $T \cdot k$ pairs and sort it; pair number $n$ belongs to token $n$ // $k$. `bincount` and
# `cumsum` give the ends. For each expert, gather its rows, run the three products, and add the weighted result with
# `index_add_`. Assignment with `=` would overwrite the output of the token's first expert. An expert without tokens
# has an empty range of rows.
#
# </details>
#
# On the real tokens, with four different experts and the two best per token:

# %%
top_weights, top_experts = probability_weights.topk(2, dim=1)
noisy_into, noisy_out = mlp_copies(noise=0.3)
_, row_ends, dispatched_output = mine("moe.dispatch", dispatch)(
    mlp_tokens, top_experts, top_weights, noisy_into, noisy_out
)
all_experts_output = torch.einsum("te,etd->td", probability_weights, different_outputs)
print(f"the rows of the four experts end at {row_ends.tolist()}")
print(f"largest difference from running all experts: {(dispatched_output - all_experts_output).abs().max():.1e}")
print(f"rows multiplied: {top_experts.numel()} with dispatch, {4 * len(mlp_tokens)} with all experts")

# %% [markdown]
# Both ways give the same output up to rounding, and dispatch multiplies half as many rows. With 8 of 128 experts it
# would be a sixteenth. The number of rows of an expert is its **load**. The loads already differ, although the router
# is random: by the printed ends, the experts have 236, 341, 109 and 338 rows.
#
# **Cost**: sorting $T \cdot k$ numbers, and copying each token $k$ times. Small for large experts, but not free, as
# section 8 shows.
#
# ## 5. Capacity and dropped tokens
#
# In large models each expert is on a different GPU, and it is easier to reserve buffers of a fixed size. Switch divides
# the tokens into **groups**, for example one per sequence, and gives each expert a **capacity**. Of each group it
# accepts at most
#
# $$ \text{capacity} = \left\lfloor \text{capacity factor} \cdot \frac{\text{tokens}}{\text{experts}} \right\rfloor $$
#
# tokens, where *tokens* is the size of the group. With a **capacity factor** of 1, the buffers are just large enough if
# all loads are equal. What happens to a token whose expert is full?

# %%
drawings.capacity_and_overflow()

# %% [markdown]
# Eight tokens, four experts, a capacity of two. Tokens are served in the order of the text. Expert 0 accepts a and b.
# When c, d and f come, it is full, and they are **dropped** (on the right). A dropped token skips the MoE layer; only
# its residual stream continues. At the same time, three slots of other experts stay empty (white).

# %% [markdown]
# ### Which tokens are dropped
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Implement the capacity of Switch. Each group of tokens, here a sequence, has its own slots, and they are filled in
# the order of the tokens. Return which tokens are kept, and the residual stream after the layer. A question for
# later: why do the slots not go to the tokens with the largest weights?


# %% exercise="moe.capacity"
def with_capacity(stream, outputs, chosen, weights, n_experts, factor):
    """Compute the residual stream after a layer whose experts have a capacity: Switch, equation 3.

    stream: (G, N, D), the input of the layer: G groups of N tokens. outputs: (G, N, D), the output
    of each token's expert. chosen: (G, N), the number of that expert, below n_experts.
    weights: (G, N), the factors of the outputs. In every group each expert has factor * N /
    n_experts slots, rounded down. You will get no input where that is zero. Tokens take the slots
    in order.
    Returns (keep, new stream): (G, N), True where a token found a slot; (G, N, D).
    """
    ### BEGIN SOLUTION
    capacity = int(factor * chosen.shape[1] / n_experts)
    one_hot = torch.nn.functional.one_hot(chosen, n_experts)  # (G, N, E)
    slot = (one_hot.cumsum(dim=1) * one_hot).sum(dim=2)  # counted from 1
    keep = slot <= capacity
    return keep, stream + torch.where(keep, weights, 0)[..., None] * outputs
    ### END SOLUTION


# %%
check("moe.capacity", with_capacity)

# %% [markdown]
# <details><summary>Solution, and why not the largest weights?</summary>
#
# A cumulative sum of one-hot vectors along the tokens counts, for every token, which place it has in the queue of its
# expert. Places up to the capacity are kept, and the others get the weight 0, so that only the residual stream is
# left.
#
# If the slots went to the largest weights, a later token could push an earlier token out. Then the output at one
# position would depend on the text *after* it. A language model that is trained in this way sees part of the future,
# and when it generates text, there is no future to see.
#
# </details>
#
# How many tokens are dropped on real inputs? The next cell uses your function with the most likely expert of each token
# and several capacity factors. The table below the figure lists what the authors of Switch report for two capacity
# factors. Quality is the negative log perplexity, so higher is better.

# %%
top1_expert = router_logits.argmax(dim=1).view(4, 128)  # four sequences of 128 tokens


def kept_by_factor(factors, with_capacity):
    """The fraction of the tokens that are kept; streams, outputs and weights play no role here."""
    zeros = torch.zeros(4, 128, 1)
    kept = {factor: with_capacity(zeros, zeros, top1_expert, zeros[..., 0], 4, factor)[0] for factor in factors}
    return {factor: kept_tokens.float().mean().item() for factor, kept_tokens in kept.items()}


factors_tried = (0.5, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
display(plots.overflow(kept_by_factor(factors_tried, mine("moe.capacity", with_capacity)), n_experts=4))
tables.published_capacity()

# %% [markdown]
# At a capacity factor of 1, a quarter of the tokens are dropped (solid), because the loads of this untrained router
# are not equal. At 2 no token is dropped any more, but half of the slots are empty (dashed), and empty slots cost
# memory and time as well. This trade-off is why the loads should be even: with equal loads, a factor of 1 would drop
# nothing.
#
# In the table, compare the last two rows. With a factor of 1, top-1 drops more tokens, but it processes 1,000 instead
# of 860 examples per second, and the quality is only slightly lower (-1.561 instead of -1.554). All mixtures have a
# clearly higher quality than the dense model, but process fewer examples per second. (With one expert per token, they
# need as many multiplications per token as the dense model.)
#
# Newer libraries avoid the problem. **Dropless** layers have no capacity at all: your `dispatch` accepts any loads,
# and a *grouped* matrix product multiplies blocks of different sizes in one call.
#
# **Cost**: buffers of capacity factor $\times$ tokens rows, used or not.
#
# ## 6. Balance
#
# What happens if we let the router learn on its own? Shazeer and others (2017) describe a vicious circle: an expert
# that is slightly better at the start receives more tokens, therefore learns faster, and becomes better still. In the
# end a few experts do all the work. This is called **router collapse**.
#
# The most common remedy is a **balance loss** (also: auxiliary loss), which is added to the loss of the task for each
# MoE layer. Switch (equations 4 to 6) uses
#
# $$ L_\text{balance} = \alpha\, E \sum_{i=1}^{E} f_i\, P_i $$
#
# where $f_i$ is the fraction of all choices that expert $i$ receives, and $P_i$ is the mean probability that the
# router gives to it. Counting has no gradient, so $f_i$ is a constant, and the gradient goes through $P_i$ alone: it
# lowers the probability of an expert, the more so the higher its load is. For example, with equal loads and
# probabilities, $f_i = P_i = 1/E$ and the loss is $\alpha$. If all tokens choose the same expert with certainty, it
# is $\alpha E$.

# %% [markdown]
# ### Keep the loads in balance
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Compute this loss for several layers at once, as the mean over the layers, together with its gradient with respect to
# the logits. (Switch adds up the losses of its layers. With the mean, $\alpha$ has the same effect for any number of
# layers.) One thing is easy to get wrong: suppose that the first layer sends everything to its first expert, and the
# second layer everything to its last expert. What happens to $f$ and $P$ if you average them over the layers first?


# %% exercise="moe.balance"
def balance(logits, chosen, alpha):
    """Compute the balance loss of all layers, and its gradient with respect to the logits.

    logits: (L, T, E), of the routers of L layers for T tokens and E experts. chosen: (L, T, k), the
    numbers of the k experts that each token chose. alpha: a number.
    For each layer, f (E,) holds the fractions of its T * k choices that the experts have; these are
    counts and have no gradient. P (E,) is the mean over tokens of the softmax over all experts. The
    loss of a layer is alpha * E * sum(f * P), which is alpha at balance, for any k. Returns (loss,
    gradient): the mean of the layers' losses, and its gradient (L, T, E).
    """
    ### BEGIN SOLUTION
    n_layers, n_tokens, n_experts = logits.shape
    probs = logits.softmax(dim=2)
    fraction = torch.nn.functional.one_hot(chosen, n_experts).sum(dim=(1, 2)) / chosen[0].numel()  # (L, E): f
    per_token = alpha * n_experts * (fraction[:, None] * probs).sum(dim=2, keepdim=True)
    gradient = probs * (alpha * n_experts * fraction[:, None] - per_token) / (n_layers * n_tokens)
    return per_token.mean(), gradient
    ### END SOLUTION


# %%
check("moe.balance", balance)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# With $P_i = \frac{1}{T} \sum_t p_{ti}$, the derivative of the loss of one layer with respect to $p_{ti}$ is
# $g_i = \alpha E f_i / T$. Through the softmax this becomes
#
# $$ \frac{\partial L}{\partial h_{tj}} = p_{tj} \Big( g_j - \sum_i p_{ti}\, g_i \Big), $$
#
# and the mean over the layers divides it by $L$. In words: the logit of an expert is pushed down if its load is
# higher than the average load of the experts that the token prefers.
#
# </details>
#
# Back to the question in the exercise. The function that `transformers` uses for Mixtral **pools** the layers, that
# is, it averages $f$ and $P$ over all layers first. We compare both on two layers with four experts. In the first
# case the loads are equal in each layer. In the second case each layer uses only two experts, but not the same two.
# (We divide the loss of `transformers` by $k$, because it counts each of the $k$ choices in full.)

# %%
token_pairs = torch.tensor([[0, 1], [2, 3]])
choices_by_case = {
    "equal loads in both layers": token_pairs.repeat(32, 1).expand(2, -1, -1),  # tokens take turns
    "each layer uses two experts": token_pairs[:, None].expand(-1, 64, -1),  # one pair per layer
}
for case_name, layer_choices in choices_by_case.items():
    sure_logits = torch.full((2, 64, 4), -20.0).scatter(2, layer_choices, 20.0)
    per_layer, _ = mine("moe.balance", balance)(sure_logits, layer_choices, 1.0)
    pooled = load_balancing_loss_func(tuple(sure_logits), num_experts=4, top_k=2) / 2
    print(f"{case_name}: per layer {per_layer:.2f}, pooled {pooled:.2f}")
drawings.by_layer()

# %% [markdown]
# In the second case each layer uses only half of its experts. The loss per layer is 2, twice its value at balance.
# The pooled loss is 1, as at balance. The figure shows why: the first two panels are the layers, and in each of them
# two experts have all the load. In the third panel, the average over both layers, all experts look equal.
#
# The pooled loss is not a bug that you should fix silently. It is what the code of Mixtral computes in
# `transformers`, so anyone who trains with this code minimizes the pooled loss. You need to know which of the two a
# paper means before you compare values of $\alpha$.
#
# How much does balance help? Shazeer and others report it for 256 experts (published in their Table 6, not measured
# here). Without a balance loss the busiest expert has 17.8 times the mean load, and the perplexity is 39.8. With one or
# both of their two balance losses (section 12), the busiest expert has 1.07 to 1.47 times the mean load, and the
# perplexity is 35.6 or 35.7. A hundred times the weight of the losses (1 instead of 0.01) does not change the
# perplexity.
#
# **Cost**: one softmax and one count per layer. But the balance loss also competes with the loss of the task, as
# section 7 shows.
#
# ## 7. The whole method: train a mixture of experts
#
# Now we put everything together and train a language model with experts from scratch. So that it takes seconds, it is a
# small model of bytes: each token is one byte of text, so there are 256 tokens. We take a Llama with two blocks and 96
# channels, and replace each MLP by our own MoE layer with eight experts, two per token. The layer has fewer than 30
# lines, and the training loop is another 30.
#
# Two details: your gate chooses the experts, and autograd differentiates the softmax, as in section 3. And the
# balance loss enters through its gradient. We add `(gradient * logits).sum()` to the loss; its derivative with
# respect to the logits is exactly your gradient.


# %%
class MixtureOfExperts(torch.nn.Module):
    """E SwiGLU experts of which each token uses k; takes the place of an MLP."""

    def __init__(self, width, n_neurons, n_experts, k, gate_weights):
        super().__init__()
        self.k, self.gate_weights = k, gate_weights
        self.router = torch.nn.Parameter(0.02 * torch.randn(n_experts, width))
        self.into = torch.nn.Parameter(0.02 * torch.randn(n_experts, 2 * n_neurons, width))
        self.out = torch.nn.Parameter(0.02 * torch.randn(n_experts, width, n_neurons))

    def forward(self, x):
        tokens = x.flatten(0, 1)  # (T, D)
        self.logits = tokens @ self.router.T  # (T, E), kept for the balance loss
        self.chosen = self.gate_weights(self.logits.detach(), self.k).topk(self.k).indices  # (T, k)
        weights = self.logits.softmax(dim=-1).gather(1, self.chosen)
        mixed = torch.zeros_like(tokens)
        for number in range(len(self.out)):
            rows, choice = (self.chosen == number).nonzero(as_tuple=True)  # the tokens of this expert
            gate_half, up_half = (tokens[rows] @ self.into[number].T).chunk(2, dim=-1)
            expert_output = (torch.nn.functional.silu(gate_half) * up_half) @ self.out[number].T
            mixed = mixed.index_add(0, rows, weights[rows, choice, None] * expert_output)
        return mixed.view_as(x)


def byte_mixture(gate_weights, n_experts=8, k=2, seed=0):
    """A small Llama of bytes whose MLPs are mixtures of experts."""
    torch.manual_seed(seed)
    byte_model = untrained(configuration(width=96, n_blocks=2, n_heads=3), seed)
    for block in byte_model.model.layers:
        block.mlp = MixtureOfExperts(96, n_neurons=96, n_experts=n_experts, k=k, gate_weights=gate_weights)
    return byte_model


# %% [markdown]
# The training loop prints the load of every expert of the first block as it trains. An expert with an equal load
# would have 12 or 13 %.


# %%
def train_mixture(byte_model, batches, alpha, balance, report_every=20):
    """Train on batches (B, length + 1) of bytes; return the loads of all steps, (steps, L, E)."""
    layers = [block.mlp for block in byte_model.model.layers]
    optimizer = torch.optim.Adam(byte_model.parameters(), betas=(0.9, 0.95))
    loads = []
    for number, ids in enumerate(batches, start=1):
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1, number / 10)  # warm-up over ten steps
        prediction = byte_model(ids[:, :-1], use_cache=False).logits
        text_loss = torch.nn.functional.cross_entropy(prediction.mT, ids[:, 1:])
        router_logits = torch.stack([layer.logits for layer in layers])  # (L, T, E)
        chosen = torch.stack([layer.chosen for layer in layers])  # (L, T, k)
        _, gradient = balance(router_logits.detach(), chosen, alpha)
        optimizer.zero_grad()
        (text_loss + (gradient * router_logits).sum()).backward()
        torch.nn.utils.clip_grad_norm_(byte_model.parameters(), 1.0)
        optimizer.step()
        loads.append(torch.nn.functional.one_hot(chosen, len(layers[0].out)).float().mean(dim=(1, 2)))
        if number % report_every == 0:
            percentages = " ".join(f"{100 * load:.0f}" for load in loads[-1][0])
            print(f"step {number}: loss {text_loss:.2f}, load of the experts of block 0 in %: {percentages}")
    return torch.stack(loads)


# %% [markdown]
# We train twice on the same bytes, once without the balance loss ($\alpha = 0$) and once with $\alpha = 0.01$. (Switch
# has the same value for each layer. Since we take the mean of two layers, our balance loss is half as strong.) Each run
# has 140 steps of 16 sequences of 128 bytes.

# %%
training_batches = byte_windows(140 * 16, "calibration", length=129).view(140, 16, 129)
your_functions = {"gate": mine("moe.gate", gate_weights), "loss": mine("moe.balance", balance)}
byte_models, loads_by_run = {}, {}
for run_name, run_alpha in {"no balance loss": 0.0, "balanced": 0.01}.items():
    print(run_name)
    byte_models[run_name] = byte_mixture(your_functions["gate"])
    loads_by_run[run_name] = train_mixture(byte_models[run_name], training_batches, run_alpha, your_functions["loss"])
plots.loads(loads_by_run, k=2)

# %% [markdown]
# Each row of a panel is an expert, and time runs to the right; the darker, the higher the load. Without the balance
# loss (top row) a few experts take nearly everything: after 20 steps, two experts of each block have almost 50 % of
# the choices each, which is the most that an expert can have with two choices per byte. At the end the two busiest
# experts still have about 70 % of the choices in block 0 and over 90 % in block 1, and half of the experts are hardly
# used.
#
# With the balance loss (bottom row) the router also jumps between its favorites at first, but then the loads spread,
# and the two busiest experts end with about half of the choices. Equal loads would be 25 %.
#
# Your numbers differ from these. Two machines round differently, and so do a formula and autograd in `balance`, and
# training amplifies the difference. For example, in three runs that differ only in rounding, the two busiest experts of
# block 0 ended with 42, 52 and 54 % with the balance loss.
#
# Does the balance loss also lower the loss of the text? We evaluate both models on held-out windows:

# %%
nats_by_run = {}
for run_name, byte_model in byte_models.items():
    with torch.no_grad():
        nats_by_run[run_name] = byte_losses(byte_model.eval(), byte_windows(48)).mean(dim=1)  # one per window
    print(f"{run_name}: {nats_by_run[run_name].mean():.3f} nats per byte on 48 held-out windows")
increase = nats_by_run["balanced"] - nats_by_run["no balance loss"]
print(f"with the balance loss higher by {increase.mean():.3f} ± {increase.std() / len(increase) ** 0.5:.3f}")

# %% [markdown]
# No, on the contrary: the loss is higher with the balance loss, in the same three runs by 0.135, 0.170 and 0.190 nats
# per byte. This does not contradict the lower perplexity that Shazeer and others report (section 6), since they trained
# a much larger model for far longer. A possible reason for our result is that the bytes change their experts so often
# at the start that each expert learns less. The error after ± is the standard error over the 48 windows. It does not
# include the effect of rounding or of another seed, and the optional section 9 therefore trains with three seeds.
#
# **Cost**: training an MoE layer needs as many multiplications per token as a dense MLP with $k$ times the neurons of
# one expert, plus the router. But gradients and optimizer states exist for all experts.
#
# ## 8. When it pays off, and when it does not
#
# A mixture saves multiplications, but not memory: all experts have to be stored. When a model generates text, its
# latency depends mostly on the bytes that it reads (lesson 00), and an expert is read completely even if only one
# token uses it. How many experts does a batch of tokens use? If each token chooses $k$ of $E$ experts evenly, a given
# expert is not used by any of $T$ tokens with probability $(1 - k/E)^T$.
#
# The next cell evaluates this formula. Below it, the figure shows the time of one layer on a CPU, as measured by
# `course bench moe`. The experts have the size of our model's MLP, each token uses two, and we compare with a dense MLP
# that has as many weights as two experts.

# %%
for batch_size in (1, 2, 4, 8, 16, 64):
    n_experts_used = 8 * (1 - (1 - 2 / 8) ** batch_size)
    print(f"batch size {batch_size}: on average {n_experts_used:.1f} of 8 experts are read")
plots.speeds()

# %% [markdown]
# A batch of 8 tokens already uses 7 of the 8 experts. So a mixture reads few bytes only with very small batches.
#
# In the figure, the dotted line at 1 is the dense MLP. Blue circles are the time of the MoE layer, red squares the time
# if all experts are computed for all tokens, and black dashes the bytes that the MoE layer reads.
#
# - **1 token** (left panel): the layer reads as few bytes as the dense MLP, and still takes 1.6 times as long. The
#   rest is overhead, such as the router and the sorting.
# - **64 tokens**: all eight experts are read, four times as many bytes, for a few rows each. This is the worst case
#   of the left panel, with 2.4 times the time of the dense MLP.
# - **512 tokens**: each expert now has 128 rows, and the layer takes 1.3 times as long. With 32 experts (right panel)
#   it has only 32 rows per expert, and takes 2.4 times as long.
#
# The optional section 15 has the same comparison on a GPU, where a kernel removes part of the overhead.
#
# So a mixture **pays off** when memory is plentiful and computation is scarce, for example in training and in serving
# large batches, and when experts are distributed over many devices. It **does not pay off** when memory is the limit,
# or with a few sequences on one device, where a dense model with as many active parameters reads fewer bytes.
#
# This is the end of the core path. Go on with the optional sections, or jump to *To take home*.
#
# ## 9. Optional: do experts pay off in longer training?
#
# To answer this we need larger models, more steps and more than one seed. `course reproduce moe` trained byte models
# with four blocks for 800 steps, which took 75 minutes, with three seeds each: a dense model, and models with eight
# experts per block, of which a byte uses one (top-1), or two of half the size (top-2). Apart from the routers, all
# models need the same number of multiplications per byte. Do the mixtures have a lower loss than the dense model, as
# the authors of Switch report?

# %%
display(tables.trained_models())
print(claims.ONE_OF_EIGHT.judge())

# %% [markdown]
# Read the columns from left to right. The mixtures have three to six times the weights of the dense model, and almost
# the same FLOP per byte. But the losses hardly differ: the differences between the models are about as large as the
# standard deviations over the seeds. Only top-1 with the balance loss has a visibly higher loss.
#
# The claim below the table compares top-1 with the dense model. Its sample is the three seeds, and they do not agree:
# with seed 0 the mixture has a lower loss, with seed 2 a higher one. So the claim is undecided. A likely reason is the
# length of the training. Our models are trained on 1.6 million bytes, hardly more than the dense model has weights, and
# each expert sees only a part of them. The experts of Switch were trained for 100,000 steps. In other words, that
# experts pay off is a statement about long training.
#
# The last column of the table explains why there is a balance loss at all: without it, a single expert of a top-1 model
# ended with nearly all bytes of its block (100 %, the maximum over blocks and seeds). How do the loads develop during
# training?

# %%
plots.largest_loads()

# %% [markdown]
# The curves show the load of the busiest expert of a block, now as a mean over blocks and seeds. Compare the two models
# without a balance loss (top-1 solid, top-2 dash-dotted) with the two others. All models are most uneven after about 20
# steps, when the router has learned to prefer experts that are ahead by chance. Later the loads become more even, even
# without a balance loss. But without it, the busiest expert of a top-1 model still has 45 % of the choices in the end,
# compared with 23 % with the balance loss.
#
# ## 10. Optional: which bytes go to which expert?
#
# "Expert" suggests a specialist for a subject. Is that what the experts become? The course keeps a byte model that was
# trained for 800 steps with a balance loss (`course reproduce byte_mixture`). Below each byte of a held-out text you
# see the numbers of its two experts. Choose a block and the expert whose bytes are marked. Do these bytes have anything
# in common?

# %%
kept_mixture = load_byte_mixture(n_held_out=1, n_training=1).model  # we need only the model, not its texts
text_ids = byte_windows(1)[0]
widgets.explore({"800 steps, balanced": widgets.route_text(text_ids, routings(kept_mixture, text_ids[None]))})

# %% [markdown]
# How much does a byte say about its experts? We count how often each byte goes to each expert of the first block on 48
# windows. From these counts follows the **mutual information** $\sum_{b,i} p(b, i) \log \frac{p(b, i)}{p(b)\,p(i)}$ of
# byte and expert, which we divide by the entropy of the expert: 0 % means that the byte says nothing about the expert,
# and 100 % that it determines it.

# %%
byte_ids = byte_windows(48)[:, :-1]
first_block, *_ = routings(kept_mixture, byte_ids)
is_byte = torch.nn.functional.one_hot(byte_ids.flatten(), 256).double()  # (T, 256)
shuffled = torch.randperm(len(is_byte), generator=torch.Generator().manual_seed(0))
for order_name, one_hot_bytes in {"bytes": is_byte, "shuffled bytes": is_byte[shuffled]}.items():
    joint = one_hot_bytes.T @ first_block.chosen.double()  # how often each byte goes to each expert: (256, E)
    joint = joint / joint.sum()
    of_byte, of_expert = joint.sum(dim=1, keepdim=True), joint.sum(dim=0)
    information = (torch.xlogy(joint, joint) - torch.xlogy(joint, of_byte * of_expert)).sum()
    entropy = -torch.xlogy(of_expert, of_expert).sum()
    print(f"{order_name}: mutual information {100 * information / entropy:.0f} % of the entropy of the expert")
plots.favourites(byte_ids.flatten(), first_block.chosen)

# %% [markdown]
# Each column of the figure is one of the most common bytes. Half of a byte's choices is the most that one expert can
# have, since each byte chooses two, so the darkest cells are bytes that always go to this expert. For example, expert 4
# is one of the two experts of nearly every *e*, *n* and *s*. The byte alone, without its context, determines 27 % of
# the choice. If we shuffle the bytes, only 1 % is left. So part of what the router has learned is simply a table of
# bytes, which is something weaker than an expert for a subject.
#
# ## 11. Optional: upcycling
#
# Do we have to train a mixture from scratch? **Upcycling** (Komatsuzaki and others, 2022) starts from a trained dense
# model, copies each MLP into several experts, and continues the training. With weights that sum to one, the mixture
# computes at the first step exactly what the dense model computed (section 2). But we know the catch from section 3:
# equal copies give the router no gradient.

# %%
optional_plots.upcycled()

# %% [markdown]
# On the left is the dense MLP. The middle panel shows equal copies: whatever the router chooses, the output is E(x). On
# the right, half of the neurons of each copy (pale) were replaced by random ones, different ones in each expert. This
# is **Drop-Upcycling** (Nakamura and others, 2025). A simpler way is to add noise to the weights. Both give the router
# a gradient, but they also change what the model computes.
#
# Let's measure this trade-off on the MLP of block 15, with the real inputs and your functions:

# %%


def upcycle_one_mlp(noise_levels, dispatch, gate_weights):
    """The change of the output and the norm of the router's gradient, for each amount of noise."""
    sum_to_one_weights = top_weights / top_weights.sum(dim=1, keepdim=True)
    changes, outputs_by_noise = {}, {}
    for noise in noise_levels:
        into, out = mlp_copies(noise)
        _, _, upcycled_output = dispatch(mlp_tokens, top_experts, sum_to_one_weights, into, out)
        changes[noise] = (upcycled_output - mlp_output).norm() / mlp_output.norm()
        outputs_by_noise[noise] = (run_all_experts(into, out, mlp_tokens), 2, True)
    return changes, router_gradients(outputs_by_noise, gate_weights)


tables.noisy_copies(
    *upcycle_one_mlp((0.0, 0.01, 0.1, 0.3), mine("moe.dispatch", dispatch), mine("moe.gate", gate_weights))
)

# %% [markdown]
# Read the rows from top to bottom. Without noise the output does not change, and the router has no gradient; both
# numbers are rounding errors. With a noise of 1 % the output changes by 1.3 %, and ten times the noise gives ten
# times the change and ten times the gradient. In other words, a stronger signal for the router costs a worse start.
#
# Does upcycling lead to a better model? `course reproduce moe_upcycling` upcycled the dense byte model of the course
# in four ways and trained all models for 200 more steps, in 23 minutes.

# %%
display(tables.upcycled())
print(claims.UPCYCLED_TOP_1.judge())

# %% [markdown]
# The router's gradient at the start is as predicted: rounding error for equal copies, more for noise, most for half
# random neurons. But after 200 steps the equal copies are ahead of the dense model as well, although only by 0.006
# nats. Equal copies have no gradient for the router at the first step only. The untrained router sends them different
# bytes, so they receive different gradients and become different on their own. With half of the neurons random, 200
# steps are not enough to reach the dense model. Note that top-2 with copies of full size needs twice the
# multiplications of the dense MLP; top-1 needs the same.
#
# To upcycle a whole Llama, call `upcycled(model, n_experts, k)` in `course_lib/moe/upcycling/mixtral.py`. The result
# can be saved and loaded as a Mixtral.
#
# ## 12. Optional: noise, and other ways to balance
#
# Shazeer and others (2017) balanced the loads in another way. Before the choice they add normal noise to each logit:
# $H = x W_g + z \cdot \mathrm{softplus}(x W_\text{noise})$ with a standard normal $z$ (equations 3 to 5). The router
# learns with $W_\text{noise}$ how much noise each logit gets.
#
# The noise has a second use. The load of an expert is a count, and a count has no gradient. But with noise, an expert
# whose logit is close to the $k$-th highest is chosen in some trials and not in others. So instead of counting
# tokens, we can compute the *probability* that a token is sent to an expert, and this probability is a smooth
# function.

# %% [markdown]
# ### A load with a gradient
# **Exercise** · difficulty 4 of 5 · 12 minutes · 3 points
#
# Keep the noise of all other experts fixed, and imagine new noise for expert $i$. With which probability is it now
# among the $k$ best? Which logit does it have to exceed, and is it the same one for an expert that was chosen and for
# one that was not?


# %% exercise="moe.load"
def smooth_load(clean, noise, noisy, k):
    """Compute the expected number of tokens of each expert, with new noise for this expert alone.

    clean: (T, E), the router's logits x W_g. noise: (T, E), x W_noise; its softplus is the standard
    deviation.
    noisy: (T, E), H = clean + z * softplus(noise) with the sampled z. k: experts per token, below
    E.
    P(x, i) = Phi((clean_i - the k-th highest of the others' noisy logits) / softplus(noise_i)),
    where Phi is the distribution function of the standard normal. Returns (E,): the sum of P(x, i)
    over the T tokens.
    """
    ### BEGIN SOLUTION
    best = noisy.topk(k + 1, dim=1).values
    last_in, first_out = best[:, k - 1 : k], best[:, k:]  # (T, 1) each
    to_beat = torch.where(noisy >= last_in, first_out, last_in)
    deviation = torch.nn.functional.softplus(noise)
    return torch.special.ndtr((clean - to_beat) / deviation).sum(dim=0)
    ### END SOLUTION


# %%
check("moe.load", smooth_load)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Sort out the $k + 1$ highest noisy logits. An expert that is among the $k$ best has to exceed the $(k+1)$-th,
# because without it the others move up by one place. An expert that is not among them has to exceed the $k$-th. The
# probability that clean logit plus noise exceeds a threshold is $\Phi$ of their distance, in standard deviations of
# the noise.
#
# </details>
#
# We test it on our 512 tokens. The noise has a standard deviation of softplus(0) = 0.69, as at the start of training,
# when $W_\text{noise}$ is zero. In each of 200 trials we count the loads, compute the smooth loads, and compare both
# with the mean count of all trials.


# %%
def loads_of_trials(n_trials, smooth_load):
    """Two lists with the loads of each trial: counted, and smooth."""
    generator = torch.Generator().manual_seed(0)
    counts, smooth_loads = [], []
    for _ in range(n_trials):
        noisy_logits = router_logits + 0.6931 * torch.randn(router_logits.shape, generator=generator)
        counts.append(noisy_logits.topk(2, dim=1).indices.flatten().bincount(minlength=4).float())
        smooth_loads.append(smooth_load(router_logits, torch.zeros_like(router_logits), noisy_logits, 2))
    return counts, smooth_loads


count_by_trial, smooth_by_trial = loads_of_trials(200, mine("moe.load", smooth_load))
mean_load = torch.stack(count_by_trial).mean(dim=0)
for load_name, load_by_trial in {"count": count_by_trial, "smooth load": smooth_by_trial}.items():
    distance = (torch.stack(load_by_trial) - mean_load).abs().mean() / mean_load.mean()
    print(f"{load_name}: on average over 200 trials {100 * distance:.1f} % away from the mean load")
optional_plots.smooth(count_by_trial[0], smooth_by_trial[0], mean_load, n_trials=200)

# %% [markdown]
# Zero on the vertical axis of the figure is the mean load over 200 trials. The circles are the counts of the first
# trial, and the squares, which are closer to zero, the smooth loads from the same trial. Over all trials, a count is
# off by 3.3 % of the mean load on average, a smooth load by 1.5 %. So the smooth load is the better estimate, and it
# has a gradient.
#
# Shazeer's **load loss** is the squared coefficient of variation of these smooth loads (variance divided by squared
# mean, equations 10 and 11). Their **importance loss** is the same for the sums of the weights (6 and 7).
#
# Three more methods have been proposed since. The first two are **regularisers** of the router, the third replaces the
# balance loss:
#
# - **Jitter** is a small random factor. The name has three meanings: the text of Switch multiplies the router's input
#   by numbers between $1 - \varepsilon$ and $1 + \varepsilon$, its pseudo-code adds such numbers to the logits, and the
#   code of SparseMixer multiplies the logits by them. The next cell shows with $\varepsilon = 0.1$ that these are not
#   the same.
# - The **z-loss** (Zoph and others, 2022) is the mean of $(\log \sum_i e^{h_i})^2$. It keeps the logits small,
#   because large numbers are rounded coarsely in 16 bits.
# - DeepSeek-V3 (2024) adds a **bias** to each expert's score for the choice only, not for the weight. After every
#   step the bias of experts with too many tokens is lowered, and that of the others raised. No balance loss is
#   needed.


# %%
jitter_generator = torch.Generator().manual_seed(0)


def random_factors(*shape):
    """Numbers between 0.9 and 1.1."""
    return 0.9 + 0.2 * torch.rand(shape, generator=jitter_generator)


token, token_logits = mlp_tokens[3], router_logits[3]
print("logits of one token:", [f"{logit:.4f}" for logit in token_logits])
jittered_logits = {  # 4,000 trials each
    "text of Switch": (random_factors(4000, 576) * token) @ router_weight.T,
    "pseudo-code of Switch": token_logits + random_factors(4000, 4),
    "code of SparseMixer": token_logits * random_factors(4000, 4),
}
for meaning, trials in jittered_logits.items():
    is_other = trials.argmax(dim=1) != token_logits.argmax()
    deviations = [f"{deviation:.4f}" for deviation in trials.std(dim=0)]
    print(f"{meaning}: standard deviations {deviations}, another best expert in {100 * is_other.float().mean():.0f} %")

# %% [markdown]
# With the text of Switch, all logits get noise of about the same size, 0.003 to 0.005. In the pseudo-code the noise is
# more than ten times as large, as large as the logits of this untrained router, and in 34 % of the trials another
# expert becomes the best one. (All logits also shift up by about one, which changes nothing, because a softmax ignores
# a constant.) In the code of SparseMixer the noise is proportional to the logit, so that the first logit, which is
# close to zero, gets hardly any.
#
# Finally, the roles can be swapped. With **expert choice** (Zhou and others, 2022) each expert takes the tokens with
# the highest probabilities, so that all loads are equal by construction.

# %%
drawings.token_choice_and_expert_choice()

# %% [markdown]
# Both panels show the same probabilities of eight tokens for four experts. On the left each row has two frames: each
# token takes its two best experts, and the loads are uneven. On the right each column has four frames: each expert
# takes four tokens. Token f is in no frame, because it has no clear favorite.
#
# For a language model, expert choice has a flaw. We replace only the *last* token of a sequence, and count the
# earlier tokens whose experts change:


# %%
def expert_choice(logits):
    """Each expert takes 2T / E tokens."""
    n_taken = 2 * logits.shape[0] // logits.shape[1]
    taken = logits.softmax(dim=1).topk(n_taken, dim=0).indices
    return torch.zeros_like(logits, dtype=torch.bool).scatter(0, taken, True)


def token_choice(gate_weights):
    """Each token takes two experts."""
    return lambda logits: gate_weights(logits, 2) > 0


sequence_logits = router_logits[:128]
choosers = {"token choice": token_choice(mine("moe.gate", gate_weights)), "expert choice": expert_choice}
for chooser_name, choose in choosers.items():
    is_changed = torch.zeros(127, dtype=torch.bool)
    for expert in range(4):  # the last token now prefers this expert
        replaced = sequence_logits.clone()
        replaced[-1] = 0.0
        replaced[-1, expert] = sequence_logits.abs().max() + 5
        is_changed |= (choose(sequence_logits)[:-1] != choose(replaced)[:-1]).any(dim=1)
    print(f"{chooser_name}: {int(is_changed.sum())} of 127 earlier tokens change their experts")

# %% [markdown]
# With expert choice, a later token can push an earlier one out, as with the largest weights in section 5. So a
# language model sees part of the future during training, which it cannot see when it generates text.
#
# `course reproduce moe_routers` trained byte models with all of these methods, with the bytes and seeds of section 9.
# Each is compared with a **matched control**, a model that differs in this one respect only.

# %%
display(tables.regularisers())
print(claims.BIAS_EVENS_MORE.judge())

# %% [markdown]
# Look at the third column first. Jitter lowers the loss by 0.0125 nats, more than three times its deviation over the
# seeds. The z-loss does not cost anything here. For the bias and for expert choice the deviation over the seeds is
# larger than the difference, so nothing follows. (And a lower loss of expert choice would prove little, because it sees
# the future in this evaluation as well.) The last two columns show the loads: the bias lowers the load of the busiest
# expert from 35 % to 13 %, close to the 12.5 % of equal loads. The claim below the table compares it with the balance
# loss.
#
# ## 13. Optional: where the idea comes from
#
# The idea is from 1991, when Jacobs, Jordan, Nowlan and Hinton trained a mixture without top-k: all experts computed an
# output, and the router (they called it gating network) weighted them. The next paper of the reading list is from 1994,
# and after it there is a gap of 23 years. New in 2017 was that only $k$ experts run.
#
# In 1991 the question was which error the experts should minimize. The obvious one is the squared error of the
# blended output, $\lVert d - \sum_i p_i o_i \rVert^2$ (equation 1.1 of the paper), with the target $d$, the experts'
# outputs $o_i$ and the router's probabilities $p_i$. But with this error, each expert learns to correct the sum of
# the others. The paper's alternative assumes that each target was produced by *one* of the experts, and takes the
# negative log likelihood (equation 1.3):
#
# $$ -\log \sum_i p_i\, e^{-\lVert d - o_i \rVert^2 / 2} $$
#
# The **responsibility** $h_i$ of an expert is the probability that the target was its own, once we know the target.
# For example, with two equally likely experts at distances 0 and 2 from the target, the responsibilities are
# proportional to $1$ and $e^{-2} = 0.14$, that is, 0.88 and 0.12.

# %% [markdown]
# ### Which expert is responsible?
# **Exercise** · difficulty 3 of 5 · 9 minutes · 3 points
#
# Compute this error and the responsibilities. What happens to the exponentials when a target is far from all experts?


# %% exercise="moe.jacobs"
def mixture(prior, outputs, target):
    """Compute the error of a mixture of experts and the responsibilities.

    prior: (S, K), for each of S samples the probabilities p_i that the router gives to K experts,
    before it sees the target. outputs: (S, K, O), the outputs o_i. target: (S, O), d.
    Returns (error, responsibilities): -log of the sum over i of p_i exp(-|d - o_i|^2 / 2) for each
    sample, (S,), without a further constant; and (S, K), each expert's fraction of that sum. Both
    are finite, however far the target is.
    """
    ### BEGIN SOLUTION
    squared = (target[:, None] - outputs).square().sum(dim=2)  # (S, K)
    joint = prior.log() - squared / 2
    return -joint.logsumexp(dim=1), joint.softmax(dim=1)
    ### END SOLUTION


# %%
check("moe.jacobs", mixture)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# The logarithm of one term is $\log p_i - \lVert d - o_i \rVert^2 / 2$. The error is minus the `logsumexp` of these
# numbers, and the responsibilities are their softmax. Both functions subtract the maximum first. Direct exponentials
# would all become 0 for a far target, and 0 / 0 is not a number.
#
# </details>
#
# With the responsibilities we need no autograd: the gradient of the error with respect to an output is $-h_i (d -
# o_i)$, and with respect to a router logit $p_i - h_i$. The next cell trains four linear experts on the task of the
# paper: to tell four vowels apart by two frequencies (formants), measured on 76 speakers by Peterson and Barney (1952).
# It trains twice, once with each error.

# %%
vowels, unseen_vowels = vowel_samples()


def train_vowels(mixture=None, n_epochs=600, rate=0.5, seed=0):
    """Four linear experts and a router; without a function, the error is the blended one."""
    generator = torch.Generator().manual_seed(seed)
    experts, router = (0.5 * torch.randn(shape, generator=generator) for shape in ((4, 4, 3), (4, 3)))
    for _ in range(n_epochs):
        prior = (vowels.inputs @ router.T).softmax(dim=1)  # (S, K)
        outputs = torch.einsum("sj,koj->sko", vowels.inputs, experts)
        if mixture:
            _, responsible = mixture(prior, outputs, vowels.targets)
            minus_output_slope = responsible[..., None] * (vowels.targets[:, None] - outputs)
            minus_logit_slope = responsible - prior
        else:
            blended = (prior[..., None] * outputs).sum(dim=1, keepdim=True)
            miss = vowels.targets[:, None] - blended
            minus_output_slope = 2 * prior[..., None] * miss
            minus_logit_slope = 2 * prior * ((outputs - blended) * miss).sum(dim=2)
        experts = experts + rate * torch.einsum("sko,sj->koj", minus_output_slope, vowels.inputs) / len(vowels.inputs)
        router = router + rate * minus_logit_slope.T @ vowels.inputs / len(vowels.inputs)
    return experts, router


trained_on_vowels = {
    "blended error": train_vowels(),
    "mixture error": train_vowels(mine("moe.jacobs", mixture)),
}
optional_plots.regions(trained_on_vowels, unseen_vowels)

# %% [markdown]
# Each dot is a vowel of a new speaker, and the gray regions show which expert is the likeliest. With all experts
# together, both mixtures are right for 90 % of the vowels. But with the blended error (left) the likeliest expert
# alone is right for only 72 %, and with the mixture error (right) for 90 %. A sparse model runs only the likeliest
# experts, so it needs experts of the second kind.
#
# Later papers changed the learners. Jordan and Jacobs (1994) put routers above routers, a tree with linear maps at
# its leaves, and fitted it with the **EM algorithm**: compute the responsibilities, then solve a weighted regression
# for each expert and each router. Shazeer and others (2017) put experts between two LSTM layers. `course reproduce
# moe_classic` measured all of them in six minutes:

# %%
display(tables.classic())
print(claims.VOWELS_ALONE.judge())

# %% [markdown]
# - **Row 1**: over ten seeds, one expert alone is right for 90.5 % of the vowels with the mixture error, and for 74.2
#   % with the blended error.
# - **Row 2**: the mixture needs 137 epochs, and a network with one hidden layer of 12 neurons 844. This was the main
#   point of the paper.
# - **Row 3**: on the movements of a robot arm with two joints, the tree has an error of 0.015, and one linear map
#   0.268.
# - **Row 4**: experts in an LSTM have a slightly lower loss (1.770 nats per byte) than as many active dense neurons
#   (1.795).
#
# ## 14. Optional: a gradient for the choice
#
# In 1991 all experts ran, so it was known what each of them would have contributed. In a sparse model we have this
# information only for the chosen experts. Suppose that a router *samples* one expert from its probabilities $\pi$.
# The gradient of the expected loss has two parts,
#
# $$ \nabla \sum_i \pi_i\, L(\pi_i E_i)
#    \;=\; \underbrace{\sum_i L(\pi_i E_i)\, \nabla \pi_i}_{\text{the choice}}
#    \;+\; \underbrace{\sum_i \pi_i\, L'(\pi_i E_i) \cdot E_i\, \nabla \pi_i}_{\text{the weight}} , $$
#
# and backpropagation computes only the second one. For the first one we need the losses of all experts, also of those
# that did not run. **SparseMixer** (Liu, Gao and Chen, 2023) estimates it from the sampled expert $D$ alone, in three
# steps:
#
# - The probabilities always add up to one, so their gradients add up to zero. We may therefore subtract a constant from
#   all losses, for which we take $L(0)$, the loss without any expert.
# - A sample of the first part is then $(L(\pi_D E_D) - L(0))\, \nabla \pi_D / \pi_D$.
# - The difference of the two losses is the integral of the slope of $L$ on the way from 0 to $\pi_D E_D$. The slope at
#   the midpoint, where the weight is $\pi_D / 2$, times the way is a good estimate of it.

# %%
optional_plots.midpoint_rule()

# %% [markdown]
# The curve is a loss as a function of the factor $s$ in front of the expert's output. The dashed chord connects $s = 0$
# and $s = p$, the probability of the expert; its slope is what we want to know. The tangent at $p/2$ (red) has the same
# slope, -0.52, since the curve is a parabola. The tangent at $p$ (gray) has a slope of 0.36, even with the wrong sign.
#
# So the estimate of the first part is the slope at the midpoint times $E_D \nabla \pi_D$. A sample of the second part
# is the same formula with the slope at the full weight. SparseMixer tosses a coin between the two, and doubles the
# result, since each of them is computed in only half of the trials.

# %% [markdown]
# ### A gradient from one expert
# **Exercise** · difficulty 4 of 5 · 12 minutes · 4 points
#
# Write one trial of SparseMixer. It halves the expert's weight if the coin says so, and always doubles the gradient of
# the weight. If the weight is halved, is the gradient that reaches $\pi$ halved as well? Also, the released code has
# one exception: the most likely expert is never halved.


# %% exercise="moe.estimate"
def sparsemixer(logits, drawn, halved, outputs, target):
    """Compute the gradient of SparseMixer, version 1 as released, from one sample for each token.

    logits: (T, E); their softmax are the probabilities pi. drawn: (T,), the number D of the sampled
    expert.
    halved: (T,), True where a coin says half. outputs: (T, V), the sampled expert's output, o.
    target: (T, V).
    The layer computes m * o, where m = pi_D, or pi_D / 2 if the coin says half and D is not the
    most likely expert. The loss of a token is |m * o - target|^2 / 2. The backward pass treats m as
    pi_D, and doubles dL/dm, which is computed at the m that was used. Returns (T, E): the gradient
    of each token's loss with respect to its logits.
    """
    ### BEGIN SOLUTION
    pi = logits.softmax(dim=1)
    of_drawn = pi.gather(1, drawn[:, None])  # (T, 1)
    half = halved & (drawn != logits.argmax(dim=1))
    used = torch.where(half[:, None], of_drawn / 2, of_drawn)
    slope = ((used * outputs - target) * outputs).sum(dim=1, keepdim=True)  # dL/dm
    return 2 * slope * of_drawn * (torch.nn.functional.one_hot(drawn, logits.shape[1]) - pi)
    ### END SOLUTION


# %%
check("moe.estimate", sparsemixer)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# The slope is $s = (m\,o - \text{target}) \cdot o$, with the $m$ that was used in the forward pass. The backward pass
# treats $m$ as $\pi_D$, so the gradient with respect to $h_j$ is $2 s\, \pi_D (\delta_{Dj} - \pi_j)$. It is not
# halved: only the point at which the slope is computed moves to the midpoint.
#
# </details>
#
# Is the estimate right on average? We do not need to sample to find out. There are only $2E$ possible trials, one for
# each expert and each side of the coin, with probabilities $\pi_i / 2$. We enumerate them for a router with four
# experts and random outputs, and compare the mean with the exact gradient.

# %%
toy_generator = torch.Generator().manual_seed(0)
toy_logits, toy_outputs, toy_target = (
    torch.randn(shape, generator=toy_generator, dtype=torch.float64) for shape in ((4,), (4, 6), (6,))
)
toy_logits.requires_grad_()
toy_probs = toy_logits.softmax(dim=0)
loss_by_expert = (toy_probs[:, None] * toy_outputs - toy_target).square().sum(dim=1) / 2
(exact_gradient,) = torch.autograd.grad((toy_probs * loss_by_expert).sum(), toy_logits, retain_graph=True)
(weight_gradient,) = torch.autograd.grad((toy_probs.detach() * loss_by_expert).sum(), toy_logits)

sampled_expert = torch.arange(4).repeat(2)
coin_is_half = torch.arange(8) >= 4
trial_gradients = mine("moe.estimate", sparsemixer)(
    toy_logits.detach().repeat(8, 1), sampled_expert, coin_is_half, toy_outputs[sampled_expert], toy_target.repeat(8, 1)
)
mean_of_trials = (toy_probs.detach()[sampled_expert, None] / 2 * trial_gradients).sum(dim=0)
tables.router_estimates(
    {
        "exact: all experts run": exact_gradient,
        "backpropagation: the weight only": weight_gradient,
        "SparseMixer, as released": mean_of_trials,
    }
)

# %% [markdown]
# The last column is the norm of the difference from the exact gradient, divided by the norm of the exact one.
# Backpropagation misses 38 % of the gradient, and SparseMixer still 30 %. The midpoint rule itself is exact for a
# quadratic loss like this one; the error comes from the exception for the most likely expert.
#
# A correct mean is not enough, however. Single trials can be far off, so the average over the tokens of a batch is
# noisy. The figure shows the error of the average over $T$ tokens, for 200 small networks whose loss is not quadratic.
# Below it, a claim compares the biases for three kinds of losses.

# %%
display(optional_plots.estimators())
print(claims.SPARSE_MIXER.judge())

# %% [markdown]
# More tokens reduce the noise, but not the **bias**, that is, the error of the mean. The curve of REINFORCE (Williams,
# 1992) falls all the way, because it has no bias, but it starts with the largest error. The curve of the weight alone
# is almost flat: little noise, much bias. SparseMixer is in between: as released it has a smaller error than the weight
# alone from 11 tokens on, and REINFORCE overtakes it at 141. That its bias is smaller than that of the weight alone
# holds for all three kinds of losses of the claim.
#
# ## 15. Optional: the layer on a GPU
#
# On a GPU the situation is similar to the CPU of section 8. The first table shows the time for the products of a layer
# of 128 experts, 8 per token. *grouped_mm* is PyTorch's grouped product (the reference), then follow a loop over all
# experts in PyTorch, and *by group*, a kernel of the course. An expert is called *awake* if at least one token uses it.

# %%
print(gpu.provenance())
gpu.table("grouped_matmul", contests=("tokens: 1, awake: 8 of 128", "tokens: 8192, awake: 128 of 128"))

# %% [markdown]
# The loop over experts is far slower than the grouped product at both sizes, because it starts many small products.
# Look at the column "bound", the least time that the GPU needs: from 1 to 8,192 tokens it grows only 44 times. A single
# token has to read 8 experts completely, for one row each. With 8,192 tokens each expert has 8,192 · 8 / 128 = 512
# rows, and the multiplications are the limit.
#
# The products are only a part of the layer. The next table is for a whole MoE layer with its router, of width 576 with
# 1,536 neurons per expert and 2 experts per token, in bfloat16. The reference is the dense MLP with as many active
# parameters. *Grouped product* is the layer of the course in PyTorch. The two rows *transformers* are implementations
# of Hugging Face's library of that name, and *kernels* is the layer of the course with its kernels:

# %%
gpu.table(
    "moe",
    contests=(
        "One token, 2 of 8 experts awake",
        "64 tokens, 8 of 8 experts awake",
        "512 tokens, 8 of 8 experts awake",
        "One token, 2 of 32 experts awake",
    ),
    sides=(
        "dense, of equal active size",
        "grouped product",
        "transformers, grouped_mm",
        "transformers, batched_mm",
        "kernels",
    ),
)

# %% [markdown]
# Compare the last row of each setting with the others.
#
# - **Transformers**: the kernels take 13 to 44 µs. The faster of the two implementations of transformers takes 72 to
#   203 µs, that is, 4.5 to 5.4 times as long.
# - **Dense**: for one token both read about the same number of bytes, and the kernels are 1.5 times as fast as the
#   dense MLP (1.3 times with 32 experts). With 64 tokens all 8 experts are read, four times the bytes of the dense MLP,
#   and the kernels take 1.4 times as long. With 512 tokens they take 1.3 times as long.
#
# In this table the CPU starts the operations before the timer runs, unless a layer makes it wait, as *grouped product*
# does: the CPU has to know how many pairs of a token and an expert there are. During decoding the GPU often waits for
# the CPU, which starts one operation after another. Measured in this way, one token with 8 experts takes 449 µs with
# the kernels, 334 µs with the dense MLP, and 759 µs with the faster implementation of transformers. At least 90 % of it
# is waiting. If the operations are recorded once in a **CUDA graph**, which the CPU starts as a whole, one token takes
# 47 µs with the kernels and 55 µs with the dense MLP.
#
# ## 16. Optional: an open task
#
# What is the lowest loss that a byte model can reach with a fixed number of FLOP per byte? Weights of experts that a
# byte does not use cost nothing here, up to a limit on all weights that keeps the training short. Choose the numbers.
# There is no right answer, and nothing is graded. Running the second cell trains a model for 140 steps, as in section
# 7.


# %%
def choices():
    """Return what differs from the usual model: some of "experts" (8), "k" (2), "neurons" of each
    expert (96), "width" (96), "blocks" (2), "alpha" (0.01), and "weights", which are
    "probabilities" (as usual) or "sum to one"."""
    return {"weights": "sum to one"}


# %%
print(f"at most {budget.BUDGET:,} FLOP per byte and {budget.MOST_WEIGHTS:,} weights")
idea_results = moe_ideas.stored(load_measured("moe", "experiments/moe_ideas")["tables"]["ideas"])
display(budget.table(budget.attempt(choices()), idea_results["the usual model"][0]))
moe_ideas.table(idea_results)

# %% [markdown]
# The usual model is the one of section 7, trained with the library. The error after ± is that of the text. Another seed
# changes the loss as well, and by how much you see in the second table, which lists the ideas that we measured with two
# seeds each (`course reproduce moe_ideas`). The last two columns compare each idea with the usual model, for each seed.
# Weights that sum to one, and one large expert instead of two small ones, are ahead with seed 0, and have a much higher
# loss with seed 1. So such a gain means nothing, however small its error is. Two ideas are clearly ahead with both
# seeds: no balance loss, and only two experts that are both used, which is a dense model. In so few steps more experts
# do not pay off, as in section 9.
#
# ## To take home
#
# 1. An MoE layer has $E$ experts and uses $k$ of them per token: the memory of a large model, the multiplications of
#    a small one.
# 2. The router learns only through the weights of the outputs. A single weight that is always 1, or experts that are
#    all equal, leave it without a gradient.
# 3. Without a balance loss a router may collapse to a few experts. The loss belongs to each layer; pooled over layers
#    it can hide a collapse.
# 4. Capacity limits what an expert accepts. Tokens that are dropped keep only their residual stream.
# 5. Whether a mixture pays off depends on the batch: a few dozen tokens read all experts, but give each of them few
#    rows.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>A top-1 mixture is trained with weights that sum to one, and with a balance loss. Its loads are
# perfectly even. What has its router learned?</summary>
#
# Only to balance. The weight is always 1, so the loss of the text gives the router no gradient, and only the balance
# loss trains it. A random table of tokens and experts would balance the loads just as well.
#
# </details>
#
# <details><summary>The balance loss is exactly α in every layer. Are the loads equal?</summary>
#
# Not necessarily. If the router is very unsure, all $P_i$ are about $1/E$. Then $\alpha E \sum f_i P_i$ is about
# $\alpha$ for any $f$, and a tiny advantage of one expert can send every token to it.
#
# </details>
#
# <details><summary>A model with 8 experts, 2 per token, generates text for one user almost as fast as a dense model
# with as many active parameters. What happens with eight users at the same time?</summary>
#
# Eight tokens use about seven of the eight experts. So each step reads more than three times as many bytes of experts
# as for one user. The dense model reads the same bytes for eight users as for one.
#
# </details>
#
# ## Reading
#
# - Fedus, Zoph, Shazeer: *Switch Transformers: Scaling to Trillion Parameter Models with Simple and Efficient
#   Sparsity*, 2021, [arXiv:2101.03961](https://arxiv.org/abs/2101.03961). Read section 2.
# - Shazeer and others: *Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer*, 2017,
#   [arXiv:1701.06538](https://arxiv.org/abs/1701.06538).
# - Lepikhin and others: *GShard*, 2020, [arXiv:2006.16668](https://arxiv.org/abs/2006.16668).
# - Zhou and others: *Mixture-of-Experts with Expert Choice Routing*, 2022,
#   [arXiv:2202.09368](https://arxiv.org/abs/2202.09368).
# - Zoph and others: *ST-MoE*, 2022, [arXiv:2202.08906](https://arxiv.org/abs/2202.08906). The z-loss.
# - Jiang and others: *Mixtral of Experts*, 2024, [arXiv:2401.04088](https://arxiv.org/abs/2401.04088).
# - Muennighoff and others: *OLMoE*, 2024, [arXiv:2409.02060](https://arxiv.org/abs/2409.02060).
# - DeepSeek-AI: *DeepSeek-V3 Technical Report*, 2024, [arXiv:2412.19437](https://arxiv.org/abs/2412.19437). Section
#   2.1.2: balance by a bias.
# - Komatsuzaki and others: *Sparse Upcycling*, 2022, [arXiv:2212.05055](https://arxiv.org/abs/2212.05055); Nakamura
#   and others: *Drop-Upcycling*, 2025, [arXiv:2502.19261](https://arxiv.org/abs/2502.19261).
# - Liu, Gao, Chen: *Sparse Backpropagation for MoE Training*, 2023,
#   [arXiv:2310.00811](https://arxiv.org/abs/2310.00811). SparseMixer.
# - Jacobs, Jordan, Nowlan, Hinton: *Adaptive Mixtures of Local Experts*, 1991,
#   [doi:10.1162/neco.1991.3.1.79](https://doi.org/10.1162/neco.1991.3.1.79).
# - Jordan, Jacobs: *Hierarchical Mixtures of Experts and the EM Algorithm*, 1994,
#   [doi:10.1162/neco.1994.6.2.181](https://doi.org/10.1162/neco.1994.6.2.181).
