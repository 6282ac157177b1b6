# %% [markdown]
# # 04 · Wanda: pruning by weights and activations
#
# Half of a language model's weights can go in a few seconds, without gradients and without retraining, if one number
# per input feature is known: how loud it is. This lesson builds the method step by step, on a real model, and then
# asks what of the paper's claims holds at 135 million parameters.
#
# **Afterwards you can** prune a language model in seconds by weights and activations, choose with what a weight is
# compared and say why that matters, and read a table of pruned models with its errors. **You need** lesson 00, and
# norms and top-k in PyTorch; lesson 03 is not needed. **Time**: an hour and three quarters, an hour of it for
# exercises.
#
# You will write eight short functions. Under each is a `check`; it tells you what is wrong and, when it knows, which
# mistake it is. What follows an exercise uses your function on the real model once it is right, and the course's until
# then.

# %%
import torch

from course_lib.data import corpora
from course_lib.lessons.common.by_functions import KeptBy, ScoredBy
from course_lib.lessons.common.dots import perplexities
from course_lib.lessons.common.tables import load_measured
from course_lib.lessons.common.verdicts import of_samples, verdict
from course_lib.measure.perplexity import perplexity
from course_lib.models import blocks, linears, load_model, weight_of
from course_lib.lessons.wanda import figures as plots
from course_lib.lessons.wanda import measured as wanda_results, shares, tables
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.wanda import CumulativeRows
from course_lib.pruning.input_statistics import input_gram, input_norms
from course_lib.pruning.sequential import prune_model
from course_lib.sparsity.patterns import Unstructured, sparsity_of
from course_lib.workbook import check, mine

# %%
model, tokenizer = load_model()
calibration = corpora.windows("wikipedia", 8, 256, tokenizer, split="calibration", seed=0)
held_out = corpora.windows("wikipedia", 4, 512, tokenizer, split="evaluation", seed=0)
print(f"{calibration.numel()} tokens to calibrate on, {held_out.numel()} held out, no article in both")

# %% [markdown]
# ## 1. The idea in one picture
#
# A weight does nothing alone: it multiplies an input. A small weight on a loud input can move the output more than a
# large weight on a quiet one. Magnitude pruning looks at the weight and cannot see this.
#
# How loud are the inputs of a language model? We run the calibration text through the dense model and take the norm
# of every input feature over all tokens, for every layer.

# %%
norms = input_norms(model, calibration)
layer = "blocks.15.self_attn.q_proj"
plots.outliers(norms[layer], layer)

# %%
plots.loudest_against_median(norms)

# %% [markdown]
# In a small vision network the features are of similar size, and magnitude pruning works well. Language models grow a
# few features that are far louder than the rest: tens of times at the inputs of q, k and v here, less at the others.
# The Wanda paper (section 2, after Dettmers and others, 2022) gives this as the reason why magnitude pruning fails on
# them. On this model the outliers are there, though it is fifty times smaller than the smallest LLaMA of the paper.
#
# ## 2. The score
#
# Sun, Liu, Bair and Kolter (2023), equation 1:
#
# $$ S_{ij} = |W_{ij}| \cdot \lVert X_j \rVert_2 $$
#
# $W$ has shape (outputs, inputs); $X$ has shape (tokens, inputs), and $\lVert X_j \rVert_2$ is the norm of its column
# $j$. A high score stays.

# %% [markdown]
# ### The Wanda score
# **Exercise** · difficulty 1 of 5 · 5 minutes · 2 points
#
# Write the score. Which of the two axes of $X$ does the norm run over, so that one number is left for each input? A
# constant factor for the whole layer changes nothing, and neither does squaring the whole score; a factor of its own
# for each row does.


# %% exercise="wanda.score"
def wanda_score(weight, inputs):
    """How much each weight matters.

    weight: (O, I). inputs: (N, I), one row per token. Returns (O, I), high = keep.
    """
    ### BEGIN SOLUTION
    return weight.abs() * inputs.norm(dim=0)
    ### END SOLUTION


