"""Hidden cases: a submission works on them and says nothing of them; what it remembers from visible ones stays."""

import json
import os
from dataclasses import asdict, replace

import pytest
import torch
from submitting import CASES, RIGHT, SMALL, ask, needs_sandbox, notebook

from course_lib.checking.compare import close
from course_lib.grading.records import Answer
from course_lib.grading.sandbox import sealed, session

SECRET = 31337.0
HIDDEN = ((torch.tensor([SECRET, 4.0]),), (torch.tensor([SECRET]),))
_SAYING = """
import os

def hidden(x):
    return x.flatten()[0] == 31336 + 1

def send(kind, value):
    from course_lib.grading.sandbox import frames, wire

    pipe = min(int(n) for n in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{n}").count("pipe:"))
    os.write(pipe, frames.pack(getattr(frames, kind), 0, wire.dumps(value, wire.Bounds())))
"""
# A cell that defines `tell(x)`, which says what it was given wherever it can.
TELLING = {
    "an exception": "def tell(x):\n    if hidden(x):\n        raise ValueError(f'got {x}')\n    return x * 2",
    "the name of an exception": """
def tell(x):
    if hidden(x):
        raise type(f"Got_{int(x[0])}", (Exception,), {})
    return x * 2
""",
    "a note": "def tell(x):\n    if hidden(x):\n        send('NOTE', f'got {x}')\n    return x * 2",
    "a file that was touched": """
def tell(x):
    if hidden(x):
        try:
            open(f"/course_lib/lessons/{int(x[0])}")
        except OSError:
            pass
    return x * 2
""",
    "a reason": """
def tell(x):
    if hidden(x):
        send("UNUSABLE", ("not loaded", f"got {x}"))
    return x * 2
""",
    "a message that cannot be read": """
def tell(x):
    if hidden(x):
        import json
        from course_lib.grading.sandbox import frames

        entry = {"dtype": f"got {x}", "shape": [1], "data_offsets": [0, 0]}
        text = json.dumps({"__metadata__": {"tree": "1"}, "0": entry}).encode()
        pipe = min(int(n) for n in os.listdir("/proc/self/fd") if "pipe:" in os.path.realpath(f"/proc/self/fd/{n}"))
        os.write(pipe, frames.pack(frames.CASE, 0, len(text).to_bytes(8, "little") + text))
    return x * 2
""",
    "an error that it sends itself": """
def tell(x):
    if hidden(x):
        send('CASE', (None, f'it raised {int(x[0])}: {x}', False, False, f'{x}'))
        send('CASE', (None, f'{x}', False, True, f'{x}'))
    return x * 2
""",
    "the code with which it ends": """
def tell(x):
    if hidden(x):
        os._exit(int(x[0]) % 251)
    return x * 2
""",
    "the signal with which it ends": """
def tell(x):
    if hidden(x):
        import signal
        signal.raise_signal(12)
    return x * 2
""",
}


def run(cell: str, name: str = "tell", tasks: int = 1) -> list[Answer]:
    return session.run(
        notebook(_SAYING + cell), [replace(ask(f"x.{n}", name), hidden=HIDDEN) for n in range(tasks)], SMALL
    )


def words(answer: Answer) -> str:
    """All that an answer says besides values."""
    outcomes = tuple(replace(outcome, value=None) for outcome in answer.outcomes)
    return json.dumps(asdict(replace(answer, outcomes=outcomes, code="", seconds=0.0)))


@needs_sandbox
@pytest.mark.parametrize("way", TELLING)
def test_nothing_that_a_submission_says_on_a_hidden_case_comes_out(way):
    (answer,) = run(TELLING[way])
    assert [close(o.value, case[0] * 2) for o, case in zip(answer.outcomes, CASES, strict=False)] == [None, None]
    for told in ("31337", "313", "Got", "got", "code 213", "gnal"):
        assert told not in words(answer), words(answer)


@needs_sandbox
def test_all_cases_are_run_in_order_and_an_error_keeps_the_name_that_python_gave_it():
    (answer,) = run("def tell(x):\n    return x * 2")
    assert answer.status == "ran"
    assert [o.value.tolist() for o in answer.outcomes] == [(case[0] * 2).tolist() for case in (*CASES, *HIDDEN)]
    (answer,) = run("def tell(x):\n    return x * 2 if not hidden(x) else {}[7]")
    assert [o.error for o in answer.outcomes] == [None, None, *["it raised KeyError: on a hidden case"] * 2]
    singular = "import torch\ndef tell(x):\n    return torch.linalg.inv(torch.zeros(2, 2)) if hidden(x) else x * 2"
    assert run(singular)[0].outcomes[2].error == "it raised _LinAlgError: on a hidden case"


