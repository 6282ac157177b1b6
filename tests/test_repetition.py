"""The same training twice gives the same losses, interrupted or not; measurements draw nothing.

Models with dropout are the hard case: their masks come from torch's global generator.
"""

import copy
from dataclasses import replace

import pytest
import torch
import transformers
from peft import LoraConfig
from torch import nn

from course_lib.attention.small_models import registers
from course_lib.attention.small_models.byte_model import byte_losses, untrained
from course_lib.attention.small_models.training import Schedule, running, train
from course_lib.contextual.predictor.collect import collect
from course_lib.contextual.predictor.training import PredictorSchedule, train_predictor
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.contextual.small_models.training import Piece, train_piece
from course_lib.discover import subclasses
from course_lib.measure.perplexity import window_losses
from course_lib.models import tiny_model
from course_lib.moe.classic import descent, recurrent
from course_lib.moe.classic.learners import Mixture
from course_lib.moe.routers.noisy_top_k import NoisyTopK
from course_lib.moe.small_models.byte_mixture import mixture_configuration
from course_lib.moe.small_models.training import routing, train_mixture
from course_lib.prompts.adapters import adapted, train_adapters
from course_lib.prompts.initial import from_ids
from course_lib.prompts.recipe import PromptRecipe
from course_lib.prompts.training import train_prompt
from course_lib.pruning.input_statistics import input_gram, input_norms
from course_lib.pruning.methods.fisher import collect_gradients, prune_by_gradients
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.sequential import prune_model
from course_lib.pruning.structured import scorers
from course_lib.pruning.structured.activations import observe
from course_lib.pruning.structured.choice import Scores, choose
from course_lib.pruning.structured.distillation import distil
from course_lib.pruning.structured.recipe import Recipe
from course_lib.pruning.structured.refit import refit
from course_lib.pruning.structured.scorer import Evidence, Scorer
from course_lib.pruning.structured.shape import shape_of
from course_lib.pruning.structured.surgery import take
from course_lib.repetition import digest_of, in_evaluation_mode, seeded, settings_of
from course_lib.sparsity.patterns import Unstructured

HALF = Unstructured(0.5)
WINDOWS = torch.randint(0, 97, (6, 10), generator=torch.Generator().manual_seed(3))
TOKENS = running(["one two three, two three one. " * 20])
SCHEDULE = Schedule(n_steps=4, batch=2, length=10, rate=1e-2, warm_up=1, decay=0.1)
RECIPE = Recipe(schedule=SCHEDULE, every=2)
PROMPTS = PromptRecipe(n_steps=4, batch=2, warm_up=1, every=2)


def byte_opt():
    """Bytes in an OPT of transformers' own settings, which have dropout."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 24}
    config = transformers.OPTConfig(
        **sizes, word_embed_proj_dim=16, vocab_size=256, max_position_embeddings=32, pad_token_id=0
    )
    return untrained(config, 0)


def distilled(family, folder=None, until=None, **settings):
    student, teacher = tiny_model(1, family), tiny_model(0, family)
    options = {"folder": folder, "until": until, "of_teacher": [0, 1], "progress": False}
    return distil(student, teacher, WINDOWS, replace(RECIPE, **settings), **options), student


def prompt_learned(folder=None, until=None):
    model = tiny_model(0, "gpt2").train()
    options = {"folder": folder, "until": until, "progress": False}
    run = train_prompt(model, from_ids(model, torch.tensor([5, 6])), WINDOWS, PROMPTS, **options)
    return run.losses, nn.ParameterList([run.prompt.vectors])


def predictor_trained():
    generator = torch.Generator().manual_seed(0)
    x, predictor = torch.randn(20, 5, generator=generator), Predictor(5, 3, 7, generator)
    schedule = PredictorSchedule(epochs=2, batch=8)
    return train_predictor(predictor, x, x @ torch.randn(5, 7, generator=generator) > 1, schedule), predictor


def trained(make, *pieces):
    """In one go, or in pieces, each of which begins with a new process and so with the model's first weights."""
    losses = []
    if not pieces:
        train(model := make().train(), TOKENS, SCHEDULE, 0, lambda _, loss: losses.append(loss), byte_losses)
    for piece in pieces:
        train_piece(model := make(), TOKENS, SCHEDULE, 0, piece, lambda _, loss: losses.append(loss))
    return losses, model


def mixture_trained():
    mixture, losses = untrained(mixture_configuration(4, 2, 16, 2, 2, 24), 0), []
    for layer in mixture.model.layers:
        layer.self_attn.attention_dropout = 0.1  # which attention reads in training mode
    with routing(mixture, NoisyTopK(k=2)) as seen:
        train_mixture(mixture, seen, TOKENS, SCHEDULE, 0, look=lambda step, nats, routings: losses.append(nats))
    return losses, mixture


