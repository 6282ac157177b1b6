# %% [markdown]
# # 09 · Deja Vu: heads and neurons chosen anew for every token
#
# Lessons 01 to 05 took weights out of a model, and they were gone for every text. Lesson 06 built models that choose
# among experts, which have to be trained for it. Here the model is an ordinary one and stays whole. For each token a
# few of its heads and neurons do nearly all of the work, and for the next token it is others. Whoever knew which, and
# knew it before they are computed, would have to read only those weights.
#
# **Afterwards you can** say which neurons and heads a token needs, show that no fixed set does as well, run an MLP with
# chosen neurons alone, train a predictor that chooses them beforehand, look one block ahead, make a key that is missing
# in the cache, and say when all of this is faster than a dense model. **You need** lesson 00; lesson 05 knows neurons
# and heads already, lesson 06 routers. **Time**: two hours, 75 minutes of it for exercises.
#
# You will write eight functions. Under each is a `check`; it tells you what is wrong and, when it knows, which mistake
# it is. What follows an exercise uses your function on the real model once it is right, and the course's until then.

# %%
import torch
from torch.nn.functional import silu

from course_lib.contextual.apply import choices, contextual
from course_lib.contextual.attention.heads import contextual_heads, static_heads
from course_lib.contextual.execute.choices import everything, known, oracle_sets, predicted
from course_lib.contextual.execute.decode import Decoder
from course_lib.contextual.execute.race import race
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.contextual.selectors.alone import TokenAlone
from course_lib.contextual.selectors.cats import CATS
from course_lib.contextual.selectors.deja_vu import DejaVu
from course_lib.contextual.selectors.embedding import FromEmbedding
from course_lib.contextual.selectors.low_bit import LowBit
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.contextual.selectors.static import Static
from course_lib.contextual.small_models.relu_model import load_relu_model
from course_lib.data import corpora
from course_lib.lessons.dejavu import results
from course_lib.lessons.dejavu.experiments.steps import ideas
from course_lib.lessons.dejavu.drawings import ahead, levels, memory
from course_lib.lessons.dejavu.drawings import cost as drawn_cost
from course_lib.lessons.dejavu.drawings import neurons as drawn_neurons
from course_lib.lessons.common import gpu
from course_lib.lessons.common.results import load_measured, say
from course_lib.lessons.dejavu.figures import fired, selectors, speed
from course_lib.lessons.dejavu.figures import measured as measured_plots
from course_lib.lessons.dejavu.figures import predicting as predicting_plots
from course_lib.lessons.dejavu.figures import stream as stream_plots
from course_lib.lessons.dejavu.live import chosen, clock, cost, heads, neurons, predicting, printed, products
from course_lib.lessons.dejavu.live import stream, torn, view
from course_lib.lessons.dejavu.tables import changes, further, parts, published
from course_lib.lessons.dejavu.tables import clock as clock_tables
from course_lib.lessons.dejavu.tables import measured as tables
from course_lib.lessons.dejavu.tables import predicted as predicted_tables
from course_lib.measure.perplexity import window_losses
from course_lib.models import blocks, load_model
from course_lib.workbook import check, mine

# %%
model, tokenizer = load_model()
held_out = corpora.windows("wikipedia", 6, 80, tokenizer, split="evaluation", seed=0)
calibration = corpora.windows("wikipedia", 6, 128, tokenizer, split="calibration", seed=0)
shown = (1, 8, 15, 22, 28)  # the blocks that are looked at
here, elsewhere = (neurons.seen_at(model, ids, shown) for ids in (held_out[:1], calibration[:2]))
names = [f"block {number}" for number in shown]
print(f"{held_out.numel()} tokens to judge by, {calibration.numel()} of other articles to choose fixed sets by")

# %% [markdown]
# ## 1. The idea in one picture
#
# An MLP is a list of neurons. Each looks at the token through its row of the matrices into the MLP and says one number,
# and that number multiplies the neuron's column of the matrix out of it. A neuron that says nearly nothing need not
# have been asked. Which ones do?
#
# Below is a text as our model reads it, and for each of four neighbouring tokens all 1,536 neurons of one block, a cell
# a neuron. Coloured are the 30 % that count most for the token: dark if the token before chose the neuron as well,
# light if it did not. The neurons are sorted by how much they count on *other* text, so if one set were right for all
# tokens, each picture would be coloured down to the dashed line and empty below. Let the text go by, and try other
# blocks.

# %%
tokens = [tokenizer.decode([token]) for token in held_out[0]]
by_neuron = [[neurons.importance(seen) for seen in of] for of in (here, elsewhere)]
text = chosen.of(tokens, *by_neuron)
view.explore(text, density=0.3, block=2, token=20, names=names)

# %%
often = {name: text.keep(block, 0.3).float().mean(dim=0) for block, name in enumerate(names)}
fired.how_often(often, 0.3)

# %% [markdown]
# Some neurons are needed often, many now and then, hardly any never. Deja Vu (Liu and others, 2023) calls this
# *contextual sparsity*: a small part of the heads and neurons, which depends on the input, gives nearly the same output
# as all of them.
#
# ## 2. A few neurons for each token
#
# With $h(x) = \mathrm{silu}(W_\text{gate}\, x) \odot W_\text{up}\, x$ and $w_i$ the columns of $W_\text{down}$, an MLP
# gives
#
# $$ y = \sum_{i=1}^{F} h_i(x)\, w_i . $$
#
# It is a sum over neurons, and no neuron reads what another says. So whoever leaves out a set of them loses exactly
# their part of the sum.

# %% [markdown]
# ### Which neurons matter
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Suppose that for each token $k$ neurons may stay, and you know what all of them say. A neuron that is left out takes
# its vector with it. Which vectors would you miss least? A neuron may say a large number, of either sign, that hardly
# moves the output; and the answer for one token is none of the next one's business.


