"""Sparse prefill: choose the key blocks for each block of a prompt's queries, and compute attention only for these.

`index` stores the choice, `pattern` is the interface of the rules that make it: `flexprefill`, and `baselines` for
comparison. `execute` computes attention, `coverage` measures how much of the dense attention an index contains, and
`apply` uses a rule in a model.
"""
