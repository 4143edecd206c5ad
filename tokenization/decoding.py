"""Text of tokens. Tokens do not record spaces, so rules put them back where they most likely were."""

import functools
import re
from enum import Enum

from .wordpiece import PREFIX

# Han, kana and their punctuation.
_CHINESE = re.compile(
    "[\u2e80-\u2fdf\u3000-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)

Kind = Enum("Kind", "CHINESE LETTER DIGIT OTHER")  # of a character
Role = Enum("Role", "WORD MARK STOP CLOSING OPENING SPACED QUOTE")  # of a token

_ROLES = {
    **dict.fromkeys(",;:.!?", Role.STOP),
    **dict.fromkeys(")]}%", Role.CLOSING),
    **dict.fromkeys("([{$", Role.OPENING),
    **dict.fromkeys("&<>|", Role.SPACED),
    **dict.fromkeys("\"'", Role.QUOTE),
}
_CONTRACTIONS = frozenset(["s", "t", "m", "d", "re", "ve", "ll"])
_ADDRESS_SIGNS = frozenset(["@", "_", "\\", "www"])
_ADDRESS_BREAKS = frozenset(",;)]}\"'")
_DOMAINS = ("com", "cn", "net", "org", "gov", "edu", "io")
_FILE_TYPES = ("html", "htm", "php", "txt", "md", "py", "pdf", "json", "jpg", "png")
_ADDRESS_ENDINGS = frozenset(_DOMAINS + _FILE_TYPES)


def _kind(character):
    if _CHINESE.match(character):
        return Kind.CHINESE
    if character.isdecimal():
        return Kind.DIGIT
    return Kind.LETTER if character.isalpha() else Kind.OTHER


@functools.lru_cache(maxsize=1 << 16)
def _read(token):
    """Return (kind of the first character, kind of the last character, role) of a token, which is not empty."""
    first, last = _kind(token[0]), _kind(token[-1])
    is_mark = len(token) == 1 and first is Kind.OTHER
    return first, last, _ROLES.get(token, Role.MARK) if is_mark else Role.WORD


def join_tokens(tokens):
    """Return the text of tokens, with spaces by these rules:

    1. A "##" piece continues its word.
    2. There is no space beside a Chinese character: Han, kana and their punctuation.
    3. There is a space between two words, which are tokens of letters or digits. Exceptions: single letters beyond
       ASCII, into which jieba splits the words of other scripts, join each other, and "μ" joins its unit.
    4. A mark (one character, neither letter nor digit) joins both of its neighbours: covid-19, 2024-01-02, -5, 25℃,
       a/b, x=1, “ab”. Rules 5 to 9 are the exceptions.
    5. In Latin text there is a space after , ; : . ) ] } % and before ( [ { $, unless another mark is beside them:
       "one (two), three", but 用PCR(一种方法). A text is Latin at its start, and after two words with a space between
       them, until the next Chinese character. In any text, there is a space after ! and ?, after a period between Latin
       words ("J. Smith") and after a comma between a Latin word and a number.
    6. Numbers stay whole: a period or a colon between digits (3.5, 1.2.3, 12:30), a period between a letter and a digit
       (no.5), a comma between digits if a token of three digits follows (1,200).
    7. Addresses stay whole: from "//", "@", "_", "\\" or "www" to the next space, Chinese character, quotation mark or
       one of , ; ) ] }. Elsewhere a period joins an ending such as com, html or txt.
    8. & < > and | have a space on both sides, except beside another mark.
    9. A quotation mark (" or ') opens a quotation, and the next one closes it: they join the quoted text, and follow
       rule 5 outside it. A ' behind a word, with no quotation open, is an apostrophe.

    Args:
        tokens: list of str, entries of the vocabulary.

    Returns:
        str. A space depends on the tokens before it and the one token behind it. So the text of the first n tokens is a
        prefix of the text of more tokens, and a streamer can print it.
    """
    text = _Text()
    for token in tokens:
        if token.startswith(PREFIX) and text.parts:
            text.continue_word(token[len(PREFIX) :])
        elif token:
            text.add(token)
    return "".join(text.parts)


class _Text:
    """Text that grows token by token, by the rules of `join_tokens`."""

    def __init__(self):
        self.parts = []
        self.token = ""  # the last token; empty if pieces continue it
        self.role = None  # the last token's
        self.kind = None  # the last character's
        self.kind_before = None  # that of the character before the last token
        self.is_latin = True
        self.in_address = False
        self.open_quotes = set()

    def continue_word(self, piece):
        if piece:
            self.parts.append(piece)
            self.token, self.role = "", Role.WORD
            self.kind = _kind(piece[-1])

    def add(self, token):
        first, last, role = _read(token)
        if role is Role.QUOTE:
            role = self._role_of_quote(token)
        space = bool(self.parts) and self._needs_space(token, first, role)
        if space:
            self.parts.append(" ")
        if token in _ADDRESS_SIGNS or (token == "/" and self.token == "/"):
            self.in_address = True
        elif space or first is Kind.CHINESE or token in _ADDRESS_BREAKS:
            self.in_address = False
        if last is Kind.CHINESE:
            self.is_latin = False
        elif space and role is Role.WORD and last is Kind.LETTER:
            self.is_latin = True
        self.parts.append(token)
        self.kind_before, self.kind = self.kind, last
        self.token, self.role = token, role

    def _role_of_quote(self, quote):
        if quote in self.open_quotes:
            self.open_quotes.discard(quote)
            return Role.CLOSING
        if quote == "'" and self.role is Role.WORD:
            return Role.MARK
        self.open_quotes.add(quote)
        return Role.OPENING

    def _needs_space(self, token, first, role):
        if first is Kind.CHINESE or self.kind is Kind.CHINESE:
            return False
        if self.role is Role.WORD and role is Role.WORD:
            return not self._is_part_of_word(token, first)
        if self.in_address:
            return False
        if role is Role.SPACED:
            return self.role is Role.WORD or self.role is Role.CLOSING
        if self.role is Role.WORD:
            return role is Role.OPENING and self.is_latin
        if role is not Role.WORD and role is not Role.OPENING:
            return False
        if self.role is Role.CLOSING:
            return self.is_latin and not (self.token == "'" and token in _CONTRACTIONS)
        return self.role is Role.SPACED or (self.role is Role.STOP and self._ends_before(token, first))

    def _is_part_of_word(self, token, first):
        if token[0] in ".,?!'":  # as in an added token "..."
            return True
        if self.token in ("μ", "µ"):
            return first is Kind.LETTER
        # jieba splits words of other scripts into letters.
        both = self.token, token
        return all(len(one) == 1 and not one.isascii() and _read(one)[0] is Kind.LETTER for one in both)

    def _ends_before(self, token, first):
        """Return whether the text's final stop ends a phrase: `token` does not continue a number or address."""
        kinds = self.kind_before, first
        if self.token == ".":
            if first is Kind.DIGIT and self.kind_before in (Kind.DIGIT, Kind.LETTER):
                return False
            if kinds == (Kind.LETTER, Kind.LETTER):
                return token not in _ADDRESS_ENDINGS
        elif self.token == "," and kinds == (Kind.LETTER, Kind.DIGIT):
            return True
        elif kinds == (Kind.DIGIT, Kind.DIGIT) and (self.token == ":" or (self.token == "," and len(token) == 3)):
            return False
        return self.is_latin or self.token in "!?"
