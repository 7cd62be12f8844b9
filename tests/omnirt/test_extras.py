"""Hints that people paste into a shell."""

import re
from pathlib import Path

import omnirt
from omnirt.extras import NEEDS, extra, needs

HOME = Path(omnirt.__file__).resolve().parent
FORBIDDEN = re.compile(r"install .?omnirt\[")


def test_an_extra_is_installed_from_the_checkout():
    assert extra("voice") == "install omnirt's extra voice (in its checkout: pip install '.[voice]')"


def test_no_hint_leads_to_another_package_of_our_name():
    folders = (HOME, HOME / "actors", HOME / "kernels")
    files = {file.resolve() for folder in folders for file in folder.rglob("*.py")}
    wrong = [str(file) for file in sorted(files) if FORBIDDEN.search(file.read_text("utf-8"))]
    assert wrong == []


def test_every_stage_with_needs_is_there_and_so_is_its_extra():
    extras = (HOME.parent / "pyproject.toml").read_text("utf-8")
    for module, (name, _) in NEEDS.items():
        assert (HOME / "actors" / "stages" / f"{module}.py").is_file()
        assert re.search(f"^{name} = ", extras, re.MULTILINE)


def test_the_needs_of_a_stage_are_looked_up_by_its_module():
    assert needs("omnirt.actors.stages.reference:Reference") == ("qwen3-tts", ("torch", "transformers", "av"))
    assert needs("omnirt.actors.stages.echo:Echo") == needs("mine:Talker") == ("voice", ())
