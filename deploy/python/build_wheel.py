"""Builds the wheel: Parapet's programs, ONNX Runtime beside them, where they find it, and the Python client.

    python3 deploy/python/build_wheel.py VERSION PROGRAMS OUT

Packs all files of the folder PROGRAMS, writes `parapet-VERSION-....whl` into the folder OUT, and prints its path. The
same files make the same wheel.
"""

import base64
import hashlib
import pathlib
import platform
import re
import subprocess
import sys
import zipfile

FOLDER = pathlib.Path(__file__).parent
ROOT = FOLDER.parent.parent
ONNX_RUNTIME = ROOT / ".native/onnxruntime/licenses"
LICENSES = {
    "LICENSE": ROOT / "LICENSE",
    "onnxruntime/LICENSE": ONNX_RUNTIME / "LICENSE",
    "onnxruntime/ThirdPartyNotices.txt": ONNX_RUNTIME / "ThirdPartyNotices.txt",
}

METADATA = """\
Metadata-Version: 2.4
Name: parapet
Version: {version}
Summary: Straggler-proof prediction serving by coded computation
License-Expression: Apache-2.0 AND MIT
{license_files}
Requires-Python: >=3.9
Provides-Extra: client
Requires-Dist: tritonclient[grpc,http]>=2.50; extra == 'client'
"""

WHEEL = """\
Wheel-Version: 1.0
Generator: build_wheel.py
Root-Is-Purelib: false
Tag: {tag}
"""


def oldest_glibc(files: list[pathlib.Path]) -> str:
    """Returns the version of the oldest glibc that has all that the files need, as 2.34."""
    command = ["readelf", "--version-info", "--wide", *map(str, files)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    needed = set(re.findall(r"Name: (GLIBC_\S+)", said))
    minors = [int(match[1]) for name in needed if (match := re.fullmatch(r"GLIBC_2\.(\d+)[.\d]*", name))]
    # Others, as GLIBC_ABI_DT_RELR, say nothing of a version.
    if not needed or len(minors) < len(needed):
        sys.exit(f"cannot tell which glibc the programs need: {sorted(needed)}")
    return f"2.{max(minors)}"


def build(version: str, programs: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """Returns the path of the wheel."""
    scripts, package = sorted(programs.iterdir()), FOLDER / "parapet"
    glibc = oldest_glibc(scripts).replace(".", "_")
    tag = f"py3-none-manylinux_{glibc}_{platform.machine()}"
    # pip puts what is in scripts/ into bin/.
    data, info = f"parapet-{version}.data/scripts", f"parapet-{version}.dist-info"
    files = {f"parapet/{name}": package / name for name in ("__init__.py", "py.typed")}
    files |= {f"{data}/{file.name}": file for file in scripts}
    files |= {f"{info}/licenses/{name}": file for name, file in LICENSES.items()}
    contents = {name: file.read_bytes() for name, file in files.items()}
    license_files = "\n".join(f"License-File: {name}" for name in LICENSES)
    contents[f"{info}/METADATA"] = METADATA.format(version=version, license_files=license_files).encode()
    contents[f"{info}/WHEEL"] = WHEEL.format(tag=tag).encode()
    record = ""
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = out / f"parapet-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            # The oldest time that a zip can tell.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name.startswith(data) else 0o100644) << 16
            archive.writestr(entry, content)
    return wheel


if __name__ == "__main__":
    print(build(sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])))
