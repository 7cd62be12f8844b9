"""Arrows point one way. The table is the architecture; an import that is not in it is a decision to be made first."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

LAYERS = ("leaf", "wire", "shm", "connectors", "runtime", "pipeline", "session", "gateway", "cli")
"""Each may import the ones before it, and itself."""

HEAVY = {
    "torch": "kernels/ and actors/, inside functions (or in the files of TENSOR_CODE)",
    "triton": "kernels/, in files that only a GPU's form imports",
    "vllm": "actors/engines/vllm.py",
    "diffusers": "actors/engines/diffusers.py",
    "transformers": "actors/",
    "onnxruntime": "actors/",
    "hibari": "actors/",
    "faster_whisper": "actors/models/whisper/model.py",
    "gguf": "actors/models/gguf",
    "jinja2": "actors/text/chat_template.py",
    "tokenizers": "actors/",
    "huggingface_hub": "actors/models/hub.py",
    "av": "omnirt/gateway/media.py",
}
"""Imported when they are needed, never when a module is read."""

TENSOR_CODE = ("kernels/", "actors/engines/frame/", "actors/engines/codec/", "actors/models/qwen3_tts/")
"""Files here may be nothing but tensors, and then import torch (kernels: also triton) when they are read: whoever wants
them imports them inside a function."""

PURE_BANNED = {"asyncio", "socket", "time", "threading", "uvloop", "aiohttp", "omnirt.clock", "selectors", "os"}
"""Session machines are pure: no wait, no clock, no socket."""


def sources(*folders):
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    return sorted(file for file in files if "__pycache__" not in file.parts)


def own_sources():
    """omnirt without its two links."""
    return [file for file in sources("omnirt") if file.relative_to(ROOT).parts[1] not in ("actors", "kernels")]


def imports(file, *, everywhere=True):
    """Names of the modules a file imports; without `everywhere` only those imported when the module is read."""
    tree = ast.parse(file.read_text())
    nodes = ast.walk(tree) if everywhere else _module_level(tree.body)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module_level(body):
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        for field in ("body", "orelse", "finalbody"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _module_level(getattr(node, field, []))
        for handler in getattr(node, "handlers", []):
            yield from _module_level(handler.body)


def layer_of(module):
    """The layer of `omnirt.x.y`; the package itself, which gathers names for authors of stages, belongs to none."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] == "__init__":
        return None
    if parts[1] in (*LAYERS, "testing", "actors", "kernels"):
        return parts[1]
    return "leaf" if (ROOT / "omnirt" / f"{parts[1]}.py").exists() else None


def name_of(file):
    return str(file.relative_to(ROOT))


def module_of(file):
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("file", own_sources(), ids=name_of)
def test_a_module_of_omnirt_imports_only_its_own_layer_and_lower_ones(file):
    own = layer_of(".".join(file.relative_to(ROOT).with_suffix("").parts))
    if own == "testing":
        return
    rank = len(LAYERS) if own is None else LAYERS.index(own)
    for module in imports(file):
        other = layer_of(module) if module.split(".")[0] == "omnirt" else None
        if other is None:
            continue
        assert other not in ("actors", "kernels"), f"{name_of(file)} imports {module}: resolve it by name instead"
        assert other != "testing", f"{name_of(file)} imports {module}: production code does not know its tests"
        assert LAYERS.index(other) <= rank, f"{name_of(file)} ({own}) imports {module} ({other}): that points up"


@pytest.mark.parametrize("file", sources("kernels"), ids=name_of)
def test_kernels_import_nothing_of_ours_but_each_other(file):
    ours = [
        module for module in imports(file) if module.startswith("omnirt") and not module.startswith("omnirt.kernels")
    ]
    assert not ours


@pytest.mark.parametrize("file", sources("actors"), ids=name_of)
def test_actors_know_no_layer_above_the_session(file):
    above = [
        module for module in imports(file) if layer_of(module) in ("gateway", "cli") and module.startswith("omnirt")
    ]
    assert not above


@pytest.mark.parametrize("file", [*own_sources(), *sources("actors", "kernels")], ids=name_of)
def test_heavy_libraries_are_imported_lazily_in_the_place_meant_for_them(file):
    path = name_of(file)
    allowed = {"torch", "triton"} if path.startswith(TENSOR_CODE) else set()
    for module in imports(file, everywhere=False):
        top = module.split(".")[0]
        assert top in allowed or top not in HEAVY, (
            f"{path} imports {top} when it is read; import it inside a function ({HEAVY[top]})"
        )
    if path.startswith("omnirt/") and not path.startswith("omnirt/gateway/"):
        used = {module.split(".")[0] for module in imports(file)} & set(HEAVY)
        assert not used, f"{path} is part of the runtime and imports {used}"


def test_tensor_code_is_reached_only_from_inside_functions():
    """Whatever reads a stage's class, a pipeline or the language engine does not wait for torch."""
    files = {f"omnirt.{module_of(file)}": file for file in sources("actors", "kernels")}
    files |= {module_of(file): file for file in own_sources()}
    reads = {module: set(imports(file, everywhere=False)) for module, file in files.items()}
    tensors: set[str] = {
        module for module, names in reads.items() if {"torch", "triton"} & {n.split(".")[0] for n in names}
    }
    while more := {module for module, names in reads.items() if names & tensors} - tensors:
        tensors |= more
    outside = sorted(name_of(files[module]) for module in tensors)
    assert [path for path in outside if not path.startswith(TENSOR_CODE)] == []


@pytest.mark.parametrize("file", sources("omnirt/session"), ids=name_of)
def test_session_machines_are_pure(file):
    assert not set(imports(file)) & PURE_BANNED
    waits = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Await)]
    assert not waits


def test_there_are_no_import_cycles():
    graph = {}
    files = {module_of(file): file for file in own_sources()}
    for module, file in files.items():
        graph[module] = {other for other in imports(file, everywhere=False) if other in files and other != module}
    done, path = set(), []

    def visit(module):
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            path.append(module)
            for other in graph[module]:
                visit(other)
            path.pop()
            done.add(module)

    for module in graph:
        visit(module)


def test_placement_is_data_no_stage_branches_on_it():
    words = re.compile(r"ctx\.(stage|rank)|\b(is_)?fused\b|split_node|same_node|in_process|replica")
    found = []
    for file in sources("actors/stages", "actors/engines", "actors/models"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Match):
                test = ast.unparse(node.subject if isinstance(node, ast.Match) else node.test)
                found += [f"{name_of(file)}:{node.lineno}: {test}"] if words.search(test) else []
    assert not found
