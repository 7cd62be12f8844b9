"""Addresses and versions."""

import pytest

from omnirt.actors.text.web import spell_addresses


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("a@b.co", "A at B dot co"),
        ("jane.doe+news@mail.example.com!", "jane dot doe plus news at mail dot example dot com!"),
        ("See https://example.com/a?b=12.", "See H T T P S, example dot com slash A question mark B equals twelve."),
        ("www.example.org,", "W W W dot example dot org,"),
        ("example.com:8091/x", "example dot com colon eight zero nine one slash X"),
        ("v1.2.3", "version one point two point three"),
        ("V2", "version two"),
        ("1.10.0 is out", "one point ten point zero is out"),
        ("10.0.0.1:80", "ten dot zero dot zero dot one colon eighty"),
        ("report.pdf and node.js", "report dot pdf and node dot js"),
        ("It ended.Then it began.", "It ended. Then it began."),
        ("no address here. At all", "no address here. At all"),
        ("3.5 and e.g. this", "3.5 and e.g. this"),
    ],
)
def test_addresses_are_spelled_and_other_text_is_left(written, spoken):
    assert spell_addresses(written) == spoken
