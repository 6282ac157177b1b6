# %% [markdown]
# # 05 · Minitron: a smaller dense model
#
# The zeros of lessons 03 and 04 stay where they are, and a matrix that is half zeros costs as much as a full one unless
# something reads the zeros. This lesson takes whole neurons, heads, channels and blocks out instead. What is left is an
# ordinary model with smaller matrices: every tool loads it, and it is faster on every machine at once. It also
# predicts worse, and so it is taught by the model from which it was cut.
#
# **Afterwards you can** say which rows and columns leave together, cut a language model to a shape that you choose,
# score neurons, heads, channels and blocks from a single pass over some text, repair a cut by least squares, and distil
# the whole model into the cut one. **You need** lesson 00; lessons 03 and 04 help where they are mentioned. **Time**:
# two hours, 69 minutes of it for exercises.
#
# You will write eight functions. Under each is a `check`; it tells you what is wrong and, when it knows, which mistake
# it is. What follows an exercise uses your function on the real model once it is right, and the course's until then.

# %%
from dataclasses import replace

import torch

from course_lib.attention.small_models.byte_model import load_byte_model, untrained
from course_lib.attention.small_models.training import Schedule
from course_lib.data import corpora
from course_lib.lessons.common.table import Table
from course_lib.lessons.common.results import load_bench, load_measured, say
from course_lib.lessons.minitron import tables
from course_lib.lessons.minitron.figures import computed as plots
from course_lib.lessons.minitron.figures import drawings, equal_compute, joined, measured, verdicts
from course_lib.lessons.minitron.running import live, shapes
from course_lib.measure.perplexity import perplexity, window_losses
from course_lib.models import blocks, load_model
from course_lib.pruning.structured.choice import Scores, choose
from course_lib.pruning.structured.losses import next_token
from course_lib.pruning.structured.refit import refit
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.minitron import Minitron
from course_lib.pruning.structured.scorers.random_scores import Random
from course_lib.pruning.structured.scorers.weight_norm import WeightNorm
from course_lib.pruning.structured.shape import shape_of
from course_lib.pruning.structured.surgery import cut, take
from course_lib.workbook import check, mine

# %%
model, tokenizer = load_model()
dense_shape = shape_of(model)
calibration = corpora.windows("wikipedia", 8, 256, tokenizer, split="calibration", seed=0)
held_out = corpora.windows("wikipedia", 4, 256, tokenizer, split="evaluation", seed=0)
print(f"{dense_shape}: {model.num_parameters():,} parameters")
print(f"{calibration.numel()} tokens to score with, {held_out.numel()} held out, no article in both")

# %% [markdown]
# ## 1. The idea in one picture
#
# If one neuron of an MLP leaves, what else can leave? Its row of the gate and its row of the up projection, which made
# it, and its column of the down projection, which read it. None of the three has any use without the others. The same
# goes for a key-value head: the query heads that ask it, and the columns of the output projection that read them. And a
# channel of the residual stream is an input or an output of all seven matrices. Here is one block of our model with all
# that leaves, drawn to scale.

# %%
drawings.what_leaves()

# %% [markdown]
# What leaves together is called a *group* in the literature on structured pruning; here the word is kept for key-value
# groups. Minitron (Muralidharan and others, 2024) chooses along four axes: neurons, heads, width (the channels) and
# depth (whole blocks). It scores everything with one forward pass, keeps the same number in every block, so that a
# configuration file can describe the result, and then distils. LLM-Pruner (Ma, Fang and Wang, 2023) scores with
# gradients instead.
#
# ## 2. Cutting
#
# Before anything is scored, cutting has to be right. A wrong index gives a model that loads, runs and talks nonsense,
# and no error says why.

# %% [markdown]
# ### What leaves together
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# Cut one block down to the key-value heads and the neurons that are to stay. The matrices are in `torch.nn.Linear`'s
# order, outputs × inputs, and no axis of the residual stream changes. Which rows and columns does each of the seven
# matrices lose? The picture above shows it for one key-value head.


