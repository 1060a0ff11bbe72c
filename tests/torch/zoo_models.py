"""zoo_models.py -- the networks people train, narrow enough that each file stays near 1 MB.

Every entry of ZOO is a function returning (network, inputs, target, loss kind).
Architectures are complete - depth, strides, blocks, padding as published - only widths,
resolution and vocabulary are reduced. Dropout and stochastic depth are 0, so that a float64
oracle is exact.
"""
import math
from functools import partial

import torch
import torch.nn as nn
import torchvision.models as tv
from torch.nn import functional as F
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.efficientnet import EfficientNet, _efficientnet_conf
from torchvision.models.mobilenetv3 import MobileNetV3, _mobilenet_v3_conf
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.models.segmentation.deeplabv3 import DeepLabHead
from torchvision.models.swin_transformer import SwinTransformer

CLASSES = 10


def images(batch, size, channels=3):
    return torch.randn(batch, channels, size, size)


def classes(*shape, count=CLASSES):
    return torch.randint(0, count, shape)


# Convolutional networks from torchvision

class NarrowResNet(ResNet):
    """ResNet with every stage 1/16 as wide; the stem keeps its 64 channels.

    The last scale of each block starts at 0.25: at 1 a network this narrow is so
    ill-conditioned that PyTorch's own float32 gradients are wrong by 3 %.
    """

    def _make_layer(self, block, planes, blocks, stride=1, dilate=False):
        return super()._make_layer(block, planes // 16, blocks, stride, dilate)

    def __init__(self, layers):
        super().__init__(Bottleneck, layers, num_classes=CLASSES)
        self.fc = nn.Linear(self.inplanes, CLASSES)
        for block in self.modules():
            if isinstance(block, Bottleneck):
                nn.init.constant_(block.bn3.weight, 0.25)


def resnet50():
    return NarrowResNet([3, 4, 6, 3]), (images(4, 64),), classes(4), "ce"


def densenet121():
    net = tv.DenseNet(growth_rate=4, block_config=(6, 12, 24, 16), num_init_features=8,
                      bn_size=4, drop_rate=0, num_classes=CLASSES)
    return net, (images(4, 64),), classes(4), "ce"


def mobilenet_v3_small():
    setting, _ = _mobilenet_v3_conf("mobilenet_v3_small", width_mult=0.25)
    net = MobileNetV3(setting, 64, num_classes=CLASSES, dropout=0.0)
    return net, (images(4, 64),), classes(4), "ce"


def efficientnet_b0():
    setting, _ = _efficientnet_conf("efficientnet_b0", width_mult=0.2, depth_mult=1.0)
    net = EfficientNet(setting, dropout=0.0, stochastic_depth_prob=0.0,
                       num_classes=CLASSES, last_channel=64)
    return net, (images(4, 64),), classes(4), "ce"


def convnext_tiny():
    setting = [CNBlockConfig(8, 16, 3), CNBlockConfig(16, 24, 3),
               CNBlockConfig(24, 32, 9), CNBlockConfig(32, None, 3)]
    net = ConvNeXt(setting, stochastic_depth_prob=0.0, layer_scale=0.5, num_classes=CLASSES)
    return net, (images(3, 64),), classes(3), "ce"


def swin_t():
    net = SwinTransformer(patch_size=[4, 4], embed_dim=8, depths=[2, 2, 6, 2],
                          num_heads=[1, 2, 4, 8], window_size=[7, 7], dropout=0.0,
                          attention_dropout=0.0, stochastic_depth_prob=0.0,
                          num_classes=CLASSES)
    return net, (images(2, 56),), classes(2), "ce"


def vit():
    net = tv.VisionTransformer(image_size=32, patch_size=8, num_layers=4, num_heads=4,
                               hidden_dim=48, mlp_dim=96, num_classes=CLASSES)
    nn.init.normal_(net.heads.head.weight, std=0.1)
    return net, (images(3, 32),), classes(3), "ce"


def shufflenet_v2():
    net = tv.ShuffleNetV2([4, 8, 4], [24, 16, 32, 64, 64], num_classes=CLASSES)
    return net, (images(4, 64),), classes(4), "ce"


def squeezenet():
    net = tv.SqueezeNet("1_1", num_classes=CLASSES, dropout=0.0)
    for fire in [m for m in net.modules() if isinstance(m, nn.Conv2d)]:
        nn.init.kaiming_normal_(fire.weight)
    return net, (images(2, 48),), classes(2), "ce"


def vgg11_bn():
    layers = tv.vgg.make_layers([8, "M", 16, "M", 32, 32, "M", 48, 48, "M", 48, 48, "M"],
                                batch_norm=True)
    net = tv.VGG(layers, num_classes=CLASSES, dropout=0.0)
    net.avgpool = nn.AdaptiveAvgPool2d(1)
    net.classifier = nn.Sequential(nn.Linear(48, 32), nn.ReLU(True), nn.Dropout(0.0),
                                   nn.Linear(32, CLASSES))
    return net, (images(3, 64),), classes(3), "ce"


# Dense prediction

class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout),
                         nn.ReLU(True), nn.Conv2d(cout, cout, 3, padding=1, bias=False),
                         nn.BatchNorm2d(cout), nn.ReLU(True))


