"""Delta attention: a channel of the keys is sent again only when it has moved.

`code` holds the deltas and the sums over them, `spread` the unit of a threshold, `apply` puts both into a model.
"""