# %%
check("wanda.score", wanda_score)

# %% [markdown]
# Now the score of a real layer. Its inputs are known by their norms only; a single token whose entries are the norms
# has these norms.

# %%
weight = weight_of(linears(blocks(model)[15])["self_attn.q_proj"])
score = mine("wanda.score", wanda_score)(weight, norms[layer][None])
for what, matrix in {"all |W|": weight.abs(), "the score": score}.items():
    share = (matrix.sum(dim=0) / matrix.sum())[norms[layer].argmax()]
    print(f"the loudest input holds {100 * share:.2f} % of {what}")

# %% [markdown]
# And what it changes. Each dot is an input column of that matrix; both methods drop half of every row.

# %%
plots.columns_kept(weight, norms[layer])

# %% [markdown]
# ## 3. Norms over many batches
#
# Calibration text does not fit in one batch. What can be added up over batches?

# %% [markdown]
# ### Norms over many batches
# **Exercise** · difficulty 2 of 5 · 6 minutes · 2 points
#
# Take the running total so far and one batch of inputs; return the new total, of which the square root, taken once at
# the end, is the norm of every feature over everything seen.


# %% exercise="wanda.accumulate"
def accumulate(total, batch):
    """Add one batch to the running statistic.

    total: (I,). batch: (B, T, I), sequences of tokens. Returns (I,).
    """
    ### BEGIN SOLUTION
    return total + batch.square().sum(dim=(0, 1))
    ### END SOLUTION


# %%
check("wanda.accumulate", accumulate)

# %% [markdown]
# The library keeps this in a `Gram`: the diagonal of $X^\top X$ for Wanda, the whole matrix for methods that need it.
# Query, key and value read the same input, so they share one; so do gate and up (lesson 00 has the drawing). Four
# statistics serve seven matrices. Here both sum up the embeddings of the calibration text, two sequences at a time.

# %%
add, total = mine("wanda.accumulate", accumulate), torch.zeros(weight.shape[1])
gram = Gram(weight.shape[1], needs="diagonal")
for batch in model.get_input_embeddings()(calibration).detach().split(2):
    total = add(total, batch)
    gram.add(batch)
print(f"{gram.n_tokens} tokens; norms differ by {(total.sqrt() - gram.diagonal.sqrt()).abs().max():.1e} at most")

# %% [markdown]
# ## 4. Whom a weight is compared with
#
# A score ranks; the comparison group says among whom. Magnitude pruning usually ranks over a whole layer. Wanda ranks
# within each output row, so every output keeps the same number of inputs (section 3, "comparison group").

# %% [markdown]
# ### Compare within each output
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# From each row drop the $\lfloor I \cdot s \rfloor$ lowest scores, exactly that many, whatever the ties. Scores may be
# negative or zero, and where the count is 0, nothing leaves.


# %% exercise="wanda.keep_rows"
def keep_rows(score, sparsity):
    """Which weights stay when each output row is a comparison group.

    score: (O, I). sparsity: the share of each row that leaves. Returns (O, I), bool, True = stays.
    """
    ### BEGIN SOLUTION
    n_leaving = int(score.shape[1] * sparsity)
    leaving = score.topk(n_leaving, dim=1, largest=False).indices
    return torch.ones_like(score, dtype=torch.bool).scatter_(1, leaving, False)
    ### END SOLUTION


# %%
check("wanda.keep_rows", keep_rows)

# %% [markdown]
# Now the other axis: each input column as a group. It looks like a small change. It removes the method.

# %% [markdown]
# ### Compare within each input
# **Exercise** · difficulty 2 of 5 · 5 minutes · 2 points
#
# From each column drop the $\lfloor O \cdot s \rfloor$ lowest scores, exactly that many. Before running the next
# section, predict how the mask differs between magnitude and Wanda.


