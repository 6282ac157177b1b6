"""Names are looked up on the hub where it answers, else among earlier downloads, at once either way."""

import pytest

from course_lib.data import hub


class Session:
    def __init__(self, error=None):
        self.error, self.asked = error, []

    def head(self, address, timeout):
        self.asked.append((address, timeout))
        if self.error:
            raise self.error


@pytest.fixture(autouse=True)
def forget():
    hub.reachable.cache_clear()
    yield
    hub.reachable.cache_clear()


def test_the_hub_is_asked_once(monkeypatch):
    session = Session()
    monkeypatch.setattr(hub.huggingface_hub, "get_session", lambda: session)
    assert hub.reachable()
    assert hub.name_or_folder("gpt2") == "gpt2"
    assert [timeout for _, timeout in session.asked] == [hub.SECONDS]


def test_without_a_hub_an_earlier_download_is_used(monkeypatch, tmp_path):
    monkeypatch.setattr(hub.huggingface_hub, "get_session", lambda: Session(RuntimeError("no network")))
    asked = {}

    def snapshot(name, local_files_only):
        asked[name] = local_files_only
        return str(tmp_path)

    monkeypatch.setattr(hub.huggingface_hub, "snapshot_download", snapshot)
    assert hub.name_or_folder("gpt2") == str(tmp_path)
    assert asked == {"gpt2": True}


def test_without_a_hub_and_without_a_download_it_says_so(monkeypatch):
    monkeypatch.setattr(hub.huggingface_hub, "get_session", lambda: Session(OSError("no network")))
    with pytest.raises(OSError, match="no folder of that name.*cannot be reached"):
        hub.name_or_folder("nobody/has-this-model")
