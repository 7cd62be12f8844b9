"""Encoders: lengths, strict decoding, early bytes, containers."""

import io
import wave

import av
import numpy as np
import pytest

from omnirt.errors import Unsupported
from omnirt.gateway import media
from omnirt.gateway.config import AUDIO_FORMATS
from omnirt.gateway.media import content_type_of, encoder_for, int16_of, is_cheap, wav_header
from omnirt.testing.scripted_service import tone

FRAME_S = {"mp3": 0.036, "aac": 0.0214, "opus": 0.02, "flac": 0.0, "wav": 0.0, "pcm": 0.0}
"""A codec frame at the slowest rate tested (mp3 at 16 kHz: 576 samples)."""
MAGIC = {"opus": b"OggS", "flac": b"fLaC", "wav": b"RIFF"}


def encode(format, samples, rate, sample_rate=None, piece=1200):
    encoder = encoder_for(format, rate, sample_rate)
    pieces = [encoder.feed(samples[start : start + piece]) for start in range(0, len(samples), piece)]
    return encoder, [*pieces, encoder.flush()]


def decode(format, data, rate):
    """(samples as float, rate), with every decoding error fatal."""
    if format == "pcm":
        return np.frombuffer(data, "<i2").astype(float), rate
    if format == "wav":
        data = wav_header(rate, len(data) - 44) + data[44:]
    container = av.open(io.BytesIO(data), options={"err_detect": "explode"})
    container.streams.audio[0].codec_context.options = {"err_detect": "explode"}
    frames = list(container.decode(audio=0))
    scale = 1.0 if frames[0].to_ndarray().dtype.kind == "i" else 32768.0
    return np.concatenate([f.to_ndarray().reshape(-1) * scale for f in frames]), frames[0].sample_rate


@pytest.mark.parametrize("format", AUDIO_FORMATS)
@pytest.mark.parametrize("seconds", [0.3, 1.9, 7.4])
@pytest.mark.parametrize("rate", [16_000, 22_050, 24_000, 44_100])
def test_decoded_length_is_within_a_codec_frame(format, seconds, rate):
    encoder, pieces = encode(format, tone(seconds, rate), rate)
    samples, decoded_rate = decode(format, b"".join(pieces), encoder.rate)
    assert abs(len(samples) / decoded_rate - seconds) <= FRAME_S[format] + 1 / rate


@pytest.mark.parametrize("format", AUDIO_FORMATS)
def test_the_tone_survives_to_its_end(format):
    rate, hertz = 24_000, 440.0
    encoder, pieces = encode(format, tone(1.9, rate, hertz), rate)
    samples, decoded_rate = decode(format, b"".join(pieces), encoder.rate)
    last = samples[int(1.6 * decoded_rate) : int(1.85 * decoded_rate)]
    spectrum = np.abs(np.fft.rfft(last * np.hanning(len(last))))
    assert abs(np.argmax(spectrum) * decoded_rate / len(last) - hertz) < 8
    assert np.abs(last).max() > 9_000


