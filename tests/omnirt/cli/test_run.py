"""What `omnirt run` makes of its arguments, and what it says when the server is ready. Serving itself: tests/kill."""

import argparse

import pytest

from omnirt.cli import run
from omnirt.errors import ConfigError
from omnirt.gateway.config import GatewayConfig
from omnirt.pipeline.deploy import load_plan
from omnirt.session.service import ServiceState

ONCE_MORE = "ctrl-c once more to stop at once"


def config(*arguments):
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    return run.config_from(parser.parse_args(["voice", *arguments]))


def test_without_options_everything_is_as_it_is_by_default():
    assert config() == GatewayConfig()


def test_every_option_arrives(tmp_path):
    given = config(
        *("--keys", "k", "--voices", "v", "--cors", "https://a.example", "--cors", "https://b.example"),
        *("--public-discovery", "--trace", "t", "--media", str(tmp_path / "."), "--private-media"),
        *("--recording-seconds", "7200", "--uploads", str(tmp_path)),
    )
    assert given == GatewayConfig(
        keys_file="k",
        voices_dir="v",
        cors_origins=("https://a.example", "https://b.example"),
        public_discovery=True,
        trace_dir="t",
        media_roots=(str(tmp_path),),
        allow_private_media=True,
        recording_s_max=7200.0,
        uploads_dir=str(tmp_path),
    )


def test_one_recording_of_the_allowed_length_always_fits():
    assert config("--recording-seconds", "100000").recordings_s_max == 100_000


@pytest.mark.parametrize("option", ["--media", "--uploads"])
def test_a_directory_that_is_none_is_named(tmp_path, option):
    with pytest.raises(ConfigError, match="nowhere is not a directory"):
        config(option, str(tmp_path / "nowhere"))


@pytest.mark.parametrize("length", ["0", "-1", "nan", "inf", "long"])
def test_a_length_is_a_number_of_seconds(capsys, length):
    with pytest.raises(SystemExit):
        config(f"--recording-seconds={length}")
    assert f"{length} is not a number of seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("running", "waiting", "said"),
    [
        (0, 0, "draining: no request running; "),
        (1, 0, "draining: 1 request running, 30 s at most; "),
        (4, 2, "draining: 4 requests running, 2 waiting, 30 s at most; "),
    ],
)
def test_a_drain_says_what_it_waits_for_and_how_long(running, waiting, said, capsys):
    head = argparse.Namespace(
        plan=load_plan("echo"), drain=lambda: None, state=lambda: ServiceState("draining", (), running, waiting, 8)
    )
    run._Stopper(head)()
    assert capsys.readouterr().err == f"{said}{ONCE_MORE}\n"
