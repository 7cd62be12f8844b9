"""Recordings of every kind as 16 kHz mono, and what no recording may do."""

import contextlib
import io
import subprocess
import sys
import wave

import numpy as np
import pytest

from omnirt.gateway.recording import PACKETS_PER_STEP, PIECE, RATE, Decoder, UnreadableError, cut_off
from omnirt.testing.recordings import HERTZ, recorded, table_bomb, wav

HOUR = 3600.0
KINDS = [
    ("wav", "pcm_s16le", 24_000, "stereo"),
    ("wav", "pcm_f32le", 48_000, "mono"),
    ("wav", "pcm_mulaw", 8_000, "mono"),
    ("aiff", "pcm_s16be", 22_050, "mono"),
    ("mp3", "libmp3lame", 44_100, "stereo"),
    ("flac", "flac", 24_000, "mono"),
    ("ogg", "libopus", 48_000, "mono"),
    ("webm", "libopus", 48_000, "stereo"),
    ("ipod", "aac", 48_000, "mono"),
    ("mp4", "aac", 44_100, "stereo"),
    ("adts", "aac", 48_000, "mono"),
]


def decode(data, seconds_max=HOUR):
    decoder = Decoder(io.BytesIO(data), seconds_max)
    pieces = []
    while (samples := decoder.step()) is not None:
        pieces.append(samples)
    return pieces


def why(data, seconds_max=HOUR):
    with pytest.raises(UnreadableError) as caught:
        decode(data, seconds_max)
    return str(caught.value)


@pytest.mark.parametrize(("container", "codec", "rate", "layout"), KINDS)
def test_every_kind_keeps_its_length_and_its_pitch(container, codec, rate, layout):
    samples = np.concatenate(decode(recorded(container, codec, 2.0, rate, layout)))
    assert samples.dtype == np.int16
    assert abs(samples.size / RATE - 2.0) < 0.1
    spectrum = np.abs(np.fft.rfft(samples[RATE // 4 : RATE // 4 + RATE]))
    assert np.argmax(spectrum) == HERTZ
    assert np.abs(samples).max() > 8_000


@pytest.mark.parametrize(("container", "codec"), [("mp4", "aac"), ("webm", "libopus")])
def test_the_audio_of_a_film_is_found_beside_its_pictures(container, codec):
    samples = np.concatenate(decode(recorded(container, codec, 2.0, picture=True)))
    assert abs(samples.size / RATE - 2.0) < 0.1


def test_a_long_one_comes_in_pieces_of_fifteen_seconds():
    sizes = [piece.size for piece in decode(recorded("ogg", "libopus", 40.0)) if piece.size]
    assert sizes[:2] == [PIECE, PIECE]
    assert sum(sizes) == 40 * RATE
    assert all(size <= PIECE for size in sizes)


def test_pieces_are_memory_of_their_own():
    first, *_ = decode(wav(31.0))
    assert first.base is None or first.base.size <= PIECE


def test_decoding_stops_at_the_limit_when_the_headers_say_nothing():
    decoder = Decoder(io.BytesIO(recorded("adts", "aac", 100.0)), 20.0)
    assert decoder.step().size == PIECE
    with pytest.raises(UnreadableError, match=r"the limit is 20 s"):
        decoder.step()


@pytest.mark.parametrize(("container", "codec"), [("ogg", "libopus"), ("flac", "flac"), ("ipod", "aac")])
def test_what_says_itself_that_it_is_too_long_is_refused_at_once(container, codec):
    assert "is 30 s long; the limit is 20 s" in why(recorded(container, codec, 30.0), 20.0)


def test_exactly_the_limit_is_fine():
    assert sum(piece.size for piece in decode(wav(20.0), 20.0)) == 20 * RATE


@pytest.mark.parametrize("size", [None, 0x7FFFFFFF, 0x7FFFFFDB])
def test_a_wav_of_open_size_is_read_to_its_end(size):
    assert sum(piece.size for piece in decode(wav(2.0, data_bytes=size))) == 2 * RATE


def test_recordings_joined_in_one_file_go_on_at_another_rate():
    joined = recorded("mp3", "libmp3lame", 1.0, 44_100, "stereo") + recorded("mp3", "libmp3lame", 1.0, 22_050, "mono")
    samples = sum(piece.size for piece in decode(joined))
    assert abs(samples / RATE - 2.0) < 0.2


def test_damage_in_the_middle_costs_what_is_damaged():
    data = bytearray(recorded("mp3", "libmp3lame", 10.0))
    data[40_000:42_000] = bytes(2_000)
    assert 9.0 < sum(piece.size for piece in decode(bytes(data))) / RATE <= 10.1


def test_a_cut_mp3_gives_what_is_there():
    data = recorded("mp3", "libmp3lame", 10.0)
    assert 4.5 < sum(piece.size for piece in decode(data[: len(data) // 2])) / RATE < 5.5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello " * 100,
        np.random.default_rng(0).bytes(50_000),
        recorded("ipod", "aac", 3.0)[:-600],
        b"\x89PNG\r\n\x1a\n" + bytes(1000),
        b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:9/x.ts\n#EXT-X-ENDLIST\n",
        b"ffconcat version 1.0\nfile /etc/hostname\n",
    ],
)
def test_what_is_no_recording_says_what_would_be_one(data):
    reason = why(data)
    assert "accepted: wav, mp3, flac, ogg" in reason


def test_a_film_without_sound_has_no_audio_track():
    import av

    sink = io.BytesIO()
    with av.open(sink, "w", format="mp4") as out:
        stream = out.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        out.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))))
        out.mux(stream.encode(None))
    assert why(sink.getvalue()).startswith("has no audio track")


