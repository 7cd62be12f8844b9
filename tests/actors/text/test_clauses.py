"""Where running text is cut."""

from hypothesis import given, settings
from hypothesis import strategies as st

from omnirt.actors.text.clauses import LATER, WORD_CHARS_MAX, ClauseSplitter, Pause

STORY = """Dr. Smith paid $1,234.56 on Oct. 5, 2024. Then he left, because it rained, and nobody in the whole village \
had thought of bringing an umbrella to the meeting that evening. "What?" he said. "No!" The U.S. economy grew by 3.5% \
in 2023, i.e. more than in the U.K. The end.
1. Wash the rice.
2. Boil it for 10 min. in 1.5 l of water
New heading

A long sentence without a single mark goes on and on for such a very long time that somebody has to decide where it is \
cut because the voice cannot wait for ever you see and then it ends. supercalifragilistic"""


def split(text):
    splitter = ClauseSplitter()
    return splitter.feed(text) + splitter.close()


def texts(text):
    return [clause.text for clause in split(text)]


def test_sentences_end_at_their_marks_and_nowhere_else():
    assert texts(STORY)[:9] == [
        "Dr. Smith paid $1,234.56 on Oct. 5, 2024.",
        "Then he left, because it rained, and nobody in the whole village had thought of bringing an umbrella to the "
        "meeting that evening.",
        '"What?" he said.',
        '"No!"',
        "The U.S. economy grew by 3.5% in 2023, i.e. more than in the U.K.",
        "The end.",
        "1. Wash the rice.",
        "2. Boil it for 10 min. in 1.5 l of water",
        "New heading",
    ]


def test_the_first_clause_ends_at_a_comma_and_later_ones_do_not():
    assert texts("When the train finally came, nobody hurried, because it was slow. One, two, three, four.") == [
        "When the train finally came,",
        "nobody hurried, because it was slow.",
        "One, two, three, four.",
    ]


def test_a_date_is_not_cut_at_its_comma():
    assert texts("We met on October 12, 2024 in Rome.") == ["We met on October 12, 2024 in Rome."]


def test_an_initial_or_a_title_does_not_end_a_sentence():
    assert texts("J. K. Rowling met Prof. Jones and Mt. Everest.") == ["J. K. Rowling met Prof. Jones and Mt. Everest."]


def test_an_abbreviation_ends_a_sentence_before_a_word_that_starts_one():
    assert texts("He lives in the U.S. She works for Smith Inc. They met.") == [
        "He lives in the U.S.",
        "She works for Smith Inc.",
        "They met.",
    ]


def test_pauses_tell_commas_sentences_and_paragraphs_apart():
    pauses = [clause.pause for clause in split("Yes, of course it is,\nhe said. All right.\n\nNext part")]
    assert pauses == [Pause.COMMA, Pause.SENTENCE, Pause.PARAGRAPH, Pause.SENTENCE]


def test_a_long_clause_without_marks_is_cut_before_a_joint_word():
    clauses = texts("the quick brown fox jumped over it because " + "the lazy dog slept all day long " * 9)
    assert clauses[1].startswith("because the lazy dog")
    assert not any(clause.endswith(" the") for clause in clauses)
    assert all(len(clause) <= LATER.limit for clause in clauses)


def test_an_endless_word_is_cut_by_force():
    clauses = texts("ab" * 1000)
    assert max(map(len, clauses)) <= WORD_CHARS_MAX
    assert "".join(clauses) == "ab" * 1000


def test_text_without_an_end_mark_is_given_at_the_close():
    splitter = ClauseSplitter()
    assert splitter.feed("Hello there") == []
    assert [clause.text for clause in splitter.close()] == ["Hello there"]


def test_a_sentence_is_given_as_soon_as_the_next_word_is_complete():
    splitter = ClauseSplitter()
    assert splitter.feed("Hello there. How") == []
    assert [clause.text for clause in splitter.feed(" are")] == ["Hello there."]


def test_five_thousand_characters_of_numbered_sentences_keep_their_order():
    sentences = [f"This is sentence number {n} of the text." for n in range(1, 130)]
    assert texts(" ".join(sentences)) == sentences


def test_blank_text_has_no_clauses():
    assert texts(" \n\t ") == []


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
@settings(max_examples=150, deadline=None)
def test_the_clauses_do_not_depend_on_the_pieces_the_text_came_in(sizes):
    splitter, found, at = ClauseSplitter(), [], 0
    for size in sizes:
        found += splitter.feed(STORY[at : at + size])
        at += size
    found += splitter.feed(STORY[at:])
    assert found + splitter.close() == split(STORY)


@given(st.text(max_size=400), st.integers(0, 400))
@settings(max_examples=300, deadline=None)
def test_no_character_is_lost_whatever_the_text(text, cut):
    splitter = ClauseSplitter()
    clauses = splitter.feed(text[:cut]) + splitter.feed(text[cut:]) + splitter.close()
    assert "".join("".join(clause.text.split()) for clause in clauses) == "".join(text.split())
    assert clauses == split(text)
