# %% [markdown]
# # 06 · Mixture of experts: parameters that most tokens never meet
#
# So far something was taken out of a model, and it was the same for every text. A mixture of experts leaves everything
# in, and decides for each token which part of it to compute. Then a model can have many more parameters than it
# multiplies for one token. What decides is a small linear map, the *router*, and most of this lesson is about what it
# takes to train one.
#
# **Afterwards you can** write the routers of the best known models, send tokens to experts and back, say which weight
# gives a router a gradient and which does not, keep loads in balance, estimate a gradient from the one expert that ran,
# and say when all of this is faster than a dense model. **You need** lesson 00. **Time**: two hours, 83 minutes of it
# for exercises.
#
# You will write eight functions. Under each is a `check`; it tells you what is wrong and, when it knows, which mistake
# it is. What follows an exercise uses your function once it is right, and the course's until then.

# %%
import torch
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from course_lib.attention.small_models.byte_model import byte_windows
from course_lib.data import corpora
from course_lib.lessons.common import gpu
from course_lib.lessons.common.results import load_measured
from course_lib.lessons.moe import budget, deck
from course_lib.lessons.moe.experiments import moe_ideas as ideas
from course_lib.lessons.moe.drawings import balance as drawn_balance
from course_lib.lessons.moe.drawings import gate as drawn_gate
from course_lib.lessons.moe.drawings import history, layer, learning, places
from course_lib.lessons.moe.figures import classic as classic_plots
from course_lib.lessons.moe import kept as kept_plots
from course_lib.lessons.moe.figures import measured as measured_plots
from course_lib.lessons.moe.figures import routing as routing_plots
from course_lib.lessons.moe.figures import training as training_plots
from course_lib.lessons.moe.live import classic, gradients, noise, routed, training, view
from course_lib.lessons.moe.tables import classic as classic_tables
from course_lib.lessons.moe.tables import compared
from course_lib.lessons.moe.tables import measured as measured_tables
from course_lib.lessons.moe.tables import printed, published
from course_lib.measure.perplexity import window_losses
from course_lib.models import load_model
from course_lib.moe.classic.descent import train, vowel_samples
from course_lib.moe.classic.learners import Mixture
from course_lib.moe.routers.expert_choice import ExpertChoice
from course_lib.moe.routers.gshard import GShard
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routers.switch import Switch
from course_lib.moe.small_models.byte_mixture import load_byte_mixture, routings
from course_lib.moe.small_models.specialisation import by_chance, counted, known_share
from course_lib.workbook import check, mine

# %%
model, tokenizer = load_model()
held_out = corpora.windows("wikipedia", 4, 128, tokenizer, split="evaluation", seed=0)
block_number, n_experts = 15, 4
reads = routed.mlp_inputs(model, block_number, held_out)  # what the MLP of one block reads: (4, 128, 576)
gate = routed.first_gate(n_experts, reads.shape[2])
logits = reads.flatten(0, 1) @ gate.T
print(f"{len(logits)} tokens at block {block_number}; {n_experts} experts, and a gate that has learnt nothing")

# %% [markdown]
# ## 1. The idea in one picture
#
# A block of a transformer has an MLP that every token goes through. Put several MLPs in its place, the *experts*, and
# in front of them the router: one row of weights for each expert. Its product with the token says how well each expert
# suits; the best few are computed, and their outputs are added up with weights. Nothing else of the model changes.

# %%
layer.one_layer()

# %% [markdown]
# ## 2. The gate
#
# With $N$ experts $E_i$ and logits $h(x) = W x$, the source lecture writes
#
# $$ p_i(x) = \frac{e^{h(x)_i}}{\sum_j e^{h(x)_j}}, \qquad y = \sum_{i \in \mathcal{T}} p_i(x)\, E_i(x), $$
#
# where $\mathcal{T}$ are the $k$ experts of the largest logits. For $k = 1$ these are equations 1 and 2 of Switch
# (Fedus, Zoph and Shazeer, 2021).

# %% [markdown]
# ### The deck's gate
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Write the weights of the equation: the softmax over *all* experts, kept for each token's k best and zero for the
# others. Mixtral takes the softmax of the k best logits alone. Both give k numbers for each token; which of them add up
# to one, and what does the other sum tell?


# %% exercise="moe.gate"
def gate_weights(logits, k):
    """What each expert's output is multiplied by: p_i(x) for the k best experts of a token, zero
    for all others.

    logits: (T, E), T tokens and E experts; they may be large. k: how many experts a token is sent
    to, 1 to E.
    p is the softmax over all E experts of a token. Returns (T, E) with exactly k chosen experts in
    every row; among equal logits any may be chosen.
    """
    ### BEGIN SOLUTION
    of_all = logits.softmax(dim=1)
    best = logits.topk(k, dim=1).indices  # (T, k)
    return torch.zeros_like(of_all).scatter(1, best, of_all.gather(1, best))
    ### END SOLUTION


