"""Small, randomly initialised models of other packages, saved as their public ones are."""

import json
from pathlib import Path

import torch

WORDS = ["a", "dog", "cat", "cow", "horse", "on", "grass", "two", "red"]
_SPECIAL = ["[PAD]", "[BOS]", "[EOS]"]


def save_captioner(folder: Path) -> Path:
    """A vision-encoder-decoder with a vocabulary of WORDS; what it says depends on the image."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        GPT2Config,
        PreTrainedTokenizerFast,
        VisionEncoderDecoderConfig,
        VisionEncoderDecoderModel,
        ViTConfig,
        ViTImageProcessor,
    )

    vocabulary = {word: index for index, word in enumerate(_SPECIAL + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = dict(zip(("pad_token", "bos_token", "eos_token"), _SPECIAL, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder)
    torch.manual_seed(0)
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    encoder = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=16,
        patch_size=8,
        initializer_range=1.0,
    )
    decoder = GPT2Config(
        vocab_size=len(vocabulary),
        n_positions=16,
        n_embd=16,
        n_layer=1,
        n_head=2,
        initializer_range=1.0,
        add_cross_attention=True,
        is_decoder=True,
        **tokens,
    )
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    model = VisionEncoderDecoderModel(config)
    model.generation_config.update(decoder_start_token_id=1, **tokens)
    model.save_pretrained(folder)
    return folder


def save_pipeline(folder: Path) -> Path:
    """A Stable Diffusion of 32 pixels. Needs the package diffusers."""
    from diffusers import (
        AutoencoderKL,
        DDIMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    letters = [*"abcdefghijklmnopqrstuvwxyz,."]
    ends = ["<|startoftext|>", "<|endoftext|>"]
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), *ends]
    files = folder / "vocabulary.json", folder / "merges.txt"
    folder.mkdir(parents=True)
    files[0].write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    files[1].write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer(*map(str, files), model_max_length=77)
    torch.manual_seed(0)
    text = CLIPTextConfig(
        vocab_size=len(tokens),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        projection_dim=16,
        bos_token_id=len(tokens) - 2,
        eos_token_id=len(tokens) - 1,
    )
    size = {"block_out_channels": (8, 16), "norm_num_groups": 4}
    network = UNet2DConditionModel(
        sample_size=16,
        layers_per_block=1,
        cross_attention_dim=16,
        attention_head_dim=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        **size,
    )
    decoder = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        **size,
    )
    pipeline = StableDiffusionPipeline(
        vae=decoder,
        text_encoder=CLIPTextModel(text),
        tokenizer=tokenizer,
        unet=network,
        scheduler=DDIMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.save_pretrained(folder)
    return folder
