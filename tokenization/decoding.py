"""Text of tokens. Tokens do not record spaces, so rules put them back where they most likely were."""

import re
from collections.abc import Iterable

from .wordpiece import PREFIX

# Han, kana and their punctuation.
_CHINESE = re.compile(
    "[\u2e80-\u2fdf\u3000-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)
_CLOSING = frozenset(",;:.!?)]}%")
_OPENING = frozenset("([{$")


def join_tokens(tokens: Iterable[str]) -> str:
    """Return the text of tokens, with spaces by these rules:

    1. A "##" piece continues its word.
    2. There is no space beside a Chinese character: Han, kana and their punctuation.
    3. There is a space between two words, which are tokens of letters or digits.
    4. A mark (one character, neither letter nor digit) joins both of its neighbours: covid-19, 2024-01-02, 25℃, a/b,
       “ab”. In Latin text, rule 5 is the exception.
    5. In Latin text there is a space after , ; : . ! ? ) ] } % and before ( [ { $, unless another mark is beside them:
       "one (two), three", but 用pcr(一种方法). A text is Latin at its start, and after two words with a space between
       them, until the next Chinese character.
    6. Numbers stay whole: a period or a colon between digits (3.5, 12:30), a comma between digits if a token of three
       digits follows (1,200).

    Args:
        tokens: entries of the vocabulary.

    Returns:
        The text. A space depends on the tokens before it and the one token behind it. So the text of the first n tokens
        is a prefix of the text of more tokens, and a streamer can print it.
    """
    parts = []
    before = last = " "  # the last token, and the character before that one
    is_latin = True
    for token in filter(None, tokens):
        if token.startswith(PREFIX) and parts:
            parts.append(token[len(PREFIX) :])
            last += parts[-1]
            continue
        if parts and _needs_space(before, last, token, is_latin):
            parts.append(" ")
            is_latin = is_latin or token[-1].isalpha()
        if _CHINESE.match(token[-1]):
            is_latin = False
        parts.append(token)
        before, last = last[-1], token
    return "".join(parts)


def _needs_space(before: str, last: str, token: str, is_latin: bool) -> bool:
    """Return whether there is a space between two tokens; `before` is the character before the first one."""
    if _CHINESE.match(last[-1]) or _CHINESE.match(token[0]):
        return False
    if _is_word(last) and _is_word(token):
        return True
    if not is_latin or not (_is_word(token) or token in _OPENING):
        return False
    if _is_word(last):
        return token in _OPENING
    if before.isdecimal() and token[0].isdecimal() and (last in (".", ":") or (last == "," and len(token) == 3)):
        return False
    return last in _CLOSING


def _is_word(token: str) -> bool:
    return len(token) > 1 or token.isalnum()
