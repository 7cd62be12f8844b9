import json
import os
import shutil
import subprocess
import sys
import threading
import types

import pytest

from omnirt.actors.models import hub
from omnirt.actors.models.hub import Unavailable, Unreachable, from_hub, is_complete


class Missing(FileNotFoundError):
    """What the client raises for what is not in its cache."""


class FakeHub(types.ModuleType):
    """The client: a local cache and a remote, either of which may be missing."""

    def __init__(self):
        super().__init__("huggingface_hub")
        self.local = self.remote = None
        self.answer = lambda: (_ for _ in ()).throw(ConnectionError("no network"))
        self.asked = []
        self.utils = types.SimpleNamespace(disable_progress_bars=lambda: None)

    def snapshot_download(self, repository, *, local_files_only=False, revision=None, allow_patterns=None):
        self.asked.append((repository, "cache" if local_files_only else revision))
        folder = self.local if local_files_only else self.remote
        if folder is None:
            raise Missing("nothing there") if local_files_only else OSError("connection reset\nmore")
        return str(folder)

    def HfApi(self):  # noqa: N802 - the client's own name
        return types.SimpleNamespace(model_info=lambda repository, timeout: types.SimpleNamespace(sha=self.answer()))


@pytest.fixture
def client(monkeypatch):
    client = FakeHub()
    monkeypatch.setitem(sys.modules, "huggingface_hub", client)
    return client


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_text("")
    return tmp_path


def test_the_local_cache_is_used_without_asking_the_hub(client, checkpoint):
    client.local = checkpoint
    assert from_hub("org/name", print) == (checkpoint, "the hub's local cache")
    assert client.asked == [("org/name", "cache")]


def test_a_hub_that_answers_gives_the_revision_it_named(client, checkpoint):
    client.remote, client.answer = checkpoint, lambda: "abc123"
    assert from_hub("org/name", print) == (checkpoint, "the hub")
    assert client.asked[-1] == ("org/name", "abc123")


def test_a_cache_that_holds_only_a_part_is_completed(client, checkpoint, tmp_path):
    part = tmp_path / "part"
    part.mkdir()
    client.local, client.remote, client.answer = part, checkpoint, lambda: "abc123"
    assert from_hub("org/name", print)[0] == checkpoint


def test_a_hub_that_is_not_there_is_passed_over(client):
    with pytest.raises(Unavailable, match="cannot be asked: ConnectionError: no network"):
        from_hub("org/name", print)


def test_a_hub_that_answers_with_a_refusal_is_one_that_is_there(client):
    for response, kind in ((None, Unreachable), (object(), Unavailable)):
        error = OSError("404")
        error.response = response
        client.answer = lambda error=error: (_ for _ in ()).throw(error)
        with pytest.raises(Unavailable) as caught:
            from_hub("org/name", print)
        assert type(caught.value) is kind


def test_a_hub_that_does_not_answer_in_time_is_passed_over(client, monkeypatch):
    release = threading.Event()
    client.answer = lambda: release.wait(30) or "late"
    monkeypatch.setattr(hub, "PROBE_S", 0.05)
    with pytest.raises(Unavailable, match="did not answer within"):
        from_hub("org/name", print)
    release.set()


def test_a_download_that_breaks_off_or_holds_no_model_is_passed_over(client, tmp_path):
    client.answer = lambda: "abc123"
    with pytest.raises(Unavailable, match="broke off: OSError: connection reset"):
        from_hub("org/name", print)
    client.remote = tmp_path
    with pytest.raises(Unavailable, match="holds no"):
        from_hub("org/name", print)


def test_without_the_hubs_client_its_repositories_are_passed_over(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(Unavailable, match="not installed"):
        from_hub("org/name", print)


def test_a_checkpoint_is_complete_with_all_of_its_parts(tmp_path, checkpoint):
    assert is_complete(checkpoint)
    weight_map = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (checkpoint / "model-1.safetensors").write_text("")
    assert not is_complete(checkpoint)
    (checkpoint / "model-2.safetensors").write_text("")
    assert is_complete(checkpoint)


def test_the_clients_own_cache_is_read_without_network(checkpoint, tmp_path):
    """With the client as it is installed, in a process of its own: it reads where its cache lies when imported."""
    pytest.importorskip("huggingface_hub")
    home, revision = tmp_path / "home", "0123456789abcdef0123456789abcdef01234567"
    repository = home / "hub" / "models--org--name"
    shutil.copytree(checkpoint, repository / "snapshots" / revision, ignore=shutil.ignore_patterns("home"))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    program = "from omnirt.actors.models.hub import from_hub; print(*from_hub('org/name', print), sep='|')"
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    answer = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True, timeout=60)
    assert answer.strip() == f"{repository / 'snapshots' / revision}|the hub's local cache"
