"""Record what models and tokenizers compute, and compare it with a recording of another version.

    python benchmarks/outputs.py record FILE
    python benchmarks/outputs.py compare FILE [--tolerance 1e-6]

For every head, kind of attention and kind of positions that the tests of training steps list, small models with random
weights compute a batch with padding, without padding and without a mask: outputs, loss, gradients, gradients by
reentrant checkpointing, the same in bfloat16, and without padding in the computation; decoders generate. Tokenizers
tokenize the texts of the tests' fixtures. A record is one safetensors file, so that two versions of the package can be
compared: check out the other version beside this one, and put its folder first in PYTHONPATH.
"""

import json
import sys
from pathlib import Path

import torch
from rich.progress import track
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from helpers import training_steps  # noqa: E402

import modeling_roformer as ours  # noqa: E402
from modeling_roformer.training import ScriptParser  # noqa: E402

WAYS_TO_GENERATE = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "sampling": {"do_sample": True, "top_k": 20},
    "without a cache": {"use_cache": False},
}


def flatten(name: str, value) -> dict[str, torch.Tensor]:
    """Return the tensors in an output, by the path to each."""
    if isinstance(value, torch.Tensor):
        return {name: value.detach().clone().contiguous()}
    items = value.items() if hasattr(value, "items") else enumerate(value) if isinstance(value, (tuple, list)) else ()
    return {path: x for key, part in items for path, x in flatten(f"{name}/{key}", part).items()}


def gradients(model, inputs: dict) -> dict[str, torch.Tensor]:
    """Return the gradients of the loss, or of the sum of the first output, by weight."""
    model.zero_grad()
    model(**inputs)[0].sum().backward()
    return {name: x.grad.clone() for name, x in model.named_parameters() if x.grad is not None}


def record_model(case: str, mask: str) -> dict[str, torch.Tensor]:
    """Record one model with one mask."""
    name = f"{case}/{mask}"
    found = {}
    model, inputs = training_steps.make_step(case, mask, dropout=0.0)
    torch.manual_seed(1)
    found |= flatten(f"{name}/train", model(**inputs))
    found |= flatten(f"{name}/gradients", gradients(model, inputs))
    model.gradient_checkpointing_enable({"use_reentrant": True})
    embeddings = model.get_input_embeddings()
    embeddings.register_forward_hook(lambda module, args, output: output.requires_grad_())
    found |= flatten(f"{name}/checkpointed", gradients(model, inputs))
    model.gradient_checkpointing_disable()
    model.eval()
    with torch.no_grad():
        found |= flatten(f"{name}/eval", model(**inputs, output_hidden_states=True, output_attentions=True))
        if "Seq2Seq" not in case and "Conditional" not in case:
            for unpad in (False, True):
                found |= flatten(f"{name}/unpad_inputs={unpad}", model(**inputs, unpad_inputs=unpad))
        if model.can_generate():
            found |= generate(name, model, inputs)
        found |= flatten(f"{name}/bfloat16", model.to(torch.bfloat16)(**to_bfloat16(inputs)))
    return found


def to_bfloat16(inputs: dict) -> dict:
    return {
        name: x.to(torch.bfloat16) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for name, x in inputs.items()
    }


def generate(name: str, model, inputs: dict) -> dict[str, torch.Tensor]:
    """Return the ids that a model generates, by the way to generate."""
    asked = {key: inputs.get(key) for key in ("input_ids", "attention_mask", "token_type_ids")}
    asked |= {key: x for key, x in inputs.items() if key.startswith("encoder_")}
    if "token_type_ids" in asked and model.config.is_encoder_decoder:
        del asked["token_type_ids"]
    found = {}
    for way, options in WAYS_TO_GENERATE.items():
        torch.manual_seed(2)
        ids = model.generate(**asked, max_new_tokens=6, pad_token_id=0, eos_token_id=None, **options)
        found |= flatten(f"{name}/generate/{way}", ids)
    return found


def record_tokenizer() -> dict[str, torch.Tensor]:
    """Return the ids, offsets and decoded texts of the fixtures' texts."""
    folder = ROOT / "tests" / "fixtures" / "tokenization"
    lines = (folder / "texts.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [row if isinstance(row, str) else row["text"] for row in map(json.loads, lines)]
    found = {}
    for vocabulary in ("vocab.txt", "vocab_chars.txt"):
        tokenizer = ours.RoFormerTokenizer(str(folder / vocabulary))
        encoded = tokenizer(texts, return_offsets_mapping=True)
        for key in ("input_ids", "offset_mapping"):
            values = [value for text in encoded[key] for value in text]
            found[f"tokenizer/{vocabulary}/{key}"] = torch.tensor(values)
        decoded = "\n".join(tokenizer.batch_decode(encoded["input_ids"])).encode("utf-8")
        found[f"tokenizer/{vocabulary}/decoded"] = torch.tensor(list(decoded), dtype=torch.uint8)
    return found


def record() -> dict[str, torch.Tensor]:
    found = record_tokenizer()
    cases = [(case, mask) for case in training_steps.CASES for mask in training_steps.MASKS]
    for case, mask in track(cases, "models"):
        found |= record_model(case, mask)
    return found


def compare(before: dict[str, torch.Tensor], now: dict[str, torch.Tensor], tolerance: float) -> list[str]:
    """Return a line for each difference."""
    lines = [f"only before: {name}" for name in sorted(before.keys() - now.keys())]
    lines += [f"only now: {name}" for name in sorted(now.keys() - before.keys())]
    for name in sorted(before.keys() & now.keys()):
        first, second = before[name], now[name]
        if first.shape != second.shape or first.dtype != second.dtype:
            lines.append(f"{name}: {first.dtype} {tuple(first.shape)} before, {second.dtype} {tuple(second.shape)} now")
            continue
        is_equal = (first == second) | (first.isnan() & second.isnan())  # infinities have no difference
        difference = (first.double() - second.double()).abs()[~is_equal]
        largest = difference.max().item() if difference.numel() else 0.0
        if not largest <= tolerance:
            lines.append(f"{name}: {largest:.3g} at most")
    return lines


def main() -> None:
    parser = ScriptParser(__doc__)
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.0, help="largest difference that counts as equal")
    chosen = parser.parse_args()
    found = record()
    if chosen.action == "record":
        save_file(found, chosen.file)
        print(f"{len(found)} tensors in {chosen.file}")
        return
    lines = compare(load_file(chosen.file), found, chosen.tolerance)
    print("\n".join(lines) or f"{len(found)} tensors are equal")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