# %% exercise="minitron.group"
def cut_block(q, k, v, o, gate, up, down, groups, neurons, n_key_value):
    """The matrices of a block once key-value groups, with their query heads, and neurons have left.

    q: (H * S, D). k, v: (G * S, D). o: (D, H * S). gate, up: (F, D). down: (D, F), for H query
    heads and G = n_key_value key-value heads of size S, width D, F neurons. Each row of a matrix
    makes one of its outputs, and neighbouring query heads share a key-value head.
    groups: (g,), which key-value heads stay, rising. neurons: (f,), which neurons stay, rising.
    Returns a dictionary of the smaller matrices under their names, "q" to "down"; what stays keeps
    its order.
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
# How does one see that a cut is right? Cutting must do the same as zeroing. If the columns of the down projection that
# read the neurons which leave are zero, these neurons say nothing, and the MLP has to give the same without them.

# %%
whole = live.matrices(blocks(model)[15])
stay = torch.arange(0, dense_shape.neurons, 2)
smaller = mine("minitron.group", cut_block)(*whole.values(), torch.tensor([0, 2]), stay, dense_shape.groups)
silenced = whole["down"].index_fill(1, stay + 1, 0.0)
x = torch.randn(5, dense_shape.width, generator=torch.Generator().manual_seed(0))
zeroed = live.mlp(x, whole["gate"], whole["up"], silenced)
without = live.mlp(x, smaller["gate"], smaller["up"], smaller["down"])
print(f"cut and zeroed differ by {(without - zeroed).abs().max():.1e} at most, of {zeroed.abs().max():.2f}")
say(str({name: tuple(weight.shape) for name, weight in smaller.items()}))

# %% [markdown]
# The library does this for whole models: `take(model, kept)` gives a new model of the same class, with a configuration
# that says its shape, and leaves the old one as it is. Its tests hold it to the same rule, cut equals zeroed, for six
# architectures.
#
# ## 3. Shapes and their sizes
#
# One cuts to a budget, so one has to count before one cuts.

# %% [markdown]
# ### How many parameters
# **Exercise** · difficulty 2 of 5 · 7 minutes · 2 points
#
# Count the parameters of a Llama from its sizes alone. The tensors are those of lesson 00's drawing, and nothing else:
# the embedding, seven matrices and two norms a block, the last norm.


# %% exercise="minitron.count"
def count_parameters(width, blocks, neurons, heads, groups, head_size, vocabulary):
    """How many parameters a Llama of this shape has.

    All are whole numbers: the width of the stream, blocks, MLP neurons of a block, query heads and
    key-value heads ("groups") of a block, the size of a head, words of the vocabulary. The MLP is
    gated (gate, up, down), no linear has a bias, the head is tied to the embedding, and an RMSNorm
    has one weight a channel: two in each block, one behind the last. Returns a whole number.
    """
    ### BEGIN SOLUTION
    attention = 2 * width * head_size * (heads + groups)
    block = attention + 3 * width * neurons + 2 * width
    return vocabulary * width + blocks * block + width
    ### END SOLUTION


# %%
check("minitron.count", count_parameters)

# %% [markdown]
# With it we can see what each axis is worth. Every line is the shape of our model but for one size, and the last two
# have equally many parameters: one by fewer neurons, one by fewer blocks. (Head size
# 64, vocabulary 49,152.)

# %%
tables.sizes_table(mine("minitron.count", count_parameters), dense_shape)

# %% [markdown]
# The embedding is a fifth of this model, and only the width makes it smaller. Nemotron-4, a hundred times as large, has
# 256,000 words and a head of its own: embedding and head are a tenth of its 15.6 billion parameters each. The paper's
# own models, counted from the shapes that the source lecture prints, give the lecture's numbers:

# %%
tables.published_shapes()

# %% [markdown]
# ## 4. One pass, all scores: neurons
#
# Which neurons should stay? Minitron's answer needs no gradient: look at how large each neuron is on a little text. The
# activations of a layer are a tensor of sequences × tokens × neurons, and one number a neuron is wanted, so two axes
# have to be folded up. There are several ways, and the paper tried them: the mean over the tokens of a sequence and the
# L2 norm over sequences did best there.

# %% [markdown]
# ### One score from many tokens
# **Exercise** · difficulty 1 of 5 · 5 minutes · 2 points
#
# Fold up both axes in that way. Which axis is which is written in the docstring; in the authors' Megatron code the
# tokens come first, and whoever copies it to Hugging Face's order gets other scores and no error.


# %% exercise="minitron.aggregate"
def aggregate(activations):
    """One score a neuron from its activations on calibration text: the mean of |x| over the tokens
    of each sequence, then the L2 norm over sequences.

    activations: (N, T, F): N sequences of T tokens, F neurons. Returns (F,); a constant factor for
    all is free.
    """
    ### BEGIN SOLUTION
    return activations.abs().mean(dim=1).norm(dim=0)
    ### END SOLUTION


# %%
check("minitron.aggregate", aggregate)

# %% [markdown]
# Now on the model: what each block's down projection reads, on 8 windows of calibration text, goes through your
# function, and 1126 of 1536 neurons stay in each block: the number that leaves as many parameters as 24 blocks would.

# %%
n_kept = 1126
evidence = Evidence(model, calibration, progress=False)
by_activations, stream = live.one_pass(mine("minitron.aggregate", aggregate), evidence)
scores = {"activations": by_activations}
plots.share_of_the_lowest(scores["activations"], n_kept)

# %%
target = replace(dense_shape, neurons=n_kept)
scores["weight norms"] = WeightNorm().score(evidence).neurons
draws = {f"draw {seed + 1}": Random(seed).score(evidence).neurons for seed in range(2)}
results = {"dense": perplexity(model, held_out, progress=False)}
for name, values in (scores | draws).items():
    smaller = cut(model, target, Scores(neurons=values))
    results[f"{n_kept} by {name}"] = perplexity(smaller, held_out, progress=False)
by_width = torch.tensor(results[f"{n_kept} by activations"].losses)
print(f"{smaller.num_parameters():,} of {model.num_parameters():,} parameters")
plots.cuts(results, tables.cut_title(results, n_kept))

# %% [markdown]
# A little text is enough to choose, and the norms of the *weights* do far worse than drawing lots. Why? A cut of one
# block at a time shows where it begins: here the same neurons are silenced in a single block, and all other blocks are
# whole. The last line turns it round: all blocks are cut by the norms of weights, but the first by activations.

# %%
single_blocks = []
for number in (0, 15):
    gone = scores["weight norms"][number].argsort()[: dense_shape.neurons - n_kept]
    with live.silenced(model, number, gone):
        alone = perplexity(model, held_out, progress=False).value
    loudest = scores["activations"][number].topk(10).indices
    n_lost = int(torch.isin(loudest, gone).sum())
    row = {"pruned by weight norms": f"block {number} alone", "perplexity": alone}
    single_blocks.append(row | {"of the 10 most active neurons, pruned": n_lost})
mixed = torch.cat([scores["activations"][:1], scores["weight norms"][1:]])
others = perplexity(cut(model, target, Scores(neurons=mixed)), held_out, progress=False).value
single_blocks.append({"pruned by weight norms": "all blocks except block 0", "perplexity": others})
Table(
    single_blocks,
    caption="Where the norms of the weights choose badly",
    formats={"perplexity": "{:,.1f}".format, "of the 10 most active neurons, pruned": "{:.0f}".format},
)

# %% [markdown]
# No single block matters as much as the first, which makes the stream out of embeddings. Its loudest neurons have
# *small* weights: their inputs are what makes them loud. It does not explain the whole: what one block gets wrong all
# others read, and they were cut as well. Draws by lot differ from each other by a factor of several, so one alone
# would say little.
#
# ## 5. Heads and groups
#
# Heads are scored in the same way, by the norm of what each gives before the output projection. But heads cannot leave
# as they like. Our model has nine query heads and three key-value heads, and its configuration says two numbers: how
# many of each. Query head $h$ reads the key-value head that its *place* in the list gives. So there are two ways to
# lose a third of the query heads.

# %% [markdown]
# ### Heads inside their group
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# Some key-value heads stay, and of each of them the best few query heads. If you ranked all heads together, a group
# might keep three and another none, and then the heads that are left would ask the wrong keys.


# %% exercise="minitron.heads"
def keep_heads(scores, groups, n_groups, n_each):
    """Which query heads stay in each block: the best n_each of every key-value group that stays.

    scores: (L, H), one row a block, high = keep. Neighbouring query heads share one of the n_groups
    key-value heads.
    groups: (L, g), numbers of the key-value heads that stay in each block, rising.
    Returns (L, g * n_each), numbers of query heads such that the smaller model's heads read the
    same keys as before.
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
# Both cuts take three of nine query heads from every block. The first takes the lowest of each group and keeps all keys
# and values; the second takes the lowest group with all three of its heads, and a third of the keys and values too.
# Which do you expect to cost more? The scores of the heads were found in the pass of section 4, as those of all other
# parts were.

