"""Small networks of transformers for texts, with random weights and a tokenizer of their own, written to disk."""

import json

import torch

WORDS = ("a", "an", "awful", "bad", "dull", "film", "fine", "good", "great", "is", "it", "not", "the", "very", "was")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MOST = 24  # tokens that the networks have positions for
# Options of a short training.
TINY = ("--option", "filters=16", "--option", "dropout=0.1", "--lr", "1e-2", "--batch-size", 16)


def save_text_network(folder, kind="bert", *, tokenizer=True):
    """Write a network of some thousand parameters with its tokenizer, and return the folder.

    kind: "bert" (padding is number 0), "roberta" (padding is number 1, and positions begin behind it), or "distilbert".
    """
    import transformers

    from torchcaps.runs.huggingface import quiet

    found = _wordpieces() if kind != "roberta" else _byte_pairs()
    wide = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    sizes = {"vocab_size": found.get_vocab_size() + 3, "max_position_embeddings": MOST}
    config = {
        "bert": lambda: transformers.BertConfig(**sizes, **wide),
        "roberta": lambda: transformers.RobertaConfig(**{**sizes, "max_position_embeddings": MOST + 2}, **wide),
        "distilbert": lambda: transformers.DistilBertConfig(**sizes, dim=32, n_layers=2, n_heads=2, hidden_dim=64),
    }[kind]()
    generator = torch.get_rng_state()
    torch.manual_seed(1)
    network = transformers.AutoModelForMaskedLM.from_config(config)
    with torch.no_grad():  # as after training: differences between words are not small
        network.get_input_embeddings().weight.normal_()
    with quiet():
        network.save_pretrained(folder)
    torch.set_rng_state(generator)
    if tokenizer:
        found.save(str(folder / "tokenizer.json"))
    return folder


def _wordpieces():
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    pieces = [*special, *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *".,!?'"]
    numbers = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(special)
    around = [(name, numbers[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=around)
    tokenizer.enable_truncation(8)  # as sentence encoders store it; the length that a user asks for counts
    tokenizer.enable_padding(length=8)
    return tokenizer


def _byte_pairs():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    numbers = {piece: number for number, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *letters, "Ġg", "Ġb"])}
    tokenizer = Tokenizer(models.BPE(numbers, [("Ġ", "g"), ("Ġ", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", numbers["</s>"]), ("<s>", numbers["<s>"]))
    return tokenizer


def save_reviews(path, count=40):
    """A table of short texts: good films and bad ones."""
    rows = ["text,label"]
    for number in range(count):
        good = number % 2
        kind = (("bad", "dull", "awful"), ("good", "fine", "great"))[good][number // 2 % 3]
        rows.append(f"the {'very ' * (number % 4)}{kind} film,{'good' if good else 'bad'}")
    path.write_text("\n".join(rows) + "\n")
    return path


def change(folder, **values):
    """Change options in the config.json of a folder."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
