#!/usr/bin/env python3
"""The training steps of step_bench.py, and PyTorch's side of each: a process per measurement.

    bench_models.py export ROW FOLDER   # model.onnx, and its data.npz
    bench_models.py step ROW MODE [--threads N] [--steps N] [--peak] [--set X]
    bench_models.py peaks ROW MODE [--threads N]

One step is forward, cross-entropy, backward and a fused AdamW; inputs are fixed random data, images
and their networks in channels_last.  MODE is eager, compile, checkpoint (torch.utils.checkpoint on the
first K blocks) or budget (torch.compile with activation_memory_budget), each also with -bf16
(autocast).  step prints a JSON object: ms and cpu_ms per step, the first loss and, with --peak, the most
bytes that PyTorch's CPU allocator held in a step (parameters, optimizer state and data included; scratch
inside oneDNN is not seen).  --set X is K of checkpoint, or the budget; peaks prints [X, bytes] of all, from
least to most recomputation.
"""
import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
import typing
import warnings

import numpy
import timm
import torch
import torchvision.models as tv
import transformers
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "torch"), os.path.join(HERE, "..", "..", "examples", "decoder")]
from export import Decoder  # noqa: E402
from zoo_models import UNet as DeepUNet  # noqa: E402

WARM_UP = 2


# ---- networks

class Logits(nn.Module):
    """A network of transformers that takes token ids alone and returns its logits alone."""

    def __init__(self, net, **options):
        super().__init__()
        self.net, self.options = net, options

    def forward(self, ids):
        return self.net(input_ids=ids, **self.options).logits


def gpt2():
    config = transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return Logits(transformers.GPT2LMHeadModel(config), use_cache=False)


def llama():
    config = transformers.LlamaConfig(
        vocab_size=8192, hidden_size=512, intermediate_size=1408, num_hidden_layers=8,
        num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=1024)
    return Logits(transformers.LlamaForCausalLM(config), use_cache=False)


def bert():
    config = transformers.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=2)
    return Logits(transformers.BertForSequenceClassification(config))


def double_conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, width=32, classes=4):
        super().__init__()
        w = [width << i for i in range(4)]
        self.down = nn.ModuleList(double_conv(i, o) for i, o in zip([3] + w, w))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * o, o, 2, 2) for o in w[2::-1])
        self.merge = nn.ModuleList(double_conv(2 * o, o) for o in w[2::-1])
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for down in self.down:
            skips.append(down(F.max_pool2d(skips[-1], 2) if skips else x))
        x = skips.pop()
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([up(x), skips.pop()], 1))
        return self.out(x)


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5000, 256)
        self.lstm = nn.LSTM(256, 512, 2, batch_first=True)
        self.out = nn.Linear(512, 10)

    def forward(self, x):
        return self.out(self.lstm(self.embedding(x))[0][:, -1])


