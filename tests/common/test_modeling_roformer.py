"""transformers' own tests of a model and of a config (ModelTesterMixin, ConfigTester) on every class and variant.

Each class below is one variant of the config. No test of the mixin is overridden, and those that are skipped say
why; inputs are made for the head that it cannot know. With ROFORMER_TEST_PEER=1 the same tests run on
transformers' own RoFormer instead, for comparison.
"""

import importlib
import os
import unittest
from unittest import mock

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.testing_utils import torch_device
from transformers_tests.generation.test_utils import GenerationTesterMixin
from transformers_tests.test_configuration_common import ConfigTester
from transformers_tests.test_modeling_common import ModelTesterMixin, floats_tensor, ids_tensor, random_attention_mask

PEER = os.environ.get("ROFORMER_TEST_PEER", "") not in ("", "0")
# Importing this package puts its classes behind the Auto classes, so the peer is tested without.
LIBRARY = transformers if PEER else importlib.import_module("modeling_roformer")

HEADS = [
    "RoFormerModel",
    "RoFormerForMaskedLM",
    "RoFormerForCausalLM",
    "RoFormerForSequenceClassification",
    "RoFormerForTokenClassification",
    "RoFormerForQuestionAnswering",
    "RoFormerForMultipleChoice",
]
TRIPLETS = "RoFormerForTripletMatching"
if not PEER:
    HEADS.append(TRIPLETS)


class RoFormerModelTester:
    """Answers to the mixin's questions about a model: a small config, and inputs for it."""

    batch_size = 5
    seq_length = 7
    is_training = True
    num_choices = 3
    hidden_size = 32
    num_hidden_layers = 2
    num_attention_heads = 2

    def __init__(self, config_class, **variant):
        self.config_class = config_class
        self.variant = variant

    def get_config(self):
        return self.config_class(
            **{
                "vocab_size": 99,
                "hidden_size": self.hidden_size,
                "num_hidden_layers": self.num_hidden_layers,
                "num_attention_heads": self.num_attention_heads,
                "intermediate_size": 37,
                # The tests of length extension run one and a half times as many tokens, and have 16,384 for the trained
                # length, beyond which alone dynamic NTK changes anything.
                "max_position_embeddings": 512 if PEER else 11000,
                "num_labels": 3,
                # In a width of 32, smaller weights would leave attention uniform, and positions without effect.
                "initializer_range": 0.1,
                **self.variant,
            }
        )

    def prepare_config_and_inputs_for_common(self):
        config = self.get_config()
        inputs = {
            "input_ids": ids_tensor([self.batch_size, self.seq_length], config.vocab_size),
            "token_type_ids": ids_tensor([self.batch_size, self.seq_length], config.type_vocab_size),
            "attention_mask": random_attention_mask([self.batch_size, self.seq_length]),
        }
        if config.add_cross_attention:
            inputs["encoder_hidden_states"] = floats_tensor([self.batch_size, self.seq_length, self.hidden_size])
            inputs["encoder_attention_mask"] = random_attention_mask([self.batch_size, self.seq_length])
        return config, inputs


class CommonTests(ModelTesterMixin):
    """The mixin's tests of one variant."""

    config_class = LIBRARY.RoFormerConfig
    variant = {}
    heads = HEADS
    model_tester_class = RoFormerModelTester
    # The mixin knows a class's kind by its name, from lists of transformers', which lack some of ours.
    lists = {}
    # Older models are let off this test of their initialisation; this one is not old.
    test_can_init_all_missing_weights_before_2023 = True
    # It fills a backbone of other shapes at random, which this package refuses: see tests/models/test_loading.py.
    test_mismatched_shapes = PEER

    @property
    def all_model_classes(self):
        return tuple(getattr(LIBRARY, name) for name in self.heads)

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        if model_class.__name__ != TRIPLETS:
            return super()._prepare_for_class(inputs_dict, model_class, return_labels)
        n = 3 if self.variant.get("triplet_scorer") == "bi" else 2
        inputs = {
            name: torch.stack([value] * n, dim=1) if isinstance(value, torch.Tensor) else value
            for name, value in inputs_dict.items()
        }
        if return_labels:
            inputs["labels"] = torch.zeros(self.model_tester.batch_size, dtype=torch.long, device=torch_device)
        return inputs

    def setUp(self):
        self.model_tester = self.model_tester_class(self.config_class, **self.variant)
        for name, listed in self.lists.items():
            patch = mock.patch.dict(listed, {self.config_class.model_type: name})
            patch.start()
            self.addCleanup(patch.stop)

    def test_config(self):
        fields = {**self.variant, "hidden_size": 48}
        ConfigTester(self, config_class=self.config_class, **fields).run_common_tests()


class GenerativeTests(CommonTests, GenerationTesterMixin):
    """Generation by variants with a class that generates; the mixin asks for the second base, which is empty here."""