# %%
check("moe.gate", gate_weights)

# %%
drawn_gate.top_k_then_softmax()

# %% [markdown]
# Does the difference matter? Take the MLP of one block of our model four times as four experts. They all say the same,
# so their weighted sum should be what the MLP says. It is that MLP times the sum of the weights.

# %%
weights = mine("moe.gate", gate_weights)(logits, 2)
same = routed.experts_from(model, block_number, n_experts)
tokens, one = reads.flatten(0, 1), same.one(0, reads.flatten(0, 1))
both = {"probabilities of all experts": weights, "softmax of the two best alone": Mixtral(2).route(logits).weights}
display(printed.copies_table({name: each.sum(1, keepdim=True) * one for name, each in both.items()}, one))
total = weights.sum(1)
print(f"a token's two weights add up to {total.min():.2f} to {total.max():.2f}")

# %% [markdown]
# Neither is wrong. Switch and OLMoE multiply by the probability itself; Shazeer's first large mixture, GShard and
# Mixtral make the weights add up to one. But a model that was trained with one of the two cannot be run with the other.
# Here is the whole model with all its MLPs copied in this way, and an untrained router in each block.

# %%
losses = {"dense": window_losses(model, held_out, progress=False)}
for name, router in {"weights that add up to one": Mixtral(2), "probabilities of all experts": OLMoE(2)}.items():
    with routed.copied(model, n_experts, router):
        losses[f"four copies of each MLP, {name}"] = window_losses(model, held_out, len(held_out), progress=False)
printed.perplexities(losses)

# %% [markdown]
# ## 3. What teaches a router
#
# A choice has no gradient: a logit that rises a little changes nothing until it passes another. The router learns
# through the weights that stand before the outputs, and through nothing else.

# %% [markdown]
# ### A weight that teaches the router
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# With one expert a token the layer is $y = p_i(x) E_i(x)$, Switch's equation 2. The router learns through that factor
# alone: through what else could it hear that it chose badly? Return the weight, and the gradient that it leaves for the
# logits: one line on paper (what does a softmax do to the *other* logits when one probability has to rise?), or
# autograd.


# %% exercise="moe.top1"
def top_one(logits, slope):
    """The weight of each token's most likely expert as Switch has it, and the gradient that it
    gives the router.

    logits: (T, E), no two of a token equal; they may be large. slope: (T,), the derivative of the
    loss with respect to each token's weight.
    Returns (weight, gradient): (T,), the factor before the chosen expert's output, equation 2 with
    p the softmax over all E experts; and (T, E), the derivative of the loss with respect to the
    logits. The choice itself has none.
    """
    ### BEGIN SOLUTION
    of_all = logits.softmax(dim=1)
    weight, chosen = of_all.max(dim=1)
    of_choice = torch.nn.functional.one_hot(chosen, logits.shape[1])
    return weight, (slope * weight)[:, None] * (of_choice - of_all)
    ### END SOLUTION


# %%
check("moe.top1", top_one)

# %%
differ = routed.experts_from(model, block_number, n_experts, noise=0.3)
top = mine("moe.top1", top_one)
found = {"1 expert, its probability": routed.top_one_gradient(tokens, gate, differ, top)}
for name, (experts, router) in {
    "1 expert, weights add up to one": (differ, Mixtral(1)),
    "2 experts, weights add up to one": (differ, Mixtral(2)),
    "2 experts, add up to one, all experts alike": (same, Mixtral(2)),
    "2 experts, probabilities, all experts alike": (same, OLMoE(2)),
}.items():
    found[name] = routed.gate_gradient(tokens, gate, experts, router)
printed.gradient_table(found)

# %% [markdown]
# A single weight that is divided by itself is always 1, and a router that always says 1 cannot learn. So Switch does
# not renormalise. With two experts and weights that add up to one, a gradient is there as long as the experts differ:
# it compares them. Copies do not differ, and the router hears nothing but rounding. Where probabilities stay as they
# are, copies do give a gradient, but all that it can ask for is more or less of the same output.
#
# That matters for *upcycling* (Komatsuzaki and others, 2022), which makes a mixture out of a trained dense model by
# copying each MLP, and trains on. At the first step the mixture computes what the model computed, which is the charm of
# it. But with weights that add up to one its router is dead until something makes the copies differ: noise, or neurons
# that are drawn anew (Drop-Upcycling, Nakamura and others, 2025).

# %%
history.upcycled()

# %% [markdown]
# `upcycled(model, n_experts, k, Difference(noise=0.1))` of `course_lib.moe.upcycling` does it for a Llama, and what it
# gives saves as a Mixtral that `from_pretrained` loads. `course reproduce moe_upcycling` measured it, in 23 minutes.
# First all MLPs of SmolLM2 as four copies each, before any training, on more text than above: with weights that add up
# to one it is the same model, with probabilities as they are it is none.

