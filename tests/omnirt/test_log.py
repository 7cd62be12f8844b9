import io
import logging
import re

import pytest

from omnirt.log import LEVELS, level_of, set_up


@pytest.fixture
def lines():
    stream = io.StringIO()
    logger = logging.getLogger("omnirt")
    before = logger.handlers[:], logger.level, logger.propagate
    set_up("tts.0", "info", stream)
    yield lambda: stream.getvalue().splitlines()
    logger.handlers[:], logger.level, logger.propagate = before


def test_a_record_is_one_line_of_fields(lines):
    logging.getLogger("omnirt.cell").warning("restarting in %d s", 3, extra={"stage": "tts", "wait_s": 0.5})
    (line,) = lines()
    assert re.fullmatch(
        r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=warning process=tts\.0 "
        r'msg="restarting in 3 s" stage=tts wait_s=0\.5',
        line,
    )


def test_newlines_and_quotes_stay_inside_their_field(lines):
    logging.getLogger("omnirt").info('a "b"\nc', extra={"request": "req 1", "empty": ""})
    (line,) = lines()
    assert line.endswith(r'msg="a \"b\"\nc" request="req 1" empty=""')


def test_an_exception_is_part_of_the_line(lines):
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("omnirt").exception("step failed")
    (line,) = lines()
    assert "error=ValueError" in line
    assert "broken" in line


def test_what_is_below_the_level_is_left_out(lines):
    logging.getLogger("omnirt").debug("noise")
    assert lines() == []


def test_setting_up_again_replaces_the_handler(lines):
    set_up("head", "debug", io.StringIO())
    assert len(logging.getLogger("omnirt").handlers) == 1


@pytest.mark.parametrize("level", LEVELS)
def test_a_child_logs_what_its_parent_does(lines, level):
    set_up("head", level)
    assert level_of(logging.getLogger("omnirt.nodes")) == level
