"""Make a virtual environment that holds exactly the pinned versions.

    python tools/setup.py .venv embedded server dev

pip alone does it: the chosen extras are followed through the `# via` notes of constraints.txt, and the entries
reached are installed with `--require-hashes --no-deps`, so nothing can be added, replaced or resolved anew.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")


def normal(requirement: str) -> str:
    found = NAME.match(requirement.strip())
    if found is None:
        raise SystemExit(f"not a requirement: {requirement!r}")
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def wanted(extras: Iterable[str]) -> set[str]:
    """The names that pyproject.toml asks for directly."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    unknown = sorted(set(extras) - set(optional))
    if unknown:
        raise SystemExit(f"no such extra: {', '.join(unknown)}; known extras: {', '.join(optional)}")
    names: set[str] = set()
    for requirement in [*project["dependencies"], *(r for extra in extras for r in optional[extra])]:
        if normal(requirement) == project["name"]:
            names |= wanted(re.findall(r"[a-z]+", requirement.partition("[")[2].partition("]")[0]))
        else:
            names.add(normal(requirement))
    return names


def entries(text: str) -> list[tuple[str, set[str], str]]:
    """Each pinned entry: its name, the names it is there for, and its lines."""
    found = []
    for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE):
        if not NAME.match(block):
            continue
        notes = re.findall(r"^ +# +(?:via +)?([A-Za-z0-9][\w.-]*)", block, flags=re.MULTILINE)
        found.append((normal(block), {normal(note) for note in notes if note != "via"}, block))
    return found


def selected(extras: Iterable[str]) -> str:
    names = wanted(extras)
    pinned = entries((ROOT / "constraints.txt").read_text())
    missing = sorted(names - {name for name, _, _ in pinned})
    if missing:
        raise SystemExit(f"constraints.txt lacks {', '.join(missing)}; run make constraints")
    while True:
        reached = {name for name, via, _ in pinned if name not in names and via & names}
        if not reached:
            return "".join(block for name, _, block in pinned if name in names)
        names |= reached


def fits(venv: Path) -> bool:
    """Whether the environment there is of this interpreter, and was made at this place: its scripts name it."""
    python, notes = venv / "bin" / "python", venv / "pyvenv.cfg"
    if not python.exists() or not notes.exists() or not notes.read_text().rstrip().endswith(f" {venv}"):
        return False
    ask = "import sys; print(sys.version, sys.base_prefix)"
    answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    return answer.stdout.strip() == f"{sys.version} {sys.base_prefix}".strip()


class Progress:
    """How far pip is: a line that is redrawn on a terminal, and nothing elsewhere, unless pip fails.

    pip names what it collects, and says nothing while it installs; what is installed is counted in the environment.
    """

    EVERY = 0.2
    LOOKED_AT = ("Collecting", "Processing", "Requirement", "Ignoring")

    def __init__(self, venv: Path, total: int) -> None:
        self._venv = venv
        self._total = total
        self._looked_at = 0
        self._installing = 0
        self._before = self._installed()
        self._name = ""
        self._over = threading.Event()

    def follow(self, pip: list[str | Path]) -> None:
        """Run pip, and show how far it is."""
        process = subprocess.Popen(pip, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        drawing = threading.Thread(target=self._draw, daemon=True)
        if sys.stderr.isatty():
            drawing.start()
        lines = []
        for line in process.stdout or ():
            lines.append(line)
            self._read(line)
        code = process.wait()
        self._over.set()
        if drawing.is_alive():
            drawing.join()
        if code:
            sys.stderr.write("".join(lines[-20:]))
            raise subprocess.CalledProcessError(code, pip)

    def _read(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word in self.LOOKED_AT:
            self._looked_at += 1
            wheel = word == "Processing"
            self._name = rest.partition(" ")[0].rpartition("/")[2].partition("-" if wheel else "=")[0]
        elif word == "Installing":
            self._installing = line.count(",") + 1

    def _installed(self) -> int:
        return sum(1 for _ in self._venv.glob("lib/python*/site-packages/*.dist-info"))

    def _draw(self) -> None:
        began = time.monotonic()
        while not self._over.wait(self.EVERY):
            if self._installing:
                # An environment that is brought up to date replaces as much as it adds.
                done = (
                    f"{min(max(self._installed() - self._before, 0), self._installing)} of {self._installing} installed"
                )
            else:
                done = f"{self._looked_at} of {self._total} collected, {self._name}"
            room = shutil.get_terminal_size().columns - 1
            sys.stderr.write("\r\x1b[K" + f"  {time.monotonic() - began:3.0f} s  {done}"[:room])
            sys.stderr.flush()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def main(where: str, *extras: str) -> None:
    venv = Path.cwd() / where
    began = time.monotonic()
    with (ROOT / "constraints.txt").open() as lock, tempfile.TemporaryDirectory() as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        requirements = Path(scratch) / "requirements.txt"
        pinned = selected(extras)
        requirements.write_text(pinned)
        if not fits(venv):
            say(f"creating {where} with Python {sys.version.split()[0]}")
            subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        pip: list[str | Path] = [venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
        install = [*pip, "install", "--no-deps", "--no-compile"]
        total = len(entries(pinned))
        say(f"installing {total} pinned packages for {', '.join(extras)}")
        hashed = ["--progress-bar", "off", "--require-hashes", "--only-binary", ":all:", "-r", requirements]
        Progress(venv, total).follow([*install, *hashed])
        subprocess.run([*install, "-qq", "--no-build-isolation", "--editable", ROOT], check=True)
        subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)
        say(f"{where} is ready after {time.monotonic() - began:.0f} s")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"set-up failed: {' '.join(map(str, error.cmd))}") from None
