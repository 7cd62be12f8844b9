from omnirt.pipeline.deploy import load_plan
from omnirt.pipeline.describe import describe, shared_bytes, shortage, size

GB = 1 << 30


def test_sizes_are_written_with_their_unit():
    assert [size(count) for count in (0, 512, 1536, 4 << 20, 500 << 20, 3 << 30)] == [
        "0 B", "512 B", "1.5 KB", "4 MB", "500 MB", "3 GB",
    ]  # fmt: skip


def test_the_plan_shows_placement_edges_rings_slabs_credits_and_threads():
    text = describe(load_plan("maze", cores=2), 24 * GB)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "hub.0 cpu 1 1 fork, join" in lines
    assert "3 walk.ask -> guide.ask ring stream block 4 3 16 KB" in lines
    assert "4 guide.answer -> walk.answer ring stream block 3 answers #3 16 KB" in lines
    assert "2 fork.count -> join.count in process stream block 1 - 1 MB" in lines
    assert "path.0 <-> guide.0 2 x 512 KB 64 x 16 KB 48 x 16 KB 2.8 MB" in lines
    assert "memory 11.8 MB shared, in 5 links; /dev/shm has 24 GB free" in lines


def test_a_plan_that_fits_needs_nothing():
    plan = load_plan("maze")
    assert shortage(plan, shared_bytes(plan)) == ""


def test_a_large_plan_names_the_edge_and_the_keys_that_make_it_smaller():
    plan = load_plan("tone", (), ["edge.tone.audio.chunk_bytes_max=1048576"])
    text = describe(plan)
    assert "lower limits.requests_max (64), or credit (8) or chunk_bytes_max (1048576) of edge tone.audio" in text
    short = shortage(plan, 64 << 20)
    assert "--shm-size=651m" in short
    assert "512 MB" in short


def test_a_plan_of_text_alone_is_made_smaller_by_its_limits():
    assert "lower limits.requests_max (64)" in shortage(load_plan("echo"), 0)