# %%
copied = load_measured("moe", "experiments/moe_upcycling")
measured_tables.copies(copied)

# %% [markdown]
# Then the model of bytes: the dense one and four mixtures of its copies learn on for 200 steps, from the same bytes in
# the same order, with a loss for the balance (section 6).

# %%
display(measured_tables.first_gradients(copied))
print(measured_tables.trained_on(copied))

# %% [markdown]
# Equal copies leave the gates nothing but rounding and the balance to learn from, as said. All the same they read a
# little better than the dense model after these steps: copies that see different bytes become different by themselves.
# Neurons that are drawn anew give the gates most to learn from, and cost more at first than 200 steps bring back. Two
# copies a byte cost twice the products of one MLP; one copy costs none more than the dense model.
#
# ## 4. There and back
#
# The weights of most experts are zero for a token. Who computes them all the same pays for every parameter.

# %% [markdown]
# ### Each expert once
# **Exercise** · difficulty 4 of 5 · 12 minutes · 4 points
#
# Computing every expert for every token and multiplying by zeros is right and costs E / k times too much. Instead sort
# the T · k pairs of a token and an expert by expert, so that each expert reads one block of neighbouring rows, and
# bring the results home. When two experts write to the same token, what becomes of the first? And what if nobody chose
# an expert?


