"""The workflows: pinned, with few rights and bounds in time, and each thing that docs/support.md says is tested."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".github" / "workflows"
NAMES = sorted(path.name for path in FOLDER.glob("*.y*ml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
#: The rights to write that a job has, each for a reason; everything else may read, or not even that.
WRITES = {
    ("codeql.yaml", "analyze"): {"security-events"},
    ("scorecard.yaml", "scorecard"): {"security-events", "id-token"},
    ("test.yaml", "coverage"): {"id-token"},
    ("release.yaml", "attach"): {"contents"},
    ("release.yaml", "publish"): {"id-token"},
}


def workflow(name):
    found = yaml.safe_load((FOLDER / name).read_text())
    found["on"] = found.pop(True)  # YAML's word for yes
    return found


def jobs(name):
    return workflow(name)["jobs"]


def steps(job):
    return job["steps"]


def uses(job, action):
    """What the steps that use an action are given."""
    return [step.get("with", {}) for step in steps(job) if step.get("uses", "").partition("@")[0] == action]


def commands(job):
    return "\n".join(step["run"] for step in steps(job) if "run" in step)


EVERY_JOB = [pytest.param(name, job, id=f"{name}-{job}") for name in NAMES for job in jobs(name)]


def test_every_workflow_is_known():
    assert [f"{name}.yaml" for name in ("build", "codeql", "lint", "nightly", "release", "scorecard", "test")] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_pinned_to_a_commit_and_say_its_version(name):
    lines = re.findall(r"^.*uses:.*$", (FOLDER / name).read_text(), re.MULTILINE)
    assert lines
    for line in lines:
        assert re.fullmatch(r"\s*(- )?uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_an_action_has_one_version():
    found = {}
    for use in chain.from_iterable(re.findall(r"uses: (\S+)", (FOLDER / name).read_text()) for name in NAMES):
        action, _, commit = use.partition("@")
        repository = "/".join(action.split("/")[:2])
        assert found.setdefault(repository, commit) == commit, repository


@pytest.mark.parametrize("name", NAMES)
def test_a_workflow_starts_with_few_rights_and_runs_once(name):
    found = workflow(name)
    assert found["permissions"] in ({}, {"contents": "read"})
    assert found["concurrency"]["group"]
    assert "cancel-in-progress" in found["concurrency"]
    assert "pull_request_target" not in found["on"]
    assert "workflow_run" not in found["on"]


@pytest.mark.parametrize(("name", "job"), EVERY_JOB)
def test_a_job_has_bounds_and_no_more_rights_than_it_needs(name, job):
    found = jobs(name)[job]
    assert 0 < found["timeout-minutes"] <= 45
    rights = found.get("permissions", {})
    assert {right for right, level in rights.items() if level == "write"} == WRITES.get((name, job), set())
    assert set(rights.values()) <= {"read", "write"}


@pytest.mark.parametrize(("name", "job"), EVERY_JOB)
def test_a_checkout_keeps_no_credentials(name, job):
    assert all(given["persist-credentials"] is False for given in uses(jobs(name)[job], "actions/checkout"))


@pytest.mark.parametrize(("name", "job"), EVERY_JOB)
def test_nothing_from_outside_is_pasted_into_a_script(name, job):
    assert "${{" not in commands(jobs(name)[job])


def test_what_runs_with_a_right_to_write_runs_nothing_of_ours():
    for name, job in WRITES:
        found = jobs(name)[job]
        assert not re.search(r"\b(pip|uv|uvx|python|make|pytest)\b", commands(found)), job


# ---- what is looked for ----------------------------------------------------------------------


def test_static_analysis_sees_the_package_and_the_workflows():
    (job,) = jobs("codeql.yaml").values()
    assert set(job["strategy"]["matrix"]["language"]) == {"python", "actions"}
    assert len(uses(job, "github/codeql-action/init")) == len(uses(job, "github/codeql-action/analyze")) == 1
    assert {"push", "pull_request", "schedule"} <= set(workflow("codeql.yaml")["on"])


def test_the_scorecard_is_published():
    (job,) = jobs("scorecard.yaml").values()
    (given,) = uses(job, "ossf/scorecard-action")
    assert given["publish_results"] is True
    # Else its service refuses the result.
    assert not commands(job)
    assert not {"env", "defaults"} & (set(workflow("scorecard.yaml")) | set(job))
    assert [one["sarif_file"] for one in uses(job, "github/codeql-action/upload-sarif")] == [given["results_file"]]


def test_coverage_is_published_by_an_identity_and_not_by_a_token():
    job = jobs("test.yaml")["coverage"]
    (given,) = uses(job, "codecov/codecov-action")
    assert given["use_oidc"] is True
    assert "token" not in given
    (kept,) = uses(jobs("test.yaml")["matrix"], "actions/upload-artifact")
    assert [one["name"] for one in uses(job, "actions/download-artifact")] == [kept["name"]]
    assert given["files"] == kept["path"]
    assert "secrets." not in "".join((FOLDER / name).read_text() for name in NAMES)


def test_a_release_lists_what_it_was_tested_with():
    found = jobs("release.yaml")
    made = commands(found["materials"])
    assert re.search(r"cyclonedx-bom==\d+\.\d+\.\d+ cyclonedx-py environment", made)
    assert "--constraints constraints.txt dist/*.whl" in made
    (kept,) = uses(found["materials"], "actions/upload-artifact")
    assert kept["if-no-files-found"] == "error"
    assert f'gh release upload "$TAG" {kept["path"]}' in commands(found["attach"])
    assert "materials" in found["publish"]["needs"]


# ---- versions --------------------------------------------------------------------------------


def matrix():
    return jobs("test.yaml")["matrix"]["strategy"]["matrix"]["include"]


def test_every_python_that_the_package_names_is_tested():
    prefix = "Programming Language :: Python :: "
    named = {c.removeprefix(prefix) for c in PROJECT["project"]["classifiers"] if c.startswith(f"{prefix}3.")}
    assert named == {"3.11", "3.12", "3.13", "3.14"}
    assert PROJECT["project"]["requires-python"] == f">={min(named)}"
    assert {one["python"] for one in matrix() if one["os"].startswith("ubuntu") and not one.get("install")} == named


@pytest.mark.parametrize("system", ["macos", "windows"])
def test_other_systems_are_tested_with_the_oldest_and_the_newest_python(system):
    assert {one["python"] for one in matrix() if one["os"].startswith(system)} == {"3.11", "3.14"}


def test_lower_bounds_are_tested_and_are_bounds():
    (oldest,) = [one for one in matrix() if "lowest-direct" in one.get("install", "")]
    assert oldest["python"] == "3.11"
    assert not oldest.get("experimental")
    extras = PROJECT["project"]["optional-dependencies"]
    bounds = [*PROJECT["project"]["dependencies"], *extras["dask"]]
    assert all(re.fullmatch(r"[\w-]+(\[[\w,]+\])?>=[\d.]+", bound) for bound in bounds), bounds


def test_only_windows_may_fail():
    assert {one["os"] for one in matrix() if one.get("experimental")} == {"windows-2025"}
    assert not [one["name"] for one in matrix() if one["os"].startswith("windows") and not one.get("experimental")]


def test_what_is_coming_is_tested_every_night():
    found = workflow("nightly.yaml")
    assert found["on"]["schedule"]
    (job,) = found["jobs"].values()
    packages = " ".join(one["packages"] for one in job["strategy"]["matrix"]["include"])
    assert {"anndata@git+https://github.com/scverse/anndata", "scanpy@git+https://github.com/scverse/scanpy"} == set(
        packages.split()
    )
    assert "--prerelease allow" in commands(job)


# ---- zizmor ----------------------------------------------------------------------------------

ZIZMOR = ("--quiet", "--offline", "--persona", "pedantic")


def test_make_lint_looks_at_the_workflows():
    makefile = (ROOT / "Makefile").read_text()
    (recipe,) = re.findall(r"^lint:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert f"$(BIN)/zizmor {' '.join(ZIZMOR)} .\n" in recipe
    assert any(isinstance(one, str) and one.startswith("zizmor>=") for one in PROJECT["dependency-groups"]["dev"])
    assert re.search(r"^zizmor==\d", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


@pytest.fixture
def zizmor():
    program = shutil.which("zizmor", path=Path(sys.executable).parent)
    if program is None:
        pytest.skip("zizmor is not installed: make install")

    def run(folder):
        return subprocess.run([program, *ZIZMOR, folder], capture_output=True, text=True, timeout=60, check=False)

    return run


def test_zizmor_finds_nothing(zizmor):
    done = zizmor(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("was", "now", "rule"),
    [
        ("        with:\n          persist-credentials: false\n", "", "artipacked"),
        ("run: make demo", "run: echo ${{ github.head_ref }}", "template-injection"),
        ("permissions:\n  contents: read", "permissions: write-all", "excessive-permissions"),
        ("checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1", "checkout@v7", "unpinned-uses"),
    ],
)
def test_zizmor_finds_a_planted_fault(zizmor, tmp_path, was, now, rule):
    text = (FOLDER / "test.yaml").read_text()
    assert was in text
    place = tmp_path / ".github" / "workflows" / "test.yaml"
    place.parent.mkdir(parents=True)
    place.write_text(text.replace(was, now))
    done = zizmor(tmp_path)
    assert done.returncode != 0
    assert rule in done.stdout
