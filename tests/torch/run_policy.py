"""Trains models with the policy that `ckc plan MODEL --emit torch` wrote; gradients must be those without it.

    run_policy.py CKC [--budget 60%]"""
import argparse
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import warnings

import torch
import torchvision
import transformers

warnings.filterwarnings("ignore")


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids).logits


class Encoder(torch.nn.Module):
    """Dropout, which PyTorch writes over in place on a CPU."""
    def __init__(self):
        super().__init__()
        self.h = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True)
                                     for _ in range(4))

    def forward(self, x):
        mask = torch.full((x.shape[1], x.shape[1]), -1e9).triu(1)
        for h in self.h:
            x = h(x, src_mask=mask)
        return x


def models():
    torch.manual_seed(0)
    tokens = torch.randint(0, 211, (8, 64))
    gpt2 = transformers.GPT2Config(n_layer=4, n_embd=64, n_head=4, vocab_size=211, n_positions=64, use_cache=False,
                                   attn_pdrop=0, embd_pdrop=0, resid_pdrop=0)
    yield "gpt2", Logits(transformers.GPT2LMHeadModel(gpt2)), tokens
    llama = transformers.LlamaConfig(num_hidden_layers=4, hidden_size=64, intermediate_size=192,
                                     num_attention_heads=4, vocab_size=211, use_cache=False)
    yield "llama", Logits(transformers.LlamaForCausalLM(llama)), tokens
    yield "encoder", Encoder(), torch.randn(16, 64, 64)
    yield "resnet18", torchvision.models.resnet18(), torch.randn(64, 3, 64, 64)


def gradients(model, x):
    torch.manual_seed(1)
    model.zero_grad()
    model(x).float().square().mean().backward()
    return {n: p.grad.clone() for n, p in model.named_parameters()}


def check(name, exporter, ckc, budget, model, x):
    with tempfile.TemporaryDirectory() as temp:
        path = pathlib.Path(temp, "model.onnx")
        torch.onnx.export(model.train(), (x,), str(path), dynamo=exporter == "dynamo", verbose=False,
                          training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
        done = subprocess.run([ckc, "plan", str(path), "--device", "cpu", "--budget", budget, "--optimizer", "sgd", "--emit", "torch",
                               "-o", temp + "/out", "--quiet"], capture_output=True, text=True)
        if done.returncode:
            return print(f"{name}, {exporter}: {done.stderr[:200]}")
        spec = importlib.util.spec_from_file_location("policy", temp + "/out/policy.py")
        policy = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(policy)
    before = gradients(model, x)
    missing = policy.apply(model.model if name == "gpt2" else model)  # with the wrapper and without
    after = gradients(model, x)
    same = all(torch.equal(before[n], after[n]) for n in before)
    worst = max(float((before[n] - after[n]).abs().max()) for n in before)
    print(f"{'ok  ' if same and not missing else 'FAIL'} {name}, {exporter}: {len(policy.BLOCKS)} blocks, missing "
          f"{missing}, gradients differ by {worst:.1e}")
    return same and not missing


def main():
    p = argparse.ArgumentParser()
    p.add_argument("ckc")
    p.add_argument("--budget", default="60%")
    a = p.parse_args()
    good = True
    for exporter in ("dynamo", "torchscript"):
        for name, model, x in models():
            if exporter == "torchscript" and name != "resnet18":
                continue  # torchscript cannot export the masks of today's transformers
            good &= bool(check(name, exporter, a.ckc, a.budget, model, x))
    sys.exit(not good)


main()
