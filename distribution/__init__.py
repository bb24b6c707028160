"""`make dist`: builds everything that a release consists of into dist/. `python -m distribution` runs it.

    lock/            every artifact from outside, with version and SHA-256
    artifacts.py     fetches these, through pip and Maven, and checks them
    native.py        what is compiled from C, for both architectures: zlib, launcher, symbols that glibc 2.17 lacks
    wheels.py        sdist and wheels
    tree.py          the files of a tarball: interpreter, packages, launcher, manual pages, licences
    archive.py       tar files with the same bytes each time
    certificates.py  the module ssl of the -full- tarballs
    sbom.py          what a tarball consists of, as CycloneDX
    packages.py      .deb and .rpm
    lock_again.py    writes the hashes of lock/ after a version in it has changed
    release.py       `make release`

Downloads and tools are kept in .cache/dist, or in the directory that RMQSTORE_DIST_CACHE names.
"""
