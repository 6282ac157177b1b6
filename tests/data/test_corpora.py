import gzip
import json
import random
import sys
import types
from string import ascii_lowercase

import pytest
import torch
from letters import letter_tokenizer

from course_lib.data import benchmarks, corpora, hub_corpora
from course_lib.data.corpora import windows

LETTERS = random.Random(0)
ARTICLES = [f"article {i:02d} " + "".join(LETTERS.choices(ascii_lowercase, k=200)) for i in range(12)]
PARAGRAPHS = [f"paragraph {i} " + "".join(LETTERS.choices(ascii_lowercase, k=90)) for i in range(12)]


@pytest.fixture
def tokenizer():
    return letter_tokenizer()


@pytest.fixture(autouse=True)
def small_assets(tmp_path, monkeypatch):
    articles = tmp_path / "articles.jsonl"
    articles.write_text("".join(json.dumps({"title": str(i), "text": text}) + "\n" for i, text in enumerate(ARTICLES)))
    questions = tmp_path / benchmarks.BENCHMARK_FILES["boolq"]
    questions.parent.mkdir(parents=True)
    with gzip.open(questions, "wt") as file:
        for i in range(24):
            context = f"Title -- {PARAGRAPHS[i // 2]}\nQuestion: is it {i}?\nAnswer:"
            for continuation in (" yes", " no"):
                request = {"context": context, "continuation": continuation}
                file.write(json.dumps({"doc_id": i, "label": 0, "request": request}) + "\n")
    benchmarks._load.cache_clear()
    for module in (corpora, benchmarks):
        monkeypatch.setattr(module, "asset_path", lambda name: articles if name == "wikipedia" else tmp_path)


def rows(tensor):
    return {tuple(row) for row in tensor.tolist()}


@pytest.mark.parametrize("corpus", ["wikipedia", "boolq"])
def test_splits_share_no_document_and_windows_do_not_overlap(corpus, tokenizer):
    texts = {}
    for split in corpora.SPLITS:
        every = windows(corpus, None, 20, tokenizer, split)
        assert len(rows(every)) == len(every)  # random letters: equal windows would be overlap
        texts[split] = corpora.DOCUMENTS[corpus](split)
        whole = tokenizer("\n\n".join(texts[split])).input_ids
        assert len(every) == len(whole) // 20
        assert rows(every) == {tuple(whole[i : i + 20]) for i in range(0, len(whole) - 19, 20)}
    assert len(texts["calibration"]) == 9
    assert len(texts["evaluation"]) == 3
    assert not set(texts["calibration"]) & set(texts["evaluation"])


def test_boolq_paragraphs_come_once_and_without_title_or_question(tokenizer):
    assert benchmarks.boolq_paragraphs() == PARAGRAPHS


def test_same_seed_same_windows_and_a_larger_sample_begins_with_a_smaller(tokenizer):
    eight = windows("wikipedia", 8, 20, tokenizer, seed=3)
    assert eight.shape == (8, 20)
    assert eight.dtype == torch.int64
    assert torch.equal(eight, windows("wikipedia", 8, 20, tokenizer, seed=3))
    assert torch.equal(eight[:3], windows("wikipedia", 3, 20, tokenizer, seed=3))
    assert not torch.equal(eight, windows("wikipedia", 8, 20, tokenizer, seed=4))


def test_a_change_of_text_or_tokenizer_is_seen(tokenizer, monkeypatch):
    before = windows("wikipedia", 2, 20, tokenizer)
    monkeypatch.setitem(corpora.DOCUMENTS, "wikipedia", lambda split: ["z" * 100])
    assert not torch.equal(before, windows("wikipedia", 2, 20, tokenizer))


