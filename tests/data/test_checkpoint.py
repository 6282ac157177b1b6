"""The proof that the default model works must fail when tokenizer or weights do not."""

import json
import sys
from pathlib import Path

import pytest
import torch

from course_lib.data.assets import checkpoint
from course_lib.models import tiny_model


def test_settings_forget_where_they_were_made(tmp_path):
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({"is_local": True, "name_or_path": str(tmp_path), "pad_token": "x"}))
    checkpoint._forget_local_paths(path)
    assert json.loads(path.read_text()) == {"pad_token": "x"}


def test_weights_survive_being_taken_out_of_their_quantised_config():
    model = tiny_model()
    model.config.quantization_config = {"quant_method": "gguf"}
    plain = checkpoint._unquantised(model)
    assert "quantization_config" not in plain.config.to_dict()
    ids = torch.arange(10)[None]
    assert torch.equal(plain.eval()(ids).logits, model.eval()(ids).logits)


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of this process")
def test_a_checkpoint_that_was_verified_is_held_by_nothing(tmp_path, tiny_tokenizer, monkeypatch):
    """It is moved into place after that, and Windows moves no folder of which a file is open or mapped into memory."""
    tiny_model().save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)

    def held():
        opened = (str(path.resolve()) for path in Path("/proc/self/fd").iterdir())
        return any(str(tmp_path) in line for line in [*Path("/proc/self/maps").read_text().splitlines(), *opened])

    during = []
    monkeypatch.setattr(checkpoint, "verify_model", lambda model, tokenizer: during.append(held()))
    checkpoint.verify_checkpoint(tmp_path)
    assert (during, held()) == ([True], False)


@pytest.mark.real
def test_the_real_model_passes(real_model):
    checkpoint.verify_model(*real_model)


@pytest.mark.real
def test_token_zero_between_words_is_caught(real_model, monkeypatch):
    model, tokenizer = real_model
    inserted = tuple(token for token_id in checkpoint.SENTENCE_IDS for token in (token_id, 0))
    monkeypatch.setattr(checkpoint, "SENTENCE_IDS", inserted)  # as if the tokenizer were read otherwise
    with pytest.raises(ValueError, match="reads the test sentence as"):
        checkpoint.verify_model(model, tokenizer)


@pytest.mark.real
@pytest.mark.parametrize("loss", [checkpoint.SENTENCE_LOSS + 2e-3, float("nan")])
def test_other_weights_are_caught(real_model, monkeypatch, loss):
    monkeypatch.setattr(checkpoint, "sentence_loss", lambda model: loss)
    with pytest.raises(ValueError, match="the loss of the test sentence is"):
        checkpoint.verify_model(*real_model)


@pytest.mark.real
def test_the_loss_moves_when_weights_do(real_model):
    model, _ = real_model
    weight = model.model.layers[15].mlp.down_proj.weight
    kept = weight.detach().clone()
    try:
        weight.data.mul_(1.5)
        assert abs(checkpoint.sentence_loss(model) - checkpoint.SENTENCE_LOSS) > checkpoint.LOSS_TOLERANCE
    finally:
        weight.data.copy_(kept)
