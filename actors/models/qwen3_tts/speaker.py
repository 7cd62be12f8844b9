"""A loaded talker: weights on a device, the engine over them, and what turns a request into its prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor

from omnirt.actors.engines import memory
from omnirt.actors.engines.device import ensure
from omnirt.actors.engines.frame.engine import FrameEngine, FrameSampling
from omnirt.actors.engines.frame.memory import FramePlan, FrameWants, planned, state_bytes
from omnirt.actors.engines.frame.step import FrameStep
from omnirt.actors.models.qwen3_tts.codec_weights import Codec, read_codec
from omnirt.actors.models.qwen3_tts.config import Qwen3TtsConfig
from omnirt.actors.models.qwen3_tts.prompt import Prompt, Speech, describe, embed, embed_lines, line_ids, tokens_needed
from omnirt.actors.models.qwen3_tts.sampling import SamplingDefaults
from omnirt.actors.models.qwen3_tts.tokens import PromptTokens
from omnirt.actors.models.qwen3_tts.voice import SpeakerVoice
from omnirt.actors.models.qwen3_tts.weights import TextWeights, load, weight_bytes
from omnirt.actors.models.sources import resolve
from omnirt.errors import ConfigError
from omnirt.kernels.frame_layout import FrameRows, FrameWeights
from omnirt.loader import did_you_mean

if TYPE_CHECKING:
    from omnirt.actors.stages.talker_options import TalkerOptions
    from omnirt.actors.stages.talker_params import TalkerWishes

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BUCKETS = (1, 8, 16, 32, 64)
"""Rows of a frame's graph; more than the last one in steps of it."""
SUPPRESSED = -1e30
WARM_FRAMES = 3


class Speaker:
    def __init__(
        self,
        config: Qwen3TtsConfig,
        tokens: PromptTokens,
        defaults: SamplingDefaults,
        weights: tuple[FrameWeights, TextWeights],
        engine: FrameEngine,
        codec: Codec,
    ) -> None:
        """`codec`: what the frames are for."""
        self.config, self.tokens, self.engine = config, tokens, engine
        self.sample_rate, self.frame_s = codec.sample_rate, codec.frame_s
        self._defaults = defaults
        self._frame, self._text = weights

    def sampling(self, params: Mapping[str, Any], seed: int, wished: TalkerWishes) -> FrameSampling:
        """Raises InvalidRequest naming the parameter."""
        drawn = self._defaults.changed(params)
        return FrameSampling(
            temperature=drawn.first.temperature,
            top_k=drawn.first.top_k,
            top_p=drawn.first.top_p,
            repetition_penalty=drawn.repetition_penalty,
            inner_temperature=drawn.inner.temperature,
            inner_top_k=drawn.inner.top_k,
            inner_top_p=drawn.inner.top_p,
            seed=seed,
            frames_max=drawn.frames_max,
            frames_min=drawn.frames_min,
            ignore_stop=wished.ignore_stop,
        )

    def streams(self, wished: TalkerWishes) -> bool:
        """Whether the text is given line by line, a line a frame, and speech may begin before all of it is there."""
        return self.config.task == "base" if wished.non_streaming is None else not wished.non_streaming

    def prompt(
        self, wished: TalkerWishes, ids: Sequence[int], voice: SpeakerVoice | None, *, is_open: bool
    ) -> Prompt | None:
        """None while it takes more text. Raises InvalidRequest."""
        ref_text = self.tokens.text(wished.ref_text, self.config.context) if wished.ref_text else ()
        if is_open and (not self.streams(wished) or len(ids) < tokens_needed(voice, ref_text)):
            return None
        speech = Speech(
            text=ids,
            language=wished.language,
            speaker=wished.voice,
            instruct=self.tokens.instruct(wished.instructions, self.config.context),
            voice=voice,
            ref_text=ref_text,
            non_streaming=wished.non_streaming,
            is_open=is_open,
        )
        return describe(self.config, self.tokens.role, speech)

    def embed(self, prompts: Sequence[Prompt]) -> list[tuple[Tensor, Tensor]]:
        """Of each its rows [T, W] and lines of text [n, W]."""
        with torch.inference_mode():
            return embed(prompts, self._frame, self._text)

    def lines(self, ids: Sequence[int], last: bool) -> Tensor:
        """[n, W], of text that came later."""
        with torch.inference_mode():
            return embed_lines(line_ids(self.config, ids, is_last=last), self._text)


