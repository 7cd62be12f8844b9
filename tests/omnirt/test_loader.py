import sys
import types

import pytest

from omnirt.errors import ConfigError
from omnirt.loader import did_you_mean, resolve
from omnirt.wire.payload import Text


def test_a_name_gives_the_class():
    assert resolve("omnirt.wire.payload:Text") is Text
    assert resolve("omnirt.wire.payload:Text.joined") == Text.joined


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("omnirt.wire.payload", "not of the form 'package.module:Class'"),
        (":Text", "not of the form"),
        ("omnirt.wire.payload:Txet", "has no 'Txet' (did you mean 'Text'?)"),
        (
            "omnirt.wire.payloads:Text",
            "there is no module 'omnirt.wire.payloads' (did you mean 'omnirt.wire.payload'?)",
        ),
        ("omnirt.wired.payload:Text", "there is no module 'omnirt.wired' (did you mean 'omnirt.wire'?)"),
        ("no_such_package_of_ours.a:B", "is its package installed in this environment?"),
    ],
)
def test_the_error_says_which_half_is_wrong(name, message):
    with pytest.raises(ConfigError) as caught:
        resolve(name)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_library_of_ours", "there is no module 'no_such_library_of_ours'; install it"),
        ("def broken(:", "SyntaxError"),
        ("raise RuntimeError('no driver\\nmore')", "RuntimeError: no driver ("),
        ("1 / 0", "omnirt_broken_stage.py:1)"),
        ("import sys; sys.exit(4)", "SystemExit: 4"),
    ],
)
def test_a_module_that_does_not_import_says_why(tmp_path, monkeypatch, source, message):
    (tmp_path / "omnirt_broken_stage.py").write_text(source + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "omnirt_broken_stage", raising=False)
    with pytest.raises(ConfigError) as caught:
        resolve("omnirt_broken_stage:Stage")
    assert message in str(caught.value)


def test_out_of_tree_modules_resolve_the_same_way(monkeypatch):
    module = types.ModuleType("somebody_elses")
    module.Stage = int
    monkeypatch.setitem(sys.modules, "somebody_elses", module)
    assert resolve("somebody_elses:Stage") is int


def test_the_nearest_name_is_offered_or_else_all():
    assert did_you_mean("bacth", ["batch", "node"]) == " (did you mean 'batch'?)"
    assert did_you_mean("zzz", ["b", "a"]) == " (valid: a, b)"
    assert did_you_mean("x", []) == ""
