"""The checkpoints that the authors of the family released, by the name of their archives without .zip."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Release:
    """What identifies a released checkpoint besides the sizes in its name.

    `kind` is a name of kinds.KINDS. `vocab_size` and `trained_length`, the longest input in training in tokens, are
    None if nothing was published; the sources are in the card.
    """

    kind: str
    vocab_size: int | None
    trained_length: int | None = None


RELEASES = {
    "chinese_roformer_L-12_H-768_A-12": Release("roformer", 50000, 1536),
    "chinese_roformer_L-6_H-384_A-6": Release("roformer", 50000),
    "chinese_roformer-char_L-12_H-768_A-12": Release("roformer", 12000),
    "chinese_roformer-char_L-6_H-384_A-6": Release("roformer", 12000),
    "chinese_roformer-gpt-char_L-12_H-768_A-12": Release("gpt", None),
    "chinese_roformer-sim-char_L-12_H-768_A-12": Release("sim", 12000, 64),
    "chinese_roformer-sim-char_L-6_H-384_A-6": Release("sim", 12000),
    "chinese_roformer-sim-char-ft_L-12_H-768_A-12": Release("sim", 12000, 64),
    "chinese_roformer-sim-char-ft_L-6_H-384_A-6": Release("sim", 12000),
    "chinese_roformer-v2-char_L-6_H-384_A-6": Release("v2", 12000, 512),
    "chinese_roformer-v2-char_L-12_H-768_A-12": Release("v2", 12000, 512),
    "chinese_roformer-v2-char_L-24_H-1024_A-16": Release("v2", 12000, 512),
    "chinese_wobert_L-12_H-768_A-12": Release("wobert", 33586, 512),
    "chinese_wobert_plus_L-12_H-768_A-12": Release("wobert", 50000, 512),
    "chinese_wonezha_L-12_H-768_A-12": Release("wonezha", None, 512),
}
