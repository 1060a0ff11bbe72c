#!/usr/bin/env python3
"""Export a GPT-like decoder for ckc: examples/decoder/model.onnx.

The network is the usual small GPT: token and learned position embeddings, 6 pre-LayerNorm
blocks of causal self-attention (written out: scores, mask, softmax, dropout) and a GELU
MLP, a final LayerNorm, and an output projection tied to the token embedding. Vocabulary:
the 256 byte values. Width 384, 6 heads, context up to 256: 10.8 M parameters.

It is exported by PyTorch's TorchScript exporter in *training* form (dropout stays in the
graph, nothing is folded, so every parameter keeps its PyTorch name) and *without weights*:
the parameters are graph inputs with a static float shape and no initializer, which keeps
the file small. `ckc --init normal:0.02` gives them values.

    input   idx     int64    [batch, seq]           byte values 0..255, seq <= 256
    output  logits  float32  [batch, seq, 256]      next-byte scores; ckc appends the loss
            target  int64    [batch, seq]           the same text shifted by one byte

The causal mask is computed in the graph from the shape of idx, so that it is no parameter.
Needs PyTorch (any 2.x): python3 export.py [model.onnx]. Nothing else in this repository
needs Python.
"""
import math
import os
import sys

import torch
import torch.nn as nn
from torch.nn import functional as F

LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY, DROPOUT = 6, 384, 6, 256, 256, 0.1


class SelfAttention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.attn_dropout = nn.Dropout(dropout)
        self.resid_dropout = nn.Dropout(dropout)

    def forward(self, x, causal):
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(c, dim=2)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(c // self.heads))
        att = att.masked_fill(~causal, float("-inf"))
        att = self.attn_dropout(F.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2).contiguous().view(b, t, c)
        return self.resid_dropout(self.c_proj(y))


class MLP(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(self.c_proj(F.gelu(self.c_fc(x))))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = SelfAttention(width, heads, dropout)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = MLP(width, dropout)

    def forward(self, x, causal):
        x = x + self.attn(self.ln_1(x), causal)
        return x + self.mlp(self.ln_2(x))


class Decoder(nn.Module):
    def __init__(self, layers=LAYERS, width=WIDTH, heads=HEADS, context=CONTEXT,
                 vocabulary=VOCABULARY, dropout=DROPOUT):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx):
        pos = torch.arange(idx.size(1), device=idx.device)
        causal = pos[:, None] >= pos[None, :]
        x = self.drop(self.wte(idx) + self.wpe(pos))
        for block in self.h:
            x = block(x, causal)
        return self.lm_head(self.ln_f(x))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "model.onnx")
    torch.manual_seed(0)
    net = Decoder().train()
    idx = torch.randint(0, VOCABULARY, (2, 64))
    torch.onnx.export(net, (idx,), path, dynamo=False, opset_version=17,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      export_params=False, input_names=["idx"], output_names=["logits"],
                      dynamic_axes={"idx": {0: "batch", 1: "seq"},
                                    "logits": {0: "batch", 1: "seq"}})
    print(f"{path}: {sum(p.numel() for p in net.parameters())} parameters, "
          f"{os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
