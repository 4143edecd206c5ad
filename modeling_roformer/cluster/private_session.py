"""Protection of a Ray on this machine from other users of the machine.

Ray runs any code that is sent with its token. By default Ray 2.60 writes the token to ~/.ray/auth_token, which every
user can read, and its sockets and logs to /tmp/ray, where every user can write.
"""

import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..files.atomic_folder import temporary_sibling
from ..files.lock import remove_folder
from .address import ClusterError

_TOKEN, _TOKEN_FILE, _MODE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"
_LONGEST_TEMPORARY = 16  # bytes of the temporary folder's path, since a socket's path has at most 107 bytes
_SHUTDOWN = 10  # seconds in which Ray's processes end after a shutdown


@contextmanager
def private_session() -> Iterator[Path]:
    """Yield a folder for the session of a Ray on this machine that no other user can enter, and set a token for it.

    The token is in the environment of this process and its children, and in no file. At the end the folder is removed
    and the environment is restored. The folder of a killed process is removed by the next session.
    """
    place = Path(tempfile.gettempdir())
    if len(os.fsencode(place)) > _LONGEST_TEMPORARY:
        place = Path("/tmp")
    before = {name: os.environ.get(name) for name in (_TOKEN, _TOKEN_FILE, _MODE)}
    with temporary_sibling(place / "ray", mode=0o700, remove=_remove) as private:
        os.environ[_TOKEN] = secrets.token_hex(32)
        for name in (_TOKEN_FILE, _MODE):  # _MODE might switch tokens off
            os.environ.pop(name, None)
        _read_anew()
        try:
            yield private / "r"  # Ray opens the folder that it gets to every user, so it gets one inside
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
            _read_anew()


def _read_anew() -> None:
    """Make Ray read the token and the mode from the environment again, which it does only once per process."""
    from ray._raylet import AuthenticationTokenLoader, Config  # pyright: ignore[reportAttributeAccessIssue]

    AuthenticationTokenLoader.instance().reset_cache()
    Config.initialize("")


def _end_processes(folder: Path) -> bool:
    """End the processes that still use the folder, and return whether there were any.

    Ray would end those of an interrupted start after this process.
    """
    import psutil  # comes with Ray

    found = False
    for process in psutil.process_iter():  # not only children: the raylet's workers are orphans once it has ended
        with suppress(psutil.Error):
            if process.pid != os.getpid() and any(str(folder) in word for word in process.cmdline()):
                process.kill()
                found = True
    return found


def _remove(folder: Path) -> None:
    """Remove a folder into which processes may still write, those of a killed session too."""
    end = time.monotonic() + _SHUTDOWN
    while folder.exists() and time.monotonic() < end:
        if not _end_processes(folder):  # else they may have started others, which would make the folder again
            remove_folder(folder)
        if folder.exists():
            time.sleep(0.05)


def check_token_file() -> None:
    """Raise ClusterError if other users can read ~/.ray/auth_token, this user's token for clusters.

    A token from elsewhere is not checked.
    """
    if os.name != "posix" or any(os.environ.get(name) for name in (_TOKEN, _TOKEN_FILE)):
        return
    path = Path(os.path.expanduser("~/.ray/auth_token"))
    try:
        found = path.resolve(strict=True)
        status = found.stat()
    except OSError:  # Ray reports a missing token if it needs one
        return
    if status.st_uid not in (os.getuid(), 0):
        raise ClusterError(
            f"{path} belongs to another user (uid {status.st_uid}), who would know your token: create your own"
        )
    for reads, enters in ((stat.S_IROTH, stat.S_IXOTH), (stat.S_IRGRP, stat.S_IXGRP)):
        if status.st_mode & reads and all(folder.stat().st_mode & enters for folder in found.parents):
            raise ClusterError(
                f"other users can read {path}, and run code as you on the cluster: run `chmod 600 {path}`, or create a "
                "new token if you do not trust them"
            )
