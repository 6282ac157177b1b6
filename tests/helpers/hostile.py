"""A result in which every field that a submission can influence carries an attack."""

from course_lib.grading.records import CaseResult, ExerciseResult, Result

PAYLOADS = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "</title></style></script></pre><svg onload=alert(1)>",
    "' onmouseover='alert(1)' x='",
    "javascript:alert(1)//{}{0}%s$&",
    "=cmd|' /C calc'!A0",
    "\t=1+1",
    "a;=HYPERLINK(1)",
    "\x00\x07\x1b[31mred\x1b[0m\x9b\x7f",
    "\ud800 lone \udfff",
    "\u202egnp.exe\u2066",
    "<!-- --!> ]]> &lt;b&gt; &#x3c;script&#62;",
)
LONG = "<script>" + "W" * 1_000_000


def hostile_result(text: str, problem: str = "") -> Result:
    """The text everywhere, once for each state that has something to say."""
    cases = (
        CaseResult(text, False, None),
        CaseResult(text, False, text),
        CaseResult(text, True, text),
    )
    said = {
        "reason": text,
        "lowered": text,
        "mistake": text,
        "explanation": text,
        "hint": text,
        "trace": text,
        "notes": (text,) * 30,
        "touched": (text,) * 30,
        "uses": (text,) * 30,
        "code": text,
        "only_calls": True,
        "seconds": 1.5,
    }
    rows = tuple(
        ExerciseResult(
            text, text, 1.0, 3.0, state, cases=cases if state in ("partly", "wrong", "right") else (), **said
        )
        for state in ("right", "partly", "wrong", "not attempted", "not found", "failed", "no submission")
    )
    return Result(text, text, text, 0, rows, problem=problem, notes=(text,) * 30)
