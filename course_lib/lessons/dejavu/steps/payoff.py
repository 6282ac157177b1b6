"""When chosen neurons pay: the time of a decoded token as the numbers that it reads.

Dimension key: D width, F neurons, L blocks, r rank of the predictors.
"""

Number = int | float


def payoff(
    width: int,
    neurons: int,
    blocks: int,
    rank: int,
    others: Number,
    density: Number,
    gather: Number,
    prompt: Number,
    n_tokens: int,
) -> tuple[Number, Number, Number]:
    """How many times faster a token is, and prompt and answer together; the density at which nothing is won.

    With m the share of a dense token's time that its MLPs take, and c = r (D + F) / 3DF the predictor's size in MLPs:
    1 / (1 − m + m (gather · density + c)), Amdahl's law; then once more for what the prompt leaves; (1 − c) / gather.

    Args:
        others: numbers that a token reads outside of the MLPs.
        gather: how much longer a gathered number takes than one that is read in order.
        prompt: how long reading the prompt takes, in decoded dense tokens.
    """
    of_mlps = 3 * width * neurons * blocks / (3 * width * neurons * blocks + others)
    of_predictor = rank * (1 / width + 1 / neurons) / 3
    token = _amdahl(of_mlps, gather * density + of_predictor)
    decoded = n_tokens / (prompt + n_tokens)
    return token, _amdahl(decoded, 1 / token), max(0.0, 1 - of_predictor) / gather


def _amdahl(share: Number, time: Number) -> Number:
    """How many times faster the whole is, when a share of it takes so much of its time."""
    return 1 / (1 - share + share * time)
