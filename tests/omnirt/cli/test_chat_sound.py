import asyncio
import os
import stat
import sys
import wave

import pytest

from omnirt.cli import chat_sound
from omnirt.cli.chat_sound import Places, SoundError, Speaker, WavFile, find_player


def player(folder, name, script):
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_the_first_player_found_is_taken_in_the_order_of_the_table(on_path):
    player(on_path, "play", "")
    assert os.path.basename(find_player()[0]) == "play"
    player(on_path, "aplay", "")
    assert find_player() == [str(on_path / "aplay"), *chat_sound.PLAYERS[2].arguments]


@pytest.mark.parametrize(("text", "has"), [("-a, --raw  RAW mode", True), ("--rate", False)])
def test_an_option_of_newer_versions_is_given_where_it_is_known(on_path, text, has):
    player(on_path, "pw-play", f"print({text!r})")
    assert ("--raw" in find_player()) is has


def test_without_a_player_the_choices_are_named(on_path):
    with pytest.raises(SoundError, match=r"pw-play, paplay, aplay, ffplay, play.*--save"):
        find_player()


def test_a_file_has_its_true_sizes_when_it_is_closed(tmp_path):
    file = WavFile(tmp_path / "a.wav")
    file.feed(b"\1\0" * 100, 24_000)
    file.feed(b"\2\0" * 20, 24_000)
    assert file.close().endswith("a.wav: 0.01 s of speech at 24000 Hz")
    with wave.open(str(tmp_path / "a.wav")) as reader:
        assert (reader.getframerate(), reader.getnframes()) == (24_000, 120)
        assert reader.readframes(120)[-2:] == b"\2\0"


def test_an_answer_without_sound_leaves_no_file(tmp_path):
    assert WavFile(tmp_path / "a.wav").close() == ""
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(SoundError, match=r"cannot use .*none/a\.wav"):
        WavFile(tmp_path / "none" / "a.wav").feed(b"\0\0", 24_000)


def test_each_answer_has_its_own_name(tmp_path):
    places = Places(str(tmp_path / "talk.wav"))
    assert [places.next().name for _ in range(3)] == ["talk.wav", "talk-2.wav", "talk-3.wav"]


def test_a_folder_is_made_and_nothing_in_it_written_over(tmp_path):
    places = Places(str(tmp_path / "answers"))
    first = places.next()
    first.touch()
    assert first == tmp_path / "answers" / "answer-1.wav"
    assert Places(str(tmp_path / "answers")).next().name == "answer-2.wav"
    with pytest.raises(SoundError, match="neither a folder nor"):
        Places(str(tmp_path / "a.mp3"))


def test_a_place_is_checked_before_anything_is_asked(tmp_path):
    (tmp_path / "file").touch()
    for place in ("none/a.wav", "file/a.wav", "file/folder"):
        with pytest.raises(SoundError, match=f"cannot use {tmp_path}/{place}: No"):
            Places(str(tmp_path / place))


def speak(command, *sounds, finish=True):
    async def run():
        speaker = Speaker(command)
        try:
            for sound in sounds:
                await speaker.feed(sound, 24_000)
            if finish:
                await speaker.finish()
        finally:
            await speaker.stop()

    asyncio.run(run())


def test_a_player_gets_every_byte_and_the_rate(tmp_path):
    kept = tmp_path / "kept"
    script = f"import sys; open({str(kept)!r}, 'wb').write(sys.argv[1].encode() + sys.stdin.buffer.read())"
    speak([sys.executable, "-c", script, "{rate}"], b"\1\0" * 100_000, b"\2\0")
    assert kept.read_bytes() == b"24000" + b"\1\0" * 100_000 + b"\2\0"


def test_a_player_that_fails_is_quoted():
    script = "import sys; sys.exit('looking for one\\nno such device')"
    with pytest.raises(SoundError, match="stopped: no such device"):
        speak([sys.executable, "-c", script], b"\0\0")


def test_a_player_that_cannot_start_is_named(tmp_path):
    with pytest.raises(SoundError, match="cannot start"):
        speak([str(tmp_path / "none")], b"\0\0")


def test_stopping_does_not_wait_for_what_is_left():
    speak([sys.executable, "-c", "import time; time.sleep(600)"], b"\0\0" * 50_000, finish=False)
