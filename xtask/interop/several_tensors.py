"""A model with several inputs and outputs, some of which are coded: what `parapet-frontend` makes up for, and what it waits for."""

import asyncio

import numpy as np
import tritonclient.http.aio as http_aio
from clients import provenances, tensor
from cluster import Cluster, coded, until, ups

# `scene` returns what it is given. Its parity model knows `boxes` and `scores` alone, and in this order.
CODED = ["scores_out", "boxes_out"]


def scene(number):
    scores = np.arange(4, dtype=np.float32).reshape(1, 4) + np.float32(number)
    boxes = np.array([[number, -1.5]], np.float32)
    return {"camera": np.array([[number]], np.int64), "scores": scores, "boxes": boxes}


async def pair(frontend, names):
    """Two queries at once, which make a group, each asking for these outputs; how each was answered."""
    scenes = [scene(3), scene(-8)]
    async with http_aio.InferenceServerClient(frontend.http) as client:

        def ask(given):
            datatype = {"camera": "INT64"}
            inputs = [tensor(http_aio, name, array, datatype.get(name, "FP32")) for name, array in given.items()]
            outputs = [http_aio.InferRequestedOutput(name) for name in names]
            return client.infer("scene", inputs, outputs=outputs)

        results = await asyncio.gather(*[ask(given) for given in scenes])
    for given, result in zip(scenes, results):
        for name, array in given.items():
            got = result.as_numpy(f"{name}_out")
            if f"{name}_out" in names:
                np.testing.assert_allclose(got, array, rtol=1e-5, atol=1e-5)
            else:
                assert got is None, (name, got)
    return provenances(results)


def straggle(frontend, replica, names):
    """How two queries are answered while a replica stands still."""
    replica.freeze()
    kinds = asyncio.run(pair(frontend, names))
    replica.thaw()
    until(lambda: ups(frontend) == 3, "all three are up again")
    return kinds


def check(arguments):
    for protocol in ["http", "grpc"]:
        with Cluster(arguments.binaries, arguments.repository, f"{arguments.logs}/several-tensors-{protocol}") as cluster:
            replicas = [cluster.instance("scene") for _ in range(2)]
            parity = cluster.instance("scene-parity")
            address = lambda one: one.http if protocol == "http" else f"grpc://{one.grpc}"
            frontend = cluster.frontend(
                coded("scene", [address(one) for one in replicas], "scene-parity", address(parity))
            )
            until(lambda: ups(frontend) == 3, "all three are up")
            assert asyncio.run(pair(frontend, [*CODED, "camera_out"])) == ["exact", "exact"]
            for names in [CODED, CODED[1:]]:
                # On a busy machine a health check may find the frozen one out before a query comes to it.
                answers = [straggle(frontend, replicas[0], names) for _ in range(5)]
                assert ["exact", "reconstructed"] in answers, (names, answers)
        print(f"several tensors over {protocol}: those that are coded are reconstructed")
