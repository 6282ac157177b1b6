"""The real records: every claim is judged, every result used, every command exists, and the page is up to date."""

import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from course_lib.cli import bench, reproduce
from course_lib.lessons.common import claim as claim_module
from course_lib.lessons.common.claim import result_path
from course_lib.lessons.common.results import COLUMNS
from course_lib.lessons.common.verdicts import WORDS, Effect, verdict
from course_lib.measure.result_files import load
from course_lib.workbook.ledger.everything import all_claims, all_sources, all_statements, claims_of
from course_lib.workbook.ledger.page import PATH, SUMMARY, page, summary, verdict_of
from course_lib.workbook.ledger.record import LIBRARY, Label

IDEAS = "what simple ideas got in the lesson's open task"
LOG = "the log of how a packaged model was trained"
NO_CLAIM = {  # results that no claim of the documents is about
    "compress/experiments/prompt_words": IDEAS,
    "dejavu/experiments/dejavu_ideas": IDEAS,
    "dejavu/experiments/relu_model": LOG,
    "kv/experiments/own_text": IDEAS,
    "minitron/experiments/byte_model": LOG,
    "minitron/experiments/shapes": IDEAS,
    "moe/experiments/byte_mixture": LOG,
    "moe/experiments/moe_ideas": IDEAS,
    "patterns/experiments/budget": IDEAS,
    "sinks/experiments/first_tokens": IDEAS,
    "sparse_attention/experiments/block_scores": IDEAS,
    "sparse_attention/experiments/visual_model": LOG,
    "sparsegpt/experiments/recipes": IDEAS,
    "sparsegpt/experiments/sparsegpt_successors": "methods that came after the documents",
    "start/experiments/plans": IDEAS,
    "wanda/experiments/activations": "norms of features, which the text of lesson 04 explains",
    "wanda/experiments/layer_sparsity": IDEAS,
    "wanda/experiments/masks": "theorems and choices of Wanda's paper that no document repeats",
}
STATEMENTS = {statement.id: statement for statement in all_statements()}
CLAIMS = all_claims()
JUDGED = [statement for statement in STATEMENTS.values() if statement.claim]


def test_ids_number_the_statements_of_each_document_in_order():
    assert len(STATEMENTS) == len(all_statements()) > 200
    for source in all_sources():
        prefix = source.statements[0].id.rpartition("-")[0]
        ids = [statement.id for statement in source.statements]
        assert ids == [f"{prefix}-{i + 1}" for i in range(len(source.statements))]


def test_every_constant_has_an_id_of_its_own_that_names_its_lesson():
    names = [f"course_lib.lessons.{lesson}.claims" for lesson in {claim.lesson for claim in CLAIMS.values()}]
    records = {
        id(record): (name, record)
        for name in names
        for value in vars(import_module(name)).values()
        for record in claims_of(value)
    }
    assert len(records) == len(CLAIMS)
    assert "sparse_attention-told-likelihood" in CLAIMS  # in a pair, in a list, in a dictionary
    assert all(name.split(".")[2] == claim.lesson for name, claim in records.values())


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_is_judged_by_the_committed_results_that_it_names(name, monkeypatch):
    """The verdict follows from the effects, the effects from the estimates, and every named result is read."""
    claim, read = CLAIMS[name], []
    monkeypatch.setattr(claim_module, "load", lambda path: read.append(Path(path).resolve()) or load(path))
    claim_module._judge_committed.cache_clear()
    found = claim.judge()
    assert [path.resolve() for path in claim.paths] == read
    assert found.verdict in WORDS
    assert found.words == verdict(found.effects.get("", found.effects), larger_models=claim.larger_models)
    threshold = claim.below if claim.below is not None else claim.above or 0
    side = -1 if claim.below is not None else 1
    for case, effect in found.effects.items():
        assert effect.value == pytest.approx(side * (found.estimates[case].value - threshold), abs=1e-12)
        assert effect.error == found.estimates[case].error


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_says_all_that_a_reader_needs(name):
    claim = CLAIMS[name]
    assert re.fullmatch(r"\w.{10,200}[^.]", claim.text), claim.text
    assert claim.quantity
    assert claim.refuted
    judged_claim = claim.judge()
    assert any(digit in judged_claim.ours for digit in "0123456789")
    assert all(len(line) <= COLUMNS for line in str(judged_claim).splitlines())
    assert not [word for word in WORDS[1:] if word in claim.text]


@pytest.mark.parametrize("name", [name for name, claim in CLAIMS.items() if claim.threshold])
def test_a_threshold_has_a_reason(name):
    claim = CLAIMS[name]
    assert claim.because
    assert not claim.because.endswith(".")
    assert claim.threshold not in claim.other_thresholds