# %% exercise="moe.dispatch"
def dispatch(tokens, chosen, weights, into, out):
    """The output of a layer of experts, each of which runs once, on the rows of its own tokens.

    tokens: (T, D). chosen: (T, k), each token's experts, no two alike. weights: (T, k), what their
    outputs are multiplied by. into: (E, 2F, D), out: (E, D, F). Expert e makes of a row x:
    (silu(g) * u) @ out[e].T, where g and u are the first and second half of x @ into[e].T.
    Returns (token, ends, output): (T * k,), which token is in each row once the pairs are sorted by
    expert, expert 0 first; (E,), where the rows of each expert end
    (an expert without tokens ends where the one before it does); (T, D), the weighted sum over each
    token's experts. An expert that nobody chose is not run: its weights may hold anything.
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

# %%
places.dispatch()

# %%
best, chosen = weights.topk(2, dim=1)
_, ends, output = mine("moe.dispatch", dispatch)(tokens, chosen, best, differ.into, differ.out)
slowly = sum(weights[:, [e]] * differ.one(e, tokens) for e in range(n_experts))
print(f"rows of the {n_experts} experts end at {ends.tolist()}")
print(
    f"beside all experts for all tokens it differs by {(output - slowly).abs().max():.1e}, of {slowly.abs().max():.1f}"
)
print(f"rows multiplied: {chosen.numel()}, where all experts for all tokens take {n_experts * len(tokens)}")

# %% [markdown]
# Tokens may also be chosen by experts: each expert takes the tokens that it likes most, and loads are equal by
# construction (Zhou and others, 2022). What is wrong with that in a model that writes from left to right?

# %%
places.token_choice_and_expert_choice()

# %%
routers = {
    "top-2, as the lecture has it": OLMoE(2),
    "Switch, capacity 1.25": Switch(capacity_factor=1.25),
    "GShard, second choices after all first ones": GShard(),
    "expert choice": ExpertChoice(),
}
sequence = logits[: reads.shape[1]]
printed.moved_table(routed.moved_by_the_last(sequence, routers), len(sequence))

# %% [markdown]
# An expert that takes its best tokens takes a later one instead of an earlier one. Whoever trains such a decoder lets
# it read the future, and at decoding there is no future to read.
#
# ## 5. Places
#
# On many devices each expert lives on one of them, and its part of a batch has to have a size that is known beforehand.
# Switch gives an expert as many places as an equal share of the tokens, times a *capacity factor*.

# %% [markdown]
# ### Who overflows
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Switch hands the places out in the order of the tokens. Who comes too late loses the expert, not the residual stream.
# A group is what shares the places, here a sequence. Why should the places not go to the largest weights?


# %% exercise="moe.capacity"
def with_capacity(stream, outputs, chosen, weights, n_experts, factor):
    """The residual stream behind a layer whose experts take only so many tokens of each group:
    Switch, equation 3.

    stream: (G, N, D), what enters the layer: G groups of N tokens. outputs: (G, N, D), what each
    token's expert would make of it. chosen: (G, N), the number of that expert, below n_experts.
    weights: (G, N), what outputs are multiplied by. In every group each expert has factor * N /
    n_experts places, rounded down; that is at least one place. Tokens take the places in order.
    Returns (keep, new stream): (G, N), True where a token found a place; (G, N, D).
    """
    ### BEGIN SOLUTION
    places = int(factor * chosen.shape[1] / n_experts)
    wish = torch.nn.functional.one_hot(chosen, n_experts)  # (G, N, E)
    place = (wish.cumsum(dim=1) * wish).sum(dim=2)  # counted from 1
    keep = place <= places
    return keep, stream + torch.where(keep, weights, 0)[..., None] * outputs
    ### END SOLUTION


# %%
check("moe.capacity", with_capacity)

# %% [markdown]
# If the largest weights had the places, a later token could take one from an earlier token, and the layer would read
# the future again. For two experts a token GShard serves the first choices of all tokens before any second one, with
# the same effect, as the table above shows.

# %%
overflow, by_sequence = mine("moe.capacity", with_capacity), logits.view(*reads.shape[:2], -1)
likeliest, nothing = by_sequence.argmax(dim=2), torch.zeros(*reads.shape[:2], 1)
kept = {
    factor: float(overflow(nothing, nothing, likeliest, nothing[..., 0], n_experts, factor)[0].float().mean())
    for factor in (0.5, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
}
routing_plots.overflow(kept, n_experts)

# %% [markdown]
# Places that stay empty cost time too. What Switch reports for two factors, and for one expert a token beside two:

# %%
published.switch()

# %% [markdown]
# With E / k times an equal share there are as many places as tokens, and nothing is ever dropped. *Dropless* layers do
# without places: what you wrote in section 4 takes whatever comes, and a grouped product multiplies it in one call.
#
# ## 6. Balance
#
# What happens if a router is left to itself? Shazeer and others (2017) describe a circle: an expert that is a little
# better at first gets more tokens, learns more, and is better still.

# %% [markdown]
# ### Keep the loads in balance
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Nothing so far asks a router to use all of its experts. Switch adds a loss for each layer, α N Σ f P (equations 4 to
# 6), in which f counts who was chosen and P says how probable each expert was. Counting has no gradient, so f is a
# plain number and only P pushes: it pushes most where f is large. One thing is easily got wrong where there are several
# layers. Suppose one layer sends everything to its first expert, and the next one everything to its last: what do f and
# P look like if they are averaged over the layers first?


# %% exercise="moe.balance"
def balance(logits, chosen, alpha):
    """The balance loss of all layers, and its gradient with respect to the logits.

    logits: (L, T, E), of the gates of L layers for T tokens and E experts. chosen: (L, T, k), the
    numbers of the k experts that each token asked for. alpha: a number.
    For each layer, f (E,) holds the experts' shares of its T * k choices, which are counts and have
    no gradient, and P (E,) the mean over tokens of the softmax over all experts. The loss of a
    layer is alpha * E * sum(f * P): alpha at balance, whatever k. Returns (loss, gradient): the
    mean of the layers' losses, and its gradient (L, T, E).
    """
    ### BEGIN SOLUTION
    n_layers, n_tokens, n_experts = logits.shape
    probs = logits.softmax(dim=2)
    share = torch.nn.functional.one_hot(chosen, n_experts).sum(dim=(1, 2)) / chosen[0].numel()  # (L, E): f
    each = alpha * n_experts * (share[:, None] * probs).sum(dim=2, keepdim=True)  # of every token
    gradient = probs * (alpha * n_experts * share[:, None] - each) / (n_layers * n_tokens)
    return each.mean(), gradient
    ### END SOLUTION


# %%
check("moe.balance", balance)

# %%
even_out = mine("moe.balance", balance)
printed.per_layer(printed.two_layers(), even_out, load_balancing_loss_func)

# %% [markdown]
# The widely used implementation in `transformers` averages over layers before it multiplies, and sees no difference:
# each layer has collapsed, but not onto the same experts. Its numbers are divided by k here, since it counts every
# choice of a token in full.

# %%
drawn_balance.by_layer()

# %% [markdown]
# Now let something learn. A small model of bytes, two blocks of eight experts of which two compute each byte, reads
# articles of Wikipedia and paragraphs of BoolQ. It routes with your gate of section 2, once as it is and once with your
# loss beside that of the text. α is the 0.01 that Switch takes.

# %%
router = training.GateOfYours(gate=mine("moe.gate", gate_weights))

# %%
runs = {
    "no balancing": training.learn(router),
    "balanced": training.learn(router, added=training.penalty(even_out, alpha=0.01)),
}
display(printed.runs_table(runs, router.k))
print(printed.runs_lines(runs))

# %%
training_plots.loads(runs, router.k)

# %% [markdown]
# Dark is much. Both models begin alike: soon two experts have nearly everything, and which two may change from one look
# to the next. With the loss the loads spread out; without it two experts keep most. What that costs, the verdict says
# for this one run, which begins from small weights, of deviation 0.02; from larger ones loads need not collapse.
# What Shazeer and others report is for 256 experts, trained for long:

# %%
published.losses()

# %% [markdown]
# `course reproduce moe` trained larger models of bytes for 800 steps, in 75 minutes: four blocks, from three beginnings
# and from larger first weights. One is dense; the others have eight experts in each block, of which one computes a
# byte, or two of half the size. So all multiply as much for a byte, but for the gates.

# %%
measured = load_measured("moe")
measured_tables.ends(measured)

# %%
kept_plots.losses()

# %%
print(compared.experts(measured))

# %% [markdown]
# Three or six times the weights for the same FLOP, and no kind is clearly ahead from every beginning. A likely
# reason is that all of them read 1.6 million bytes, few for so many weights, and that each expert sees a part of
# these. What Switch reports in section 5 is for 100,000 steps: that experts pay is a claim about long training.
#
# Then the loads, and what the balance loss does to the loss of the text:

# %%
kept_plots.loads()

# %%
for name, k in {"top-1": 1, "top-2": 2}.items():
    print(measured_tables.collapse(measured, name, k))
print(compared.balancing(measured))

# %% [markdown]
# From these first weights fewer blocks collapse. With one expert a byte it is the first block, from each beginning, and
# one expert keeps nearly all bytes of it; with two experts it depends on the beginning. With the balance loss no block
# has so busy experts. The loss of the text is not what gains by that here: one expert a byte reads worse with it from
# every beginning, and with two it is clearly better from one and clearly worse from another. On many devices, where all
# wait for the busiest one, even loads are worth something in themselves.
#
# DeepSeek-V3 balances without such a loss: each expert has a bias that counts for the choice and not for the weight,
# and after each step it moves a little against the load.
#
# ## 7. Who gets which byte
#
# Here is a text that neither model was trained on, with the numbers of the experts below each byte. Choose a model, a
# block, and the expert whose bytes are marked.

# %%
ids = byte_windows(1)[0]
seen = {
    name: view.watched(ids, routings(run.model, ids[None], OLMoE(router.k))) for name, run in reversed(runs.items())
}
view.explore(seen)

# %%
its = byte_windows(48)[:, :-1].flatten()
here = runs["balanced"].reading.routings[0].chosen
training_plots.favourites(counted(its, here), known_share(counted(its, here)), by_chance(its, here))

# %% [markdown]
# In the first block a good part of who gets a byte is decided by the byte alone, whatever stands around it. That is a
# weaker thing than an expert for a subject, which the word suggests.
#
# The course keeps a model of the same kind that has learnt longer: four blocks, 800 steps, with the loss (`course
# reproduce byte_mixture`).

# %%
kept = load_byte_mixture(1, 1).model
view.explore({"800 steps, balanced": view.watched(ids, routings(kept, ids[None]))})

# %%
for number, routing in enumerate(routings(kept, byte_windows(48)[:, :-1])):
    share, chance = known_share(counted(its, routing.chosen)), by_chance(its, routing.chosen)
    print(f"block {number}: the byte decides {100 * share:.0f} % of who gets it; by chance {100 * chance:.1f} %")

# %% [markdown]
# In each block the byte alone explains far more than chance would, and leaves most of it unexplained. The same, as
# means over the three beginnings of section 6:

# %%
measured_tables.specialisation(measured, "top-2, balanced")

# %% [markdown]
# ## 8. Noise, and what it is good for
#
# Shazeer and others (2017) had another way to balance. Before the choice they add normal noise to each logit, as much
# as a second set of weights says: $H = x W_g + z \cdot \mathrm{softplus}(x W_\text{noise})$ (equations 3 to 5).

# %% [markdown]
# ### A load with a gradient
# **Exercise** · difficulty 4 of 5 · 12 minutes · 3 points
#
# This noise buys something: an expert near the edge is in with one draw and out with the next, so "how many tokens did
# it get" can be replaced by "how many would it get", which is smooth. Hold the noise of all the other experts fixed and
# draw that of expert i again: with which probability is it among the best k? Which logit does it have to beat, and is
# that the same one for an expert that is in and for one that is out?


# %% exercise="moe.load"
def smooth_load(clean, noise, noisy, k):
    """How many tokens each expert can expect, if its own noise were drawn again.

    clean: (T, E), the gate's logits x W_g. noise: (T, E), x W_noise, of which softplus makes the
    standard deviation.
    noisy: (T, E), H = clean + z * softplus(noise) with the z that was drawn. k: experts a token
    takes, below E.
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
# On our tokens: one draw of noise for each, counted and expected, beside what many draws give on average.

