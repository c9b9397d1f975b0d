"""NVIDIA's tritonclient, and our own on top of it, over HTTP and gRPC, against one server: as a user would have it.

Every check is a function that asserts; the first that fails ends the run with its traceback.
"""

import asyncio
import pathlib
import queue
import shutil
import subprocess
import sys

import ml_dtypes
import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
import tritonclient.http.aio as http_aio
from tritonclient.utils import InferenceServerException

sys.path.append(str(pathlib.Path(__file__).parents[2] / "deploy/python"))
import parapet

# Names of the identity model's tensors, by datatype.
DTYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": np.object_,
}

WEIGHTS = np.array([[1, 2, 0, -1], [0.5, 0, 3, 1], [-2, 1, 1, 0]], np.float32)


class Server:
    """Where a server listens, and whether it is a frontend."""

    def __init__(self, name, http_url, grpc_url, is_frontend):
        self.name, self.http, self.grpc, self.is_frontend = name, http_url, grpc_url, is_frontend


def samples(rows=1, first=0.0):
    return (np.arange(rows * 4, dtype=np.float32) + np.float32(first)).reshape(rows, 4)


def values(datatype):
    if datatype == "BYTES":
        return np.array([[b"", "ä".encode()], [b"three", b"4"]], np.object_)
    return np.array([[0, 1], [2, 3]]).astype(DTYPES[datatype])


def tensor(module, name, array, datatype, **how):
    given = module.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array, **how)
    return given


def linear(module, array, **how):
    return [tensor(module, "input", array, "FP32", **how)]


def refused(statuses, call):
    """The exception's text; its status must be one of these."""
    try:
        call()
    except InferenceServerException as error:
        assert any(status in str(error.status()) for status in statuses), (error.status(), error)
        assert error.message(), "an error says what is wrong"
        return error.message()
    raise AssertionError("not refused")