# %%
keep, found = mine("minitron.heads", keep_heads), Minitron().score(evidence)
all_groups = torch.arange(dense_shape.groups).repeat(dense_shape.blocks, 1)
smaller = live.with_heads(model, keep(found.heads, all_groups, dense_shape.groups, 2))
results = {"dense": results["dense"], "one head of every group": perplexity(smaller, held_out, progress=False)}
print(f"without one head of every group: {smaller.num_parameters():,} parameters")
smaller = cut(model, replace(dense_shape, heads=6, groups=2), found)
results["one whole group"] = perplexity(smaller, held_out, progress=False)
print(f"without one whole group        : {smaller.num_parameters():,} parameters")
print(tables.heads_line(results))
plots.cuts(results, tables.heads_title(results))

# %% [markdown]
# The cut that removes *more* costs far less: each block has a group that it can nearly do without, and the sum of its
# heads' scores finds it. Inside a group the score earns less. Whether the lowest head of each group costs less than one
# chosen by lot is a question for many draws: section 11 asks it. A score has to be tried on the decision that it is
# used for.
#
# ## 6. Width, and a norm that notices
#
# A channel of the stream is read by a norm before any matrix sees it. RMSNorm divides by the root of the *mean* of the
# squares. If channels leave that were zero anyway, the sum of the squares stays, but the mean is over fewer.

