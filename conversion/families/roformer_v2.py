"""RoFormer-V2: without biases and norm parameters; its MLM head is the product with the word embeddings."""

from . import roformer_v1
from .family import Config, Family
from .weights import Weight


def weights(config: Config) -> list[Weight]:
    """Return every untied weight of RoFormerForMaskedLM: the embeddings and kernels of the first version's encoder.

    Only the projection of the embeddings has a bias.
    """
    encoder = [weight for weight in roformer_v1.weights(config) if weight.variable.startswith("bert/")]
    return [weight for weight in encoder if weight.variable.endswith(("_embeddings", "/kernel", "_mapping_in/bias"))]


FAMILY = Family("v2", "RoFormer-V2", weights, fields={"norm_type": "rms_norm", "use_bias": False})
