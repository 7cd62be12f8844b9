"""The voice through real processes and rings: where its stages run changes nothing of what is heard."""

import numpy as np
import pytest

from omnirt.session.service import Done, Output
from omnirt.testing.live import in_a_loop, running, text_request

TEXT = "When the train finally came, nobody hurried. It cost $4.50, and the day was slow and quiet."
FUSED = ("stage.acoustic.node=one", "stage.synthesis.node=one")


async def answer(sets):
    async with running("speech", sets=sets) as head, head.submit(text_request(TEXT, ("audio",), seed=1)) as live:
        heard = []
        while isinstance(event := await live.next(), Output):
            heard.append(np.array(event.payload.samples))
        assert isinstance(event, Done)
        return np.concatenate(heard)


@pytest.mark.slow
@pytest.mark.parametrize("sets", [(), FUSED], ids=["split", "fused"])
def test_the_answer_is_sample_for_sample_that_of_the_stages_called_directly(voice, sets):
    np.testing.assert_array_equal(in_a_loop(answer(sets)), voice.say(TEXT, seed=1))
