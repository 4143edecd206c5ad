"""Every variant saved and loaded: the same outputs and configuration, and in half precision nearly so."""

import pytest
import torch
from cases import DECODERS, VARIANTS, close, make_ids, make_variant
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_loaded_model_computes_what_the_saved_one_does(variant, tmp_path):
    head = "ForCausalLM" if variant in DECODERS else "ForMaskedLM"
    auto_class = AutoModelForCausalLM if variant in DECODERS else AutoModelForMaskedLM
    model, ids = make_variant(variant, head, initializer_range=0.2).float(), make_ids(2, 12)
    model.save_pretrained(tmp_path)
    loaded, expected = auto_class.from_pretrained(tmp_path), model(ids).logits
    assert type(loaded) is type(model)
    assert AutoConfig.from_pretrained(tmp_path).to_diff_dict() == model.config.to_diff_dict()
    close(loaded(ids).logits, expected, 1e-5)  # eager attention is not a field of a file
    close(AutoModel.from_pretrained(tmp_path)(ids)[0], model.base_model(ids)[0], 1e-5)
    for dtype, share in ((torch.float16, 0.01), (torch.bfloat16, 0.06)):
        half = auto_class.from_pretrained(tmp_path, dtype=dtype)
        # Trained frequencies stay in float32: see test_trainable_rope.py.
        assert {p.dtype for name, p in half.named_parameters() if "inv_freq" not in name} == {dtype}
        found = half(ids).logits
        assert found.dtype == dtype
        assert (found.float() - expected).abs().mean() < share * expected.std()
        half.save_pretrained(tmp_path / str(dtype))
        assert AutoConfig.from_pretrained(tmp_path / str(dtype)).dtype == dtype
