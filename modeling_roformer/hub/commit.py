"""One commit on the Hub, made exactly once, even if the response is lost."""

from collections.abc import Callable

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.hf_api import ModelInfo

from ..weight_files import replaced
from .checksums import sums_of
from .errors import BROKEN_CONNECTION, HubError, OutOfPatience, Unanswered, reason_of
from .retries import BUSY, Patience, clock

Operation = CommitOperationAdd | CommitOperationDelete


def commit_once(
    api: HfApi,
    repo_id: str,
    additions: list[CommitOperationAdd],
    message: str,
    revision: str | None,
    patience: Patience,
) -> None:
    """Adds files to a branch, and deletes the weights that they replace, in one commit.

    The commit names its parent, so the Hub accepts it only if nobody else has changed the branch. If a response is
    lost, the branch is checked before the commit is sent again.

    Raises:
        HubError: if somebody else changed the branch, or if it is unknown whether the commit was made.
        HfHubHTTPError: any other error from the Hub.
    """
    parent = api.repo_info(repo_id, revision=revision)
    operations = _operations(parent, additions)

    def made() -> bool:
        head = api.repo_info(repo_id, revision=revision).sha
        if head == parent.sha:
            return False
        if _holds(api, repo_id, head, operations):
            return True
        raise Unanswered(
            f"{repo_id} was changed while the commit got no response, and does not have what was sent: check it on the "
            "Hub before pushing again"
        )

    def send() -> bool:
        api.create_commit(repo_id, operations, commit_message=message, revision=revision, parent_commit=parent.sha)
        return True

    _once(send, made, repo_id, patience)


def propose_once(
    api: HfApi,
    repo_id: str,
    additions: list[CommitOperationAdd],
    message: str,
    revision: str | None,
    patience: Patience,
) -> str:
    """Opens a pull request that adds and deletes as `commit_once`, and returns its address. Raises as that does."""
    operations = _operations(api.repo_info(repo_id, revision=revision), additions)
    known = {request.num for request in _pull_requests(api, repo_id)}

    def made() -> str | None:
        for request in _pull_requests(api, repo_id):
            new = request.num not in known and request.title == message
            if new and _holds(api, repo_id, f"refs/pr/{request.num}", operations):
                return request.url
        return None

    def send() -> str:
        commit = api.create_commit(repo_id, operations, commit_message=message, revision=revision, create_pr=True)
        if commit.pr_url is None:  # huggingface_hub sends no commit that changes nothing
            raise HubError(f"{repo_id} already has all of this, so no pull request was opened")
        return commit.pr_url

    return _once(send, made, repo_id, patience)


def _once(send: Callable, made: Callable, repo_id: str, patience: Patience):
    tried, since = 0, None
    while True:
        try:
            return send()
        except (HfHubHTTPError, *BROKEN_CONNECTION) as error:
            response = getattr(error, "response", None)
            status = None if response is None else response.status_code
            if status is not None and status not in BUSY:
                if status == 412 and tried and (result := made()):  # an earlier one arrived late
                    return result
                raise
            tried += 1
            since = clock() if since is None else since
            try:
                patience.wait(error if response is None else response, tried, since)
                ended = None
            except OutOfPatience as out:
                ended = out
            try:
                if result := made():
                    return result
            except OutOfPatience as out:
                ended = out
            if ended is not None:
                if status == 429:
                    raise ended from error
                raise Unanswered(
                    f"{reason_of(ended, repo_id)}; the commit had been sent, so check {repo_id} on the Hub before "
                    "pushing again"
                ) from error


def _pull_requests(api: HfApi, repo_id: str) -> list:
    return list(api.get_repo_discussions(repo_id, discussion_type="pull_request", discussion_status="open"))


def _operations(parent: ModelInfo, additions: list[CommitOperationAdd]) -> list[Operation]:
    """Everything that a commit does, on the files that its parent has."""
    written = {addition.path_in_repo for addition in additions}
    there = [file.rfilename for file in parent.siblings or ()]
    return [*additions, *(CommitOperationDelete(path_in_repo=name) for name in replaced(there, written))]


def _holds(api: HfApi, repo_id: str, revision: str, operations: list[Operation]) -> bool:
    """Whether a revision has all of the files that were added, with their content, and none that were deleted."""
    paths = [operation.path_in_repo for operation in operations]
    there = {file.path: file for file in api.get_paths_info(repo_id, paths, revision=revision)}
    for operation in operations:
        file = there.get(operation.path_in_repo)
        if isinstance(operation, CommitOperationDelete):
            if file is not None:
                return False
            continue
        with operation.as_file() as content:
            sums = sums_of(content)
        if file is None or not sums.fits(file.blob_id):
            return False
    return True
