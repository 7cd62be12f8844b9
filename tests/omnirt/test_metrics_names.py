"""The page that defines every name, beside the names there are."""

import inspect
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import omnirt
from omnirt import metrics_names as names
from omnirt.actors.engines.frame.engine import FrameFigures
from omnirt.gateway.media import wav_header
from omnirt.loader import resolve
from omnirt.metrics import SURFACES, Metrics
from omnirt.testing.forms import form
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.live_server import live_server
from omnirt.testing.scripted_chat import chat_facts, chat_plan, converse
from omnirt.testing.scripted_service import ScriptedService

PAGE = Path(omnirt.__file__).parent / "metrics.md"


def page_rows():
    """Name -> its row: labels, unit, definition."""
    rows = re.findall(r"^\| `(omnirt_\w+)` \|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    assert len({name for name, _ in rows}) == len(rows), "a name is defined twice"
    return {name: [cell.strip() for cell in rest.split("|")] for name, rest in rows}


def families(text):
    return {
        family.name + "_total" * (family.type == "counter"): family for family in text_string_to_metric_families(text)
    }


@pytest.fixture(scope="module")
def scraped():
    """What a whole server says after a request of each kind."""
    with live_server("maze") as server:
        for _ in range(5):
            assert server.speak("4 5 6").status == 200
        gateway_text = server.ask("GET", "/metrics").body.decode()
    return families(gateway_text)


def test_the_page_and_the_tables_name_the_same():
    histograms = {name for name, _ in (names.SURFACE_HISTOGRAMS | names.STAGE_HISTOGRAMS).values()}
    counters = {name for name, *_ in (*names.SURFACE_COUNTERS.values(), names.REQUESTS, names.ANSWERS)}
    counted = {
        "omnirt_stage_restarts",
        "omnirt_process_stale",
        *(f"omnirt_stage_{name}" for name in names.STAGE_COUNTED),
    }
    asked = {name + "_total" * (name in counted) for name in names.ASKED}
    assert set(page_rows()) == histograms | {f"{name}_total" for name in counters} | asked


def of_engines(name):
    """Only some stages say these."""
    return name.removeprefix("omnirt_stage_").removesuffix("_total") in names.FIGURES


def test_the_page_and_a_live_server_name_the_same(scraped):
    assert {name for name in page_rows() if not of_engines(name)} == set(scraped)


@pytest.mark.parametrize("stage", ["talker:Talker", "codec:Codec"])
def test_what_stages_say_of_themselves_is_on_the_page(stage):
    source = inspect.getsource(resolve(f"omnirt.actors.stages.{stage}").figures)
    said = {name for name in names.FIGURES if f'"{name}"' in source}
    said |= set(FrameFigures.__struct_fields__) if "engine.figures" in source else set()
    assert said
    assert all(f"omnirt_stage_{name}" in names.ASKED for name in said)


def test_every_name_has_the_labels_and_the_kind_that_the_page_says(scraped):
    for name, (labels, unit, definition) in page_rows().items():
        if of_engines(name):
            continue
        family = scraped[name]
        assert family.samples, name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == {label.strip() for label in labels.split(",") if label.strip()}, name
        assert (family.type == "histogram") == ("histogram" in unit), name
        assert unit, name
        assert definition.endswith("."), name


def test_every_name_has_a_phrase_of_its_own(scraped):
    phrases = [family.documentation for family in scraped.values()]
    assert all(phrase.endswith(".") for phrase in phrases)
    assert len(set(phrases)) == len(phrases)


def test_every_stage_that_took_part_was_counted_once_for_each_request(scraped):
    stages = {sample.labels["stage"] for sample in scraped["omnirt_stage_ready"].samples}
    stages.remove("guide")  # it only answers in a loop, and ends after the stage that it answers
    for name, _ in names.STAGE_HISTOGRAMS.values():
        samples = [sample for sample in scraped[name].samples if "le" not in sample.labels]
        figures = {(sample.name.removeprefix(name), sample.labels["stage"]): sample.value for sample in samples}
        for stage in stages:
            assert figures["_count", stage] == 5, (name, stage)
            assert figures["_sum", stage] > 0, (name, stage)


def test_every_link_is_seen_from_both_of_its_ends(scraped):
    ends = {(sample.labels["process"], sample.labels["peer"]) for sample in scraped["omnirt_link_out_bytes"].samples}
    assert ends == {(b, a) for a, b in ends}
    assert any("head" not in end for end in ends), "links between nodes too"
    assert any(sample.value > 0 for sample in scraped["omnirt_link_out_bytes_max"].samples)


def test_every_surface_has_the_same_names():
    found = {}
    for surface in SURFACES:
        metrics = Metrics()
        metrics.track(surface).done()
        found[surface] = set(families(metrics.expose({}, {}, {}).decode()))
    assert len({frozenset(found[surface]) for surface in SURFACES}) == 1


def test_a_request_of_each_kind_is_counted_under_its_surface():
    def service():
        return ScriptedService(chat_plan(), chat_facts(), converse)

    with LiveGateway(service) as gateway:
        messages = [{"role": "user", "content": "one two three"}]
        sound = wav_header(16_000, 3_200) + bytes(3_200)
        body, headers = form(("model", "voice"), ("file", sound, "a.wav"))
        answers = [
            gateway.ask("POST", "/v1/chat/completions", {"messages": messages, "stream": True}),
            gateway.ask("POST", "/v1/completions", {"prompt": "one two three"}),
            gateway.speak("one two three"),
            gateway.ask("POST", "/v1/audio/transcriptions", body, headers),
        ]
        assert [answer.status for answer in answers] == [200] * 4
        found = families(gateway.ask("GET", "/metrics").body.decode())
    ended = {sample.labels["surface"]: sample.labels["outcome"] for sample in found["omnirt_requests_total"].samples}
    assert ended == dict.fromkeys(SURFACES, "ok")
    assert set(found) <= set(page_rows())
    tokens = {sample.labels["surface"]: sample.value for sample in found["omnirt_request_tokens_total"].samples}
    assert tokens["chat"] == tokens["completion"] == 3
