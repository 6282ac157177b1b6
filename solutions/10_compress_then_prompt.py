# %% [markdown]
# # 10 · Compress, then prompt: what a few vectors win back
#
# Lessons 03 to 05 took weights out of a model, and lesson 03 rounded what was left. The model got smaller and worse.
# Here nothing is put back. The compressed weights stay as they are, and a few vectors are put before every text: a
# prompt that nobody wrote, found by gradient descent so that the model behind it reads better. Twenty of them take as
# much room as twenty of the 49,152 rows of our model's embedding. How much of the damage do they undo, and how much
# would they have won on a model without any damage?
#
# **Afterwards you can** put a prompt of vectors before a text, train it while the weights stay frozen, choose where it
# begins, compare a model with a prompt and without one on the same tokens, count the bytes of a model with half of its
# weights in 4 bits, and say how much of a prompt goes over to another model. **You need** lessons 00 and 04, and
# gradients. **Time**: two hours, 61 minutes of it for exercises.
#
# You will write seven functions. Under each is a `check`; it tells you what is wrong and, when it knows, which mistake
# it is. What follows an exercise uses your function on the real model once it is right, and the course's until then.

# %%
import torch
from torch.nn.functional import cross_entropy

from course_lib.data import corpora
from course_lib.lessons.common.table import Table, number, plus_minus
from course_lib.lessons.common.tables import load_measured, say
from course_lib.lessons.compress import deck
from course_lib.lessons.compress.drawings import inputs, sizes
from course_lib.lessons.compress.figures import further as further_plots
from course_lib.lessons.compress.figures import live as plots
from course_lib.lessons.compress.figures import measured as measured_plots
from course_lib.lessons.compress.live import learning, printed, sentences, view
from course_lib.lessons.compress import found
from course_lib.lessons.compress.tables import gain_tables, over, practice, published
from course_lib.models import load_model
from course_lib.prompts.hard import SENTENCES, hard_prompt, meaningless
from course_lib.prompts.soft import table_of
from course_lib.workbook import check, mine

# %%
model, tokenizer = load_model()
table = table_of(model)
to_learn = corpora.windows("wikipedia", 24, 64, tokenizer, split="calibration", seed=1)
held_out = corpora.windows("wikipedia", 12, 64, tokenizer, split="evaluation", seed=0)
print(f"{to_learn.numel()} tokens to learn from, {held_out.numel()} held out, no article in both")

# %% [markdown]
# Half of the weights of this model go, those that Wanda chooses row by row (lesson 04):

# %%
pruned = learning.half_pruned(tokenizer)
alone = {name: learning.losses_alone(each, held_out) for name, each in {"pruned": pruned, "dense": model}.items()}
Table(
    [{"model": name, "perplexity": losses.double().mean().exp().item()} for name, losses in alone.items()],
    caption="Perplexity without a prompt",
    formats={"perplexity": number(1)},
)

# %% [markdown]
# ## 1. The idea in one picture

# %%
inputs.idea()

# %% [markdown]
# A compressed model makes mistakes of its own, and they are always the same model's mistakes. "Compress, Then Prompt"
# (Xu and others, 2023) asks whether the input can tell the model to mind them. The authors first tried it in words, and
# then went over to vectors $E = (e_1, \dots, e_P)$ that stand where the embeddings of words would stand. With the
# compressed weights $\tilde W$ fixed, they minimise over the vectors alone
#
# $$ \mathcal{L}(E) = -\frac{1}{T} \sum_{t=1}^{T} \log p_{\tilde W}(x_t \mid E,\; x_1, \dots, x_{t-1}) . $$
#
# That is prompt tuning (Lester and others, 2021) with another aim: not a new task for a whole model, but the old task
# for a damaged one.
#
# ## 2. Vectors in the place of words
#
# A language model reads vectors. Normally these are rows of its table of embeddings, but nothing in it asks where they
# come from. Behind the prompt everything moves: the mask of what may be seen becomes longer, and the text begins at
# position $P$. In the figure the prompt is yellow, and dark is what a place sees.

# %%
inputs.positions_and_mask()

