"""What a request may ask of the recogniser."""

import pytest

from omnirt.actors.models.whisper.model import Wish
from omnirt.actors.models.whisper.wishes import wish_of
from omnirt.errors import InvalidRequest

USUAL = Wish("en", temperatures=(0.0, 0.4), beam=2)


def wish(languages=("en",), **params):
    return wish_of({"timestamps": "none", **params}, USUAL, languages)


def test_what_is_not_asked_for_is_as_usual():
    assert wish() == USUAL


def test_the_wishes_of_a_conversation_are_not_for_the_recogniser():
    params = {"temperature": 1.7, "language": "klingon", "prompt": 5}
    assert wish_of(params, USUAL, ("en",)) == USUAL


def test_each_parameter_is_taken():
    asked = wish(("de", "en"), language="de", prompt="Fjord", temperature=0.5, timestamps="word", task="translate")
    assert asked == Wish("de", "translate", "Fjord", True, 2, (0.5,))


def test_temperature_zero_means_the_usual_ones():
    assert wish(temperature=0).temperatures == (0.0, 0.4)


@pytest.mark.parametrize("code", ["en", "EN", "en-US", "en_GB", " en "])
def test_a_language_may_have_a_region(code):
    assert wish(language=code).language == "en"


@pytest.mark.parametrize("language", ["de", "english", "klingon", 5, "-"])
def test_a_language_that_is_not_known_is_refused_by_name(language):
    with pytest.raises(InvalidRequest, match=r"knows English \(en\)") as caught:
        wish(language=language)
    assert caught.value.param == "language"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 1.1), ("temperature", -0.1), ("temperature", True), ("temperature", "hot"),
        ("temperature", float("nan")), ("prompt", 5), ("timestamps", "letter"), ("timestamps", None), ("task", "sing"),
        ("task", "translate"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_name(name, value):
    with pytest.raises(InvalidRequest) as caught:
        wish(**{name: value})
    assert caught.value.param == name
