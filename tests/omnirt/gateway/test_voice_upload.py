"""Taking in voices, over the wire."""

import base64
from concurrent.futures import ThreadPoolExecutor

import pytest

from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.media import wav_header
from omnirt.gateway.voice_upload import container_of
from omnirt.testing.clone_pipeline import clone_plan
from omnirt.testing.scripted_service import Fail, speech_facts, tone

WAV = wav_header(24_000, 4_800) + tone(0.1).tobytes()
PATH = "/v1/audio/voices"


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "voices"


@pytest.fixture
def learner(make_gateway, directory):
    facts = speech_facts()
    facts["voice"]["voice_design"] = True
    facts["ear"] = {"cloning": True}
    config = GatewayConfig(voices_dir=str(directory), upload_bytes_max=100_000, voices_max=2)
    return make_gateway(plan=clone_plan(), facts=facts, config=config)


def multipart(audio=WAV, filename="me.wav", boundary="b0undary", **fields):
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n'.encode() for n, v in fields.items()
    ]
    if audio is not None:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="audio_sample"; filename="{filename}"\r\n'
        parts.append(head.encode() + b"Content-Type: audio/wav\r\n\r\n" + audio + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), {
        "Content-Type": f"multipart/form-data; boundary={boundary}"
    }


def upload(gateway, **fields):
    body, headers = multipart(**fields)
    return gateway.ask("POST", PATH, body, headers)


def files(directory):
    return sorted(path.suffix for path in directory.iterdir())


def test_an_uploaded_voice_is_listed_used_and_deleted(learner, directory):
    answer = upload(learner, consent="cons_1", name="Ann", ref_text="hello", unknown="x")
    assert answer.status == 200
    voice = answer.json()
    assert (voice["object"], voice["name"], voice["type"]) == ("audio.voice", "Ann", "audio_sample")
    assert voice["success"]
    assert voice["voice"]["mime_type"] == "audio/wav"
    listing = learner.ask("GET", PATH).json()
    assert (listing["voices"][-1]["id"], listing["voices"][-1]["name"]) == (voice["id"], "Ann")
    assert listing["uploaded_voices"][0]["file_size"] == len(WAV)
    for name in ("Ann", voice["id"], {"id": voice["id"]}):
        assert learner.speak(voice=name).status == 200
        submit = learner.service.submitted[-1]
        assert submit.params == {"speed": 1.0, "reference": True, "ref_text": "hello", "reference_samples": 2400}
        assert [name for name, _ in submit.inputs] == ["text", "audio"]
        assert submit.inputs[1][1].samples.tobytes() == tone(0.1).tobytes()
    gone = learner.ask("DELETE", f"{PATH}/{voice['id']}").json()
    assert (gone["id"], gone["object"], gone["deleted"], gone["success"]) == (
        voice["id"],
        "audio.voice.deleted",
        True,
        True,
    )
    assert learner.ask("DELETE", f"{PATH}/{voice['id']}").status == 404
    assert learner.speak(voice="Ann").status == 400
    assert files(directory) == []


