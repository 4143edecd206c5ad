"""From words to ids: whole where the vocabulary has the word, else basic tokenization and WordPiece.

What becomes of a word depends on nothing but the word, so each is worked out once and remembered.
"""

from .characters import is_cjk, is_dropped, is_punctuation, is_space

PREFIX = "##"
LONGEST_WORD = 200  # characters; what is longer is unknown as a whole
_REMEMBERED = 1 << 17  # words; a corpus has more, so the memory starts anew when it is full
_REMEMBERED_LENGTH = 32  # characters; longer ones hardly come back


class Memory(dict):
    """A dict that works out what it does not have, and forgets all when it is full."""

    def __init__(self, work_out):
        super().__init__()
        self.work_out = work_out

    def __missing__(self, word):
        value = self.work_out(word)
        if len(word) <= _REMEMBERED_LENGTH:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[word] = value
        return value


class WordPiece:
    """Ids of words.

    Args:
        vocabulary: dict of entry -> id.
        unk_id: id of what cannot be put together from entries.
        normalizer: applied once more to what is not an entry, as bert4keras does.
        whole_words: look a word up as it is first; False at character level.

    Attributes:
        ids: mapping of word -> tuple of ids.
        spans: mapping of word -> (n, [(start, end, k), ...]): for each id its first and last + 1 character in the
            word, and which of the n words of basic tokenization it belongs to.
    """

    def __init__(self, vocabulary, unk_id, normalizer, whole_words):
        self.vocabulary = vocabulary
        self.unk_id = unk_id
        self.normalizer = normalizer
        self.whole_words = whole_words
        self.longest_entry = max(map(len, vocabulary))
        self.ids = Memory(lambda word: tuple([piece[0] for piece in self.pieces(word)]))
        self.spans = Memory(self._spans)

    def __reduce__(self):  # without what is remembered, so that use changes neither pickles nor fingerprints
        return type(self), (self.vocabulary, self.unk_id, self.normalizer, self.whole_words)

    def _spans(self, word):
        pieces = self.pieces(word)
        return (pieces[-1][3] + 1 if pieces else 0), [piece[1:] for piece in pieces]

    def pieces(self, word):
        """List of (id, start, end, k); see `spans`."""
        if self.whole_words and word in self.vocabulary:
            # A file may have white space as an entry (U+2028); bert4keras never gives it.
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
        """WordPiece: the longest entry that starts the word, then the longest "##" entry that goes on from there.

        Returns:
            list of (id, start, end); one unknown token where any part of the word is in no entry.
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
    """BERT's basic tokenization: words end at white space, and every Han character and every punctuation mark is one.

    Yields:
        (characters, places): the word, and where in `text` each of its characters stands.
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
