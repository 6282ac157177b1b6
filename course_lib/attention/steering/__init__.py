"""Attention steering: increase a model's attention to the text that the user, or the model itself, marks as important.

`steer` is PASTA, `heads` searches the heads to steer, `sentences` finds the tokens of a sentence and the sentence that
a model's output refers to, and `auto` is AutoPASTA.
"""
