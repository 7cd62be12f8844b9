"""Which surfaces a pipeline serves follows from its routes."""

from pathlib import Path

import pytest

from omnirt.gateway.abilities import chats, completes, endpoints, hears, makes, speaks
from omnirt.pipeline.deploy import load_plan
from omnirt.testing.scripted_chat import chat_plan
from omnirt.testing.scripted_service import speech_plan
from omnirt.wire.plan import EdgePlan, Plan, StagePlan

PIPELINES = Path(__file__).parents[3] / "pipelines"
SPEECH, CHAT = "/v1/audio/speech", "/v1/chat/completions"
SOCKET = "/v1/audio/speech/stream"
COMPLETIONS, TRANSCRIPTIONS = "/v1/completions", "/v1/audio/transcriptions"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("voice", [CHAT, COMPLETIONS, SPEECH, SOCKET, TRANSCRIPTIONS]),
        ("speech", [SPEECH, SOCKET]),
        ("tone", [SPEECH, SOCKET]),
        ("echo", [COMPLETIONS]),
    ],
)
def test_surfaces_of_the_pipelines_that_come_with_it(name, expected):
    assert endpoints(load_plan(str(PIPELINES / f"{name}.toml"), [], [])) == expected


def test_surfaces_of_the_scripted_plans():
    assert (speaks(speech_plan()), hears(speech_plan()), chats(speech_plan()), completes(speech_plan())) == (
        True,
        False,
        False,
        False,
    )
    assert speaks(chat_plan())
    assert hears(chat_plan())
    assert chats(chat_plan())


def test_naming_both_ends_is_not_enough_without_a_way_between_them():
    """Two stages side by side: one hears, the other speaks."""
    plan = Plan(
        name="apart",
        inputs=("audio", "text"),
        outputs=("transcript", "audio"),
        stages=(
            StagePlan(name="ear", actor="none:Ear", group="main", final="transcript"),
            StagePlan(name="mouth", actor="none:Mouth", group="main", final="audio"),
        ),
        edges=(
            EdgePlan(0, "client", "audio", "ear", "audio"),
            EdgePlan(1, "ear", "transcript", "client", "transcript"),
            EdgePlan(2, "client", "text", "mouth", "text"),
            EdgePlan(3, "mouth", "audio", "client", "audio"),
        ),
        nodes=(),
        links=(),
    )
    assert hears(plan)
    assert speaks(plan)
    assert not makes(plan, "text", "transcript")
    assert not makes(plan, "audio", "audio")