def adapters_trained():
    model = tiny_model(0, "gpt2").train()
    with adapted(model, LoraConfig(r=2, target_modules=["c_attn"], lora_dropout=0.2)) as learning:
        losses = train_adapters(model, learning, WINDOWS, PROMPTS, progress=False)
        return losses, nn.ParameterList([weight.detach().clone() for weight in learning])


def digits_trained():
    data = registers.digits(0)
    few = registers.Digits(data.train[:8], data.train_labels[:8], data.test[:2], data.test_labels[:2])
    return [], registers.trained(1, few, seed=0, epochs=1, batch=4)


class Dropping(nn.Module):
    """Half of its inputs."""

    def forward(self, x, generator=None):
        return nn.functional.dropout(x, 0.5), None


def recurrent_trained():
    model, losses = recurrent.RecurrentLM(Dropping(), 8, torch.Generator().manual_seed(0)), []
    recurrent.train(model, TOKENS, SCHEDULE, 0, look=lambda step, nats, routing: losses.append(nats))
    return losses, model


def vowels_learned():
    run = descent.train(Mixture(n_experts=2), descent.vowel_samples()[0], [0, 1], epochs=2)
    return run.accuracy.tolist(), nn.ParameterList(run.weights)


TRAININGS = {
    "distillation, Llama": lambda: distilled("llama"),
    "distillation, GPT-2": lambda: distilled("gpt2"),
    "distillation, OPT": lambda: distilled("opt"),
    "distillation, GPT-2, hidden states": lambda: distilled("gpt2", hidden=1.0),
    "distillation, GPT-2, adapters": lambda: distilled("gpt2", lora_rank=2),
    "distillation, OPT, next token": lambda: distilled("opt", loss="next token"),
    "soft prompt": prompt_learned,
    "predictor": predictor_trained,
    "bytes, OPT": lambda: trained(byte_opt),
    "bytes, experts": mixture_trained,
    "adapters": adapters_trained,
    "digits": digits_trained,
    "recurrent": recurrent_trained,
    "vowels": vowels_learned,
}


def same(one, other):
    (losses, model), (expected, other_model) = one, other
    assert losses == expected
    assert digest_of(model.named_parameters()) == digest_of(other_model.named_parameters())


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_depends_on_its_seed_alone_and_leaves_the_global_generator_alone(name):
    results = []
    for seed in (5, 6):
        with seeded(seed):
            before = torch.get_rng_state()
            results.append(TRAININGS[name]())
            assert torch.equal(torch.get_rng_state(), before)
    same(*results)