def load_speaker(options: TalkerOptions, device: str, threads: int, report: Callable[[str], None]) -> Speaker:
    """The checkpoint that `options` name, ready for requests. Raises ConfigError."""
    options.check()
    ensure(device)
    weights = options.weights
    folder = resolve(weights if isinstance(weights, str) else list(weights), report)
    config = Qwen3TtsConfig.read(folder)
    codec = read_codec(folder / "speech_tokenizer")
    defaults = SamplingDefaults.read(folder)
    tokens = PromptTokens.load(folder, config)
    torch.set_grad_enabled(False)
    if device == "cpu":
        torch.set_num_threads(threads)
    kind = _kind(options.dtype, device)
    plan = _planned(folder, config, options, device, kind)
    report(f"weights, {plan}")
    loaded = load(folder, config, device, kind)
    report("frame step")
    step = _step(config, loaded[0], plan, options, device, kind)
    speaker = Speaker(config, tokens, defaults, loaded, FrameEngine(step), codec)
    report("warming up")
    _warm_up(speaker)
    return speaker


def _kind(dtype: str, device: str) -> torch.dtype:
    if dtype == "auto":
        return torch.bfloat16 if device.startswith("cuda") else torch.float32
    if dtype not in DTYPES:
        raise ConfigError(f"there is no dtype {dtype!r}{did_you_mean(dtype, ('auto', *DTYPES))}")
    return DTYPES[dtype]


def _planned(folder: Path, config: Qwen3TtsConfig, options: TalkerOptions, device: str, kind: torch.dtype) -> FramePlan:
    number = kind.itemsize
    stored = weight_bytes(folder, number)
    other = 0
    if device != "cpu":
        from omnirt.actors.engines.frame.graph_step import other_bytes

        other = other_bytes(config.shape, options.rows, options.prefill_positions, options.weights_bits)
    free = memory.free_bytes() if device == "cpu" else torch.cuda.mem_get_info(device)[0]
    wants = FrameWants(
        rows=options.rows,
        positions=min(config.context, options.frames_max + options.prompt_max),
        lines=options.prompt_max,
        number_bytes=number,
        weights_bytes=stored,
        other_bytes=other,
    )
    most = stored + other + state_bytes(config.shape, wants) + int(options.cache_gib * 2**30)
    return planned(config.shape, msgspec.structs.replace(wants, bytes_max=most), free)


def _step(
    config: Qwen3TtsConfig,
    weights: FrameWeights,
    plan: FramePlan,
    options: TalkerOptions,
    device: str,
    kind: torch.dtype,
) -> FrameStep:
    shape = config.shape
    state = FrameRows.make(shape, options.rows, plan.pages, plan.row_pages, options.prompt_max, device, kind)
    state.suppressed[list(config.suppressed)] = SUPPRESSED
    buckets = tuple(dict.fromkeys(min(size, options.rows) for size in (*BUCKETS, options.rows)))
    if device == "cpu":
        from omnirt.kernels.frame_reference import PlainStep

        return PlainStep(shape, weights, state, options.prefill_positions, buckets)
    from omnirt.actors.engines.frame.graph_step import GraphStep

    return GraphStep(shape, weights, state, buckets, options.prefill_positions, bits=options.weights_bits)


def _warm_up(speaker: Speaker) -> None:
    """A few frames through everything that a request will meet; nothing of them stays."""
    engine = speaker.engine
    prompt = torch.zeros(2, speaker.config.backbone.width, dtype=torch.float32)
    sequence = engine.add(prompt, FrameSampling(frames_max=WARM_FRAMES, ignore_stop=True), prompt[:1])
    while not sequence.finish_reason:
        engine.step([sequence])
    engine.remove(sequence)
