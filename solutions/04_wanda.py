# %% [markdown]
# # 04 · Wanda: pruning by weights and activations
#
# Half of a language model's weights can be removed in less than a minute, without gradients and without retraining, if
# one knows one number for each input feature: how large it usually is. This lesson builds the method step by step on a
# real model, and then measures which of the paper's claims hold at 135 million parameters.
#
# **Afterwards you can** prune a language model within a minute by weights and activations, choose the comparison group
# of a weight and say why it matters, explain what Wanda leaves out of SparseGPT, and read a table of pruned models with
# its errors. **You need** lesson 00, and norms, top-k and the inverse of a matrix in PyTorch; lesson 03 is not needed.
# **Time**: an hour and three quarters, 65 minutes of it for exercises.
#
# The eight functions that you will write add up to the method: once score and rows are right, it is with yours that the
# model of section 7 is pruned.

# %%
import torch

from course_lib.data import corpora
from course_lib.lessons.common.by_functions import KeptBy, ScoredBy
from course_lib.lessons.common.dots import perplexities
from course_lib.lessons.common import gpu
from course_lib.lessons.common.tables import load_measured
from course_lib.lessons.common.verdicts import of_samples, verdict
from course_lib.measure.perplexity import perplexity
from course_lib.models import blocks, linears, load_model, weight_of
from course_lib.lessons.wanda import figures as plots
from course_lib.lessons.wanda import accuracies, claims, measured as wanda_results, shares, tables
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
# A weight does nothing by itself: it multiplies an input. A small weight on a large input can therefore move the output
# more than a large weight on a small input, and magnitude pruning, which looks at the weight alone, cannot see that.
#
# Does that matter? Only if inputs differ in size. We run the calibration text through the dense model and take the norm
# of every input feature over all tokens, for every layer.

# %%
norms = input_norms(model, calibration)
layer = "blocks.15.self_attn.q_proj"
plots.outliers(norms[layer], layer)

# %%
plots.loudest_against_median(norms)

# %% [markdown]
# If all features were of similar size, the magnitude of a weight would be a good guide to what it does. In language
# models a few *outlier features* are far larger than the rest: tens of times at the inputs of q, k and v here, hundreds
# of times at the input of down_proj in two or three blocks, less elsewhere. The Wanda paper (section 2, after Dettmers
# and others, 2022) names them as the reason why magnitude pruning fails on language models. This model has outlier
# features too, though it is fifty times smaller than the smallest LLaMA of the paper.
#
# ## 2. The score
#
# How important is a single weight? One way to find out is to set $W_{ij}$ to zero, change nothing else, and see by how
# much the output of the layer moves.

# %% [markdown]
# ### The Wanda score
# **Exercise** · difficulty 1 of 5 · 5 minutes · 2 points
#
# $W$ has shape (outputs, inputs), and $X$, the inputs that the layer reads, has shape (tokens, inputs). With $W_{ij}$
# set to zero, output $i$ changes on every token. The score of the weight is the Euclidean norm of this change over all
# tokens. Work out on paper what that is, then write it for all weights at once, without a loop. A constant factor for
# the whole layer changes nothing, and neither does squaring the whole score; a factor of its own for each row does.


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
# On token $t$ the output moves by $-W_{ij} X_{tj}$, so the norm over all tokens is
#
# $$ S_{ij} = |W_{ij}| \cdot \lVert X_j \rVert_2 $$
#
# where $X_j$ is column $j$ of $X$. This is equation 1 of Sun, Liu, Bair and Kolter (2023), and a high score is kept.
# For one weight it is exact. When two weights of a row are removed together, their changes can cancel or amplify each
# other. The score ignores that; section 8 comes back to it.
#
# Now the score of a real layer. Of its inputs we know only the norms, and they are enough: a single token whose entries
# are the norms has these norms.

# %%
weight = weight_of(linears(blocks(model)[15])["self_attn.q_proj"])
score = mine("wanda.score", wanda_score)(weight, norms[layer][None])
for what, matrix in {"all |W|": weight.abs(), "the score": score}.items():
    share = (matrix.sum(dim=0) / matrix.sum())[norms[layer].argmax()]
    print(f"the largest input feature holds {100 * share:.2f} % of {what}")

# %% [markdown]
# And this is what the score changes. Each dot is an input column of that matrix; both methods remove half of every row.