# %%
draws = noise.draws(logits, n_draws=200, k=2)
expected = mine("moe.load", smooth_load)(logits, draws.noise, draws.noisy, 2)
routing_plots.smooth(draws.counts[0], expected, draws.counts.mean(dim=0), len(draws.counts))

# %% [markdown]
# The load enters a loss as its squared coefficient of variation, variance over squared mean (equations 10 and 11), and
# the same is done for the sums of the weights, the *importance* (6 and 7).
#
# Noise of another kind is called *jitter*, and it has three meanings. Switch's text multiplies the router's *input* by
# numbers between 1 − ε and 1 + ε. Its pseudo-code *adds* such numbers to the logits. SparseMixer's code *multiplies*
# the logits. The source lecture adds noise to the logits, so it shows the pseudo-code.

# %%
drawn_gate.jitter_three_meanings()

# %% [markdown]
# In our library, as in the text of the paper, only the router reads the jittered input; the experts read the clean one.
# The lecture's third aid is the *z-loss* (Zoph and others, 2022), the mean of $(\log \sum_i e^{h_i})^2$: it keeps
# logits small, since large ones are rounded coarsely.
#
# `course reproduce moe_routers` measured both, on the bytes and from the beginnings of section 6, where each run has a
# twin without the aid. Before that, what Switch reports of jitter:

