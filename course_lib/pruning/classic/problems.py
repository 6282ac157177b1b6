"""Problems for small networks: exclusive or, the MONK's Problems, and scikit-learn's handwritten digits.

The MONK's Problems: Thrun and others, 1991, Carnegie Mellon report CMU-CS-91-197,
http://robots.stanford.edu/papers/thrun.MONK.html; the data: https://archive.ics.uci.edu/dataset/70
Robots have six attributes. Each of three rules decides which of the 432 possible robots belong to a class. The test set
has all 432 robots with the labels of the rule. The training sets are the published samples, stored here as row numbers.

Dimension key: P samples, 6 attributes, 17 inputs.
"""

from itertools import product

import torch
from jaxtyping import Int
from torch import Tensor

from course_lib.pruning.classic.network import DTYPE, Network, Samples

XOR_NETWORK = Network((2, 2, 1))
DIGITS_NETWORK = Network((64, 20, 10))

VALUES = (3, 3, 2, 3, 4, 2)  # number of values of each attribute: 17 in total
ATTRIBUTES = ("head", "body", "smiling", "holding", "jacket", "tie")

# The networks of Thrun's report, as Hassibi and Stork prune them, and the weight decay with which we train each one.
NETWORKS = {1: Network((17, 3, 1)), 2: Network((17, 2, 1)), 3: Network((17, 2, 1))}
DECAY = {1: 1e-4, 2: 1e-4, 3: 1e-3}

# Rows are numbered from 1 in lexicographic order, the last attribute fastest.
TRAINING_ROWS = {
    1: """
        5 6 19 22 27 28 37 39 42 50 51 53 56 57 61 62 64 67 72 76 86 87 88 92 93 94 99 103 107 111 114 116
        117 119 120 124 130 132 134 135 136 137 139 143 144 149 150 153 154 156 157 159 160 167 172 173 176
        181 184 188 191 195 196 197 206 209 210 212 214 216 217 222 223 224 227 239 241 249 253 258 261 264
        270 273 274 275 286 289 290 297 300 308 313 316 324 326 332 337 344 346 352 361 362 366 377 379 383
        385 387 392 398 400 402 403 404 408 409 414 415 416 426 428 430 432
    """,
    2: """
        4 7 9 10 11 13 15 19 23 25 26 37 39 40 42 44 50 58 60 61 62 63 65 66 68 69 70 71 72 75 79 85 87 89
        90 93 94 95 96 98 100 101 102 107 108 110 111 116 117 120 125 126 127 130 134 136 139 145 148 149
        156 162 164 166 167 169 172 175 179 184 185 186 188 190 192 197 200 201 205 213 214 215 217 220 222
        223 224 225 228 229 233 235 236 240 241 242 246 249 253 254 256 258 259 263 266 267 269 272 273 275
        278 285 286 288 295 298 300 302 303 304 305 306 308 310 313 316 317 318 319 320 323 330 331 332 336
        338 340 341 342 346 347 353 355 357 358 361 364 365 366 369 371 372 374 377 382 384 385 387 389 390
        398 409 417 419 421 422 425 427 432
    """,
    3: """
        2 3 4 5 7 9 12 16 28 32 36 39 40 41 42 45 46 53 59 60 61 65 66 67 68 70 71 77 80 81 83 84 89 91 92
        99 103 110 111 113 117 121 122 123 128 134 136 143 145 146 151 152 153 154 164 166 167 172 183 186
        198 200 202 203 209 212 213 214 216 220 226 229 230 239 245 249 251 252 254 261 266 268 271 277 280
        281 283 288 289 291 293 304 306 312 315 326 328 329 340 343 349 354 364 366 370 377 382 383 390 391
        400 401 403 404 407 409 410 420 422 425 430 432
    """,
}
FLIPPED = {5, 61, 203, 213, 214, 391}  # rows of problem 3 whose training labels are wrong on purpose: the noise


def xor() -> Samples:
    """Return the four samples of exclusive or."""
    inputs = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=DTYPE)
    return Samples(inputs, (inputs.sum(1, keepdim=True) == 1).to(DTYPE))


def robots() -> Int[Tensor, "432 6"]:
    """Return all robots, with attribute values from 1, in the order of their numbers."""
    return torch.tensor(list(product(*(range(1, n + 1) for n in VALUES))))


def one_hot(robots: Int[Tensor, "P 6"]) -> Tensor:
    """Encode robots as 17 inputs of 0 and 1: one for each value of each attribute."""
    columns = [robots[:, i, None] == torch.arange(1, n + 1) for i, n in enumerate(VALUES)]
    return torch.cat(columns, dim=1).to(DTYPE)


def labels(problem: int) -> Tensor:
    """Return the labels that the rule of a problem gives to all robots."""
    a = robots().T
    if problem == 1:
        return (a[0] == a[1]) | (a[4] == 1)
    if problem == 2:
        return (a == 1).sum(0) == 2
    if problem == 3:
        return ((a[4] == 3) & (a[3] == 1)) | ((a[4] != 4) & (a[1] != 3))
    raise ValueError(f"got MONK's problem {problem}; expected 1, 2 or 3")


def monks(problem: int) -> tuple[Samples, Samples]:
    """Return the training set (124, 169 or 122 robots) and the test set (all 432)."""
    inputs, right = one_hot(robots()), labels(problem)
    rows = torch.tensor([int(row) for row in TRAINING_ROWS[problem].split()])
    noise = torch.tensor([problem == 3 and int(row) in FLIPPED for row in rows])
    targets = (right[rows - 1] ^ noise)[:, None].to(DTYPE)
    return Samples(inputs[rows - 1], targets), Samples(inputs, right[:, None].to(DTYPE))


def input_names() -> list[str]:
    """Return names for the 17 inputs: head=1, head=2, ..."""
    return [f"{name}={value}" for name, n in zip(ATTRIBUTES, VALUES, strict=True) for value in range(1, n + 1)]


def digits(generator: torch.Generator, n_training: int = 1200) -> tuple[Samples, Samples]:
    """Return training and test set of 1797 handwritten 8 × 8 digits, scaled to [0, 1], with one output per class."""
    from sklearn.datasets import load_digits  # the import takes a second, and only this function needs it

    dataset = load_digits()
    if not 0 < n_training < len(dataset.data):
        raise ValueError(f"n_training={n_training}: expected at least 1 and fewer than all {len(dataset.data)} digits")
    order = torch.randperm(len(dataset.data), generator=generator)
    inputs = torch.tensor(dataset.data, dtype=DTYPE)[order] / 16
    targets = torch.nn.functional.one_hot(torch.tensor(dataset.target), 10).to(DTYPE)[order]
    return Samples(inputs[:n_training], targets[:n_training]), Samples(inputs[n_training:], targets[n_training:])
