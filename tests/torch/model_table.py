"""model_table.py -- tiny configurations of the networks of transformers, timm and torchvision.

MODELS[name]() returns (network, inputs, target, kind of loss); export_models.py exports them.
Every network answers with one tensor, takes its inputs by position and trains without dropout
unless its name says so.
"""
import timm
import timm.models as tm
import torch
import torchvision.models as tv
import transformers as hf
from torch import nn

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, CLASSES = 61, 32, 4, 2, 12, 5


def ids(*shape):
    return torch.randint(1, VOCABULARY, shape)


def padding(batch, length):
    """1 where a token is; all rows but the first have padding at the end."""
    lengths = length - torch.arange(batch) * 3
    return (torch.arange(length)[None, :] < lengths[:, None]).long()


class OneInput(nn.Module):
    def __init__(self, net, call):
        super().__init__()
        self.net, self.call = net, call

    def forward(self, a):
        return self.call(self.net, a)


class TwoInputs(OneInput):
    def forward(self, a, b):
        return self.call(self.net, a, b)


class ThreeInputs(OneInput):
    def forward(self, a, b, c):
        return self.call(self.net, a, b, c)


def logits(net, x):
    return net(x, use_cache=False).logits


def masked_logits(net, x, mask):
    return net(x, attention_mask=mask, use_cache=False).logits


def encoder_logits(net, x):
    return net(x).logits


def masked_encoder_logits(net, x, mask):
    return net(x, attention_mask=mask).logits


def pixel_logits(net, x):
    return net(pixel_values=x).logits


NO_DROPOUT = {k: 0.0 for k in (
    "attn_pdrop", "embd_pdrop", "resid_pdrop", "hidden_dropout", "attention_dropout", "dropout",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "dropout_rate",
    "activation_dropout", "seq_classif_dropout", "embedding_dropout", "mlp_dropout",
    "classifier_dropout_prob", "decoder_layerdrop", "encoder_layerdrop", "layerdrop",
    "summary_first_dropout", "resid_dropout", "embd_dropout", "residual_dropout",
    "summary_last_dropout")}


def configured(config, attention, **options):
    """A configuration with these options, but for None, and with those of NO_DROPOUT that it knows."""
    known = config().to_dict()
    options = {**{k: v for k, v in NO_DROPOUT.items() if k in known}, **options}
    made = config(**{k: v for k, v in options.items() if v is not None})
    made._attn_implementation = attention
    made._experts_implementation = "batched_mm"  # the only one that works with torch.export and doubles
    return made


def token_targets(x):
    return torch.randint(0, VOCABULARY, x.shape)


def decoder(config, net, mask=False, attention="sdpa", dtype=None, **options):
    sizes = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, num_attention_heads=HEADS,
                 num_hidden_layers=LAYERS, intermediate_size=48, max_position_embeddings=24,
                 use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model = net._from_config(configured(config, attention, **{**sizes, **options}))
    x = ids(3 if mask else 2, LENGTH)
    if dtype:
        model = model.to(dtype)
    if mask:
        return (TwoInputs(model, masked_logits), (x, padding(*x.shape)), token_targets(x), "ce")
    return OneInput(model, logits), (x,), token_targets(x), "ce"


def classifier(config, net, mask=False, attention="sdpa", **options):
    sizes = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, num_attention_heads=HEADS,
                 num_hidden_layers=LAYERS, intermediate_size=48, max_position_embeddings=24,
                 num_labels=CLASSES, pad_token_id=0)
    model = net._from_config(configured(config, attention, **{**sizes, **options}))
    x = ids(3 if mask else 2, LENGTH)
    target = torch.randint(0, CLASSES, (len(x),))
    if mask:
        return TwoInputs(model, masked_encoder_logits), (x, padding(*x.shape)), target, "ce"
    return OneInput(model, encoder_logits), (x,), target, "ce"


