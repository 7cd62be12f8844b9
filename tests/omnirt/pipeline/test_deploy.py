import pytest

from omnirt.errors import ConfigError
from omnirt.pipeline.deploy import check_pipeline, find_file, load_plan
from omnirt.pipeline.findings import PipelineError


@pytest.mark.parametrize("name", ["echo", "maze", "tone"])
def test_packaged_pipelines_are_found_by_name_and_right(name):
    checked = check_pipeline(name)
    assert checked.findings == ()
    assert checked.plan is not None
    assert checked.plan.name == name


def test_a_name_that_is_nowhere_gets_the_nearest_one():
    with pytest.raises(ConfigError, match=r"no pipeline 'ecko', neither a file nor packaged \(did you mean 'echo'\?\)"):
        find_file("ecko", "pipeline")


def test_a_path_that_is_nowhere_gets_the_nearest_file_beside_it(write, talk):
    path = write(talk, "speech.toml")
    with pytest.raises(ConfigError, match=r"did you mean 'speech.toml'\?"):
        load_plan(path.replace("speech.toml", "spech.toml"))


def test_a_broken_pipeline_raises_with_every_finding(write, talk):
    path = write(talk.replace("Talker", "Taker"))
    with pytest.raises(PipelineError) as caught:
        load_plan(path, (), ["limits.requests_max=0"])
    assert len(caught.value.findings) == 2
    assert str(caught.value.findings[0]).startswith(f"{path}:")


def test_warnings_do_not_stop_a_pipeline(write, talk):
    idle = talk + '\n[[stage]]\nname = "idle"\nactor = "omnirt_test_stages:Policy"\n'
    assert load_plan(write(idle)).name == "talk"


def test_an_overlay_that_is_nowhere_is_named(write, talk):
    with pytest.raises(ConfigError, match="no deploy overlay 'moon'"):
        load_plan(write(talk), ["moon"])


@pytest.mark.parametrize(("overlay", "nodes"), [("maze-fused", 1), ("maze-replicas", 7)])
def test_packaged_overlays_place_the_same_graph_elsewhere(overlay, nodes):
    plain, placed = load_plan("maze"), load_plan("maze", [overlay])
    assert placed.edges == plain.edges
    assert len(placed.nodes) == nodes
