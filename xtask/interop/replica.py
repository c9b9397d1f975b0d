"""MLServer as one of two replicas: what it answers is decoded like an answer of our own instance."""

import asyncio
import json
import pathlib
import socket
import subprocess

import numpy as np
import tritonclient.http.aio as http_aio
from clients import WEIGHTS, linear, provenances, samples
from cluster import Cluster, coded, status, until, ups

RUNTIME = '''
import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

WEIGHTS = np.array({weights}, np.float32)


class Linear(MLModel):
    async def load(self):
        return True

    async def predict(self, payload):
        array = NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32)
        output = NumpyCodec.encode_output("output", array @ WEIGHTS.T)
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=[output])
'''


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def start(cluster, program, folder):
    """MLServer with the linear model as Python code; its addresses."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    http, grpc, metrics = free_port(), free_port(), free_port()
    settings = {
        "host": "127.0.0.1",
        "http_port": http,
        "grpc_port": grpc,
        "metrics_port": metrics,
        "parallel_workers": 0,
        "use_structured_logging": False,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    model = {"name": "linear", "implementation": "linear_runtime.Linear", "parameters": {"version": "1"}}
    (folder / "model-settings.json").write_text(json.dumps(model))
    (folder / "linear_runtime.py").write_text(RUNTIME.format(weights=WEIGHTS.tolist()))
    with open(folder / "log", "w") as log:
        child = subprocess.Popen([program, "start", "."], cwd=folder, stdout=log, stderr=log)

    def end():
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()

    cluster.callback(end)
    until(lambda: status(f"http://127.0.0.1:{http}/v2/models/linear/ready") == 200, "MLServer is ready", 90)
    return f"127.0.0.1:{http}", f"grpc://127.0.0.1:{grpc}"


async def pair(frontend):
    """Two queries at once, which make a group; how each was answered."""
    async with http_aio.InferenceServerClient(frontend.http) as client:
        arrays = [samples(1, 1.0), samples(1, -3.5)]
        results = await asyncio.gather(*[client.infer("linear", linear(http_aio, array)) for array in arrays])
    for array, result in zip(arrays, results):
        np.testing.assert_allclose(result.as_numpy("output"), array @ WEIGHTS.T, rtol=1e-4, atol=1e-4)
    return provenances(results)


def check(arguments):
    with Cluster(arguments.binaries, arguments.repository, f"{arguments.logs}/mlserver") as outer:
        addresses = start(outer, arguments.mlserver, f"{arguments.logs}/mlserver/server")
        for protocol, address in zip(["HTTP", "gRPC"], addresses):
            with Cluster(arguments.binaries, arguments.repository, f"{arguments.logs}/mlserver-{protocol}") as cluster:
                ours, parity = cluster.instance("linear"), cluster.instance("linear-parity")
                frontend = cluster.frontend(coded("linear", [ours.http, address], "linear-parity", parity.http))
                until(lambda: ups(frontend) == 3, "all three are up")
                assert asyncio.run(pair(frontend)) == ["exact", "exact"]
                ours.freeze()
                # One of them is on the frozen replica: MLServer's answer and the parity model's give its own.
                kinds = asyncio.run(pair(frontend))
                assert kinds == ["exact", "reconstructed"], kinds
            print(f"MLServer over {protocol}: a replica like our own; its answers decode")
