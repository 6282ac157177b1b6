"""What crosses the wire comes back as it was; what anybody else writes on it is refused before it takes memory."""

import copy
import json
import math

import pytest
import safetensors.torch
import torch

from course_lib.checking.compare import plain
from course_lib.grading.sandbox import frames, wire
from course_lib.workbook.catalogue import all_exercises

BOUNDS = wire.Bounds()


def there_and_back(value):
    return wire.loads(wire.dumps(value, BOUNDS), BOUNDS)


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a.nan_to_num(7.5), b.nan_to_num(7.5))
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and (a == b or (a != a and b != b))


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -3, 2**70, 1.5, -0.0, math.inf, math.nan, 1 - 2j, "", "ü\n\0\"", "\ud800",
        (), {}, ((1,), "tuple"),
        {"a": (1, None), 3: {"b": 2.5}, None: True}, ("tensor", "0"),
        torch.tensor(3.5), torch.zeros(0, 4), torch.tensor([[True, False]]), torch.tensor([math.nan, -math.inf]),
        torch.tensor([2**63 - 1, -(2**63)]), torch.ones(2, 3, dtype=torch.bfloat16), torch.arange(3, dtype=torch.uint8),
        torch.tensor([1 + 2j], dtype=torch.complex128),
    ],
)  # fmt: skip
def test_a_value_comes_back_as_it_was(value):
    assert same(value, there_and_back(value))
    assert math.copysign(1, there_and_back(-0.0)) == -1


def test_what_safetensors_cannot_say_comes_back_with_the_same_numbers():
    assert there_and_back(torch.tensor([1 + 2j, 3j]).conj()).tolist() == [1 - 2j, -3j]
    assert there_and_back(torch.tensor([7], dtype=torch.uint16)).tolist() == [7]
    assert there_and_back(torch.tensor([0.5], dtype=torch.float8_e4m3fn)).tolist() == [0.5]


def test_keys_are_few_so_that_no_choice_of_them_takes_long():
    """All of these hash to 0: a dictionary of n looks n * n / 2 times."""
    alike = {number * (2**61 - 1): 0 for number in range(BOUNDS.keys)}
    assert there_and_back(alike) == alike
    alike[-(2**61 - 1)] = 0
    with pytest.raises(ValueError, match="more than 1024 keys"):
        wire.dumps(alike, BOUNDS)
    sent = wire.dumps(alike, wire.JOB)
    with pytest.raises(ValueError, match="more than 1024 keys"):
        wire.loads(sent, BOUNDS)
    with pytest.raises(ValueError, match="more than 1024 keys"):  # of all dictionaries together
        wire.dumps(tuple({number: 0} for number in range(1025)), BOUNDS)


def test_axes_are_counted_where_they_are_packed():
    with pytest.raises(ValueError, match="a tensor of 17 axes; expected at most 16"):
        wire.dumps(torch.zeros([1] * 17), BOUNDS)


def test_a_transposed_matrix_arrives_transposed():
    matrix = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    back = there_and_back(matrix)
    assert torch.equal(back, matrix)
    assert back.stride() == matrix.stride()


def test_views_of_one_tensor_and_expanded_ones_arrive_whole():
    base = torch.arange(6.0)
    row, grown = there_and_back((base[1:4], base[:1].expand(5)))
    assert row.tolist() == [1, 2, 3]
    assert grown.tolist() == [0] * 5


def test_all_that_the_course_asks_and_answers_crosses_the_wire():
    for exercise in all_exercises():
        for case in exercise.cases(torch.Generator().manual_seed(3)):
            arguments = wire.loads(wire.dumps(case.arguments, wire.JOB), wire.JOB)
            assert same(case.arguments, arguments), (exercise.id, case.name)
            expected = plain(exercise.reference(*copy.deepcopy(case.arguments)))
            assert same(expected, there_and_back(expected)), (exercise.id, case.name)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "got a object"),
        ([1], "got a list"),
        ({(1, 2): 3}, "keys are collections"),
        (torch.zeros(1025, 1024), "entries"),
        (torch.zeros(2**40, 0), "entries"),
        (torch.zeros(1).expand(2**40), "entries"),
        ("x" * (2**18 + 1), "characters"),
        (tuple(range(2**16)), "values"),
    ],
)
def test_what_is_not_plain_or_too_large_is_not_sent(value, said):
    with pytest.raises(ValueError, match=said):
        wire.dumps(value, BOUNDS)