# %% exercise="wanda.column_groups"
def keep_columns(score, sparsity):
    """Which weights stay when each input column is a comparison group.

    score: (O, I). sparsity: the share of each column that leaves.
    Returns (O, I), bool, True = stays.
    """
    ### BEGIN SOLUTION
    n_leaving = int(score.shape[0] * sparsity)
    leaving = score.topk(n_leaving, dim=0, largest=False).indices
    return torch.ones_like(score, dtype=torch.bool).scatter_(0, leaving, False)
    ### END SOLUTION


# %%
check("wanda.column_groups", keep_columns)

# %% [markdown]
# Within a column, $\lVert X_j \rVert_2$ is one and the same number. Multiplying all scores of a group by it changes
# no ranking. So per-input groups make magnitude and Wanda equal, whatever the calibration data, and the same holds
# for any score of the form $f(|W_{ij}|) \cdot g(j)$ with increasing $f$. That is a theorem, and this is a look at it:

# %%
within_rows, within_columns = mine("wanda.keep_rows", keep_rows), mine("wanda.column_groups", keep_columns)
for per, keep in {"row": within_rows, "column": within_columns}.items():
    same = keep(weight.abs(), 0.5) == keep(weight.abs() * norms[layer], 0.5)
    print(f"per {per:<6}: magnitude and Wanda agree on {100 * same.float().mean():.1f} % of the mask")

# %% [markdown]
# The public code has a variant that lets rows differ: each row drops its lowest scores up to a share α of the row's
# total, and one α per layer is found by bisection so that the layer meets the target. In the library this is a
# pattern, `CumulativeRows`, so it works with any score.

# %%
keep = CumulativeRows(0.5).keep(weight.abs() * norms[layer])
per_row = 100 * (1 - keep.float().mean(dim=1))
print(f"layer {100 * sparsity_of(keep):.1f} % sparse; rows from {per_row.min():.0f} % to {per_row.max():.0f} %")

# %% [markdown]
# ## 5. N of M
#
# Hardware that skips zeros wants them in a regular place: 2 kept of every 4 neighbours along the inputs. The
# comparison group shrinks to four weights, and nothing else changes.

# %% [markdown]
# ### N of M
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Keep the n highest scores of every m neighbouring inputs of a row: exactly n, and scores may be negative or zero.


# %% exercise="wanda.n_of_m"
def keep_n_of_m(score, n, m):
    """Which weights stay when n of every m consecutive inputs are kept.

    score: (O, I), I divisible by m. Returns (O, I), bool, True = stays.
    """
    ### BEGIN SOLUTION
    groups = score.reshape(-1, m)
    leaving = groups.topk(m - n, dim=1, largest=False).indices
    keep = torch.ones_like(groups, dtype=torch.bool).scatter_(1, leaving, False)
    return keep.reshape(score.shape)
    ### END SOLUTION


# %%
check("wanda.n_of_m", keep_n_of_m)

# %%
score, within_m = weight.abs() * norms[layer], mine("wanda.n_of_m", keep_n_of_m)
masks = {"half of each row": within_rows(score, 0.5), "4:8": within_m(score, 4, 8), "2:4": within_m(score, 2, 4)}
for name, keep in masks.items():
    print(f"{name:<16} keeps {100 * score[keep].sum() / score.sum():.1f} % of the total score")

# %% [markdown]
# All three drop half of the weights. The tighter the group, the more often a good weight must leave because its
# neighbours are better still.
#
# ## 6. One layer after the other
#
# When a layer is pruned, the next one reads something else than before. The driver therefore goes through the model
# in order: collect a block's inputs, prune its layers, run the block again, hand on what it gives now.

# %% [markdown]
# ### One layer after the other
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Prune a two-layer network, `relu(inputs @ first.T) @ second.T`, with Wanda within rows. The second layer is scored
# with what the pruned first layer gives it.