@pytest.mark.parametrize("as_json", [True, False])
def test_a_described_voice_is_kept_too(learner, as_json):
    fields = {"type": "prompt", "name": "Bo", "prompt": "a deep voice"}
    answer = learner.ask("POST", PATH, fields) if as_json else upload(learner, audio=None, **fields)
    assert (answer.status, answer.json()["type"], answer.json()["prompt"]) == (200, "prompt", "a deep voice")
    assert learner.speak(voice="Bo").status == 200
    assert learner.service.submitted[-1].params == {"speed": 1.0, "instructions": "a deep voice"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"consent": "c"}, "name"),
        ({"consent": "c", "name": " "}, "name"),
        ({"consent": "c", "name": "../up"}, "name"),
        ({"consent": "c", "name": "a\\b"}, "name"),
        ({"consent": "c", "name": ".."}, "name"),
        ({"consent": "c", "name": "x" * 200}, "name"),
        ({"consent": "c", "name": "heart"}, "name"),
        ({"consent": "c", "name": "Deep"}, "name"),
        ({"consent": "c", "name": "HEART"}, "name"),
        ({"name": "Ann"}, "consent"),
        ({"name": "Ann", "consent": "c", "audio": None}, "audio_sample"),
        ({"name": "Ann", "consent": "c", "audio": b""}, "audio_sample"),
        ({"name": "Ann", "consent": "c", "audio": b"MZ not audio"}, "audio_sample"),
        ({"name": "Ann", "consent": "c", "audio": b"OggS not audio"}, "audio_sample"),
        ({"name": "Ann", "consent": "c", "audio": WAV[:-100]}, "audio_sample"),
        ({"name": "Ann", "type": "prompt", "prompt": "x" * 5000}, "prompt"),
        ({"name": "Ann", "consent": "c", "type": "dance"}, "type"),
        ({"name": "Ann", "type": "prompt", "prompt": " "}, "prompt"),
        ({"name": "n" * 20_000, "consent": "c"}, "name"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name_and_leaves_nothing(learner, directory, fields, param):
    answer = upload(learner, **fields)
    assert (answer.status, answer.error()["param"]) == (400, param)
    assert files(directory) == []


def test_an_unknown_container_is_refused_with_the_known_ones(learner):
    assert "wav, mp3, ogg, flac" in upload(learner, name="Ann", consent="c", audio=b"nonsense").error()["message"]


def test_a_name_is_used_once(learner):
    assert upload(learner, name="Ann", consent="c").status == 200
    for spelt in ("Ann", "ANN"):
        assert "A voice called Ann exists" in upload(learner, name=spelt, consent="c").error()["message"]


def test_what_a_stage_says_of_an_uploaded_recording_is_said_of_the_voice(learner):
    upload(learner, name="Ann", consent="c", ref_text="hello")
    learner.service.script = lambda _: [Fail("invalid_value", "too short", param="ref_audio")]
    assert learner.speak(voice="ann").error()["param"] == "voice"
    recording = {"audio_path": base64.b64encode(WAV).decode(), "text": "hi"}
    assert learner.speak(references=[recording]).error()["param"] == "references[0].audio_path"
    assert learner.speak(ref_audio=recording["audio_path"], ref_text="hi").error()["param"] == "ref_audio"


def test_a_name_is_used_once_however_many_try_at_once(learner, directory):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: upload(learner, name="Ann", consent="c"), range(8)))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 7
    assert files(directory) == [".audio", ".json"]


def test_the_store_has_a_limit(learner):
    assert upload(learner, name="A", consent="c").status == upload(learner, name="B", consent="c").status == 200
    assert "full" in upload(learner, name="C", consent="c").error()["message"]


def test_too_long_a_recording_is_413_however_it_is_sent(learner, directory):
    body, headers = multipart(audio=WAV + b"\0" * 120_000, name="Ann", consent="c")
    answer = learner.ask("POST", PATH, body, headers)
    assert (answer.status, answer.error()["code"]) == (413, "request_too_large")
    huge = headers | {"Content-Length": str(1 << 40)}
    head = "".join(f"{name}: {value}\r\n" for name, value in huge.items())
    with learner.connect() as connection:
        connection.sendall(f"POST {PATH} HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 413")
    with learner.connect() as connection:
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {headers['Content-Type']}\r\n"
        chunk = f"{len(body):x}\r\n".encode() + body + b"\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk + chunk)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 413")
    learner.until(lambda: files(directory) == [])


def test_a_client_that_leaves_midway_leaves_no_file(learner, directory):
    body, headers = multipart(name="Ann", consent="c", audio=WAV + b"\0" * 80_000)
    connection = learner.connect()
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {headers['Content-Type']}\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:-1000])
    learner.until(lambda: files(directory) == [".part"])
    connection.close()
    learner.until(lambda: files(directory) == [])


@pytest.mark.parametrize("body", [b"", b"--b0undary", b"--other\r\n\r\nx\r\n--other--", b"nothing of the kind"])
def test_a_broken_multipart_body_is_400(learner, directory, body):
    answer = learner.ask("POST", PATH, body, multipart()[1])
    assert answer.status == 400
    assert files(directory) == []


def test_endless_parts_are_refused(learner):
    body, headers = multipart(name="Ann", consent="c", **{f"extra{i}": "x" for i in range(100)})
    assert learner.ask("POST", PATH, body, headers).status == 400


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav"),
        (b"RIFF\0\0\0\0AVI fmt ", ""),
        (b"ID3\x04", "audio/mpeg"),
        (b"\xff\xfb\x90\x00", "audio/mpeg"),
        (b"\xff\xf1\x50\x80", "audio/aac"),
        (b"OggS\0", "audio/ogg"),
        (b"fLaC\0", "audio/flac"),
        (b"\x1aE\xdf\xa3", "audio/webm"),
        (b"\0\0\0\x20ftypM4A ", "audio/mp4"),
        (b"<html>", ""),
        (b"", ""),
        (b"\xff", ""),
    ],
)
def test_containers_are_told_by_their_first_bytes(head, kind):
    assert container_of(head) == kind
