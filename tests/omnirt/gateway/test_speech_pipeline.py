"""Speech in a voice that comes with the request, end to end over a scripted service; and whose facts count."""

import base64

import msgspec
import numpy as np
import pytest

from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.core import Core
from omnirt.gateway.speech_pipeline import SpeechPipeline
from omnirt.gateway.voice_samples import VoiceSamples
from omnirt.ids import CLIENT
from omnirt.testing.clone_pipeline import clone_facts, clone_plan
from omnirt.testing.recordings import wav
from omnirt.testing.scripted_service import Hold, Report, chunks_of, speech_plan, tone
from omnirt.wire.plan import EdgePlan, StagePlan

RECORDING = base64.b64encode(wav(1.0, 24_000)).decode()
SAID = {"ref_audio": RECORDING, "ref_text": "what is said"}


@pytest.fixture
def cloner(make_gateway):
    return make_gateway(plan=clone_plan(), facts=clone_facts(), config=GatewayConfig(recordings_s_max=2.5))


def submitted(gateway):
    return gateway.service.submitted[-1]


def test_a_recording_goes_with_the_text(cloner):
    assert cloner.speak("hello", **SAID, voice="alloy").status == 200
    submit = submitted(cloner)
    assert [name for name, _ in submit.inputs] == ["text", "audio"]
    assert submit.inputs[1][1].samples.tobytes() == wav(1.0, 24_000)[44:]
    assert submit.params == {
        "speed": 1.0,
        "reference": True,
        "task_type": "Base",
        "ref_text": "what is said",
        "reference_samples": 24_000,
    }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "ref_audio"),
        ({"voice": "alloy"}, "voice"),
        ({"ref_audio": RECORDING}, "ref_text"),
        ({"ref_audio": RECORDING[:-8], "ref_text": "x"}, "ref_audio"),
        ({"ref_audio": "https://", "ref_text": "x"}, "ref_audio"),
        ({"references": [{"audio_path": "AAAA", "text": "x"}]}, "references[0].audio_path"),
        (SAID | {"speaker_embedding": [0.5]}, "speaker_embedding"),
        (SAID | {"task_type": "VoiceDesign"}, "task_type"),
    ],
)
def test_what_is_wrong_is_refused_by_its_field_before_anything_is_asked(cloner, fields, param):
    answer = cloner.speak(**fields)
    assert (answer.status, answer.error()["param"]) == (400, param)
    assert cloner.service.submitted == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/a.wav", "http://[::1]/a.wav", "http://169.254.1.1/", "file:///x"])
def test_the_inner_network_is_refused_alike_wherever_it_is_named(cloner, url):
    one = cloner.speak(ref_audio=url, ref_text="x")
    other = cloner.speak(references=[{"audio_path": url, "text": "x"}])
    assert one.status == other.status == 403
    assert one.error()["code"] == other.error()["code"] == "forbidden"


def test_recordings_of_all_requests_together_are_bounded_and_given_back(cloner):
    cloner.service.script = lambda _: [Hold(), *chunks_of(tone(0.1))]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        held = [pool.submit(cloner.speak, **SAID) for _ in range(2)]
        cloner.until(lambda: len(cloner.service.submitted) == 2)
        refused = cloner.speak(**SAID)
        assert (refused.status, refused.error()["code"]) == (429, "queue_full")
        cloner.call(cloner.service.release)
        assert [future.result().status for future in held] == [200, 200]
    assert cloner.speak(**SAID).status == 200


def test_a_model_that_only_copies_refuses_a_task_it_cannot_do(cloner):
    assert cloner.speak(task_type="CustomVoice").error()["param"] == "task_type"


def test_usage_is_what_the_stages_count_and_each_thing_once(cloner):
    counted = [
        Report("ear", {"input_tokens": 13, "input_audio_tokens": 13}),
        Report("text", {"input_tokens": 7, "output_tokens": 25}),
        Report("voice", {"output_tokens": 25}),
    ]
    cloner.service.script = lambda _: [*counted, *chunks_of(tone(0.1))]
    answer = cloner.speak(**SAID, stream=False)
    prefix = "x-vllm-omni"
    assert {name: answer.headers[f"{prefix}-{name}-tokens"] for name in ("input", "output", "total")} == {
        "input": "20",
        "output": "25",
        "total": "45",
    }
    assert answer.headers[f"{prefix}-input-text-tokens"] == "7"
    assert answer.headers[f"{prefix}-input-audio-tokens"] == "13"


def test_what_a_recogniser_says_is_not_said_of_the_speech(make_gateway):
    plan = clone_plan()
    hears = StagePlan(name="writes", actor="none:Writes", group="main", final="transcript")
    wires = ((CLIENT, "audio", "writes", "audio"), ("writes", "transcript", CLIENT, "transcript"))
    edges = tuple(EdgePlan(len(plan.edges) + index, *wire) for index, wire in enumerate(wires))
    plan = msgspec.structs.replace(
        plan, outputs=("audio", "transcript"), stages=(*plan.stages, hears), edges=(*plan.edges, *edges)
    )
    facts = clone_facts() | {"writes": {"languages": ["Klingon"], "parameters": ["beam"]}}
    gateway = make_gateway(plan=plan, facts=facts)
    assert gateway.speak(**SAID, language="French", beam=[3]).status == 200


def test_a_described_voice_needs_no_name(make_gateway):
    facts = {"text": {}, "voice": {"voice_design": True, "task_types": ["VoiceDesign"]}}
    gateway = make_gateway(plan=speech_plan(), facts=facts)
    assert gateway.speak(instructions="a warm voice").status == 200
    assert submitted(gateway).params == {"speed": 1.0, "instructions": "a warm voice"}
    assert gateway.speak().error()["param"] == "instructions"
    assert gateway.speak(instructions="warm", **SAID).error()["param"] == "ref_text"


def test_sixteen_voices_at_once_are_not_mixed_up(make_gateway):
    gateway = make_gateway(plan=clone_plan(), facts=clone_facts())
    gateway.service.script = lambda submit: chunks_of(submit.inputs[1][1].samples)
    from concurrent.futures import ThreadPoolExecutor

    recordings = [tone(0.5, hertz=200 + 50 * index) for index in range(16)]

    def speak(samples):
        data = wav(0.5, 24_000)[:44] + samples.tobytes()
        sent = {"ref_audio": base64.b64encode(data).decode(), "ref_text": "x"}
        return gateway.speak(**sent, response_format="pcm").body

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(speak, recordings))
    assert all(np.array_equal(np.frombuffer(a, np.int16), r) for a, r in zip(answers, recordings, strict=True))


def test_what_stages_say_of_themselves_is_put_together_again_when_it_has_changed(make_gateway):
    gateway = make_gateway(plan=clone_plan(), facts=clone_facts())
    core = Core(gateway.service, GatewayConfig())
    pipeline = SpeechPipeline(core, VoiceSamples(core))
    facts = pipeline.facts()
    assert pipeline.facts() is facts
    gateway.service._facts = {**gateway.service._facts, "voice": {"sample_rate": 8_000}}
    assert pipeline.facts() != facts
    core.close()
