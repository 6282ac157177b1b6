"""Speculative decoding: a cheap draft proposes tokens, one pass of the model checks them all.

`accept` is the rule that leaves the model's distribution as it is, `draft` the seam and its drafts, `cached` a model
that goes on from any text it shares a beginning with, `decode` the loop.
"""