# %% [markdown]
# ### The prompt before the text
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Texts of different lengths are padded to one length, on the left or on the right. The padding's vectors stay as they
# are; the model does not see them, and they have no place in the order of positions:
#
# $$ \text{position}_i = \text{how many vectors that are seen stand before place } i . $$
#
# Give the model the three things that it needs.


# %% exercise="compress.before"
def before(prompt, text, real):
    """What a model reads when a prompt stands before each text: (vectors, seen, positions).

    prompt: (P, D), the same for all texts. text: (B, T, D), the embeddings of B texts.
    real: (B, T), True at tokens of the text, False at padding, which may stand on the left or on
    the right.
    vectors: (B, P + T, D), the prompt first in every row, before padding too; then `text`, with
    whatever stands at its padding.
    seen: (B, P + T), True at all that may be looked at.
    positions: (B, P + T), for what is seen the number of vectors before it that are seen; at
    padding anything.
    """
    ### BEGIN SOLUTION
    in_front = prompt.expand(len(text), -1, -1)
    seen = torch.cat([torch.ones(in_front.shape[:2], dtype=torch.bool), real], dim=1)
    return torch.cat([in_front, text], dim=1), seen, seen.cumsum(dim=1) - 1
    ### END SOLUTION


# %%
check("compress.before", before)

# %% [markdown]
# The first prompts were words, *hard prompts*; a *soft prompt* is one of vectors. Words stand before a text in the same
# way: a sentence is the rows of its tokens. Slides about the paper and its code have different sentences, so here are
# both. That of the code goes on in this notebook, beside a control: as many tokens drawn by lot. Only what a sentence
# does beyond that is due to its words.

# %%
put = mine("compress.before", before)
lots = meaningless(tokenizer, len(hard_prompt(tokenizer, SENTENCES["code"])), torch.Generator().manual_seed(0))
words = {
    f"{name}: {len(ids)} tokens": table[ids]
    for name, ids in {"code": hard_prompt(tokenizer, SENTENCES["code"]), "by lot": lots}.items()
}
for name, sentence in SENTENCES.items():
    say(f"{name}: {sentence}")
say(f"by lot: {tokenizer.decode(lots)!r}")

# %% [markdown]
# ## 3. A label for each place
#
# At each of the $P + T$ places the model says what comes next. Only some of these answers can be right or wrong.

# %%
inputs.labels()

# %% [markdown]
# ### What is scored
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# With $z_i$ the $i$-th thing that the model reads, the prompt first and then the tokens, counted from 0, the label of
# place $i$ is
#
# $$ y_i = z_{i+1} \text{ if that is a token of the text, and } -100 \text{ if not.} $$
#
# −100 is what `cross_entropy` leaves out. What does that mean for the places of the prompt, for the first token, and
# for the padding, which stands behind the text here?


# %% exercise="compress.labels"
def labels(ids, real, n_prompt):
    """The token that each place should predict, −100 where none: (B, P + T).

    ids: (B, T), the tokens; in the padding stands anything. real: (B, T), True at tokens of the
    text, which begins at place 0 of `ids` and has at least one token; padding follows. n_prompt: P,
    the vectors before the text, 0 or more.
    """
    ### BEGIN SOLUTION
    tokens = torch.where(real, ids, -100)
    around = torch.full((len(ids), n_prompt + 1), -100)
    return torch.cat([around[:, 1:], tokens, around[:, :1]], dim=1)[:, 1:]
    ### END SOLUTION


# %%
check("compress.labels", labels)

# %% [markdown]
# ## 4. Frozen weights
#
# The slope of the loss goes through the whole model and arrives at the prompt. On its way it passes every weight, and
# none of them may move: the compressed model is stored once and serves many prompts. One weight is easily overlooked.
# In our model, as in many small ones, the table of the embeddings is also the head that gives the logits. Whoever adds
# the prompt to that table and frees it frees the head as well.

# %%
parts = printed.parts_of(model)
plots.what_learns(parts, prompt=5 * table.shape[1])

