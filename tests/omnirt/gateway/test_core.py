"""What surfaces share."""

import asyncio
import threading

import pytest

from omnirt.errors import NotReady
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.core import Core
from omnirt.gateway.errors import ApiError
from omnirt.testing.scripted_chat import HONOURED, chatting
from omnirt.testing.scripted_service import ScriptedService


@pytest.fixture
def core():
    core = Core(ScriptedService(), GatewayConfig())
    yield core
    core.close()


@pytest.mark.parametrize("body", [{}, {"model": None}, {"model": "speech"}, {"model": "tts-1"}, [], "x", None])
def test_no_model_or_a_known_one_is_fine(core, body):
    assert core.check(body, True, "") == ((body.get("model") if isinstance(body, dict) else None) or "speech")


@pytest.mark.parametrize(("model", "status"), [("gpt", 404), ("", 404), (3, 400), ([], 400)])
def test_other_models_are_refused(core, model, status):
    with pytest.raises(ApiError) as caught:
        core.check({"model": model}, False, "")
    assert caught.value.refusal.status == status
    assert caught.value.refusal.param == "model"


def test_what_a_pipeline_cannot_do_is_501_with_the_reason(core):
    core.service.state_name = "loading"
    with pytest.raises(ApiError, match=r"The model speech does not sing\.") as caught:
        core.check({}, False, "does not sing")
    assert caught.value.refusal.status == 501


def test_loading_names_the_stages(core):
    core.check_loaded()
    core.service.state_name = "loading"
    with pytest.raises(NotReady, match="text, voice"):
        core.check_loaded()
    with pytest.raises(NotReady):
        core.check({}, True, "")


def test_work_runs_on_other_threads_and_its_errors_come_back(core):
    async def run():
        assert await core.threaded(threading.get_ident) != threading.get_ident()
        assert await core.threaded(int, "7", base=8) == 7
        with pytest.raises(ZeroDivisionError):
            await core.threaded(lambda: 1 / 0)

    asyncio.run(run())


def test_only_the_stages_that_take_part_have_a_say():
    core = Core(ScriptedService(**chatting()), GatewayConfig())
    assert core.facts(["thinker"]).honoured == set(HONOURED)
    assert core.facts(["thinker", "voice"]).honoured == {*HONOURED, "speed"}
    assert core.facts(["nobody"]).honoured == frozenset()
    assert core.facts().honoured >= {*HONOURED, "speed"}
    core.close()
