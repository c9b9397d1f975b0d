"""Each package, installed or unpacked from its file: its programs run, and answer what the wheel's client asks.

    packages.py WHEEL DEB TARBALL REPOSITORY        # from `cargo xtask dist --try`
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import numpy as np
from cluster import status, until
from tritonclient.utils import InferenceServerException

# As `write_models` of `xtask/src/cluster.rs` has them.
WEIGHTS = (np.arange(7840) * 7919 % 101 / 1010 - 0.05).astype(np.float32).reshape(10, 784)
IMAGE = np.linspace(0, 1, 784, dtype=np.float32).reshape(1, 1, 28, 28)
# Nothing of the checkout's, such as ORT_DYLIB_PATH.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def run(*command):
    return subprocess.run(command, check=True, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True).stdout


@contextlib.contextmanager
def up(program, model, folder, *flags):
    """`parapet up` of this model in this folder: the process and the frontend's address."""
    log = folder / "up.log"
    command = [program, "up", "--model", model, "--dir", folder, "--listen", "127.0.0.1:0", *flags]
    folder.mkdir()
    with open(log, "w") as said:
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=said, stderr=said)
    found = lambda: re.search(r"^frontend +http://(\S+)", log.read_text(), re.MULTILINE)
    try:
        until(lambda: found() or process.poll() is not None, "parapet up serves")
        assert found(), log.read_text()
        until(lambda: status(f"http://{found()[1]}/v2/health/ready") == 200, "the frontend is ready")
        yield process, found()[1]
    finally:
        process.terminate()
        process.wait()


def ask(address, **how):
    import parapet

    with parapet.Client(address) as client:
        prediction = client.infer("fashion", {"input": IMAGE}, **how)
    np.testing.assert_allclose(prediction.outputs["output"], IMAGE.reshape(1, 784) @ WEIGHTS.T, atol=1e-3)
    return prediction


def reconstructed(program, repository, folder):
    """Freezes all replicas, so that the parity model answers alone."""
    with up(program, repository / "fashion", folder, "--min-agreement", "0") as (process, address):
        own = ask(address, allow_approximate=False)
        assert not own.is_approximate and own.code is None, own
        replicas = run("pgrep", "--parent", str(process.pid), "--full", "--", "--model fashion --listen").split()
        assert len(replicas) == 4, replicas
        for pid in map(int, replicas):
            os.kill(pid, signal.SIGSTOP)
        try:
            prediction = ask(address, outputs=["output"])
            assert prediction.is_approximate and prediction.provenance == "reconstructed", prediction
            assert prediction.code is not None, prediction
            try:
                ask(address, allow_approximate=False, deadline_ms=200)
                raise AssertionError("answered by frozen replicas")
            except InferenceServerException as error:
                assert "504" in str(error.status()), error
        finally:
            for pid in map(int, replicas):
                os.kill(pid, signal.SIGCONT)
    return prediction


def try_wheel(wheel, repository, folder):
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv/bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    # The client's own dependencies are this interpreter's.
    sys.path.append(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    return reconstructed(folder / "venv/bin/parapet", repository, folder / "up")


def try_deb(deb, repository, folder):
    run("apt-get", "install", "--simulate", "--quiet", deb)
    needed = run("dpkg-deb", "--field", deb, "Depends")
    assert "libc6" in needed and "libstdc++6" in needed, needed
    run("dpkg-deb", "--extract", deb, folder)
    with up(folder / "usr/bin/parapet", repository / "fashion/1/model.onnx", folder / "up") as (_, address):
        prediction = ask(address)
        assert not prediction.is_approximate and prediction.confidence == 1, prediction
    return prediction


def try_tarball(tarball, repository, folder):
    run("tar", "--extract", "--strip-components=1", "--directory", folder, "--file", tarball)
    programs = sorted((folder / "usr/bin").iterdir())
    assert len(programs) == 4, programs
    for program in programs:
        assert f"-{run(program, '--version').split()[1]}-" in tarball.name, program
    return run(folder / "usr/bin/parapet", "describe", repository / "fashion/1/model.onnx", "--out", folder / "models")


def main():
    wheel, deb, tarball, repository = map(pathlib.Path, sys.argv[1:])
    for package, attempt in [(wheel, try_wheel), (deb, try_deb), (tarball, try_tarball)]:
        # Programs within the checkout would find its ONNX Runtime.
        with tempfile.TemporaryDirectory() as folder:
            attempt(package, repository, pathlib.Path(folder))
        print(f"{package.name}: well")


if __name__ == "__main__":
    main()