# %%
plots.columns_kept(weight, norms[layer])

# %% [markdown]
# ## 3. From activations to a norm
#
# Calibration text does not fit into one batch, so the norms have to be built up from batches. But norms do not add up.
# What does?

# %% [markdown]
# ### Norms over many batches
# **Exercise** · difficulty 2 of 5 · 6 minutes · 2 points
#
# Take the running total so far and one batch of inputs; return the new total. Its square root, taken once at the very
# end, has to be the norm of every feature over everything seen.


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
# The library keeps this total in a `Gram`: only the diagonal of $X^\top X$ for Wanda, the whole matrix for methods that
# need it. Query, key and value read the same input, so they share one, and so do gate and up (lesson 00 has the
# drawing). Four statistics therefore serve the seven matrices of a block. Here your function and the `Gram` both sum up
# the embeddings of the calibration text, two sequences at a time.

# %%
add, total = mine("wanda.accumulate", accumulate), torch.zeros(weight.shape[1])
gram = Gram(weight.shape[1], needs="diagonal")
for batch in model.get_input_embeddings()(calibration).detach().split(2):
    total = add(total, batch)
    gram.add(batch)
print(f"{gram.n_tokens} tokens; norms differ by {(total.sqrt() - gram.diagonal.sqrt()).abs().max():.1e} at most")

# %% [markdown]
# ## 4. With what a weight is compared
#
# A score gives an order, but half of *what* is to be removed? The weights that compete with each other form a
# *comparison group*. Magnitude pruning usually ranks all weights of a layer together. Wanda ranks within each output
# row, so that every output keeps the same number of inputs (section 3 of the paper). The paper also tries groups of 128
# rows or columns; in the drawing two stand for 128, and one group of each kind is dark.

# %%
plots.groups_drawn()

# %% [markdown]
# ### Compare within each output
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# From each row remove the $\lfloor I \cdot s \rfloor$ lowest scores, exactly that many, whatever the ties. Scores may
# be negative or zero, and where the count is 0, everything is kept.


# %% exercise="wanda.keep_rows"
def keep_rows(score, sparsity):
    """Which weights are kept when each output row is a comparison group.

    score: (O, I). sparsity: the share of each row that is removed. Returns (O, I), bool, True =
    kept.
    """
    ### BEGIN SOLUTION
    n_leaving = int(score.shape[1] * sparsity)
    leaving = score.topk(n_leaving, dim=1, largest=False).indices
    return torch.ones_like(score, dtype=torch.bool).scatter_(1, leaving, False)
    ### END SOLUTION


# %%
check("wanda.keep_rows", keep_rows)

# %% [markdown]
# Now the other axis, with each input column as a group. It looks like a small change, but it changes what the method
# is.

# %% [markdown]
# ### Compare within each input
# **Exercise** · difficulty 2 of 5 · 5 minutes · 2 points
#
# From each column remove the $\lfloor O \cdot s \rfloor$ lowest scores, exactly that many. Before you run the cell
# after the check, predict how the masks of magnitude and Wanda differ within these groups.


# %% exercise="wanda.column_groups"
def keep_columns(score, sparsity):
    """Which weights are kept when each input column is a comparison group.

    score: (O, I). sparsity: the share of each column that is removed.
    Returns (O, I), bool, True = kept.
    """
    ### BEGIN SOLUTION
    n_leaving = int(score.shape[0] * sparsity)
    leaving = score.topk(n_leaving, dim=0, largest=False).indices
    return torch.ones_like(score, dtype=torch.bool).scatter_(0, leaving, False)
    ### END SOLUTION


# %%
check("wanda.column_groups", keep_columns)

# %% [markdown]
# Within a column $\lVert X_j \rVert_2$ is one and the same number, and multiplying all scores of a group by one number
# changes no ranking. So groups of one input make magnitude and Wanda the same method, whatever the calibration data.
# The same holds for any score of the form $f(|W_{ij}|) \cdot g(j)$ with increasing $f$. That is a theorem; the next
# cell shows it on a real layer:

# %%
within_rows, within_columns = mine("wanda.keep_rows", keep_rows), mine("wanda.column_groups", keep_columns)
for per, keep in {"row": within_rows, "column": within_columns}.items():
    same = keep(weight.abs(), 0.5) == keep(weight.abs() * norms[layer], 0.5)
    print(f"per {per:<6}: magnitude and Wanda agree on {100 * same.float().mean():.1f} % of the mask")

