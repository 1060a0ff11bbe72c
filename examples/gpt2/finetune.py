#!/usr/bin/env python3
"""Train a tiny GPT-2 of `transformers` with ckc on text of your own, and take the weights back to PyTorch.

    python3 examples/gpt2/finetune.py [--text FILE] [--ckc build/release/ckc] [--folder gpt2-run]

A tokenizer is trained on the text, a GPT-2 with random weights exported in training form, the text cut into
windows of token ids (nine tenths to train on, the rest to validate), and ckc trains: shuffled epochs, AdamW with
warm-up and cosine, no decay of biases and norms, validation after every epoch, a checkpoint every 20 steps.
Then the weights are loaded back into transformers and the saved model into onnxruntime: all three have the same
validation loss.  Run it again after killing it: it goes on where it was.

Needs torch, transformers, tokenizers, safetensors, onnx, onnxscript, onnxruntime, numpy; nothing is downloaded.
"""
import argparse
import glob
import json
import os
import subprocess

import numpy as np
import onnxruntime
import safetensors.torch
import tokenizers
import torch
import transformers

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LENGTH, BATCH, VOCABULARY = 64, 16, 512


class Logits(torch.nn.Module):
    """What ckc trains: token ids to scores.  It appends the loss, cross-entropy against `target`."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits


def read_text(path):
    if path:
        return open(path, encoding="utf-8").read()
    files = sorted(glob.glob(os.path.join(ROOT, "ir", "*.[ch]")) + glob.glob(os.path.join(ROOT, "passes", "*.[ch]")))
    return "".join(open(f, encoding="utf-8").read() for f in files)


def train_tokenizer(text):
    t = tokenizers.ByteLevelBPETokenizer()
    t.train_from_iterator([text], vocab_size=VOCABULARY, show_progress=False)
    return t


def write_windows(path, ids):
    """Windows of LENGTH tokens and, one token later, what is to be predicted."""
    rows = (len(ids) - 1) // LENGTH
    x = np.array(ids[:rows * LENGTH], np.int64).reshape(rows, LENGTH)
    target = np.array(ids[1:rows * LENGTH + 1], np.int64).reshape(rows, LENGTH)
    np.savez(path, input_ids=x, target=target)
    return x, target


def make_model():
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
        attn_implementation="eager"))


def export(model, path):
    ids = torch.zeros(BATCH, LENGTH, dtype=torch.int64)
    torch.onnx.export(Logits(model).train(), (ids,), path, dynamo=True, optimize=False, verbose=False,
                      input_names=["input_ids"], output_names=["logits"])


def train(a, folder):
    command = [a.ckc, f"{folder}/model.onnx", "--data", f"{folder}/train.npz", "--val", f"{folder}/val.npz",
               "--epochs", str(a.epochs), "--shuffle", "--lr", "3e-3", "--schedule", "cosine", "--warmup", "20",
               "--no-decay", "auto", "--clip-norm", "1", "--checkpoint", f"{folder}/checkpoints", "--every", "20",
               "--resume", "--metrics", f"{folder}/metrics.jsonl", "--save", f"{folder}/trained.safetensors",
               "--save", f"{folder}/trained.onnx"]
    print(" ".join(command))
    subprocess.run(command, check=True)
    metrics = [json.loads(line) for line in open(f"{folder}/metrics.jsonl")]
    return [m["val_loss"] for m in metrics if "val_loss" in m][-1]


def mean_loss(x, target, logits_of):
    """Of all rows, in batches of the size that the model was exported with; the last one has rows of the others."""
    losses = []
    for i in [*range(0, len(x) - BATCH, BATCH), len(x) - BATCH]:
        logits = torch.as_tensor(logits_of(x[i:i + BATCH]))
        each = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY),
                                                 torch.as_tensor(target[i:i + BATCH]).reshape(-1), reduction="none")
        losses += each.reshape(BATCH, -1).mean(1).tolist()[len(losses) - i:]
    return float(np.mean(losses))


def in_torch(path, x, target):
    net = Logits(make_model()).eval()
    missing, unexpected = net.load_state_dict(safetensors.torch.load_file(path), strict=False)
    assert not unexpected and all(k.endswith("lm_head.weight") for k in missing), (missing, unexpected)
    net.model.tie_weights()
    with torch.no_grad():
        return mean_loss(x, target, lambda ids: net(torch.as_tensor(ids)))


def in_onnxruntime(path, x, target):
    onnxruntime.set_default_logger_severity(3)  # warns of every initializer that nothing reads
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return mean_loss(x, target, lambda ids: session.run(["logits"], {"input_ids": ids})[0])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--text")
    p.add_argument("--ckc", default=os.path.join(ROOT, "build/release/ckc"))
    p.add_argument("--folder", default="gpt2-run")
    p.add_argument("--epochs", type=int, default=3)
    a = p.parse_args()
    os.makedirs(a.folder, exist_ok=True)
    text = read_text(a.text)
    tokenizer = train_tokenizer(text)
    tokenizer.save(f"{a.folder}/tokenizer.json")
    ids = tokenizer.encode(text).ids
    cut = len(ids) * 9 // 10
    write_windows(f"{a.folder}/train.npz", ids[:cut])
    x, target = write_windows(f"{a.folder}/val.npz", ids[cut:])
    if not os.path.exists(f"{a.folder}/model.onnx"):
        export(make_model(), f"{a.folder}/model.onnx")
    ours = train(a, a.folder)
    theirs = {"PyTorch": in_torch(f"{a.folder}/trained.safetensors", x, target),
              "onnxruntime": in_onnxruntime(f"{a.folder}/trained.onnx", x, target)}
    print(f"validation loss: ckc {ours:.6f}, " + ", ".join(f"{k} {v:.6f}" for k, v in theirs.items()))
    assert all(abs(v - ours) <= 1e-5 * ours for v in theirs.values())


if __name__ == "__main__":
    main()
