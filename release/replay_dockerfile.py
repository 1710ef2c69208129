"""Run the steps of the Dockerfile where there is no container engine, in clean roots made by debootstrap.

    sudo python release/replay_dockerfile.py --target cpu --models models --work /var/tmp/replay

Every stage that the target needs starts from a copy of a minimal Debian 12 with its Python 3.11, which
stands in for python:3.11-slim-bookworm. COPY, RUN, ENV, ARG, WORKDIR and USER do what an engine does, by
chroot. Then the command of the image is started as its user, in mount and network namespaces of its own,
with the root read-only and /tmp as the only place to write, until its health check succeeds; a translation
is requested, and SIGTERM must end it with 0. Needs root, debootstrap, chroot, unshare and setpriv.
--build-arg as for docker. PIP_FIND_LINKS names folders of wheels that are bound into the roots.
"""

import argparse
import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = "python3,python3-venv,ca-certificates"
START_SECONDS = 120


@dataclass
class Stage:
    """A stage of a Dockerfile: what it starts from, and its instructions."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Image:
    """A root, and what its configuration says."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    directory: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health_check: list[str] = field(default_factory=list)


def parse_dockerfile(text: str) -> tuple[dict[str, str], list[Stage]]:
    """Return the arguments before the first stage, and the stages."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(name.strip(), base.strip()))
        elif stages:
            stages[-1].steps.append((word, rest.strip()))
        else:
            key, _, value = rest.partition("=")
            arguments[key] = value
    return arguments, stages


def find_needed(stages: list[Stage], target: str) -> list[Stage]:
    """Return the stages that a target is built from, in order."""
    by_name = {stage.name: stage for stage in stages}
    needed: list[Stage] = []

    def add(name: str) -> None:
        stage = by_name[name]
        copied = [
            m[1] for word, rest in stage.steps if word == "COPY" and (m := re.match(r"--from=(\S+)", rest))
        ]
        for other in [stage.base, *copied]:
            if other in by_name:
                add(other)
        if stage not in needed:
            needed.append(stage)

    add(target)
    return needed


class Builder:
    """Executes stages in folders below `work`."""

    def __init__(self, work: Path, build_arguments: dict[str, str], links: list[Path]) -> None:
        self.work, self.build_arguments, self.links = work, build_arguments, links
        self.images: dict[str, Image] = {}
        self.ignored = [
            line for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
        ]

    def make_base(self) -> Path:
        base = self.work / "base"
        if not base.exists():
            print("debootstrap bookworm", flush=True)
            command = [
                "debootstrap",
                "--variant=minbase",
                f"--include={PACKAGES}",
                "bookworm",
                f"{base}.part",
            ]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            Path(f"{base}.part").rename(base)
        return base

    def build(self, stage: Stage) -> Image:
        root = self.work / stage.name
        if root.exists():
            shutil.rmtree(root)
        parent = self.images.get(stage.base)
        source = parent.root if parent else self.make_base()
        subprocess.run(["cp", "--archive", source, root], check=True)
        image = Image(root)
        if parent:
            image = Image(root, **{k: v for k, v in vars(parent).items() if k != "root"})
            image.environment = dict(parent.environment)
        arguments: dict[str, str] = {}
        for word, rest in stage.steps:
            print(f"[{stage.name}] {word} {rest}"[:160], flush=True)
            self.execute(image, word, rest, arguments)
        return image

    def execute(self, image: Image, word: str, rest: str, arguments: dict[str, str]) -> None:
        match word:
            case "ARG":
                key, _, value = rest.partition("=")
                arguments[key] = self.build_arguments.get(key, value)
            case "ENV":
                for pair in shlex.split(rest):
                    key, _, value = pair.partition("=")
                    image.environment[key] = value
            case "WORKDIR":
                image.directory = rest
                (image.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "USER":
                image.user = rest if ":" in rest else f"{rest}:{rest}"
            case "COPY":
                self.copy(image, rest)
            case "RUN":
                self.run_in(image, ["/bin/sh", "-c", rest], arguments)
            case "ENTRYPOINT":
                image.entrypoint = json.loads(rest)
            case "CMD":
                image.command = json.loads(rest)
            case "HEALTHCHECK":
                image.health_check = json.loads(rest.partition("CMD ")[2])
            case "EXPOSE":
                pass
            case _:
                sys.exit(f"the replay does not know {word}")

    def copy(self, image: Image, rest: str) -> None:
        words = rest.split()
        origin = ROOT
        if words[0].startswith("--from="):
            origin = self.images[words.pop(0).partition("=")[2]].root
        *sources, target = words
        into = image.root / target.lstrip("/")
        for source in sources:
            if origin == ROOT and not any(fnmatch.fnmatch(source, line[1:]) for line in self.ignored):
                sys.exit(f"{source} is not in the build context: .dockerignore leaves it out")
            path = origin / source.lstrip("/")
            if path.is_dir():
                # cp, since shutil loses owners; the content of a folder is copied, as by an engine
                into.mkdir(parents=True, exist_ok=True)
                subprocess.run(["cp", "--archive", f"{path}/.", into], check=True)
            else:
                destination = into / path.name if target.endswith("/") else into
                destination.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, destination)

    def run_in(self, image: Image, command: list[str], arguments: dict[str, str]) -> None:
        """Run a command in the root, with a name server and the folders of wheels."""
        shutil.copy("/etc/resolv.conf", image.root / "etc" / "resolv.conf")
        variables = {"PATH": os.environ["PATH"], **arguments, **image.environment}
        mounts = ["mount --bind /dev {root}/dev", "mount -t proc proc {root}/proc"]
        certificates = os.environ.get("PIP_CERT")
        links = [*self.links, *([Path(certificates)] if certificates else [])]
        for path in links:
            inside = image.root / str(path).lstrip("/")
            if path.is_dir():
                inside.mkdir(parents=True, exist_ok=True)
            else:
                inside.parent.mkdir(parents=True, exist_ok=True)
                inside.touch()
            mounts.append(f"mount --bind {path} {inside}")
        if self.links:
            variables["PIP_FIND_LINKS"] = " ".join(map(str, self.links))
        if certificates:
            variables["PIP_CERT"] = certificates
        script = " && ".join(mounts).format(root=image.root)
        inner = f"cd {shlex.quote(image.directory)} && exec {shlex.join(command)}"
        script += f" && exec chroot {image.root} /bin/sh -c {shlex.quote(inner)}"
        unshared = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script]
        subprocess.run(unshared, env=variables, check=True)


# ---- the image as a container


def start_container(image: Image, models: Path, out: Path) -> "subprocess.Popen[bytes]":
    """Start the image's command: another user, a read-only root, an own /tmp, and no network but loopback."""
    root, (user, group) = image.root, image.user.split(":")
    command = shlex.join([*image.entrypoint, *image.command])
    enter = shlex.join(["chroot", str(root), "/usr/bin/env", "-i", *list_variables(image)])
    drop = f"setpriv --reuid {user} --regid {group} --clear-groups --bounding-set=-all --no-new-privs"
    script = f"""
        set -e
        ip link set lo up
        mount --bind {root} {root}
        mount --bind {models.resolve()} {root}/models
        mount -o remount,bind,ro {root}/models
        mount -t tmpfs -o mode=1777,size=512m tmpfs {root}/tmp
        mount -t proc proc {root}/proc
        mount --bind /dev {root}/dev
        mount -o remount,bind,ro {root}
        exec {enter} {drop} /bin/sh -c 'cd {image.directory} && exec {command}'
    """
    arguments = ["unshare", "--mount", "--net", "--propagation", "private", "/bin/sh", "-c", script]
    return subprocess.Popen(arguments, stderr=out.open("wb"))