def seq2seq(config, net, mask=False, attention="sdpa", **options):
    model = net._from_config(configured(config, attention, vocab_size=VOCABULARY, use_cache=False,
                                        decoder_start_token_id=1, pad_token_id=0, **options))
    source, target = ids(2, LENGTH), ids(2, 7)
    if mask:
        return (ThreeInputs(model, lambda n, a, b, m: n(
            input_ids=a, decoder_input_ids=b, attention_mask=m, use_cache=False).logits),
            (source, target, padding(*source.shape)), token_targets(target), "ce")
    return (TwoInputs(model, lambda n, a, b: n(input_ids=a, decoder_input_ids=b,
                                               use_cache=False).logits),
            (source, target), token_targets(target), "ce")


def image_net(model, call=None, size=32, batch=2):
    target = torch.randint(0, CLASSES, (batch,))
    x = torch.randn(batch, 3, size, size)
    return OneInput(model, call or (lambda n, a: n(a))), (x,), target, "ce"


def vision(config, net, attention="sdpa", **options):
    sizes = dict(hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=LAYERS,
                 intermediate_size=48, image_size=32, patch_size=8, num_labels=CLASSES)
    return image_net(net._from_config(configured(config, attention, **{**sizes, **options})),
                     pixel_logits)


def whisper(attention="sdpa"):
    config = configured(hf.WhisperConfig, attention, vocab_size=VOCABULARY, d_model=WIDTH,
                        encoder_layers=2, decoder_layers=2, encoder_attention_heads=HEADS,
                        decoder_attention_heads=HEADS, encoder_ffn_dim=48, decoder_ffn_dim=48,
                        num_mel_bins=8, max_source_positions=10, max_target_positions=16,
                        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
                        use_cache=False)
    target = ids(2, 7)
    return (TwoInputs(hf.WhisperForConditionalGeneration._from_config(config),
                      lambda n, a, b: n(input_features=a, decoder_input_ids=b,
                                        use_cache=False).logits),
            (torch.randn(2, 8, 20), target), token_targets(target), "ce")


def wav2vec2(attention="sdpa"):
    config = configured(hf.Wav2Vec2Config, attention, hidden_size=WIDTH, num_hidden_layers=LAYERS,
                        num_attention_heads=HEADS, intermediate_size=48, conv_dim=[8, 8],
                        conv_stride=[5, 2], conv_kernel=[10, 3], num_conv_pos_embeddings=4,
                        num_conv_pos_embedding_groups=2, num_labels=CLASSES,
                        classifier_proj_size=16, feat_proj_dropout=0.0, final_dropout=0.0,
                        mask_time_prob=0.0, apply_spec_augment=False)
    target = torch.randint(0, CLASSES, (2,))
    return (OneInput(hf.Wav2Vec2ForSequenceClassification._from_config(config),
                     lambda n, a: n(a).logits), (torch.randn(2, 200),), target, "ce")


def vision_tower(config):
    """The configuration of a model of images and texts, of which only the images' part is used."""
    sizes = dict(hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=LAYERS,
                 intermediate_size=48, image_size=32, patch_size=8, vision_use_head=False)
    return config(vision_config=sizes, text_config=dict(hidden_size=WIDTH),
                  num_labels=CLASSES)


GPT2 = dict(n_embd=WIDTH, n_head=HEADS, n_layer=LAYERS, n_positions=24)
GQA = dict(num_key_value_heads=2)
WINDOW = dict(sliding_window=5)
GEMMA = dict(head_dim=8, num_key_value_heads=2, query_pre_attn_scalar=8)
T5 = dict(d_model=WIDTH, d_kv=8, d_ff=48, num_layers=LAYERS, num_decoder_layers=LAYERS,
          num_heads=HEADS)
BART = dict(d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS,
            encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=48,
            decoder_ffn_dim=48, max_position_embeddings=24)
