"""Style is what happens at the tail; these tests hold it. Each exception is listed with its reason."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

FILE_LINES_MAX = 300
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 7
"""Five is the aim, counting neither self nor keyword-only ones; then a struct."""

LONG_FILES: dict[str, int] = {
    "omnirt/shm/operations.py": 400,  # the native half of ring and slab, read against each other
    "omnirt/runtime/cell.py": 495,  # one actor, one state: its rows, steps and credits change together
    "actors/orchestrator.py": 400,  # one actor, one state
    "actors/nodes.py": 420,  # processes, channels and links live and die together
    "omnirt/connectors/ring.py": 360,  # both ends of one layout
    "omnirt/runtime/supervisor.py": 350,  # every transition of one machine
    "omnirt/testing/sim/process.py": 320,  # everything a process does, once more in virtual time
    "omnirt/testing/connector_suite.py": 450,  # one suite, read by whoever writes a connector
}
LONG_FUNCTIONS: dict[str, int] = {}

NO_TEST_FILE = {
    "omnirt/__init__.py": "names only",
    "omnirt/ids.py": "names only",
    "omnirt/wire/payload.py": "tests/omnirt/wire/test_codec.py",
    "omnirt/wire/plan.py": "data only; tests/omnirt/pipeline/test_placement.py",
    "omnirt/wire/messages.py": "data only; tests/omnirt/runtime",
    "omnirt/session/service.py": "types only",
    "omnirt/shm/layout.py": "numbers only",
    "omnirt/shm/operations.py": "tests/omnirt/shm/test_atomics.py, test_ring.py, test_slab.py",
}
"""Source files whose test is elsewhere, and where."""

BANNED_WORDS = re.compile(
    # Paths of one machine, addresses of package registries, and trackers only their authors know. Spelled so that this
    # line is not one of them.
    r"/wor[k]/|/roo[t]/|/hom[e]/\w|pyp[i]\.org|pythonhoste[d]|npmj[s]|registr[y]\.|co-authore[d]-by|\bissu[e] #?\d",
    re.IGNORECASE,
)
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc", "stuff"}
BLOB_BYTES_MAX = 512 << 10

CODE = ("omnirt", "actors", "kernels")
SUFFIXES = {".py", ".toml", ".md", ".html", ".js", ".css", ".txt", ""}
SKIPPED = {".git", ".venv", "__pycache__", "build", "dist", ".pytest_cache", ".ruff_cache", ".hypothesis"}


def code_files():
    """Ours, each once: not through the links of the package."""
    files = [file for folder in CODE for file in (ROOT / folder).rglob("*.py") if not SKIPPED & set(file.parts)]
    links = ("omnirt/actors/", "omnirt/kernels/")
    return sorted(file for file in files if not name_of(file).startswith(links))


def all_files():
    """Every file that could be committed; links are not followed."""
    todo, found = [ROOT], []
    while todo:
        for entry in sorted(todo.pop().iterdir()):
            if (
                entry.name in SKIPPED
                or (entry.is_dir() and entry.name.startswith(".") and entry.name != ".ci")
                or entry.name.endswith(".egg-info")
                or entry.name.startswith(".venv")
            ):
                continue
            if entry.is_dir() and not entry.is_symlink():
                todo.append(entry)
            elif entry.is_file():
                found.append(entry)
    return found


def name_of(file):
    return str(file.relative_to(ROOT))


def functions(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("file", code_files(), ids=name_of)
def test_files_are_short(file):
    lines = len(file.read_text().splitlines())
    assert lines <= LONG_FILES.get(name_of(file), FILE_LINES_MAX), f"{lines} lines; split it, or list it with a reason"


@pytest.mark.parametrize("file", code_files(), ids=name_of)
def test_functions_are_short_and_take_few_parameters(file):
    for function in functions(file):
        where = f"{name_of(file)}:{function.lineno} {function.name}"
        lines = (function.end_lineno or 0) - function.lineno + 1
        assert lines <= LONG_FUNCTIONS.get(f"{name_of(file)}:{function.name}", FUNCTION_LINES_MAX), (
            f"{where}: {lines} lines"
        )
        if any("triton.jit" in ast.unparse(each) for each in function.decorator_list):
            continue  # a kernel of a GPU has no structs: every array, stride and size is a parameter
        names = [argument.arg for argument in function.args.args if argument.arg not in ("self", "cls")]
        assert len(names) <= PARAMETERS_MAX, f"{where}: {len(names)} parameters"


@pytest.mark.parametrize("file", code_files(), ids=name_of)
def test_every_module_says_what_it_is_for(file):
    text = file.read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text)), "no docstring"


@pytest.mark.parametrize("file", code_files(), ids=name_of)
def test_no_module_has_a_name_that_says_nothing(file):
    assert not BANNED_NAMES & {part.removesuffix(".py") for part in file.relative_to(ROOT).parts}


def test_every_exception_still_exists_and_is_needed():
    for name, limit in LONG_FILES.items():
        lines = len((ROOT / name).read_text().splitlines())
        assert FILE_LINES_MAX < lines <= limit, f"{name} has {lines} lines"
    for name in NO_TEST_FILE:
        assert (ROOT / name).exists(), name


def test_every_file_of_the_runtime_has_its_test_file():
    tests = {name_of(file) for file in (ROOT / "tests").rglob("test_*.py")}
    missing = []
    for file in code_files():
        path = file.relative_to(ROOT)
        if path.parts[0] != "omnirt" or path.parts[1] == "testing" or path.name == "__init__.py":
            continue
        if str(path.parent / f"test_{path.name}") not in {test.removeprefix("tests/") for test in tests}:
            missing.append(str(path))
    assert not set(missing) - set(NO_TEST_FILE)


def test_no_file_names_a_machine_a_registry_or_a_tool_that_wrote_it():
    found = []
    for file in all_files():
        if file.suffix in SUFFIXES and file != Path(__file__).resolve():
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), start=1):
                if BANNED_WORDS.search(line):
                    found.append(f"{name_of(file)}:{number}: {line.strip()[:80]}")
    assert not found, "\n".join(found)


def test_no_file_is_large():
    large = [name_of(file) for file in all_files() if file.stat().st_size > BLOB_BYTES_MAX]
    assert not large


def test_scripts_can_be_run_and_are_short():
    for file in [*(ROOT / "scripts").iterdir(), ROOT / ".ci" / "run"]:
        if file.suffix == "":
            assert file.stat().st_mode & 0o111, file
            assert file.read_text().startswith("#!/bin/sh\n"), file
            assert len(file.read_text().splitlines()) <= 50, file


def test_no_test_is_named_like_a_number():
    for file in (ROOT / "tests").rglob("test_*.py"):
        for function in functions(file):
            if function.name.startswith("test_"):
                assert len(function.name.split("_")) >= 3, f"{name_of(file)}: {function.name} is no sentence"


def test_every_test_the_architecture_names_exists():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    missing = [name for name in re.findall(r"tests/[\w/]+(?:\.py)?", text) if not (ROOT / name).exists()]
    assert not missing
