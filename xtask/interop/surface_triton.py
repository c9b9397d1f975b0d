"""Every call of tritonclient's four clients, for `surface.py`."""

import asyncio
import base64
import gzip
import importlib.metadata
import json
import queue
import urllib.error
import urllib.request

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http
import tritonclient.http.aio as http_aio
from clients import WEIGHTS, linear, samples
from google.protobuf.json_format import MessageToDict
from surface import LIMIT, WORKS, Surface, Ways, methods, refusal
from tritonclient.utils import InferenceServerException

GOOD = samples(1) @ WEIGHTS.T
BODY = b'{"outputs":[{"name":"output","datatype":"FP32","shape":[1,3],"data":[-1,9,3]}]}'
HANDLE = base64.b64encode(bytes(64))


class Plugin:
    """Adds a header to each request."""

    def __call__(self, request):
        request.headers["x-request-id"] = "plugin"


def sequence(name, value):
    return {"sequence_id": 7, name: value}


def requested(module, **how):
    output = module.InferRequestedOutput("output", **how)
    return {"outputs": [output]}


def in_shared_memory(module):
    output, given = module.InferRequestedOutput("output"), module.InferInput("input", [1, 4], "FP32")
    output.set_shared_memory("region", 12)
    given.set_shared_memory("region", 16)
    return {"outputs": [output]}, {"inputs": [given]}


def arguments(module):
    """Arguments of all calls. `outputs` has those of the output's own class, too."""
    output_in_memory, input_in_memory = in_shared_memory(module)
    outputs = {"outputs": requested(module), "class_count": requested(module, class_count=1)}
    outputs["InferRequestedOutput.set_shared_memory"] = output_in_memory
    inputs = {"inputs": {"inputs": linear(module, samples(1))}, "InferInput.set_shared_memory": input_in_memory}
    if module is http:
        outputs["binary_data"] = requested(module, binary_data=False)
        inputs["JSON inputs"] = {"inputs": linear(module, samples(1), binary_data=False)}
    compressed = lambda name: Ways({f"{name}={way}": {name: way} for way in ["gzip", "deflate"]})
    files = {"files": {"file:1/model.onnx": b"model"}, "config": "{}"}
    return {
        "model_name": "linear",
        "inputs": Ways(inputs),
        "outputs": Ways(outputs),
        "model_version": "1",
        "request_id": "mine",
        "sequence_id": 7,
        "sequence_start": Ways({"sequence_start": sequence("sequence_start", True)}),
        "sequence_end": Ways({"sequence_end": sequence("sequence_end", True)}),
        "priority": 1,
        "timeout": 3_000_000,
        "parameters": {"mine": "yes"},
        "enable_empty_final_response": True,
        "headers": {"x-request-id": "surface"},
        "query_params": {"a": "b"},
        "as_json": True,
        "client_timeout": 3.0,
        "stream_timeout": 3.0,
        "request_compression_algorithm": compressed("request_compression_algorithm"),
        "response_compression_algorithm": compressed("response_compression_algorithm"),
        "compression_algorithm": compressed("compression_algorithm"),
        "callback": queue.Queue(),
        "inputs_iterator": True,
        "cancel_requests": True,
        "config": "{}",
        "files": Ways({"files": files}),
        "unload_dependents": True,
        "region_name": "region",
        "name": "region",
        "key": "/region",
        "byte_size": 64,
        "offset": 16,
        "raw_handle": HANDLE,
        "device_id": 0,
        "update_log_settings.settings": {"log_verbose_level": 1},
        "update_trace_settings.settings": {"trace_level": ["TIMESTAMPS"]},
        "plugin": Plugin(),
        "response_body": BODY,
        "verbose": False,
        "header_length": len(BODY),
        "content_encoding": Ways(
            {"content_encoding": {"content_encoding": "gzip", "response_body": gzip.compress(BODY)}}
        ),
    }


def as_json(value):
    """A gRPC answer as what the REST client gives."""
    if isinstance(value, (dict, list, bool, type(None))):
        return value
    return MessageToDict(value, preserving_proto_field_name=True)