# %% exercise="wanda.sequential"
def prune_two_layers(first, second, inputs, sparsity):
    """Prune both layers in order.

    first: (H, I). second: (O, H). inputs: (N, I). sparsity: of every row.
    Returns the pruned (first, second).
    """

    ### BEGIN SOLUTION
    def pruned(weight, x):
        score = weight.abs() * x.norm(dim=0)
        leaving = score.topk(int(score.shape[1] * sparsity), dim=1, largest=False).indices
        return weight.scatter(1, leaving, 0.0)

    first = pruned(first, inputs)
    return first, pruned(second, torch.relu(inputs @ first.T))
    ### END SOLUTION


# %%
check("wanda.sequential", prune_two_layers)

# %% [markdown]
# The same on the real model: 30 blocks, 210 matrices, 106 million weights. First magnitude, then Wanda, each on a
# fresh copy and both within rows, so that only the score differs; and the perplexity on text that neither has seen.
# Wanda is put together from your score and your rows.

# %%
wanda = ScoredBy(KeptBy(mine("wanda.keep_rows", keep_rows), 0.5), mine("wanda.score", wanda_score))

# %%
results = {"dense": perplexity(model, held_out)}
for name, pruner in {"magnitude 50 %": Magnitude(Unstructured(0.5)), "Wanda 50 %": wanda}.items():
    model, tokenizer = load_model()
    report = prune_model(model, pruner, calibration)
    results[name] = perplexity(model, held_out)
    seconds = ", ".join(f"{phase} {spent:.1f} s" for phase, spent in report.seconds.items())
    print(f"{name}: {seconds}")
for name, result in results.items():
    print(f"{name:<15} perplexity {result.value:8.1f} ± {result.standard_error:.1f}")

# %%
values = {name: (p.value, p.standard_error) for name, p in results.items()}
times = values["magnitude 50 %"][0] / values["Wanda 50 %"][0]
losses = {name: torch.tensor(result.losses) for name, result in results.items()}  # of each window, in nats a token
steps = [
    of_samples(losses["Wanda 50 %"] - losses["dense"]),
    of_samples(losses["magnitude 50 %"] - losses["Wanda 50 %"]),
]
print("log-perplexity, window by window: " + ", ".join(f"{step.value:+.2f} ± {step.error:.2f}" for step in steps))
print(f"Claim: dense < Wanda < magnitude: {verdict(steps)}")
perplexities(values, f"At 50 % magnitude pruning has {times:.0f} times the perplexity of Wanda")

# %% [markdown]
# Those numbers come from few windows, so that they fit into a lesson; what follows comes from more.
#
# ## 7. The claims, measured
#
# `course reproduce wanda` measured what follows on this model, with more text than a lesson can afford, and benchmarks.
# Its result is part of the course, with seed, sizes and machine in it; the figures below read it. The model's weights
# come from a file of 4 bits each: what is pruned here was rounded before.

# %%
measured = wanda_results.results()
print(tables.provenance(measured))

# %%
wanda_results.sweep(measured)

# %%
wanda_results.by_pattern(measured)

# %% [markdown]
# **N:M costs more than unstructured, and 2:4 more than 4:8.** The group in which a good weight can be saved is
# smaller.
#
# **How much calibration data?** The paper reports that a few samples are enough.

# %%
wanda_results.calibration_curve(measured)

# %% [markdown]
# **Which comparison group?** The paper's ablation on LLaMA-7B finds per-output groups best for Wanda, against the
# habit of ranking over a layer. Per-input groups give magnitude and Wanda the same number, as the theorem says.

# %%
wanda_results.group_ablation(measured)

# %% [markdown]
# ## 8. Where the score comes from
#
# SparseGPT (Frantar and Alistarh, 2023) removes a weight and lets the others of its row make up for it. By the
# optimal brain surgeon's argument the loss of removing $W_{ij}$ is, up to a factor of one half,
#
# $$ S_{ij} = \frac{W_{ij}^2}{\left[(X^\top X + \lambda I)^{-1}\right]_{jj}} $$

# %% [markdown]
# ### SparseGPT's score, and its limit
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Compute this score from the Gram matrix $H = X^\top X$. Here $\lambda$ is added to the diagonal as it is; in lesson 03
# it is a share of the mean diagonal.