class UpBlock(nn.Module):
    """Transposed convolution, padded to the size of the skip connection, concatenation."""

    def __init__(self, cin, cout):
        super().__init__()
        self.up = nn.ConvTranspose2d(cin, cin // 2, 2, stride=2)
        self.conv = DoubleConv(cin, cout)

    def forward(self, x, skip):
        x = self.up(x)
        dy, dx = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
        x = F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([skip, x], dim=1))


class UNet(nn.Module):
    def __init__(self, width=6, out=3):
        super().__init__()
        w = [width * 2 ** i for i in range(5)]
        self.inc = DoubleConv(3, w[0])
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), DoubleConv(a, b))
                                  for a, b in zip(w[:-1], w[1:]))
        self.up = nn.ModuleList(UpBlock(b, a) for a, b in zip(w[-2::-1], w[:0:-1]))
        self.outc = nn.Conv2d(w[0], out, 1)

    def forward(self, x):
        skips = [self.inc(x)]
        for down in self.down:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up in self.up:
            x = up(x, skips.pop())
        return self.outc(x)


def unet():
    return UNet(), (images(2, 36),), classes(2, 36, 36, count=3), "ce"


class DiffusionUNet(nn.Module):
    """GroupNorm, SiLU, a time embedding, nearest upsampling: a denoiser, trained with MSE."""

    def __init__(self, width=16):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width))
        self.inc = nn.Conv2d(3, width, 3, padding=1)
        self.n1, self.c1 = nn.GroupNorm(4, width), nn.Conv2d(width, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.n2 = nn.GroupNorm(8, 2 * width)
        self.c2 = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.Conv2d(2 * width, width, 3, padding=1)
        self.n3, self.out = nn.GroupNorm(4, 2 * width), nn.Conv2d(2 * width, 3, 3, padding=1)

    def forward(self, x, t):
        freq = torch.exp(torch.arange(8, device=t.device, dtype=t.dtype) * -0.5)
        angle = t[:, None] * freq[None, :]
        emb = self.time(torch.cat([torch.sin(angle), torch.cos(angle)], dim=1))
        x = self.inc(x)
        h = x + self.c1(F.silu(self.n1(x + emb[:, :, None, None])))
        low = self.c2(F.silu(self.n2(self.down(h))))
        up = self.up(F.interpolate(low, scale_factor=2.0, mode="nearest"))
        return self.out(F.silu(self.n3(torch.cat([up, h], dim=1))))


def diffusion_unet():
    x = images(2, 16)
    return DiffusionUNet(), (x, torch.rand(2) * 10), torch.randn_like(x), "mse"


class DeepLab(nn.Module):
    """Dilated backbone, atrous spatial pyramid, bilinear upsampling to the input size."""

    def __init__(self, out=5):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16),
            nn.ReLU(), nn.Conv2d(16, 16, 3, padding=2, dilation=2), nn.ReLU())
        self.head = DeepLabHead(16, out, atrous_rates=(2, 3, 4))
        self.shrink(self.head)

    @staticmethod
    def shrink(head):
        aspp = head[0]
        for branch in aspp.convs:
            i = 1 if isinstance(branch[0], nn.AdaptiveAvgPool2d) else 0
            old = branch[i]
            branch[i] = nn.Conv2d(16, 8, old.kernel_size, padding=old.padding,
                                  dilation=old.dilation, bias=False)
            branch[i + 1] = nn.BatchNorm2d(8)
        aspp.project[0], aspp.project[1] = nn.Conv2d(40, 8, 1, bias=False), nn.BatchNorm2d(8)
        aspp.project[3] = nn.Dropout(0.0)
        head[1] = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        head[2], head[4] = nn.BatchNorm2d(8), nn.Conv2d(8, head[4].out_channels, 1)

    def forward(self, x):
        y = self.head(self.backbone(x))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


def deeplab_v3():
    return DeepLab(), (images(4, 32),), classes(4, 32, 32, count=5), "ce"


class AutoEncoder(nn.Module):
    """1-D and strided transposed convolutions with output padding, LeakyReLU, PReLU, Tanh."""

    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv1d(2, 8, 5, stride=2, padding=2), nn.LeakyReLU(0.2),
                                 nn.InstanceNorm1d(8, affine=True),
                                 nn.Conv1d(8, 16, 3, stride=3, padding=1), nn.PReLU(16))
        self.dec = nn.Sequential(nn.ConvTranspose1d(16, 8, 3, stride=3, padding=1,
                                                    output_padding=2), nn.ELU(),
                                 nn.ConvTranspose1d(8, 2, 4, stride=2, padding=1), nn.Tanh())

    def forward(self, x):
        return self.dec(self.enc(x))