# %% [markdown]
# ### A narrower norm
# **Exercise** · difficulty 3 of 5 · 8 minutes · 2 points
#
# Find the weight and the epsilon with which the norm over fewer channels gives exactly what it gave before, whenever
# the channels that leave are zero. Write both norms down and compare what stands under the root.


# %% exercise="minitron.norm"
def narrower_norm(weight, eps, kept):
    """Weight and epsilon of an RMSNorm over fewer channels, such that the channels that stay come
    out as before whenever those that leave are zero.

    weight: (D,). eps: a number. kept: (d,), the channels that stay, rising. Returns
    (new weight (d,), new epsilon).
    RMSNorm: x / sqrt(mean(x^2) + eps) * weight, the mean over channels.
    """
    ### BEGIN SOLUTION
    share = len(weight) / len(kept)
    return weight[kept] * share**0.5, eps * share
    ### END SOLUTION


# %%
check("minitron.norm", narrower_norm)

# %% [markdown]
# <details><summary>The derivation</summary>
#
# With $S$ the sum of the squares, $D$ channels before and $d$ after,
#
# $$ \frac{x}{\sqrt{S/d + \varepsilon'}}\, w' = \frac{x}{\sqrt{S/D + \varepsilon}}\, w
#    \qquad\text{for}\qquad w' = w \sqrt{D/d}, \quad \varepsilon' = \varepsilon\, D/d . $$
#
# With this $\varepsilon'$ the term under the root on the left is $D/d$ times the one on the right, and $w'$ makes up
# for the root of that factor.
#
# </details>
#
# With enough retraining the factors can be left out, since the norms learn them. Without retraining they cost nothing.
# A channel's score is its size after all norms together:

# %%
plots.channels(found.width, dense_shape.width - 504)

# %%
kept = choose(found, dense_shape, replace(dense_shape, width=504))
norms = {"norms as they were": None, "norms for fewer channels": mine("minitron.norm", narrower_norm)}
losses = {}
for name, narrower in norms.items():
    losses[name] = window_losses(live.with_norms(model, kept, narrower), held_out, progress=False)
print(tables.width_line(losses))

# %% [markdown]
# The width is expensive: the 72 channels that left take fewer parameters with them than a quarter of all neurons
# (section 3), and cost more. That is no surprise: each channel is a place to which all blocks write and from which all
# blocks read.
#
# ## 7. Depth
#
# A block adds something to the stream. If it hardly changes the direction of the stream, what comes out is nearly what
# went in, and the block may be left out as a whole.

# %% [markdown]
# ### How much a block turns the stream
# **Exercise** · difficulty 1 of 5 · 5 minutes · 2 points
#
# *Block influence* (Men and others, 2024): for each token one minus the cosine between what a block reads and what it
# gives, then the mean over tokens.


# %% exercise="minitron.influence"
def influence(states):
    """How much each block turns the stream: one minus the cosine between what it reads and what it
    gives, of each token, then the mean over tokens.

    states: (L + 1, T, D): the stream before the first block, and behind each of the L blocks.
    Returns (L,).
    """
    ### BEGIN SOLUTION
    before, behind = states[:-1], states[1:]
    cosine = (before * behind).sum(-1) / (before.norm(dim=-1) * behind.norm(dim=-1))
    return (1 - cosine).mean(dim=1)
    ### END SOLUTION


# %%
check("minitron.influence", influence)

# %%
turns = mine("minitron.influence", influence)(stream)  # behind every block: section 4 kept it
plots.turned(turns, 6)

# %%
smaller = cut(model, replace(dense_shape, blocks=24), Scores(blocks=turns))
print(f"24 of 30 blocks: {smaller.num_parameters():,} parameters")
say(tables.depth_line(by_width, window_losses(smaller, held_out, progress=False)))

# %% [markdown]
# This model has nearly as many parameters as the one with 1126 neurons (section 3). Remember the verdict for section
# 11.
#
# ## 8. Scores from the gradient
#
# Sizes of activations do not know what the activations are for. The loss does. LLM-Pruner asks Taylor's formula what
# the loss would do if the weights of a neuron became zero.

# %% [markdown]
# ### What the loss would lose
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# Use Taylor's formula to first order, for one column of the down projection. Two scores are in use. The first lets the
# changes that single weights make cancel within the column, the second does not.


