"""One commit on the Hub, made exactly once, even if the response is lost."""

from collections.abc import Callable, Sequence

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.hf_api import ModelInfo, RepoFile

from .checksums import sums_of
from .errors import BROKEN_CONNECTION, HubError, RetriesExhausted, Unanswered, reason_of
from .replaced_weights import replaced
from .retries import BUSY, RetryBudget, clock

Operation = CommitOperationAdd | CommitOperationDelete


def commit_once(
    api: HfApi,
    repo_id: str,
    additions: Sequence[CommitOperationAdd],
    message: str,
    revision: str | None,
    budget: RetryBudget,
) -> None:
    """Add files to a branch, and delete the weights that they replace, in one commit.

    The commit names its parent, so the Hub accepts it only if nobody else has changed the branch. If a response is
    lost, the branch is checked before the commit is sent again.

    Raises:
        HubError: somebody else changed the branch, or it is unknown whether the commit was made.
        HfHubHTTPError: any other error from the Hub.
    """
    parent = api.model_info(repo_id, revision=revision)
    operations = _operations(parent, additions)

    def made() -> bool:
        head = api.model_info(repo_id, revision=revision).sha
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

    _once(send, made, repo_id, budget)


def propose_once(
    api: HfApi,
    repo_id: str,
    additions: Sequence[CommitOperationAdd],
    message: str,
    revision: str | None,
    budget: RetryBudget,
) -> str:
    """Open a pull request that adds and deletes as `commit_once` does; return its address. Raises the same errors."""
    operations = _operations(api.model_info(repo_id, revision=revision), additions)
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
            raise HubError(f"{repo_id} already has all of these files, so no pull request was opened")
        return commit.pr_url

    return _once(send, made, repo_id, budget)


def _once(send: Callable, made: Callable, repo_id: str, budget: RetryBudget):
    """Return the result of `send`, or of `made` if an earlier try succeeded although its response was lost."""
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
                budget.wait(error if response is None else response, tried, since)
                ended = None
            except RetriesExhausted as exhausted:
                ended = exhausted
            try:
                if result := made():
                    return result
            except RetriesExhausted as exhausted:
                ended = exhausted
            if ended is not None:
                if status == 429:
                    raise ended from error
                raise Unanswered(
                    f"{reason_of(ended, repo_id)}; the commit had been sent, so check {repo_id} on the Hub before "
                    "pushing again"
                ) from error


def _pull_requests(api: HfApi, repo_id: str) -> list:
    return list(api.get_repo_discussions(repo_id, discussion_type="pull_request", discussion_status="open"))


def _operations(parent: ModelInfo, additions: Sequence[CommitOperationAdd]) -> list[Operation]:
    """Return the additions, and the deletions of the weights that they replace in the parent commit."""
    written = {addition.path_in_repo for addition in additions}
    existing = [file.rfilename for file in parent.siblings or ()]
    return [*additions, *(CommitOperationDelete(path_in_repo=name) for name in replaced(existing, written))]


def _holds(api: HfApi, repo_id: str, revision: str | None, operations: list[Operation]) -> bool:
    """Return whether a revision has all added files, with their content, and none of the deleted ones."""
    paths = [operation.path_in_repo for operation in operations]
    existing = {file.path: file for file in api.get_paths_info(repo_id, paths, revision=revision)}
    for operation in operations:
        file = existing.get(operation.path_in_repo)
        if isinstance(operation, CommitOperationDelete):
            if file is not None:
                return False
            continue
        with operation.as_file() as content:
            sums = sums_of(content)
        if not isinstance(file, RepoFile) or not sums.fits(file.blob_id):
            return False
    return True
