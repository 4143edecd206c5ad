"""What keeps other users of this machine out of a Ray that runs here.

A Ray runs any code that is sent with its token. By default Ray 2.60 writes that token where every user may read it, in
~/.ray/auth_token, and its sockets and logs into folders in which every user may write, in /tmp/ray.
"""

import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..output.atomic_folder import temporary_sibling
from .errors import ClusterError

_TOKEN, _TOKEN_FILE, _MODE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"
_ROOM = 16  # characters of the path of a folder for temporary files, since a socket's path has at most 107 bytes
_PATIENCE = 5  # seconds in which the processes of a Ray that has been shut down end


@contextmanager
def private_session() -> Iterator[Path]:
    """A folder for the session of a Ray on this machine, which no other user can enter, and a token for this session alone.

    The token is in the environment of this process and of those that it starts, and in no file. When the block ends the
    folder is removed and the environment is what it was. Of a killed process the next session removes the folder.
    """
    place = Path(tempfile.gettempdir())
    if len(os.fsencode(place)) > _ROOM:
        place = Path("/tmp")
    before = {name: os.environ.get(name) for name in (_TOKEN, _TOKEN_FILE, _MODE)}
    with temporary_sibling(place / "ray", mode=0o700) as private:
        os.environ[_TOKEN] = secrets.token_hex(32)
        for name in (_TOKEN_FILE, _MODE):  # the second might say that no token is needed
            os.environ.pop(name, None)
        _read_anew()
        try:
            yield private / "r"  # Ray lets every user into the folder that it is given, so that one lies in ours
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
            _read_anew()
            _end_processes(private)
            _remove(private)


def _read_anew() -> None:
    """Let Ray forget the token and the mode that it has read from the environment, which it does once in a process."""
    from ray._raylet import AuthenticationTokenLoader, Config

    AuthenticationTokenLoader.instance().reset_cache()
    Config.initialize("")


def _end_processes(folder: Path) -> None:
    """End what an interrupted start has left, which Ray would do once this process has ended."""
    import psutil  # comes with Ray

    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any(str(folder) in word for word in process.cmdline()):
                process.kill()


def _remove(folder: Path) -> None:
    """Remove a folder into which processes that are about to end may still write."""
    end = time.monotonic() + _PATIENCE
    while folder.exists() and time.monotonic() < end:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            time.sleep(0.05)


def check_token_file() -> None:
    """Raise a ClusterError where other users can read the token with which this user joins clusters.

    A token that comes from elsewhere than ~/.ray/auth_token is the business of who put it there.
    """
    if os.name != "posix" or any(os.environ.get(name) for name in (_TOKEN, _TOKEN_FILE)):
        return
    path = Path(os.path.expanduser("~/.ray/auth_token"))
    try:
        found = path.resolve(strict=True)
        status = found.stat()
    except OSError:  # Ray says so, where it needs one
        return
    if status.st_uid not in (os.getuid(), 0):
        raise ClusterError(f"{path} belongs to another user, who thus chooses your token of Ray: make one of your own")
    for reads, enters in ((stat.S_IROTH, stat.S_IXOTH), (stat.S_IRGRP, stat.S_IXGRP)):
        if status.st_mode & reads and all(folder.stat().st_mode & enters for folder in found.parents):
            raise ClusterError(
                f"{path} can be read by other users of this machine, who can then run code as you on the cluster: "
                f"`chmod 600 {path}`, or make a new token if they are not to be trusted"
            )