# %% exercise="minitron.taylor"
def taylor(weight, gradient):
    """How much the loss changes, to first order, when a neuron's column of the down projection
    becomes zero.

    weight: (D, F), one column a neuron. gradient: (D, F), of the loss with respect to the weight.
    Returns two scores, each (F,) and never negative: the size of the change of the loss, and the
    sum of the sizes of the changes that the single weights of the column make.
    """
    ### BEGIN SOLUTION
    change = weight * gradient
    return change.sum(dim=0).abs(), change.abs().sum(dim=0)
    ### END SOLUTION


# %%
check("minitron.taylor", taylor)

# %% [markdown]
# <details><summary>Both scores as formulas, and a second meaning of the first</summary>
#
# With $w$ the column and $g$ its gradient these are $|\sum_i w_i g_i|$ and $\sum_i |w_i g_i|$. The first has a second
# meaning. Multiply the neuron's output by a number $m$ that is 1. Then $\partial L / \partial m = \sum_i w_i g_i$, so
# the score is the size of the gradient of $m$. The same $m$ can be put on the neuron's row of the up projection, which
# must therefore give the same number.
#
# </details>
#
# LLM-Pruner calls the two scores *vectorize* and *param first*. A backward pass is expensive, so the gradients below
# come from two of the eight windows that the activations were read on. The cost of these cuts does not say which *kind*
# of score is better; section 11 reads more for both, 16 windows and 32.

# %%
score = mine("minitron.taylor", taylor)
columns = [score(weight, gradient) for weight, gradient in live.down_gradients(model, calibration[:2])]
scores |= {name: torch.stack([pair[i] for pair in columns]) for i, name in enumerate(("vectorize", "param first"))}
left = 100 * (scores["vectorize"] / scores["param first"]).mean()
print(f"{left:.0f} % of the changes are left when they may cancel")
plots.kept_alike({name: values for name, values in scores.items() if name != "random"}, n_kept)

# %%
for name in ("vectorize", "param first"):
    smaller = cut(model, target, Scores(neurons=scores[name]))
    print(f"{n_kept} neurons by {name}: perplexity {perplexity(smaller, held_out, progress=False).value:.1f}")

# %% [markdown]
# ## 9. Repair without learning: least squares
#
# The neurons that stay can say part of what those that left would have said, if the down projection listens to them
# differently. With $X$ the neurons' activations on the calibration text and $S$ those that stay, the best new matrix
# minimises
#
# $$ \lVert X_S W'^\top - X W^\top \rVert^2 + \lambda \lVert W' - W_S \rVert^2
#    \qquad\Rightarrow\qquad W' = (W H_{:S} + \lambda W_S)(H_{SS} + \lambda I)^{-1}, \quad H = X^\top X . $$
#
# This is SparseGPT's idea (lesson 03) for whole columns, and one solution for each matrix is enough. λ says how little
# the text is trusted. It pulls towards the weights that were there, not towards zero; a small λ follows the text even
# where there is too little of it. The library measures λ by the median of $H$'s diagonal, and takes more of it for
# fewer tokens: four windows are fewer tokens than there are neurons. The same is done for the output projection when
# heads leave.

# %%
kept = choose(Scores(neurons=scores["activations"]), dense_shape, target)
smaller = take(model, kept)  # as it was in section 4, where it was read
refit(model, smaller, kept, calibration[:4], progress=False)
print(tables.gain_line("refit", by_width, window_losses(smaller, held_out, progress=False)))

# %% [markdown]
# ## 10. Learning from the whole model
#
# The cut model should talk like the whole one. It can be shown the same text, and told at every token not only which
# word came next, but how probable the whole model found *each* word: 49,152 numbers where the text gives one. This is
# distillation (Hinton, Vinyals and Dean, 2015).

# %%
drawings.teacher_and_student()

# %% [markdown]
# ### Learn from the teacher
# **Exercise** · difficulty 4 of 5 · 12 minutes · 3 points
#
# Write the loss, and its gradient with respect to the student's logits: a formula of one line, which you can find on
# paper or leave to autograd. The teacher gives probabilities and gets no gradient. Dividing all logits by a temperature
# makes them flatter; the gradients shrink by its square, and the factor in front makes up for that.