def autoencoder_1d():
    x = torch.randn(3, 2, 48)
    return AutoEncoder(), (x,), torch.tanh(x), "mse"


# Transformers

class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.dense = nn.Linear(width, width), nn.Linear(width, width)

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        score = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1)) + mask
        y = torch.matmul(torch.softmax(score, dim=-1), v).permute(0, 2, 1, 3).contiguous()
        return self.dense(y.view(x.shape))


class BertLayer(nn.Module):
    """Post-LayerNorm encoder layer."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention, self.norm1 = SelfAttention(width, heads), nn.LayerNorm(width, 1e-12)
        self.intermediate, self.output = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width, 1e-12)

    def forward(self, x, mask):
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.output(F.gelu(self.intermediate(x))))


class Bert(nn.Module):
    def __init__(self, vocabulary=100, width=32, heads=4, layers=3, context=24):
        super().__init__()
        self.word = nn.Embedding(vocabulary, width, padding_idx=0)
        self.position, self.token_type = nn.Embedding(context, width), nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layer = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, CLASSES)

    def forward(self, ids, attention, types):
        pos = torch.arange(ids.size(1), device=ids.device).unsqueeze(0)
        x = self.norm(self.word(ids) + self.position(pos) + self.token_type(types))
        mask = (1.0 - attention[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layer:
            x = layer(x, mask)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


def bert():
    ids = classes(3, 16, count=99) + 1
    attention = (torch.arange(16)[None, :] < torch.tensor([16, 11, 7])[:, None]).long()
    types = (torch.arange(16)[None, :] > torch.tensor([8, 5, 3])[:, None]).long()
    return Bert(), (ids * attention, attention, types), classes(3), "ce"


class Conv1D(nn.Module):
    """GPT-2's linear layer: weight stored [in, out]."""

    def __init__(self, nin, nout):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(nin, nout))
        self.bias = nn.Parameter(torch.zeros(nout))
        nn.init.normal_(self.weight, std=0.1)

    def forward(self, x):
        size = x.size()[:-1] + (self.weight.size(1),)
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(size)


def gelu_new(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi)
                                       * (x + 0.044715 * torch.pow(x, 3.0))))


