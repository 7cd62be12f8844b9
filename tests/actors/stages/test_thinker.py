from types import SimpleNamespace

import msgspec
import pytest

from omnirt.actors.engines.language import Produced
from omnirt.actors.stages.thinker import Thinker, ThinkerOptions
from omnirt.errors import ConfigError, InvalidRequest, Overloaded
from omnirt.runtime.stage import Chunk, Context, Request
from omnirt.wire.payload import Chat, Message, Part, Prompt, Transcript

CTX = Context("thinker", "cpu", 0, 1, lambda text: None)
END = 2


class ScriptedSequence:
    def __init__(self, prompt, sampling, answer):
        self.prompt, self.sampling, self.answer = list(prompt), sampling, answer
        self.prompt_tokens, self.cached_tokens, self.completion_tokens = len(prompt), 3, 0
        self.finish_reason = ""


class ScriptedEngine:
    """Says what it is told to, a token a step and `each` more; the end token behind it."""

    context = 64
    rows_max = 4

    def __init__(self):
        self.says, self.each = [], 1
        self.live, self.removed, self.batches, self.fails = [], [], [], 0

    def add(self, prompt, sampling):
        if len(self.live) == self.rows_max:
            raise Overloaded("no slot is free")
        sequence = ScriptedSequence(prompt, sampling, list(self.says))
        self.live.append(sequence)
        return sequence

    def step(self, sequences):
        sequences = list(sequences)
        if self.fails:
            self.fails -= 1
            raise RuntimeError("device trouble")
        self.batches.append(len(sequences))
        return [self._next(sequence) for sequence in sequences for _ in range(self.each) if not sequence.finish_reason]

    def _next(self, sequence):
        at = sequence.completion_tokens
        sequence.completion_tokens += 1
        token = sequence.answer[at] if at < len(sequence.answer) else END
        full = sequence.completion_tokens == sequence.sampling.max_tokens
        sequence.finish_reason = "stop" if token == END else "length" if full else ""
        logprob = -0.25 if sequence.sampling.logprobs >= 0 else None
        return Produced(sequence, token, sequence.finish_reason, logprob)

    def remove(self, sequence):
        self.removed.append(sequence)
        if sequence in self.live:
            self.live.remove(sequence)


class ScriptedThinker(Thinker):
    def _load_engine(self, folder, ctx):
        return ScriptedEngine()


@pytest.fixture
def make(tokenizer_folder):
    def make(**options):
        stage = ScriptedThinker(ThinkerOptions(weights=str(tokenizer_folder), **options))
        stage.start(CTX)
        return stage

    return make


@pytest.fixture
def stage(make):
    stage = make()
    says(stage, "hello world")
    return stage


def says(stage, text):
    stage._engine.says = stage._tokenizer.encode(text)


def request(number=1, **params):
    return Request(number, f"req_{number}", 5, params, 0)


def chat(*parts, role="user"):
    return Chat.of((Message(role, tuple(Part(clip=part) if isinstance(part, int) else Part(part) for part in parts)),))


def admit(stage, row, *payloads, close=True):
    ports = {kind: port for port, kind in stage.accepts.items()}
    for seq, payload in enumerate(payloads):
        stage.admit(CTX, Chunk(row, ports[type(payload)], payload, seq))
    if close:
        stage.close(CTX, row)
    return row


def answers(stage, *rows):
    """Step all rows until each has ended: their pieces, in order of rows."""
    alive, pieces = list(rows), {row.id: [] for row in rows}
    for _ in range(200):
        for emission in stage.step(CTX, alive):
            pieces[emission.request.id].append(emission.payload)
            if emission.end:
                alive.remove(emission.request)
        if not alive:
            return [pieces[row.id] for row in rows]
    raise AssertionError("never ended")


def words(pieces):
    return [piece.text if piece else None for piece in pieces]


def test_a_conversation_is_answered_token_by_token(stage):
    row = admit(stage, request(), chat("hello"))
    (pieces,) = answers(stage, row)
    assert words(pieces) == ["hello", " world", None]
    assert row.report == {"prompt_tokens": 9, "cached_tokens": 3, "completion_tokens": 3, "finish_reason": "stop"}
    prompt = stage._engine.removed[0].prompt
    assert stage._tokenizer._library.decode(prompt, skip_special_tokens=False) == (
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )


