import bz2
import re

import pytest

from course_lib.data.assets.wikitext import articles, clean

SENTENCES = {
    "'''Bold''' and ''italic'' words.": "Bold and italic words.",
    "A [[political philosophy|philosophy]] of [[self-rule]].": "A philosophy of self-rule.",
    "Seen[[File:a.jpg|thumb|A [[caption]] with [http://x.y a link].]] by all.": "Seen by all.",
    "Kept.[[Category:Ideas|*]][[de:Idee]]": "Kept.",
    "Said<ref name=a>Smith, ''Book'' {{cite|x}}</ref> twice<ref name=a />.": "Said twice.",
    "<!-- {{ never shown -->Shown.": "Shown.",
    "Runs {{convert|12.5|km|mi}} south.": "Runs 12.5 km south.",
    "Called {{lang|grc|ἀναρχία}} there.": "Called ἀναρχία there.",
    "Gone{{infobox | name = {{nested|x}} | {{deeper|{{still}}}} }}.": "Gone.",
    "Before\n{| class=wikitable\n|-\n| {| inner |} || 3\n|}\nafter.": "Before\nafter.",
    "Open (; {{IPA|x}}) end": "Open end",
    "== Heading ==\nText &nbsp;with &ndash; marks": "Heading\nText with – marks",
    "* one\n** two\n# three": "one\ntwo\nthree",
    "See [http://a.b/c this page] or [http://a.b].": "See this page or.",
    "Body.\n== See also ==\n* [[Other]]\n== Last ==\nMore.": "Body.\nLast\nMore.",
    "A <math>x^2</math>gap<br />here": "A gaphere",
    "Good line.\nA broken [[link never closed.\nGood again.": "Good line.\nGood again.",
}


@pytest.mark.parametrize(("markup", "prose"), SENTENCES.items())
def test_markup_becomes_the_sentence_a_reader_sees(markup, prose):
    assert clean(markup) == prose


def page(title, text, namespace=0, redirect=""):
    return f"<page><title>{title}</title><ns>{namespace}</ns>{redirect}<revision><text>{text}</text></revision></page>"


def test_only_articles_of_some_length_are_kept(tmp_path):
    prose = "A sentence of the article. " * 50
    pages = [
        page("Kept", prose + "{{cite}}"),
        page("Moved", prose, redirect='<redirect title="Kept"/>'),
        page("Wikipedia:Rules", prose, namespace=4),
        page("Kept (disambiguation)", prose),
        page("Other", "{{Disambig}}" + prose),
        page("Stub", "Too short."),
    ]
    dump = tmp_path / "dump.bz2"
    dump.write_bytes(bz2.compress(f'<mediawiki xmlns="http://m.w/x">{"".join(pages)}</mediawiki>'.encode()))
    assert list(articles(dump)) == [("Kept", prose.strip())]


@pytest.mark.real
def test_the_real_articles_hold_almost_no_markup():
    import json

    from course_lib.data.assets.cache import asset_path

    texts = [json.loads(line)["text"] for line in asset_path("wikipedia").read_text(encoding="utf-8").splitlines()]
    assert len(texts) > 90
    everything = "\n".join(texts)
    assert 2_400_000 < len(everything) < 3_000_000
    marks = re.findall(r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|'''|==|</?(?:ref|br|math|div)\b|&[a-z]+;|https?://", everything)
    assert len(marks) <= 5, marks[:20]
