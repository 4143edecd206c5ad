"""RoFormer, the first version, word- or character-level, with its MLM head."""

from ..configuration import RoFormerConfig
from .family import Family, Weight, dense, layer_norm
from .settings import Settings
from .vocabulary import Vocabulary

# Plain transformers keeps a table of positions and stops at its end; computed positions have none.
PLAIN_TRANSFORMERS_POSITIONS = 1536


def config(
    settings: Settings, vocabulary: Vocabulary, architecture: str = "RoFormerForMaskedLM", **fields
) -> RoFormerConfig:
    """The new configuration; the vocabulary says which id is padding, and must have all that MLM needs."""
    special = {entry: vocabulary.id_of(entry) for entry in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")}
    values = dict(settings.values)
    values["max_position_embeddings"] = max(values["max_position_embeddings"], PLAIN_TRANSFORMERS_POSITIONS)
    return RoFormerConfig(
        **values, pad_token_id=special["[PAD]"], architectures=[architecture], layer_norm_eps=1e-12, **fields
    )


def embeddings(config: RoFormerConfig) -> list[Weight]:
    """Word and segment embeddings, which every version has."""
    words = (config.vocab_size, config.embedding_size)
    segments = (config.type_vocab_size, config.embedding_size)
    return [
        Weight("roformer.embeddings.word_embeddings.weight", "bert/embeddings/word_embeddings", words),
        Weight("roformer.embeddings.token_type_embeddings.weight", "bert/embeddings/token_type_embeddings", segments),
    ]


def weights(config: RoFormerConfig) -> list[Weight]:
    """Every weight of RoFormerForMaskedLM (and of RoFormerForCausalLM) that is not tied to another."""
    embedding, hidden, inner = config.embedding_size, config.hidden_size, config.intermediate_size
    found = [
        *embeddings(config),
        *layer_norm("roformer.embeddings.LayerNorm", "bert/embeddings/LayerNorm", embedding),
    ]
    if embedding != hidden:
        found += dense("roformer.embeddings_project", "bert/encoder/embedding_hidden_mapping_in", embedding, hidden)
    for i in range(config.num_hidden_layers):
        key, variable = f"roformer.encoder.layer.{i}", f"bert/encoder/layer_{i}"
        for part in ("query", "key", "value"):
            found += dense(f"{key}.attention.self.{part}", f"{variable}/attention/self/{part}", hidden, hidden)
        found += dense(f"{key}.attention.output.dense", f"{variable}/attention/output/dense", hidden, hidden)
        found += layer_norm(f"{key}.attention.output.LayerNorm", f"{variable}/attention/output/LayerNorm", hidden)
        found += dense(f"{key}.intermediate.dense", f"{variable}/intermediate/dense", hidden, inner)
        found += dense(f"{key}.output.dense", f"{variable}/output/dense", inner, hidden)
        found += layer_norm(f"{key}.output.LayerNorm", f"{variable}/output/LayerNorm", hidden)
    head = "cls.predictions.transform", "cls/predictions/transform"
    found += dense(f"{head[0]}.dense", f"{head[1]}/dense", hidden, embedding)
    found += layer_norm(f"{head[0]}.LayerNorm", f"{head[1]}/LayerNorm", embedding)
    return [*found, Weight("cls.predictions.bias", "cls/predictions/output_bias", (config.vocab_size,))]


FAMILY = Family(
    name="roformer",
    title="RoFormer",
    config=config,
    weights=weights,
    # Only reached where the family was named: recognised by itself, such a checkpoint is RoFormer-Sim.
    dropped={"bert/pooler/dense/": "pooler"},
)