@pytest.mark.parametrize("name", CLAIMS)
def test_the_verdict_turns_with_the_estimates(name):
    """Far above the threshold, far below it, and on it with an error: the claim holds, fails and is undecided."""
    claim = CLAIMS[name]
    threshold = claim.below if claim.below is not None else claim.above or 0
    side = -1 if claim.below is not None else 1

    def words(shift, error):
        estimate = Effect(value=threshold + side * shift, error=error, n=10)
        moved = replace(claim, measure=lambda *_: estimate, shown=None)
        return moved.judge(*({} for _ in claim.results or "x")).verdict

    assert words(1.0, 0.01) == "holds"
    assert words(-1.0, 0.01) == ("not at this scale" if claim.larger_models else "does not hold")
    assert words(0.001, 0.5) == "undecided"


def test_every_statement_names_a_claim_that_there_is():
    assert sorted({statement.claim for statement in JUDGED} - set(CLAIMS)) == []


def results():
    """Every result of a lesson, as claims name it."""
    paths = (LIBRARY / "lessons").rglob("*.json")
    names = (path.relative_to(LIBRARY / "lessons").with_suffix("").as_posix() for path in paths if path != SUMMARY)
    return sorted(name for name in names if not name.rpartition("/")[2].startswith("published") and "." not in name)


def test_every_result_is_used_by_a_claim_or_the_list_says_why_not():
    paths = {path for claim in CLAIMS.values() for path in claim.paths if LIBRARY in path.parents}
    used = {path.relative_to(LIBRARY / "lessons").with_suffix("").as_posix() for path in paths}
    assert sorted(set(results()) - used - set(NO_CLAIM)) == []
    assert sorted(set(NO_CLAIM) & used) == [], "used by now: take it off the list"
    assert sorted(set(NO_CLAIM) - set(results())) == []


def command_exists(command):
    """`course reproduce NAME` or `course bench NAMES`, of names that there are; without a name all benches run.

    Or `make gpu`, which takes none.
    """
    if command == "make gpu":
        return True
    program, verb, *names = command.split()
    known = {"reproduce": reproduce.names(), "bench": list(bench._benches(None))}
    fewest = {"reproduce": 1, "bench": 0}
    return program == "course" and verb in known and len(names) >= fewest[verb] and set(names) <= set(known[verb])


@pytest.mark.parametrize("name", sorted({result for claim in CLAIMS.values() for result in claim.results}))
def test_commands_exist_and_write_what_they_are_said_to(name):
    result = load(result_path(name))
    assert command_exists(result["command"]), result["command"]
    if result["command"].split()[1] == "reproduce":
        assert reproduce.committed(result["experiment"]) == result_path(name)


def test_a_command_that_is_not_there_is_noticed():
    made_up = ("course reproduce kvv", "course invent kv", "course bench nothing", "make gpu nm_matmul")
    for wrong in (*made_up, "make test", "course reproduce"):
        assert not command_exists(wrong)


def test_statements_are_short_sentences_without_a_verdict():
    for statement in STATEMENTS.values():
        assert re.fullmatch(r"[A-Z0-9].{10,170}\.", statement.says), statement.id
        assert statement.at
        assert not [word for word in WORDS[1:] if word in statement.says + statement.why_not], statement.id
        assert not statement.why_not.endswith("."), statement.id


def test_a_verdict_is_one_of_the_words_or_a_label_that_says_why_there_is_none():
    for statement in STATEMENTS.values():
        is_measured = statement.claim and not CLAIMS[statement.claim].from_source
        assert verdict_of(statement) in (WORDS if is_measured else list(Label))


def test_what_the_sources_own_numbers_decide_is_labelled_so_with_its_verdict():
    text = page()
    for name in {statement.claim for statement in JUDGED if CLAIMS[statement.claim].from_source}:
        assert f"| from the source's own table: {CLAIMS[name].judge().words} |" in text
    n_claims = len({statement.claim for statement in JUDGED})
    assert f"{len(JUDGED)} statements are judged by {n_claims} claims of the lessons." in text


def test_counts_are_given_where_a_statement_is_counted():
    counted = [statement for statement in STATEMENTS.values() if statement.label in (Label.COUNTED, Label.FROM_SOURCE)]
    assert len(counted) > 8
    for statement in counted:
        assert re.search(r"\d|operations|fewer|times", statement.why_not), statement.id


def test_the_committed_page_and_summary_are_what_the_results_say():
    assert PATH.read_text(encoding="utf-8") == page(), "run `course claims`"
    assert SUMMARY.read_text(encoding="utf-8") == summary(), "run `course claims`"
    assert page() == page()


def test_the_readme_names_the_page():
    assert "(docs/claims.md)" in (LIBRARY.parent / "README.md").read_text(encoding="utf-8")