# %% exercise="dejavu.importance"
def which_neurons(hidden, down, k):
    """The k neurons of each token that matter most to what its MLP gives: those whose part of the
    output is longest.

    hidden: (T, F), what the F neurons give for each of T tokens, of either sign. down: (D, F), the
    weights behind them: the MLP's output is hidden @ down.T. k: how many stay for a token, 1 to F.
    Returns (T, F), True for exactly k neurons in every row; among equals any may be chosen.
    """
    ### BEGIN SOLUTION
    length = hidden.abs() * down.norm(dim=0)  # of h_i w_i
    best = length.topk(k, dim=1).indices
    return torch.zeros_like(hidden, dtype=torch.bool).scatter(1, best, True)
    ### END SOLUTION


# %%
check("dejavu.importance", which_neurons)

# %%
drawn_neurons.two_tokens()

# %% [markdown]
# To choose like this one has to compute all neurons first, so nothing is saved. It is an *oracle*, and it tells whether
# a small set exists at all. Four ways to choose stand side by side, all with equally many neurons a token:
#
# - **contextual**: your function, in every block, on what this token's neurons say in this place;
# - **token alone**: the set depends on the token, not on what stands around it. In each block, what is large when the
#   token's embedding itself goes through the block, without company (the paper's "non-contextual" sparsity);
# - **map of the embedding**: the same knowledge, used better. A linear map was fitted on other text, from a token's
#   embedding to how much each neuron of the block counts for it; it is damped, since that text is short;
# - **one set for all**: in each block the neurons that count most on other text (lesson 05 would cut all others out).

# %%
levels.three_levels()

# %%
ways = {
    "contextual": neurons.ByFunction(function=mine("dejavu.importance", which_neurons)),
    "map of the embedding": FromEmbedding(damping=3.0).fit(model, calibration),
    "token alone": TokenAlone().fit(model, calibration),
    "one set for all": Static().fit(model, calibration),
}
dense, kept_by = window_losses(model, held_out, progress=False), {}
for name, selector in ways.items():
    kept_by[name] = {}
    for density in (0.75, 0.5, 0.3) if name == "contextual" else (0.75, 0.5):
        with contextual(model, selector, density):
            kept_by[name][density] = window_losses(model, held_out, progress=False)
selectors.density_curves(kept_by, dense, at=0.5)

# %%
display(printed.perplexities(kept_by, dense))
print(printed.claim("at 50 % of the neurons contextual reads better than one set", kept_by, 0.5, "one set for all"))
print(printed.claim("… than a set by a map of the embedding", kept_by, 0.5, "map of the embedding"))
print(printed.claim("one set reads better than the token alone", kept_by, 0.5, "token alone", "one set for all"))

# %% [markdown]
# The curves are the same model with the same number of neurons. What differs is what the choice may know. With half of
# the neurons the contextual choice reads nearly as well as the dense model, and the others are far off. To know the
# token is not enough by itself: a block that gets an embedding in the place of the residual gets what it was never
# trained to read, and what is large there says little about what is large in the text.
#
# In the paper's test of existence the choice is made a little differently: a first pass through the dense model records
# which heads and neurons are large, and a second pass uses only those (`Recorded` in the library). Above, each block
# chooses by what it gets from blocks that have lost neurons already.

# %%
levels.two_passes()

# %% [markdown]
#
# ## 3. A few heads for each token
#
# Attention is a sum too. Each head hands $d$ numbers to the output projection, and what the projection makes of them is
# added up over the heads.

# %% [markdown]
# ### Which heads matter
# **Exercise** · difficulty 3 of 5 · 9 minutes · 3 points
#
# How much of the output comes from each head, for each token? The heads lie side by side in the input of the output
# projection. That matrix mixes them all into one vector, and before it nothing of a head's size is settled: large
# numbers can meet small weights.


# %% exercise="dejavu.heads"
def head_norms(heads, weight, n_heads):
    """How much of the attention's output comes from each head: the length of its part, for every
    token.

    heads: (T, H * d), what the H heads give, side by side, d entries each. weight: (D, H * d), of
    the output projection: the attention gives heads @ weight.T. n_heads: H. Returns (T, H).
    """
    ### BEGIN SOLUTION
    size = heads.shape[1] // n_heads
    given = heads.unflatten(1, (n_heads, size))  # (T, H, d)
    into = weight.unflatten(1, (n_heads, size))  # (D, H, d)
    return torch.einsum("thi,dhi->thd", given, into).norm(dim=2)
    ### END SOLUTION


# %%
check("dejavu.heads", head_norms)

# %% [markdown]
# Our model has nine heads in each block. Each token keeps the heads of the longest parts, by your function; beside it
# stand heads that are chosen once for each block.

# %%
longest = heads.by_function(model, mine("dejavu.heads", head_norms))
scores = {"contextual": longest, "one set for all": static_heads(model, calibration[:3])}
heads_by = {name: {} for name in scores}
for name, score in scores.items():
    for n_heads in (7, 5):
        with contextual_heads(model, score, keep=n_heads):
            heads_by[name][n_heads / 9] = window_losses(model, held_out, progress=False)
selectors.density_curves(heads_by, dense, at=7 / 9, what="heads")

# %%
said = "with 7 of 9 heads each token's own are better than the same for all"
print(printed.claim(said, heads_by, 7 / 9, "one set for all"))

# %% [markdown]
# The paper's oracle keeps a fifth of the heads of a model that has 96 of them in each block. Nine are few, and each of
# them is a ninth of the attention. Nor does seven of nine spare any of the cache: three heads share each key-value
# head, only two leave, and so every key and value is still read.
#
# ## 4. What a known set saves
#
# While a model writes, it reads all of its weights for each token (lesson 00). If the set were known, only the rows of
# the chosen neurons would have to be read, out of three matrices.

# %%
memory.neuron_major()

# %% [markdown]
# ### Only the rows that are needed
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Compute the MLP for one token with the neurons of a list, and read no weight of any other. What of the three matrices
# belongs to neuron $i$?


