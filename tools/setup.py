"""Make a virtual environment that holds exactly the pinned versions.

    python tools/setup.py .venv embedded server dev

pip alone does it: the chosen extras are followed through the `# via` notes of constraints.txt, and the entries
reached are installed with `--require-hashes --no-deps`, so nothing can be added, replaced or resolved anew.
"""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
import tempfile
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
        raise SystemExit(f"no such extra: {', '.join(unknown)}; there are {', '.join(optional)}")
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
        raise SystemExit(f"constraints.txt lacks {', '.join(missing)}: run make constraints")
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


def main(where: str, *extras: str) -> None:
    venv = Path.cwd() / where
    with (ROOT / "constraints.txt").open() as lock, tempfile.TemporaryDirectory() as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        requirements = Path(scratch) / "requirements.txt"
        requirements.write_text(selected(extras))
        if not fits(venv):
            print(f"making {where} with Python {sys.version.split()[0]}", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        pip = [venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
        install = [*pip, "install", "-qq", "--no-deps", "--no-compile"]
        print(f"installing the pinned versions for {', '.join(extras)}", file=sys.stderr)
        subprocess.run([*install, "--require-hashes", "--only-binary", ":all:", "-r", requirements], check=True)
        subprocess.run([*install, "--no-build-isolation", "--editable", ROOT], check=True)
        subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"set-up failed: {' '.join(map(str, error.cmd))}") from None