# %% exercise="wanda.obs_score"
def obs_score(weight, gram, damping):
    """SparseGPT's score of every weight.

    weight: (O, I). gram: (I, I). damping: λ. Returns (O, I).
    """
    ### BEGIN SOLUTION
    inverse = torch.linalg.inv(gram + damping * torch.eye(gram.shape[0]))
    return weight.square() / inverse.diagonal()
    ### END SOLUTION


# %%
check("wanda.obs_score", obs_score)

# %% [markdown]
# Now suppose that the inputs are uncorrelated: $H$ is diagonal. Then the inverse of the matrix is the matrix of
# inverses, $[H^{-1}]_{jj} = 1 / \lVert X_j \rVert_2^2$, and with $\lambda \to 0$ the score becomes $W_{ij}^2 \lVert
# X_j \rVert_2^2$, the square of Wanda's. Squares change no ranking. Wanda is SparseGPT's score with the correlations
# ignored, and without the update of the other weights.
#
# How much do the correlations matter on a real layer?

# %%
model, tokenizer = load_model()
gram = input_gram(model, calibration, 15, "self_attn.q_proj")
weight = weight_of(linears(blocks(model)[15])["self_attn.q_proj"])
plots.obs_against_wanda(weight, gram.matrix, layer)

# %% [markdown]
# ## 9. How sure is an accuracy?
#
# Perplexity moves first; benchmarks move late and noisily. Before comparing two accuracies, know their error.

# %% [markdown]
# ### How sure is an accuracy?
# **Exercise** · difficulty 2 of 5 · 6 minutes · 2 points
#
# From the number of right answers, compute the accuracy and its 95 % interval: normal approximation, 1.96 standard
# errors to either side. Whether $n$ or $n - 1$ estimates the variance of a single answer is up to you; the table below
# has $n - 1$.


# %% exercise="wanda.interval"
def interval(n_right, n):
    """Accuracy with its 95 % interval.

    Returns (accuracy, lower, upper) as fractions.
    """
    ### BEGIN SOLUTION
    accuracy = n_right / n
    standard_error = (accuracy * (1 - accuracy) / n) ** 0.5
    return accuracy, accuracy - 1.96 * standard_error, accuracy + 1.96 * standard_error
    ### END SOLUTION


# %%
check("wanda.interval", interval)

# %% [markdown]
# The benchmarks of the paper's table, and four more, on dense, magnitude and Wanda at 50 %:

# %%
wanda_results.zero_shot(measured)

# %%
print(tables.zero_shot_table(measured))
print(tables.zero_shot_verdict(measured))

# %% [markdown]
# Only tasks on which the dense model stands clearly above chance can show what pruning does. The others are printed
# because leaving them out would hide it: **no signal, no conclusion**. A larger model makes them usable. The verdict is
# on the mean of the tasks with a signal, beside its error. Where few answers are right, an interval of the figure
# reaches below 0 %: the normal approximation ends there. (The table's errors divide by n − 1, the exercise by n.)
#
# The paper's own numbers, for models 50 to 500 times larger. They are quoted, not measured here.

# %%
print(tables.published_table())

# %% [markdown]
# ## 10. What it costs, and when it does not pay

# %%
print(tables.cost_table(measured))

