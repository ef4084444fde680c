"""Makes a tiny GPT-2 with random weights and a tokenizer of its own: 1.3 MB that the real server loads and serves.

Run by the engine's Python: `python tiny_model.py FOLDER`. The same folder comes out every time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

VOCABULARY = 1024
SPECIAL = ["<|pad|>", "<|bos|>", "<|eos|>"]
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def sentences() -> list[str]:
    """A small, fixed text to learn byte pairs from."""
    subjects = ("the server", "a request", "one host", "the router", "every card", "this engine")
    verbs = ("answers", "waits for", "starts", "drains", "watches", "measures")
    objects = ("the queue", "a token", "its memory", "the next batch", "another host", "the log")
    return [f"{s} {v} {o} number {i}" for i, s in enumerate(subjects * 8) for v in verbs for o in objects]


def tokenizer(folder: Path) -> None:
    """Byte-level BPE: any text can be encoded, any tokens decoded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pairs.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 24, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    pairs.train_from_iterator(sentences(), trainer)
    pairs.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": SPECIAL[0],
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
        "model_max_length": 2048,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def weights(folder: Path) -> None:
    """Two layers of random weights, wide enough apart that greedy decoding gives text and not one special token."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=2048, n_embd=128, n_head=4, n_layer=2, n_inner=256,
        initializer_range=0.3, bos_token_id=1, eos_token_id=2, dtype="bfloat16",
    )  # fmt: skip
    GPT2LMHeadModel(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    tokenizer(target)
    weights(target)
