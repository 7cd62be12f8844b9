"""How the package is found: links inside it, nothing of ours by a bare name, everything in the wheel."""

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from setuptools import find_namespace_packages

import omnirt
from omnirt.pipeline.deploy import find_file

ROOT = Path(__file__).resolve().parent.parent
LINKS = ("actors", "kernels", "pipelines")


@pytest.mark.parametrize("name", LINKS)
def test_the_links_are_relative_and_lead_to_the_top_level(name):
    link = ROOT / "omnirt" / name
    assert link.is_symlink()
    assert str(link.readlink()) == f"../{name}"


@pytest.mark.parametrize("name", ["actors", "kernels"])
def test_no_package_of_ours_is_found_by_its_bare_name(name):
    if Path(sys.argv[0]).name == "__main__.py":
        pytest.skip("`python -m` puts the folder it runs in on the path; scripts/test does not")
    spec = importlib.util.find_spec(name)
    assert spec is None or not Path(spec.origin or "/").resolve().is_relative_to(ROOT / name)


@pytest.mark.parametrize("name", ["actors", "kernels"])
def test_our_packages_are_found_inside_omnirt(name):
    module = importlib.import_module(f"omnirt.{name}")
    assert Path(module.__file__).resolve() == ROOT / name / "__init__.py"


def test_importing_the_runtime_imports_no_heavy_library():
    heavy = "torch", "transformers", "diffusers", "vllm", "onnxruntime", "av", "hibari", "aiohttp", "prometheus_client"
    code = (
        "import sys, omnirt, omnirt.runtime.node, omnirt.pipeline.deploy, omnirt.cli.main\n"
        f"sys.exit(', '.join(name for name in {heavy!r} if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_the_wheel_has_every_package_and_pipeline():
    packages = set(find_namespace_packages(str(ROOT), include=["omnirt*"]))
    for file in ROOT.glob("omnirt/**/*.py"):
        assert ".".join(file.relative_to(ROOT).parent.parts) in packages
    for name in ("actors", "kernels"):
        for file in (ROOT / name).rglob("*.py"):
            assert ".".join(("omnirt", *file.relative_to(ROOT).parent.parts)) in packages
    assert {"omnirt.pipelines", "omnirt.pipelines.deploy"} <= packages


def test_packaged_pipelines_are_found_without_the_repository(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert Path(find_file("echo", "pipeline")).resolve() == ROOT / "pipelines" / "echo.toml"
    assert Path(omnirt.__file__).parent in Path(find_file("echo", "pipeline")).parents


@pytest.mark.parametrize("name", ["echo", "maze"])
def test_out_of_the_repository_a_pipeline_checks_by_name(name, tmp_path):
    command = [str(Path(sys.executable).parent / "omnirt"), "check", name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
