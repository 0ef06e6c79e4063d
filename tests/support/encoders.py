"""Small networks of transformers with random weights, written to disk in Hugging Face's format."""

import json

import torch

SIDE = 32
# Options of a short training.
SHORT = ("--size", SIDE, "--option", "capsules=8", "--batch-size", 16)


def small_config(kind):
    """A config of a few thousand parameters for images of 32 pixels."""
    import transformers

    wide = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    stages = {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]}
    return {
        "resnet": lambda: transformers.ResNetConfig(embedding_size=8, layer_type="basic", **stages),
        "convnext": lambda: transformers.ConvNextConfig(image_size=SIDE, **stages),
        "vit": lambda: transformers.ViTConfig(image_size=SIDE, patch_size=8, **wide),
        "dinov2": lambda: transformers.Dinov2WithRegistersConfig(image_size=SIDE, patch_size=8, **wide),
        "swin": lambda: transformers.SwinConfig(
            embed_dim=16, depths=[1, 1], num_heads=[1, 2], image_size=SIDE, patch_size=4, window_size=4
        ),
        "clip": lambda: transformers.CLIPConfig(
            vision_config={**wide, "image_size": SIDE, "patch_size": 8},
            text_config={**wide, "vocab_size": 50, "max_position_embeddings": 16},
        ),
        "bert": lambda: transformers.BertConfig(vocab_size=50, max_position_embeddings=16, **wide),
    }[kind]()


def save_network(folder, kind="resnet", *, head=True):
    """Write a network, with its classifier where it has one, and return the folder."""
    import transformers

    from torchcaps.runs.huggingface import quiet

    config = small_config(kind)
    generator = torch.get_rng_state()
    torch.manual_seed(1)
    with_head = head and type(config) in transformers.AutoModelForImageClassification._model_mapping
    maker = transformers.AutoModelForImageClassification if with_head and kind != "clip" else transformers.AutoModel
    network = maker.from_config(config)
    for part in network.modules():  # as after training: statistics of batch norm that are not those of a new network
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.uniform_(-0.1, 0.1)
    with quiet():
        network.save_pretrained(folder)
    torch.set_rng_state(generator)
    return folder


def write_preprocessor(folder, **values):
    (folder / "preprocessor_config.json").write_text(json.dumps(values))