# %%
published.exploration()

# %%
aids = kept_plots.both()
print(compared.jitter(aids))
print(compared.z_loss(aids))

# %% [markdown]
# Jitter is ahead of its twin from each beginning, by more than in the paper; but another beginning moves the loss of
# such a model by far more than that. The z-loss does what it is made for: the logarithm of the sum falls to a third,
# while the largest logit changes little. It costs nothing here.
#
# Two ways to balance without a loss were measured with them: the bias of DeepSeek-V3, beside sigmoids without one, and
# experts that choose their bytes, of section 4.

# %%
display(compared.bias_table(aids))
print(compared.bias(aids))
print(compared.expert_choice(aids))

# %%
kept_plots.routers()

# %% [markdown]
# The bias evens loads more than the balance loss does, and the loss of the text pays for it: in two of three runs it
# costs more. Experts that choose have equal loads by construction. They are ahead from one beginning only, although a
# model that is read in this way sees some of the future; with each byte choosing, the same weights read a little worse.
#
# ## 9. Where it comes from
#
# The idea is from 1991. Jacobs, Jordan, Nowlan and Hinton had no top-k: all experts answered, and the gate said how
# much each answer counts.

# %%
history.timeline()

# %% [markdown]
# ### Which expert was it?
# **Exercise** · difficulty 3 of 5 · 9 minutes · 3 points
#
# What should an expert be told: how far the blended answer is off, or how far its own is? The third error of the paper
# (equation 1.3) takes the target for a draw from one of the experts, and is the negative logarithm of its probability.
# Its gradient moves each expert by its *responsibility*: the probability that the target was its own, now that the
# target is known. What becomes of the exponentials when a target is far from all experts?


# %% exercise="moe.jacobs"
def mixture(prior, outputs, target):
    """The error of a mixture of experts, and who is responsible.

    prior: (S, K), for each of S samples the probabilities p_i that the gate gives to K experts,
    before it sees the target. outputs: (S, K, O), their answers o_i. target: (S, O), d.
    Returns (error, responsibilities): -log of the sum over i of p_i exp(-|d - o_i|^2 / 2) for each
    sample, (S,), with no constant beside; and (S, K), each expert's share of that sum. Both stay
    finite however far the target is.
    """
    ### BEGIN SOLUTION
    squared = (target[:, None] - outputs).square().sum(dim=2)  # (S, K)
    joint = prior.log() - squared / 2
    return -joint.logsumexp(dim=1), joint.softmax(dim=1)
    ### END SOLUTION


# %%
check("moe.jacobs", mixture)

# %% [markdown]
# With $h_i$ the responsibilities, the gradient is $-h_i (d - o_i)$ at the output of an expert and $p_i - h_i$ at its
# logit. No autograd is needed to train a mixture with it. The paper's task: tell four vowels apart by two formants,
# measured on 76 speakers by Peterson and Barney (1952). Beside it stands the same mixture with the error of the blended
# answer, $\lVert d - \sum_i p_i o_i \rVert^2$ (1.1). Grey tones are the regions in which one expert is the likeliest;
# the shares are means over five beginnings.

# %%
vowels, unseen = vowel_samples()
trained = {
    "blended error": train(Mixture("cooperative"), vowels, seeds=range(5), epochs=600),
    "mixture error": classic.by_responsibilities(mine("moe.jacobs", mixture), vowels, range(5), epochs=600),
}
classic_plots.regions(trained, unseen)

# %% [markdown]
# With all experts at work both are as good. But an expert that learnt to make up for the others is of little use alone,
# and a sparse model runs one alone. The competition of the third error is what makes experts that can be chosen.
#
# Jordan and Jacobs (1994) put gates above gates, a tree with linear maps at its leaves, and fitted it by the EM
# algorithm: the responsibilities first, then a weighted regression for each expert and each gate. Here it learns how a
# two-joint arm moves.

# %%
climb = classic.climb(depth=3, n_steps=15)
classic_plots.climbed(climb, depth=3)

# %% [markdown]
# `course reproduce moe_classic` measured both with more beginnings, in six minutes: ten starts of each learner of
# vowels, with plain gradient descent at one rate for all, and five draws of the arm's samples for each depth.

