import pytest

from omnirt.actors.stages.echo import Echo, EchoOptions
from omnirt.runtime.stage import Chunk, Context, Request
from omnirt.wire.payload import Text


@pytest.fixture
def stage():
    return Echo(EchoOptions())


def context():
    return Context("echo", "cpu", 0, 1, print)


def request(number=1):
    return Request(number, f"req_{number}", 0, {}, 0)


def said(stage, ctx, row):
    """Step until the row sleeps or ends: the pieces, and whether it ended."""
    pieces = []
    while emissions := stage.step(ctx, [row]):
        (emission,) = emissions
        pieces += [emission.payload.text] if emission.payload else []
        if emission.end:
            return pieces, True
    return pieces, False


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("one two  three", ["one", " two", "  three"]),
        (" spaced \n", [" spaced", " \n"]),
        ("word", ["word"]),
        ("", []),
    ],
)
def test_the_words_joined_are_the_input(stage, text, pieces):
    row, ctx = request(), context()
    stage.admit(ctx, Chunk(row, "text", Text(text), 0))
    stage.close(ctx, row)
    assert said(stage, ctx, row) == (pieces, True)
    assert "".join(pieces) == text


def test_a_word_cut_between_two_chunks_waits_for_its_end(stage):
    row, ctx = request(), context()
    stage.admit(ctx, Chunk(row, "text", Text("hel"), 0))
    assert said(stage, ctx, row) == ([], False)
    stage.admit(ctx, Chunk(row, "text", Text("lo wor"), 1))
    assert said(stage, ctx, row) == (["hello"], False)
    stage.close(ctx, row)
    assert said(stage, ctx, row) == ([" wor"], True)


def test_requests_of_one_step_do_not_mix(stage):
    rows, ctx = [request(1), request(2)], context()
    for row in rows:
        stage.admit(ctx, Chunk(row, "text", Text(f"words of {row.id}"), 0))
        stage.close(ctx, row)
    first = stage.step(ctx, rows)
    assert [(emission.request.id, emission.payload.text) for emission in first] == [(1, "words"), (2, "words")]
    assert said(stage, ctx, rows[1]) == ([" of", " 2"], True)


def test_a_request_without_any_input_ends_when_its_input_does(stage):
    row, ctx = request(), context()
    stage.close(ctx, row)
    assert said(stage, ctx, row) == ([], True)
