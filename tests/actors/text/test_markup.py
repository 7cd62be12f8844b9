"""Blocks of code, tables and links in running text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnirt.actors.text.clauses import ClauseSplitter
from omnirt.actors.text.markup import LINE_CHARS_MAX, MarkupReader
from omnirt.actors.text.normal import normalise

ANSWER = """Run this! ![logo](https://a.b/c.png)
  ```python
x = [1](2) | 3  # `quoted`

```
Then [read on](https://en.wikipedia.org/wiki/Run_(film)). It is in [the mail](mailto:a@b.co), [not [a link] (here).
| Name | Price |
|:---|---:|
| Tea \\| milk | $3.50 |
> | **Cake** | 2 |
|x| is no row, nor is
||
> ``inline`` and ```also inline```
````
```
| a | b |
````
[last](http://x"""


def said(*pieces):
    reader = MarkupReader()
    return "".join([*(reader.feed(piece) for piece in pieces), reader.close()])


def test_blocks_and_links_become_what_can_be_said():
    assert said(ANSWER) == (
        "Run this! logo\nCode.\n"
        "Then read on. It is in the mail (mailto:a@b.co), [not [a link] (here).\n"
        "Name, Price.\nTea | milk, $3.50.\n**Cake**, 2.\n|x| is no row, nor is\n||\n"
        "> ``inline`` and ```also inline```\nCode.\n[last](http://x"
    )


@pytest.mark.parametrize("text", ["```", "```sh\nls", "```\nls\n``", "```\nls\n```", "```\nls```\n", "```\n```"])
def test_a_block_of_code_is_announced_whether_it_is_closed_or_not(text):
    assert said(text) == "Code.\n"


def test_text_goes_on_after_a_block_and_its_content_is_not_heard():
    splitter = ClauseSplitter()
    text = said("Try:\n```\nrm x\n```\nthen look.\n| a | b |\n| --- | --- |\n| 1 | 2 |")
    clauses = [normalise(clause.text) for clause in splitter.feed(text) + splitter.close()]
    assert clauses == ["Try:", "Code. then look. a, b.", "one, two."]


def test_a_line_that_is_no_block_leaves_as_soon_as_that_is_known():
    reader = MarkupReader()
    assert [reader.feed(piece) for piece in ("A", " b\n", "``", "c`` ", "d!", " [e]", ".")] == [
        "A", " b\n", "", "``c`` ", "d", "! ", "[e].",
    ]  # fmt: skip


def test_a_line_without_end_is_not_waited_for():
    endless = "|" + "a" * LINE_CHARS_MAX
    reader = MarkupReader()
    assert reader.feed(endless) + reader.feed("|") == endless + "|"
    assert said(f"{endless}|\n") == f"{endless}|\n"


@given(st.lists(st.integers(1, 12), max_size=80))
@settings(max_examples=150, deadline=None)
def test_what_is_said_does_not_depend_on_the_pieces(sizes):
    pieces, at = [], 0
    for size in sizes:
        pieces.append(ANSWER[at : at + size])
        at += size
    assert said(*pieces, ANSWER[at:]) == said(ANSWER)


@given(st.text("`|-[]()! \nab>:h\\", max_size=60), st.lists(st.integers(0, 60), max_size=3))
@settings(max_examples=500, deadline=None)
def test_nor_for_any_text(text, cuts):
    ends = sorted(cuts)
    pieces = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
    assert said(*pieces) == said(text)


@given(st.text(max_size=200).filter(lambda text: not set("`|[") & set(text)))
@settings(max_examples=200, deadline=None)
def test_text_without_markup_leaves_as_it_came(text):
    assert said(text) == text
