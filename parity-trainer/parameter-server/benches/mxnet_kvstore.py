"""One process of `cargo xtask bench parameter-server --mxnet-python`: mxnet 1.9.1's kvstore, which has ps-lite inside.

The role comes in DMLC_ROLE, as mxnet has it. A worker does the same rounds as `examples/throughput.rs` and prints the same
line. Needs mxnet==1.9.1 and numpy==1.23.5.
"""

import argparse
import json
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--bytes", type=int, default=65536)
parser.add_argument("--keys", type=int, default=16)
parser.add_argument("--rounds", type=int, default=100)
args = parser.parse_args()

import mxnet as mx  # noqa: E402  (a scheduler or server never comes back from this import)

if os.environ["DMLC_ROLE"] != "worker":
    raise SystemExit(0)

# Nothing is set on the server: it adds up the workers' values and keeps the sum.
store = mx.kv.create("dist_sync")
shape = (args.bytes // 4,)
values = [mx.nd.full(shape, float(key)) for key in range(args.keys)]
places = [mx.nd.zeros(shape) for _ in range(args.keys)]
for key in range(args.keys):
    store.init(str(key), mx.nd.zeros(shape))


def run(phase, rounds):
    """Every key `rounds` times; the engine keeps the order of what is done with one array."""
    for _ in range(rounds):
        for key in range(args.keys):
            if phase != "pull":
                store.push(str(key), values[key])
            if phase != "push":
                store.pull(str(key), out=places[key])
    # For pushes, too: to the engine, a push is done when the server has answered.
    mx.nd.waitall()


seconds = {}
for phase in ["push", "pull", "both"]:
    run(phase, min(args.rounds, 3))
    start = time.perf_counter()
    run(phase, args.rounds)
    seconds[phase] = time.perf_counter() - start
# The servers must have added up. With fresh values: a store pulls into the very array that it pushed, so the values above
# have become sums of sums.
for key in range(args.keys):
    values[key][:] = key + 1
run("both", 1)
for key in range(args.keys):
    expected = (key + 1) * store.num_workers
    assert (places[key].asnumpy() == expected).all(), (places[key], expected)
print(json.dumps(seconds), flush=True)
