import base64
import json

import msgspec
import pytest
from tts_ask import TEXTS, Asking, asks, hum, varied

ASKING = Asking("http://here", 125, model="m", voice="vivian", language="English")


def test_a_request_is_what_the_clients_of_the_peer_send_with_its_length_forced():
    ask = asks(ASKING)(3)
    assert (ask.path, ask.reads) == ("/v1/audio/speech", "samples")
    assert json.loads(ask.body) == {
        "model": "m",
        "input": TEXTS[3],
        "voice": "vivian",
        "language": "English",
        "response_format": "pcm",
        "stream": True,
        "stream_format": "audio",
        "max_new_tokens": 125,
        "ignore_eos": True,
        "seed": 4,
    }


def test_what_is_not_set_is_not_sent():
    assert not {"voice", "language", "ref_audio"} & set(json.loads(asks(Asking("http://here", 5))(0).body))


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_as_long_as_the_peer_s(text):
    assert 16 <= len(text.split()) <= 18


def recording_in(ask):
    return base64.b64decode(json.loads(ask.body)["ref_audio"].partition(",")[2])


def test_a_cached_recording_is_the_same_for_all_and_a_fresh_one_is_everyone_s_own(tmp_path):
    file = tmp_path / "voice.wav"
    file.write_bytes(hum(0.1))
    asking = msgspec.structs.replace(ASKING, reference=str(file), reference_text="Said.")
    same, fresh = asks(asking), asks(msgspec.structs.replace(asking, fresh=True))
    assert recording_in(same(1)) == recording_in(same(2)) == file.read_bytes()
    assert len({recording_in(fresh(number)) for number in range(40)}) == 40
    assert recording_in(fresh(7)) == recording_in(fresh(7))
    assert json.loads(same(1).body)["ref_text"] == "Said."


def test_a_varied_recording_differs_in_lowest_bits_only():
    wav = hum(0.1)
    other = varied(wav, 0b1011)
    assert len(other) == len(wav)
    assert other[:44] == wav[:44]
    assert all(abs(a - b) <= 1 for a, b in zip(wav, other, strict=True))
