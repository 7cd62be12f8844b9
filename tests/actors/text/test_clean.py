"""Characters and markup."""

import pytest

from omnirt.actors.text.clean import clean


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("\u201cIt\u2019s\u201d", '"It\'s"'),
        ("a\u00a0b\u200bc\td\ne", "a bc d e"),
        ("[note] {brace}", "(note) (brace)"),
        ("wait\u2026", "wait..."),
        ("**bold** and *it* and `code` and ~~gone~~", "bold and it and code and gone"),
        ("_under_ but snake_case", "under but snake_case"),
        ("# Title", "Title"),
        ("- item", "item"),
        ("[page](https://a.b/c)", "page"),
        ("[page](c.html)", "page (c.html)"),
        ("H\u2082O and 10\u2082", "H2O and 10 2"),
        ("2\u00bd cups, \u00be done", "2 1/2 cups, 3/4 done"),
        ("\u0661\u0662", "12"),
        ("\uff21\uff22\uff11", "AB1"),
        ("na\u00efve caf\u00e9", "na\u00efve caf\u00e9"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("\ufb01ne", "fine"),
        ("\x07bell\x00", "bell"),
        ("cafe\u0301 Zu\u0308rich", "caf\u00e9 Z\u00fcrich"),
        ("x\u0301\u0302\u0303", "x"),
        ("1\ufe0f\u20e3 two", "1 two"),
        ("\U0001f600\U0001f600\U0001f600 $$$ a === b", "\U0001f600 $ a = b"),
        ("Title\n=====\nText", "Title , Text"),
        ("My name is ______.", "My name is , ."),
        ("\u2500\u2500\u2500\u2500 end", ", end"),
        ("C++ -- wait... what?!", "C++ -- wait... what?!"),
    ],
)
def test_each_character_gets_one_plain_spelling(written, plain):
    assert clean(written) == plain
