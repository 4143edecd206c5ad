"""The code beside an encoder and its tokenizer; `test_kinds_with_code.py` has the files that only other kinds need."""

from helpers.small_models import small_config

from modeling_roformer import RoFormerForMaskedLM, RoFormerTokenizer
from modeling_roformer.hub.remote_code import files_with_code

MODEL = {"attention", "call", "configuration", "heads", "inputs", "loading", "model", "pooler_copy", "rotary"}
MODEL |= {"saved_fields", "unpadding"}
TOKENIZER = {"decoding", "encoding", "segmentation", "tokenizer", "vocabulary", "wordpiece"}


def test_an_encoder_travels_with_the_files_of_its_kind(tmp_path):
    vocab = tmp_path / "words.txt"
    vocab.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(0x4E00, 0x4E5F))]))
    RoFormerForMaskedLM(small_config()).save_pretrained(tmp_path)
    RoFormerTokenizer(str(vocab)).save_pretrained(tmp_path)
    published = {name for name in files_with_code(tmp_path) if name.endswith(".py")}
    assert published == {f"{name}.py" for name in MODEL | TOKENIZER}