# %% exercise="minitron.distil"
def distil(student, teacher, temperature):
    """The distillation loss, and its gradient with respect to the student's logits.

    student, teacher: logits (N, T, V): N sequences of T tokens, V words. temperature: divides the
    logits of both.
    Returns (loss, gradient): temperature squared times the Kullback-Leibler divergence of the
    student's probabilities from the teacher's, KL(teacher || student) in nats, the mean over
    tokens; and (N, T, V). Logits may be large.
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
# On SmolLM2 a step takes many seconds of processor time. To watch something learn now, we take a model of a million
# parameters that reads bytes: four blocks, 128 wide, 512 neurons, trained by the course in a few minutes. It is the
# teacher. Three students have 341 neurons a block: one cut from the teacher learns with your loss, one cut in the same
# way learns from the text alone, and one begins with random weights and learns with your loss: 100 steps each, of four
# windows of 128 bytes.

# %%
teacher, byte_held_out, byte_training = load_byte_model()
byte_shape = shape_of(teacher)
byte_evidence = Evidence(teacher, byte_training[:32], progress=False)
byte_target = replace(byte_shape, neurons=341)
students = {
    "cut, by the teacher": cut(teacher, byte_target, Minitron().score(byte_evidence)),
    "cut, by the text": cut(teacher, byte_target, Minitron().score(byte_evidence)),
}
students["from scratch, by the teacher"] = untrained(students["cut, by the text"].config, seed=0)
print(f"teacher {teacher.num_parameters():,} parameters, students {students['cut, by the text'].num_parameters():,}")


# %%
plan = Schedule(n_steps=100, batch=4, length=128, rate=5e-4, warm_up=5)
loss_of = mine("minitron.distil", distil)


def learn(student, from_teacher):
    """Train a student in place; returns steps, and the held-out windows' losses after them."""
    optimiser = torch.optim.AdamW(student.train().parameters(), betas=(0.9, 0.95))
    curve = [(0, live.losses_of(student, byte_held_out))]
    for step, ids in enumerate(byte_training[: plan.n_steps * plan.batch].split(plan.batch)):
        optimiser.param_groups[0]["lr"] = plan.rate_at(step)
        logits = student(ids, use_cache=False).logits
        optimiser.zero_grad()
        if from_teacher:
            with torch.no_grad():
                theirs = teacher(ids, use_cache=False).logits
            _, gradient = loss_of(logits.detach(), theirs, 1.0)
            logits.backward(gradient)
        else:
            next_token(logits, ids).backward()
        optimiser.step()
        if step + 1 in (10, 25, 50, plan.n_steps):
            curve.append((step + 1, live.losses_of(student, byte_held_out)))
    return curve


curves = {name: learn(student, name.endswith("the teacher")) for name, student in students.items()}
print(tables.learnt_lines(curves))
plots.learning(curves, live.losses_of(teacher, byte_held_out))

# %% [markdown]
# Before its first step a student that was cut is far ahead of where the one with random weights is after the last:
# pruning is a good way to *initialise* a small model. Whether the teacher's probabilities teach more than the next byte
# alone, the verdict above says for this little text and this one run. With four times the text it was the other way
# round (`batch=16, rate=1e-3`: 0.014 ± 0.005 nats a byte better by the text). Who copies a teacher as small as this one
# comes near its loss, the dotted line, and hardly further; the text knows no such line. Nor are equal steps equal
# costs: with a teacher each step costs more, because the teacher reads too.
#
# `course prune MODEL FOLDER --shape neurons=1126 --distil 40` does all of it for a model of yours: score, cut, refit,
# distil, save; a run that was interrupted goes on where it stopped, and `from_pretrained` loads what it leaves.

# %% [markdown]
# ## 11. The claims, measured
#
# Eight windows to score with, four to read and a hundred steps of a toy: that is what a notebook has time for. `course
# reproduce minitron` measured the same on more text, with ten draws by lot of every cut and 300 steps of distillation,
# in just under two hours. Its result is part of the course; figures and verdicts below read it.

# %%
result = load_measured("minitron")
print(verdicts.provenance(result))

# %% [markdown]
# **Is one forward pass enough?** Each mark is a model from which one kind of part has left, chosen by one score; each
# grey stroke is a choice by lot.

# %%
measured.scores(result)

# %% [markdown]
# For neurons, whole groups and channels, sizes of activations leave lots far behind, and gradients, which cost a
# backward pass and had half the text, choose no better. The row of the heads is the other way round. A head's score is
# the size of what it gives *before* the output projection. With the norms of the weights that read it as a factor, the
# score beats lots here too: lesson 04's rule, that an input counts as much as the weight that reads it.
#
# **Mean or L2 over the tokens?** The paper takes the mean over the tokens of a sequence and L2 over sequences.

# %%
display(verdicts.aggregations_table(result))
say(verdicts.aggregations(result))

# %% [markdown]
# The square makes the loud tokens count more. For neurons and groups that helps, on the other axes it hardly matters;
# the paper chose on a model a hundred times as large.
#
# **Why is one head of every group so dear?** Here heads are silenced instead of cut, so that a third way can be
# compared which no configuration describes: any three heads of a block.

# %%
display(verdicts.heads_add_up(result))
measured.heads(result)

