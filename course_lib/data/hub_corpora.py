"""WikiText-2 and C4 from the hub, with the names and conventions of the papers.

Dimension key: N windows, L tokens in a window.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

C4_FILES = {
    "calibration": ("train", "en/c4-train.00000-of-01024.json.gz"),
    "evaluation": ("validation", "en/c4-validation.00000-of-00008.json.gz"),
}


def wikitext2(split: str) -> list[str]:
    """Return the training set (calibration) or the test set (evaluation); the papers join its rows by blank lines.

    Deviation: calibration windows will be on a grid instead of starting anywhere, so that they do not overlap.
    """
    part = "train" if split == "calibration" else "test"
    return list(from_hub("wikitext2", "Salesforce/wikitext", part, name="wikitext-2-raw-v1"))


def c4_windows(
    n: int, length: int, tokenizer: PreTrainedTokenizerBase, split: str, generator: torch.Generator
) -> Int[Tensor, "N L"]:
    """Choose random documents longer than a window, and from each one window with a random start, as in the papers.

    Deviation: no document is used twice.
    """
    part, file = C4_FILES[split]
    documents = from_hub("c4", "allenai/c4", part, data_files={part: file})
    windows = []
    for index in torch.randperm(len(documents), generator=generator).tolist():
        tokens = torch.tensor(tokenizer(documents[index], add_special_tokens=False, verbose=False).input_ids)
        if len(tokens) > length:
            start = int(torch.randint(len(tokens) - length, (1,), generator=generator))
            windows.append(tokens[start : start + length])
        if len(windows) == n:
            return torch.stack(windows)
    raise ValueError(
        f"got n={n}, length={length}; the {split} file of 'c4' has {len(windows)} documents longer than {length} "
        "tokens. Ask for fewer or shorter windows."
    )


def from_hub(
    corpus: str, path: str, split: str, name: str | None = None, data_files: dict[str, str] | None = None
) -> Sequence[str]:
    """Load the text column of a hub dataset; turn any error into one sentence."""
    from datasets import load_dataset

    try:
        return load_dataset(path, name, split=split, data_files=data_files)["text"]
    except Exception as error:  # the hub's clients raise their own kinds for each way of being out of reach
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"got corpus {corpus!r}, which comes from the Hugging Face hub ({path}) and could not be loaded: {reason} "
            "Use 'wikipedia' or 'boolq', which need no network."
        ) from error