class Gpt2Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)
        self.c_fc, self.c_out = Conv1D(width, 4 * width), Conv1D(4 * width, width)
        mask = torch.tril(torch.ones(context, context, dtype=torch.bool))
        self.register_buffer("mask", mask[None, None], persistent=False)

    def attend(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.c_attn(x).split(c, dim=2))
        score = q @ k.transpose(-1, -2) / math.sqrt(c // self.heads)
        score = torch.where(self.mask[:, :, :t, :t], score, torch.finfo(score.dtype).min)
        y = torch.softmax(score, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.c_out(gelu_new(self.c_fc(self.ln_2(x))))


class Gpt2(nn.Module):
    def __init__(self, vocabulary=67, width=32, heads=4, layers=3, context=24):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Gpt2Block(width, heads, context) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        nn.init.normal_(self.wte.weight, std=0.2)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.size(1), device=ids.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def gpt2():
    return Gpt2(), (classes(2, 16, count=67),), classes(2, 16, count=67), "ce"


class RmsNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, width // heads
        self.q_proj = nn.Linear(width, heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(width), RmsNorm(width)

    def repeat_kv(self, x):
        b, h, t, d = x.shape
        groups = self.heads // self.kv_heads
        return x[:, :, None].expand(b, h, groups, t, d).reshape(b, h * groups, t, d)

    def attend(self, x, cos, sin, mask):
        b, t, c = x.shape
        q = self.q_proj(x).view(b, t, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        score = q @ self.repeat_kv(k).transpose(2, 3) / math.sqrt(self.head_dim) + mask
        y = torch.softmax(score, dim=-1) @ self.repeat_kv(v)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, c))

    def forward(self, x, cos, sin, mask):
        x = x + self.attend(self.input_layernorm(x), cos, sin, mask)
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Llama(nn.Module):
    """Grouped-query attention, rotary embedding computed in the graph, SwiGLU, RMSNorm."""

    def __init__(self, vocabulary=67, width=32, heads=4, kv_heads=2, layers=3, hidden=88):
        super().__init__()
        self.head_dim = width // heads
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaBlock(width, heads, kv_heads, hidden)
                                    for _ in range(layers))
        self.norm, self.lm_head = RmsNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        pos = torch.arange(ids.size(1), device=ids.device)
        exponent = torch.arange(0, self.head_dim, 2).to(x.dtype) / self.head_dim
        angle = pos.to(x.dtype)[:, None] * (1.0 / 10000.0 ** exponent)[None, :]
        angle = torch.cat((angle, angle), dim=-1)
        future = pos[None, :] > pos[:, None]
        mask = torch.zeros(future.shape, dtype=x.dtype)
        mask = mask.masked_fill(future, torch.finfo(x.dtype).min)
        for layer in self.layers:
            x = layer(x, angle.cos(), angle.sin(), mask)
        return self.lm_head(self.norm(x))


def llama():
    return Llama(), (classes(2, 16, count=67),), classes(2, 16, count=67), "ce"


class SdpaGpt(nn.Module):
    """A decoder layer through F.scaled_dot_product_attention, decomposed by the exporter."""

    def __init__(self, vocabulary=50, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.emb, self.qkv = nn.Embedding(vocabulary, width), nn.Linear(width, 3 * width)
        self.norm, self.proj = nn.LayerNorm(width), nn.Linear(width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        x = self.emb(ids)
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2)
                   for y in self.qkv(self.norm(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return self.head(F.gelu(x, approximate="tanh"))


def sdpa_gpt():
    return SdpaGpt(), (classes(2, 12, count=50),), classes(2, 12, count=50), "ce"


class Seq2Seq(nn.Module):
    """torch.nn.Transformer: encoder, decoder, cross attention, additive causal mask."""

    def __init__(self, vocabulary=40, width=24):
        super().__init__()
        self.emb = nn.Embedding(vocabulary, width)
        self.core = nn.Transformer(width, 4, 2, 2, 48, dropout=0.0, batch_first=True)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, source, target):
        mask = torch.triu(torch.full((target.size(1), target.size(1)), float("-inf"),
                                     dtype=self.out.weight.dtype), diagonal=1)
        return self.out(self.core(self.emb(source), self.emb(target), tgt_mask=mask,
                                  tgt_is_causal=True))


def seq2seq():
    return (Seq2Seq(), (classes(2, 9, count=40), classes(2, 7, count=40)),
            classes(2, 7, count=40), "ce")


class AudioEncoder(nn.Module):
    """Whisper's encoder: two 1-D convolutions with GELU, then pre-LayerNorm layers."""

    def __init__(self, mels=8, width=24):
        super().__init__()
        self.conv1 = nn.Conv1d(mels, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        layer = nn.TransformerEncoderLayer(width, 4, 48, dropout=0.0, activation=F.gelu,
                                           batch_first=True, norm_first=True)
        self.layers = nn.ModuleList([layer])
        self.register_buffer("positions", torch.randn(12, width))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, mel):
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).permute(0, 2, 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x).mean(dim=1))


def audio_encoder():
    return AudioEncoder(), (torch.randn(3, 8, 24),), classes(3), "ce"


class MlpMixer(nn.Module):
    def __init__(self, tokens=16, width=24, layers=3):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, stride=8)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.token = nn.ModuleList(nn.Sequential(nn.Linear(tokens, 32), nn.GELU(),
                                                 nn.Linear(32, tokens)) for _ in range(layers))
        self.channel = nn.ModuleList(nn.Sequential(nn.Linear(width, 48), nn.GELU(),
                                                   nn.Linear(48, width)) for _ in range(layers))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for i, (token, channel) in enumerate(zip(self.token, self.channel)):
            x = x + token(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + channel(self.norms[2 * i + 1](x))
        return self.head(self.norms[-1](x).mean(dim=1))


def mlp_mixer():
    return MlpMixer(), (images(3, 32),), classes(3), "ce"


# Recurrent networks

class Recurrent(nn.Module):
    def __init__(self, cell, vocabulary=40, width=12, hidden=14, **options):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.rnn = cell(width, hidden, batch_first=True, **options)
        directions = 2 if options.get("bidirectional") else 1
        self.out = nn.Linear(hidden * directions, CLASSES)

    def forward(self, ids):
        y, _ = self.rnn(self.embedding(ids))
        return self.out(y[:, -1])


def recurrent(cell, **options):
    return Recurrent(cell, **options), (classes(3, 9, count=40),), classes(3), "ce"


ZOO = {f.__name__: f for f in (
    resnet50, densenet121, mobilenet_v3_small, efficientnet_b0, convnext_tiny, swin_t, vit, unet,
    bert, gpt2, llama, shufflenet_v2, squeezenet, vgg11_bn, diffusion_unet, deeplab_v3,
    autoencoder_1d, sdpa_gpt, seq2seq, audio_encoder, mlp_mixer)}
ZOO["lstm"] = partial(recurrent, nn.LSTM, num_layers=2, bidirectional=True)
ZOO["gru"] = partial(recurrent, nn.GRU, bidirectional=True)
ZOO["rnn"] = partial(recurrent, nn.RNN)
