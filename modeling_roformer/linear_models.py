"""The models by the names that a published checkpoint with linear attention looks up.

The code beside a checkpoint is the file of each class that its config names, and what these files import. The models
themselves do not import linear attention. transformers copies a class's file when it saves a model that was loaded with
its code, so the classes must be defined here.
"""

from .heads import RoFormerForCausalLM as CausalLM
from .heads import RoFormerForMaskedLM as MaskedLM
from .heads import RoFormerForMultipleChoice as MultipleChoice
from .heads import RoFormerForQuestionAnswering as QuestionAnswering
from .heads import RoFormerForSequenceClassification as SequenceClassification
from .heads import RoFormerForTokenClassification as TokenClassification
from .linear_attention import RoFormerLinearSelfAttention as RoFormerLinearSelfAttention  # adds its kind to the models
from .model import RoFormerModel as Model
from .triplet_matching import RoFormerForTripletMatching as TripletMatching


class RoFormerModel(Model):
    __doc__ = Model.__doc__


class RoFormerForMaskedLM(MaskedLM):
    __doc__ = MaskedLM.__doc__


class RoFormerForCausalLM(CausalLM):
    __doc__ = CausalLM.__doc__


class RoFormerForSequenceClassification(SequenceClassification):
    __doc__ = SequenceClassification.__doc__


class RoFormerForTokenClassification(TokenClassification):
    __doc__ = TokenClassification.__doc__


class RoFormerForQuestionAnswering(QuestionAnswering):
    __doc__ = QuestionAnswering.__doc__


class RoFormerForMultipleChoice(MultipleChoice):
    __doc__ = MultipleChoice.__doc__


class RoFormerForTripletMatching(TripletMatching):
    __doc__ = TripletMatching.__doc__