def test_an_answer_begins_before_the_input_is_closed(stage):
    row = admit(stage, request(), chat("hello"), close=False)
    assert words(answers(stage, row)[0])[0] == "hello"
    stage.close(CTX, row)


def test_a_prompt_goes_to_the_model_as_it_is_written(stage):
    row = admit(stage, request(), Prompt.of("<|im_start|>the"), Prompt.of(" world"))
    answers(stage, row)
    assert stage._engine.removed[0].prompt == stage._tokenizer.encode("<|im_start|>the world")


def test_a_spoken_question_waits_until_it_was_heard(stage):
    row = admit(stage, request(), chat("Listen:", 0), Transcript("the"), close=False)
    assert stage.step(CTX, [row]) == []
    admit(stage, row, Transcript(" world", last=True))
    assert words(answers(stage, row)[0])[:1] == ["hello"]
    assert "Listen:\nthe world<|im_end|>" in stage._tokenizer._library.decode(
        stage._engine.removed[0].prompt, skip_special_tokens=False
    )


def test_a_row_that_waits_holds_up_no_other(stage):
    waiting = admit(stage, request(1), chat(0), close=False)
    ready = admit(stage, request(2), chat("hello"))
    emissions = stage.step(CTX, [waiting, ready])
    assert [emission.request.id for emission in emissions] == [2]


@pytest.mark.parametrize("heard", [(), (Transcript("half of"),)])
def test_a_recording_that_is_not_heard_to_its_end_is_the_callers_fault(stage, heard):
    row = admit(stage, request(), chat(0), *heard, close=False)
    with pytest.raises(InvalidRequest, match=r"no speech was heard in messages\[0\]") as caught:
        stage.close(CTX, row)
    assert caught.value.param == "messages"


def test_a_message_in_which_nothing_was_said_is_the_callers_fault(stage):
    row = admit(stage, request(), chat(0), close=False)
    with pytest.raises(InvalidRequest, match="no speech was heard") as caught:
        admit(stage, row, Transcript("", last=True), close=False)
    assert caught.value.param == "messages"


@pytest.mark.parametrize(("payload", "param"), [(chat("the" * 60), "messages"), (Prompt.of("the" * 80), "prompt")])
def test_a_prompt_that_the_context_does_not_hold_is_refused_with_both_numbers(stage, payload, param):
    with pytest.raises(InvalidRequest, match=r"the prompt has \d\d tokens; this model's context holds 64") as caught:
        admit(stage, request(), payload)
    assert caught.value.param == param


@pytest.mark.parametrize(("payload", "param"), [(chat("7" * 90_000), "messages"), (Prompt.of("7" * 90_000), "prompt")])
def test_a_prompt_far_beyond_the_context_is_refused_for_the_price_of_its_beginning(stage, payload, param, monkeypatch):
    looked_at = []
    encode = stage._tokenizer._library.encode
    library = SimpleNamespace(encode=lambda text, **more: looked_at.append(len(text)) or encode(text, **more))
    monkeypatch.setattr(stage._tokenizer, "_library", library)
    with pytest.raises(InvalidRequest, match="more than 64 tokens; this model's context") as caught:
        admit(stage, request(), payload)
    assert caught.value.param == param
    assert sum(looked_at) < 2000


def test_a_parameter_that_cannot_be_is_refused_before_any_step(stage):
    with pytest.raises(InvalidRequest, match="temperature") as caught:
        admit(stage, request(temperature=9), chat("hello"))
    assert caught.value.param == "temperature"
    assert not stage._engine.live


def test_an_answer_ends_at_its_limit(stage):
    row = admit(stage, request(max_tokens=1), chat("hello"))
    assert words(answers(stage, row)[0]) == ["hello"]
    assert row.report["finish_reason"] == "length"


def test_the_limit_is_what_the_context_has_left(make):
    stage = make(max_tokens=20)
    rows = [admit(stage, request(1), chat("hello")), admit(stage, request(2, max_tokens=99), chat("hello"))]
    assert [row.state.sequence.sampling.max_tokens for row in rows] == [20, 55]


def test_a_stop_string_ends_the_answer_and_frees_its_slot(stage):
    says(stage, "hello the STOP world")
    row = admit(stage, request(stop=["STOP"]), chat("hello"))
    (pieces,) = answers(stage, row)
    assert "".join(word or "" for word in words(pieces)) == "hello the "
    assert row.report["finish_reason"] == "stop"
    assert not stage._engine.live


