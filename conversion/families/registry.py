"""The families by name."""

from . import roformer_gpt, roformer_sim, roformer_v1, roformer_v2, simbert, wobert, wonezha
from .family import Family

AUTO = "auto"
FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY
    for module in (roformer_v1, roformer_gpt, roformer_sim, roformer_v2, wobert, simbert, wonezha)
}