def test_nesting_is_bounded_on_both_sides():
    deep = 1
    for _ in range(33):
        deep = (deep,)
    with pytest.raises(ValueError, match="levels"):
        wire.dumps(deep, BOUNDS)
    with pytest.raises(ValueError, match="levels"):
        wire.loads(wire.dumps(deep, wire.Bounds(depth=40)), BOUNDS)


def test_a_dag_that_explodes_when_followed_is_refused():
    laughs = (1.0,)
    for _ in range(30):
        laughs = (laughs, laughs)
    with pytest.raises(ValueError, match="values"):
        wire.dumps(laughs, BOUNDS)


def forged(tree, tensors=None, header=None) -> bytes:
    """Bytes as only a forger writes them."""
    if header is None:
        return safetensors.torch.save(tensors or {}, {"tree": tree if isinstance(tree, str) else json.dumps(tree)})
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


def entry(shape, dtype="F32", offsets=(0, 0)):
    return {"__metadata__": {"tree": '["tensor", "0"]'}, "0": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


ONE = {"0": torch.ones(2, 2)}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"x", b"\xff" * 100, b"\x00" * 8, (2).to_bytes(8, "little") + b"[]", (4).to_bytes(8, "little") + b"null",
        b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
        forged("["), forged("[" * 100_000), forged("1" * 5000), forged({"a": 1}), forged([]), forged([1]),
        forged(["pickle", "x"]), forged(["tensor", "0"]), forged(["tensor"]), forged(["dict", [1]]),
        forged(["dict", [["tuple"], 1]]), forged(["dict", 3]), forged(["complex", "a", 1]),
        forged(["complex", 1, 2, 3]),
        forged(["tuple", ["tensor", "0"], ["tensor", "0"]], ONE), forged(["tensor", "0", 0], ONE),
        forged(["tensor", "0", 0, 0, 1], ONE), forged(["tensor", "0", "a", 1], ONE), forged(["tensor", ["0"]], ONE),
        forged(["complex tensor", "0", 0, 1, 2], ONE), forged(json.dumps("x" * (2**18 + 1))),
        forged(["tuple", *range(2**16)]),
        forged(None, header={}), forged(None, header={"__metadata__": {}}), forged(None, header={"__metadata__": 3}),
        forged(None, header=entry([2**40, 0])), forged(None, header=entry([2, 2])), forged(None, header=entry([-1])),
        forged(None, header=entry([1.0])), forged(None, header=entry([True])), forged(None, header=entry([1] * 17)),
        forged(None, header=entry([0], "F8_E4M3")), forged(None, header=entry([0], 3)),
        forged(None, header=entry([2**62, 2**62, 0])), forged(None, header=entry([0], offsets=(5, 9))),
        forged(None, header=entry(3)), forged(None, header=entry(None)), forged(None, header=entry({"a": 1})),
    ],
)  # fmt: skip
def test_whatever_else_is_sent_is_refused_in_a_sentence(content):
    with pytest.raises(ValueError, match=r"\w"):
        wire.loads(content, BOUNDS)


def test_a_header_is_not_read_when_it_is_too_long():
    text = b'{"__metadata__":{"tree":"' + b" " * (4 * 2**20) + b'1"}}'
    with pytest.raises(ValueError, match="with a header of"):
        wire.loads(len(text).to_bytes(8, "little") + text, BOUNDS)


def test_a_boolean_that_is_neither_becomes_true():
    content = bytearray(wire.dumps(torch.tensor([True, False, True]), BOUNDS))
    content[-3:] = bytes([2, 0, 255])
    back = wire.loads(bytes(content), BOUNDS)
    assert back.dtype == torch.bool
    assert back.view(torch.uint8).tolist() == [1, 0, 1]


def reader(n_bytes=100, n_messages=5):
    return frames.Reader(frames.FROM_CHILD, n_bytes, n_messages)


def test_messages_arrive_whole_however_they_are_cut():
    content, whole = frames.pack(b"C", 3, b"hello") + frames.pack(b"D"), []
    cut = reader()
    for position in range(len(content)):
        whole += cut.feed(content[position : position + 1])
    assert whole == [(b"C", 3, b"hello"), (b"D", 0, b"")] == reader().feed(content)


@pytest.mark.parametrize(
    "content",
    [
        b"GET / HTTP/1.1",  # no kind of message
        frames.pack(frames.ENDED),  # the warden's alone
        frames.pack(b"C", 0, b"x" * 101),
        frames.pack(b"C", 0, b"x" * 60) * 2,
        frames.pack(b"N") * 6,
        b"C\x00\x00\xff\xff\xff\xff",  # only announced
    ],
)
def test_what_is_no_message_or_too_much_is_refused_at_once(content):
    with pytest.raises(ValueError, match="got a message of"):
        reader().feed(content)
