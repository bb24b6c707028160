"""What is compiled from C, for both architectures on any of them: everything runs with glibc 2.17."""

from __future__ import annotations

import shlex
import struct
import tempfile
from pathlib import Path

from distribution.artifacts import CACHE, clean_environment, run, tools, zlib_sources

HERE = Path(__file__).resolve().parent
GLIBC = (2, 17)
_FLAGS = ("-O2", "-g0", "-s", "-fPIC", "-Wl,--build-id=none")
_SHT_GNU_VERNEED = 0x6FFFFFFE
_VERNAUX = "<IHHII"  # hash, flags, index, name, position of the next


def compiler(arch: str) -> str:
    """Return the command of the C compiler for an architecture, for CC."""
    return shlex.join([str(tools()), "-m", "ziglang", "cc", "-target", f"{arch}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"])


def build_environment(**more: str) -> dict[str, str]:
    """Return the environment of the compiler and of Hatchling."""
    return clean_environment(ZIG_GLOBAL_CACHE_DIR=str(CACHE / "zig"), ZIG_LOCAL_CACHE_DIR=str(CACHE / "zig"), **more)


def _compile(arch: str, output: Path, *words: str | Path) -> None:
    run(*shlex.split(compiler(arch)), *_FLAGS, "-o", output, *words, env=build_environment())


def zlib(arch: str, output: Path) -> None:
    """Compile libz.so.1, which the interpreter needs and a small system may lack."""
    with tempfile.NamedTemporaryFile("w", suffix=".map") as versions:
        versions.write("ZLIB_1.2.0 { *; };\n")  # the only version that the interpreter asks for
        versions.flush()
        options = ("-shared", "-DHAVE_UNISTD_H", "-Wl,-soname,libz.so.1", f"-Wl,--version-script,{versions.name}")
        _compile(arch, output, *options, *sorted(zlib_sources().glob("*.c")))


def launcher(arch: str, output: Path, *, with_newer_symbols: bool) -> None:
    """Compile the program of the tarball; it loads the interpreter in lib/ beside it or above it by its path."""
    sources = [HERE / "launcher.c", *([HERE / "newer_symbols.c"] if with_newer_symbols else [])]
    _compile(arch, output, *sources, "-Wl,--export-dynamic", "-lpthread", "-ldl")


def require_only_old_glibc(library: Path) -> bool:
    """Let a library load with glibc 2.17: where it names a newer version of glibc, it names 2.17 then.

    The loader finds their symbols in the launcher, which it searches first. Returns whether there are any.
    """
    data = bytearray(library.read_bytes())
    needs = _version_needs(data)
    newer = [place for place, name in needs if name.startswith("GLIBC_") and _number(name) > GLIBC]
    if newer:
        old = next(place for place, name in needs if name.startswith("GLIBC_") and _number(name) == GLIBC)
        hash_of_old, _, _, name_of_old, _ = struct.unpack_from(_VERNAUX, data, old)
        for place in newer:
            _, flags, other, _, step = struct.unpack_from(_VERNAUX, data, place)
            struct.pack_into(_VERNAUX, data, place, hash_of_old, flags, other, name_of_old, step)
        library.write_bytes(data)
    return bool(newer)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.partition("_")[2].split(".")))


def _version_needs(data: bytearray) -> list[tuple[int, str]]:
    """Return position and name of every Elf64_Vernaux in the section .gnu.version_r."""
    [headers] = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, headers + i * size) for i in range(count)]
    found = []
    for section in sections:
        if section[1] != _SHT_GNU_VERNEED:
            continue
        need, names = section[4], sections[section[6]][4]
        while True:
            _, entries, _, first, following = struct.unpack_from("<HHIII", data, need)
            place = need + first
            for _ in range(entries):
                _, _, _, name, step = struct.unpack_from(_VERNAUX, data, place)
                found.append((place, data[names + name : data.index(0, names + name)].decode("ascii")))
                place += step
            if not following:
                break
            need += following
    return found
