"""The bare side's loop over an engine that only counts."""

from types import SimpleNamespace

from serve_bare import Bare, sampling_of
from serve_round import round_of


class Counting:
    """A token a step for each sequence."""

    def __init__(self):
        self.live = []
        self.most = 0

    def add(self, prompt, sampling):
        sequence = SimpleNamespace(sampling=sampling, completion_tokens=0)
        self.live.append(sequence)
        self.most = max(self.most, len(self.live))
        return sequence

    def remove(self, sequence):
        self.live.remove(sequence)

    def step(self, sequences):
        produced = []
        for sequence in sequences:
            sequence.completion_tokens += 1
            is_last = sequence.completion_tokens == sequence.sampling.max_tokens
            produced.append(SimpleNamespace(sequence=sequence, finish_reason="length" if is_last else ""))
        return produced


def test_every_question_is_answered_in_its_length_by_so_many_askers():
    bare = Bare.__new__(Bare)
    bare._engine = Counting()
    bare.prompt = lambda text: [1] * 5
    wanted = round_of(1, 20, 4, 10, 1.0)
    figures = bare.run(wanted)
    assert figures["tokens"] == sum(question.tokens for question in wanted.questions)
    assert figures["prompt_tokens"] == 100
    assert len(figures["ttft_ns"]) == 20
    assert all(waited >= 0 for waited in figures["ttft_ns"])
    assert bare._engine.most <= 4
    assert bare._engine.live == []


def test_a_length_is_forced_from_both_sides():
    wanted = round_of(1, 1, 1, 10, 0.0)
    sampling = sampling_of(wanted, wanted.questions[0])
    assert sampling.max_tokens == sampling.min_tokens == wanted.questions[0].tokens
    assert sampling.ignore_eos