def list_variables(image: Image) -> list[str]:
    return [f"{key}={value}" for key, value in image.environment.items()]


def run_inside(process: int, image: Image, command: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run a command beside the server, as `docker exec` does."""
    user, group = image.user.split(":")
    entered = ["nsenter", "--target", str(process), "--mount", "--net", "chroot", str(image.root)]
    entered += ["/usr/bin/env", "-i", *list_variables(image)]
    dropped = ["setpriv", "--reuid", user, "--regid", group, "--clear-groups", "--", *command]
    return subprocess.run([*entered, *dropped], capture_output=True, text=True)


TRANSLATE = """
import json, urllib.request
url = "http://127.0.0.1:5000"
pair = json.load(urllib.request.urlopen(url + "/languages"))
source = next(entry for entry in pair if entry["targets"])
body = json.dumps({"q": "I go home.", "source": source["code"], "target": source["targets"][0]}).encode()
request = urllib.request.Request(url + "/translate", body, {"Content-Type": "application/json"})
print(urllib.request.urlopen(request).read().decode())
"""
WRITE = """
import os
print(os.getuid(), os.path.exists("/opt/manyheads"))
for folder in ("/", "/models", "/opt/manyheads", "/etc"):
    try:
        open(folder + "/probe", "w")
        raise SystemExit(folder + " can be written")
    except OSError:
        pass
"""


def check_container(image: Image, models: Path, work: Path) -> None:
    log = work / "server.log"
    with start_container(image, models, log) as server:
        try:
            start = time.monotonic()
            while run_inside(server.pid, image, image.health_check).returncode:
                if server.poll() is not None or time.monotonic() - start > START_SECONDS:
                    sys.exit(f"the container is not healthy\n{log.read_text()}")
                time.sleep(1)
            print(f"healthy after {time.monotonic() - start:.0f} s", flush=True)
            for code in (WRITE, TRANSLATE):
                done = run_inside(server.pid, image, ["python3", "-c", code])
                print(done.stdout, end="", flush=True)
                if done.returncode:
                    sys.exit(done.stderr)
        finally:
            server.terminate()
        exit_code = server.wait(60)
    print(f"exit code after SIGTERM: {exit_code}")
    if exit_code:
        sys.exit(log.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--work", type=Path, required=True, help="folder for the roots; several gigabytes")
    parser.add_argument("--models", type=Path, help="folder of models; without it, nothing is started")
    parser.add_argument("--build-arg", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    if os.getuid():
        sys.exit("the replay needs root: it makes root file systems and changes into them")
    arguments.work.mkdir(parents=True, exist_ok=True)
    _, stages = parse_dockerfile((ROOT / "Dockerfile").read_text(encoding="utf-8"))
    links = [Path(folder) for folder in os.environ.get("PIP_FIND_LINKS", "").split()]
    given = dict(pair.split("=", 1) for pair in arguments.build_arg)
    builder = Builder(arguments.work.resolve(), given, links)
    for stage in find_needed(stages, arguments.target):
        builder.images[stage.name] = builder.build(stage)
    if arguments.models:
        check_container(builder.images[arguments.target], arguments.models, arguments.work)


if __name__ == "__main__":
    main()
