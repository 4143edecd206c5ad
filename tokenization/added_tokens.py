"""Finding special and added tokens in a text, before it is normalized and cut into words."""

import re

from tokenizers import Tokenizer, models, normalizers

_SURROGATE = re.compile("[\ud800-\udfff]")
_TEXT = "\0"  # what the finder below calls text between the tokens


class AddedTokenSplitter:
    """Finds added tokens as `tokenizers` does: longest first, with their `lstrip`, `rstrip`, `single_word`, and those
    marked `normalized` in the normalized text.

    Args:
        tokens: list of `AddedToken`.
        normalizer: `Normalizer` of the tokenizer.

    Calling it with a text gives None where no token is in it, else a list of (token, start, end), token None for text
    between tokens.
    """

    def __init__(self, tokens, normalizer):
        self.tokens = tokens
        self.normalizer = normalizer
        self.literal = [token.content for token in tokens if not token.normalized]
        self.normalized = [normalizer(token.content) for token in tokens if token.normalized]
        # A model that knows one word gives one token for each stretch of text: a finder of `tokenizers`' own making.
        self.finder = Tokenizer(models.WordLevel({_TEXT: 0}, unk_token=_TEXT))
        steps = [normalizers.Lowercase()] * normalizer.lowercase
        steps += [normalizers.NFD(), normalizers.StripAccents()] * normalizer.strip_accents
        self.finder.normalizer = normalizers.Sequence(steps)
        self.finder.add_tokens(tokens)
        self.contents = {self.finder.token_to_id(token.content): token.content for token in tokens}

    def __reduce__(self):
        return type(self), (self.tokens, self.normalizer)

    def __call__(self, text):
        if not any(content in text for content in self.literal):
            if not self.normalized:
                return None
            normalized = self.normalizer(text)
            if not any(content in normalized for content in self.normalized):
                return None
        found = self.finder.encode(_SURROGATE.sub("\ufffd", text), add_special_tokens=False)
        parts = []
        for token, (start, end) in zip(found.ids, found.offsets, strict=True):
            parts.append((self.contents.get(token), start, end))
        return parts