@pytest.mark.parametrize("format", AUDIO_FORMATS)
def test_bytes_leave_while_audio_is_still_coming(format):
    _, pieces = encode(format, tone(3.0), 24_000)
    sent = np.cumsum([len(piece) for piece in pieces])
    first = next(index for index, total in enumerate(sent) if total > 0)
    assert (first + 1) * 0.05 <= 0.2, "the first bytes wait for more than 200 ms of audio"
    assert sent[len(sent) // 2] > sent[-1] / 3, "the middle waits for the end"


@pytest.mark.parametrize("format", ["mp3", "aac"])
def test_a_long_stream_of_sentences_decodes_strictly(format):
    sentences = np.concatenate([np.concatenate((tone(1.3, hertz=300 + 50 * i), tone(0.2) * 0)) for i in range(20)])
    encoder, pieces = encode(format, sentences, 24_000, piece=997)
    samples, rate = decode(format, b"".join(pieces), encoder.rate)
    assert abs(len(samples) / rate - 30.0) <= FRAME_S[format]


@pytest.mark.parametrize("format", AUDIO_FORMATS)
@pytest.mark.parametrize("count", [0, 1, 100, 480])
def test_very_little_audio_is_still_a_file(format, count):
    encoder, pieces = encode(format, tone(1.0)[:count], 24_000)
    data = b"".join(pieces)
    if format == "pcm":
        assert len(data) == 2 * count
    elif format == "wav":
        assert len(data) == 44 + 2 * count
    else:
        samples, rate = decode(format, data, encoder.rate)
        assert count / 24_000 <= len(samples) / rate <= count / 24_000 + 0.1


@pytest.mark.parametrize("format", AUDIO_FORMATS)
def test_any_rate_can_be_asked_for(format):
    encoder, pieces = encode(format, tone(1.0, 24_000), 24_000, sample_rate=16_000)
    samples, rate = decode(format, b"".join(pieces), encoder.rate)
    assert rate == (16_000 if format in ("pcm", "wav", "flac", "mp3") else 48_000)
    assert abs(len(samples) / rate - 1.0) <= FRAME_S[format] + 0.001


def test_resampling_has_no_seams():
    whole = encode("pcm", tone(1.0), 24_000, 48_000, piece=24_000)[1]
    cut = encode("pcm", tone(1.0), 24_000, 48_000, piece=311)[1]
    assert b"".join(whole) == b"".join(cut)


def test_streamed_wav_has_one_open_header_and_whole_samples():
    _, pieces = encode("wav", tone(0.5), 24_000, piece=777)
    data = b"".join(pieces)
    assert data.count(b"RIFF") == 1
    assert data[:44] == wav_header(24_000, None)
    assert data[4:8] == data[40:44] == b"\xff\xff\xff\xff"
    assert data[44:] == tone(0.5).tobytes()
    assert all(len(piece) % 2 == 0 for piece in pieces)


def test_an_exact_header_satisfies_the_wave_module():
    body = tone(0.5, 16_000).tobytes()
    with wave.open(io.BytesIO(wav_header(16_000, len(body)) + body)) as file:
        assert (file.getframerate(), file.getnframes(), file.getnchannels(), file.getsampwidth()) == (
            16_000,
            8_000,
            1,
            2,
        )


@pytest.mark.parametrize("format", AUDIO_FORMATS)
def test_bytes_begin_as_the_format_says(format):
    data = b"".join(encode(format, tone(0.5), 24_000)[1])
    if format == "mp3":
        assert data[0] == 0xFF
        assert data[1] & 0xE6 == 0xE2, "MPEG layer III"
    elif format == "aac":
        assert data[0] == 0xFF
        assert data[1] & 0xF6 == 0xF0, "ADTS"
    else:
        assert data.startswith(MAGIC.get(format, b""))


def test_floats_are_clipped_not_wrapped():
    floats = np.array([0.0, 0.5, 1.0, -1.0, 2.0, -2.0], np.float32)
    assert int16_of(floats).tolist() == [0, 16384, 32767, -32767, 32767, -32768]
    with pytest.raises(TypeError):
        int16_of(np.zeros(3, np.int32))


def test_content_types_tell_the_truth():
    assert content_type_of("pcm", 16_000) == "audio/pcm;rate=16000;channels=1"
    assert [content_type_of(f, 0) for f in AUDIO_FORMATS[:5]] == [
        "audio/mpeg",
        "audio/ogg",
        "audio/aac",
        "audio/flac",
        "audio/wav",
    ]


def test_only_copies_stay_on_the_loop():
    assert is_cheap("pcm", 24_000, None)
    assert is_cheap("wav", 24_000, 24_000)
    assert not is_cheap("pcm", 24_000, 16_000)
    assert not is_cheap("mp3", 24_000, None)


def test_without_the_codec_library_the_error_names_the_fix(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(Unsupported, match="omnirt's extra speech"):
        encoder_for("mp3", 24_000)
    assert media.encoder_for("wav", 24_000).feed(tone(0.1))