OPT = dict(ffn_dim=48, word_embed_proj_dim=WIDTH)
MPT = dict(d_model=WIDTH, n_heads=HEADS, n_layers=LAYERS, max_seq_len=24)
FALCON = dict(alibi=False, num_kv_heads=2, new_decoder_architecture=True)
OSS = dict(num_key_value_heads=2, head_dim=8, num_local_experts=2, num_experts_per_tok=1,
           sliding_window=5)
MOE = dict(num_local_experts=2, num_experts_per_tok=1)
MLA = dict(q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8,
           first_k_dense_replace=2, num_key_value_heads=HEADS)
DISTIL = dict(dim=WIDTH, n_heads=HEADS, n_layers=LAYERS, hidden_dim=48)
MODERN = dict(local_attention=6, global_attn_every_n_layers=2, reference_compile=False,
              cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2)
NEO = dict(attention_types=[[["global", "local"], 1]], num_layers=2, num_heads=HEADS,
           window_size=5)
DEBERTA = dict(relative_attention=True, pos_att_type=["p2c", "c2p"], max_relative_positions=16)

MODELS = {
    # decoders
    "gpt2": lambda: decoder(hf.GPT2Config, hf.GPT2LMHeadModel, **GPT2),
    "gpt2_mask": lambda: decoder(hf.GPT2Config, hf.GPT2LMHeadModel, mask=True, **GPT2),
    "gpt2_eager": lambda: decoder(hf.GPT2Config, hf.GPT2LMHeadModel, attention="eager", **GPT2),
    "gpt2_eager_mask": lambda: decoder(hf.GPT2Config, hf.GPT2LMHeadModel, mask=True,
                                       attention="eager", **GPT2),
    "gpt2_fresh": lambda: decoder(hf.GPT2Config, hf.GPT2LMHeadModel, **GPT2),
    "gpt2_dropout": lambda: decoder(hf.GPT2Config, hf.GPT2LMHeadModel, attn_pdrop=0.1,
                                    resid_pdrop=0.1, embd_pdrop=0.1, **GPT2),
    "gpt2_eager_dropout": lambda: decoder(hf.GPT2Config, hf.GPT2LMHeadModel, attn_pdrop=0.1,
                                          attention="eager", **GPT2),
    "gpt2_f16": lambda: decoder(hf.GPT2Config, hf.GPT2LMHeadModel, dtype=torch.float16, **GPT2),
    "llama": lambda: decoder(hf.LlamaConfig, hf.LlamaForCausalLM, **GQA),
    "llama_mask": lambda: decoder(hf.LlamaConfig, hf.LlamaForCausalLM, mask=True, **GQA),
    "llama_eager": lambda: decoder(hf.LlamaConfig, hf.LlamaForCausalLM, attention="eager", **GQA),
    "llama_eager_mask": lambda: decoder(hf.LlamaConfig, hf.LlamaForCausalLM, mask=True,
                                        attention="eager", **GQA),
    "llama_fresh": lambda: decoder(hf.LlamaConfig, hf.LlamaForCausalLM, **GQA),
    "llama_bf16": lambda: decoder(hf.LlamaConfig, hf.LlamaForCausalLM, dtype=torch.bfloat16, **GQA),
    "llama_eager_f16": lambda: decoder(hf.LlamaConfig, hf.LlamaForCausalLM, attention="eager",
                                       dtype=torch.float16, **GQA),
    "qwen3": lambda: decoder(hf.Qwen3Config, hf.Qwen3ForCausalLM, head_dim=8, **GQA),
    "qwen2": lambda: decoder(hf.Qwen2Config, hf.Qwen2ForCausalLM, **GQA),
    "qwen2_window": lambda: decoder(hf.Qwen2Config, hf.Qwen2ForCausalLM, use_sliding_window=True,
                                    max_window_layers=1, **GQA, **WINDOW),
    "mistral": lambda: decoder(hf.MistralConfig, hf.MistralForCausalLM, head_dim=8, **GQA,
                               **WINDOW),
    "mistral_mask": lambda: decoder(hf.MistralConfig, hf.MistralForCausalLM, mask=True, head_dim=8,
                                    **GQA, **WINDOW),
    "mistral_eager": lambda: decoder(hf.MistralConfig, hf.MistralForCausalLM, attention="eager",
                                     head_dim=8, **GQA, **WINDOW),
    "gemma2": lambda: decoder(hf.Gemma2Config, hf.Gemma2ForCausalLM, attention="eager",
                              attn_logit_softcapping=5.0, final_logit_softcapping=3.0, **GEMMA,
                              **WINDOW),
    "gemma2_mask": lambda: decoder(hf.Gemma2Config, hf.Gemma2ForCausalLM, attention="eager",
                                   mask=True, attn_logit_softcapping=5.0, **GEMMA, **WINDOW),
    "gemma3": lambda: decoder(hf.Gemma3TextConfig, hf.Gemma3ForCausalLM, **GEMMA, **WINDOW,
                              layer_types=["sliding_attention", "full_attention"]),
    "phi": lambda: decoder(hf.PhiConfig, hf.PhiForCausalLM),
    "phi3": lambda: decoder(hf.Phi3Config, hf.Phi3ForCausalLM, **GQA),
    "gpt_neox": lambda: decoder(hf.GPTNeoXConfig, hf.GPTNeoXForCausalLM),
    "gpt_neo": lambda: decoder(hf.GPTNeoConfig, hf.GPTNeoForCausalLM, attention="eager", **NEO),
    "gptj": lambda: decoder(hf.GPTJConfig, hf.GPTJForCausalLM, attention="eager", rotary_dim=4,
                            **GPT2),
    "opt": lambda: decoder(hf.OPTConfig, hf.OPTForCausalLM, **OPT),
    "opt_eager_mask": lambda: decoder(hf.OPTConfig, hf.OPTForCausalLM, mask=True,
                                      attention="eager", **OPT),
    "bloom": lambda: decoder(hf.BloomConfig, hf.BloomForCausalLM, attention="eager",
                             n_head=HEADS, n_layer=LAYERS),
    "bloom_mask": lambda: decoder(hf.BloomConfig, hf.BloomForCausalLM, mask=True,
                                  attention="eager", n_head=HEADS, n_layer=LAYERS),
    "mpt": lambda: decoder(hf.MptConfig, hf.MptForCausalLM, attention="eager", **MPT),
    "falcon": lambda: decoder(hf.FalconConfig, hf.FalconForCausalLM, **FALCON),
    "falcon_alibi": lambda: decoder(hf.FalconConfig, hf.FalconForCausalLM, alibi=True,
                                    multi_query=False, new_decoder_architecture=False),
    "gpt_oss": lambda: decoder(hf.GptOssConfig, hf.GptOssForCausalLM, attention="eager", **OSS),
    "stablelm": lambda: decoder(hf.StableLmConfig, hf.StableLmForCausalLM, **GQA),
    "cohere": lambda: decoder(hf.CohereConfig, hf.CohereForCausalLM, **GQA),
    "olmo2": lambda: decoder(hf.Olmo2Config, hf.Olmo2ForCausalLM, **GQA),
    "granite": lambda: decoder(hf.GraniteConfig, hf.GraniteForCausalLM, attention_multiplier=0.3,
                               **GQA),
    "starcoder2": lambda: decoder(hf.Starcoder2Config, hf.Starcoder2ForCausalLM,
                                  **GQA, **WINDOW),
    # encoders
    "bert": lambda: classifier(hf.BertConfig, hf.BertForSequenceClassification),
    "bert_mask": lambda: classifier(hf.BertConfig, hf.BertForSequenceClassification, mask=True),
    "bert_eager_mask": lambda: classifier(hf.BertConfig, hf.BertForSequenceClassification,
                                          mask=True, attention="eager"),
    "bert_dropout": lambda: classifier(hf.BertConfig, hf.BertForSequenceClassification,
                                       attention_probs_dropout_prob=0.1, hidden_dropout_prob=0.1),
    "roberta_mask": lambda: classifier(hf.RobertaConfig, hf.RobertaForSequenceClassification,
                                       mask=True),
    "distilbert": lambda: classifier(hf.DistilBertConfig,
                                     hf.DistilBertForSequenceClassification, **DISTIL),
    "distilbert_mask": lambda: classifier(hf.DistilBertConfig,
                                          hf.DistilBertForSequenceClassification, mask=True,
                                          **DISTIL),
    "albert_mask": lambda: classifier(hf.AlbertConfig, hf.AlbertForSequenceClassification,
                                      mask=True, embedding_size=16),
    "electra": lambda: classifier(hf.ElectraConfig, hf.ElectraForSequenceClassification,
                                  embedding_size=16),
    "deberta": lambda: classifier(hf.DebertaV2Config, hf.DebertaV2ForSequenceClassification,
                                  attention="eager", **DEBERTA),
    "modernbert_mask": lambda: classifier(hf.ModernBertConfig,
                                          hf.ModernBertForSequenceClassification, mask=True,
                                          **MODERN),
    # encoders with decoders
    "t5": lambda: seq2seq(hf.T5Config, hf.T5ForConditionalGeneration, attention="eager", **T5),
    "t5_mask": lambda: seq2seq(hf.T5Config, hf.T5ForConditionalGeneration, mask=True,
                               attention="eager", **T5),
    "bart": lambda: seq2seq(hf.BartConfig, hf.BartForConditionalGeneration, **BART),
    "bart_mask": lambda: seq2seq(hf.BartConfig, hf.BartForConditionalGeneration, mask=True, **BART),
    "bart_eager": lambda: seq2seq(hf.BartConfig, hf.BartForConditionalGeneration,
                                  attention="eager", **BART),
    "whisper": whisper,
    "whisper_eager": lambda: whisper("eager"),
    # images
    "hf_vit": lambda: vision(hf.ViTConfig, hf.ViTForImageClassification),
    "hf_vit_eager": lambda: vision(hf.ViTConfig, hf.ViTForImageClassification, attention="eager"),
    "hf_deit": lambda: vision(hf.DeiTConfig, hf.DeiTForImageClassification),
    "timm_vit": lambda: image_net(tm.VisionTransformer(
        32, 8, num_classes=CLASSES, embed_dim=WIDTH, depth=2, num_heads=4)),
    "timm_deit": lambda: image_net(tm.VisionTransformerDistilled(
        img_size=32, patch_size=8, num_classes=CLASSES, embed_dim=WIDTH, depth=2, num_heads=4)),
    "timm_eva": lambda: image_net(tm.Eva(
        32, 8, num_classes=CLASSES, embed_dim=WIDTH, depth=2, num_heads=4, use_rot_pos_emb=True,
        qkv_fused=True)),
    "timm_beit": lambda: image_net(tm.Beit(
        32, 8, num_classes=CLASSES, embed_dim=WIDTH, depth=2, num_heads=4,
        use_rel_pos_bias=True)),
    "timm_swin": lambda: image_net(tm.SwinTransformer(
        32, 2, num_classes=CLASSES, embed_dim=16, depths=(2, 2), num_heads=(2, 4), window_size=4,
        drop_path_rate=0.0)),
    "timm_swinv2": lambda: image_net(tm.SwinTransformerV2(
        32, 2, num_classes=CLASSES, embed_dim=16, depths=(2, 2), num_heads=(2, 4), window_size=4,
        drop_path_rate=0.0)),
    "timm_mixer": lambda: image_net(tm.MlpMixer(CLASSES, 32, patch_size=8, num_blocks=2,
                                                embed_dim=WIDTH)),
    "timm_convnext": lambda: image_net(tm.ConvNeXt(num_classes=CLASSES, depths=(1, 1, 1, 1),
                                                   dims=(8, 16, 24, 32))),
    "timm_efficientnet": lambda: image_net(timm.create_model(
        "test_efficientnet", num_classes=CLASSES), batch=4),
    "tv_resnet": lambda: image_net(tv.ResNet(tv.resnet.BasicBlock, [1, 1, 1, 1],
                                             num_classes=CLASSES, width_per_group=64), batch=4),
    "tv_mobilenet": lambda: image_net(tv.MobileNetV2(CLASSES, 0.25, dropout=0.0), size=64,
                                      batch=4),
    "tv_vit": lambda: image_net(tv.VisionTransformer(32, 8, 2, 4, WIDTH, 48,
                                                     num_classes=CLASSES)),
    "tv_swin": lambda: image_net(tv.SwinTransformer(
        [2, 2], 16, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.0, num_classes=CLASSES)),
    # more decoders
    "cohere2": lambda: decoder(hf.Cohere2Config, hf.Cohere2ForCausalLM, **GQA, **WINDOW),
    "nemotron": lambda: decoder(hf.NemotronConfig, hf.NemotronForCausalLM, **GQA),
    "smollm3": lambda: decoder(hf.SmolLM3Config, hf.SmolLM3ForCausalLM, no_rope_layers=[1, 0],
                               **GQA),
    "mixtral": lambda: decoder(hf.MixtralConfig, hf.MixtralForCausalLM, **GQA, **MOE),
    "qwen3_moe": lambda: decoder(hf.Qwen3MoeConfig, hf.Qwen3MoeForCausalLM, head_dim=8,
                                 num_experts=2, moe_intermediate_size=24, num_experts_per_tok=1,
                                 **GQA),
    "olmo3": lambda: decoder(hf.Olmo3Config, hf.Olmo3ForCausalLM, **GQA, **WINDOW),
    "glm": lambda: decoder(hf.GlmConfig, hf.GlmForCausalLM, head_dim=8, **GQA),
    "glm4": lambda: decoder(hf.Glm4Config, hf.Glm4ForCausalLM, head_dim=8, **GQA),
    "codegen": lambda: decoder(hf.CodeGenConfig, hf.CodeGenForCausalLM, attention="eager",
                               rotary_dim=4, n_ctx=24, **GPT2),
    "exaone4": lambda: decoder(hf.Exaone4Config, hf.Exaone4ForCausalLM, sliding_window_pattern=2,
                               **GQA, **WINDOW),
    # its own epsilon, 1e-8, is lost in the exporter's optimizer
    "helium": lambda: decoder(hf.HeliumConfig, hf.HeliumForCausalLM, head_dim=8,
                              rms_norm_eps=1e-6, **GQA),
    "ernie": lambda: decoder(hf.Ernie4_5Config, hf.Ernie4_5ForCausalLM, head_dim=8, **GQA),
    "persimmon": lambda: decoder(hf.PersimmonConfig, hf.PersimmonForCausalLM),
    "biogpt_mask": lambda: decoder(hf.BioGptConfig, hf.BioGptForCausalLM, mask=True),
    "xglm": lambda: decoder(hf.XGLMConfig, hf.XGLMForCausalLM, attention="eager", d_model=WIDTH,
                            attention_heads=HEADS, num_layers=LAYERS, ffn_dim=48),
    "apertus": lambda: decoder(hf.ApertusConfig, hf.ApertusForCausalLM, **GQA),
    "deepseek_v2": lambda: decoder(hf.DeepseekV2Config, hf.DeepseekV2ForCausalLM, **MLA),
    "deepseek_v3": lambda: decoder(hf.DeepseekV3Config, hf.DeepseekV3ForCausalLM, **MLA),
    "gemma3n": lambda: decoder(hf.Gemma3nTextConfig, hf.Gemma3nForCausalLM, head_dim=8,
                               num_kv_shared_layers=0, hidden_size_per_layer_input=8,
                               vocab_size_per_layer_input=VOCABULARY, laurel_rank=4,
                               activation_sparsity_pattern=[0.0, 0.0],
                               layer_types=["sliding_attention", "full_attention"],
                               **GQA, **WINDOW),
    "gemma4": lambda: decoder(hf.Gemma4TextConfig, hf.Gemma4ForCausalLM, head_dim=8,
                              global_head_dim=8, hidden_size_per_layer_input=8,
                              vocab_size_per_layer_input=VOCABULARY, num_kv_shared_layers=0,
                              layer_types=["sliding_attention", "full_attention"],
                              **GQA, **WINDOW),
    "lfm2": lambda: decoder(hf.Lfm2Config, hf.Lfm2ForCausalLM,
                            layer_types=["conv", "full_attention"], **GQA),
    "mamba": lambda: decoder(hf.MambaConfig, hf.MambaForCausalLM, attention="eager", state_size=4,
                             time_step_rank=4),
    "mamba2": lambda: decoder(hf.Mamba2Config, hf.Mamba2ForCausalLM, attention="eager", state_size=4,
                              num_heads=8, head_dim=8, n_groups=1, chunk_size=6),
    "seed_oss": lambda: decoder(hf.SeedOssConfig, hf.SeedOssForCausalLM, head_dim=8, **GQA),
    "doge": lambda: decoder(hf.DogeConfig, hf.DogeForCausalLM, attention="eager", **GQA),
    "modernbert_decoder": lambda: decoder(hf.ModernBertDecoderConfig,
                                          hf.ModernBertDecoderForCausalLM, **MODERN),
    # more encoders
    "xlm_roberta_mask": lambda: classifier(hf.XLMRobertaConfig,
                                           hf.XLMRobertaForSequenceClassification, mask=True),
    "deberta_mask": lambda: classifier(hf.DebertaV2Config, hf.DebertaV2ForSequenceClassification,
                                       mask=True, attention="eager", **DEBERTA),
    "roformer_mask": lambda: classifier(hf.RoFormerConfig, hf.RoFormerForSequenceClassification,
                                        mask=True, embedding_size=WIDTH,
                                        attention="eager"),
    "esm_mask": lambda: classifier(hf.EsmConfig, hf.EsmForSequenceClassification, mask=True,
                                   mask_token_id=3, token_dropout=False,
                                   position_embedding_type="rotary"),
    "mobilebert_mask": lambda: classifier(
        hf.MobileBertConfig, hf.MobileBertForSequenceClassification, mask=True,
        embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16,
        num_feedforward_networks=2),
    "squeezebert_mask": lambda: classifier(hf.SqueezeBertConfig,
                                           hf.SqueezeBertForSequenceClassification, mask=True,
                                           attention="eager", embedding_size=WIDTH),
    "xlnet_mask": lambda: classifier(hf.XLNetConfig, hf.XLNetForSequenceClassification, mask=True,
                                     attention="eager", d_model=WIDTH, n_head=HEADS,
                                     n_layer=LAYERS, d_inner=48, max_position_embeddings=None),
    # more encoders with decoders
    "mbart_mask": lambda: seq2seq(hf.MBartConfig, hf.MBartForConditionalGeneration, mask=True,
                                  **BART),
    "pegasus_mask": lambda: seq2seq(hf.PegasusConfig, hf.PegasusForConditionalGeneration,
                                    mask=True, **BART),
    "umt5_mask": lambda: seq2seq(hf.UMT5Config, hf.UMT5ForConditionalGeneration, mask=True,
                                 attention="eager", **T5),
    "wav2vec2": lambda: wav2vec2(),
    # more images
    "clip": lambda: image_net(hf.CLIPForImageClassification._from_config(
        vision_tower(hf.CLIPConfig)), pixel_logits),
    "siglip": lambda: image_net(hf.SiglipForImageClassification._from_config(
        vision_tower(hf.SiglipConfig)), pixel_logits),
    "dinov2": lambda: vision(hf.Dinov2Config, hf.Dinov2ForImageClassification),
    "hf_swin": lambda: vision(hf.SwinConfig, hf.SwinForImageClassification, patch_size=2,
                              num_attention_heads=None, hidden_size=None, num_hidden_layers=None, intermediate_size=None,
                              embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4,
                              drop_path_rate=0.0),
    "hf_convnextv2": lambda: vision(hf.ConvNextV2Config, hf.ConvNextV2ForImageClassification,
                                    attention="eager", num_attention_heads=None,
                                    num_hidden_layers=None, hidden_size=None, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
                                    patch_size=4),
    "hf_beit": lambda: vision(hf.BeitConfig, hf.BeitForImageClassification, drop_path_rate=0.0,
                              use_relative_position_bias=True),
    "segformer": lambda: vision(hf.SegformerConfig, hf.SegformerForImageClassification,
                                hidden_sizes=[8, 16], depths=[1, 1], num_attention_heads=[1, 2],
                                num_encoder_blocks=2, sr_ratios=[2, 1], patch_sizes=[7, 3],
                                strides=[4, 2], mlp_ratios=[2, 2], decoder_hidden_size=16,
                                drop_path_rate=0.0),
    "hiera": lambda: vision(hf.HieraConfig, hf.HieraForImageClassification, attention="eager", embed_dim=8,
                            image_size=[32, 32], patch_stride=[2, 2], patch_size=[3, 3],
                            patch_padding=[1, 1], depths=[1, 1], num_heads=[1, 2],
                            query_stride=[2, 2], masked_unit_size=[4, 4], num_query_pool=1,
                            masked_unit_attention=[True, False], drop_path_rate=0.0),
    "tv_maxvit": lambda: image_net(tv.MaxVit(
        (32, 32), 8, 4, [8, 16], [1, 1], 8, stochastic_depth_prob=0.0, num_classes=CLASSES),
        batch=4),
    "tv_convnext": lambda: image_net(tv.ConvNeXt(
        [tv.convnext.CNBlockConfig(8, 16, 1), tv.convnext.CNBlockConfig(16, None, 1)],
        num_classes=CLASSES)),
    "tv_regnet": lambda: image_net(tv.RegNet(
        tv.regnet.BlockParams([2, 2], [16, 32], [8, 8], [1.0, 1.0], [2, 2], 0.25),
        num_classes=CLASSES), batch=4),
    "timm_maxvit": lambda: image_net(timm.create_model(
        "maxvit_nano_rw_256", img_size=64, num_classes=CLASSES, embed_dim=(32, 32), depths=(1, 1),
        stem_width=8), size=64, batch=4),
    "timm_eva02": lambda: image_net(tm.Eva(
        32, 8, num_classes=CLASSES, embed_dim=WIDTH, depth=2, num_heads=4, use_rot_pos_emb=True,
        qkv_fused=False, swiglu_mlp=True, scale_mlp=True, mlp_ratio=2)),
    "timm_cait": lambda: image_net(tm.Cait(
        32, 8, num_classes=CLASSES, embed_dim=WIDTH, depth=1, num_heads=4, depth_token_only=1)),
    "timm_xcit": lambda: image_net(tm.Xcit(
        32, 8, num_classes=CLASSES, embed_dim=WIDTH, depth=1, num_heads=4, cls_attn_layers=1,
        eta=1.0)),
    "timm_convnextv2": lambda: image_net(tm.ConvNeXt(
        num_classes=CLASSES, depths=(1, 1, 1, 1), dims=(8, 16, 24, 32), use_grn=True,
        ls_init_value=None)),
    "timm_mvitv2": lambda: image_net(tm.MultiScaleVit(tm.mvitv2.MultiScaleVitCfg(
        depths=(1, 1), embed_dim=16, num_heads=1), img_size=32, num_classes=CLASSES)),
    "timm_levit": lambda: image_net(tm.Levit(
        32, num_classes=CLASSES, embed_dim=(16, 32), key_dim=8, depth=(1, 1), num_heads=(2, 4)),
        size=32, batch=4),
    "timm_davit": lambda: image_net(tm.DaVit(
        depths=(1, 1), embed_dims=(16, 32), num_heads=(2, 4), window_size=4,
        num_classes=CLASSES)),
}