# %% exercise="dejavu.gathered"
def gathered_mlp(x, gate, up, down, index):
    """The MLP of one token with the neurons in `index` alone: down @ (silu(gate @ x) * (up @ x))
    without all others.

    x: (D,). gate, up: (F, D). down: (D, F). index: (K,), the numbers of the neurons that stay, each
    once and in any order; there may be none, and then the output is zero. Only their weights may be
    read: those of the other neurons may never have been loaded, so that what stands in their place
    is anything, also not a number. Returns (D,).
    """
    ### BEGIN SOLUTION
    hidden = silu(gate[index] @ x) * (up[index] @ x)  # (K,)
    return down[:, index] @ hidden
    ### END SOLUTION


# %%
check("dejavu.gathered", gathered_mlp)

# %% [markdown]
# One token of our text in block 15, with a fifth of the neurons. The result has to be what the whole MLP gives once all
# other neurons are zero; and what is lost has to be their part of the sum, no more and no less. A check sees the result
# alone: whoever computes all neurons and takes the chosen ones afterwards is called right too, and has saved nothing.
# So the products are counted, one for each weight that meets a number.

# %%
seen, token = here[2], 60
mlp, x = seen.neurons, seen.x[token]
keep = Oracle(density=0.2).keep(seen, 2)[token]
few, given = mine("dejavu.gathered", gathered_mlp), (x, mlp.gate, mlp.up, mlp.down, keep.nonzero().flatten())
output = few(*given)
with products.counted() as count:
    few(*given)
masked, lost = mlp.down @ (seen.hidden[token] * keep), mlp.down @ (seen.hidden[token] * ~keep)
print(products.line(count.n, 3 * mlp.up.numel(), keep))
print(f"beside the masked MLP {(output - masked).abs().max():.1e} at most")
print(f"what is lost has {100 * lost.norm() / (output + lost).norm():.0f} % of the length of the output")

# %% [markdown]
# On the clock the gain is smaller than the bytes promise. Rows that lie apart are collected before they are multiplied,
# and a matrix in one piece is read faster than its rows one by one. Here are all 30 MLPs of our model, 319 MB of
# weights in float32, one token at a time. The index is drawn by lot and known beforehand.

# %%
timed = clock.time_over_density(model, (1.0, 0.5, 0.3, 0.2, 0.1))
speed.over_density(timed)

# %% [markdown]
# The machine that runs this does other things too, so the points move from run to run; `course bench contextual` has
# times that were taken with more care.
#
# So much for the gain if somebody told us the set. In the rest of the lesson somebody has to: before the block is
# computed, and for far less than the block costs.
#
# ## 5. Which models make it easy
#
# The paper's models are OPT, and OPT's MLP is $W_\text{out}\, \mathrm{ReLU}(W_\text{in}\, x + b)$. Behind a ReLU most
# neurons are *exactly* zero, and leaving those out changes nothing. Behind a SiLU, as in Llama and in our model,
# nothing is ever zero: one has to choose where to stop. The course has a small model of bytes with ReLU, trained from
# nothing by `course reproduce relu_model`.

# %%
relu, bytes_held_out, bytes_read = load_relu_model(n_held_out=10, n_training=24)  # windows of 128 bytes
relu_names = [f"block {number}" for number in range(len(blocks(relu)))]
relu_here = neurons.seen_at(relu, bytes_held_out, range(len(relu_names)))
printed.active_table({"SmolLM2": (names, here), "ReLU": (relu_names, relu_here)})

# %%
curves = {
    "SmolLM2": {name: neurons.energy_curve(each) for name, each in zip(names, by_neuron[0], strict=True)},
    "the ReLU model": {
        name: neurons.energy_curve(neurons.importance(seen)) for name, seen in zip(relu_names, relu_here, strict=True)
    },
}
fired.energy(curves)

# %% [markdown]
# The *energy* of a neuron is $h_i^2 \lVert w_i \rVert^2$, the square of what it adds. In SmolLM2 the last neurons of a
# token still say a little, all of them, and together it is not nothing. The ReLU model has found out by itself that
# most of its neurons may be silent: nothing in its training asked for it.
#
# Most models of today have a SiLU or a GELU all the same. Some were turned back: ReLU was put in the place of SiLU, and
# training went on until the model had got used to it (Mirzadeh and others, 2023).
#
# ## 6. To know beforehand
#
# Deja Vu puts a small classifier beside each MLP. It reads what the MLP reads, or a little earlier, and says for every
# neuron whether it will be active: two matrices, $D \times r$ and $r \times F$, with no nonlinearity between them
# (section 4.1 of the paper; the code has none either). Their cost is a fraction $r(D + F) / 2DF$ of an MLP of two
# matrices, so $r$ has to be small. Beside the three matrices of a gated MLP, as SmolLM2's below, it is
# $r(D + F) / 3DF$.

# %%
ahead.predictor()

# %% [markdown]
# Which rows of the matrix have the largest product with $x$? That is a search for nearest neighbours, and there are
# structures that are faster than trying all. The paper tried two of them, and has these times beside the MLP that they
# were to spare:

# %%
published.search()

# %% [markdown]
# A search that takes longer than what it spares is of no use, and it is asked anew for every token and block. The
# predictor above is a product of matrices, like the MLP, and a small one.

# %% [markdown]
# ### A predictor's loss
# **Exercise** · difficulty 4 of 5 · 12 minutes · 4 points
#
# For each neuron the predictor answers yes or no, so its loss is a cross-entropy of two classes. But few neurons are
# active, and whoever always says no is right nearly always. How should a miss and a false alarm be weighed against each
# other? The authors' code weighs by how rare the active ones are. Write the loss, and its gradient: on paper it is one
# line, since a sigmoid and a logarithm meet; or let autograd do it.


