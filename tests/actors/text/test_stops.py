from hypothesis import given
from hypothesis import strategies as st

from omnirt.actors.text.stops import StopScanner


def scan(pieces, stops):
    scanner = StopScanner(stops)
    given = [scanner.feed(piece) for piece in pieces]
    return [*given, scanner.close()], scanner.stopped


def test_without_stop_strings_everything_leaves_at_once():
    assert scan(["a", "", "b"], []) == (["a", "", "b", ""], False)


def test_only_what_may_begin_a_stop_string_is_held_back():
    assert scan(["one S", "T", "art"], ["STOP"]) == (["one ", "", "STart", ""], False)
    assert scan(["xaa", "ab"], ["aab"]) == (["x", "a", ""], True)


def test_neither_the_stop_string_nor_what_follows_leaves():
    assert scan(["go ST", "OP on", "more"], ["STOP"]) == (["go ", "", "", ""], True)


def test_of_several_stop_strings_the_one_that_begins_first_counts():
    assert scan(["a|b\n\nc"], ["\n\n", "|"]) == (["a", ""], True)


def test_what_was_held_back_leaves_at_the_end():
    assert scan(["wait\n"], ["\n\n"]) == (["wait", "\n"], False)


@given(
    st.lists(st.text("ab|", max_size=4), max_size=12),
    st.lists(st.text("ab|", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_pieces_give_what_the_whole_text_gives(pieces, stops):
    text = "".join(pieces)
    ends = [at for at in (text.find(stop) for stop in stops) if at >= 0]
    leaving, stopped = scan(pieces, stops)
    assert stopped == bool(ends)
    # The stop string that is whole first counts, not one that would have begun earlier and been longer.
    given = "".join(leaving)
    if not stopped:
        assert given == text
        return
    assert text.startswith(given)
    assert any(text[len(given) :].startswith(stop) for stop in stops)
    assert not any(stop in given for stop in stops)
