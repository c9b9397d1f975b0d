"""Holds manifests (standard input) against the schemas of Kubernetes' API of a version, and against those in a folder.

Arguments: version, folder. A kind that neither knows is a mistake, and so is a field that a schema does not know.
"""

import json
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml

version, folder = sys.argv[1], pathlib.Path(sys.argv[2])
own = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def check(manifest):
    if manifest["kind"] in own:
        jsonschema.validate(manifest, own[manifest["kind"]])
    else:
        kubernetes_validate.validate(manifest, version, strict=True)
    # The jobs within a JobSet are those of Kubernetes.
    for job in manifest["spec"]["replicatedJobs"] if manifest["kind"] == "JobSet" else []:
        check({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, **job["template"]})


wrong = 0
for manifest in filter(None, yaml.safe_load_all(sys.stdin)):
    try:
        check(manifest)
    except Exception as error:  # each of the packages has its own
        where = ".".join(map(str, getattr(error, "path", [])))
        print(f"{manifest['kind']} {manifest['metadata']['name']}: {where}: {getattr(error, 'message', error)}", file=sys.stderr)
        wrong += 1
sys.exit(wrong > 0)
