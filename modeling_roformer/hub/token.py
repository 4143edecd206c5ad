"""The token that requests to the Hub are made with."""

from huggingface_hub import get_token


def usable_token(token: str | None) -> str | None:
    """The given token, or the one from HF_TOKEN or the login file.

    Raises:
        ValueError: if it cannot be one; libraries would show it in their errors.
    """
    token = token or get_token()
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError("the token for the Hub has a character that is not allowed in tokens: copy it again")
    return token