# %% [markdown]
# It is not that the score were blind: where it may choose whole groups, or any three heads, it beats lots by far. The
# demand is the dear part. Some groups can be spared, and some cannot spare a single head. And what single blocks lose
# does not add up: all blocks at once lose more than the sum.
#
# **Width or depth?** Five models of equal size, before and after 40 steps of distillation with the same text and
# settings: 1126 neurons, or 24 blocks, chosen in four ways.

# %%
measured.width_or_depth(result)

# %% [markdown]
# Before learning, fewer neurons and the best choice of blocks cost about the same; after 40 steps the model with fewer
# blocks is ahead. At this size and with this little text, the lecture's "width outperforms depth" is not what one
# sees. *Which* blocks leave matters more than either. Leaving out the last six is fatal, and block influence would have
# told: the last block turns the stream more than any but the first.
#
# **A few hundred steps.** The model with 1126 neurons learns from the whole one.

# %%
measured.learning(result)

# %% [markdown]
# About half of the gain comes within the first ten steps, and the rest takes hundreds. The paper's short retraining has
# about as many steps as ours, but 1.8 billion tokens: each of its steps reads millions where ours reads 512.
#
# **With a teacher or without, for the same compute?** A step by KL also asks the teacher, which is more than a quarter
# of what the step multiplies. Without it there are 1.4 times as many steps for the same FLOP. `course reproduce
# equal_compute` ran them with the same text and batch, once from the cut model and once from random weights.

# %%
alone = load_measured("minitron", "equal_compute")
equal_compute.curves(result, alone)

# %%
say(equal_compute.claims_table(result, alone))

# %% [markdown]
# In the first steps the text alone is ahead, later the teacher is. A likely reason: what this kind of text is like was
# not taken by the cut and is soon learnt from it; what the cut took comes back slowly, and there 49,152 probabilities a
# token say more than one word. Every window was read once, so it is not that the text ran out. From random weights
# (at a rate three times as high) nothing comes near in this time: what a cut model still knows was paid for when the
# large one was trained.
#
# **Does the refit of section 9 still show after learning?**

# %%
measured.repaired(result)

# %% [markdown]
# **Tasks.** The same questions for all models; perplexity is not everything.

# %%
display(verdicts.zero_shot(result))
say(verdicts.accuracies(result))

# %% [markdown]
# **Does the order of shapes right after the cut tell the order after ten steps?** That is what a search needs to know.

# %%
verdicts.search(result)

# %% [markdown]
# In both lists the two best change places, in the first by hardly anything. Who searches takes the shape that leads
# after a few steps.
#
# Lessons 01, 03, 04 and this one in one picture. Each model is compared with the dense one on the same windows, but the
# windows of the lessons differ. Zeros save bytes in a format of lesson 01. They save no time here: at half zeros, a CPU
# is slower with such a format than with dense weights.

# %%
joined.together(result)

# %% [markdown]
# What became of the claims:

# %%
say(verdicts.claims_table(result))

# %% [markdown]
# ## 12. What the papers report
#
# The source lecture's table, as published. Minitron 8B was cut from Nemotron-4 15B and distilled; Nemotron-3 8B was
# trained from nothing, on 40 times as many tokens.

# %%
tables.published_benchmarks()

# %% [markdown]
# "These models outperform Nemotron-3 8B" holds for eight of these nine rows, and two more things in the lecture's short
# form need a word. *Finetuning* is distillation in the paper. And the *1.8 billion tokens, 400 iterations* of the
# lecture are the short retraining by which candidates are ranked; the model of the table saw 94 billion tokens.
#
# **Width or depth?** The lecture says that pruning width outperforms pruning depth. The numbers of a later paper by the
# same group are for Llama-3.1 8B, cut to 4.5 billion parameters in both ways and distilled over 94 billion tokens.

# %%
tables.published_width_and_depth()

# %% [markdown]
# By *width* the paper means all that leaves the number of blocks as it is: neurons, heads and channels. And it is a
# statement about models that have learnt again; what section 7 compared had learnt nothing. What breaks least need not
# be what is repaired best, and the order of two candidates can even flip. In the documentation of NVIDIA's
# Model-Optimizer, MMLU of Qwen3-8B at 80 % of its memory is 50.8 % for eight blocks left out against 59.1 % for a cut
# by another method; after 100 iterations it is 73.0 % against 69.2 %. So candidates are ranked after a short
# distillation, never before.

# %% [markdown]
# ## 13. What it costs, and when it does not pay
#
# A smaller dense matrix needs no format, no kernel and no special hardware. While a model decodes, its time goes with
# the bytes that it reads, and on a prompt with its FLOP (lesson 00). `course bench structured` timed five models in
# turn on one machine; the marks say what their bytes or FLOP predict.

# %%
plots.speeds(load_bench("cpu_structured"))

