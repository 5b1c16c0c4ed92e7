"""Build the two extensions; KTS_SANITIZE=1, KTS_FUZZ=1 and KTS_TRACE=1 choose another kind of build."""

from __future__ import annotations

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

FUZZ = os.environ.get("KTS_FUZZ") == "1"  # with the sanitizers, and every basic block reports to tests/fuzz/trace.c
SANITIZE = FUZZ or os.environ.get("KTS_SANITIZE") == "1"
TRACE = os.environ.get("KTS_TRACE") == "1"

directives: dict[str, object] = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "embedsignature": True,
}
macros: list[tuple[str, str | None]] = []
compile_args = ["-O3"]
link_args: list[str] = []

if SANITIZE:
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    compile_args = ["-O1", "-g", "-fno-omit-frame-pointer", *sanitizers]
    link_args = sanitizers
if FUZZ:
    macros = [("KTS_FUZZ", "1")]
    compile_args.append("-fsanitize-coverage=trace-pc")
if TRACE:
    directives |= {"linetrace": True, "profile": True}
    macros = [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")]


def extension(name: str, *, depends: list[str]) -> Extension:
    return Extension(
        f"kts.{name}",
        sources=[f"kts/{name}.pyx"],
        depends=depends,
        include_dirs=["kts"],
        define_macros=macros,
        extra_compile_args=["-fvisibility=hidden", "-fno-strict-aliasing", *compile_args],
        extra_link_args=link_args,
    )


setup(
    ext_modules=cythonize(
        [extension("_codec", depends=["kts/_crc.h", "kts/_slab.h"]), extension("_timeindex", depends=[])],
        compiler_directives=directives,
        # One folder of C a kind of build: Cython looks at file times only, not at the directives.
        build_dir=f"build/c{'-sanitize' * SANITIZE}{'-fuzz' * FUZZ}{'-trace' * TRACE}",
    )
)
