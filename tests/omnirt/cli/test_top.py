"""`omnirt top` against a live gateway, with and without a terminal."""

import argparse
import os
import pty
import select
import signal
import subprocess
import sys

import pytest

from omnirt.cli import top
from omnirt.cli.called import called
from omnirt.gateway.config import GatewayConfig
from omnirt.testing.live_gateway import PATIENCE_S, LiveGateway
from omnirt.testing.scripted_service import ScriptedService

LEAVE = top.LEAVE.encode()


@pytest.fixture
def gateway():
    with LiveGateway(ScriptedService) as gateway:
        yield gateway


def run(*arguments):
    parser = argparse.ArgumentParser()
    top.add_arguments(parser)
    return top.run(parser.parse_args(["--interval", "0.1", *arguments]))


@pytest.mark.parametrize("once", [["--once"], []])
def test_without_a_terminal_or_with_once_it_is_one_table(gateway, capsys, once):
    gateway.speak("x" * 20)
    assert run("--url", gateway.url + "/v1/", *once) == 0
    out = capsys.readouterr().out
    assert out.startswith("speech: healthy   running 0 of 64")
    assert "\x1b" not in out
    (line,) = [line for line in out.splitlines() if line.startswith("speech  ")]
    assert line.split()[2] == "0"
    assert [line.split()[0] for line in out.splitlines() if " ready " in line] == ["stage", "text", "voice"]


def test_a_server_that_cannot_serve_has_a_table_with_the_reason(gateway, capsys):
    gateway.service.state_name = "unavailable"
    gateway.service.stage_states = {"voice": "restarting"}
    assert run("--url", gateway.url, "--once") == 0
    assert "! stage voice is restarting (0 of 1 ready)" in capsys.readouterr().out


def test_no_server_says_how_to_start_one(capsys):
    assert run("--url", "http://127.0.0.1:9", "--once") == 1
    assert f"no server answers at http://127.0.0.1:9; start one with: {called()} run" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["nonsense", "ftp://example.com", "http://"])
def test_what_is_no_url_is_said(url, capsys):
    assert run("--url", url, "--once") == 1
    assert "is not a URL" in capsys.readouterr().err


def test_a_key_is_sent_where_the_server_wants_one(tmp_path, capsys):
    keys = tmp_path / "keys"
    keys.write_text("sk-secret\n")
    keys.chmod(0o600)
    with LiveGateway(ScriptedService, GatewayConfig(keys_file=str(keys), public_metrics=False)) as gateway:
        assert run("--url", gateway.url, "--once") == 1
        assert "refused (401)" in capsys.readouterr().err
        assert run("--url", gateway.url, "--once", "--key-file", str(keys)) == 0


def test_the_help_says_what_the_short_names_mean(capsys):
    with pytest.raises(SystemExit):
        run("--help")
    assert "stale: chunks of ended requests" in " ".join(capsys.readouterr().out.split())


class Terminal:
    """`omnirt top` on a terminal of 80 columns."""

    def __init__(self, url):
        self.ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "omnirt.cli.main", "top", "--url", url, "--interval", "0.1"]
        environment = {**os.environ, "COLUMNS": "80", "LINES": "24"}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        self.screen = b""

    def shows(self, *wanted):
        """Read until all of it was shown."""
        while not all(text in self.screen for text in wanted):
            ready, _, _ = select.select([self.ours], [], [], PATIENCE_S)
            assert ready, self.screen
            try:
                data = os.read(self.ours, 1 << 16)
            except OSError:  # the other end is closed
                data = b""
            assert data, self.screen
            self.screen += data

    def again(self):
        self.screen = b""

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


@pytest.fixture
def terminal():
    opened = []

    def make(url):
        opened.append(Terminal(url))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.mark.parametrize("key", [b"q", b"\x04"])
def test_on_a_terminal_it_is_drawn_in_place_until_a_key_ends_it(gateway, terminal, key):
    top_of = terminal(gateway.url)
    top_of.shows(top.ENTER.encode(), b"speech: healthy", b"q leaves")
    top_of.again()
    top_of.shows(top.HOME.encode(), b"speech: healthy", b" req/s")
    os.write(top_of.ours, key)
    top_of.shows(LEAVE)
    assert top_of.process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_terminal_as_it_was(gateway, terminal, number):
    top_of = terminal(gateway.url)
    top_of.shows(b"speech: healthy")
    top_of.process.send_signal(number)
    top_of.shows(LEAVE)
    assert top_of.process.wait(PATIENCE_S) == 0


def test_a_server_that_goes_away_is_waited_for(terminal):
    with LiveGateway(ScriptedService) as gateway:
        url = gateway.url
        top_of = terminal(url)
        top_of.shows(b"speech: healthy")
    top_of.again()
    top_of.shows(b"no server answers at " + url.encode(), b"waiting for it; q leaves")
    os.write(top_of.ours, b"q")
    top_of.shows(LEAVE)
    assert top_of.process.wait(PATIENCE_S) == 0
