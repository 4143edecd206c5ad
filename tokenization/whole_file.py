"""A text file that is written whole or not at all."""

import os
import shutil
import tempfile


def write_whole(path, text):
    """Write UTF-8 beside the file's final name, then rename it, so that no half file is ever seen.

    A file that is replaced hands on its mode, and a link makes room for the file; line breaks stay as they are in the text.
    """
    folder, name = os.path.split(os.path.abspath(path))
    descriptor, beside = tempfile.mkstemp(dir=folder, prefix=f".{name[:50]}")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        if os.path.exists(path):
            shutil.copymode(path, beside)
        else:
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(beside, 0o666 & ~umask)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
