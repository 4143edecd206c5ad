"""Search for special and added tokens in a text, before it is normalized and split into words."""

import re

from tokenizers import Tokenizer, models, normalizers

_SURROGATE = re.compile("[\ud800-\udfff]")
_TEXT = "\0"  # the name of text between the tokens


class AddedTokenSplitter:
    """Splitter of a text at its added tokens, by the rules of `tokenizers`: longest first, with `lstrip`, `rstrip` and
    `single_word`; tokens marked `normalized` are searched in the normalized text.

    Args:
        tokens: list of `AddedToken`.
        normalizer: `Normalizer` of the tokenizer.

    A call with a text returns None if the text has no token, else a list of (token, start, end), with token None for
    the text between tokens.
    """

    def __init__(self, tokens, normalizer):
        self.tokens = tokens
        self.normalizer = normalizer
        self.literal = [token.content for token in tokens if not token.normalized]
        self.normalized = [normalizer(token.content) for token in tokens if token.normalized]
        # The search is that of `tokenizers`: with a model of one word, each stretch of other text becomes one token.
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
        places = zip(found.ids, found.offsets, strict=True)
        return [(self.contents.get(token), start, end) for token, (start, end) in places]
