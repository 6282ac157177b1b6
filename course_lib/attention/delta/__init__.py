"""Delta attention: a channel of the keys is sent again only after it has changed by a threshold.

`code` computes the deltas and their sums, `spread` the unit of a threshold, and `apply` puts both into a model.
"""
