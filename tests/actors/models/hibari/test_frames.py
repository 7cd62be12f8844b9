"""The payload between the two halves."""

import msgspec
import numpy as np

from omnirt.actors.models.hibari.frames import AUDIBLE, BLOCK_FRAMES, AcousticFrames, silence
from omnirt.pipeline.deploy import load_plan
from omnirt.wire.codec import Packing, unpack


def test_blocks_are_bounded_and_mark_where_the_clause_begins_and_ends(random_spectra):
    blocks = list(random_spectra(47).blocks(lead=600, shorten=1.5))
    assert [len(block.f0) for block in blocks] == [20, 20, 7]
    assert [block.lead.tolist()[0] for block in blocks] == [600, -1, -1]
    assert np.concatenate([block.last for block in blocks]).nonzero()[0].tolist() == [46]
    assert {part.shorten for block in blocks for part in block.parts()} == {1.5}


def test_no_block_exceeds_what_the_pipeline_file_allows(random_spectra):
    plan = load_plan("speech")
    edge = next(edge for edge in plan.edges if edge.source == "acoustic")
    block = next(random_spectra(BLOCK_FRAMES).blocks(lead=0, shorten=1.0))
    assert Packing(block).nbytes <= edge.chunk_bytes_max


def test_a_block_survives_the_wire(random_spectra):
    block = next(random_spectra(9).blocks(lead=3, shorten=2.0))
    packing = Packing(block)
    body = np.zeros(packing.nbytes, np.uint8)
    packing.write(body)
    received = unpack(AcousticFrames, packing.header, body)
    for name in ("lh", "theta", "ln", "lr", "phi", "f0", "lead", "last", "shorten"):
        np.testing.assert_array_equal(getattr(received, name), getattr(block, name))


def test_joined_blocks_have_the_parts_of_each(random_spectra):
    first = list(random_spectra(30).blocks(lead=0, shorten=1.0))
    second = list(random_spectra(5).blocks(lead=100, shorten=2.0))
    parts = list(AcousticFrames.joined([*first, *second]).parts())
    assert [part.shorten for part in parts] == [1.0, 2.0]
    assert [(part.start, part.stop, part.lead, part.ends) for part in parts] == [(0, 30, 0, True), (30, 35, 100, True)]


def test_a_block_in_the_middle_of_a_clause_is_one_part(random_spectra):
    blocks = list(random_spectra(60).blocks(lead=0, shorten=1.0))
    (part,) = blocks[1].parts()
    assert (part.lead, part.ends) == (-1, False)


def test_silence_is_not_audible_and_speech_is(spoken):
    assert silence(10).audible() == (0, 0)
    start, stop = spoken.audible()
    assert 10 < start < 40
    assert start + 100 < stop < len(spoken.f0)
    assert AUDIBLE < 1


def test_frames_are_a_payload_of_arrays():
    kinds = {field.name: field.type for field in msgspec.structs.fields(AcousticFrames)}
    assert [name for name, kind in kinds.items() if kind is np.ndarray] == [
        "lh", "theta", "ln", "lr", "phi", "f0", "lead", "last", "shorten"
    ]  # fmt: skip
