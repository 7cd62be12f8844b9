import pytest

from omnirt.actors.models.gguf.metadata import Metadata
from omnirt.errors import ConfigError


def test_keys_are_read_by_name_and_kind(metadata_of):
    metadata = metadata_of()
    assert metadata.architecture == "llama"
    assert metadata.arch("block_count", int) == 2
    assert metadata.arch_float("attention.layer_norm_rms_epsilon") == 1e-5
    assert metadata.arch_get("expert_count", 0) == 0
    assert metadata.token_id("eos") == 2
    assert metadata.token_id("padding") is None
    assert len(metadata.tokens) == len(metadata.token_kinds)


def test_a_key_that_is_missing_is_named(metadata_of):
    with pytest.raises(ConfigError, match=r"llama.gguf lacks the key llama.vocab_size"):
        metadata_of().arch("vocab_size", int)


def test_what_is_no_gguf_file_is_said_so(tmp_path):
    path = tmp_path / "x.gguf"
    for content in (b"", b"not one at all", b"GGUF" + bytes(20)):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="cannot be read as a GGUF file"):
            Metadata.of(path)


def test_a_file_that_was_cut_short_is_said_so(gguf_file, tmp_path):
    path = gguf_file().fill().write(tmp_path / "x.gguf")
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(ConfigError, match="cannot be read as a GGUF file"):
        Metadata.of(path)