# %% exercise="dejavu.loss"
def predictor_loss(logits, parts, k):
    """The loss of a predictor, and its gradient: which neurons are active, how much each counts,
    and what is wrong.

    logits: (T, F), what the predictor says; active where above zero. They may be large.
    parts: (T, F), how long the part of each neuron of the output is, zero or above. A neuron is
    active for a token if it is among the k longest of the token and not zero
    (after a ReLU: k = F, and all that are not zero).
    No two parts of a token that are not zero are equal.
    The loss is the mean over all T * F of the binary cross-entropy of the sigmoid of each logit, in
    which an active neuron counts 1 and any other one w = share of the active among all T * F, plus
    0.005.
    Returns the loss, and its derivative with respect to the logits, (T, F).
    """
    ### BEGIN SOLUTION
    order = parts.argsort(dim=1, descending=True)
    active = torch.zeros_like(parts).scatter(1, order[:, :k], 1.0) * (parts > 0)
    counts = torch.where(active > 0, 1.0, active.mean() + 0.005) / logits.numel()
    losses = torch.nn.functional.softplus(logits) - active * logits  # −log σ(z), or −log(1 − σ(z))
    return (counts * losses).sum(), counts * (logits.sigmoid() - active)
    ### END SOLUTION


# %%
check("dejavu.loss", predictor_loss)

# %% [markdown]
# Now train one, on what the last MLP of the ReLU model reads of 24 windows of text. The predictor is 32 numbers wide in
# its middle.

# %%
relu_read = neurons.seen_at(relu, bytes_read, range(len(relu_names)))
last = len(relu_read) - 1


def learn(reads, parts, loss_of, n_steps=80, rank=32, batch=128):
    """A predictor that has learnt to say which parts are not zero, and its loss at each step."""
    generator, losses = torch.Generator().manual_seed(0), []
    made = Predictor(reads.shape[1], rank, parts.shape[1], generator)  # x -> out @ (into @ x)
    optimiser = torch.optim.AdamW(made.parameters(), lr=5e-3, weight_decay=0.01)
    for _ in range(n_steps):
        rows = torch.randint(len(reads), (batch,), generator=generator)
        logits = made(reads[rows])
        loss, slope = loss_of(logits.detach(), parts[rows], parts.shape[1])
        optimiser.zero_grad()
        logits.backward(slope)
        optimiser.step()
        losses.append(float(loss))
    return made.requires_grad_(False), losses


of_loss = mine("dejavu.loss", predictor_loss)
predictor, losses = learn(relu_read[last].x, neurons.importance(relu_read[last]), of_loss)
print(f"{len(relu_read[last].x):,} bytes read; loss {losses[0]:.3f}, after {len(losses)} steps {losses[-1]:.3f}")
always = predicting.constant_loss(neurons.importance(relu_read[last]))
print(f"whoever says the same of every neuron and byte has {always:.3f} at best")
print(printed.bytes_line(predictor, relu_read[last].neurons))

# %% [markdown]
# ### How good is a prediction
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# The predictor says for each token which neurons to compute. Two numbers tell how good that is: how many of the active
# neurons it found, and how much of the energy of section 5 they have. Some tokens have many active neurons and some
# have none, and a token with one active neuron should not count as much as one with a hundred: take shares of sums, and
# not means of shares.


# %% exercise="dejavu.recall"
def recall_and_energy(hidden, down, active, keep):
    """How much of what matters a predicted set holds: (recall, energy).

    hidden: (T, F), what the F neurons give for each of T tokens. down: (D, F), the weights behind
    them.
    active: (T, F), True where a neuron counts as active, at least once in all. keep: (T, F), True
    where it was predicted.
    recall: the share of the active neurons that were predicted. energy: the share of the squared
    lengths of what all neurons, active or not, add to the output, each taken by itself, that the
    predicted ones have.
    Both are shares of a sum over all tokens, in which a token with many active neurons weighs more
    than one with few; there are tokens with none. Returns two numbers between 0 and 1.
    """
    ### BEGIN SOLUTION
    length = hidden * down.norm(dim=0)  # of h_i w_i; its sign does not matter
    energy = length.square()
    return (active & keep).sum() / active.sum(), energy[keep].sum() / energy.sum()
    ### END SOLUTION


# %%
check("dejavu.recall", recall_and_energy)

# %%
of_last, score_of = relu_here[last], mine("dejavu.recall", recall_and_energy)
rivals = {
    "predictor": predictor(of_last.x),
    "one set for all": neurons.importance(relu_read[last]).mean(dim=0).expand_as(of_last.hidden),
    "lots": torch.rand(of_last.hidden.shape, generator=torch.Generator().manual_seed(0)),
}
found = predicting.scored(rivals, of_last, (0.02, 0.05, 0.1, 0.2, 0.4), score_of)
predicting_plots.recall_and_energy(found)

# %% [markdown]
# A predictor of every block of the model, and every byte read with the neurons that they choose:

# %%
of_loss = mine("dejavu.loss", predictor_loss)
predictors = [learn(seen.x, neurons.importance(seen), of_loss)[0] for seen in relu_read[:last]]
relu_ways = {
    "contextual": Oracle(),
    "predicted": DejaVu(predictors=(*predictors, predictor)),
    "one set for all": Static().fit(relu, bytes_read),
}
relu_dense, relu_kept = window_losses(relu, bytes_held_out, progress=False), {}
for name, selector in relu_ways.items():
    relu_kept[name] = {}
    for density in (0.2, 0.1, 0.05):
        with contextual(relu, selector, density):
            relu_kept[name][density] = window_losses(relu, bytes_held_out, progress=False)
selectors.density_curves(relu_kept, relu_dense, at=0.2)

# %%
display(printed.perplexities(relu_kept, relu_dense, nats=True))
said = "at 20 % of the neurons the predicted set reads better than a fixed one"
print(printed.claim(said, relu_kept, 0.2, "one set for all", "predicted"))

# %% [markdown]
# What the paper reports for OPT-175B with predictors in place of the oracle, 85 % of the neurons or half of the heads
# left out:

# %%
published.accuracy()

# %% [markdown]
# **And on SmolLM2?** Behind a SiLU there is no line between active and silent that a predictor could learn, only larger
# and smaller, and a predictor for each of 30 blocks takes minutes to train (`course reproduce dejavu_predictors`). But
# another one needs no training at all: a coarse copy of gate and up, in 2 bits a weight. It makes a rough version of
# all $h_i$, and from that one can tell which are large. CATS goes another way: it computes the gate exactly, and skips
# what the gate makes small (Lee and others, 2024).
#
# The weights of this model come from a file with 4 bits a weight, so a copy in 4 bits and small groups would be no copy
# at all but the same weights. With 2 bits that is not so.

