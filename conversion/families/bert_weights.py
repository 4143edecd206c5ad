"""The weights of a BERT with its MLM head, which every family but RoFormer-V2 has, under its own key prefix."""

from .family import Config, Weight, dense, layer_norm


def bert_weights(config: Config, width: int, model: str = "roformer") -> list[Weight]:
    """Return every untied weight of a class whose keys begin with `model`; embeddings of another width are mapped."""
    hidden, inner = config.hidden_size, config.intermediate_size
    tables = {"word_embeddings": config.vocab_size, "token_type_embeddings": config.type_vocab_size}
    found = [
        Weight(f"{model}.embeddings.{name}.weight", f"bert/embeddings/{name}", (rows, width))
        for name, rows in tables.items()
    ]
    found += layer_norm(f"{model}.embeddings.LayerNorm", "bert/embeddings/LayerNorm", width)
    if width != hidden:
        found += dense(f"{model}.embeddings_project", "bert/encoder/embedding_hidden_mapping_in", width, hidden)
    for i in range(config.num_hidden_layers):
        key, variable = f"{model}.encoder.layer.{i}", f"bert/encoder/layer_{i}"
        for part in ("query", "key", "value"):
            found += dense(f"{key}.attention.self.{part}", f"{variable}/attention/self/{part}", hidden, hidden)
        found += dense(f"{key}.attention.output.dense", f"{variable}/attention/output/dense", hidden, hidden)
        found += layer_norm(f"{key}.attention.output.LayerNorm", f"{variable}/attention/output/LayerNorm", hidden)
        found += dense(f"{key}.intermediate.dense", f"{variable}/intermediate/dense", hidden, inner)
        found += dense(f"{key}.output.dense", f"{variable}/output/dense", inner, hidden)
        found += layer_norm(f"{key}.output.LayerNorm", f"{variable}/output/LayerNorm", hidden)
    found += dense("cls.predictions.transform.dense", "cls/predictions/transform/dense", hidden, width)
    found += layer_norm("cls.predictions.transform.LayerNorm", "cls/predictions/transform/LayerNorm", width)
    return [*found, Weight("cls.predictions.bias", "cls/predictions/output_bias", (config.vocab_size,))]
