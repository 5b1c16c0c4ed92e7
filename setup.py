"""Build the extensions; KTS_SANITIZE=1, KTS_FUZZ=1 and KTS_TRACE=1 choose another kind of build."""

from __future__ import annotations

import os
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FUZZ = os.environ.get("KTS_FUZZ") == "1"  # with the sanitizers, and every basic block reports to tests/fuzz/trace.c
SANITIZE = FUZZ or os.environ.get("KTS_SANITIZE") == "1"
TRACE = os.environ.get("KTS_TRACE") == "1"

directives: dict[str, object] = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "embedsignature": True,
    "freethreading_compatible": True,
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


class BuildExtensions(build_ext):
    """The options above are gcc's and clang's; Microsoft's compiler has its own."""

    def build_extensions(self) -> None:
        microsoft = self.compiler.compiler_type == "msvc"
        for extension in self.extensions:
            if microsoft:
                extension.extra_compile_args = ["/O2"]
            else:
                extension.extra_compile_args = ["-fvisibility=hidden", "-fno-strict-aliasing", *compile_args]
                extension.extra_link_args = link_args
        super().build_extensions()


AVRO = "kts/native/avro.c"
NATIVE = sorted({*glob("kts/native/*.c")} - {AVRO})
HEADERS = sorted(glob("kts/native/*.h"))


# Not abi3 (one wheel for all Pythons): against the limited API of 3.11 a single index lookup costs 1.2 to 1.3 times as
# much (decoding of 100 B records 1.0, of one-record buffers 1.03, encoding 1.02), and 5 % is what it may cost.
def extension(name: str, sources: list[str]) -> Extension:
    files = [f"kts/{name.replace('.', '/')}.pyx", *sources]
    return Extension(f"kts.{name}", files, depends=HEADERS, include_dirs=["kts/native"], define_macros=macros)


setup(
    cmdclass={"build_ext": BuildExtensions},
    ext_modules=cythonize(
        [
            extension("_codec", NATIVE),
            extension("_timeindex", []),
            extension("avro._datum", [AVRO]),
            extension("tables._values", []),
            extension("proposals.options._messages", ["kts/native/crc.c"]),
        ],
        compiler_directives=directives,
        emit_linenums=True,  # what the compiler, the sanitizers and a profile say is said of our lines
        # One folder of C a kind of build: Cython looks at file times only, not at the directives.
        build_dir=f"build/c{'-sanitize' * SANITIZE}{'-fuzz' * FUZZ}{'-trace' * TRACE}",
    ),
)
