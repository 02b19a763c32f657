"""What pyproject.toml can't say: the kernels for ONNX Runtime are compiled where there is a C compiler."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FOLDER = Path(__file__).parent / "runtime" / "onnxruntime"
MAKER = runpy.run_path(str(FOLDER / "compile.py"))


class BuildKernels(build_ext):
    """Compiles the library, which is no module of Python's: it has its own name, and no suffix of this Python."""

    def get_ext_filename(self, fullname: str) -> str:
        """The file of an extension, below the folder that is installed."""
        return str(Path(*fullname.split(".")[:-1], MAKER["NAME"]))

    def build_extension(self, ext: Extension) -> None:
        """Compiles it, or says why not and goes on: without it, all but the kernels for ONNX Runtime is there."""
        output = Path(self.get_ext_fullpath(ext.name))
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            MAKER["compile_library"](output)
        except MAKER["CompilerError"] as error:
            print(f"looplift: no kernels for ONNX Runtime: {error}", file=sys.stderr)

    def copy_extensions_to_source(self) -> None:
        """Puts it where an editable installation has it, if it was compiled."""
        built = [ext for ext in self.extensions if Path(self.build_lib, self.get_ext_filename(ext.name)).is_file()]
        self.extensions = built
        super().copy_extensions_to_source()


setup(
    ext_modules=[Extension("looplift.runtime.onnxruntime.library", [], optional=True)],
    cmdclass={"build_ext": BuildKernels},
)