# %% [markdown]
# Within rows, too, the two masks agree in more than nine places out of ten. Are the two methods nearly the same, then?
# A mask should be judged by what it does to the output, $\lVert X(\hat W - W)^\top \rVert^2$, which the Gram matrix
# $X^\top X$ of the layer's inputs gives without another forward pass.

# %%
gram_matrix = input_gram(model, calibration, 15, "self_attn.q_proj").matrix
for name, each in {"magnitude": weight.abs(), "Wanda": weight.abs() * norms[layer]}.items():
    removed = weight * ~within_rows(each, 0.5)
    error = (removed @ gram_matrix * removed).sum() / (weight @ gram_matrix * weight).sum()
    print(f"{name:<9}: half of each row removed changes the output by {100 * error:.2f} % (squared, relative)")

# %% [markdown]
# The few places in which the masks differ are the ones that matter. Most weights that both methods keep are large
# enough in every respect, and most that both remove are small; the masks disagree where the input is unusually large or
# small, and a wrong decision on an outlier feature costs more than many right ones elsewhere. An error of this kind is
# made in each of 210 layers, and the later ones read what the earlier ones got wrong. The number of equal entries is
# therefore no measure of how good a mask is.
#
# The public code has a variant that lets rows differ: each row loses its lowest scores up to a share α of the row's
# total score, and one α per layer is found by bisection so that the layer meets the target. In the library this is a
# pattern, `CumulativeRows`, so it works with any score.

# %%
keep = CumulativeRows(0.5).keep(weight.abs() * norms[layer])
per_row = 100 * (1 - keep.float().mean(dim=1))
print(f"layer {100 * sparsity_of(keep):.1f} % sparse; rows from {per_row.min():.0f} % to {per_row.max():.0f} %")

# %% [markdown]
# ## 5. A pattern for the GPU
#
# Hardware can skip zeros if it knows where to expect them. The GPU's pattern is 2:4, two kept of every four neighbours
# along the inputs. For Wanda only the comparison group changes: it shrinks to four weights.

# %% [markdown]
# ### N of M
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Keep the n highest scores of every m neighbouring inputs of a row: exactly n, and scores may be negative or zero.


