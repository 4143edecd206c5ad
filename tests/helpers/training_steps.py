"""Inputs of a training step for every head, and for every kind of attention and of positions."""

import torch
from helpers.seq2seq_models import SIZES
from helpers.small_models import small_config

import modeling_roformer as ours

IDS = torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]])
MASKS = {
    "with padding": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
    "without padding": torch.ones(2, 4, dtype=torch.long),
    "no mask": None,
}
SEGMENTS = torch.zeros(2, 4, dtype=torch.long)
CLASSES = torch.tensor([0, 1])
CROSS = {"encoder_hidden_states": torch.zeros(2, 3, 32), "encoder_attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}
DECODER, LINEAR = {"is_decoder": True}, {"attention_type": "linear"}
ROPE = {"factor": 2.0, "original_max_position_embeddings": 2}
CASES = {
    # head and variant: fields of the config, arguments besides tokens, segments and mask, sequences a sample
    "RoFormerModel": ({}, {"position_ids": torch.arange(4)[None]}, None),
    "RoFormerModel eager": ({"attn_implementation": "eager"}, {}, None),
    "RoFormerModel linear RoPE": ({"rope_parameters": {"rope_type": "linear", **ROPE}}, {}, None),
    "RoFormerModel dynamic": ({"rope_parameters": {"rope_type": "dynamic", **ROPE}}, {}, None),
    "RoFormerModel YaRN": ({"rope_parameters": {"rope_type": "yarn", **ROPE}}, {}, None),
    "RoFormerModel trainable RoPE": ({"trainable_rope": True}, {}, None),
    "RoFormerModel rotary values": ({"rotary_value": True}, {}, None),
    "RoFormerModel V2": ({"norm_type": "rms_norm", "use_bias": False, "hidden_act": "relu"}, {}, None),
    "RoFormerModel pooler": ({"add_pooling_layer": True, "pooler_activation": "tanh", "embedding_size": 16}, {}, None),
    "RoFormerModel learned": ({"position_encoding": "learned"}, {"position_ids": torch.arange(4)[None]}, None),
    "RoFormerModel learned by shape": ({"position_encoding": "learned"}, {}, None),
    "RoFormerModel sinusoidal": ({"position_encoding": "sinusoidal"}, {}, None),
    "RoFormerModel linear": (LINEAR, {}, None),
    "RoFormerModel linear softmax": ({**LINEAR, "linear_feature_map": "softmax"}, {}, None),
    "RoFormerModel linear cosine": ({**LINEAR, "linear_feature_map": "cosine"}, {}, None),
    "RoFormerModel linear decoder": ({**LINEAR, **DECODER, "linear_feature_map": "softmax"}, {}, None),
    "RoFormerModel Performer": ({**LINEAR, "linear_feature_map": "favor"}, {}, None),
    "RoFormerForMaskedLM": ({}, {"labels": IDS}, None),
    "RoFormerForMaskedLM sparse": ({"sparse_prediction": True}, {"labels": IDS}, None),
    "RoFormerForCausalLM": (DECODER, {"labels": IDS}, None),
    "RoFormerForCausalLM prefix": ({**DECODER, "prefix_lm": True}, {"labels": IDS}, None),
    "RoFormerForCausalLM cross": ({**DECODER, "add_cross_attention": True}, {"labels": IDS, **CROSS}, None),
    "RoFormerForSequenceClassification": ({}, {"labels": CLASSES}, None),
    "RoFormerForTokenClassification": ({}, {"labels": SEGMENTS}, None),
    "RoFormerForQuestionAnswering": ({}, {"start_positions": CLASSES, "end_positions": CLASSES}, None),
    "RoFormerForMultipleChoice": ({}, {"labels": CLASSES}, 3),
    "RoFormerForTripletMatching": ({}, {"labels": CLASSES}, 2),
    "RoFormerForTripletMatching bi": ({"triplet_scorer": "bi", "triplet_loss": "margin"}, {"labels": CLASSES}, 3),
    "RoFormerSeq2SeqModel": ({}, {"decoder_input_ids": IDS}, None),
    "RoFormerForConditionalGeneration": ({}, {"labels": IDS}, None),
    "RoFormerForConditionalGeneration sinusoidal": ({"position_encoding": "sinusoidal"}, {"labels": IDS}, None),
    "NezhaModel": ({}, {}, None),
    "NezhaForMaskedLM": ({}, {"labels": IDS}, None),
    "NezhaForPreTraining": ({}, {"labels": IDS, "next_sentence_label": CLASSES}, None),
    "NezhaForNextSentencePrediction": ({}, {"labels": CLASSES}, None),
    "NezhaForSequenceClassification": ({}, {"labels": CLASSES}, None),
    "NezhaForTokenClassification": ({}, {"labels": SEGMENTS}, None),
    "NezhaForQuestionAnswering": ({}, {"start_positions": CLASSES, "end_positions": CLASSES}, None),
    "NezhaForMultipleChoice": ({}, {"labels": CLASSES}, 3),
}

# Cases that stand for all others where only the mask matters.
WITHOUT_MASK = [
    "RoFormerModel",
    "RoFormerModel dynamic",
    "RoFormerModel linear decoder",
    "RoFormerForCausalLM prefix",
    "RoFormerForConditionalGeneration",
    "NezhaModel",
]


def make_step(case: str, mask: str = "with padding", dropout: float = 0.1):
    """Return a model in training mode, and the inputs of one step."""
    fields, arguments, sequences = CASES[case]
    head = getattr(ours, case.split()[0])
    if head.config_class is ours.RoFormerSeq2SeqConfig:
        fields = {**SIZES, "pad_token_id": 0, "eos_token_id": 3, "dropout": dropout, **fields}
        config = ours.RoFormerSeq2SeqConfig(**fields, attention_dropout=dropout)
    else:
        dropouts = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
        fields = {"num_labels": 3, **dict.fromkeys(dropouts, dropout), **fields}
        config = small_config(head.config_class, **fields)
    torch.manual_seed(0)
    model = head(config).train()
    ids = IDS if MASKS[mask] is not None else IDS.clamp(min=1)  # padding without a mask is warned of
    inputs = {"input_ids": ids, "token_type_ids": SEGMENTS, "attention_mask": MASKS[mask]}
    if sequences:
        inputs = {name: None if x is None else torch.stack([x] * sequences, 1) for name, x in inputs.items()}
    return model, {**inputs, **arguments}


def loss_and_gradients(model, inputs, **options):
    """Return the outputs of a step, and the gradients of its loss by name; of some hidden states if it has no loss."""
    outputs = model(**inputs, **options)
    (outputs[0] if outputs[0].ndim == 0 else outputs[0][..., ::3].sum()).backward()
    return outputs, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def number_of_reads(case: str, device: str = "cpu") -> int:
    """Return how often a step may wait for its device: once for each text, and once for labels.

    transformers' dynamic NTK copies one number to the device.
    """
    has_labels = "For" in case.removeprefix("RoFormer")
    is_seq2seq = case.startswith(("RoFormerForConditional", "RoFormerSeq2Seq"))
    reads_bias = is_seq2seq and has_labels and device == "cpu"  # where waiting costs nothing
    return 1 + has_labels + is_seq2seq + reads_bias + ("dynamic" in case and device != "cpu")
