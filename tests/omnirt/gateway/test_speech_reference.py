"""The recording that a request names, as tables."""

import pytest

from omnirt.gateway.errors import ApiError
from omnirt.gateway.speech_reference import Reference, reference_of

PATH = "references[0].audio_path"


def refusal(fields, cloning=True):
    with pytest.raises(ApiError) as caught:
        reference_of(fields, cloning)
    return caught.value.refusal


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (None, None)),
        ({"ref_audio": "abc"}, (Reference("abc"), None)),
        ({"ref_audio": ["abc"], "ref_text": " hi "}, (Reference("abc"), "hi")),
        ({"ref_audio": "abc", "ref_text": " "}, (Reference("abc"), None)),
        ({"ref_audio": False, "references": False, "ref_text": False}, (None, None)),
        ({"references": [{"audio_path": "abc", "text": "hi"}]}, (Reference("abc", PATH), "hi")),
        ({"references": [{"audio_path": "abc"}], "ref_text": "hi"}, (Reference("abc", PATH), "hi")),
        ({"ref_text": "for an uploaded voice"}, (None, "for an uploaded voice")),
    ],
)
def test_what_is_named(fields, expected):
    assert reference_of(fields, True) == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"ref_audio": ""}, "ref_audio"),
        ({"ref_audio": " "}, "ref_audio"),
        ({"ref_audio": 3}, "ref_audio"),
        ({"ref_audio": {"url": "x"}}, "ref_audio"),
        ({"ref_audio": []}, "ref_audio"),
        ({"ref_audio": ["a", "b"]}, "ref_audio"),
        ({"ref_audio": [None]}, "ref_audio"),
        ({"ref_audio": [3]}, "ref_audio"),
        ({"ref_text": 3}, "ref_text"),
        ({"ref_text": "x" * 5000}, "ref_text"),
        ({"references": "abc"}, "references"),
        ({"references": {"audio_path": "abc"}}, "references"),
        ({"references": []}, "references"),
        ({"references": [{}, {}]}, "references"),
        ({"references": ["abc"]}, "references[0]"),
        ({"references": [None]}, "references"),
        ({"references": [{}]}, PATH),
        ({"references": [{"audio_path": 3}]}, PATH),
        ({"references": [{"audio_path": ""}]}, PATH),
        ({"references": [{"audio_path": "a", "text": 3}]}, "references[0].text"),
        ({"references": [{"audio_path": "a"}], "ref_audio": "b"}, "references"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(fields, param):
    found = refusal(fields)
    assert (found.status, found.param) == (400, param)


@pytest.mark.parametrize("fields", [{"ref_audio": "a"}, {"references": [{}]}, {"ref_text": "a"}, {"ref_audio": 3}])
def test_a_model_that_cannot_copy_refuses_all_of_it(fields):
    found = refusal(fields, cloning=False)
    assert (found.status, found.param, found.code) == (400, next(iter(fields)), "unsupported_parameter")
