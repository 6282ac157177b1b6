"""Store soft prompts: one small safetensors file each, with the fingerprint of the embedding table."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as as_bytes
from transformers import PreTrainedModel

from course_lib.prompts.soft import SoftPrompt
from course_lib.pruning.stream.safetensors_io import whole

KIND = "soft prompt"


def save_prompt(prompt: SoftPrompt, path: Path, dtype: torch.dtype = torch.float32) -> Path:
    """Write the file completely or not at all; 20 vectors of 576 numbers in float32 take 46,080 bytes and a header."""
    if dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"got dtype {dtype!r}; expected torch.float32, torch.bfloat16 or torch.float16.")
    vectors = prompt.vectors.detach().cpu().to(dtype).contiguous()
    if not bool(vectors.isfinite().all()):
        raise ValueError(f"got vectors up to {prompt.vectors.abs().max():.3g}, beyond what {dtype} holds; use float32.")
    metadata = {"kind": KIND, "table": prompt.table, "origin": prompt.origin}
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as file:
        file.write(as_bytes({"vectors": vectors}, metadata))
    return path


def load_prompt(path: Path, model: PreTrainedModel) -> SoftPrompt:
    """Load in float32 what `save_prompt` wrote, onto the model's device.

    Raises:
        ValueError: there is no such file, it has no soft prompt, or the prompt is of another model.
    """
    if not path.is_file():
        raise ValueError(f"got {path}, which is not there; expected a file of save_prompt.")
    try:
        with safe_open(path, "pt", device="cpu") as file:
            metadata = file.metadata() or {}
            if metadata.get("kind") != KIND:
                raise ValueError(f"got {path}, which holds no soft prompt; expected a file of save_prompt.")
            if missing := {"table", "origin"} - metadata.keys():
                raise ValueError(f"got {path}, which does not say its {min(missing)}; expected a file of save_prompt.")
            vectors = file.get_tensor("vectors").float()
    except SafetensorError as error:
        raise ValueError(f"got {path}, which cannot be read ({error}); save or copy it again.") from None
    prompt = SoftPrompt(vectors=vectors.to(model.device), table=metadata["table"], origin=metadata["origin"])
    prompt.check(model)
    return prompt
