# %% [markdown]
# # 12 · Capstone: one model, one budget
#
# Lessons 01 to 11 each made one thing smaller: weights, bits, the cache, the neurons a token computes, the blocks of
# keys it reads. Nobody runs a model with one of them alone. Put together they help or hurt each other, they have to be
# counted in one currency, and an order has to be found. Here you put a model together under a budget of bytes, say how
# much worse it is and how sure you are of that, and let it draft for the dense model. At the end stands a challenge.
#
# **Afterwards you can** count what a pruned and rounded layer takes, make mask and grid agree, compare two models on
# the same windows with an error, say which of many models nobody needs, split bytes over the parts of a model, write
# text with fewer loads of its weights, and read a claim of a paper with the verdict that it had here. **You need**
# lessons 00 to 04 and 07; 09 to 11 help. **Time**: two hours, 67 minutes of it for exercises, and the challenge.
#
# You will write seven functions. Under each is a `check`; it tells you what is wrong and, when it knows, which mistake
# it is. What follows an exercise uses your function on the real model once it is right, and the course's until then.

# %%
import torch

from course_lib.attention.speculative.accept import overlap
from course_lib.attention.speculative.draft import Lookup
from course_lib.attention.steering.auto import as_prompt
from course_lib.compose.build import build
from course_lib.compose.draft import drafting
from course_lib.compose.recipe import from_json
from course_lib.data import corpora
from course_lib.data.residents import passages
from course_lib.lessons.capstone import claims, estimates, live, plots, tables, widgets
from course_lib.lessons.capstone.challenge import try_recipes
from course_lib.models import layers_of, load_model
from course_lib.workbook import check, mine
from course_lib.workbook.ledger.view import claims as all_claims

# %%
model, tokenizer = load_model()
calibration = corpora.windows("wikipedia", 4, 128, tokenizer, split="calibration", seed=0)
recipes = estimates.recipes()
print(tables.provenance())

# %% [markdown]
# ## 1. The idea in one picture
#
# A *recipe* says which parts make a model smaller: how its weights are pruned and rounded, what stays in its cache,
# which neurons a token computes, a prompt. It is data, a few lines of JSON; whoever has it has the model. From left to
# right one part after another is added to the dense model.

# %%
plots.parts_added()

# %% [markdown]
# Three questions follow. How many bytes are that, all told? How much worse is the text, and could that be chance? And
# what does a part cost once the others are there?
#
# ## 2. Bytes: what is stored, all of it
#
# "Half of the weights, 4 bits each" sounds like an eighth of 16 bits. But codes need a grid, and zeros have to be
# known. Of a layer of $O$ rows and $I$ columns with $K$ weights that are not zero, in groups of $g$ columns and codes
# of $b$ bits, one of three things can be stored:
#
# - **all codes**: $b$ bits for every weight, each row in whole bytes; a zero is a code like any other;
# - a **bitmap**: $b$ bits for each of the $K$ weights, all in one run; one bit for every weight, each row in whole
#   bytes; and where each row begins, $O + 1$ numbers of 4 bytes;
# - an **index**: the same run of codes and the same beginnings, and for each of the $K$ weights its column, 2 bytes.
#
# All three need the grids: for each row $\lceil I / g \rceil$ scales of 2 bytes, and as many zero points of $b$ bits,
# which fill whole bytes in each row.

# %% [markdown]
# ### Three ways to store a layer
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# What does not fill its last byte takes all of it. A weight of exactly 0 is one that was pruned.


