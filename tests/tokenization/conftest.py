import pytest
from helpers.tokenizer_files import CHARACTER_VOCABULARY, VOCABULARY

from modeling_roformer.tokenization import RoFormerTokenizer


@pytest.fixture(scope="module")
def words():
    return RoFormerTokenizer(VOCABULARY)


@pytest.fixture(scope="module")
def characters():
    return RoFormerTokenizer(CHARACTER_VOCABULARY)