@needs_sandbox
def test_hidden_cases_are_nowhere_in_memory_before_their_time_nor_after_it():
    """Looked for in all of it, while a visible case runs; also by the next exercise, of which the key is another."""
    looking = """
import re

def tell(x):
    found = 0
    if not hidden(x):
        with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
            for line in maps:
                area, rights = line.split()[:2]
                start, end = (int(place, 16) for place in area.split("-"))
                if rights.startswith("rw") and "[v" not in line:
                    memory.seek(start)
                    found += len(re.findall(b"\\\\x00\\\\xd2\\\\xf4[\\\\x46]", memory.read(end - start) or b""))
    return found
"""
    # 31337.0 as float32 is 00 d2 f4 46; the pattern itself does not hold these bytes
    assert torch.tensor(SECRET).numpy().tobytes() == bytes.fromhex("00d2f446")
    for answer in run(looking, tasks=2):
        assert [o.value for o in answer.outcomes] == [0, 0, 0, 0], (answer.reason, answer.outcomes)
    would_be_found = looking.replace("    found = 0\n", "    found, kept = 0, [torch.tensor([31336.0 + 1] * 9)]\n")
    (answer,) = run("import torch\n" + would_be_found)
    assert answer.outcomes[0].value >= 9


@needs_sandbox
def test_what_a_function_remembers_from_visible_cases_is_still_there():
    cached = """
import functools

calls = []

@functools.lru_cache
def factor(name):
    calls.append(name)
    return 2

def tell(x):
    return x * factor("x") * len(calls)
"""
    (answer,) = run(cached)
    assert [close(o.value, case[0] * 2) for o, case in zip(answer.outcomes, (*CASES, *HIDDEN), strict=True)] == [
        None
    ] * 4


@needs_sandbox
@pytest.mark.parametrize("times", [1, 2])
def test_who_asks_for_the_key_before_the_time_has_said_its_last_word(times):
    (answer,) = run(f"def tell(x):\n    for _ in range({times}):\n        send('HIDDEN', None)\n    return x * 2")
    assert (answer.status, answer.outcomes) == ("killed", ())
    assert "could not be read" in answer.reason


@needs_sandbox
def test_who_asks_for_the_key_twice_leaves_nothing_over_for_the_next_exercise():
    """Whose hidden cases are opened by its own key."""
    twice = """
sent = []

def tell(x):
    if not sent:
        sent.append(send("CASE", (x * 2, None, False, False, "")))
        send("CASE", (x * 2, None, False, False, ""))
        send("HIDDEN", None)
        send("HIDDEN", None)
    return x * 2
"""
    tasks = [replace(ask(f"x.{name}", name), hidden=HIDDEN) for name in ("tell", "right", "tell", "right")]
    answers = session.run(notebook(_SAYING + twice, RIGHT), tasks, SMALL)
    assert [(answer.status, answer.lost, len(answer.outcomes)) for answer in answers] == [
        ("killed", False, 2),
        ("ran", False, 4),
    ] * 2
    assert all(
        o.value.tolist() == (case[0] * 2).tolist() for o, case in zip(answers[1].outcomes[2:], HIDDEN, strict=True)
    )


def test_a_key_is_handed_over_only_when_the_outside_says_so():
    (source, outside), (waiting, to), key = os.pipe(), os.pipe(), sealed.new_key()
    os.set_blocking(to, False)
    os.write(outside, sealed.answer_to_request(key))
    sealed.hand_over(source, to)
    assert os.read(waiting, 100) == key
    os.write(outside, sealed.answer_to_request(None))
    with pytest.raises(ValueError, match="at the wrong time"):
        sealed.hand_over(source, to)
    os.write(to, bytes(2**16))
    os.write(outside, sealed.answer_to_request(key))
    with pytest.raises(ValueError, match="full pipe"):
        sealed.hand_over(source, to)
    os.write(outside, b"unasked")
    assert not sealed.is_at_end(source)
    os.close(outside)
    assert sealed.is_at_end(source)
    with pytest.raises(EOFError):
        sealed.hand_over(source, to)
    for pipe in (source, waiting, to):
        os.close(pipe)


def test_what_is_sealed_is_opened_by_its_key_alone():
    keys = sealed.new_key(), sealed.new_key()
    noise = sealed.seal(HIDDEN, keys[0])
    assert bytes.fromhex("00d2f446") not in noise.numpy().tobytes()
    assert all(
        torch.equal(got[0], wanted[0]) for got, wanted in zip(sealed.unseal(noise, keys[0]), HIDDEN, strict=True)
    )
    with pytest.raises(ValueError, match="got"):
        sealed.unseal(noise, keys[1])
