"""Attention steering: a reader's attention is moved to what the user, or the model itself, says is important.

`steer` is PASTA, `heads` the search for heads to steer, `sentences` which tokens a sentence has and which sentence was
meant, `auto` is AutoPASTA.
"""
