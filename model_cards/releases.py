"""Checkpoints that the authors of the family released, by the names of their archives without .zip."""

from dataclasses import dataclass

ARCHITECTURES = {  # by kind; all others are RoFormerForMaskedLM
    "gpt": "RoFormerForCausalLM",
    "sim": "RoFormerForCausalLM",
    "wobert": "BertForMaskedLM",
    "wonezha": "NezhaForMaskedLM",
}


@dataclass(frozen=True)
class Release:
    """A released checkpoint; the sources are in its card.

    kind: a name of kinds.KINDS; vocab_size: entries; trained_length: longest input in training, in tokens; hub: name of
    junnyu's conversion on the Hub; baidu: (id, code) of an archive there, else it is on open.zhuiyi.ai. None if
    unknown.
    """

    kind: str
    vocab_size: int | None
    trained_length: int | None = None
    hub: str | None = None
    baidu: tuple[str, str] | None = None

    @property
    def architecture(self) -> str:
        """Name of the class of its conversion."""
        return ARCHITECTURES.get(self.kind, "RoFormerForMaskedLM")

    @property
    def loads_from_hub(self) -> bool:
        """True if `from_pretrained` can load `hub`; for other kinds its configuration lacks settings."""
        return self.kind in ("roformer", "v2")


RELEASES = {
    "chinese_roformer_L-12_H-768_A-12": Release("roformer", 50000, 1536, "roformer_chinese_base"),
    "chinese_roformer_L-6_H-384_A-6": Release("roformer", 50000, None, "roformer_chinese_small"),
    "chinese_roformer-char_L-12_H-768_A-12": Release("roformer", 12000, None, "roformer_chinese_char_base"),
    "chinese_roformer-char_L-6_H-384_A-6": Release("roformer", 12000, None, "roformer_chinese_char_small"),
    "chinese_roformer-gpt-char_L-12_H-768_A-12": Release("gpt", None),
    "chinese_roformer-sim-char_L-12_H-768_A-12": Release("sim", 12000, 64, "roformer_chinese_sim_char_base"),
    "chinese_roformer-sim-char_L-6_H-384_A-6": Release("sim", 12000, None, "roformer_chinese_sim_char_small"),
    "chinese_roformer-sim-char-ft_L-12_H-768_A-12": Release("sim", 12000, 64, "roformer_chinese_sim_char_ft_base"),
    "chinese_roformer-sim-char-ft_L-6_H-384_A-6": Release("sim", 12000, None, "roformer_chinese_sim_char_ft_small"),
    "chinese_roformer-v2-char_L-6_H-384_A-6": Release("v2", 12000, 512, "roformer_v2_chinese_char_small"),
    "chinese_roformer-v2-char_L-12_H-768_A-12": Release("v2", 12000, 512, "roformer_v2_chinese_char_base"),
    "chinese_roformer-v2-char_L-24_H-1024_A-16": Release("v2", 12000, 512, "roformer_v2_chinese_char_large"),
    "chinese_wobert_L-12_H-768_A-12": Release(
        "wobert", 33586, 512, "wobert_chinese_base", ("1BrdFSx9_n1q2uWBiQrpalw", "kim2")
    ),
    "chinese_wobert_plus_L-12_H-768_A-12": Release(
        "wobert", 50000, 512, "wobert_chinese_plus_base", ("1Ltq3ltQsyBCj56zoOOvI9A", "aedw")
    ),
    "chinese_wonezha_L-12_H-768_A-12": Release("wonezha", None, 512, None, ("1ABKwUuIiMEEsRXxxlbyKmw", "qgkq")),
}
