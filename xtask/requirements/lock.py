"""Locks the tools from PyPI: `uv` resolves NAME.in, and NAME.txt pins each package with its hashes.

    python3 xtask/requirements/lock.py            # needs uv (`pip install uv`); locks every NAME.in
    python3 xtask/requirements/lock.py mlserver   # locks one

The locks hold wheels for CPython 3.11 to 3.13 on x86-64 Linux (glibc) only. pip installs from them
with `--require-hashes --only-binary :all:`, so that no package runs a build script.
"""

import pathlib
import re
import subprocess
import sys
import tomllib

FOLDER = pathlib.Path(__file__).parent
PYTHONS = ("cp311", "cp312", "cp313")
# A stable ABI serves all later versions of Python.
STABLE = re.compile(r"cp3(\d+)$")
# Packages of which only one file is taken: their own dependencies are not installed.
WITHOUT_DEPENDENCIES = {"helm"}


def fits(wheel: str) -> bool:
    """Returns true if one of the supported Pythons installs the wheel on x86-64 Linux."""
    python, abi, platform = wheel.removesuffix(".whl").split("-")[-3:]
    if platform != "any" and not ("manylinux" in platform and platform.endswith("x86_64")):
        return False
    if abi == "abi3":
        return any(int(match[1]) <= 11 for match in map(STABLE.match, python.split(".")) if match)
    return python in PYTHONS and abi == python or "py3" in python.split(".")


def resolve(name: str) -> list[dict]:
    """Returns the packages that uv chooses for NAME.in."""
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    command += ["--format", "pylock.toml", str(FOLDER / f"{name}.in")]
    if name in WITHOUT_DEPENDENCIES:
        command.append("--no-deps")
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return tomllib.loads(found.stdout)["packages"]


def pin(package: dict) -> list[str]:
    """Returns the lines that pin one package; none for a package of other systems."""
    if "sys_platform == 'win32'" in package.get("marker", ""):
        return []
    wheels = [(wheel["url"].rsplit("/", 1)[1], wheel["hashes"]["sha256"]) for wheel in package["wheels"]]
    hashes = sorted(hash for file, hash in wheels if fits(file))
    if not hashes:
        sys.exit(f"{package['name']} {package['version']} has no wheel for x86-64 Linux")
    first = f"{package['name']}=={package['version']}"
    return [" \\\n    ".join([first, *(f"--hash=sha256:{hash}" for hash in hashes)])]


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.in"))
    for name in names:
        lines = [f"# Made from {name}.in by lock.py: do not edit."]
        lines += [line for package in resolve(name) for line in pin(package)]
        (FOLDER / f"{name}.txt").write_text("\n".join(lines) + "\n")
        print(f"{name}.txt: {len(lines) - 1} packages")


if __name__ == "__main__":
    main()