INTERRUPTED = {  # name → the call up to step 2, then to the end; and the call in one go
    **{
        f"distillation, {family}": (
            lambda folder, until, family=family: distilled(family, folder, until),
            lambda family=family: distilled(family),
        )
        for family in ("llama", "gpt2", "opt")
    },
    "soft prompt": (prompt_learned, prompt_learned),
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_a_training_that_goes_on_from_a_file_is_the_one_in_one_go(name, tmp_path):
    piece, straight = INTERRUPTED[name]
    for seed, until in ((5, 2), (6, None)):
        with seeded(seed):
            resumed = piece(tmp_path, until)
    same(resumed, straight())


def test_pieces_of_a_training_with_dropout_are_the_one_in_one_go(tmp_path):
    state = tmp_path / "state"
    same(trained(byte_opt, Piece(0, 2, state), Piece(2, 4, state)), trained(byte_opt))


def test_dropout_differs_from_step_to_step_and_from_seed_to_seed():
    """Otherwise all of the above would hold without any randomness."""
    still = replace(SCHEDULE, rate=1e-12, decay=0.0)  # nothing learns
    windows = WINDOWS[:2]  # every step reads the same two
    losses = [
        distil(tiny_model(1, "gpt2"), tiny_model(0, "gpt2"), windows, Recipe(schedule=still, seed=seed), progress=False)
        for seed in (0, 1)
    ]
    assert len({round(loss, 6) for run in losses for loss in run}) == 8


def pruned(model, prune):
    model = copy.deepcopy(model)
    prune(model)
    return dict(model.named_parameters())


def refitted(model):
    shape = shape_of(model)
    kept = choose(Scores(neurons=torch.arange(200.0).view(2, 100)), shape, replace(shape, neurons=60))
    smaller = take(model, kept)
    refit(model, smaller, kept, WINDOWS, progress=False)
    return dict(smaller.named_parameters())


def labels_of(hidden, neurons):
    return hidden > 0


MEASUREMENTS = {
    "window losses": lambda model: window_losses(model, WINDOWS, progress=False),
    "observe": lambda model: torch.stack([norms.of() for norms in observe(model, WINDOWS, False).neurons]),
    "gradients": lambda model: {n: g.fisher for n, g in collect_gradients(model, WINDOWS, False).items()},
    "prune_by_gradients": lambda m: pruned(m, lambda m: prune_by_gradients(m, HALF, WINDOWS, progress=False)),
    "prune_model": lambda model: pruned(model, lambda m: prune_model(m, SparseGPT(HALF), WINDOWS, progress=False)),
    "input_norms": lambda model: input_norms(model, WINDOWS),
    "input_gram": lambda model: input_gram(model, WINDOWS, 1, "mlp.c_proj").matrix,
    "refit": refitted,
    "collect": lambda model: torch.stack(collect(model, WINDOWS, labels_of).read),
} | {
    scorer.__name__: lambda model, scorer=scorer: {
        kind: score
        for kind, score in vars(scorer().score(Evidence(model, WINDOWS, False))).items()
        if score is not None
    }
    for scorer in subclasses(scorers, Scorer)
}


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_measurement_draws_no_dropout_and_gives_each_part_its_mode_back(name):
    model = tiny_model(0, "gpt2")
    expected = MEASUREMENTS[name](model)
    model.train()
    model.transformer.ln_f.eval()  # a part that the caller has frozen
    torch.testing.assert_close(MEASUREMENTS[name](model), expected, rtol=0, atol=0)
    assert [module for module in model.modules() if not module.training] == [model.transformer.ln_f]


def test_each_part_has_its_mode_back_after_an_error():
    model = tiny_model(0, "gpt2").train()
    with pytest.raises(KeyError), in_evaluation_mode(model):
        raise KeyError(model.training)
    assert all(module.training for module in model.modules())


OTHERS = {"text": {"tokens": TOKENS.flip(0)}, "first weights": {"seed_of_model": 1}, "seed": {"seed": 1}}


def opt_of(seed):
    model = byte_opt()
    with torch.no_grad():
        model.model.decoder.layers[0].fc1.weight += seed
    return model


@pytest.mark.parametrize("name", OTHERS)
def test_a_piece_of_another_training_is_refused(name, tmp_path):
    given = {"tokens": TOKENS, "seed": 0, "seed_of_model": 0} | OTHERS[name]
    train_piece(opt_of(0), TOKENS, SCHEDULE, 0, Piece(0, 2, tmp_path / "state"))
    with pytest.raises(ValueError, match="another run"):
        train_piece(
            opt_of(given["seed_of_model"]), given["tokens"], SCHEDULE, given["seed"], Piece(2, 4, tmp_path / "state")
        )


@pytest.mark.parametrize("name", ["student", "teacher", "of_teacher"])
def test_a_distillation_of_neurons_in_another_order_or_other_pairs_is_another(name, tmp_path):
    """Sums over each weight cannot tell one order from another."""
    recipe, options = replace(RECIPE, hidden=1.0), {"folder": tmp_path, "progress": False}
    distil(tiny_model(1), tiny_model(0), WINDOWS, recipe, of_teacher=[0, 1], until=2, **options)
    models = {"student": tiny_model(1), "teacher": tiny_model(0)}
    if name in models:
        weight = models[name].model.layers[0].mlp.up_proj.weight
        weight.data = weight.data.flip(0)
    pairs = [1, 0] if name == "of_teacher" else [0, 1]
    with pytest.raises(ValueError, match=f"another {name}"):
        distil(*models.values(), WINDOWS, recipe, of_teacher=pairs, **options)


def test_a_digest_depends_on_name_type_shape_and_every_bit():
    one = torch.tensor([1.0, 2.0])
    others = [("b", one), ("a", one.double()), ("a", one[None]), ("a", one.flip(0)), ("a", torch.tensor([1.0, -2.0]))]
    digests = {digest_of([each]) for each in [("a", one), *others]}
    assert len(digests) == 6
    assert digest_of([("a", one)]) == digest_of([("a", torch.tensor([[1.0, 0], [2.0, 0]])[:, 0])])
    assert digest_of([("a", torch.tensor([True])), ("b", torch.zeros(2, dtype=torch.bfloat16))])


def test_the_generators_are_as_before_after_an_error():
    before = torch.get_rng_state()
    with pytest.raises(KeyError), seeded(1):
        raise KeyError(torch.rand(3))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_model_that_was_saved_and_read_again_has_the_same_settings(family, tmp_path):
    model = tiny_model(0, family)
    before = settings_of(model)
    model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert before == settings_of(model) == settings_of(again)
    model.config.max_position_embeddings = 7
    assert settings_of(model) != before
