"""Ids of words: the word's own entry if the vocabulary has it, else basic tokenization and WordPiece.

The ids of a word depend only on the word, so they are cached.
"""

from .characters import is_cjk, is_dropped, is_punctuation, is_space

PREFIX = "##"
LONGEST_WORD = 200  # characters; longer words are unknown as a whole
_CACHED_WORDS = 1 << 17  # a corpus has more words, so a full cache is cleared
_CACHED_LENGTH = 32  # characters; longer words rarely occur twice


class WordCache(dict):
    """Cache of a function of a word; cleared when it is full."""

    def __init__(self, compute):
        super().__init__()
        self.compute = compute

    def __missing__(self, word):
        value = self.compute(word)
        if len(word) <= _CACHED_LENGTH:
            if len(self) >= _CACHED_WORDS:
                self.clear()
            self[word] = value
        return value


class WordPiece:
    """Ids of words.

    Args:
        vocabulary: dict of entry -> id.
        unk_id: id of words that no entries compose.
        normalizer: applied once more to words that have no entry, as bert4keras does.
        whole_words: whether to look up whole words first; False at character level.

    Attributes:
        ids: mapping of word -> tuple of ids.
        spans: mapping of word -> (n, [(start, end, k), ...]): for each id the first and last + 1 of its characters in
            the word, and k, the one of the n words of basic tokenization that it belongs to.
    """

    def __init__(self, vocabulary, unk_id, normalizer, whole_words):
        self.vocabulary = vocabulary
        self.unk_id = unk_id
        self.normalizer = normalizer
        self.whole_words = whole_words
        self.longest_entry = max(map(len, vocabulary))
        self.ids = WordCache(lambda word: tuple([piece[0] for piece in self.pieces(word)]))
        self.spans = WordCache(self._spans)

    def __reduce__(self):  # without the caches, so that use changes neither pickles nor fingerprints
        return type(self), (self.vocabulary, self.unk_id, self.normalizer, self.whole_words)

    def _spans(self, word):
        pieces = self.pieces(word)
        return (pieces[-1][3] + 1 if pieces else 0), [piece[1:] for piece in pieces]

    def pieces(self, word):
        """Return a list of (id, start, end, k); see `spans`."""
        if self.whole_words and word in self.vocabulary:
            # White space can be an entry (U+2028), but bert4keras never returns it.
            return [] if word.isspace() else [(self.vocabulary[word], 0, len(word), 0)]
        text, origins = self.normalizer.align(word)
        pieces = []
        for k, (characters, places) in enumerate(basic_words(text)):
            for token, start, end in self.split(characters):
                first, last = places[start], places[end - 1]
                if origins is not None:
                    first, last = origins[first], origins[last]
                pieces.append((token, first, last + 1, k))
        return pieces

    def split(self, word):
        """Return the WordPiece tokens of a word as a list of (id, start, end).

        The first token is the longest entry that starts the word, each next one the longest "##" entry that continues
        it. A word that cannot be composed is one unknown token.
        """
        unknown = [(self.unk_id, 0, len(word))]
        if len(word) > LONGEST_WORD:
            return [(self.vocabulary.get(word, self.unk_id), 0, len(word))]
        tokens, start = [], 0
        while start < len(word):
            prefix = PREFIX if start else ""
            for end in range(min(len(word), start + self.longest_entry), start, -1):
                token = self.vocabulary.get(prefix + word[start:end])
                if token is not None:
                    tokens.append((token, start, end))
                    start = end
                    break
            else:
                return unknown
        return tokens


def basic_words(text):
    """Yield the words of BERT's basic tokenization as (word, the index in `text` of each of its characters).

    White space separates words; each Han character and each punctuation mark is a word of its own.
    """
    characters, places = [], []
    for place, character in enumerate(text):
        alone = is_punctuation(character) or is_cjk(character)
        if alone or is_space(character):
            if characters:
                yield "".join(characters), places
                characters, places = [], []
            if alone:
                yield character, [place]
        elif not is_dropped(character):
            characters.append(character)
            places.append(place)
    if characters:
        yield "".join(characters), places