# %% [markdown]
# ### What learns
# **Exercise** · difficulty 3 of 5 · 12 minutes · 4 points
#
# A model of two matrices is enough to get this right. It reads $x = [E;\, \text{table}[\text{ids}]]$ and remembers
#
# $$ h_0 = x_0, \qquad h_i = x_i + \tfrac12 h_{i-1}, \qquad \text{logits}_i = \text{table} \cdot \tanh(\text{mix} \cdot
# h_i) . $$
#
# The loss is the mean over all $T$ tokens of $-\log \mathrm{softmax}$ of the logits of the place before. Take one step
# of gradient descent in which the prompt learns and nothing else:
#
# $$ E \leftarrow E - \text{rate} \cdot \frac{\partial \mathcal{L}}{\partial E} . $$


# %% exercise="compress.frozen"
def learn_step(prompt, table, mix, ids, rate):
    """One step of learning for the prompt in front of a frozen model: (prompt, table, mix) after
    it.

    prompt: (P, D), at least one vector. table: (V, D), embeddings and head in one. mix: (D, D).
    ids: (T,), the text, at least one token; every one of them is predicted, the first by the last
    vector of the prompt.
    rate: the length of the step.
    """
    ### BEGIN SOLUTION
    learning = prompt.clone().requires_grad_()
    state, states = 0, []
    for vector in torch.cat([learning, table[ids[:-1]]]):
        state = vector + state / 2
        states.append(state)
    logits = torch.tanh(torch.stack(states) @ mix.T) @ table.T
    loss = cross_entropy(logits[len(prompt) - 1 :], ids)
    (slope,) = torch.autograd.grad(loss, learning)
    return prompt - rate * slope, table, mix
    ### END SOLUTION


# %%
check("compress.frozen", learn_step)

# %% [markdown]
# ## 5. The first vectors
#
# Gradient descent begins somewhere. Vectors of $N(0, 1)$ are far from everything that the model has learned to read:
# the rows of a trained table are much shorter, and lie together in a part of the space. The published code begins with
# rows of the vocabulary, the first ones. In our model these are special tokens and single characters. Here the rows are
# drawn by lot, each at most once.

# %%
deck.lengths()

# %% [markdown]
# ### Where a prompt begins
# **Exercise** · difficulty 1 of 5 · 5 minutes · 2 points
#
# Every token of the vocabulary has drawn a lot, a number between 0 and 1. The prompt begins with the rows of the $P$
# largest lots: that is drawing without putting back. Then it takes its first step. The table must not
# change when you subtract.


# %% exercise="compress.initial"
def first_prompt(table, lots, n, step):
    """A prompt that began with rows of the vocabulary, after its first step: (prompt, table).

    table: (V, D), the embeddings, which the model goes on using. lots: (V,), a number for each
    token, all different.
    n: P, how many vectors, 1 to V. step: (P, D), what the first step takes away from the vectors.
    Vector 0 begins with the row of the token with the largest lot, vector 1 with the next one, and
    so on.
    """
    ### BEGIN SOLUTION
    best = torch.argsort(lots, descending=True)[:n]
    begun = table[best].clone()
    begun -= step
    return begun, table
    ### END SOLUTION


# %%
check("compress.initial", first_prompt)

# %% [markdown]
# Now five vectors learn, from your beginning, your inputs and your labels: twelve steps of two windows, in front of the
# pruned model and, the same windows in the same order, in front of the dense one. That second prompt is a control. It
# shows what five vectors win on a model that has nothing to repair.

# %%
begin, label = mine("compress.initial", first_prompt), mine("compress.labels", labels)
by_lot = torch.rand(len(table), generator=torch.Generator().manual_seed(0))
begun, _ = begin(table, by_lot, 5, torch.zeros(5, table.shape[1]))
learned = {
    name: learning.learn(each, begun, to_learn, put, label) for name, each in {"pruned": pruned, "dense": model}.items()
}

# %% [markdown]
# Which words has it found? Each column is a moment, each row a vector, and in it stands the nearest word of the
# vocabulary with its cosine.

# %%
near = [printed.words_of(model, tokenizer, vectors) for vectors in learned["pruned"].path]
view.explore(learned["pruned"], near)

# %% [markdown]
# A vector that has become better than a word need not be close to another word. As long as the nearest word is the one
# that it began at, the words say where the prompt began and not what it does.