def mlp():
    return nn.Sequential(nn.Linear(784, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(),
                         nn.Linear(1024, 10))


def decoder12(dropout=0.1):
    return Decoder(layers=12, width=768, heads=12, context=512, dropout=dropout)


def fused_attention(self, x, causal):
    q, k, v = (a.unflatten(2, (self.heads, -1)).transpose(1, 2) for a in self.c_attn(x).chunk(3, dim=2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return self.c_proj(y.transpose(1, 2).flatten(2))


def decoder12_fused():
    net = decoder12(dropout=0.0)
    for block in net.h:
        block.attn.forward = fused_attention.__get__(block.attn)
    return net


# ---- rows

@dataclasses.dataclass
class Row:
    net: typing.Callable[[], nn.Module]
    inputs: tuple  # shape of the images, with channels, or of the token ids
    target: tuple
    classes: int
    tokens: int = 0  # vocabulary; 0: the input is of floats
    blocks: tuple = ()  # names of the classes of modules that are checkpointed
    steps: int = 4  # number of steps measured in a process
    default: bool = True  # one of the rows measured if none is named


def images(net, batch, size, blocks, **more):
    return Row(net, (batch, 3, size, size), (batch,), 1000, blocks=blocks, **more)


def text(net, batch, length, vocabulary, blocks, **more):
    return Row(net, (batch, length), (batch, length), vocabulary, vocabulary, blocks, **more)


ROWS = {
    "mlp-128": Row(mlp, (128, 784), (128,), 10, steps=100),
    "gpt2-4x64": text(gpt2, 4, 64, 50257, ("GPT2Block",)),
    "gpt2-1x512": text(gpt2, 1, 512, 50257, ("GPT2Block",)),
    "llama-4x256": text(llama, 4, 256, 8192, ("LlamaDecoderLayer",)),
    "bert-8x128": Row(bert, (8, 128), (8,), 2, 30522, ("BertLayer",)),
    "resnet50-8": images(tv.resnet50, 8, 224, ("Bottleneck",)),
    "resnet18-16": images(tv.resnet18, 16, 224, ("BasicBlock",)),
    "mobilenetv2-16": images(tv.mobilenet_v2, 16, 224, ("InvertedResidual",), steps=10),
    "convnext-t-4": images(tv.convnext_tiny, 4, 224, ("CNBlock",)),
    "vit-s-8": images(lambda: timm.create_model("vit_small_patch16_224"), 8, 224, ("Block",)),
    "unet-4": Row(UNet, (4, 3, 128, 128), (4, 128, 128), 4, blocks=("Sequential",), steps=12),
    "lstm-16x64": Row(LSTM, (16, 64), (16,), 10, 5000, ("LSTM",), steps=20),
    # rows of the tables of memory in README.md and docs/benchmarks.md
    "decoder-8x128": text(Decoder, 8, 128, 256, ("Block",), steps=12, default=False),
    "decoder12-8x512": text(decoder12, 8, 512, 256, ("Block",), steps=3, default=False),
    "decoder12-fused-8x512": text(decoder12_fused, 8, 512, 256, ("Block",), steps=3, default=False),
    "resnet18-8x64": Row(lambda: tv.resnet18(num_classes=10), (8, 3, 64, 64), (8,), 10,
                         blocks=("BasicBlock",), steps=50, default=False),
    "resnet50-32": images(tv.resnet50, 32, 224, ("Bottleneck",), steps=3, default=False),
    "unet-8x256": Row(lambda: DeepUNet(width=32), (8, 3, 256, 256), (8, 256, 256), 3, blocks=("DoubleConv",),
                      steps=3, default=False),
}


def make(row):
    """The network in training mode, its input and its target."""
    torch.manual_seed(0)
    net = row.net().train()
    x = torch.randint(0, row.tokens, row.inputs) if row.tokens else torch.randn(row.inputs)
    return net, x, torch.randint(0, row.classes, row.target)


def export(row, folder):
    net, x, target = make(row)
    numpy.savez(os.path.join(folder, "data.npz"), x=x.numpy(), target=target.numpy())
    torch.onnx.export(net, (x,), os.path.join(folder, "model.onnx"), dynamo=True, optimize=False,
                      input_names=["x"], training=torch.onnx.TrainingMode.TRAINING, verbose=False)


# ---- PyTorch's step

class Step:
    """A training step whose recomputation can be set."""

    def __init__(self, row, mode, device="cpu"):
        self.net, self.x, self.target = make(row)
        self.mode, _, precision = mode.partition("-")
        self.autocast = precision == "bf16"
        self.device = device
        layout = torch.channels_last if self.x.dim() == 4 else torch.contiguous_format
        self.net = self.net.to(device, memory_format=layout)
        self.x = self.x.to(device, memory_format=layout)
        self.target = self.target.to(device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3, fused=True)
        self.forward = torch.compile(self.net) if self.mode in ("compile", "budget") else self.net
        self.blocks = [b for b in self.net.modules() if type(b).__name__ in row.blocks]
        self.checkpointed = 0
        if self.mode == "checkpoint":
            for number, block in enumerate(self.blocks):
                block.forward = self.checkpointing(number, block.forward)

    def checkpointing(self, number, forward):
        def run(*inputs, **options):
            if number < self.checkpointed:
                return checkpoint(forward, *inputs, use_reentrant=False, **options)
            return forward(*inputs, **options)
        return run

    def settings(self):
        """The settings of this mode, from least to most recomputation."""
        if self.mode == "checkpoint":
            return list(range(len(self.blocks) + 1))
        return [x / 10 for x in range(10, -1, -1)]

    def set(self, setting):
        if self.mode == "checkpoint":
            self.checkpointed = int(setting)
        else:
            torch._dynamo.reset()
            torch._functorch.config.activation_memory_budget = setting

    def __call__(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.autocast):
            y = self.forward(self.x).float()
            if y.dim() == 3:
                loss = F.cross_entropy(y.flatten(0, 1), self.target.flatten())
            else:
                loss = F.cross_entropy(y, self.target)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def peak(self):
        """The most bytes allocated at a time in a step, together with what stays between steps."""
        self()
        self.optimizer.zero_grad(set_to_none=True)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
            self()
        events = [e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"]
        live = most = 0
        for event in sorted(events, key=lambda e: e.start_ns()):
            live += event.nbytes()
            most = max(most, live)
        parameters = sum(p.nbytes for p in self.net.parameters())
        stays = [*self.net.buffers(), self.x, self.target]
        return 3 * parameters + sum(t.nbytes for t in stays) + most


def peaks(step):
    """[(setting, peak)] of every setting; more recomputation is not always a lower peak."""
    found = []
    for setting in step.settings():
        step.set(setting)
        found.append((setting, step.peak()))
    return found


def measure(step, steps):
    ms, cpu, losses = [], [], []
    for _ in range(WARM_UP + steps):
        start, start_cpu = time.perf_counter(), time.process_time()
        losses.append(step())
        ms.append(1e3 * (time.perf_counter() - start))
        cpu.append(1e3 * (time.process_time() - start_cpu))
    return {"ms": statistics.median(ms[WARM_UP:]), "cpu_ms": statistics.mean(cpu[WARM_UP:]),
            "loss": losses[0]}


def run_step(step, args):
    result = {}
    if args.set is not None:
        step.set(args.set)
        result["setting"] = args.set
    result.update(measure(step, args.steps))
    if args.peak:
        result["peak"] = step.peak()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["export", "step", "peaks"])
    parser.add_argument("row", choices=list(ROWS))
    parser.add_argument("argument", metavar="FOLDER|MODE")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int)
    parser.add_argument("--peak", action="store_true")
    parser.add_argument("--set", type=float)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    row = ROWS[args.row]
    if args.what == "export":
        return export(row, args.argument)
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    args.steps = args.steps or row.steps
    step = Step(row, args.argument)
    print(json.dumps(peaks(step) if args.what == "peaks" else run_step(step, args)))


if __name__ == "__main__":
    main()
