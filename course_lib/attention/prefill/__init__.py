"""Sparse prefill: which blocks of keys each block of a prompt's queries reads, and attention that computes no others.

`index` is the index as data, `pattern` the seam of the rules that make one: `flexprefill`, and `baselines` to compare
it with. `execute` computes, `coverage` says how much of the true attention an index holds, `apply` puts a rule into a
model.
"""
