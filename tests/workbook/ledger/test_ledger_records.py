"""The real records: each claim has its line, each result its claim, each command exists, and the page is up to date."""

import re
from pathlib import Path

import pytest

from course_lib.cli import bench, reproduce
from course_lib.lessons.common import tables
from course_lib.lessons.common.verdicts import WORDS, verdict
from course_lib.measure.result_files import load
from course_lib.workbook.ledger.everything import all_claims, all_rules, all_sources, name_of
from course_lib.workbook.ledger.judge import judged
from course_lib.workbook.ledger.page import PATH, page, verdict_of
from course_lib.workbook.ledger.record import LIBRARY, is_there, result_path

IDEAS = "what simple ideas got in the lesson's open task"
LOG = "the log of how a packaged model was trained"
PARTS = "what parts cost beside each other: a question of the course's own, which no document asks"
NO_CLAIM = {  # results that no claim of the documents is about
    "capstone/experiments/capstone_drafts": "which of the capstone's own models draft well, a question of the lesson's",
    "capstone/experiments/capstone_front": PARTS,
    "capstone/measured": PARTS,
    "compress/experiments/prompt_words": IDEAS,
    "dejavu/experiments/dejavu_ideas": IDEAS,
    "dejavu/experiments/relu_model": LOG,
    "dejavu/experiments/relu_predictors": "how the predictors were trained that the bench of chen-9 runs",
    "kv/own_text": IDEAS,
    "minitron/byte_model": LOG,
    "minitron/shapes": IDEAS,
    "moe/experiments/byte_mixture": LOG,
    "moe/experiments/moe_ideas": IDEAS,
    "moe/experiments/moe_upcycling": "a question of the lesson's own: copies of a dense model, trained on",
    "patterns/budget": IDEAS,
    "sinks/first_tokens": IDEAS,
    "sparse_attention/block_scores": IDEAS,
    "sparse_attention/experiments/visual_model": LOG,
    "sparsegpt/experiments/recipes": IDEAS,
    "sparsegpt/experiments/sparsegpt_choices": "claims of SparseGPT's paper that no document repeats",
    "sparsegpt/experiments/sparsegpt_rounded": "a claim of SparseGPT's paper that no document repeats",
    "sparsegpt/experiments/sparsegpt_successors": "methods that came after the documents",
    "start/plans": IDEAS,
    "wanda/masks": "theorems and choices of Wanda's paper that no document repeats",
    "wanda/shares": IDEAS,
}
# Claims whose result is not committed yet. Whoever commits it writes the rule and takes the claim off this list.
AWAITED: dict[str, set[str]] = {}
CLAIMS = {claim.id: claim for claim in all_claims()}
JUDGED = [claim for claim in CLAIMS.values() if claim.rule]
RULES = all_rules()


def test_ids_number_the_claims_of_each_document_in_order():
    assert len(CLAIMS) == len(all_claims()) > 200
    for source in all_sources():
        prefix = source.claims[0].id.rpartition("-")[0]
        assert [claim.id for claim in source.claims] == [f"{prefix}-{i + 1}" for i in range(len(source.claims))]


@pytest.mark.parametrize("name", RULES)
def test_a_line_judges_from_the_results_that_it_names(name, monkeypatch):
    """The verdict is that of its effects, and every result that is named was read for it."""
    rule, read = RULES[name], []
    monkeypatch.setattr(tables, "load", lambda path: read.append(Path(path).resolve()) or load(path))
    judged.cache_clear()
    found = judged(rule)
    assert found.words in (verdict(found.effects), verdict(found.effects, larger_models=True))
    assert found.verdict in WORDS
    assert {path.resolve() for path in rule.paths} <= set(read)
    assert rule.effect
    assert rule.refuted
    assert len(found.line) < 200


def test_every_line_judges_a_claim():
    used = {name_of(claim.rule) for claim in JUDGED}
    assert sorted(set(RULES) - used) == []


def test_claims_that_wait_are_those_of_the_list_and_their_results_are_not_there():
    waiting = {claim.id: claim.awaits for claim in CLAIMS.values() if claim.awaits}
    assert waiting == {claim: result for result, claims in AWAITED.items() for claim in claims}
    there = [result for result in AWAITED if is_there(result)]
    assert there == [], "measured by now: write the rules of the claims that wait for it"


def results():
    """Every result of a lesson, as rules name it."""
    paths = (LIBRARY / "lessons").rglob("*.json")
    names = (path.relative_to(LIBRARY / "lessons").with_suffix("").as_posix() for path in paths)
    return sorted(name for name in names if not name.rpartition("/")[2].startswith("published") and "." not in name)


def test_every_result_is_used_by_a_claim_or_the_list_says_why_not():
    used = {result for claim in JUDGED for result in claim.rule.results}
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


@pytest.mark.parametrize("name", sorted({result for claim in JUDGED for result in claim.rule.results}))
def test_commands_exist_and_write_what_they_are_said_to(name):
    result = load(result_path(name))
    assert command_exists(result["command"]), result["command"]
    if result["command"].split()[1] == "reproduce":
        assert reproduce.committed(result["experiment"]) == result_path(name)


def test_a_command_that_is_not_there_is_noticed():
    made_up = ("course reproduce kvv", "course invent kv", "course bench nothing", "make gpu nm_matmul")
    for wrong in (*made_up, "make test", "course reproduce"):
        assert not command_exists(wrong)


def test_claims_are_short_sentences_without_a_verdict():
    for claim in CLAIMS.values():
        assert re.fullmatch(r"[A-Z0-9].{10,170}\.", claim.says), claim.id
        assert claim.at
        assert not [word for word in WORDS[1:] if word in claim.says + claim.why_not], claim.id
        assert not claim.why_not.endswith("."), claim.id


def test_nothing_is_called_unmeasured_that_a_line_could_judge():
    """Every reason is given for a claim without a line alone, and every verdict is one of the five or says so."""
    for claim in CLAIMS.values():
        said = verdict_of(claim)
        assert (said in WORDS) == (claim.rule is not None)


def test_the_committed_page_is_what_the_results_say():
    judged.cache_clear()
    assert PATH.read_text(encoding="utf-8") == page(), "run `course claims`"
    assert page() == page()


def test_the_readme_names_the_page():
    assert "(docs/claims.md)" in (LIBRARY.parent / "README.md").read_text(encoding="utf-8")
