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


@pytest.mark.parametrize("spelt", ["{}", "{}/"])
def test_a_folder_that_holds_no_checkpoint_is_called_that(tmp_path, spelt):
    with pytest.raises(ConfigError, match=r"is a folder without config.json: neither a checkpoint nor a pipeline file"):
        load_plan(spelt.format(tmp_path))


def test_a_folder_beside_does_not_hide_a_packaged_pipeline(tmp_path, monkeypatch):
    (tmp_path / "echo").mkdir()
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_plan("echo").name == "echo"
    with pytest.raises(ConfigError, match="mine is a folder without config"):
        load_plan("mine")


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