# %% [markdown]
# Compare the two cuts of equal size, 1126 neurons and 24 blocks: depth is the faster one, since every block has costs
# that do not depend on its width. NVIDIA's documentation of Model-Optimizer says the same of larger models.
#
# - **It costs quality at once.** SparseGPT sets half of the weights of all blocks to zero for 2.1 times the dense
#   perplexity (lesson 03, on other windows); the cut of section 4 takes a fifth of them and costs about as much. Single
#   weights are the finest choice that there is. What structure gives is speed without conditions, and what it takes has
#   to be learnt again.
# - **It needs a teacher and tokens.** Scores are cheap: one pass. Distillation is training, with a second model in
#   memory. At every step the teacher reads the text too, which adds two fifths to the student's own work here.
# - **It does not pay** where the large model is never run dense anyway, where no training is possible at all, or where
#   a model of the right size exists already and had more training.

# %%
verdicts.step_cost(result)

# %% [markdown]
# ## 14. An open task
#
# What is the best model of at most 100 million parameters that you can cut from this one, before anything is learnt?
# Choose the five sizes. There is no formula, and nothing is graded. What stays is chosen by the scores of sections 4
# to 7. Remember what each axis cost above, and what each is worth in section 3.


# %%
def sizes():
    """What differs from the whole model: of "width", "blocks", "neurons", "heads" and "groups"."""
    return {"neurons": 870}


# %%
ideas = shapes.stored(load_measured("minitron", "shapes")["tables"]["ideas"])
shapes.table(ideas, shapes.attempt(sizes(), (model, tokenizer), found | Scores(blocks=turns)))

# %% [markdown]
# The rows above yours are simple ideas, measured once on the same windows (`course reproduce shapes`). The last column
# compares each with fewer neurons alone, window by window. A row says something where its number is larger than twice
# its error; the figure has bars of that length.

# %%
shapes.compared(ideas)

# %% [markdown]
# Can a better score help more than a better shape? Give your own to `cut`, and a refit before you read.
#
# ## To take home
#
# 1. Some rows and columns are of use only together. A cut that takes all of them leaves a dense model.
# 2. One pass over a little text says which neurons and which whole groups may leave, but not which heads inside a
#    group. The norms of weights do not say it.
# 3. What breaks least need not be what is repaired best. Rank candidates after a short distillation.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>A model has 32 query heads and 8 key-value heads. Somebody removes the 8 query heads with the lowest
# scores of each block, wherever they are, and saves the model. It loads. What is wrong with it?</summary>
#
# The configuration says 24 query and 8 key-value heads, so head $h$ of the new model reads key-value head
# $\lfloor h / 3 \rfloor$. Unless each group lost exactly one head, many heads read keys that they were not trained
# with.
#
# </details>
#
# <details><summary>The distillation loss is 0. Is the student as good as the teacher on the text? On other
# text?</summary>
#
# On that text the two give the same probabilities at every token, so yes. On other text they may differ: the loss says
# nothing of what was not read, and a student of a few hundred short sequences has not read much.
#
# </details>
#
# <details><summary>Why is λ in the refit measured by the median of the diagonal of $H$, and not by its mean?</summary>
#
# In a few blocks some neurons are thousands of times larger than the others on single tokens, and squares make that
# millions. There they rule the mean, and a share of it would be far more than most neurons' own diagonal entries.
#
# </details>
#
# ## Reading
#
# - Muralidharan and others: *Compact Language Models via Pruning and Knowledge Distillation*, NeurIPS 2024,
#   [arXiv:2407.14679](https://arxiv.org/abs/2407.14679). Minitron. Read sections 2 and 3.
# - Sreenivas and others: *LLM Pruning and Distillation in Practice: The Minitron Approach*, 2024,
#   [arXiv:2408.11796](https://arxiv.org/abs/2408.11796). Width and depth at 4 billion.
# - Ma, Fang, Wang: *LLM-Pruner: On the Structural Pruning of Large Language Models*, NeurIPS 2023,
#   [arXiv:2305.11627](https://arxiv.org/abs/2305.11627). Scores by gradients.
# - Men and others: *ShortGPT: Layers in Large Language Models are More Redundant Than You Expect*, 2024,
#   [arXiv:2403.03853](https://arxiv.org/abs/2403.03853). Block influence.
# - NVIDIA: *Model-Optimizer*, [github.com/NVIDIA/Model-Optimizer](https://github.com/NVIDIA/Model-Optimizer), folder
#   `examples/pruning`. The maintained code, and what users of it measured.
# - Hinton, Vinyals, Dean: *Distilling the Knowledge in a Neural Network*, 2015,
#   [arXiv:1503.02531](https://arxiv.org/abs/1503.02531).