# %% [markdown]
# ## 6. What a prompt wins
#
# Has the prompt helped? Both models read the same windows, so compare them window by window. Two slips are easy. With a
# prompt even the first token of a window has a prediction, and a dear one; without a prompt it has none. And functions
# that give a loss for every place give 0 at the places of the prompt: whoever averages over all of them has made the
# loss smaller by the share of the prompt, whatever it does. For 100 vectors before 1,024 tokens, that alone turns a
# perplexity of 20 into about 15. The evaluation in the published code averages like this for the model with a prompt,
# and cannot for the one without. Whether the paper's tables were made with it is not known.

# %% [markdown]
# ### With and without a prompt
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# Let $d_w$ be the mean loss of window $w$ with the prompt less that without it, over the tokens that *both* score. The
# ratio of the perplexities and its standard error are
#
# $$ r = \exp(\bar d), \qquad \mathrm{se}(r) = r \cdot \frac{s_d}{\sqrt N}, $$
#
# with $s_d$ the standard deviation of the $N$ differences, with $N - 1$ in its denominator.


# %% exercise="compress.metric"
def compare(prompted, plain, real):
    """By what factor a prompt changes the perplexity, and the standard error of that: two numbers.

    prompted: (N, P + T - 1), losses of the model with P vectors before each window, at least one:
    at each place the loss of what stands behind it, and 0 where that is a vector of the prompt.
    plain: (N, T - 1), the same without a prompt, for tokens 1 to T - 1.
    real: (N, T), True at tokens of the window, at least two and at the beginning. Then follows
    padding, at which the losses are any numbers. Every window counts the same. There are at least
    two.
    """
    ### BEGIN SOLUTION
    first = prompted.shape[1] - plain.shape[1]
    counts = real[:, 1:].double()
    by_window = ((prompted[:, first:] - plain) * counts).sum(dim=1) / counts.sum(dim=1)
    ratio = by_window.mean().exp()
    return ratio, ratio * by_window.std() / len(by_window) ** 0.5
    ### END SOLUTION


# %%
check("compress.metric", compare)

# %% [markdown]
# All on the same held-out windows: the learned prompts, the sentence and its control.

# %%
ratio_of, real = mine("compress.metric", compare), torch.ones_like(held_out, dtype=torch.bool)
behind = {
    ("pruned", name): learning.losses_at_places(pruned, rows, held_out, put, label) for name, rows in words.items()
}
for name, each in {"pruned": pruned, "dense": model}.items():
    behind[name, "its own, 5 vectors"] = learning.losses_at_places(each, learned[name].last, held_out, put, label)
rows = [(*which, *ratio_of(losses, alone[which[0]], real)) for which, losses in behind.items()]
display(printed.comparison(alone, rows))
plots.ratios([(*which, float(ratio), float(error)) for *which, ratio, error in rows])

# %%
own = {name: behind[name, "its own, 5 vectors"] for name in alone}
gains = {name: printed.gain(own[name], alone[name]) for name in alone}
print(printed.claims(gains["pruned"], gains["dense"]))
say(printed.averaged_zeros(own["pruned"], alone["pruned"]))

# %% [markdown]
# The first verdict alone would be a success story. The second asks what "recovers" should mean: a prompt that helps the
# pruned model no more than the dense one has learned what Wikipedia looks like, and has repaired nothing. Twelve steps
# on 12 windows can leave that open; section 9 has it for longer runs, more models and stronger compression. The last
# line is the trap of above on your own numbers.

# %% [markdown]
# ## 7. What 50 % and 4 bits take
#
# Half of the weights, and a quarter of the bits of each: eight times smaller, says a slide. Two of the things that must
# be stored are not in that product. Something says where the weights that are left stand, and something says what a
# code means. And the table of the embeddings is neither pruned nor rounded, which in a small model is much.

# %%
sizes.bits()

# %% [markdown]
# ### Bytes of 50 % and 4 bits
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# Stored are, for each layer of $O$ rows and $I$ columns,
#
# - a code of `bits` bits for each weight that is not zero, all in one run;
# - a bitmap, one bit for every weight, each row in whole bytes;
# - the starts of the rows, $O + 1$ numbers of 4 bytes (lesson 01);
# - for each row and each group of `group` columns, of which the last may be shorter: a scale of 16 bits, and a zero
#   point of `bits` bits; the zero points of a row fill whole bytes.
#
# All other numbers of the model, and those of the prompt, have 16 bits. So has everything in the dense model that it
# is compared with, and that one has no prompt.


