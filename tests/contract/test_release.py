"""What a release is made with: lock files, image, compose file, workflows and the scripts in release/."""

import json
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

import check_release
import measure_install
import replay_dockerfile
import smoke
import soak
from manyheads.serve.limits import ServerLimits
from support.source_tree import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
LOCKS = [ROOT / "requirements.lock", *sorted((ROOT / "release").glob("*.lock"))]


def read_pins(path: Path) -> dict[str, str]:
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", path.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins}


# ---- lock files


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_has_the_pinned_versions_and_a_hash_for_each(lock: Path) -> None:
    pinned, locked = read_pins(ROOT / "constraints.txt"), read_pins(lock)
    differing = {
        name: version
        for name, version in locked.items()
        if name in pinned and version.partition("+")[0] != pinned[name]
    }
    assert not differing
    entries = re.split(r"\n(?=[A-Za-z0-9])", lock.read_text(encoding="utf-8"))
    assert not [entry[:60] for entry in entries if "==" in entry and "--hash=sha256:" not in entry]
    assert "file:" not in lock.read_text(encoding="utf-8")


def test_the_lock_of_contributors_has_every_requirement() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [
        *project["dependencies"],
        *(text for extra in project["optional-dependencies"].values() for text in extra),
    ]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[\[<>=;, ]", text)[0]).lower() for text in texts}
    assert not names - {"manyheads"} - read_pins(ROOT / "requirements.lock").keys()


def test_the_cpu_image_installs_no_cuda_and_locks_torch_apart() -> None:
    names = read_pins(ROOT / "release" / "container-cpu.lock").keys()
    assert not [name for name in names if name.startswith(("nvidia", "cuda", "triton", "torch"))]
    assert list(read_pins(ROOT / "release" / "torch-cpu.lock")) == ["torch"]
    assert "torch" in read_pins(ROOT / "release" / "container-cuda.lock")


# ---- image and compose file


def test_stages_are_built_in_the_order_of_their_needs() -> None:
    _, stages = replay_dockerfile.parse_dockerfile(DOCKERFILE)
    names = [stage.name for stage in replay_dockerfile.find_needed(stages, "cpu")]
    assert names[-1] == "cpu"
    assert "cuda-environment" not in names
    assert names.index("wheel") < names.index("cpu-environment") < names.index("cpu")
    assert stages[-1].name == "cpu"  # the default target


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_image_ends_as_a_user_without_rights(target: str) -> None:
    _, stages = replay_dockerfile.parse_dockerfile(DOCKERFILE)
    needed = replay_dockerfile.find_needed(stages, target)
    own = [stage for stage in needed if stage.name in ("runtime", target)]
    users = [rest for stage in own for word, rest in stage.steps if word == "USER"]
    assert users[-1] == "10001:10001"
    assert any(word == "HEALTHCHECK" for stage in own for word, _ in stage.steps)


def test_everything_is_installed_with_hashes_or_without_an_index() -> None:
    _, stages = replay_dockerfile.parse_dockerfile(DOCKERFILE)
    runs = [rest for stage in stages if stage.name != "wheel" for word, rest in stage.steps if word == "RUN"]
    installs = [part for rest in runs for part in rest.split("&&") if "pip install" in part]
    assert len(installs) == 5
    assert all("--require-hashes" in part or "--no-index" in part for part in installs)


def test_the_containers_have_read_only_roots_and_only_the_proxy_is_public() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    services = compose["services"]
    assert set(services) == {"server", "proxy", "prometheus"}
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
    assert "ports" not in services["server"]
    assert services["prometheus"]["ports"] == ["127.0.0.1:9090:9090"]
    assert list(services["server"]["networks"]) == ["inside"]
    assert compose["networks"]["inside"]["internal"] is True
    address = services["proxy"]["networks"]["inside"]["ipv4_address"]
    assert services["server"]["environment"]["FORWARDED_ALLOW_IPS"] == address


def test_the_options_of_the_served_command_exist() -> None:
    import typer

    from manyheads.cli import app

    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    parameters = typer.main.get_command(app).commands["serve"].params  # type: ignore[attr-defined]
    known = {name for parameter in parameters for name in parameter.opts}
    options = [word.partition("=")[0] for word in compose["services"]["server"]["command"][1:]]
    assert set(options) <= known


def test_the_proxy_passes_on_what_the_server_accepts_and_waits_as_long() -> None:
    """Documents are larger and take longer than other requests."""
    text = (ROOT / "deploy" / "Caddyfile").read_text(encoding="utf-8")
    sizes = dict(re.findall(r"request_body @(\w+) \{\s*max_size (\d+)MiB", text))
    limits = ServerLimits()
    assert {name: int(size) * 2**20 for name, size in sizes.items()} == {
        "documents": limits.max_file_bytes,
        "others": limits.max_body_bytes,
    }
    waits = dict(re.findall(r"reverse_proxy @(\w+) \S+ \{[^}]*response_header_timeout (\d+)s", text))
    assert int(waits["documents"]) > limits.file_timeout
    assert int(waits["others"]) > limits.request_timeout
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    assert int(compose["services"]["server"]["stop_grace_period"].removesuffix("s")) > limits.stop_seconds


def test_a_server_without_an_api_key_has_no_empty_one() -> None:
    """The server refuses an empty key: the variable must be absent where the host does not set it."""
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    environment = compose["services"]["server"]["environment"]
    assert "MANYHEADS_API_KEY" in environment
    assert environment["MANYHEADS_API_KEY"] is None


def test_alerts_are_about_metrics_that_the_server_has() -> None:
    source = (ROOT / "src" / "manyheads" / "serve" / "metrics.py").read_text(encoding="utf-8")
    known = set(re.findall(r'"(manyheads_\w+)"', source))
    alerts = (ROOT / "deploy" / "alerts.yml").read_text(encoding="utf-8")
    used = {re.sub(r"_(total|bucket)$", "", name) for name in re.findall(r"manyheads_\w+", alerts)}
    assert used
    assert used <= known


# ---- workflows


def read_steps() -> list[str]:
    steps = []
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
            steps += [step["run"] for step in job["steps"] if "run" in step]
    return steps


def test_workflows_call_make_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    calls = [re.sub(r"\$\{\{.*?\}\}", "", step) for step in read_steps() if step.startswith("make ")]
    names = {word for call in calls for word in call.split()[1:] if "=" not in word}
    assert {"test", "test-all", "docs", "dist", "smoke", "test-browser"} <= names <= targets


def test_the_matrix_is_what_the_package_promises() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "Programming Language :: Python :: "
    assert matrix["python"] == [
        c.removeprefix(prefix) for c in project["classifiers"] if c.startswith(prefix)
    ]
    assert [version.rpartition(".")[0] for version in matrix["torch"]] == ["2.11", "2.12", "2.13"]
    assert "torch>=2.11,<2.14" in project["dependencies"]


# ---- scripts


def test_the_smoke_test_runs_the_first_commands_of_the_readme() -> None:
    commands = smoke.read_commands(ROOT / "README.md", steps=7)
    verbs = [re.search(r"manyheads ([a-z]+)", command)[1] for command in commands]
    assert verbs[:5] == ["get", "prepare", "inspect", "inspect", "train"]
    assert {"translate", "evaluate", "look"} <= set(verbs)
    assert "train.steps=7" in commands[4]
    assert "serve" not in verbs
    # Nothing is read that an earlier command has not written: files to translate come from stdin.
    assert not [command for command in commands if re.search(r"translate run/model \w", command)]


def test_a_release_needs_a_final_version_a_dated_changelog_urls_and_distributions(tmp_path: Path) -> None:
    def write(version: str, heading: str, urls: str, citation: str) -> list[str]:
        for folder in ("src/manyheads", "dist"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / "manyheads" / "__init__.py").write_text(f'__version__ = "{version}"\n')
        (tmp_path / "CHANGELOG.md").write_text(f"{heading}\n")
        (tmp_path / "pyproject.toml").write_text(f"[project]\nname = 'manyheads'\n{urls}")
        (tmp_path / "CITATION.cff").write_text(citation)
        return check_release.find_missing(tmp_path)

    paper = "urls = { Paper = 'https://example.org/paper' }\n"
    assert len(write("1.2.3.dev0", "## 1.2.3 (unreleased)", paper, "version: 1.2.3.dev0\n")) == 6
    assert len(write("1.2.3.dev0", "## 1.2.3 (unreleased)", "", "version: 1.2.3.dev0\n")) == 6
    for name in ("manyheads-1.2.3.tar.gz", "manyheads-1.2.3-py3-none-any.whl"):
        (tmp_path / "dist").mkdir(exist_ok=True)
        (tmp_path / "dist" / name).write_text("")
    urls = "urls = { Repository = 'https://example.org' }\n"
    citation = "version: 1.2.3\ndate-released: 2026-01-01\n"
    assert write("1.2.3", "## 1.2.3 (2026-01-01)", urls, citation) == []


def test_an_installation_is_measured_by_a_relative_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Makefile gives one, and the measured processes run in another folder."""
    monkeypatch.chdir(Path(sys.prefix))
    python = Path(sys.executable).relative_to(sys.prefix)
    assert measure_install.measure_cpu_seconds(python, "pass") > 0
    assert measure_install.measure_sizes(python)["torch"] > 100


def test_a_soak_test_reports_lost_requests_growing_memory_and_unexpected_responses() -> None:
    def check(**values: Any) -> list[str]:
        result = soak.SoakResult(**{"responses": Counter({"200": 5}), **values})
        soak.check_result(result)
        return result.problems

    assert check(memory_mb=[100.0] * 40) == []
    assert check(responses=Counter({"200": 5, "cut": 2}), cut_allowed=2) == []
    assert "cut" in check(responses=Counter({"200": 5, "cut": 3}), cut_allowed=2)[0]
    assert "memory grew" in check(memory_mb=[*[100.0] * 20, *[200.0] * 20])[0]
    assert check(unexpected=Counter({"/translate: 500": 2})) == ["2 x /translate: 500"]
    assert check(responses=Counter()) == ["no request was answered"]
    assert check(injected=Counter({"corrections": 2})) == ["no correction was stored"]
    assert check(injected=Counter({"corrections": 2}), corrections=2) == []
    assert json.dumps(vars(soak.SoakResult()))
