"""The workflows, the hooks of pre-commit and .ci/run call targets of the Makefile, with no more rights than they
need."""

import re
from configparser import ConfigParser

import pytest
import yaml
from helpers.paths import REPOSITORY

WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
}
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE))
MATRIX = re.compile(r"\$\{\{ matrix\.(\w+) \}\}")
RELEASE = 'gh release create "$GITHUB_REF_NAME" dist/* '


def jobs():
    return [(name, job, settings) for name, flow in WORKFLOWS.items() for job, settings in flow["jobs"].items()]


def runs(settings: dict) -> set[str]:
    """The commands of a job, with every value of its matrix."""
    found = set()
    for step in settings.get("steps", []):
        if command := step.get("run"):
            parameter = MATRIX.search(command)
            values = settings["strategy"]["matrix"][parameter[1]] if parameter else [None]
            found |= {MATRIX.sub(str(value), command) for value in values}
    return found


def targets_of(commands) -> set[str]:
    return {command.split()[1] for command in commands if command.startswith("make ")}


def test_every_step_is_a_target_of_the_makefile_or_makes_the_release():
    commands = {name: set() for name in WORKFLOWS}
    for name, _, settings in jobs():
        commands[name] |= runs(settings)
    others = [command for found in commands.values() for command in found if not command.startswith("make ")]
    assert len(others) == 1 and others[0].startswith(RELEASE) and others[0] in commands["release.yml"]
    for found in commands.values():
        assert targets_of(found) <= TARGETS


def test_ci_runs_the_targets_of_the_local_script():
    script = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    local = set(re.findall(r"\bmake ([\w-]+)", script))
    remote = set().union(*(targets_of(runs(settings)) for name, _, settings in jobs() if name != "release.yml"))
    assert local == remote - {"test-floors"} | {"test-floors-quick"}  # a part of it


def test_python_versions_begin_with_the_lowest_that_the_package_takes():
    settings = ConfigParser()
    settings.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    job = WORKFLOWS["ci.yml"]["jobs"]["test"]
    versions = job["strategy"]["matrix"]["python"]
    assert settings["options"]["python_requires"] == f">={versions[0]}"
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert job["continue-on-error"] == "${{ matrix.python == '3.14' }}"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_reads_only_and_one_job_makes_the_release(name):
    flow = WORKFLOWS[name]
    assert flow["permissions"] == {"contents": "read"}
    allowed = {job: settings["permissions"] for job, settings in flow["jobs"].items() if "permissions" in settings}
    assert allowed == ({"release": {"contents": "write"}} if name == "release.yml" else {})


def test_actions_are_those_of_github_and_named_by_their_major_version():
    used = [step["uses"] for _, _, settings in jobs() for step in settings.get("steps", []) if "uses" in step]
    assert len(used) > 8
    assert [action for action in used if not re.fullmatch(r"actions/[\w-]+@v\d+", action)] == []
    called = {settings["uses"] for _, _, settings in jobs() if "uses" in settings}
    assert called == {"./.github/workflows/build.yml"}


def test_only_a_tag_starts_a_release_of_the_checked_files():
    flow = WORKFLOWS["release.yml"]
    assert flow[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key `on` as True
    assert flow["jobs"]["release"]["needs"] == "build"
    assert flow["jobs"]["build"]["with"] == {"tag": "${{ github.ref_name }}"}
    build = WORKFLOWS["build.yml"]["jobs"]["build"]
    assert build["env"]["TAG"] == "${{ inputs.tag }}" and runs(build) == {"make dist"}


def test_nothing_is_uploaded_to_a_registry_of_packages():
    texts = [path.read_text(encoding="utf-8") for path in (REPOSITORY / ".github" / "workflows").iterdir()]
    for text in [MAKEFILE, *texts]:
        assert not re.search(r"twine upload|id-token|gh-action-|publish|TWINE_|secrets\.", text)


def hooks() -> dict[str, dict]:
    settings = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repository["repo"] for repository in settings["repos"]] == ["local"]
    return {hook["id"]: hook for hook in settings["repos"][0]["hooks"]}


def test_hooks_of_pre_commit_use_the_environment_of_the_makefile():
    for name, hook in hooks().items():
        assert {"id", "name", "entry", "language"} <= hook.keys()
        if name != "commit-subject":
            program, *words = hook["entry"].split()
            assert (program == "make" and words[0] in TARGETS) or program.startswith(".venv/bin/")
            assert hook["language"] == "system"


@pytest.mark.parametrize(
    ("message", "refused"),
    [("a" * 72, False), ("a" * 73, True), (f"{'a' * 72}\n\n{'b' * 100}\n", False), (f"{'a' * 73}\n\nb\n", True)],
)
def test_a_commit_subject_has_at_most_72_characters(message, refused):
    hook = hooks()["commit-subject"]
    assert (hook["language"], hook["args"], hook["stages"]) == ("pygrep", ["--multiline"], ["commit-msg"])
    # pre-commit searches the whole message, with these flags, and refuses what it finds.
    assert bool(re.search(hook["entry"], message, re.MULTILINE | re.DOTALL)) is refused


def test_reports_ask_for_versions_and_name_the_policy_for_security():
    form = yaml.safe_load((REPOSITORY / ".github" / "ISSUE_TEMPLATE" / "bug.yml").read_text(encoding="utf-8"))
    fields = {part["id"]: part for part in form["body"] if "id" in part}
    assert fields["versions"]["validations"] == {"required": True}
    for command in ("roformer --version", "transformers env"):
        assert command in fields["versions"]["attributes"]["description"]
    assert "SECURITY.md" in str(form["body"][0]) and (REPOSITORY / "SECURITY.md").is_file()