# %% exercise="capstone.bytes"
def ways_to_store(weight, bits, group):
    """The bytes of a layer in each of three ways: {"all codes": …, "bitmap": …, "index": …}.

    weight: (O, I), the layer, pruned and rounded; 0 where a weight was pruned. bits: of a code and
    of a zero point: 2, 4 or 8. group: columns that share a scale of 16 bits and a zero point; the
    last group of a row may be shorter.
    """
    ### BEGIN SOLUTION
    (rows, columns), kept = weight.shape, int(weight.count_nonzero())
    pieces = -(-columns // group)
    grids = rows * (2 * pieces + -(-pieces * bits // 8))
    some = -(-kept * bits // 8) + 4 * (rows + 1) + grids
    return {
        "all codes": rows * -(-columns * bits // 8) + grids,
        "bitmap": some + rows * -(-columns // 8),
        "index": some + 2 * kept,
    }
    ### END SOLUTION


# %%
check("capstone.bytes", ways_to_store)

# %% [markdown]
# Your count for a layer of the real model, over the share of its weights that are pruned:

# %%
layer = next(layer.module for layer in layers_of(model) if layer.name == "blocks.12.mlp.up_proj")
weight, ways = layer.weight.detach().clone(), mine("capstone.bytes", ways_to_store)
sparsities = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
order, bits_by_way = weight.abs().flatten().argsort(), {4: {}, 2: {}}
for sparsity in sparsities:
    pruned = weight.flatten().index_fill(0, order[: round(sparsity * len(order))], 0.0).reshape(weight.shape)
    for bits, found in bits_by_way.items():
        for way, size in ways(pruned, bits, 64).items():
            found.setdefault(way, []).append(8 * size / weight.numel())
plots.bits_per_weight(bits_by_way, sparsities)

# %% [markdown]
# A bitmap costs a bit a weight and saves $b$ bits for each zero. So zeros pay only if more than $1/b$ of the weights
# are zero: with 2 bits, half of them. What does that make of the numbers that papers print?

# %%
tables.published_sizes(recipes)

# %%
print(claims.TIMES_SMALLER.judge())

# %% [markdown]
# ## 3. Pruned and rounded
#
# The weights of our model came from a file in the format Q4_1: in each group of 32 there is a smallest value, a step,
# and a code of 4 bits. Such a grid runs from the smallest to the largest weight of its group, and 0 is no value of it.
# That is no loss: if a bitmap says where the zeros are, no code need stand for them.
#
# $$ \text{step} = \frac{\max - \min}{2^b - 1}, \qquad
# \hat w = \min + \text{step} \cdot \mathrm{round}\left(\frac{w - \min}{\text{step}}\right), $$
#
# with both ends taken over the weights of the group that *stay*.

# %% [markdown]
# ### A mask and a grid
# **Exercise** · difficulty 4 of 5 · 12 minutes · 4 points
#
# The mask is Wanda's (lesson 04): in each row the weights with the largest $|w_{ij}| \cdot \lVert x_j \rVert$ stay.
# Three decisions have to be made here, and each can be made too early or too late.


# %% exercise="capstone.combine"
def prune_and_round(weight, norm, n_kept, bits, group):
    """A layer pruned and rounded: (O, I).

    weight: (O, I). norm: (I,), above 0, of what each input receives. In each row the n_kept weights
    with the largest |w| · norm stay, judged by the weights as they are given; all others become 0.
    group: columns that share a grid; it divides I. A grid has 2**bits values, evenly spaced from
    the smallest to the largest weight that stays in its group and row; each of these goes to the
    nearest value. If just one stays, it is its grid's only value. If none stays, the group is 0.
    Equal scores and weights halfway between two values do not occur.
    """
    ### BEGIN SOLUTION
    score = weight.abs() * norm
    keep = torch.zeros_like(score, dtype=torch.bool).scatter(1, score.topk(n_kept).indices, True)
    low = weight.masked_fill(~keep, torch.inf).unflatten(1, (-1, group)).amin(2, keepdim=True)
    high = weight.masked_fill(~keep, -torch.inf).unflatten(1, (-1, group)).amax(2, keepdim=True)
    step = (high - low) / (2**bits - 1)
    code = torch.where(step > 0, (weight.unflatten(1, (-1, group)) - low) / step, 0).round()
    return torch.where(keep, (low + code * step).flatten(1), 0)
    ### END SOLUTION


# %%
check("capstone.combine", prune_and_round)

# %% [markdown]
# The same layer, half of it pruned and the rest on 3 bits in groups of 64: by your function, and with one decision
# made elsewhere. The error is that of what the layer puts out for a text. (Where the ends of a group are among what
# stays, as they mostly are at a half, a grid of all weights is the same.)

# %%
combine, inputs_by_layer = mine("capstone.combine", prune_and_round), []
handle = layer.register_forward_pre_hook(lambda module, arguments: inputs_by_layer.append(arguments[0][0]))
with torch.no_grad():
    model(calibration[:1], use_cache=False)
handle.remove()
inputs, n_inputs = inputs_by_layer[0], weight.shape[1]
norm, ones = inputs.norm(dim=0), torch.ones(n_inputs)
keep = torch.zeros_like(weight).scatter(1, (weight.abs() * norm).topk(n_inputs // 2, dim=1).indices, 1.0)
on_grid = combine(weight, ones, n_inputs, 3, 64)  # all weights, rounded
keep_rounded = torch.zeros_like(weight).scatter(1, (on_grid.abs() * norm).topk(n_inputs // 2, dim=1).indices, 1.0)
candidates = {
    "mask, then a grid\nof the kept weights": combine(weight, norm, n_inputs // 2, 3, 64),
    "mask, and a grid\nof all weights": on_grid * keep,
    "rounded first,\nthen pruned": on_grid * keep_rounded,
    "pruned, and zeros\nrounded too": combine(weight * keep, ones, n_inputs, 3, 64),
}
energy = (inputs @ weight.T).square().sum()
plots.output_errors(
    {name: float((inputs @ (weight - other).T).square().sum() / energy) for name, other in candidates.items()}
)

# %% [markdown]
# One layer is not a model. SparseGPT and GPTQ make up for what they take away, so that the second one can repair what
# the first did, and not the other way round. Does the order matter for the whole model? (SparseGPT fixes its grids
# before its sweep begins: it prunes and rounds column by column, and does not know yet what stays.)

# %%
plots.orders()

# %%
print(claims.ZEROS_FIRST.judge())

# %% [markdown]
# ## 4. How much worse, and could it be chance?
#
# Some windows of text are hard for every model. Perplexities of a dozen windows say more about the windows than about
# the model. But two models read the *same* windows, and how hard one is drops out of the difference:

# %%
plots.paired_windows()

# %% [markdown]
# With $d_w$, the loss of window $w$ less the dense model's, the ratio of the two perplexities and an interval of two
# standard errors are
#
# $$ r = \exp(\bar d), \qquad \left[\, \exp(\bar d - 2\,\mathrm{se}),\ \exp(\bar d + 2\,\mathrm{se}) \,\right], \qquad
# \mathrm{se} = \frac{s_d}{\sqrt N}, \quad s_d^2 = \frac{1}{N-1} \sum_w (d_w - \bar d)^2 . $$

# %% [markdown]
# ### How much worse, and how sure
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# A recipe may do well on articles and badly on other text. So each domain has its own ratio, and in the challenge the
# worse one counts.


# %% exercise="capstone.ratio"
def ratio(losses, dense):
    """By what factor a model's perplexity is above the dense one's: (ratio, low, high), (D,) each.

    losses, dense: (D, N), of the model and of the dense one, in nats a token, for N windows, at
    least two, in each of D domains; both have read the same windows. low, high: the ends of an
    interval that reaches two standard errors of the mean difference to either side.
    """
    ### BEGIN SOLUTION
    more = losses.double() - dense.double()
    mean, error = more.mean(dim=1), more.std(dim=1) / more.shape[1] ** 0.5
    return mean.exp(), (mean - 2 * error).exp(), (mean + 2 * error).exp()
    ### END SOLUTION


# %%
check("capstone.ratio", ratio)

# %% [markdown]
# Now a whole recipe, a small one. `build` prunes, rounds and fits from calibration text alone, and keeps every tensor
# that has to be stored; bytes are counted from these, not from what the recipe promises.

# %%
recipe = from_json('{"weights": {"bits": 4, "rounding": "nearest"}}')  # a grid for each whole row
built = build(recipe, model, calibration)
own, dense = live.measure("mine", built, tokenizer), estimates.find(recipes, "dense")
domains = ("wikipedia", "boolq")
own_losses, dense_losses = (torch.tensor([row[domain][:2] for domain in domains]) for row in (own, dense))
for domain, *found in zip(domains, *mine("capstone.ratio", ratio)(own_losses, dense_losses), strict=True):
    print("{}: {:.2f} times the perplexity, {:.2f} to {:.2f}".format(domain, *found))
tables.own_recipe(own, dense)

# %% [markdown]
# ## 5. What does a part cost, once the others are there?
#
# Alone a part may be cheap and on top of the others dear, or the other way round. Which of the two is its cost? The
# *Shapley value* (1953) is the mean over all orders in which parts can be added. Five parts have 120 orders, but only
# 32 subsets, so it can be had exactly from 32 models: with $v(S)$ the loss of the model with the parts $S$, and $B_i$
# those that come before part $i$ in an order,
#
# $$ \varphi_i = \frac{1}{120} \sum_{\text{orders}} \left( v(B_i \cup i) - v(B_i) \right), \qquad
# \sum_i \varphi_i = v(\text{all}) - v(\text{none}) . $$

# %%
plots.part_costs()

# %%
print(claims.LAST_MINUS_ALONE.judge())

# %% [markdown]
# Where two parts together cost more than their costs add up to, they hurt each other:

# %%
plots.interactions()

# %% [markdown]
# ## 6. Which of many models nobody needs
#
# A model that costs more bytes and is worse than another can be forgotten. What is left is the *Pareto set*, or front.
# Two things make it harder than it sounds. A loss is known up to its error, so a model is beaten only by one that costs
# no more and is better by more than two standard errors *of the paired difference*. And there are ties: two models may
# lose exactly the same in every window, as one that changes nothing about the text does. Then the cheaper one beats
# the other, and of twins that also cost the same both stay.

# %% [markdown]
# ### Which nobody should take another for
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# Sorting helps less than one hopes. The best model so far may swing so much from window to window that it beats less
# than a slightly worse one does.


# %% exercise="capstone.front"
def front(cost, losses):
    """Which of M models no other beats: (M,), True where one stays.

    cost: (M,), bytes; less is better. losses: (M, N), of N windows, at least two, the same for all
    models; less is better. i beats j if cost[i] <= cost[j] and the mean over windows of
    losses[j] - losses[i] is more than 2 of its standard errors (2, not 1.96). i also beats j if
    their losses are exactly equal in every window and cost[i] < cost[j].
    """
    ### BEGIN SOLUTION
    more = losses.double()[None] - losses.double()[:, None]  # [i, j]: by how much j loses more
    error = more.std(dim=2) / losses.shape[1] ** 0.5
    no_dearer, cheaper = cost[:, None] <= cost, cost[:, None] < cost
    clearly = no_dearer & (more.mean(dim=2) > 2 * error)
    twins = (more == 0).all(dim=2) & cheaper
    return ~(clearly | twins).any(dim=0)
    ### END SOLUTION


# %%
check("capstone.front", front)

# %% [markdown]
# Every recipe that was measured for this lesson, and yours from above with its two windows. Choose by what a model is
# judged: bytes held are what a machine must have, bytes read are what a token waits for.

# %%
cost = torch.tensor([row["stored"] + row["cache"] for row in recipes])
on_front = mine("capstone.front", front)(cost, torch.tensor([row["wikipedia"] for row in recipes]))
print(f"{int(on_front.sum())} of {len(recipes)} recipes are on the front")
widgets.pareto_front(recipes, [own])

# %%
tables.pareto_front(recipes)

# %%
print(claims.BEST_WITHIN.judge())

# %% [markdown]
# ## 7. A budget for all parts
#
# How should bytes be split over the parts of a model, when each could be stored in several ways? Begin with the
# smallest of everything. Then ask again and again: which step to the next level saves most loss *for each byte it
# takes*? Where each step of a part is worth less than the one before, as it mostly is, no other choice of as many bytes
# is better, up to the first step that no longer fits (Fox, 1966). Behind it smaller steps fill the rest, and that is
# only a good guess.

# %% [markdown]
# ### Where the next byte goes
# **Exercise** · difficulty 3 of 5 · 12 minutes · 4 points
#
# A step changes what the next one is worth. And a step that does not fit is not the end: a smaller one may.


# %% exercise="capstone.split"
def split(sizes, losses, budget):
    """The level of each part under a budget of bytes: (P,), whole numbers.

    sizes: (P, L), whole numbers, the bytes of each of P parts at each of L levels, from the
    smallest to the largest; each level takes at least one byte more than the one before. losses:
    (P, L), what is lost with that part at that level; it falls along a row. Start with every part
    at level 0, which fits. A step takes one part up one level. As long as a step fits, so that all
    parts together take at most budget bytes, take the one of those that fit that saves most loss
    for each byte it takes more. No two of them save the same.
    """
    ### BEGIN SOLUTION
    levels = [0] * len(sizes)
    left = budget - int(sizes[:, 0].sum())
    while True:
        steps = []
        for part, level in enumerate(levels):
            if level + 1 < sizes.shape[1]:
                more = int(sizes[part, level + 1] - sizes[part, level])
                saved = float(losses[part, level]) - float(losses[part, level + 1])
                if more <= left:
                    steps.append((saved / more, part, more))
        if not steps:
            return torch.tensor(levels)
        _, best, more = max(steps)
        levels[best], left = levels[best] + 1, left - more
    ### END SOLUTION


# %%
check("capstone.split", split)

# %% [markdown]
# Three parts of the real model, each rounded alone: to 3 bits in groups of 64, to 4 bits with a grid for a whole row,
# to 4 bits in groups of 64. Measured on a window of calibration text; your split takes no more bytes than 4 bits by
# rows for everything, and is judged on other text.

# %%
curves, grids = live.level_curves(model, calibration[:1]), list(live.LEVELS)
levels = mine("capstone.split", split)(curves.sizes, curves.losses, int(curves.sizes[:, 1].sum()))
held_out = corpora.windows("wikipedia", 4, 128, tokenizer, split="evaluation", seed=0)
uniform = dict.fromkeys(curves.names, 1)
chosen = {name: int(level) for name, level in zip(curves.names, levels, strict=True)}
gain_of_split = live.losses_at(model, held_out, uniform) - live.losses_at(model, held_out, chosen)
error = gain_of_split.std() / len(gain_of_split) ** 0.5
print(f"the split has a lower loss than {grids[1]} for all by {gain_of_split.mean():.3f} ± {error:.3f} nats per token")
tables.levels(curves.names, grids, curves.sizes, curves.losses, levels)

# %% [markdown]
# The embedding is the head as well: a fifth of all weights, read by every token. What is measured alone and added up is
# a guess, since costs do not add up (section 5).
#
# ## 8. The small model drafts for the large one
#
# A smaller model is mostly a worse one. It need not write worse text: let it draft $k$ tokens, and let the
# dense model check them in one pass (lesson 11; Leviathan and others, 2023). A drafted token $x$ stays with probability
# $\min(1, p(x)/q(x))$. At the first that falls the pass ends with another one, drawn from
#
# $$ p'(x) = \frac{(p(x) - q(x))_+}{\sum_y (p(y) - q(y))_+} , $$
#
# and if all stay, with one more, drawn from $p$ behind them. In lesson 11 you said which tokens stay. Here is the whole
# pass, with the token that is drawn, and the end of the text.

# %% [markdown]
# ### A whole drafted block
# **Exercise** · difficulty 3 of 5 · 12 minutes · 4 points
#
# To draw a word from a distribution with a number `u` in [0, 1), add up its probabilities in their order and take the
# first word at which the sum is above `u`.


# %% exercise="capstone.speculate"
def block(drafted, q, p, luck, stop):
    """The tokens that one pass adds to a text: 1 to k + 1 of them, whole numbers.

    drafted: (k,), token numbers. q: (k, V), the distributions that they were drawn from. p:
    (k + 1, V), the model's at the same places and at the one behind them. luck: (k + 1,), numbers
    in [0, 1). Token x at place i stays if luck[i] < p[i, x] / q[i, x]. The first that does not is
    replaced and ends the pass; if all stay, one is added. That token is drawn with luck[k], the
    last number, either way. stop: the token that ends a text. It belongs to the text, and what
    comes behind it does not.
    """
    ### BEGIN SOLUTION
    tokens, weights = [], p[-1]
    for i, x in enumerate(drafted.tolist()):
        if luck[i] * q[i, x] >= p[i, x]:
            weights = torch.relu(p[i] - q[i])
            break
        tokens.append(x)
    reached = weights.double().cumsum(dim=0) / weights.double().sum()
    tokens.append(int((reached <= luck[-1]).sum().clamp(max=len(reached) - 1)))
    return tokens[: tokens.index(stop) + 1] if stop in tokens else tokens
    ### END SOLUTION


# %%
check("capstone.speculate", block)

# %% [markdown]
# The recipe of section 4 as the draft of the dense model, and beside it lookup, which knows only the text so far and
# costs nothing. The task is to repeat something.

# %%
passage = passages(1, seed=3)[0].text
prompt = as_prompt(tokenizer, f"Repeat this text word for word:\n\n{passage}")
ids = torch.tensor(tokenizer(prompt, add_special_tokens=False).input_ids)
a_pass, end = mine("capstone.speculate", block), tokenizer.eos_token_id
with drafting(built) as small:
    for name, draft in {"the recipe": small, "lookup": Lookup(model.config.vocab_size)}.items():
        new, passes = live.write(model, ids, 24, draft, a_pass, k=4, temperature=0.5, stop=end)
        print(f"{name}: {len(new)} tokens in {len(passes)} passes of the dense model")
        print(tokenizer.decode(new))

# %% [markdown]
# Fewer passes are not yet fewer bytes. If each drafted token stays with probability $\alpha$, a pass gives
#
# $$ 1 + \alpha + \dots + \alpha^k = \frac{1 - \alpha^{k+1}}{1 - \alpha} $$
#
# tokens (equation 1 of the paper), and the draft is read $k$ times for it.

# %% [markdown]
# ### What a draft is worth
# **Exercise** · difficulty 2 of 5 · 7 minutes · 2 points
#
# The model checks the newest token of the text and the $k$ drafted ones in a single pass, which costs a little more
# than a pass over the newest token alone. What is the difference between the cost of a token without a draft and with
# one? It has the unit of the costs, seconds or bytes.


# %% exercise="capstone.gain"
def gain(acceptance, k, model, further, draft):
    """Tokens per pass, and a token's cost without a draft minus that with one: two numbers.

    acceptance: the probability that a drafted token stays, 0 to 1, both possible. k: tokens drafted
    for a pass, 1 or more. model: what a pass of the model over one token costs; without a draft a
    token costs that. A pass that checks k drafted tokens reads k + 1 tokens. further: what each
    token beyond the first adds to it. draft: what one drafted token costs. All costs are in one
    unit. The second number is a difference in that unit, below 0 if the draft does not pay.
    """
    ### BEGIN SOLUTION
    tokens = sum(acceptance**i for i in range(k + 1))
    return tokens, model - (model + k * (further + draft)) / tokens
    ### END SOLUTION


# %%
check("capstone.gain", gain)

# %% [markdown]
# In loads of the dense model's bytes, with what the recipe of section 4 reads and how often its tokens were right:

# %%
with torch.no_grad(), built.running():
    p, q = (each(ids[None], use_cache=False).logits[0].double().softmax(dim=-1) for each in (model, built.model))
alpha, read = float(overlap(p, q).mean()), own["read"] / dense["read"]
gain_of = mine("capstone.gain", gain)
plots.gains(
    {
        f"{name}, α = {alpha:.2f}": [gain_of(alpha, k, 1.0, 0.0, cost)[1] for k in range(1, 13)]
        for name, cost in {"the recipe": read, "one as good at a tenth of the bytes": 0.1}.items()
    }
)

# %%
tables.drafts()

# %%
print(claims.COMPRESSED_DRAFT_BYTES.judge())

# %% [markdown]
# Loads are fewer with nearly every draft, bytes with few. Sampled at temperature 1 the lookup hardly ever guesses
# right. The greedy texts of so small a model go round in circles, and whoever repeats itself is easily looked up: that
# says more of the text than of the draft. Compressed drafts agree with the dense model on about three tokens a pass,
# but each of their own passes reads a third of its bytes or more.
#
# ## 9. What became of the claims
#
# Every claim of the lectures and papers behind this course has a record: what is claimed, which line of which lesson
# judges it, and the verdict, from an effect and its error. Choose a verdict; [the page](../docs/claims.md) has them
# all.

# %%
all_claims()

# %% [markdown]
# ## 10. The challenge
#
# **A third of the bytes held, a quarter of the bytes read.** Of the dense model's bytes, weights and cache together
# behind 1,024 tokens, a recipe may hold a third and read a quarter for each token. Lose as little as you can, on text
# that nobody has seen.
#
# What you hand in is data: a recipe, and at most 64 kB of numbers if it has a prompt of its own. The grader builds the
# model with its own library, counts the bytes itself, and reads windows of two domains that nobody knows before;
# the worse of the two counts. It believes no number that was sent. 20 points, by how much of the way is made from a
# uniform half of the weights to what the course's own recipe reaches.
#
# Eight recipes at most are tried on two windows, some twenty seconds each. One is there; change it, and add others:

# %%
my_recipes = {
    "3 bits": {
        "embedding": {"bits": 4, "group": 32},
        "weights": {"bits": 3, "group": 64, "rounding": "nearest"},
        "cache": {"policy": "Full", "bits": 4},
    },
}

# %%
tries = try_recipes(my_recipes, model, tokenizer)
plots.tries(tries)

# %%
tables.tries(tries)

# %% [markdown]
# When you are content, write the folder that is handed in, and have it judged as the grader does it, on more windows
# and both domains:
#
# ```python
# from course_lib.lessons.capstone.challenge import hand_in
#
# hand_in(my_recipes["3 bits"], "my_challenge")  # then, on the command line: course challenge my_challenge/recipe.json
# ```
#
# **Your own number is not the grade.** `course challenge` reads four windows of each domain, the grader 32, drawn from
# the same articles by a seed that nobody knows before. The nats above the dense model move with the windows by about
# the ± beside them, and points are measured by three recipes that the grader reads on its windows, too. Another
# processor also has another order of sums: a weight is rounded to the neighbouring value, or another token leaves the
# cache, and the last digits differ. Two recipes of yours whose numbers lie within their ± of each other may change
# places.
#
# ## 11. Cost, and when it does not pay
#
# Bytes are not seconds. A kernel has to leave out what need not be read, and the work in between must cost less than
# what it saves:

# %%
plots.bytes_and_time()

# %%
print(claims.FEWER_BYTES_LESS_TIME.judge())

# %% [markdown]
# Whole recipes, as the course runs them, behind 1024 tokens of text; then 32 tokens written with a draft.

# %%
tables.timed_recipes()

# %% [markdown]
# Where do the bytes stay? **Pruned and rounded weights** were unpacked once, so that the clock sees dense floats: they
# save memory, and a step takes as long. Unpacked from what is stored at each product, they cost the unpacking.
# **H2O** adds up attention and sorts slots at every token, and unrounds what it reads, more than 1024 tokens of cache
# can pay for; **StreamingLLM** only drops. **CATS** computes all gates to choose, and copies rows. A **lookup** pays,
# since it costs no pass of its own; a **draft** whose passes take as long as the model's cannot, however few it saves.
#
# - **Fewer bits** are the first thing to take: every token reads fewer bytes, whatever the text. They become time only
#   where a kernel computes with codes as they are stored.
# - **Zeros beside few bits** save bytes only above a share of $1/b$.
# - **A smaller cache** is nothing at 100 tokens and most of the bytes at 100,000.
# - **Chosen neurons** save reading, not holding. In a batch every token needs others.
# - **Drafts** leave the text as it is, and pay where one text is written at a time and the draft costs a tenth.
#
# ## 12. An open task
#
# Section 5 measured five parts. Which sixth would you add, and what does it cost beside the others? There is no formula
# and nothing is graded. A part is one file; [this page](../docs/contributing.md#a-part-of-a-recipe) says what is in it.
#
# ## To take home
#
# 1. Count everything that is stored: codes, grids, maps, beginnings, cache. Two counts that know nothing of each other
#    should agree to the byte.
# 2. Compare on the same windows, and give the error of the difference. A difference below two of its errors is no
#    difference.
# 3. A part's cost depends on what is there already. Report it alone and on top.
# 4. Give the next byte to the step that saves most for it, and look again.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>A layer on 2 bits has 40 % zeros. A colleague stores codes of what is not zero and a bitmap. What do
# you tell them?</summary>
#
# 0.6 · 2 + 1 = 2.2 bits a weight and the beginnings of rows on top, where all codes take 2. With 2 bits zeros pay from
# half on. They may still save multiplications, but not bytes.
#
# </details>
#
# <details><summary>Two recipes lose 0.30 ± 0.06 and 0.36 ± 0.06 nats on the same eight windows. Is the first one
# better?</summary>
#
# That cannot be told from these numbers. The errors are those of each against the dense model, and what both find hard
# is in both. Take the difference window by window: its error may be 0.01, or 0.08.
#
# </details>
#
# <details><summary>A draft stays with α = 0.6 and reads half of the model's bytes. What is the best k?</summary>
#
# One, and hardly that: 1.6 tokens for 1.5 loads are 0.94 loads a token. With k = 2 it is
# 2 loads for 1.96 tokens, more than without a draft. At a tenth of the bytes, k = 3 would be 1.3 loads for
# 2.18 tokens: 0.60 a token.
#
# </details>
#
# ## Reading
#
# - Leviathan, Kalman, Matias: *Fast Inference from Transformers via Speculative Decoding*, 2023,
#   [arXiv:2211.17192](https://arxiv.org/abs/2211.17192).
# - Frantar, Alistarh: *SparseGPT*, 2023, [arXiv:2301.00774](https://arxiv.org/abs/2301.00774), section 3.5 on pruning
#   and rounding in one sweep.
# - Shapley: *A value for n-person games*, 1953, [doi](https://doi.org/10.7249/P0295).
# - Fox: *Discrete optimization via marginal analysis*, 1966, [doi](https://doi.org/10.1287/mnsc.13.3.210).
