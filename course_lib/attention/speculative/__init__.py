"""Speculative decoding: a cheap draft proposes tokens, and one forward pass of the model verifies them all.

`accept` is the rule that preserves the model's distribution, `draft` the interface and its drafts, `cached` a model
that reuses its cache for the shared prefix of any text, and `decode` the loop.
"""
