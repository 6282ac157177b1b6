"""A tokenizer small enough for the tiny models: letters, digits, punctuation, and a few merges across a space."""

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

CHARACTERS = "abcdefghijklmnopqrstuvwxyz .,:?!'-\n0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MERGES = [("t", "h"), ("th", "e"), (" ", "y"), (" ", "n"), ("a", "n"), ("o", "f"), ("i", "s"), ("s", " ")]


def letter_tokenizer() -> PreTrainedTokenizerFast:
    """Without a pre-tokenizer, so that a merge can join the end of a context to the start of its continuation."""
    words = ["<unk>", "<s>", "</s>", *CHARACTERS, *("".join(pair) for pair in MERGES)]
    model = models.BPE({word: i for i, word in enumerate(words)}, MERGES, unk_token="<unk>")
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(model), unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