# %% exercise="compress.bytes"
def stored_bytes(layers, others, prompt, bits, group):
    """The bytes of a pruned and rounded model with its prompt, and how many times smaller that is
    than in 16 bits.

    layers: (rows, columns, weights that are not zero) for each layer. others: how many numbers are
    neither pruned nor rounded. prompt: how many numbers the prompt has, P * D. bits: of a code, 2,
    4 or 8. group: columns in a group.
    What does not fill its last byte takes all of it. Returns two numbers.
    """
    ### BEGIN SOLUTION
    n_bytes = 2 * (others + prompt)
    for rows, columns, n_stored in layers:
        pieces = -(-columns // group)
        a_row = -(-columns // 8) + 2 * pieces + -(-pieces * bits // 8)
        n_bytes += -(-n_stored * bits // 8) + rows * a_row + 4 * (rows + 1)
    return n_bytes, 2 * (others + sum(rows * columns for rows, columns, _ in layers)) / n_bytes
    ### END SOLUTION


# %%
check("compress.bytes", stored_bytes)

# %% [markdown]
# Your count for the model that was pruned above, with five vectors, in groups of 128:

# %%
stored, (shapes, others) = mine("compress.bytes", stored_bytes), printed.shapes_of(pruned)
by_part = []
for name, (bits, n_others, n_prompt) in {
    "the pruned layers alone": (4, 0, 0),
    "the whole model": (4, others, 0),
    "with its prompt": (4, others, begun.numel()),
}.items():
    n_bytes, times = stored(shapes, n_others, n_prompt, bits, 128)
    by_part.append({"part": name, "memory (MB)": n_bytes / 1e6, "times smaller than in 16 bits": float(times)})
Table(
    by_part,
    caption="What the compressed model takes",
    formats={"memory (MB)": number(2), "times smaller than in 16 bits": number(2)},
)

# %% [markdown]
# ## 8. In front of another model
#
# A prompt learned in front of one compressed model can be put in front of another: pruned further, rounded instead of
# pruned, or used on other text. The paper says that prompts go over. To say how far, three things have to be kept
# apart. A prompt for Wikipedia helps any model on Wikipedia, the dense one too: that is no repair. What is won beyond
# that is repair. And the yardstick is a prompt that was learned in front of the very model.

# %% [markdown]
# ### How much goes over
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# For each window let $g$ be by how much a prompt lowers the loss: on the compressed model with the prompt that came
# from elsewhere ($g^\text{moved}$), on it with its own ($g^\text{own}$), and on the dense model with one of its own
# ($g^\text{dense}$). With $a = g^\text{moved} - g^\text{dense}$ and $b = g^\text{own} - g^\text{dense}$, both for each
# window, the share that goes over is
#
# $$ q = \frac{\bar a}{\bar b}, \qquad \mathrm{se}(q) = \frac{s_{a - q b}}{\sqrt N\, |\bar b|} . $$
#
# The error is that of a ratio of two means over the same windows: where a window wins much from either prompt, that
# drops out of $a - q b$. $s$ has $N - 1$ in its denominator.


# %% exercise="compress.transfer"
def share_of_gain(plain, own, moved, dense, dense_own):
    """What share of the repair a prompt from elsewhere reaches, and its standard error: two
    numbers.

    All (N,), mean losses of the same windows, N at least two. Of the compressed model: plain
    without a prompt, own with the prompt that was learned in front of it, moved with the one from
    elsewhere. Of the dense model: dense without a prompt, dense_own with one that was learned in
    front of it. The mean of b is not 0; it may be negative. The share may be below 0, and above 1.
    """
    ### BEGIN SOLUTION
    of_dense = dense - dense_own
    a, b = plain - moved - of_dense, plain - own - of_dense
    over = a.mean() / b.mean()
    return over, (a - over * b).std() / len(a) ** 0.5 / b.mean().abs()
    ### END SOLUTION


# %%
check("compress.transfer", share_of_gain)

# %% [markdown]
# The two prompts of section 5 change places. Each stands in front of the model that the other one learned from:

# %%
for name, each, other in (("pruned", pruned, "dense"), ("dense", model, "pruned")):
    behind[name, f"learned on {other}"] = learning.losses_at_places(each, learned[other].last, held_out, put, label)
swapped = sorted(which for which in behind if "vectors" in which[1] or "learned" in which[1])
plots.ratios([(*which, *map(float, ratio_of(behind[which], alone[which[0]], real))) for which in swapped])

# %% [markdown]
# After so few steps the gain beyond the control is small, and a share of next to nothing says nothing. Longer runs have
# more to share: 20 vectors, 32 steps of four windows (`course reproduce prompts`). Your function on their window
# losses, for prompts moved onto the model that GPTQ rounded to 3 bits:

# %%
share = mine("compress.transfer", share_of_gain)
measured = found.results()
shares = []
for source in ("dense", "wanda-50", "sparsegpt-50-4bit"):
    over_to, error = share(*printed.window_losses(measured, source, "gptq-3"))
    row = {"prompt learned on": found.called(source), "fraction of the repair": float(over_to), "error": float(error)}
    shares.append(row)
Table(
    shares,
    caption="What a moved prompt does of the own prompt's repair",
    formats={("fraction of the repair", "error"): plus_minus(2, sign=True)},
)

# %% [markdown]
# A share below 0 means that the moved prompt does less for this model than the dense model's prompt does for the dense
# one: what goes over is what it knows of the text, and of the repair nothing.
#
# ## 9. The claims, measured
#
# `course reproduce prompts` compresses the model in many ways and learns a prompt in front of each. First what a prompt
# of its own wins, in nats a token, and how much of that is beyond what the dense model wins from one.

# %%
print(gain_tables.provenance(measured))
display(gain_tables.gains_table(measured))
print(gain_tables.gains(measured))

# %%
measured_plots.gains(measured)

# %% [markdown]
# A prompt lowers the perplexity of every model, the dense one too. The worse a model has been hurt, the more is won
# beyond that, and the further from good it stays: what Wanda at 75 % wins looks enormous and leaves a perplexity of
# hundreds. Where compression has cost little, at Wanda 50 % or GPTQ with 4 bits, the gain is that of the dense model.
# The weights come from a file with 4 bits a weight. The grids used here do not meet the one of that file, so rounding
# them again loses about what rounding weights without a grid would (lesson 03, section 8).

# %%
display(over.sentences_table(measured))
print(over.sentences(measured))

# %% [markdown]
# The authors' sentences do not help this model of 135 million parameters, which can hardly follow an instruction; they
# do it less harm than tokens by lot. Then the paper's main claim, that prompts go over:

# %%
display(over.moved_table(measured))
display(over.shares_table(measured))
print(over.moved(measured))

# %%
measured_plots.moved(measured)

# %% [markdown]
# Half or more of the moved prompts lower the perplexity, as the prompt of the dense model does too. Beyond that nothing
# goes over here: a repair is one model's own.
#
# What does the gain depend on? One setting at a time is changed, on the model pruned by Wanda:

# %%
display(gain_tables.settings_table(measured))
print(gain_tables.settings(measured))

# %%
further_plots.settings(measured)

# %% [markdown]
# Another draw of the words to begin at and of the order of the texts moves the result by 0.03 nats. That is in none of
# the errors here, which are those of the windows, and a draw stands behind every number of the tables above. Told apart
# are only those that lie outside of both: three times the steps win twice as much, four times the vectors half as much
# again. How much of that is repair is open, since the dense model's prompt had 32 steps. Where the prompt begins makes
# no difference that one could see, not even rows of $N(0, 1)$, seven times as long as words.
#
# A prompt that has learned from Wikipedia, on paragraphs of another collection and on questions:

# %%
display(over.other_text_table(measured))
print(over.other_text(measured))
display(practice.tasks_table(measured))
print(practice.tasks(measured))

# %%
further_plots.elsewhere(measured)

# %% [markdown]
# What goes over to this text is the repair too: with 3 bits the prompt wins 0.18 nats more than the dense model's does
# there, against 0.17 where it has learned. But the paragraphs of BoolQ were once taken from Wikipedia, so another kind
# of text remains to be tried. Of questions nothing can be told: with 100 each of three tasks no model answers clearly
# more with its prompt, and none clearly fewer.

# %% [markdown]
# ## 10. Cost, and when it does not pay
#
# The prompt is small on a disk. In use it is read as tokens are:

# %%
sizes.places()

# %% [markdown]
# And it has rivals. One can train thin matrices beside the frozen weights (LoRA), compute again what is left (a refit),
# or teach all of it by the dense model (distillation). LoRA passes about as many tokens through the model as the prompt
# does, forth and back. Distillation has fewer steps, a teacher beside it, and takes about twice the seconds.

# %%
display(practice.rivals_table(measured))
print(practice.rivals(measured))
display(practice.smaller_table(measured))
print(practice.smaller(measured))

# %% [markdown]
# The papers report other things of larger models. Their tables were not to be had, so this stands on their abstracts
# and on the authors' script:

# %%
published.beside(measured)

# %%
measured_plots.practised(measured)

# %% [markdown]
# - **It pays** where compressed weights cannot be touched, because they were packed once and serve many, and texts are
#   long beside the prompt.
# - **It does not pay** where an adapter may be stored: LoRA of as many bytes reads clearly better after as many tokens.
#   With three times the steps the prompt comes to where LoRA was. And where the weights may change, on the cut model
#   distillation wins 0.61 nats, a refit without a step of training 0.22, the prompt 0.15.
# - **It is no way back.** No compressed model with its prompt comes within 0.05 nats of the dense model here, and none
#   is eight times smaller.
#
# ## 11. An open task
#
# Words are stored for nothing, and everybody can read them. Which sentence of at most 40 tokens helps the pruned model
# most? There is no formula, and nothing is graded.


# %%
def my_sentence():
    """Words that stand before every text of the pruned model."""
    return SENTENCES["code"]


# %%
tried = sentences.attempt(my_sentence(), pruned, tokenizer, held_out)
print(sentences.against_alone(tried, alone["pruned"]))

# %% [markdown]
# Simple ideas were measured on twice as many windows (`course reproduce prompt_words`), on the dense model as well: a
# sentence that helps both says something about the texts and nothing about the damage.

# %%
stored_ideas = load_measured("compress", "experiments/prompt_words")["tables"]["sentences"]
display(sentences.table_of_ideas(stored_ideas))
print(sentences.verdict_on_ideas(stored_ideas))

# %% [markdown]
# Clearly ahead on the pruned model is the shortest of them, an end of a line, and it helps the dense model too. It says
# nothing, but it stands first: without it the first token of a text has to draw the attention that goes nowhere else
# (lesson 08), which may be why. A gain is one only on windows that were not looked at while the sentence was chosen: to
# tune, take `split="calibration"`.
#
# ## To take home
#
# 1. A prompt of vectors is an input that is learned. It needs a longer mask and moved positions, and the weights behind
#    it stay frozen, the head too where it is the table of the embeddings.
# 2. Compare with and without a prompt on the same tokens, window by window. A zero that is averaged looks like a gain.
# 3. A prompt also helps a model that nobody has damaged. Only what it wins beyond that is repair, and only against that
#    can one say what goes over.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>A colleague prunes a model, trains a prompt in front of it on 5,000 documents, and reports that the
# perplexity on other documents of the same site fell by a fifth. Has the prompt repaired the model?</summary>
#
# One cannot say. A prompt that has learned what these documents look like helps the dense model as well. Train one in
# front of the dense model, in the same way and for as long, and take its gain off.
#
# </details>
#
# <details><summary>Half of the weights and 4 bits of 16: why is the file not eight times smaller?</summary>
#
# A weight that is left takes 4 bits and every weight one bit of the map, so half of the weights are 3 bits a weight and
# not 2. The scales come on top. And the embeddings, which nobody pruned, stay in 16 bits.
#
# </details>
#
# <details><summary>The prompt takes a few kilobytes. What else does it cost, for every text?</summary>
#
# It is read as tokens are: $P$ places in the prefill, $P$ slots in the cache of every layer, and $P$ more keys for each
# query. For a short question 100 vectors can be most of what is read.
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
#   [arXiv:2310.00867](https://arxiv.org/abs/2310.00867). Prompts against LoRA on questions.
