"""Puts the compiled files into the wheel, and names it after the system that they need.

The files come from the directory in SALUS_ARTIFACTS, else from cargo's release directory.
"""

import os
import platform
import re
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARIES = ("libpjrt_salus.so", "libsalus_child.so")
BINARY = "salus"

# Where a linker records the versions of the C library that a file needs.
GLIBC_VERSION = re.compile(rb"\0GLIBC_2\.(\d+)(?:\.\d+)?(?=\0)")

# The oldest C library for which wheels of this kind exist, that is, that `pip` would look for.
GLIBC_MINOR_MIN = 17


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        if version == "editable":
            raise SystemExit("error: salus has compiled files; install it without `-e`")
        libraries = [self._artifact(name) for name in LIBRARIES]
        binary = self._artifact(BINARY)
        for library in libraries:
            build_data["force_include"][str(library)] = f"salus/{library.name}"
        build_data["shared_scripts"][str(binary)] = BINARY
        # No file knows of a version of Python, so that one wheel serves every version of it.
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(*libraries, binary)}"

    def _artifact(self, name):
        given = os.environ.get("SALUS_ARTIFACTS")
        directory = Path(given) if given else Path(self.root, "..", "target", "release")
        path = (directory / name).resolve()
        if not path.is_file():
            raise SystemExit(
                f"error: `{path}` is missing\n\n"
                "hint: run `cargo build --release` first, "
                "or set SALUS_ARTIFACTS to the directory that has it"
            )
        return path


def platform_tag(*files):
    """`manylinux_2_28_x86_64` if 2.28 is the newest C library that any of the files asks for."""
    minors = [GLIBC_MINOR_MIN]
    for file in files:
        minors += map(int, GLIBC_VERSION.findall(file.read_bytes()))
    return f"manylinux_2_{max(minors)}_{platform.machine()}"
