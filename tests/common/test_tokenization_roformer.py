"""transformers' own tests of a tokenizer (TokenizerTesterMixin) and of a fast one (TokenizersBackendTesterMixin), on a
word-level and a character-level vocabulary.

With ROFORMER_TEST_PEER=1 the first runs on transformers' own RoFormerTokenizer instead, for comparison.
"""

import importlib
import json
import os
import shutil
import tempfile
import unittest
from pathlib import Path

import transformers
from transformers_tests.test_tokenization_common import TokenizerTesterMixin
from transformers_tests.test_tokenizers_backend_mixin import TokenizersBackendTesterMixin

PEER = os.environ.get("ROFORMER_TEST_PEER", "") not in ("", "0")
# Importing this package puts its tokenizer behind AutoTokenizer, so the peer is tested without.
LIBRARY = transformers if PEER else importlib.import_module("modeling_roformer")
FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "tokenization"


class Folder:
    """A checkpoint's folder with this vocabulary, as long as the tests of a class run."""

    vocabulary = None
    tokenizer_class = LIBRARY.RoFormerTokenizer
    rust_tokenizer_class = LIBRARY.RoFormerTokenizer
    from_pretrained_kwargs = {}

    @classmethod
    def setUpClass(cls):
        folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, folder)
        shutil.copy(FIXTURES / cls.vocabulary, folder / "vocab.txt")
        (folder / "config.json").write_text(json.dumps({"model_type": "roformer"}))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RoFormerTokenizer"}))
        cls.from_pretrained_id = str(folder)
        super().setUpClass()


class WordLevelTest(Folder, TokenizerTesterMixin, unittest.TestCase):
    vocabulary = "vocab.txt"


class CharacterLevelTest(Folder, TokenizerTesterMixin, unittest.TestCase):
    vocabulary = "vocab_chars.txt"


class WordLevelBackendTest(Folder, TokenizersBackendTesterMixin, unittest.TestCase):
    vocabulary = "vocab.txt"

    if not PEER:  # which trains a tokenizer without words

        def test_training_new_tokenizer(self):
            with self.assertRaisesRegex(ValueError, "roformer vocab"):
                self.get_rust_tokenizer().train_new_from_iterator(["今天天气非常好"], 60)

        test_training_new_tokenizer_with_special_tokens_change = test_training_new_tokenizer


class CharacterLevelBackendTest(Folder, TokenizersBackendTesterMixin, unittest.TestCase):
    vocabulary = "vocab_chars.txt"
