"""The gateway's settings."""

import msgspec
import pytest

from omnirt.gateway.config import AUDIO_FORMATS, GatewayConfig


def test_defaults_are_those_that_clients_of_the_api_expect():
    config = GatewayConfig()
    assert (config.default_format, config.pcm_rate, config.cors_origins, config.keys_file) == (
        "mp3",
        24_000,
        ("*",),
        "",
    )
    assert config.default_format in AUDIO_FORMATS


def test_unknown_settings_are_refused():
    with pytest.raises(msgspec.ValidationError, match="kepalive_s"):
        msgspec.convert({"kepalive_s": 1}, GatewayConfig)
