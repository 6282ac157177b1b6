"""`course reproduce dejavu`: every step on a thin model and an untrained one of bytes, and what the rows say."""

import json
from dataclasses import replace

import pytest
import thin_model
import torch

from course_lib.attention.small_models.byte_model import ByteModel
from course_lib.contextual.small_models.relu_model import relu_configuration, untrained_relu_model
from course_lib.lessons.dejavu import experiment
from course_lib.lessons.dejavu.claims import ground
from course_lib.lessons.dejavu.claims.ground import GATED, RELU
from course_lib.lessons.dejavu.claims.sizes import QUICK
from course_lib.measure.result_files import as_text, plain

N_BLOCKS = 3


def bytes_model(n_held_out, n_training):
    """Untrained, of two blocks of 48 neurons, and made-up bytes."""
    model = untrained_relu_model(relu_configuration(16, 2, 2, 48), seed=0).eval()
    ids = torch.randint(256, (n_held_out + n_training, 128), generator=torch.Generator().manual_seed(0))
    return ByteModel(model, ids[:n_held_out], ids[n_held_out:])


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    """The sizes of a quick run, of a thin model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ground, "load_relu_model", bytes_model)
        folder = thin_model.write_thin_model(tmp_path_factory.mktemp("thin"), N_BLOCKS)
        ground.forget()
        yield replace(QUICK, model=str(folder))
    ground.forget()


def tables_of(plan):
    found = {}
    for step in plan:
        for name, rows in step.run(0).items():
            found.setdefault(name, []).extend(rows)
    return json.loads(json.dumps(plain(found)))


@pytest.fixture(scope="module")
def tables(sizes):
    return tables_of(experiment.steps(sizes))


@pytest.mark.real
def test_both_models_are_read_on_the_same_windows_by_all(tables, sizes):
    assert as_text({"steps": {}, "tables": tables})
    for name in ("dense", "neurons"):
        assert {row["model"] for row in tables[name]} == {GATED, RELU}
        assert {len(row["losses"]) for row in tables[name]} == {sizes.tokens.evaluation}


def test_no_step_has_two_names():
    for sizes in (experiment.EXPERIMENT.sizes, QUICK):
        names = [step.name for step in experiment.steps(sizes)]
        assert len(names) == len(set(names))