# %%
coarse = {"copy in 2 bits": LowBit(bits=2).fit(model, calibration), "gate (CATS)": CATS().fit(model, calibration[:3])}
beside = {name: kept_by[name] for name in ("contextual", "map of the embedding", "one set for all")}
for name, selector in coarse.items():
    beside[name] = {}
    for density in (0.5, 0.3):
        with contextual(model, selector, density) as watch:
            beside[name][density] = window_losses(model, held_out, progress=False)
    print(f"{name}: {watch.bytes / 1e6:.1f} MB beside the model; asked for 30 %, kept {100 * watch.mean_density:.1f} %")
selectors.density_curves(beside, dense, at=0.5)

# %% [markdown]
# CATS needs nothing beside the model, but it reads the whole gate, a third of the MLP, before it can leave anything
# out. And it chooses by a threshold, so that a token keeps as many neurons as it needs and the density is reached on
# average only: in the figure it stands at the density that was asked for.
#
# ## 7. Looking ahead
#
# A predictor that reads what the MLP reads stands in the way: the MLP waits for it. The paper lets it read something
# earlier, while the block before is still at work. That can only do if the earlier input is nearly the same. Is it? In
# a residual network each block *adds* to what was there, and if it adds little, the stream turns slowly.

# %%
states = stream.stream_of(model, held_out[:2])
turned = stream.change(states)
stream_plots.slow_change(turned.cosine, {"attention": turned.attention, "MLP": turned.mlp})

# %% [markdown]
# The first block makes the stream out of embeddings, and the paper excepts it too. After that the input of one block
# is a good guess at the input of the next, less so near the end, where one block and the last turn the stream further.
# (There are three lookaheads in the paper: its figure 2 has two, from attention to the MLP of the same block and from
# an MLP to the heads of the next one; section 4.3 goes from block to block.)

# %%
ahead.lookahead()

# %% [markdown]
# ### One block ahead
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Take the pairs that a predictor learns from. You have the whole stream in the order of time. Which states stand before
# the MLPs, and which of them goes with which block's labels?


# %% exercise="dejavu.lookahead"
def training_pairs(stream, active, ahead):
    """What the predictors of neurons read and what they shall say, when they look `ahead` blocks
    ahead.

    stream: (2L + 1, T, D), the residual stream of L blocks in the order of time: the embedding, and
    then after the attention and after the MLP of each block. Attention and MLP read what stands
    there just before them.
    active: (L, T, F), which neurons of each block's MLP a token needs. ahead: n, 0 to L - 1.
    The predictor of a block reads what the MLP of the block n earlier reads. The first n blocks
    have no predictor.
    Returns inputs (L - n, T, D) and labels (L - n, T, F), one row for each predictor, in the order
    of the blocks.
    """
    ### BEGIN SOLUTION
    read_by_mlp = stream[1::2]  # (L, T, D)
    n_pairs = len(active) - ahead
    return read_by_mlp[:n_pairs], active[ahead:]
    ### END SOLUTION


# %%
check("dejavu.lookahead", training_pairs)

# %% [markdown]
# The first n blocks have to be chosen for as well. `DejaVu` in the library lets them read what the MLP of block 0
# reads, so that they look less far ahead; the exercise leaves them out.
#
# Your pairs train predictors of the ReLU model's last block, for every fourth of its neurons, from its own input and
# from inputs further back, and score them on text that none has read: how many of the neurons that fire are among the
# fifth that each predicts? A loss of .02 of that recall is called small here. They read the stream itself, each token's
# scaled to the same length, as a norm without weights does.

# %%
pairs_of, of_loss = mine("dejavu.lookahead", training_pairs), mine("dejavu.loss", predictor_loss)
states = (stream.stream_of(relu, ids) for ids in (bytes_read, bytes_held_out))
to_learn, to_judge = (torch.nn.functional.layer_norm(each, each.shape[-1:]) for each in states)
active, active_then = (torch.stack([seen.hidden[:, ::4] > 0 for seen in of]) for of in (relu_read, relu_here))
counts = neurons.importance(relu_read[last])[:, ::4]
recalls = {}
for n in range(last + 1):
    (reads, labels), (reads_then, labels_then) = pairs_of(to_learn, active, n), pairs_of(to_judge, active_then, n)
    looking, _ = learn(reads[-1], counts * labels[-1], of_loss)
    recalls[n] = predicting.recall_by_window(looking(reads_then[-1]), labels_then[-1], 0.2, len(bytes_held_out))
print(printed.recalls(recalls))

# %% [markdown]
# ## 8. A head that was left out
#
# For neurons that is all. With heads something is left over: a head that token 2 did not need has made no key and no
# value for token 2. When token 5 chooses this head, it wants to look back at token 2, and there is nothing.

# %%
memory.missing_key()

# %% [markdown]
# ### A key that is missing
# **Exercise** · difficulty 4 of 5 · 12 minutes · 3 points
#
# The paper stores, in the place of what was not computed, the input $x$ of the token, and makes key and value when they
# are asked for. Make them. The key has to be the one that would stand there if the head had been chosen then. Which
# input is it made from, to which position is it turned, and what of the value? The newest token has no key yet either:
# its own is made in the same way, so it stands among the missing.


