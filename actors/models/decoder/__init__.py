"""Decoder-only language models of the Llama, Qwen2 and Qwen3 families, from config.json and safetensors.

    config.json -> DecoderConfig -+-> rotary tables
    *.safetensors -> Weights -----+-> Decoder: pieces of sequences -> hidden states -> logits

They differ in three places only, all of them read from the configuration: Qwen2 adds a bias to queries, keys and
values, Qwen3 normalises each head's queries and keys, and the rotary frequencies may be stretched.
"""