def test_a_word_added_to_the_tokenizer_is_seen_and_a_tokenizer_of_the_same_rules_is_as_good(tokenizer):
    before = windows("wikipedia", 2, 20, tokenizer)
    misses = corpora._tokens_once.cache_info().misses
    assert torch.equal(before, windows("wikipedia", 2, 20, letter_tokenizer()))
    assert corpora._tokens_once.cache_info().misses == misses
    tokenizer.add_tokens(["arti", *ascii_lowercase])
    assert not torch.equal(before, windows("wikipedia", 2, 20, tokenizer))
    assert torch.equal(before, windows("wikipedia", 2, 20, letter_tokenizer()))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("novels", 2, 20), "expected one of wikipedia, boolq, wikitext2, c4"),
        (("wikipedia", 2, 20, "training"), "expected one of calibration, evaluation"),
        (("wikipedia", 0, 20), "n >= 1"),
        (("wikipedia", 2, 1), "length >= 2"),
        (("c4", None, 20), "expected a number"),
    ],
)
def test_bad_arguments_are_refused(arguments, words, tokenizer):
    with pytest.raises(ValueError, match=words):
        windows(*arguments[:3], tokenizer, *arguments[3:])


def test_too_few_tokens_says_how_many_there_are(tokenizer):
    n_tokens = len(tokenizer("\n\n".join(ARTICLES[9:])).input_ids)
    with pytest.raises(ValueError, match=rf"has {n_tokens} tokens, enough for {n_tokens // 100} windows of 100"):
        windows("wikipedia", 1000, 100, tokenizer, "evaluation")


@pytest.fixture
def hub(monkeypatch):
    """Stands in for `datasets.load_dataset` and remembers what was asked for."""
    asked = []

    def load_dataset(path, name=None, split=None, data_files=None):
        asked.append((path, name, split, data_files))
        return {"text": ARTICLES + ["short"] * 40}

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    return asked


def test_wikitext2_is_the_test_set_joined_by_blank_lines(hub, tokenizer):
    every = windows("wikitext2", None, 50, tokenizer, "evaluation")
    whole = tokenizer("\n\n".join(ARTICLES + ["short"] * 40)).input_ids
    assert rows(every) == {tuple(whole[i : i + 50]) for i in range(0, len(whole) - 49, 50)}
    assert hub == [("Salesforce/wikitext", "wikitext-2-raw-v1", "test", None)]


def test_c4_windows_each_come_from_one_long_document(hub, tokenizer):
    found = windows("c4", 12, 60, tokenizer)
    texts = ["".join(tokenizer.convert_ids_to_tokens(row)) for row in found.tolist()]
    sources = [next(i for i, article in enumerate(ARTICLES) if text in article) for text in texts]
    assert sorted(sources) == list(range(12))
    assert hub[0][0] == "allenai/c4"
    with pytest.raises(ValueError, match="12 documents longer than 60"):
        windows("c4", 13, 60, tokenizer)


@pytest.mark.parametrize("corpus", ["wikitext2", "c4"])
def test_an_unreachable_hub_is_one_sentence(corpus, tokenizer, monkeypatch):
    def load_dataset(*arguments, **settings):
        raise ConnectionError("no route\nto host")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(ValueError, match="could not be loaded: no route Use 'wikipedia' or 'boolq'") as caught:
        windows(corpus, 2, 20, tokenizer)
    assert "\n" not in str(caught.value)


def test_the_hub_is_asked_for_what_the_papers_use():
    assert hub_corpora.C4_FILES["calibration"] == ("train", "en/c4-train.00000-of-01024.json.gz")


@pytest.mark.real
def test_real_corpora_are_large_enough_and_prose(monkeypatch):
    from transformers import AutoTokenizer

    from course_lib.data.assets import cache

    for module in (corpora, benchmarks):
        monkeypatch.setattr(module, "asset_path", cache.asset_path)
    tokenizer = AutoTokenizer.from_pretrained(cache.asset_path("smollm2-135m"))
    for corpus, expected in (("wikipedia", 400_000), ("boolq", 200_000)):
        assert windows(corpus, None, 512, tokenizer).numel() > expected
        shown = tokenizer.decode(windows(corpus, 1, 64, tokenizer, "evaluation")[0])
        assert sum(c.isalpha() or c.isspace() for c in shown) > 0.8 * len(shown)
