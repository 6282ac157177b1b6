"""`python3 -m course_lib.kernels.gpu.merged EARLIER LATER RESULT`: one file from two runs of `make gpu` on one device.

The time of a run is limited, so a bench that it could not finish has few contests, or none. Such a bench is taken from
the earlier run. Each bench has the start time of its run; tests, peak rates and failures are those of the later run.
"""

import json
import sys
from pathlib import Path
from typing import Any

ENOUGH = 2  # contests


def merged(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Return the later run, with the earlier run's results for benches that the later one did not finish.

    Raises:
        ValueError: the runs are of two devices.
    """
    if earlier["device"]["name"] != later["device"]["name"]:
        raise ValueError(
            f"got runs of {earlier['device']['name']} and {later['device']['name']}; expected one device in both"
        )
    benches = {}
    for name in sorted(earlier["benches"] | later["benches"]):
        runs = [run for run in (later, earlier) if name in run["benches"]]
        run = runs[0] if len(runs) == 1 or not _is_short(later, earlier, name) else earlier
        entry = run["benches"][name]
        broken = {step: _first_line(how) for step, how in entry.get("broken", {}).items()}
        benches[name] = {"started": run["started"]} | entry | {"broken": broken}
    return later | {"benches": benches, "wrong": [_first_line(what) for what in later["wrong"]]}


def _first_line(text: str) -> str:
    """Return the text without the traceback, which contains folders of the machine."""
    return text.splitlines()[0].strip()


def _is_short(later: dict[str, Any], earlier: dict[str, Any], name: str) -> bool:
    n_later, n_earlier = (len({row["contest"] for row in run["benches"][name]["rows"]}) for run in (later, earlier))
    return n_later < min(ENOUGH, n_earlier)


def main(earlier: str, later: str, result: str) -> None:
    found = merged(*(json.loads(Path(path).read_text(encoding="utf-8")) for path in (earlier, later)))
    Path(result).write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