# %% [markdown]
# - **Time.** The score is one product per weight; the time goes into the forward passes that any calibrated method
#   needs. The paper reports 0.54 s for the metric of LLaMA-7B against 203 s for SparseGPT's, forward passes not
#   counted.
# - **Memory.** One number per input feature: for this model less than a megabyte.
# - **It does not pay** when nothing downstream uses the zeros. A matrix that is half zeros and stored densely is as
#   large and as slow as before. Lesson 01 measures from which density a sparse format wins on this machine; at 50 %
#   without a pattern the answer is: hardly ever. (With an engine written for it, SparseGPT's paper reports 1.82 times
#   on a CPU, table 7.) 2:4 is the pattern that GPUs can use, and its perplexity is the price.
# - **It does not reach far.** Look at the sweep: beyond 60 % the perplexity of this model is beyond use. Methods that
#   update the remaining weights, such as SparseGPT, reach further.
#
# ## 11. An open task
#
# So far every layer lost the same share of its weights. That is a choice, and nobody says that it is a good one: some
# layers may be able to lose more, and others would then have to lose less. Choose the share of every layer so that the
# model as a whole loses 40 % of its block weights, and reads held-out text as well as you can make it. There is no
# formula, and nothing is graded.
#
# Your rule gives each layer a number. Only proportions count: a layer with 2 loses twice as much as one with 1, and
# the library scales them all until the whole loses 40 %. Before you try: what do the figures of sections 1 and 7 tell
# you about the layers?


# %%
def share(part, depth):
    """How much a layer is to lose, beside the others.

    part: the matrix, such as "mlp.up_proj" or "self_attn.q_proj". depth: 0 for the first block, 1 for the last.
    Returns a number from 0 on.
    """
    return 1.0


# %%
print(shares.table(shares.stored(load_measured("wanda", "shares")["tables"]["ideas"]), shares.attempt(share)))

# %% [markdown]
# The rows above yours are simple ideas, measured once on the same text (`course reproduce shares`); *OWL* gives blocks
# with more outliers a smaller share (Yin and others, 2024). The last column compares each with equal shares, window by
# window, so that how hard a window is drops out. A row says something where its number is larger than twice its
# error. Is any idea clearly better than doing nothing special? Is yours?
#
# ## To take home
#
# 1. Look at what a weight multiplies, and not at the weight alone.
# 2. With what a weight is compared is part of the method: per input, Wanda and magnitude are the same.
# 3. A number comes with its error. Where the error is larger than the difference, the difference says nothing.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>Divide all weights of input 3 by 10, and let the layer before make that input 10 times larger. What
# changes for magnitude pruning, and what for Wanda?</summary>
#
# The layer computes the same as before. Wanda's score does not change at all. Magnitude now takes the weights of that
# input for small ones and removes them first.
#
# </details>
#
# <details><summary>Two pruned models answer 100 questions: one gets 57 right, the other 52. Each share has a standard
# error of 5 points. What do you need to judge the difference?</summary>
#
# The answers question by question. The error of the difference comes from the questions on which the two disagree, and
# is mostly smaller than $\sqrt{5^2 + 5^2} = 7$ points, which would hold for two separate samples. With either, 5 points
# are not enough here.
#
# </details>
#
# <details><summary>Why does Wanda need fewer calibration tokens than SparseGPT?</summary>
#
# It estimates one number for each input, an average over all tokens. SparseGPT needs the correlations of all pairs, and
# inverts them: errors in them become updates.
#
# </details>
#
# ## Reading
#
# - Sun, Liu, Bair, Kolter: *A Simple and Effective Pruning Approach for Large Language Models*, ICLR 2024,
#   [arXiv:2306.11695](https://arxiv.org/abs/2306.11695). Read section 3 and the ablations.
# - Frantar, Alistarh: *SparseGPT: Massive Language Models Can Be Accurately Pruned in One-Shot*, ICML 2023,
#   [arXiv:2301.00774](https://arxiv.org/abs/2301.00774).
# - Yin and others: *Outlier Weighed Layerwise Sparsity (OWL)*, ICML 2024,
#   [arXiv:2310.05175](https://arxiv.org/abs/2310.05175). Shares by layer.
# - Dettmers, Lewis, Belkada, Zettlemoyer: *LLM.int8()*, NeurIPS 2022,
#   [arXiv:2208.07339](https://arxiv.org/abs/2208.07339). The outlier features.
# - Han, Pool, Tran, Dally: *Learning both Weights and Connections for Efficient Neural Networks*, NeurIPS 2015,
#   [arXiv:1506.02626](https://arxiv.org/abs/1506.02626). Magnitude pruning, with retraining.
