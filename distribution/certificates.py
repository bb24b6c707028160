"""The module `ssl` of the -full- tarballs: only what pyarrow asks for, where the system's certificates are.

pyarrow has its own TLS for object storage. The interpreter has none, so that no old OpenSSL has to be replaced.
"""

import os
from collections import namedtuple

DefaultVerifyPaths = namedtuple("DefaultVerifyPaths", "cafile capath")
_FILES = ("/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/ca-bundle.pem")
_DIRECTORY = "/etc/ssl/certs"


def get_default_verify_paths():  # type: ignore[no-untyped-def]
    """Return the file and the directory that exist, as the real module does; SSL_CERT_FILE and SSL_CERT_DIR first."""
    files = (os.environ.get("SSL_CERT_FILE", ""), *_FILES)
    directories = (os.environ.get("SSL_CERT_DIR", ""), _DIRECTORY)
    return DefaultVerifyPaths(next(filter(os.path.isfile, files), None), next(filter(os.path.isdir, directories), None))
