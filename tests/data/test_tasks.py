import gzip
import json

import pytest

from course_lib.data import benchmarks as tasks
from course_lib.data.assets.catalogue import BENCHMARK_FILES
from course_lib.data.benchmarks import Question, Request, load, questions


def row(doc_id, context, continuation, label):
    return {"doc_id": doc_id, "label": label, "request": {"context": context, "continuation": continuation}}


ROWS = [
    row(0, "Question: Is it?\nAnswer:", " yes", 1),
    row(0, "Question: Is it?\nAnswer:", " no", 1),
    row(1_000_000, "Answer:", " yes", 1),
    row(1_000_000, "Answer:", " no", 1),
    row(1, "Question: Was it?\nAnswer:", " yes", 0),
    row(1, "Question: Was it?\nAnswer:", " no", 0),
    row(1, "Question: Was it?\nAnswer:", " perhaps", 0),
    row(1_000_001, "Answer:", " yes", 0),
]


@pytest.fixture
def benchmarks(tmp_path, monkeypatch):
    """Writes a request file for a task; `load` finds it."""

    def write(task, rows):
        path = tmp_path / BENCHMARK_FILES[task]
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as file:
            file.writelines(json.dumps(r) + "\n" for r in rows)

    tasks._load.cache_clear()
    monkeypatch.setattr(tasks, "asset_path", lambda name: tmp_path)
    write.folder = tmp_path
    return write


def test_rows_of_a_question_are_gathered_and_unconditional_rows_dropped(benchmarks):
    benchmarks("arc_easy", ROWS)
    first = Request("Question: Is it?\nAnswer:", " yes")
    assert load("arc_easy")[0] == Question((first, Request("Question: Is it?\nAnswer:", " no")), 1)
    assert [len(question.choices) for question in load("arc_easy")] == [2, 3]
    assert [question.chance for question in load("arc_easy")] == [1 / 2, 1 / 3]


def test_winogrande_keeps_a_context_for_each_choice(benchmarks):
    benchmarks("winogrande", [row(0, "so Sarah", " slept.", 1), row(0, "so Maria", " slept.", 1)])
    assert load("winogrande") == (Question((Request("so Sarah", " slept."), Request("so Maria", " slept.")), 1),)


def test_lambada_has_one_choice_and_no_chance(benchmarks):
    benchmarks("lambada", [row(0, "I don't care about", " signs", ["signs"])])
    assert load("lambada") == (Question((Request("I don't care about", " signs"),), 0),)
    assert load("lambada")[0].chance == 0


def test_prompts_are_worded_as_in_the_harness(benchmarks):
    benchmarks("openbookqa", ROWS[:2])
    benchmarks("piqa", [row(0, "Goal: Sleep.\nAnswer:", " lie", 0), row(0, "Goal: Sleep.\nAnswer:", " run", 0)])
    assert {c.context for c in load("openbookqa")[0].choices} == {"Is it?"}
    assert {c.context for c in load("piqa")[0].choices} == {"Question: Sleep.\nAnswer:"}


def test_rte_is_read_from_arrow(benchmarks):
    import pyarrow

    path = benchmarks.folder / BENCHMARK_FILES["rte"]
    path.parent.mkdir(parents=True)
    table = pyarrow.table({"sentence1": ["A sat."], "sentence2": ["A stood."], "label": [1], "idx": [0]})
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    context = "A sat.\nQuestion: A stood. True or False?\nAnswer:"
    assert load("rte") == (Question((Request(context, " True"), Request(context, " False")), 1),)


def test_samples_are_seeded_and_without_repetition(benchmarks):
    benchmarks("sciq", [row(i, f"{i}", f" {j}", 0) for i in range(30) for j in range(2)])
    ten = questions("sciq", 10, seed=1)
    assert ten == questions("sciq", 10, seed=1)
    assert len({question.choices[0].context for question in ten}) == 10
    assert ten[:4] == questions("sciq", 4, seed=1)
    assert ten != questions("sciq", 10, seed=2)
    assert questions("sciq") == list(load("sciq"))


def test_bad_names_and_sizes_are_refused(benchmarks):
    benchmarks("sciq", ROWS)
    with pytest.raises(ValueError, match="expected one of boolq, rte, hellaswag"):
        questions("mmlu", 5)
    for n in (0, 3):
        with pytest.raises(ValueError, match=f"got n={n} for 'sciq'; expected 1 to 2"):
            questions("sciq", n)


@pytest.mark.real
@pytest.mark.parametrize(
    ("task", "n"),
    {
        "boolq": 3270,
        "rte": 277,
        "winogrande": 1267,
        "arc_easy": 570,
        "arc_challenge": 299,
        "openbookqa": 500,
        "sciq": 1000,
        "piqa": 1838,
        "lambada": 5153,
        "common_knowledge": 1037,
    }.items(),
)
def test_the_real_files_hold_the_whole_benchmarks(task, n):
    every = load(task)
    assert len(every) == n
    for question in every:
        assert 0 <= question.answer < len(question.choices)
        assert all(c.continuation.startswith(" ") and not c.context[-1:].isspace() for c in question.choices)
        assert question.choices[0].context != "Answer:"
