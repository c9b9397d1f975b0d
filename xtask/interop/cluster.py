"""Processes of a small cluster; they end with this one."""

import contextlib
import pathlib
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request

ADDRESS = re.compile(r"(http|grpc)://(\S+)")


class Process:
    """A program of ours that says where it listens."""

    def __init__(self, arguments, log):
        self.log = pathlib.Path(log)
        with open(self.log, "w") as errors:
            self.child = subprocess.Popen(
                [str(argument) for argument in arguments], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        line = self.child.stdout.readline()
        addresses = dict(ADDRESS.findall(line))
        if not addresses:
            raise RuntimeError(f"{arguments[0]} did not start: {self.log.read_text()[-2000:]}")
        self.http, self.grpc = addresses["http"], addresses.get("grpc")

    def freeze(self):
        self.child.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.child.send_signal(signal.SIGCONT)

    def end(self):
        self.child.send_signal(signal.SIGCONT)
        self.child.terminate()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class Cluster(contextlib.ExitStack):
    """Starts programs out of `binaries` on the models of `repository`; logs and configurations lie in `folder`."""

    def __init__(self, binaries, repository, folder):
        super().__init__()
        self.binaries, self.repository, self.folder = map(pathlib.Path, (binaries, repository, folder))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.count = 0

    def start(self, program, *arguments):
        self.count += 1
        log = self.folder / f"{self.count}-{program}.log"
        process = Process([self.binaries / program, *arguments], log)
        self.callback(process.end)
        return process

    def instance(self, models):
        listen = ["--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0"]
        return self.start("parapet-instance", "--repository", self.repository, "--model", models, *listen)

    def frontend(self, models):
        """`models` are the `[[models]]` tables."""
        config = self.folder / "parapet.toml"
        server = '[server]\nlisten = "127.0.0.1:0"\ngrpc_listen = "127.0.0.1:0"\n'
        config.write_text(f'{server}[repository]\npath = "{self.repository.absolute()}"\n{models}')
        frontend = self.start("parapet-frontend", "--config", config)
        until(lambda: status(f"http://{frontend.http}/v2/health/ready") == 200, "the frontend is ready")
        return frontend


def status(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def until(condition, what, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def quoted(addresses):
    return "[" + ", ".join(f'"{address}"' for address in addresses) + "]"


def coded(model, replicas, parity_model, parity):
    """The `[[models]]` table of a model in groups of two, whose members are each on a replica of their own."""
    return f"""
[[models]]
name = "{model}"
instances = {quoted(replicas)}
slots_per_instance = 1
timeout_ms = 10000
[models.strategy]
kind = "coded"
encoder = "sum"
k = 2
hold_back = {{ fixed_ms = 200 }}
send_parity = "at_once"
[[models.strategy.parity]]
model = "{parity_model}"
instances = {quoted([parity])}
"""


def ups(frontend):
    """How many instances it has found up."""
    with urllib.request.urlopen(f"http://{frontend.http}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(line.startswith("parapet_instance_up{") and line.endswith(" 1") for line in lines)
