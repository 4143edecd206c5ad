"""Position encodings by name: those of section 2 of the RoFormer paper (arXiv:2104.09864), rotary positions, and
ALiBi."""

from .alibi import ALiBi
from .base import PositionEncoding
from .deberta import DeBERTa
from .learned import Learned
from .none import NoPositions
from .rotary import Rotary
from .shaw import Shaw
from .sinusoidal import Sinusoidal
from .t5 import T5
from .transformer_xl import TransformerXL
from .tupe import TUPE

ENCODINGS: dict[str, type[PositionEncoding]] = {
    "none": NoPositions,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "shaw": Shaw,
    "transformer_xl": TransformerXL,
    "t5": T5,
    "tupe": TUPE,
    "deberta": DeBERTa,
    "alibi": ALiBi,
    "rotary": Rotary,
}