# %%
found = load_measured("moe", "experiments/moe_classic")
display(classic_tables.vowels(found))
print(classic_tables.vowel_claims(found))
display(classic_tables.arms_table(found))
print(classic_tables.arms(found))

# %% [markdown]
# All learners end alike; the task is that easy. They differ in what one expert is worth alone, and in how soon they get
# there. The paper's point was speed: fewer epochs than one network that learns by backpropagation. The error of the
# blended answer learns soonest of all, and leaves experts that cannot be used alone.
#
# In 2017 Shazeer and others put many experts between two LSTMs and ran a few of them for each token. The same on bytes,
# with as many active neurons in all three models:

# %%
measured_plots.recurrent(found)

# %%
print(classic_tables.recurrent(found))

# %% [markdown]
# ## 10. A gradient for a choice
#
# In 1991 all experts were computed, and so it was known what each would have done. A sparse router knows that of one.
# Suppose it *draws* an expert from its probabilities π. The gradient of the expected loss has two parts,
#
# $$ \nabla \sum_i \pi_i\, L(\pi_i E_i)
#    \;=\; \underbrace{\sum_i L(\pi_i E_i)\, \nabla \pi_i}_{\text{which expert is drawn}}
#    \;+\; \underbrace{\sum_i \pi_i\, L'(\pi_i E_i) \cdot E_i\, \nabla \pi_i}_{\text{the factor before it}} , $$
#
# and backpropagation sees the second alone. SparseMixer (Liu, Gao and Chen, 2023) gets at the first without computing
# any other expert: $L(\pi_D E_D) - L(0)$ is an integral of slopes, and the slope at the middle, where the weight is
# $\pi_D / 2$, is a good guess at it.

# %%
learning.midpoint_rule()

# %% [markdown]
# ### A gradient from one expert
# **Exercise** · difficulty 4 of 5 · 12 minutes · 4 points
#
# SparseMixer halves the expert's weight every other time, and doubles the gradient of the weight always. Is the
# gradient that reaches π then halved as well? And the released code has one exception: the most likely expert is never
# halved, whatever the coin says.


