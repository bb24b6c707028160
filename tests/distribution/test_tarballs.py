"""The tarballs run on an old system: without Python, PATH or network, with glibc 2.17, and with the same answers."""

from __future__ import annotations

import ctypes.util
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from distribution.__main__ import DIST, version
from rmqstore.manual import pages
from tests.command import run
from tests.damage import flip
from tests.distribution.conftest import Tarball, built
from tests.stores import STORES, copy_store, unpack

KINDS = ("linux-x86_64", "linux-aarch64", "full-linux-x86_64", "full-linux-aarch64")
LIMITS = {"GLIBC": (2, 17), "GLIBCXX": (3, 4, 19), "CXXABI": (1, 3, 7), "GCC": (4, 8, 0)}  # of GCC 4.8.5
_OF_THIS_RUN = ("seconds", "run_seconds")


@pytest.mark.parametrize(("kind", "megabytes"), [(kind, 140 if "full" in kind else 60) for kind in KINDS])
def test_a_tarball_is_small(kind: str, megabytes: int) -> None:
    assert built(f"rmqstore-{version()}-{kind}.tar.gz").stat().st_size < megabytes * 1_000_000


def libraries(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size > 64:
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def newest_versions(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the newest version of glibc, libstdc++ and libgcc that a library requires."""
    newest: dict[str, tuple[int, ...]] = {}
    with path.open("rb") as file:
        sections = ELFFile(file).iter_sections()
        needs = (
            need for section in sections if isinstance(section, GNUVerNeedSection) for need in section.iter_versions()
        )
        for name in (entry.name for _, entries in needs for entry in entries):
            found = re.fullmatch(r"([A-Z]+)_([\d.]+)", name)
            if found and found[1] in LIMITS:
                number = tuple(int(part) for part in found[2].split("."))
                newest[found[1]] = max(number, newest.get(found[1], ()))
    return newest


@pytest.mark.parametrize("kind", KINDS)
def test_no_library_needs_more_than_glibc_2_17_and_gcc_4_8_5(kind: str, unpacked: Callable[[str], Path]) -> None:
    found = {path: newest_versions(path) for path in libraries(unpacked(kind))}
    too_new = {
        path: number
        for path, newest in found.items()
        if (number := {name: number for name, number in newest.items() if number > LIMITS[name]})
    }
    assert too_new == {}
    assert len(found) > 60


def digests(store: Path) -> dict[str, str]:
    files = (path for path in store.rglob("*") if path.is_file() and ".rmqstore" not in path.parts)
    return {str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def damaged_store(folder: Path) -> Path:
    """The store of `make demo`."""
    store = copy_store("5.4.0-clean", folder, rename="store")
    flip(store / "commitlog" / f"{196608:020d}", 47521)
    (store / "abort").touch()
    (store / "checkpoint").write_bytes(bytes(4096))
    return store


def play_demo(command: Callable[..., subprocess.CompletedProcess[str]], store: Path, shown: str) -> None:
    """Verify, recover, apply and undo; `shown` is the store's path as the command sees it."""
    before = digests(store)
    assert "lose 252 messages" in command("verify", shown).stdout
    assert "No data will be lost." in command("recover", shown).stdout
    assert digests(store) == before
    applied = command("recover", shown, "--apply")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert command("verify", shown).returncode == 0
    undone = command("undo", shown, "--last")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert digests(store) == before


def test_the_demo_runs_in_an_empty_environment(tarball: Tarball, tmp_path: Path) -> None:
    store = damaged_store(tmp_path)
    play_demo(tarball.run, store, str(store))


def test_the_demo_runs_on_a_system_that_has_nothing_but_glibc_and_libstdcxx(own: Tarball, tmp_path: Path) -> None:
    namespace = ("unshare", "--mount", "--pid", "--fork")
    if subprocess.run((*namespace, "true"), capture_output=True, check=False).returncode:
        pytest.skip("unshare may not make a mount namespace here (needs root)")
    system = tmp_path / "system"
    system_libraries(system)
    shutil.copytree(own.root, system / "opt" / "rmqstore", symlinks=True)
    store = damaged_store(system)
    (system / "rmqstore").symlink_to("/opt/rmqstore/rmqstore")
    script = (
        'cd "$1"; mkdir -p proc dev tmp; mount -t proc proc proc; mount --rbind /dev dev; shift; exec chroot . "$@"'
    )

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        inside = ["sh", "-c", script, "sh", str(system), "/rmqstore", *words]
        environment = {"PATH": os.environ["PATH"]}  # of mount and chroot
        return subprocess.run([*namespace, *inside], env=environment, capture_output=True, text=True, check=False)

    assert command("--version").stdout.strip() == f"rmqstore, version {version()}"
    play_demo(command, store, "/store")


def system_libraries(system: Path) -> None:
    """Copy glibc, libstdc++ and libgcc to where the loader of a new system finds them."""
    assert ctypes.util.find_library("stdc++"), "no libstdc++ here"
    listed = subprocess.run(
        ["ldconfig", "-p"], env={"PATH": "/sbin:/usr/sbin"}, capture_output=True, text=True, check=True
    )
    wanted = r"\s(ld-linux[\w-]*|lib(?:c|m|dl|pthread|rt|util|gcc_s|stdc\+\+))\.so\.\d+ .*=> (\S+)"
    machine = {"x86_64": "x86-64", "aarch64": "AArch64"}[platform.machine()]
    for line in listed.stdout.splitlines():
        found = re.match(wanted, line)
        if found and (machine in line or "ld-linux" in line):
            place = Path(found[2])
            for folder in ("lib", "lib64") if "ld-linux" in place.name else ("lib",):
                (system / folder).mkdir(parents=True, exist_ok=True)
                shutil.copy(place, system / folder / place.name)


def test_libraries_come_from_the_tarball(tarball: Tarball) -> None:
    code = (
        "import zlib, rocksdict, lz4.frame, backports.zstd, orjson, numpy; from zlib_ng import zlib_ng;"
        "from rmqstore.scan import native; assert native.load();"
        "print(*{line.split()[-1] for line in open('/proc/self/maps') if '.so' in line}, sep='\\n')"
    )
    # LD_BIND_NOW: the loader finds every function, those that are newer than glibc 2.17 in the launcher
    done = tarball.run("-I", "-B", "-c", code, program="bin/python3.11", env={"LD_BIND_NOW": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    loaded = done.stdout.split()
    assert any("rocksdict" in path for path in loaded)
    assert any("_native.so" in path for path in loaded)
    outside = {Path(path).name.partition(".so")[0] for path in loaded if not Path(path).is_relative_to(tarball.root)}
    assert {re.sub(r"-\d+\.\d+$", "", name) for name in outside if "qemu" not in name} <= {
        *("ld-linux-x86-64", "ld-linux-aarch64", "libc", "libm", "libdl", "libpthread", "librt", "libutil"),
        *("libgcc_s", "libstdc++"),
    }


def test_the_full_tarball_has_sql_and_parquet(unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    full = Tarball(unpacked(f"full-linux-{platform.machine()}"))
    store = str(unpack("5.4.0-clean"))
    counted = full.run("sql", store, "select count(*) as n from messages", "--format", "ndjson")
    assert json.loads(counted.stdout) == {"n": 553}, counted.stderr
    storage = full.run("-I", "-c", "from pyarrow.fs import S3FileSystem", program="bin/python3.11")
    assert storage.returncode == 0, storage.stderr
    exported = full.run("export", store, "-o", tmp_path / "messages.parquet")
    assert exported.returncode == 0, exported.stderr
    assert (tmp_path / "messages.parquet").read_bytes()[:4] == b"PAR1"


def test_the_small_tarball_says_where_sql_is(own: Tarball) -> None:
    done = own.run("sql", unpack("5.4.0-clean"), "select 1")
    assert done.returncode == 2
    assert f"tar -xzf rmqstore-*-full-linux-{platform.machine()}.tar.gz" in done.stderr


def test_it_runs_through_a_link_from_any_directory_with_a_hostile_environment(own: Tarball, tmp_path: Path) -> None:
    for name in ("rmqstore", "encodings", "click"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hostile')")
    (tmp_path / "link").symlink_to(own.root / "rmqstore")
    hostile = {"PYTHONPATH": str(tmp_path), "PYTHONHOME": str(tmp_path), "PYTHONSTARTUP": "x", "LD_LIBRARY_PATH": "/x"}
    done = subprocess.run(
        ["./link", "verify", unpack("5.4.0-clean"), "--jobs", "2"],
        cwd=tmp_path,
        env=hostile,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Nothing is wrong with this store." in done.stdout


def test_it_runs_without_proc_as_in_a_rescue_shell(own: Tarball, tmp_path: Path) -> None:
    if subprocess.run(("unshare", "--mount", "true"), capture_output=True, check=False).returncode:
        pytest.skip("unshare may not make a mount namespace here (needs root)")
    hide = 'mount --make-rprivate /; mount -t tmpfs none /proc; cd "$1"; shift; exec "$@"'

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        inside = ["unshare", "--mount", "sh", "-c", hide, "sh", str(tmp_path), *words]
        return subprocess.run(inside, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)

    assert command("ls", "/proc").stdout == ""
    store = damaged_store(tmp_path)
    (tmp_path / "link").symlink_to(own.root / "rmqstore")
    play_demo(lambda *words: command(str(own.root / "rmqstore"), *words), store, str(store))
    assert command("./link", "--version").stdout == f"rmqstore, version {version()}\n"
    code = "import sys; print(sys.executable)"
    python = str(own.root / "bin" / "python3.11")
    assert command(python, "-c", code).stdout == f"{python}\n"


def test_a_start_compiles_nothing_and_writes_nothing(own: Tarball) -> None:
    before = sorted(own.root.rglob("*"))
    code = "import runpy, sys; sys.argv = ['rmqstore', '--help']; runpy.run_module('rmqstore', run_name='__main__')"
    done = own.run("-I", "-B", "-v", "-c", code, program="bin/python3.11")
    assert "Usage: rmqstore" in done.stdout
    assert " matches " in done.stderr
    assert re.findall(r"^# code object from (?!').*\.py$", done.stderr, re.MULTILINE) == []
    assert sorted(own.root.rglob("*")) == before


@pytest.mark.parametrize("name", STORES)
def test_verify_prints_the_same_json_as_this_installation(name: str, own: Tarball) -> None:
    store = str(unpack(name))
    ours, theirs = run("verify", store, "--json", "--utc"), own.run("verify", store, "--json", "--utc")
    assert theirs.returncode == ours.exit_code, theirs.stderr
    assert without_time(theirs.stdout) == without_time(ours.stdout)


def without_time(text: str) -> dict[str, object]:
    document: dict[str, object] = json.loads(text)
    return {name: value for name, value in document.items() if name not in _OF_THIS_RUN}


@pytest.mark.parametrize("kind", KINDS)
def test_a_tarball_has_manual_pages_completion_licences_and_a_bill_of_materials(
    kind: str, unpacked: Callable[[str], Path]
) -> None:
    root = unpacked(kind)
    manual = {path.name for path in (root / "share" / "man").glob("man*/*")}
    assert manual == set(pages())
    for place in ("bash-completion/completions/rmqstore", "zsh/site-functions/_rmqstore"):
        assert "_RMQSTORE_COMPLETE" in (root / "share" / place).read_text()
    assert "_RMQSTORE_COMPLETE" in (root / "share/fish/vendor_completions.d/rmqstore.fish").read_text()
    papers = {path.name.removesuffix(".txt").split("-")[0] for path in (root / "licenses").iterdir()}
    installed = {path.name.split("-")[0] for path in root.rglob("*.dist-info")}
    assert installed <= papers
    bill = json.loads((DIST / f"{root.name}.cdx.json").read_text())
    named = {re.sub(r"[-.]", "_", part["name"]) for part in bill["components"]}
    assert named == {*(installed - {"rmqstore"}), "cpython", "libffi", "zlib"}
    assert all(part["licenses"] and part["version"] for part in bill["components"])


def test_there_are_no_tests_headers_or_ssl_in_a_tarball(own: Tarball) -> None:
    names = {path.name for path in own.root.rglob("*")}
    assert names.isdisjoint({"tests", "test", "include", "ssl.py", "Python.h"})
    assert [name for name in names if name.startswith(("_ssl", "_hashlib"))] == []
