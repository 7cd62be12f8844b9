"""Stretches put together."""

import pytest

from omnirt.gateway.transcription_text import Assembly
from omnirt.wire.payload import Transcript, Word


def assembled(*texts):
    assembly = Assembly()
    pieces = [assembly.add(Transcript(text)) for text in texts]
    assert "".join(pieces) == assembly.text()
    return assembly.text()


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        ((), ""),
        (("",), ""),
        (("  ", "\n"), ""),
        ((" Hello there.", " How are you?"), "Hello there. How are you?"),
        (("Hello there.", "How are you?"), "Hello there. How are you?"),
        ((" Hello ", " there "), "Hello there"),
        ((" Hello", "", " there", ""), "Hello there"),
        (("", " Hello"), "Hello"),
        ((" Two\nlines  here",), "Two lines here"),
        (("你好。", "你好吗。"), "你好。你好吗。"),
        (("こんにちは", "世界"), "こんにちは世界"),
        (("สวัสดี", "ครับ"), "สวัสดีครับ"),
        (("안녕하세요.", " 반갑습니다."), "안녕하세요. 반갑습니다."),
        (("你好", " world"), "你好 world"),
    ],
)
def test_pieces_join_to_the_text(texts, whole):
    assert assembled(*texts) == whole


def test_only_stretches_with_text_are_segments():
    assembly = Assembly()
    words = (Word(" Hello", 0.1, 0.4), Word(" you", 0.4, 0.6))
    assembly.add(Transcript(" Hello you", words=words))
    assembly.add(Transcript("", last=True, clip_s=4.0))
    assert [segment.text for segment in assembly.segments] == [" Hello you"]
    assert assembly.words() == list(words)


def test_the_language_is_the_first_that_was_told():
    assembly = Assembly()
    for language in ("", "en", "de"):
        assembly.add(Transcript("", language=language))
    assert assembly.language == "en"