def test_characters_leave_whole(stage):
    spelling = stage._tokenizer
    by_byte = {spelling.bytes_of(number): number for number in range(3, 259)}
    stage._engine.says = [by_byte[bytes([code])] for code in "é!".encode()]
    row = admit(stage, request(), chat("hello"))
    assert words(answers(stage, row)[0]) == [None, "é", "!", None]


def test_log_probabilities_come_when_they_are_asked_for(stage):
    rows = [admit(stage, request(1, logprobs=True), chat("hello")), admit(stage, request(2), chat("hello"))]
    with_them, without = answers(stage, *rows)
    assert [(entry.token, entry.logprob) for piece in with_them if piece for entry in piece.logprobs] == [
        ("hello", -0.25),
        (" world", -0.25),
    ]
    assert all(piece.logprobs == () for piece in without if piece)


def test_several_tokens_of_a_step_travel_together(stage):
    stage._engine.each = 3
    row = admit(stage, request(), chat("hello"))
    assert words(answers(stage, row)[0]) == ["hello world"]


def test_a_step_that_failed_can_be_taken_again(stage):
    rows = [admit(stage, request(number), chat("hello")) for number in (1, 2)]
    stage._engine.fails = 1
    with pytest.raises(RuntimeError):
        stage.step(CTX, rows)
    assert [words(pieces) for pieces in answers(stage, *rows)] == [["hello", " world", None]] * 2


def test_rows_are_stepped_in_one_batch_and_ended_ones_no_more(stage):
    rows = [admit(stage, request(number, max_tokens=number), chat("hello")) for number in (1, 2, 3)]
    answers(stage, *rows)
    assert stage._engine.batches == [3, 2, 1]


def test_a_request_that_is_over_leaves_nothing_in_the_engine(stage):
    row = admit(stage, request(), chat("hello"))
    stage.step(CTX, [row])
    stage.forget(CTX, row)
    assert not stage._engine.live
    assert row.state is None
    stage.forget(CTX, request(2))


def test_more_requests_than_there_are_rows_are_refused(stage):
    for number in range(4):
        admit(stage, request(number), chat("hello"))
    with pytest.raises(Overloaded):
        admit(stage, request(9), chat("hello"))


def test_the_stages_own_system_message_opens_conversations_without_one(make):
    stage = make(system="the world")
    admit(stage, request(), chat("hello"))
    text = stage._tokenizer._library.decode(stage._engine.live[0].prompt, skip_special_tokens=False)
    assert text.startswith("<|im_start|>system\nthe world<|im_end|>\n<|im_start|>user\n")


def test_the_stages_own_penalties_and_limit_hold_for_requests_that_name_none(make):
    stage = make(frequency_penalty=0.5, presence_penalty=0.25, max_tokens=4)
    admit(stage, request(1), chat("hello"))
    admit(stage, request(2, frequency_penalty=0.0, presence_penalty=0.0, max_tokens=6), chat("hello"))
    asked = [row.sampling for row in stage._engine.live]
    asked = [(one.frequency_penalty, one.presence_penalty, one.max_tokens) for one in asked]
    assert asked == [(0.5, 0.25, 4), (0.0, 0.0, 6)]


def test_a_model_without_a_template_takes_prompts_only(stage):
    stage._template = None
    assert stage.facts()["chat"] is False
    with pytest.raises(InvalidRequest, match="no chat template"):
        admit(stage, request(), chat("hello"))


def test_it_says_what_it_can(stage, tokenizer_folder):
    facts = stage.facts()
    assert facts["chat"] is True
    assert facts["context"] == 64
    assert facts["model"] == tokenizer_folder.name
    assert {"temperature", "stop", "logprobs", "max_tokens"} <= set(facts["parameters"])


@pytest.mark.parametrize("name", ["context", "rows", "prefill_tokens", "cache_blocks", "max_tokens"])
def test_an_option_that_cannot_be_is_named(make, name):
    with pytest.raises(ConfigError, match=f"^{name} must be at least [01], not -1$"):
        make(**{name: -1})


def test_weights_may_be_named_more_than_once():
    options = msgspec.convert({"weights": ["org/name", "package:x==1"]}, ThinkerOptions)
    assert options.weights == ("org/name", "package:x==1")
