"""Every call of the clients of KServe's SDK, for `surface.py`, which runs this with a Python that has it.

    surface_kserve.py HTTP GRPC        # prints the SDK with its version, and its tries, as JSON
"""

import asyncio
import importlib.metadata
import json
import logging
import sys

import grpc
import httpx
import kserve
import numpy as np
from kserve.errors import UnsupportedProtocol
from kserve.protocol.infer_type import RequestedOutput
from surface import LIMIT, WORKS, Surface, Ways, methods, refusal

# As `clients.py` has them, which this Python cannot import.
VALUES = [[0.0, 1.0, 2.0, 3.0]]
EXPECTED = [[-1.0, 9.0, 3.0]]


def request(binary=True, **how):
    given = kserve.InferInput("input", [1, 4], "FP32")
    given.set_data_from_numpy(np.array(VALUES, np.float32), binary_data=binary)
    return kserve.InferRequest("linear", [given], **how)


def requests(binary):
    """Requests, by what they have that the first has not."""
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 4], "data": VALUES}
    found = {
        "request": request(),
        "JSON inputs": request(binary=False),
        "request_id": request(request_id="mine"),
        "parameters": request(parameters={"mine": "yes"}),
        "sequence_id": request(parameters={"sequence_id": 7}),
        "request_outputs": request(request_outputs=[RequestedOutput("output")]),
        "class_count": request(request_outputs=[RequestedOutput("output", {"classification": 1})]),
    }
    if binary:
        found["binary_data"] = request(request_outputs=[RequestedOutput("output", {"binary_data": True})])
        found["dictionary"] = {"inputs": [tensor]}
    return found


def arguments(http):
    base = f"http://{http}"
    rest = {
        "base_url": base,
        "model_name": "linear",
        "infer.data": Ways({name: {"data": value} for name, value in requests(True).items()}),
        "explain.data": {"instances": VALUES},
        "headers": {"x-request-id": "surface"},
        "response_headers": {},
        "is_graph_endpoint": Ways(
            {"is_graph_endpoint": {"is_graph_endpoint": True, "base_url": f"{base}/v2/models/linear/infer"}}
        ),
        "timeout": 3.0,
    }
    rpc = {
        "infer_request": Ways({name: {"infer_request": value} for name, value in requests(False).items()}),
        "model_name": "linear",
        "headers": (("x-request-id", "surface"),),
        "timeout": 3.0,
    }
    return rest, rpc


def check(method, value):
    if method.startswith("is_"):
        assert value is True, value
    elif method == "infer":
        output = value["outputs"][0] if isinstance(value, dict) else value.outputs[0]
        if isinstance(value, dict):
            assert output["data"] == EXPECTED[0], value
        elif output.datatype == "BYTES":
            assert "9.000000:1" in f"{output.data} {output._raw_data}", output
        else:
            np.testing.assert_allclose(output.as_numpy(), EXPECTED)


def caller(make):
    async def ask(method, given):
        async with make() as client:
            return await getattr(client, method)(**given)

    def call(method, given):
        given = dict(given)
        if method == "infer" and "base_url" in given:
            given.setdefault("model_name", "linear")
        try:
            check(method, asyncio.run(asyncio.wait_for(ask(method, given), LIMIT)))
            return WORKS
        except httpx.HTTPStatusError as error:
            return refusal(error.response.status_code, error.response.json()["error"])
        except grpc.RpcError as error:
            return refusal(error.code(), error.details())
        except UnsupportedProtocol:
            return "", "the client refuses it: only its protocol v1 explains"

    return call


def main():
    http, rpc = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    tries = []
    for name, kind, make, given in zip(
        ["REST", "GRPC"],
        [kserve.InferenceRESTClient, kserve.InferenceGRPCClient],
        [
            lambda: kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2", retries=0)),
            lambda: kserve.InferenceGRPCClient(rpc, retries=0),
        ],
        arguments(http),
    ):
        tries += Surface(name, methods(kind), given, caller(make)).tries()
    print(json.dumps([f"kserve {importlib.metadata.version('kserve')}", tries]))


if __name__ == "__main__":
    main()