def test_no_audio_is_no_recording():
    assert "no audio" in why(wav(0.0)) or "no container" in why(wav(0.0))


@pytest.mark.parametrize("channels", [1, 2, 3, 6, 8])
def test_however_many_channels_there_are_they_become_one(channels):
    tone = np.repeat(np.frombuffer(wav(1.0)[44:], np.int16), channels)
    sink = io.BytesIO()
    with wave.open(sink, "wb") as out:
        out.setparams((channels, 2, RATE, 0, "NONE", ""))
        out.writeframes(tone.tobytes())
    samples = np.concatenate(decode(sink.getvalue()))
    assert samples.size == RATE
    assert np.argmax(np.abs(np.fft.rfft(samples))) == HERTZ


def test_channels_that_cannot_be_are_damage():
    data = bytearray(wav(1.0))
    data[22:24] = (53).to_bytes(2, "little")
    assert "damaged" in why(bytes(data))


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_damaged_only_a_refusal_is_raised(seed):
    """Bytes changed anywhere, mostly where the containers say what they hold."""
    rng = np.random.default_rng(seed)
    for container, codec, rate, layout in KINDS:
        whole = recorded(container, codec, 0.5, rate, layout)
        for _ in range(4):
            data = bytearray(whole)
            for at in rng.integers(0, min(len(data), 800), 8):
                data[at] = rng.integers(256)
            with contextlib.suppress(UnreadableError):
                decode(bytes(data), 60.0)


def test_few_samples_a_second_do_not_become_minutes():
    sink = io.BytesIO()
    with wave.open(sink, "wb") as out:
        out.setparams((1, 2, 1, 0, "NONE", ""))
        out.writeframes(bytes(20_000))
    assert "1 samples a second" in why(sink.getvalue())


def test_a_step_looks_at_a_bounded_number_of_packets():
    decoder = Decoder(io.BytesIO(recorded("ogg", "libopus", 0.02 * PACKETS_PER_STEP * 0.5)), HOUR)
    assert decoder.step().size <= PIECE


def test_a_stopped_decoder_does_no_more():
    decoder = Decoder(io.BytesIO(wav(40.0)), HOUR)
    assert decoder.step().size == PIECE
    decoder.stop()
    assert decoder.step().size == 0


def test_an_index_that_claims_millions_of_samples_takes_no_memory():
    """In a process of its own: what it took at most is then what this took."""
    code = (
        "import io, resource, sys\n"
        "from omnirt.gateway.recording import Decoder, UnreadableError\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "decoder = Decoder(io.BytesIO(sys.stdin.buffer.read()), 3600.0)\n"
        "try:\n"
        "    while decoder.step() is not None: pass\n"
        "except UnreadableError: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    bomb = table_bomb(1 << 25)
    assert len(bomb) < 100_000
    grown = subprocess.run([sys.executable, "-c", code], input=bomb, capture_output=True, timeout=60, check=True)
    assert int(grown.stdout) < 200 << 10  # kilobytes; without the cap it is over a gigabyte


def test_what_is_missing_of_a_wav_is_counted():
    whole = wav(1.0)
    assert cut_off(whole) == 0
    assert cut_off(whole[:-1000]) == 1000
    assert cut_off(wav(1.0, data_bytes=None)[:-1000]) == 0
    assert cut_off(recorded("ogg", "libopus")[:-100]) == 0
    assert cut_off(b"RIFF\0\0\0\0WAVE") == 0