# %% exercise="moe.estimate"
def sparsemixer(logits, drawn, halved, outputs, target):
    """What SparseMixer, version 1 as released, tells the logits from one draw for each token.

    logits: (T, E), of which softmax makes the probabilities pi. drawn: (T,), the number D of the
    expert that was drawn.
    halved: (T,), True where the coin says half. outputs: (T, V), what the drawn expert said, o.
    target: (T, V).
    The layer gives m * o, where m = pi_D, or pi_D / 2 if the coin says half and D is not the most
    likely expert. The loss of a token is |m * o - target|^2 / 2. Backwards m is taken for pi_D, and
    its gradient dL/dm, found at the m that was used, counts double. Returns (T, E): the gradient of
    each token's loss with respect to its logits.
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
# Is it right on average? There are only 2 E draws: every expert, with both sides of the coin. Weighed by their
# probabilities they give the mean exactly, and nothing has to be sampled.

# %%
printed.estimates_table(gradients.compared(mine("moe.estimate", sparsemixer), gradients.a_router()))

# %% [markdown]
# The midpoint rule is exact for a quadratic loss like this one, if every draw may be halved. The exception for the most
# likely expert costs that. An estimate can be right on average and still of no use, if single draws are far off. What
# is left of the error when T tokens are averaged, over 200 small networks that are not quadratic:

# %%
deck.estimators()

# %% [markdown]
# Averaging takes the noise away and leaves the bias. REINFORCE (Williams, 1992) has no bias and the largest noise; the
# multiplier alone has little noise and a bias that stays.
#
# ## 11. When it pays
#
# A mixture saves multiplications, not memory. While a model decodes, its time goes with the bytes that it reads (lesson
# 00), and an expert that one token wakes is read whole. If each of T tokens chooses k of E experts evenly, this many
# are awake:

# %%
printed.awake(8, 2, (1, 2, 4, 8, 16, 64))

# %% [markdown]
# `course bench moe` timed a layer of the size of our model's MLP, two of eight experts a token, beside a dense MLP with
# as many weights as two experts have.

# %%
deck.speeds()

# %% [markdown]
# - **At one token** a mixture reads two experts, as many bytes as its twin, however many experts there are. It still
#   takes longer here, and that cannot be for the bytes: so small a layer feels every further step, such as the routing.
# - **At some tokens**, here 8 to 64, the batch wakes most experts and reads three to four times the bytes, for the same
#   multiplications and a few rows an expert. Of the batches of the left panel that of 64 is the dearest.
# - **At many tokens** it costs little more than its twin while there are few experts. With many experts each has few
#   rows again.
# - **It does not pay** where memory is short: all experts have to lie somewhere. It does not pay for a batch of a few
#   sequences on one device, where a dense model of the same active size reads less.
#
# The lecture's two cases for a mixture follow: plenty of memory beside scarce computing, or experts spread over several
# devices.
#
# On a GPU every step has its price, too. Here are three ways to compute the same layer of 128 experts, eight a token,
# and two ways to choose and sort:

# %%
print(gpu.provenance())
few_and_many = ("tokens: 1, awake: 8 of 128", "tokens: 8192, awake: 128 of 128")
display(gpu.table("grouped_matmul", contests=few_and_many))
display(gpu.table("router_topk", contests=("8 of 128 experts, tokens: 1", "8 of 128 experts, tokens: 8192")))

# %% [markdown]
# A plain loop over all experts, in float32 and with those that have no token, loses to torch's grouped product at every
# number of tokens. With one token, choosing experts in plain torch takes longer than the products of all that were
# chosen, in three kernels (`kernels/experts/`). And see the bound: from one token to 8192 it grows far less than
# 8192 times, because a few tokens wake the experts and pay for their bytes already.
#
# ## 12. An open task
#
# What is the lowest loss that a byte model can reach at a fixed number of FLOP a byte? What lies in experts that a byte
# does not go to costs nothing here. Choose the numbers. There is no formula, and nothing is graded.


# %%
def choices():
    """What differs from the run of section 6: of "experts", "k", "neurons" of each expert, "width",
    "blocks", "alpha", and "weights", which are "probabilities" or "sum to one"."""
    return {"weights": "sum to one"}


# %%
usual = budget.usual(runs["balanced"])
print(f"at most {budget.BUDGET:,} FLOP a byte and {budget.MOST_WEIGHTS:,} weights")
budget.table(budget.attempt(choices()), usual)

# %% [markdown]
# The error is that of the text, not that of another beginning. What another beginning is worth, simple ideas show that
# were measured from two of them (`course reproduce moe_ideas`, six minutes). The first row is the run of section 6
# once more, with the library's loss in place of yours: the same but for rounding, which turns close choices, and it may
# end elsewhere.

# %%
ideas.table(ideas.stored(load_measured("moe", "experiments/moe_ideas")["tables"]["ideas"]))

# %% [markdown]
# Weights that sum to one, and one large expert in place of two, are ahead from one beginning and far behind from the
# other: such a gain is worth nothing, however small its error. Clearly ahead from both are the run without a balance
# loss, and the two experts at work without the six idle ones, which is a dense model. In so few steps more experts have
# not paid: each has seen a part of the bytes. Nor did they from every beginning in the longer runs of section 6.
#
# ## To take home
#
# 1. The router learns only through the weights before the outputs. A weight that is always 1, or experts that are all
#    alike, leave it without a gradient.
# 2. Left to itself a router may use few experts. What balances it has to look at each layer by itself.
# 3. A mixture has the multiplications of a small model and the memory of a large one. A batch of some dozen tokens
#    wakes all experts and leaves each of them few rows, and that is where it pays least.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>A mixture of top-1 is trained with weights that add up to one, and a balance loss. Its loads are
# perfect. What has its router learnt?</summary>
#
# To balance, and nothing else. The weight is 1 for whoever is chosen, so the loss of the text does not reach the
# router; the balance loss does. The loads would be as good with a random table.
#
# </details>
#
# <details><summary>The balance loss is exactly α in every layer. Are the loads equal?</summary>
#
# Not necessarily. If a router is so unsure that all of its probabilities are nearly 1 / N, then α N Σ f P is nearly α
# whatever f is, and a tiny lead may send every token to the same expert.
#
# </details>
#
# <details><summary>A model with 8 experts, 2 a token, decodes for one user at nearly the speed of a dense model of its
# active size. What happens with eight users at once?</summary>
#
# Eight tokens wake about seven of the eight experts. Each step reads more than three times the bytes that one user's
# did. The dense model reads the same bytes for eight as for one.
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
# - Komatsuzaki and others: *Sparse Upcycling*, 2022, [arXiv:2212.05055](https://arxiv.org/abs/2212.05055); Nakamura and
#   others: *Drop-Upcycling*, 2025, [arXiv:2502.19261](https://arxiv.org/abs/2502.19261).
# - Liu, Gao, Chen: *Sparse Backpropagation for MoE Training*, 2023,
#   [arXiv:2310.00811](https://arxiv.org/abs/2310.00811). SparseMixer.
# - Jacobs, Jordan, Nowlan, Hinton: *Adaptive Mixtures of Local Experts*, 1991,
#   [doi:10.1162/neco.1991.3.1.79](https://doi.org/10.1162/neco.1991.3.1.79).
# - Jordan, Jacobs: *Hierarchical Mixtures of Experts and the EM Algorithm*, 1994,
#   [doi:10.1162/neco.1994.6.2.181](https://doi.org/10.1162/neco.1994.6.2.181).
