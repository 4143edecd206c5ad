"""What is said of an error on the command line."""


def sentence_of(error: BaseException) -> str:
    """One line: the text of the error, of one of the system without its number, or else what kind of error it is."""
    sentence = str(error)
    if isinstance(error, OSError) and error.strerror:  # without "[Errno 2]"
        sentence = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(sentence.split()) or type(error).__name__
