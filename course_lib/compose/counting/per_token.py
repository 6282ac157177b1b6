"""The bytes of weights and selectors that one decoded token reads, and its multiplications, from the stored tensors."""

from course_lib.compose.build import Built
from course_lib.contextual.selector import NeuronSelector, n_kept
from course_lib.models import Layer, architecture, blocks, head, layers_of, weight_of


def of_a_token(built: Built) -> tuple[int, int]:
    """Return the bytes of weights and selectors that one token reads, and the number of multiplications with them."""
    model, kept = built.model, _by_owner(built)
    # Norms, biases and the head whole, of the embedding a row; where the two are one matrix it is the head's.
    tables, of_layer = kept["tables"], kept["layers"]
    n_bytes = sum(kept["others"].values()) + tables.get("head", tables["words"])
    n_bytes += -(-tables["words"] // len(model.get_input_embeddings().weight))
    products = head(model).weight.numel() + sum(part.n_products(built.made) for part in built.recipe.parts)
    for layer in layers_of(model):
        used, of = _neurons_used(built, layer.block, layer.part)
        n_bytes += -(-of_layer[layer.name] * used // of)
        products += _n_multiplied(built, layer) * used // of
    return n_bytes, products


def _n_multiplied(built: Built, layer: Layer) -> int:
    """Return how many stored numbers of a matrix are multiplied: with a bitmap only the non-zeros, otherwise all."""
    for part in built.recipe.parts:
        starts, values = (built.stored.get(f"{part.name}/{layer.name}/{last}") for last in ("row_start", "values"))
        if starts is not None:
            return int(starts[-1])
        if values is not None:
            return values.numel()
    return weight_of(layer.module).numel()


def _by_owner(built: Built) -> dict[str, dict[str, int]]:
    """Sum the bytes of each layer, of each table, and of everything else that a token reads."""
    homes = {"dense": "layers", "table": "tables", "other": "others"}
    homes |= {part.name: homes[part.replaces or "other"] for part in built.recipe.parts if part.is_read}
    found: dict[str, dict[str, int]] = {"layers": {}, "tables": {}, "others": {}}
    for name, tensor in built.stored.items():
        part, _, rest = name.partition("/")
        if part in homes:
            home, owner = found[homes[part]], rest.partition("/")[0]
            home[owner] = home.get(owner, 0) + tensor.nbytes
    return found


def _neurons_used(built: Built, block: object, part: str) -> tuple[int, int]:
    """Return how many neurons of a matrix one token computes, and of how many; outside of the MLP it computes all."""
    selector = next((each for each in built.made.found.values() if isinstance(each, NeuronSelector)), None)
    names = architecture(block).mlp
    if selector is None or part not in names or names.index(part) < selector.n_read_whole:
        return 1, 1
    n_neurons = weight_of(block.get_submodule(names[-1])).shape[1]
    index = next(i for i, each in enumerate(blocks(built.model)) if each is block)
    return n_kept(selector.density_at(index), n_neurons), n_neurons
