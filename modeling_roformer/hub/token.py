"""Whose requests these are."""

from huggingface_hub import get_token


def usable_token(token: str | None) -> str | None:
    """The token given, or that of HF_TOKEN or of the login file.

    Raises:
        ValueError: where it cannot be one; libraries would show it in their errors.
    """
    token = token or get_token()
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError("the token for the Hub holds a character that no token has: copy it again")
    return token
