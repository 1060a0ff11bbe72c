#!/usr/bin/env python3
"""Networks of real size without their weights, to plan for a device that is not here:

    export_large.py NETWORK FOLDER    writes FOLDER/NETWORK.onnx, and a sparse file of zeros as its weights
    ckc FOLDER/NETWORK.onnx --device h200 --precision bf16 --steps 0 --budget 60%

PyTorch exports them under FakeTensorMode, so that nothing of their size is ever in memory.
"""
import argparse
import os
import warnings

import onnx_ir as ir
import torch
import transformers as T
from torch._subclasses import FakeTensorMode

SMALL = 4096  # bytes: constants up to this size stay in the model file


class Logits(torch.nn.Module):
    """A network that takes inputs of these names by position and returns its logits."""

    def __init__(self, net, *names, **fixed):
        super().__init__()
        self.net, self.names, self.fixed = net, names, fixed

    def forward(self, *args):
        return self.net(**dict(zip(self.names, args)), **self.fixed).logits


def ids(batch, length, vocabulary):
    return torch.randint(0, vocabulary, (batch, length))


def causal(config, batch, length):
    config._attn_implementation = "sdpa"
    net = T.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return Logits(net, "input_ids", use_cache=False), (ids(batch, length, 1000),)


def masked(net, batch, length, vocabulary):
    return Logits(net, "input_ids"), (ids(batch, length, vocabulary),)


LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}

NETWORKS = {
    "llama_8b": lambda: causal(T.LlamaConfig(
        vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=8192), 1, 2048),
    "gemma3_1b": lambda: causal(T.Gemma3TextConfig(
        vocab_size=262144, hidden_size=1152, intermediate_size=6912, num_hidden_layers=26,
        num_attention_heads=4, num_key_value_heads=1, head_dim=256, sliding_window=512), 8, 2048),
    "whisper_large": lambda: (
        Logits(T.WhisperForConditionalGeneration(T.WhisperConfig(
            vocab_size=51866, num_mel_bins=128, d_model=1280, encoder_layers=32, decoder_layers=32,
            encoder_attention_heads=20, decoder_attention_heads=20, encoder_ffn_dim=5120,
            decoder_ffn_dim=5120)), "input_features", "decoder_input_ids", use_cache=False),
        (torch.randn(8, 128, 3000), ids(8, 448, 1000))),
    "esm2_650m": lambda: masked(T.EsmForMaskedLM(T.EsmConfig(
        vocab_size=33, hidden_size=1280, num_hidden_layers=33, num_attention_heads=20,
        intermediate_size=5120, position_embedding_type="rotary", pad_token_id=1, mask_token_id=32)),
        8, 1024, 30),
    "deberta_v3_large": lambda: masked(T.DebertaV2ForMaskedLM(T.DebertaV2Config(
        **LARGE, vocab_size=128100, relative_attention=True, position_buckets=256,
        pos_att_type="p2c|c2p", share_att_key=True, norm_rel_ebd="layer_norm")), 8, 512, 1000),
    "wav2vec2_large": lambda: (
        Logits(T.Wav2Vec2ForCTC(T.Wav2Vec2Config(
            **LARGE, feat_extract_norm="layer", do_stable_layer_norm=True, apply_spec_augment=False)),
            "input_values"),
        (torch.randn(8, 160000),)),
    "segformer_b5": lambda: (
        Logits(T.SegformerForSemanticSegmentation(T.SegformerConfig(
            depths=[3, 6, 40, 3], hidden_sizes=[64, 128, 320, 512], decoder_hidden_size=768,
            num_labels=150)), "pixel_values"),
        (torch.randn(8, 3, 512, 512),)),
    "videomae_large": lambda: (
        Logits(T.VideoMAEForVideoClassification(T.VideoMAEConfig(**LARGE, num_labels=400)), "pixel_values"),
        (torch.randn(8, 16, 3, 224, 224),)),
}


def without_weights(value, data, offset):
    """Puts the initializer, if it is large, at an offset of the file `data`; returns the offset behind it."""
    tensor = value.const_value
    if tensor is None or tensor.nbytes <= SMALL:
        try:
            value.const_value = tensor and ir.tensor(tensor.numpy(), name=value.name)
            return offset
        except Exception:  # a fake tensor has no numbers, however few
            pass
    value.const_value = ir.ExternalTensor(data, offset, tensor.nbytes, dtype=value.dtype, shape=value.shape,
                                          name=value.name)
    return offset + tensor.nbytes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("folder")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    with FakeTensorMode(allow_non_fake_inputs=True):
        net, inputs = NETWORKS[args.network]()
        net = net.train(False)
        program = torch.onnx.export(net, inputs, dynamo=True, optimize=False, verbose=False)
    data, offset = args.network + ".data", 0
    for value in program.model.graph.initializers.values():
        offset = without_weights(value, data, offset)
    os.makedirs(args.folder, exist_ok=True)
    ir.save(program.model, os.path.join(args.folder, args.network + ".onnx"))
    with open(os.path.join(args.folder, data), "wb") as file:
        file.truncate(offset)
    print(f"{args.network}: {sum(p.numel() for p in net.parameters()) / 1e6:.0f} million parameters")


if __name__ == "__main__":
    main()
