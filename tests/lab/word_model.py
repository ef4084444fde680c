"""A model for measuring: a GPT-2 shape whose tokens are 32,768 words, weights made up by the engine at its start.

Prompts of random tokens hardly ever begin alike, so nothing comes from the prefix cache; every token is visible text,
so the client sees the first one when it comes. Small enough to be written without torch.
"""

from __future__ import annotations

import base64
import json
import struct

from lab.host import Host
from tests.lab.standin_wheels import archive

FOLDER = "/srv/words"
VOCABULARY = 32768
ARGS = {"load-format": "dummy"}  # what a service of this model needs
CONFIG = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "dtype": "bfloat16", "vocab_size": VOCABULARY,
    "n_positions": 2048, "n_embd": 128, "n_head": 4, "n_layer": 2, "n_inner": 256, "activation_function": "gelu_new",
    "bos_token_id": VOCABULARY - 1, "eos_token_id": VOCABULARY - 1, "tie_word_embeddings": True,
}  # fmt: skip


def files() -> dict[str, bytes]:
    """The model's folder."""
    # token 0 is a word too: it is what weights without a meaning choose
    words = {**{f"w{i}": i for i in range(VOCABULARY - 1)}, "<|end|>": VOCABULARY - 1}
    end = {
        "id": VOCABULARY - 1,
        "content": "<|end|>",
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
    }
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [{**end, "special": True}],
        "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w1"},
    }  # fmt: skip
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "bos_token": "<|end|>",
        "model_max_length": 2048, "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer.json": json.dumps(tokenizer).encode(),
        "tokenizer_config.json": json.dumps(settings).encode(),
        "model.safetensors": struct.pack("<Q", len(header)) + header + bytes(16),
    }


def place(host: Host) -> None:
    """Put the model on a lab host, readable by all."""
    text = base64.encodebytes(archive(files())).decode()
    script = f"mkdir -p {FOLDER} && base64 -d | tar -x -C {FOLDER} --no-same-owner && chmod -R a+rX {FOLDER}"
    done = host.exec("sh", "-c", script, stdin=text)
    assert done.returncode == 0, done.stderr
