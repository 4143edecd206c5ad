"""The workflows, the hooks of pre-commit and .ci/run call targets of the Makefile, with the rights they need alone."""

import re
from configparser import ConfigParser

import pytest
import yaml
from helpers.paths import REPOSITORY

GITHUB = REPOSITORY / ".github"
WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((GITHUB / "workflows").glob("*.yml"))
}
JOBS = [(name, job) for name, flow in WORKFLOWS.items() for job in flow["jobs"].values()]
STEPS = [step for _, job in JOBS for step in job.get("steps", [])]
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE))
MATRIX = re.compile(r"\$\{\{ matrix\.(\w+) \}\}")


def commands(workflow: str) -> set[str]:
    """Return the commands of a workflow, with every value of a job's matrix."""
    found = set()
    for job in (job for name, job in JOBS if name == workflow):
        for command in (step["run"] for step in job.get("steps", []) if "run" in step):
            parameter = MATRIX.search(command)
            values = job["strategy"]["matrix"][parameter[1]] if parameter else [None]
            found |= {MATRIX.sub(str(value), command) for value in values}
    return found


def targets_of(commands) -> set[str]:
    return {command.split()[1] for command in commands if command.startswith("make ")}


def test_every_step_is_a_target_of_the_makefile_or_makes_the_release():
    every = set().union(*map(commands, WORKFLOWS))
    (release,) = (command for command in every if not command.startswith("make "))
    assert release.startswith('gh release create "$GITHUB_REF_NAME" dist/* ') and release in commands("release.yml")
    assert targets_of(every) <= TARGETS


def test_ci_runs_the_targets_of_the_local_script():
    local = set(re.findall(r"\bmake ([\w-]+)", (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")))
    remote = targets_of(commands("ci.yml") | commands("build.yml"))
    assert local == remote


def test_python_versions_begin_with_the_lowest_that_the_package_takes():
    settings = ConfigParser()
    settings.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    job = WORKFLOWS["ci.yml"]["jobs"]["test"]
    versions = job["strategy"]["matrix"]["python"]
    assert settings["options"]["python_requires"] == f">={versions[0]}"
    assert job["continue-on-error"] == f"${{{{ matrix.python == '{versions[-1]}' }}}}"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_reads_only_and_one_job_makes_the_release(name):
    flow = WORKFLOWS[name]
    assert flow["permissions"] == {"contents": "read"}
    allowed = {job: settings["permissions"] for job, settings in flow["jobs"].items() if "permissions" in settings}
    assert allowed == ({"release": {"contents": "write"}} if name == "release.yml" else {})


def test_actions_are_those_of_github_and_named_by_their_major_version():
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert len(used) > 8 and all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in used)
    assert {job["uses"] for _, job in JOBS if "uses" in job} == {"./.github/workflows/build.yml"}


def test_only_a_tag_starts_a_release_of_the_checked_files():
    flow = WORKFLOWS["release.yml"]
    assert flow[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key `on` as True
    assert flow["jobs"]["release"]["needs"] == "build"
    assert flow["jobs"]["build"]["with"] == {"tag": "${{ github.ref_name }}"}
    assert WORKFLOWS["build.yml"]["jobs"]["build"]["env"]["TAG"] == "${{ inputs.tag }}"
    assert commands("build.yml") == {"make dist"}


def test_nothing_is_uploaded_to_a_registry_of_packages():
    for text in [MAKEFILE, *(path.read_text(encoding="utf-8") for path in (GITHUB / "workflows").iterdir())]:
        assert not re.search(r"twine upload|id-token|gh-action-|publish|TWINE_|secrets\.", text)


def test_hooks_of_pre_commit_use_the_environment_of_the_makefile():
    settings = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (repository,) = settings["repos"]
    hooks = {hook["id"]: hook for hook in repository["hooks"]}
    assert repository["repo"] == "local"
    subject = hooks.pop("commit-subject")  # pre-commit searches the whole message, with these flags
    for length, refused in (72, False), (73, True):
        found = re.search(subject["entry"], f"{'a' * length}\n\n{'b' * 100}\n", re.MULTILINE | re.DOTALL)
        assert bool(found) is refused
    for hook in hooks.values():
        program, *words = hook["entry"].split()
        assert (program == "make" and words[0] in TARGETS) or program.startswith(".venv/bin/")


def test_reports_ask_for_versions_and_name_the_policy_for_security():
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "bug.yml").read_text(encoding="utf-8"))
    (versions,) = (part for part in form["body"] if part.get("id") == "versions")
    assert versions["validations"] == {"required": True}
    for command in ("roformer --version", "transformers env"):
        assert command in versions["attributes"]["description"]
    assert "SECURITY.md" in str(form["body"][0]) and (REPOSITORY / "SECURITY.md").is_file()