def check(method, value, given):
    """That an answer is what the call asks for, of those calls that the frontend serves."""
    if method.startswith("is_"):
        assert value is True, value
    elif method in ["infer", "async_infer", "stream_infer", "async_stream_infer", "parse_response_body"]:
        expected = GOOD
        got = value.as_numpy("output")
        if got.dtype == np.object_:
            got, expected = int(got.ravel()[0].split(b":")[1]), GOOD.argmax()
        np.testing.assert_allclose(got, expected)
    elif method == "get_server_metadata":
        assert as_json(value)["name"].startswith("parapet"), value
    elif method == "get_model_metadata":
        assert as_json(value)["inputs"][0]["name"] == "input", value
    elif method == "get_model_config":
        config = as_json(value)
        config = config.get("config", config)
        assert config["max_batch_size"] == 8 and config["input"][0]["data_type"] == "TYPE_FP32", config
        assert [int(length) for length in config["output"][0]["dims"]] == [3], config
    elif method == "get_inference_statistics":
        counted = as_json(value)["model_stats"]
        found = [model for model in counted if model["name"] == "linear"]
        assert int(found[0]["inference_stats"]["success"]["count"]) > 0, counted
    elif method == "get_model_repository_index":
        found = as_json(value)
        found = found if isinstance(found, list) else found["models"]
        assert {"linear", "identity"} <= {model["name"] for model in found}, found


class Calls:
    """Makes the calls of one client; those that belong together on a client of its own."""

    def __init__(self, module, url):
        self.module, self.url = module, url
        # One loop for all calls: gRPC's poller outlives a client.
        self.runner = asyncio.Runner() if module in [http_aio, grpc_aio] else None

    def __call__(self, method, given):
        try:
            if self.runner:
                value = self.runner.run(asyncio.wait_for(self.ask_aio(method, dict(given)), LIMIT))
            else:
                with self.module.InferenceServerClient(self.url) as client:
                    value = self.ask(client, method, dict(given))
            check(method, value, given)
            return WORKS
        except InferenceServerException as error:
            return refusal(error.status(), error.message())

    def ask(self, client, method, given):
        if method in ["start_stream", "async_stream_infer", "stop_stream"]:
            return self.stream(client, method, given)
        if method == "unregister_plugin":
            client.register_plugin(Plugin())
        if method == "async_infer" and self.module is grpc:
            answers = given["callback"] = queue.Queue()
            given["callback"] = lambda result, error: answers.put((result, error))
            client.async_infer(**given)
            return answer(answers)
        value = getattr(client, method)(**given)
        if method == "async_infer":
            return value.get_result()
        if method == "register_plugin":
            assert client.is_server_live()
        if method == "generate_request_body":
            return self.post(*value)
        return value

    def post(self, body, header_length):
        request = urllib.request.Request(f"http://{self.url}/v2/models/linear/infer", body)
        if header_length:
            request.add_header("Inference-Header-Content-Length", str(header_length))
        try:
            urllib.request.urlopen(request, timeout=LIMIT).read()
        except urllib.error.HTTPError as error:
            raise InferenceServerException(json.loads(error.read())["error"], status=str(error.code)) from error

    def stream(self, client, method, given):
        """One request on a stream, whichever of its three calls is tried."""
        answers = queue.Queue()
        callback = lambda result, error: answers.put((result, error))
        started, stopped = (given if method == "start_stream" else {}), (given if method == "stop_stream" else {})
        client.start_stream(**(started | {"callback": callback}))
        request = {"model_name": "linear", "inputs": linear(grpc, samples(1))}
        client.async_stream_infer(**(given if method == "async_stream_infer" else request))
        result = answer(answers)
        client.stop_stream(**stopped)
        if method != "async_stream_infer":
            check("infer", result, given)
        return result

    async def ask_aio(self, method, given):
        async with self.module.InferenceServerClient(self.url) as client:
            if method == "unregister_plugin":
                client.register_plugin(Plugin())
            if method == "stream_infer":

                async def requests():
                    yield {"model_name": "linear", "inputs": linear(grpc, samples(1))}

                given["inputs_iterator"] = requests()
                async for result, error in client.stream_infer(**given):
                    if error is not None:
                        raise error
                    return result
            value = getattr(client, method)(**given)
            value = await value if asyncio.iscoroutine(value) else value
            if method == "register_plugin":
                assert await client.is_server_live()
            return self.post(*value) if method == "generate_request_body" else value


def answer(answers):
    result, error = answers.get(timeout=LIMIT)
    if error is not None:
        raise error
    return result


def tried(server):
    """The SDK with its version, and its tries."""
    tries = []
    for name, module, url in [
        ("http", http, server.http),
        ("grpc", grpc, server.grpc),
        ("http.aio", http_aio, server.http),
        ("grpc.aio", grpc_aio, server.grpc),
    ]:
        given = arguments(http if name.startswith("http") else grpc)
        tries += Surface(name, methods(module.InferenceServerClient), given, Calls(module, url)).tries()
    return f"tritonclient {importlib.metadata.version('tritonclient')}", tries