class PlainTest(GenerativeTests, unittest.TestCase):
    pass


class RotaryValueTest(GenerativeTests, unittest.TestCase):
    variant = {"rotary_value": True}


class FactorisedTest(GenerativeTests, unittest.TestCase):
    variant = {"embedding_size": 16}


class DecoderTest(GenerativeTests, unittest.TestCase):
    variant = {"is_decoder": True}


class CrossAttentionTest(GenerativeTests, unittest.TestCase):
    variant = {"is_decoder": True, "add_cross_attention": True}
    heads = ["RoFormerModel", "RoFormerForCausalLM"]


if not PEER:

    class V2Test(GenerativeTests, unittest.TestCase):
        variant = {"norm_type": "rms_norm", "use_bias": False}

    class UnpaddedTest(GenerativeTests, unittest.TestCase):
        variant = {"unpad_inputs": True}

        def test_feed_forward_chunking(self):
            self.skipTest(
                "compares what stands at padding with and without chunks: 0 where it was left out of the computation, "
                "which is not done in chunks"
            )

    class BiEncoderTest(CommonTests, unittest.TestCase):
        variant = {"triplet_scorer": "bi"}
        heads = ["RoFormerModel", TRIPLETS]

    class PrefixLMTest(GenerativeTests, unittest.TestCase):
        variant = {"is_decoder": True, "prefix_lm": True}

    class SimTest(GenerativeTests, unittest.TestCase):
        variant = {"is_decoder": True, "prefix_lm": True, "add_pooling_layer": True, "pooler_activation": "linear"}
        test_all_params_have_gradient = False  # what the pooler gives is in no head's loss

    class LinearTests(GenerativeTests):
        def test_model_rope_scaling_from_config_2_yarn(self):
            self.skipTest(
                "YaRN scales the scores of softmax attention, and is refused beside linear attention, which has none"
            )

    class LinearAttentionTest(LinearTests, unittest.TestCase):
        variant = {"attention_type": "linear"}

    class LinearDecoderTest(LinearTests, unittest.TestCase):
        variant = {"attention_type": "linear", "linear_feature_map": "softmax", "is_decoder": True}

    class PerformerTest(LinearTests, unittest.TestCase):
        variant = {"attention_type": "linear", "linear_feature_map": "favor", "linear_num_features": 32}

    class NezhaTest(CommonTests, unittest.TestCase):
        config_class = LIBRARY.NezhaConfig
        variant = {"max_relative_position": 3}
        lists = {
            "NezhaModel": modeling_auto.MODEL_MAPPING_NAMES,
            "NezhaForPreTraining": modeling_auto.MODEL_FOR_PRETRAINING_MAPPING_NAMES,
            "NezhaForMaskedLM": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
            "NezhaForNextSentencePrediction": modeling_auto.MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES,
            "NezhaForSequenceClassification": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
            "NezhaForTokenClassification": modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
            "NezhaForQuestionAnswering": modeling_auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES,
            "NezhaForMultipleChoice": modeling_auto.MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES,
        }
        heads = list(lists)

        def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
            inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels)
            if return_labels and model_class is LIBRARY.NezhaForPreTraining:
                inputs["labels"] = torch.zeros_like(inputs["input_ids"])
                inputs["next_sentence_label"] = torch.zeros_like(inputs["input_ids"][:, 0])
            return inputs

    class Seq2SeqModelTester(RoFormerModelTester):
        def get_config(self):
            sizes = {
                "vocab_size": 99,
                "d_model": self.hidden_size,
                "encoder_ffn_dim": 37,
                "decoder_ffn_dim": 37,
                "init_std": 0.1,
            }
            for stack in ("encoder", "decoder"):
                sizes |= {
                    f"{stack}_layers": self.num_hidden_layers,
                    f"{stack}_attention_heads": self.num_attention_heads,
                }
            return self.config_class(**{**sizes, **self.variant})

        def prepare_config_and_inputs_for_common(self):
            config, shape = self.get_config(), [self.batch_size, self.seq_length]
            inputs = {}
            for prefix in ("", "decoder_"):
                inputs[f"{prefix}input_ids"] = ids_tensor(shape, config.vocab_size)
                inputs[f"{prefix}attention_mask"] = random_attention_mask(shape)
            return config, inputs

    class Seq2SeqTest(GenerativeTests, unittest.TestCase):
        config_class = LIBRARY.RoFormerSeq2SeqConfig
        is_encoder_decoder = True
        model_tester_class = Seq2SeqModelTester
        lists = {
            "RoFormerSeq2SeqModel": modeling_auto.MODEL_MAPPING_NAMES,
            "RoFormerForConditionalGeneration": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        }
        heads = list(lists)

        def test_config(self):
            ConfigTester(self, config_class=self.config_class, d_model=48).run_common_tests()

    class Seq2SeqSinusoidalTest(Seq2SeqTest):
        variant = {"position_encoding": "sinusoidal"}
