"""The metadata at the top of a card, in YAML. The Hub checks the fields when a card is pushed."""

import re
from pathlib import Path

import yaml

from modeling_roformer.tokenization.wordpiece import is_cjk

KEPT = ("license", "license_name", "license_link", "language", "base_model", "datasets")
# The second group is the metadata, between two rules at the top of a card.
YAML_BLOCK = re.compile(r"^(\s*---(?:\r\n|\r|\n))([\S\s]*?)((?:\r\n|\r|\n)---[ \t]*(\r\n|\n|$))")


def metadata_of(card: str) -> dict:
    """Return the metadata of a card, {} if it has none. Raise ValueError if it cannot be read.

    >>> metadata_of("---\\nlicense: mit\\n---\\n# My model\\n")
    {'license': 'mit'}
    """
    block = YAML_BLOCK.search(card)
    return read_metadata(block[2]) if block else {}


def kept_metadata(card: Path, vocabulary: dict[str, int]) -> dict:
    """Return the metadata of a model's own card that hold for an export of it; Chinese for a vocabulary with Han."""
    own = metadata_of(card.read_text(encoding="utf-8")) if card.is_file() else {}
    kept = {name: value for name, value in own.items() if name in KEPT}
    if "language" not in kept and any(is_cjk(entry) for entry in vocabulary if len(entry) == 1):
        kept["language"] = "zh"
    return kept


def read_metadata(block: str) -> dict:
    """Return the fields of the YAML between the two rules; raise ValueError if it is not YAML with fields."""
    try:
        metadata = yaml.load(block, StrictLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"the metadata is not YAML: {' '.join(str(error).split())}") from None
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise ValueError("the metadata must be fields (`name: value`)")
    return {str(key): value for key, value in metadata.items()}


class StrictLoader(yaml.SafeLoader):
    """YAML loader that refuses aliases: a few hundred bytes of them can stand for gigabytes of text.

    It refuses a field that appears twice too, as the Hub does; PyYAML takes the second.
    """

    def compose_node(self, parent, index):
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None,
                None,
                f"the alias *{event.anchor} stands for another place: write the value itself",
                event.start_mark,
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := [key for number, key in enumerate(keys) if key in keys[:number]]:
            raise yaml.constructor.ConstructorError(None, None, f"{twice[0]} appears twice", node.start_mark)
        return super().construct_mapping(node, deep)