# %% exercise="dejavu.missing"
def complete(keys, values, position, missing, stored, key_weight, value_weight, cos, sin):
    """All keys and values of a head that was left out at some tokens and is chosen now.

    keys, values: (N, d), a row for each of N tokens; those of missing tokens hold no more than what
    was in the memory.
    position: (N,), where each token stands in the text, rising; the last one is the newest.
    missing: (M,), the rows of the tokens for which the head was not chosen, rising; the last is the
    newest token's.
    stored: (M, D), what the attention read at these tokens, in the same order.
    key_weight, value_weight: (d, D), the head's own. cos, sin: (P, d), one row for each position of
    a text: a key k at position p is turned to k * cos[p] + turned_half(k) * sin[p], with
    turned_half(k) = (-second half, first half) of k.
    The keys that are there have been turned already. Returns keys and values, both (N, d), as if no
    token had been missing.
    """
    ### BEGIN SOLUTION
    made = stored @ key_weight.T  # (M, d)
    first, second = made.chunk(2, dim=1)
    then = position[missing]
    keys, values = keys.clone(), values.clone()
    keys[missing] = made * cos[then] + torch.cat([-second, first], dim=1) * sin[then]
    values[missing] = stored @ value_weight.T
    return keys, values
    ### END SOLUTION


# %%
check("dejavu.missing", complete)

# %% [markdown]
# A head of the real model, with every third token missing, completed by your function; beside it the cache of a head
# that never was left out.

# %%
whole, holes = torn.head(model, block=15, head=0, ids=held_out[0], every=3)
made = mine("dejavu.missing", complete)(*holes)
print(f"keys differ by {(made[0] - whole[0]).abs().max():.1e}, values by {(made[1] - whole[1]).abs().max():.1e}")
print(printed.stored_line(model))

# %% [markdown]
# What is stored is one $x$ a token instead of the keys and values of all heads that were left out. In a model of many
# heads, half of them left out, that is no more than before. With *grouped* heads it is different: a key-value head is
# left out only when none of its query heads is chosen, and a whole $x$ is longer than the keys and values of a token.
# `HeadCache` in the library does it token by token, and its test compares with attention that was computed from all
# inputs.
#
# ## 9. Cost, and when it does not pay
#
# All in all: the weights of the MLPs shrink to the density. The predictor comes on top. Attention, its cache and the
# head are read as before. And a prompt gains nothing, since its tokens go through the weights together, and together
# they need nearly all neurons.

# %% [markdown]
# ### When it pays
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Work out from the numbers that are read how much faster a token becomes, an answer with its prompt, and at which
# density nothing is gained. Gathered numbers take longer than numbers in order: `gather` says how much. What of a token
# is read whatever the density?


# %% exercise="dejavu.break_even"
def when_it_pays(width, neurons, blocks, rank, others, density, gather, prompt, n_tokens):
    """How much faster an answer becomes: (of one token, of the whole answer, break-even density).

    The time of a decoded token is that of reading its weights. width, neurons, blocks: each block's
    MLP has gate, up and down, of width * neurons numbers each, and a predictor of two matrices,
    width -> rank -> neurons, read in full.
    others: numbers read for a token outside of the MLPs (attention, cache, head), dense as before.
    density: the share of neurons kept. gather: how much longer a number takes that is gathered
    instead of read in order; so are the kept neurons' weights, and nothing else. prompt: how long
    reading the prompt takes, in decoded dense tokens: its tokens go through the weights together,
    need nearly all neurons, and stay dense. n_tokens: tokens of the answer.
    Returns how many times faster a decoded token is; prompt and answer together are; and the
    density at which a decoded token takes as long as dense, 0 if it is slower at every density.
    """
    ### BEGIN SOLUTION
    mlp = 3 * width * neurons * blocks
    predictor = rank * (width + neurons) * blocks
    dense, sparse = mlp + others, gather * density * mlp + predictor + others
    whole = (prompt + n_tokens) * dense / (prompt * dense + n_tokens * sparse)
    return dense / sparse, whole, max(0.0, (mlp - predictor) / (gather * mlp))
    ### END SOLUTION


# %%
check("dejavu.break_even", when_it_pays)

# %% [markdown]
# Where the bytes of one token of SmolLM2 are, and what a density leaves of them, at the very beginning of a text, where
# there is no cache to read:

# %%
drawn_cost.token_bytes()

# %% [markdown]
# And your function for SmolLM2 with a cache of 512 tokens, so that a little less is gained, with a predictor of rank
# 64 or none, as fast as the bytes say or with gathering twice as slow as reading:

# %%
pays, sizes = mine("dejavu.break_even", when_it_pays), cost.read_by_a_token(model, n_cached=512)
lines = {}
settings = {"index for nothing": (0, 1.0), "rank 64": (64, 1.0), "rank 64, slow gathering": (64, 2.0)}
for name, (rank, gather) in settings.items():
    lines[name] = {density: pays(*sizes[:3], rank, sizes[3], density, gather, 0.0, 1) for density in cost.DENSITIES}
speed.pays(lines)

# %% [markdown]
# However few neurons stay, a token does not become faster than the rest of the model allows: attention and head. In the
# paper's models the MLP is two thirds of a block and the head is small, so there is more to gain.
#
# A batch spoils it as it spoiled lesson 06's experts. Each sequence chooses its own neurons, and what one of them needs
# has to be read. Of the ReLU model's fifth only what fires counts, so it begins lower:

# %%
a_fifth = {"SmolLM2": choices(model, Oracle(density=0.2), held_out[0])[list(shown)]}
fires = torch.stack([seen.hidden[: bytes_held_out.shape[1]] > 0 for seen in relu_here])
a_fifth["the ReLU model"] = choices(relu, Oracle(density=0.2), bytes_held_out[0]) & fires
batches = (1, 2, 4, 8, 16)
speed.union(cost.unions(a_fifth, batches), batches)

# %% [markdown]
# Last, the clock, end to end. The ReLU model reads a few windows byte by byte: with all neurons, with a fifth of them
# that an oracle names for nothing, and with a fifth that the predictors of section 6 choose, whose own time counts.

# %%
decoder, few = Decoder(relu, length=bytes_held_out.shape[1]), bytes_held_out[:3]
ways = {
    "all neurons": lambda ids: everything,
    "20 %, oracle": lambda ids: known(oracle_sets(decoder, ids, 0.2)),
    "20 %, predicted": lambda ids: predicted((*predictors, predictor), 0.2),
}
printed.laps(race(decoder, few, ways), n_tokens=few.shape[1] - 1)

