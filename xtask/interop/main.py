"""Real clients against real servers: the whole of `cargo xtask interop`, once models and programs are there."""

import argparse

import clients
import several_tensors
import surface
from cluster import Cluster, quoted


def models(instances, parity):
    """Coded over HTTP for one model, gRPC upstream for the others."""
    http, grpc = quoted(one.http for one in instances), quoted(f"grpc://{one.grpc}" for one in instances)
    return f"""
[[models]]
name = "linear"
instances = {http}
[models.strategy]
kind = "coded"
encoder = "sum"
k = 2
[[models.strategy.parity]]
model = "linear-parity"
instances = {quoted([parity.http])}
[[models]]
name = "identity"
instances = {grpc}
[[models]]
name = "wide"
instances = {grpc}
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", required=True)
    parser.add_argument("--repository", required=True)
    parser.add_argument("--logs", required=True)
    parser.add_argument("--kserve", required=True, help="a Python that has KServe's SDK")
    parser.add_argument("--write", action="store_true", help="write the table of docs/protocol.md")
    parser.add_argument("--mlserver", help="the mlserver program")
    parser.add_argument("--schemathesis", help="the schemathesis program")
    arguments = parser.parse_args()
    with Cluster(arguments.binaries, arguments.repository, arguments.logs) as cluster:
        instances = [cluster.instance("linear,identity,wide") for _ in range(2)]
        frontend = cluster.frontend(models(instances, cluster.instance("linear-parity")))
        servers = [
            clients.Server("frontend", frontend.http, frontend.grpc, True),
            clients.Server("instance", instances[0].http, instances[0].grpc, False),
        ]
        for server in servers:
            clients.check(server)
            if arguments.schemathesis:
                import openapi

                openapi.check(server, arguments.schemathesis)
        surface.check(servers[0], arguments.kserve, arguments.write)
    several_tensors.check(arguments)
    if arguments.mlserver:
        import replica

        replica.check(arguments)


if __name__ == "__main__":
    main()