def health_and_metadata(module, client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("linear") and client.is_model_ready("linear", "1")
    assert not client.is_model_ready("nonesuch") and not client.is_model_ready("linear", "9")
    server, model = client.get_server_metadata(), client.get_model_metadata("linear", "1")
    if module is grpc:
        assert server.name.startswith("parapet") and "binary_tensor_data" in server.extensions
        assert (model.name, list(model.versions), model.platform) == ("linear", ["1"], "onnxruntime_onnx")
        assert (model.inputs[0].datatype, list(model.inputs[0].shape)) == ("FP32", [-1, 4])
    else:
        assert server["name"].startswith("parapet") and "binary_tensor_data" in server["extensions"]
        assert (model["name"], model["versions"], model["platform"]) == ("linear", ["1"], "onnxruntime_onnx")
        assert model["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 4]}]
    refused(["404", "NOT_FOUND"], lambda: client.get_model_metadata("nonesuch"))


def parameters(module, result):
    response = result.get_response()
    if module is http:
        return response.get("parameters", {})
    return {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in response.parameters.items()}


def provenances(results):
    """Of answers over HTTP, in order of their names."""
    return sorted(parameters(http, result)["provenance"] for result in results)


def answers(server, module, client):
    array = samples(3)
    top = client.infer("linear", linear(module, array), outputs=[module.InferRequestedOutput("output", class_count=1)])
    classes = [int(text.split(b":")[1]) for text in top.as_numpy("output").ravel()]
    assert classes == (array @ WEIGHTS.T).argmax(axis=1).tolist(), classes
    result = client.infer("linear", linear(module, array), request_id="mine", model_version="1")
    np.testing.assert_allclose(result.as_numpy("output"), array @ WEIGHTS.T)
    response = result.get_response()
    assert (response.id if module is grpc else response["id"]) == "mine"
    if server.is_frontend:
        given = parameters(module, result)
        assert (given["provenance"], given["confidence"]) == ("exact", 1.0), given


def every_datatype(module, client):
    inputs = [tensor(module, name, values(name), name) for name in DTYPES]
    result = client.infer("identity", inputs)
    for name in DTYPES:
        np.testing.assert_array_equal(result.as_numpy(f"{name}_out"), values(name))
    one = client.infer("identity", inputs, outputs=[module.InferRequestedOutput("INT8_out")])
    assert one.as_numpy("FP32_out") is None
    np.testing.assert_array_equal(one.as_numpy("INT8_out"), values("INT8"))


def json_alone(client):
    array = samples(2)
    outputs = [http.InferRequestedOutput("output", binary_data=False)]
    result = client.infer("linear", linear(http, array, binary_data=False), outputs=outputs)
    np.testing.assert_allclose(result.as_numpy("output"), array @ WEIGHTS.T)
    # All datatypes that JSON carries, and binary where it does not.
    inputs = [tensor(http, name, values(name), name, binary_data=name == "BF16") for name in DTYPES]
    names = [name for name in DTYPES if name != "BF16"]
    outputs = [http.InferRequestedOutput(f"{name}_out", binary_data=False) for name in names]
    result = client.infer("identity", inputs, outputs=outputs)
    for name in names:
        expected = values(name)
        if name == "BYTES":
            expected = np.char.decode(expected.astype(np.bytes_), "utf-8").astype(np.object_)
        np.testing.assert_array_equal(result.as_numpy(f"{name}_out").reshape(2, 2), expected)


def compressed(module, client):
    array = np.arange(1200, dtype=np.float32).reshape(2, 600)
    given = [tensor(module, "wide", array, "FP32")]
    for algorithm in ["gzip", "deflate"]:
        if module is http:
            ways = [
                {"request_compression_algorithm": algorithm},
                {"response_compression_algorithm": algorithm},
                {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm},
            ]
        else:
            ways = [{"compression_algorithm": algorithm}]
        for way in ways:
            result = client.infer("wide", given, **way)
            np.testing.assert_array_equal(result.as_numpy("wide_out"), array)
            if "response_compression_algorithm" in way:
                outputs = [http.InferRequestedOutput("wide_out", binary_data=False)]
                result = client.infer("wide", given, outputs=outputs, **way)
                np.testing.assert_array_equal(result.as_numpy("wide_out"), array)


def several_in_flight(module, client):
    arrays = [samples(1, first) for first in range(48)]
    if module is http:
        asked = [client.async_infer("linear", linear(http, array)) for array in arrays]
        results = [one.get_result() for one in asked]
    else:
        import queue

        done = queue.Queue()
        for number, array in enumerate(arrays):
            callback = lambda result, error, number=number: done.put((number, result, error))
            client.async_infer("linear", linear(grpc, array), callback)
        results = [None] * len(arrays)
        for _ in arrays:
            number, result, error = done.get(timeout=30)
            assert error is None, error
            results[number] = result
    for array, result in zip(arrays, results):
        np.testing.assert_allclose(result.as_numpy("output"), array @ WEIGHTS.T)


def streams(client):
    """Answers of a stream come in the order of its requests, errors among them."""
    answers = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    for model, first in [("linear", 0), ("nonesuch", 1), ("linear", 2)]:
        client.async_stream_infer(model, linear(grpc, samples(2, first)), request_id=str(first))
    for first in range(3):
        result, error = answers.get(timeout=10)
        if first == 1:
            assert "nonesuch" in error.message(), error
            continue
        assert error is None and result.get_response().id == str(first), (error, result)
        np.testing.assert_allclose(result.as_numpy("output"), samples(2, first) @ WEIGHTS.T)
    client.stop_stream()


def mistakes(module, client):
    bad, missing = ["400", "INVALID_ARGUMENT"], ["404", "NOT_FOUND"]
    good = linear(module, samples())
    refused(missing, lambda: client.infer("nonesuch", good))
    refused(missing, lambda: client.infer("linear", good, model_version="9"))
    text = refused(bad, lambda: client.infer("linear", linear(module, np.zeros((1, 5), np.float32))))
    assert "shape" in text, text
    text = refused(bad, lambda: client.infer("linear", [tensor(module, "input", np.zeros((1, 4)), "FP64")]))
    assert "FP64" in text, text
    refused(bad, lambda: client.infer("linear", [tensor(module, "other", samples(), "FP32")]))
    refused(bad, lambda: client.infer("linear", good, outputs=[module.InferRequestedOutput("nonesuch")]))
    np.testing.assert_allclose(client.infer("linear", good).as_numpy("output"), samples() @ WEIGHTS.T)


def provenance(server, protocol, url):
    array, bad = samples(2), ["400", "INVALID_ARGUMENT"]
    with parapet.Client(url, protocol=protocol, headers={"parapet-class": "default"}) as client:
        prediction = client.infer("linear", {"input": array}, version="1", allow_approximate=False, deadline_ms=30000)
        np.testing.assert_allclose(prediction.outputs["output"], array @ WEIGHTS.T)
        known = (prediction.provenance, prediction.is_approximate, prediction.code, prediction.confidence)
        assert known == ("exact", False, None, 1.0 if server.is_frontend else None), known
        inputs = {name: values(name) for name in DTYPES} | {"BYTES": np.array([["a", "b"], ["c", "d"]])}
        outputs = client.infer("identity", inputs, outputs=["BYTES_out", "BF16_out"], class_="default").outputs
        assert set(outputs) == {"BYTES_out", "BF16_out"} and outputs["BYTES_out"].tolist()[1] == [b"c", b"d"], outputs
        refused(bad, lambda: client.infer("linear", {"input": np.zeros((1, 5), np.float32)}))


async def aio(server):
    async with http_aio.InferenceServerClient(server.http) as client:
        array = np.arange(600, dtype=np.float32).reshape(1, 600)
        given = [tensor(http_aio, "wide", array, "FP32")]
        asked = [client.infer("wide", given, response_compression_algorithm="gzip") for _ in range(8)]
        for result in await asyncio.gather(*asked):
            np.testing.assert_array_equal(result.as_numpy("wide_out"), array)


def curl(server):
    if shutil.which("curl") is None:
        return
    body = '{"id":"c","inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[[1,2,3,4]]}]}'
    line = ["curl", "--silent", "--fail", "--compressed", f"http://{server.http}/v2/models/linear/infer", "-d", body]
    said = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    assert '"data":[1.0,13.5,3.0]' in said and '"id":"c"' in said, said


def check(server):
    """All of it."""
    for module, url in [(http, server.http), (grpc, server.grpc)]:
        arguments = {"concurrency": 16} if module is http else {}
        with module.InferenceServerClient(url, **arguments) as client:
            health_and_metadata(module, client)
            answers(server, module, client)
            every_datatype(module, client)
            if module is http:
                json_alone(client)
            else:
                streams(client)
            compressed(module, client)
            several_in_flight(module, client)
            mistakes(module, client)
        provenance(server, module.__name__.rsplit(".")[-1], url)
        print(f"{server.name}: tritonclient.{module.__name__.rsplit('.')[-1]} well")
    asyncio.run(aio(server))
    curl(server)
    print(f"{server.name}: asyncio client and curl well")