# %% exercise="wanda.n_of_m"
def keep_n_of_m(score, n, m):
    """Which weights are kept when n of every m consecutive inputs are.

    score: (O, I), I divisible by m. Returns (O, I), bool, True = kept.
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
# All three remove half of the weights. The smaller the group, the more often a good weight is removed because its few
# neighbours happen to be better still.
#
# ## 6. What the blocks before have done
#
# Once a layer is pruned, the next one reads other inputs than before, and its norms should be those of the inputs that
# it will really get. The driver therefore goes through the model in order. It runs a block to collect the norms, prunes
# the block's layers, and runs the block once more to compute what the next one reads.

# %% [markdown]
# ### One layer after the other
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Prune a two-layer network, `relu(inputs @ first.T) @ second.T`, with Wanda within rows. The second layer is scored
# with what the pruned first layer hands to it.


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
# The same on the real model, with 30 blocks, 210 matrices and 106 million weights: first magnitude, then Wanda, each on
# a fresh copy. Both rank within rows, so that only the score differs, and both are judged by the perplexity on text
# that was not used for calibration. Wanda is put together from your score and your rows.

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
perplexities(values, f"At 50 % magnitude pruning has {times:.0f} times the perplexity of Wanda", n=len(held_out))

# %% [markdown]
# ## 7. The claims, measured
#
# What you just measured comes from four windows of text. `course reproduce wanda` did the same with more text, more
# sparsities and benchmarks, and its result is part of the course, with seed, sizes and machine in it; the figures below
# read it. Magnitude ranks over whole layers here, as in the paper, unless the comparison group is what is varied. The
# model's weights come from a file of 4 bits each, so what is pruned here was rounded before. Every perplexity has an
# error of its own, but all models read the same windows, so a difference between two of them is known better than their
# errors suggest. Where the result holds the losses of each window for both, the verdicts take the difference window by
# window; where it does not, both errors count in full, and "cannot tell" is said more often than necessary.

# %%
measured = wanda_results.results()
print(tables.provenance(measured))

# %%
wanda_results.sweep(measured)

# %%
wanda_results.by_pattern(measured)

# %% [markdown]
# **Smaller groups cost more.** 2:4 costs more than 4:8, and 4:8 more than half of each row, because there are fewer
# neighbours among which a good weight can be saved.
#
# The authors' numbers for LLaMA-2 stand beside ours. Only ratios can be compared, since the texts and the windows
# differ; the figure shows them.

# %%
print(tables.perplexity_table(measured))

# %%
wanda_results.beside_published(measured)

# %% [markdown]
# The order of the methods is the paper's, but a model of 135 million weights loses more by all of them: it has less to
# spare than one of 7 billion, and its weights had been rounded to 4 bits already. The published costs fall with size
# too, with one exception. Magnitude pruning of LLaMA-2-7B is far off the line, and an independent rerun of the public
# code got 11.8 instead of the 14.9 of the table: of the three methods, magnitude's numbers are the ones that vary most.
#
# **How much calibration data?** The paper reports that a few samples are enough. Each dot is another sample of text,
# and the axis does not begin at 0.

# %%
wanda_results.calibration_curve(measured)

# %% [markdown]
# **Which comparison group?** The paper's ablation on LLaMA-7B finds groups of one output best for Wanda, although
# ranking over a whole layer is usual. Groups of one input give magnitude and Wanda the same number, as the theorem
# says.

# %%
wanda_results.group_ablation(measured)

# %% [markdown]
# The largest difference in this figure is one within magnitude pruning: it is several times better with groups of one
# input than with any other. Why? All weights of a column multiply the same input, so that magnitude compares like with
# like there, and every input keeps half of its weights. In a row or a layer magnitude weighs small weights on outlier
# features against larger weights on small features, and removes the former. Wanda's factor repairs exactly this
# comparison, and is then free to use the group that serves it best.
#
# What section 4 found for one layer holds for the model. `course reproduce masks` chose masks for all 210 layers of the
# dense model by 8 windows of 256 tokens, and measured what each does to the outputs of its layer on 8 held-out windows:

# %%
masks_measured = load_measured("wanda", "masks")
print(tables.masks_table(masks_measured))
wanda_results.errors_of_choices(masks_measured)

# %% [markdown]
# Magnitude is at its best with groups of one input here, too, for the reason given above. The last line is a surprise:
# Wanda has the *smaller* error when it ranks over the whole layer, and yet the higher perplexity. A freer choice must
# give a smaller sum of scores. But the sum over all outputs hardly changes when a few outputs with small weights lose
# nearly all of them, whereas the layers that read these outputs are disturbed. That is a likely reason, not a proof.
# What is certain is that a small error of single layers is a means, and not the end.
#
# ## 8. Where the score comes from
#
# Wanda asks what the removal of a weight costs when nothing else changes. SparseGPT (Frantar and Alistarh, 2023) lets
# the other weights of the row make up for it. By how much can they help?
#
# Let a row of $W$ change by $\delta$. Its output on the calibration text then changes by $X\delta$, and the squared
# norm of that is $\delta^\top H \delta$ with $H = X^\top X$. Where inputs are copies of each other, $H$ has no inverse;
# therefore λI is added to it, with λ a small share of the mean of its diagonal, as in lesson 03. From here on $H$ is
# this damped matrix.

# %% [markdown]
# ### What a removal costs
# **Exercise** · difficulty 4 of 5 · 15 minutes · 4 points
#
# Removing $W_{ij}$ means $\delta_j = -W_{ij}$. Return two costs $\delta^\top H \delta$ for every weight: *alone*, where
# all other entries of $\delta$ are 0, and *helped*, where the other entries are chosen so that the cost is as small as
# it can be. The first is a line of algebra; for the second minimise under the constraint, with a Lagrange multiplier or
# by completing the square. The formula stands below the check, so do not scroll.


# %% exercise="wanda.obs_score"
def obs_score(weight, hessian):
    """What it costs to remove each weight.

    weight: (O, I). hessian: (I, I), H, damped already. Returns (alone, helped), both (O, I).
    """
    ### BEGIN SOLUTION
    alone = weight.square() * hessian.diagonal()
    return alone, weight.square() / torch.linalg.inv(hessian).diagonal()
    ### END SOLUTION


# %%
check("wanda.obs_score", obs_score)

# %% [markdown]
# The two costs are
#
# $$ W_{ij}^2 H_{jj} \qquad \text{and} \qquad \frac{W_{ij}^2}{\left[H^{-1}\right]_{jj}} $$
#
# because the minimum under the constraint is at $\delta = -W_{ij}\, H^{-1} e_j / [H^{-1}]_{jj}$. The first is the
# square of Wanda's score (but for λ), and squares change no ranking. The second is the score of the optimal brain
# surgeon, with which SparseGPT chooses. If the inputs are uncorrelated, $H$ is diagonal, $[H^{-1}]_{jj} = 1 / H_{jj}$,
# and both are the same. **Wanda is SparseGPT's score with the correlations ignored, and without the update of the other
# weights.**
#
# How much do the correlations matter on a real layer?

# %%
alone, helped = mine("wanda.obs_score", obs_score)(weight, plots.damped(gram_matrix))
saved = 100 * (1 - helped.sum(dim=0) / alone.sum(dim=0)).median()  # by input: some weights are 0 and cost nothing
print(f"the others of its row could save {saved:.0f} % of what removing a weight costs (median input)")
plots.obs_against_wanda(helped, score, layer)

# %% [markdown]
# The two results do not contradict each other. The others could save much of the cost, but they could save it for
# nearly every weight: the ratio of the two costs depends on the input alone, $1 / (H_{jj} [H^{-1}]_{jj})$, and where it
# is much the same for all inputs the ranking hardly changes. So the two *scores* choose nearly the same mask. In the
# table of section 7 SparseGPT's score even chooses worse than Wanda in nearly all layers, because it assumes an update
# of the other weights, which is not made there. What SparseGPT gains over Wanda must come from the update. Lesson 03
# measures the two apart.
#
# ## 9. Accuracy, and its error
#
# Perplexity uses the probability of every token of a text, whereas of each question of a benchmark one only learns
# whether the answer was right. Accuracies are therefore noisy, and one has to know their errors before comparing two of
# them.

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
# What does "95 %" promise? That of many such intervals 95 % contain the true accuracy. For $n$ questions this can be
# computed exactly: for each true accuracy add up the probabilities of all counts whose interval contains it. Here is
# your interval for 100 questions, beside Wilson's (1927), which asks for which accuracies $p$ the observed $\hat p$
# lies within 1.96 of *their* standard errors, $|\hat p - p| \le 1.96 \sqrt{p (1 - p) / n}$.

# %%
accuracies.how_often_right(mine("wanda.interval", interval))

# %% [markdown]
# In the middle both contain the truth about as often as they claim. Near 0 and 1 the normal approximation does not,
# because it takes the error from the observed $\hat p$: with 1 of 100 right its interval begins below 0, and with 0 of
# 100 it has no width at all. The figure below uses Wilson's interval. Here are the benchmarks of the paper's table, and
# four more, on dense, magnitude and Wanda at 50 %:

# %%
accuracies.zero_shot(measured)

# %%
print(tables.zero_shot_table(measured))
print(tables.zero_shot_verdict(measured))

# %% [markdown]
# A task can show what pruning does only if the dense model stands clearly above chance on it. The other tasks are
# printed all the same, so that nobody has to ask what was left out, but nothing is concluded from them: **no signal, no
# conclusion**. A larger model would make them usable. The verdict is on the mean of the tasks with a signal, beside its
# error. (The table's errors divide by n − 1, which for these numbers of questions is hardly different.)
#
# **Perplexity is not everything.** It is one number for all of a text. What does it say about a single task? The next
# figure takes the six pruned models in the order of their perplexity, three of Wanda and three of magnitude, and shows
# what each task keeps of its margin above chance. LAMBADA asks for one exact word; the other three offer answers to
# choose from.

# %%
accuracies.against_perplexity(measured)

# %%
print(claims.ONE_WORD_TASKS.judge(measured))
print(accuracies.where_perplexity_doubles(measured))

# %% [markdown]
# The last line follows the tasks where perplexity about doubles. What they gain or lose is hardly more than two of its
# errors, and not the same for all of them. So report both, and let the task that matters to you decide.
#
# The paper's own accuracies are those of models 50 to 500 times larger. They are quoted, not measured here.

# %%
print(tables.published_table())

# %% [markdown]
# ## 10. What it costs, and when it does not pay

# %%
print(tables.cost_table(measured))

# %% [markdown]
# - **Time.** The score is one product per weight. Most of the time goes into the forward passes, which every calibrated
#   method needs. The paper reports 0.54 s for the metric of LLaMA-7B against 203 s for SparseGPT's, forward passes not
#   counted.
# - **Memory.** Wanda keeps one number per input feature, for this model less than a megabyte in all. SparseGPT keeps a
#   matrix: for the widest input of LLaMA-2-70B, 28,672 features, that is 3.3 GB against 115 kB.
# - **It does not pay** when nothing downstream uses the zeros. A matrix that is half zeros and stored densely is as
#   large and as slow as before. In CSR, half of the weights take as many bytes as all of them do densely in float32,
#   and half as many again in float16, because a column number of 4 bytes stands beside every value (lesson 01). A
#   bitmap makes them 1.8 times smaller in float16, but needs kernels written for it: with such an engine SparseGPT's
#   paper reports 1.82 times the speed on a CPU (table 7). 2:4 is the pattern that GPUs can use, and its perplexity is
#   the price.
# - **It does not reach far.** In the sweep this model's perplexity makes it useless from 60 % on. Methods that update
#   the remaining weights, such as SparseGPT, reach further.
#
# What the pattern for the GPU brings there: torch's own product with 2:4 weights beside the dense one.

# %%
print(gpu.provenance())
two_counts = ("2:4, tokens: 1", "2:4, tokens: 4096")
print(gpu.table("nm_matmul", contests=two_counts, sides=("dense", "torch semi-structured")))

# %% [markdown]
# With one token torch's 2:4 product takes longer than the dense one. With 4096 its bound is half of the dense one, and
# the line of it says how near to it a product comes.
#
# ## 11. An open task
#
# So far every layer lost the same share of its weights. This need not be the best choice: some layers may be able to
# lose more, and others could then lose less. *OWL* (Yin and others, 2024) is one answer. It counts the outliers of each
# block and spares the blocks that have many. With $S$ the Wanda scores of block $l$, $\bar S$ their mean and $s$ the
# sparsity of the model,
#
# $$ D_l = \frac{\#\{S_{ij} > 5 \bar S\}}{\text{number of weights}} $$
#
# $$ s_l = s - 0.08\, \frac{D_l - \bar D}{\max_k |D_k - \bar D|} $$
#
# where 5 and 0.08 are the paper's choices. (Its public code maps $D$ onto the interval a little differently; the
# library says how.) The authors report that OWL takes Wanda on LLaMA-7B at 70 % from a perplexity of 85.8 to 24.6.
#
# Now it is your turn. Choose the share of every layer so that the model as a whole loses 40 % of its block weights and
# reads held-out text as well as you can make it. There is no formula, and nothing is graded. Your rule gives each layer
# a number. Only proportions count: a layer with 2 loses twice as much as one with 1, and the library scales them all
# until the whole loses 40 %. Before you try: what do the figures of sections 1 and 7 say about the layers?


# %%
def share(part, depth):
    """How much a layer is to lose, beside the others.

    part: the matrix, such as "mlp.up_proj" or "self_attn.q_proj". depth: 0 for the first block, 1
    for the last.
    Returns a number from 0 on.
    """
    return 1.0


# %%
print(shares.table(shares.stored(load_measured("wanda", "shares")["tables"]["ideas"]), shares.attempt(share)))

# %% [markdown]
# The rows above yours are simple ideas, measured once on the same text (`course reproduce shares`). The last column
# compares each with equal shares, window by window, so that how hard a window is cancels. A row says something where
# its number is larger than twice its error; the figure has bars of that length. Is any idea clearly better than equal
# shares? Is yours?

# %%
shares.compared(shares.stored(load_measured("wanda", "shares")["tables"]["ideas"]))

# %% [markdown]
# What became of the paper's claims, each verdict from an effect and its error:

# %%
print(tables.claims_table(measured))

# %% [markdown]
# ## To take home
#
# 1. The effect of a weight depends on the input that it multiplies, and not on the weight alone.
# 2. With what a weight is compared is part of the method: within one input, Wanda and magnitude are the same.
# 3. A number needs its error beside it. Where a difference is not larger than about two of its errors, nothing
#    follows from it.
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
# - Wilson: *Probable Inference, the Law of Succession, and Statistical Inference*, JASA 22, 1927,
#   [doi:10.1080/01621459.1927.10502953](https://doi.org/10.1080/01621459.1927.10502953). The interval.