# %% [markdown]
# The loss of the predicted way is that of predictors which have learnt for a few seconds. Every block keeps the same
# share here, although section 5 shows that blocks differ in what they need. `course bench contextual_relu` takes
# predictors that have learnt longer, and gives each block a share of its own.
#
# - **It pays** where one sequence is decoded at a time, where weights are most of what is read, and where most neurons
#   are silent by themselves.
# - **It does not pay** on a prompt, in a large batch, or above the break-even density, which gathering moves far down:
#   section 4 has it for your machine.
# - **It does not pay beside a cheaper way to the same bytes.** Half of the neurons are half of the MLP's bytes. All
#   neurons in 8 bits are half of the bytes of 16, and there is nothing to choose or to predict.
#
# The paper's own times are for OPT-175B on eight A100. They are published, not measured here:

# %%
published.latency()

# %% [markdown]
# ## 10. An open task
#
# Choose 30 % of SmolLM2's neurons for each token, with something that takes at most 5 % of the bytes of the MLPs, and
# get the perplexity as low as you can. What do you do with 5 %: fewer bits, a lower rank, the neurons that one nearly
# always needs? There is no formula, and nothing is graded. A selector is a small class with a `_score`; the files in
# `course_lib/contextual/selectors` are examples, and any of them may be set otherwise.


# %%
def my_selector():
    """Anything that scores neurons without having computed them: a NeuronSelector that was not
    fitted yet.
    """
    return LowBit(bits=2, group=192)


# %%
made = ideas.attempt(my_selector(), (model, tokenizer))
found = results.results()
whole = results.dense(found, results.GATED)
by_oracle = results.one(found, "neurons", model=results.GATED, chosen_by="oracle", density=ideas.DENSITY)
print(ideas.line(made, model, whole["losses"], by_oracle["losses"]))

# %% [markdown]
# A gain is one only on windows that the choice has not seen: what you tune, tune on `split="calibration"`. Five simple
# ideas were measured in the same way (`course reproduce dejavu_ideas`); yours is the last row.

# %%
ideas.table(ideas.stored(load_measured("dejavu", "experiments/dejavu_ideas")["tables"]["ideas"]), made)

# %% [markdown]
# At like bytes, few bits for every neuron tell far more than a low rank for all of them. Each row is compared with the
# first, window by window, and says something where its number is larger than twice its error.
#
# ## 11. The claims, measured
#
# The live cells read a few hundred tokens. `course reproduce dejavu` and `course reproduce dejavu_predictors` read
# 5,120 of SmolLM2's and 20,480 bytes of the ReLU model's, and kept the loss of every window, so that models are
# compared on the same windows. "No loss" means here less than .05 nats a token, 5 % of perplexity.

# %%
predictions = results.predictions()
say(tables.provenance(found))

# %% [markdown]
# **A small set exists.** An oracle knows all values and keeps the largest. How few are enough?

# %%
display(tables.active_table(found))
print(tables.active(found))
display(tables.neurons(found))
say(tables.exists(found))

# %% [markdown]
# The paper's shares (20 % of the heads, 5 % of the neurons) are those of a model with a ReLU that is more than a
# thousand times as large. Here half of the neurons are enough for SmolLM2, and a fifth for the ReLU model: the set
# exists, but it is not as small. Of nine heads two can be spared, and of the ReLU model's four none.

# %%
display(parts.heads_table(found))
print(parts.heads(found))

# %% [markdown]
# **It depends on the context.** The same shares, chosen with less and less knowledge of the token:

# %%
measured_plots.levels(found)

# %%
say(tables.contextual(found))

# %% [markdown]
# The token alone, passed through the block as the paper's control passes it, is worse than one set for all on SmolLM2:
# a block that reads an embedding where the residual should be reads something it was never trained on. A fitted map of
# the same embedding shows what knowing the token is worth. It is better than one set for all, and far from the oracle.
#
# **Can it be known beforehand?** Every selector below reads what is there before the MLP. The bytes are those that it
# adds.

# %%
display(predicted_tables.selectors(predictions))
say(predicted_tables.predictable(predictions))

# %% [markdown]
# Behind the ReLU the paper's predictor works: at a fifth of the neurons it costs .017 nats, too near to the .02 of the
# claim to tell on which side, and at a tenth more. On SmolLM2 it is worse than one set for all. The next table shows
# how: it finds more of the oracle's neurons than the fixed set does, and these carry less.

# %%
predicted_tables.recalls(predictions)

# %% [markdown]
# Its loss counts all neurons of a token's upper half alike, whatever they add to the output (section 6). It had 12,288
# tokens and 96 steps; the paper's code has up to 400,000 tokens and 20 epochs. So how much of this is the SiLU and how
# much is little training, these numbers cannot tell. The layer's own copy in 2 bits needs no training and keeps .94 of
# the energy at the same bytes. That its weights were stored in 4 bits once does not help the copy: its grid is another,
# and its error is that of weights without a grid, to within 3 % of its square (lesson 03).
#
# **Looking ahead.** The residual changes slowly behind the first block, so a predictor may read it earlier.

# %%
measured_plots.slow_change(found)

# %%
say(changes.slow(found))
say(predicted_tables.lookahead(predictions))

# %% [markdown]
# A block of lookahead takes .001 from the recall of SmolLM2's predictors. The ReLU model even reads *better* with
# predictors that look further back, although they find no more neurons. One difference is known: the predictors learnt
# from the dense model, and at run time the earlier blocks leave neurons out. What a block far back reads is changed
# less by that than what the block itself reads. Whether this is the reason was not tested.
#
# That a search for the nearest rows takes longer than the layer depends on the search (section 6 has the paper's
# times):

# %%
say(predicted_tables.search(predictions))

# %% [markdown]
# **Other ways to zeros.** CATS and TEAL compare with a threshold and predict nothing. What counts is the density that
# was reached: below three quarters TEAL keeps less than it was asked for, and its greedy levels less still, by the mean
# over the inputs. The greedy levels are counted by weights, so that their mean over inputs may differ without that any
# of them misses its density. Rows that lie more than 2 % from what was asked are marked, and are not compared.

