"""What surfaces share."""

import asyncio
import threading

import pytest

from omnirt.errors import NotReady
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.core import Core
from omnirt.gateway.errors import ApiError
from omnirt.testing.scripted_service import ScriptedService


@pytest.fixture
def core():
    core = Core(ScriptedService(), GatewayConfig())
    yield core
    core.close()


@pytest.mark.parametrize("body", [{}, {"model": None}, {"model": "speech"}, {"model": "tts-1"}, [], "x", None])
def test_no_model_or_a_known_one_is_fine(core, body):
    core.check_model(body)


@pytest.mark.parametrize(("model", "status"), [("gpt", 404), ("", 404), (3, 400), ([], 400)])
def test_other_models_are_refused(core, model, status):
    with pytest.raises(ApiError) as caught:
        core.check_model({"model": model})
    assert caught.value.refusal.status == status
    assert caught.value.refusal.param == "model"


def test_loading_names_the_stages(core):
    core.check_loaded()
    core.service.state_name = "loading"
    with pytest.raises(NotReady, match="text, voice"):
        core.check_loaded()


def test_work_runs_on_other_threads_and_its_errors_come_back(core):
    async def run():
        assert await core.threaded(threading.get_ident) != threading.get_ident()
        assert await core.threaded(int, "7", base=8) == 7
        with pytest.raises(ZeroDivisionError):
            await core.threaded(lambda: 1 / 0)

    asyncio.run(run())
