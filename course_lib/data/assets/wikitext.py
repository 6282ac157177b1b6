"""Readable prose from a MediaWiki dump: regexes remove templates, tables, references, links and emphasis.

They remove tables, formulas, footnotes and picture captions on purpose; the rest is running text.
"""

import bz2
import html
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

MINIMUM_CHARACTERS = 1000  # shorter pages are disambiguation lists and stubs, not prose

BLOCKS = re.compile(
    r"<!--.*?-->|<ref[^<>]*/\s*>|<(ref|math|gallery|timeline|score|imagemap|source|syntaxhighlight|chem)\b[^<>]*>.*?</\1\s*>",
    re.S | re.I,
)
# Innermost first: each pass removes what holds no further braces, so nesting needs no parser.
TEMPLATE = re.compile(r"\{\{((?:[^{}]|\{(?!\{)|\}(?!\}))*)\}\}")
TABLE = re.compile(r"\{\|(?:(?!\{\||\|\}).)*\|\}", re.S)
LINK = re.compile(r"\[\[((?:[^\[\]]|\[(?!\[)|\](?!\]))*)\]\]")
URL_LINK = re.compile(r"\[(?:https?:|ftp:|mailto:)?//[^\s\]]+\s*([^\]\n]*)\]")
HEADING = re.compile(r"^[ \t]*(={1,6})[ \t]*(.*?)[ \t]*\1[ \t]*$", re.M)
BACK_MATTER = re.compile(
    r"^(={2,3})\s*(?:see also|notes?|footnotes|citations|references|sources|bibliography|further reading|external links"
    r"|works cited|notes and references|references and notes)\s*\1\s*$.*?(?=^={2}[^=]|\Z)",
    re.M | re.S | re.I,
)
UNCLOSED = re.compile(r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}")
NO_TEXT_LINKS = re.compile(r":?(?:file|image|category|media|[a-z]{2,3}(?:-[a-z]+)?):", re.I)


def template_text(match: re.Match) -> str:
    """Keep the words of the few templates that are part of a sentence; remove all other templates."""
    name, *arguments = (part.strip() for part in match[1].split("|"))
    plain = [a for a in arguments if "=" not in a]
    name = name.lower()
    if name in {"convert", "cvt"} and len(plain) >= 2:
        return f"{plain[0]} {plain[1]}"
    if name in {"lang", "transl"} or name.startswith("lang-"):
        return plain[-1] if plain else ""
    if name in {"nowrap", "nobr", "small", "quote", "sic", "em", "strong", "nihongo", "angle bracket", "vr", "math"}:
        return plain[0] if plain else ""
    return ""


def link_text(match: re.Match) -> str:
    """Return the visible text of a link such as `[[target|shown]]`; "" for files, categories and other languages."""
    target, *shown = match[1].split("|")
    if NO_TEXT_LINKS.match(target.strip()):
        return ""
    return shown[-1] if shown else target


def until_stable(pattern: re.Pattern, replacement, text: str) -> str:
    """Substitute until nothing changes, because removing an inner match can turn its surroundings into a match."""
    while (shorter := pattern.sub(replacement, text)) != text:
        text = shorter
    return text


def clean(markup: str) -> str:
    """Return the prose of one page. The order matters: comments can hide braces, and links can be inside templates."""
    text = BLOCKS.sub("", markup)
    text = until_stable(TEMPLATE, template_text, text)
    text = until_stable(TABLE, "", text)
    text = BACK_MATTER.sub("", text)
    text = until_stable(LINK, link_text, text)
    text = URL_LINK.sub(r"\1", text)
    text = re.sub(r"</?[a-zA-Z][^<>]*>|__[A-Z]+__", "", text)
    text = HEADING.sub(r"\2", text)
    text = re.sub(r"'{2,}", "", text)
    text = re.sub(r"^[*#:;]+[ \t]*", "", text, flags=re.M)
    return tidy(html.unescape(text))


def tidy(text: str) -> str:
    """Close the gaps left by removed markup; drop lines without a letter and lines with unclosed markup."""
    text = text.replace("\u00a0", " ")
    text = re.sub(r"\((?:[\s,;:/–-]|or|and)*\)", "", text)
    text = re.sub(r"\(\s*[,;:]\s*", "(", text)
    text = re.sub(r"[ \t]+", " ", text)
    text = re.sub(r" +([,.;:)])(?!\.)", r"\1", text)
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if re.search(r"\w", line) and not UNCLOSED.search(line))


def articles(bz2_path: str | Path) -> Iterator[tuple[str, str]]:
    """Yield (title, text) of each encyclopaedia article of a `pages-articles` dump, in the dump's order.

    It skips redirects, pages outside the article namespace, disambiguation pages and stubs.
    """
    with bz2.open(bz2_path) as file:
        for _, page in ElementTree.iterparse(file):
            if not page.tag.endswith("}page"):
                continue
            space = page.tag.removesuffix("page")
            title, markup = page.findtext(f"{space}title", ""), page.findtext(f"{space}revision/{space}text", "")
            article = page.findtext(f"{space}ns") == "0" and page.find(f"{space}redirect") is None
            page.clear()
            if article and "(disambiguation)" not in title and not re.search(r"\{\{\s*disambig", markup, re.I):
                text = clean(markup)
                if len(text) >= MINIMUM_CHARACTERS:
                    yield title, text
