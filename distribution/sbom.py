"""What a tarball consists of: a software bill of materials in CycloneDX 1.5 (JSON)."""

from __future__ import annotations

import hashlib
import json
import re
from email import message_from_string
from pathlib import Path
from typing import Any

from distribution.artifacts import LOCK, zlib_sources
from distribution.tree import SITE


def write_sbom(root: Path, arch: str, version: str, output: Path) -> None:
    """Write the components of a tarball's tree: packages, interpreter, libffi, zlib, each with version and licence."""
    packages = [_package(info / "METADATA") for info in sorted((root / SITE).glob("*.dist-info"))]
    [main] = [package for package in packages if package["name"] == "rmqstore"]
    [interpreter] = [
        line for line in (LOCK / "maven.txt").read_text().splitlines() if arch.replace("aarch64", "arm64") in line
    ]
    coordinates, digest = interpreter.split()
    group, name, maven_version, _, classifier = coordinates.split(":")
    zlib = re.search(r'ZLIB_VERSION "([\d.]+)', (zlib_sources() / "zlib.h").read_text())
    assert zlib
    others = [
        {
            **_component(name, maven_version.partition("-")[0], "PSF-2.0"),
            "purl": f"pkg:maven/{group}/{name}@{maven_version}?classifier={classifier}",
            "hashes": [{"alg": "SHA-256", "content": digest}],
        },
        _component(
            "libffi", "3", "MIT", note="libffi.so.6 in the artifact of cpython, which does not name the version"
        ),
        _component("zlib", zlib[1], "Zlib"),
    ]
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**main, "type": "application", "bom-ref": "rmqstore"}},
        "components": [*(package for package in packages if package is not main), *others],
    }
    digest = hashlib.sha256(
        json.dumps(document, sort_keys=True).encode()
    ).hexdigest()  # the same content, the same number
    document["serialNumber"] = f"urn:uuid:{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
    output.write_text(json.dumps(document, indent=1) + "\n")


def _package(metadata: Path) -> dict[str, Any]:
    fields = message_from_string(metadata.read_text("utf-8"))
    name, version = fields["Name"].lower(), fields["Version"]
    given = fields["License-Expression"] or fields["License"] or ""
    licence = (
        given if given and "\n" not in given else _classified(fields.get_all("Classifier") or [])
    )  # not a whole text
    return {**_component(name, version, licence), "purl": f"pkg:pypi/{name}@{version}"}


def _classified(classifiers: list[str]) -> str:
    found = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License ::")]
    return found[0] if found else "unknown"


def _component(name: str, version: str, licence: str, note: str = "") -> dict[str, Any]:
    """A licence that is not an SPDX expression is given by name."""
    expression = re.fullmatch(r"\(?[\w.+-]+\)?( (AND|OR|WITH) \(?[\w.+-]+\)?)*", licence)
    known = {"expression": licence} if expression else {"license": {"name": licence}}
    return {
        "type": "library",
        "name": name,
        "version": version,
        "licenses": [known],
        **({"description": note} if note else {}),
    }
