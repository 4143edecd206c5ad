"""The weights of a BERT with its MLM head, which every family but RoFormer-V2 has, under its own key prefix."""

from .family import Config
from .weights import Weight, dense, layer_norm, weight


def bert_weights(config: Config, width: int, model: str = "roformer") -> list[Weight]:
    """Return every untied weight of a class whose keys begin with `model`; embeddings of another width are mapped."""
    hidden, inner = config.hidden_size, config.intermediate_size
    found = [
        weight(f"{model}.embeddings.word_embeddings.weight", config.vocab_size, width),
        weight(f"{model}.embeddings.token_type_embeddings.weight", config.type_vocab_size, width),
        *layer_norm(f"{model}.embeddings.LayerNorm", width),
    ]
    if width != hidden:
        found += dense(f"{model}.embeddings_project", width, hidden)
    for i in range(config.num_hidden_layers):
        layer = f"{model}.encoder.layer.{i}"
        for part in ("query", "key", "value"):
            found += dense(f"{layer}.attention.self.{part}", hidden, hidden)
        found += dense(f"{layer}.attention.output.dense", hidden, hidden)
        found += layer_norm(f"{layer}.attention.output.LayerNorm", hidden)
        found += dense(f"{layer}.intermediate.dense", hidden, inner)
        found += dense(f"{layer}.output.dense", inner, hidden)
        found += layer_norm(f"{layer}.output.LayerNorm", hidden)
    found += dense("cls.predictions.transform.dense", hidden, width)
    found += layer_norm("cls.predictions.transform.LayerNorm", width)
    return [*found, weight("cls.predictions.bias", config.vocab_size)]