# %%
display(changes.activations_table(found))
print(changes.activations(found))
say(changes.half_windows(found))

# %% [markdown]
# ReLU in place of SiLU, without training, breaks the model. TEAL's own evaluation leaves the first half of a window
# dense; at half of the inputs that hides .09 nats.
#
# **Blocks side by side, blocks left out**, as the paper's appendix tries on OPT-175B:

# %%
print(changes.depth(found))
published.depth()

# %% [markdown]
# OPT-175B loses little where attention and MLP stand side by side, and all where two blocks do. SmolLM2 loses all in
# both cases and has no block to spare. The ReLU model can leave one of its four out.
#
# **With rounded weights, and in a batch.** The model's weights come from a 4-bit file, so rounding is measured on grids
# that this does not prejudge.

# %%
say(parts.rounded(found))
measured_plots.batch(found)

# %%
say(parts.batch(found))

# %% [markdown]
# Sixteen sequences at once need nearly all of SmolLM2's neurons, and two thirds of the ReLU model's, whose choices
# overlap more than chance would have it.
#
# **On the clock**, `course bench contextual contextual_relu` timed the MLPs of SmolLM2 for one token, and the ReLU
# model end to end, with shares of each block's own. Its predictors are those that were trained for longer, and their
# time counts.

# %%
one_token, decoded = clock_tables.results(clock_tables.ONE_TOKEN), clock_tables.results(clock_tables.RELU)
print(clock_tables.provenance(one_token))
display(clock_tables.one_token(one_token))
display(clock_tables.batches(one_token))
clock_tables.end_to_end(decoded)

# %% [markdown]
# A tenth of the neurons is far from ten times as fast, since rows that lie apart have to be gathered, and near a half
# nothing is gained any more. With predictors the ReLU model decodes about one and a half times as fast within .02 nats,
# where the first block keeps five times as many neurons as the others. These are ratios of one machine: the longer a
# processor waits for its memory, the more there is to gain.
#
# **On a GPU** (`kernels/per_token/`): chosen neurons, inputs below a threshold, and heads that are left out.
# Neurons and heads are chosen before the clock starts, inputs while it runs.

# %%
print(gpu.provenance())
display(gpu.table("gathered_mlp", contests=("density 0.5, tokens: 1", "density 0.05, tokens: 1")))
display(gpu.table("threshold_matvec", contests=("inputs at zero: 50 %", "inputs at zero: 90 %")))
display(
    gpu.table("head_sparse_decode", contests=("groups of 4, half of the groups", "groups of 4, half of each group"))
)
say(gpu.everywhere("gathered_mlp", "kernel"))
say(gpu.everywhere("threshold_matvec", "kernel"))
say(further.one_kernel())

# %% [markdown]
# Gathered by torch, half of the neurons take longer than all of them, since each row is read, written and read again;
# at a twentieth both ways gain. Columns that a threshold chooses are slower at every sparsity when torch gathers them,
# because they are copied, and the GPU has to say first how many there are. Heads left out of each group save nothing:
# the group's keys and values are read for those that stay, and the bound is that of all heads. Whole groups halve it.
#
# ## To take home
#
# 1. Which neurons matter depends on the text, not on the token alone and still less on the block alone. At equal
#    density a set chosen in context reads far better than a fixed one.
# 2. That a small set exists is one thing, and to know it before it is computed is another. Behind a ReLU two thin
#    matrices learn to tell. Behind a SiLU nothing is zero, and a coarse copy of the layer can tell what is large.
# 3. What is saved is bytes of the MLP, at batch one, while decoding. Count the predictor, the attention and the head
#    before you promise a factor.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>Deja Vu speaks of 85 % contextual sparsity and of a model seven times smaller for each token. Why is
# its decoding only about twice as fast?</summary>
#
# $1 / (1 - 0.85)$ is nearly seven, but that is the oracle, which has computed everything before it chooses. The
# predictor finds less, it costs bytes itself, the attention of a long prompt has its cache to read, and eight devices
# have to talk to each other whatever the density.
#
# </details>
#
# <details><summary>A colleague evaluates a threshold on activations with windows of 2,048 tokens. To be fair, she
# leaves the first half of each window dense and scores only the second half. What does she measure?</summary>
#
# How a sparse model continues a text that a dense model has read. Each scored token is sparse, but half of the keys and
# values that it looks at are exact. A model that is sparse from its first token on reads worse.
#
# </details>
#
# <details><summary>A predictor finds 95 % of the active neurons. Is 95 % of the output there?</summary>
#
# Not necessarily, in either direction. Those that it misses may be the faint ones, and then more is there. They may be
# the few large ones, and then much less. Recall counts neurons; the energy weighs them.
#
# </details>
#
# ## Reading
#
# - Liu and others: *Deja Vu: Contextual Sparsity for Efficient LLMs at Inference Time*, ICML 2023,
#   [arXiv:2310.17157](https://arxiv.org/abs/2310.17157). Read sections 3 and 4.
# - Lee and others: *CATS: Contextually-Aware Thresholding for Sparsity in Large Language Models*, 2024,
#   [arXiv:2404.08763](https://arxiv.org/abs/2404.08763).
# - Liu and others: *Training-Free Activation Sparsity in Large Language Models*, 2024,
#   [arXiv:2408.14690](https://arxiv.org/abs/2408.14690). TEAL.
# - Mirzadeh and others: *ReLU Strikes Back: Exploiting Activation Sparsity in Large Language Models*, 2023,
#   [arXiv:2310.04564](https://arxiv.org/abs/2310.04564). Back to ReLU, with training.
# - Song and others: *PowerInfer: Fast Large Language Model Serving with a Consumer-grade GPU*, 2023,
#   [arXiv:2312.12456](https://arxiv.org/abs/2312.12456). Predictors on a desktop.
# - Shin and others: *SparseInfer: Training-free Prediction of Activation Sparsity for Fast LLM Inference*, 2024,
#   [arXiv:2411.12692](https://arxiv.org/abs/2411.12692). Signs as a predictor.
