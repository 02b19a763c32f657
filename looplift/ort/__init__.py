"""Our kernels inside ONNX Runtime: session options that know them, and the library for other languages.

>>> session = onnxruntime.InferenceSession("lifted.onnx", looplift.ort.session_options())
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from looplift.runtime.errors import LoopliftError
from looplift.runtime.onnxruntime.compile import NAME, SOURCES, CompilerError, compile_library

if TYPE_CHECKING:
    import onnxruntime


def session_options(base: onnxruntime.SessionOptions | None = None) -> onnxruntime.SessionOptions:
    """Options with which ONNX Runtime runs the ops of domain ``ai.looplift`` by kernels, not by their definitions.

    Args:
        base: options to add the kernels to; they are changed and returned. New ones if None.

    Raises:
        LoopliftError: onnxruntime is not installed, the kernels are not built, or this build is not exact here.
    """
    options: Any = require_onnxruntime().SessionOptions() if base is None else base
    path = library_path()
    try:
        options.register_custom_ops_library(str(path))
    except Exception as error:  # ONNX Runtime has no common class for its errors
        raise LoopliftError(f"ONNX Runtime does not take the kernels in {path}: {error}") from error
    return options


def library_path() -> Path:
    """The library of kernels, for ``register_custom_ops_library`` of ONNX Runtime in any language.

    Raises:
        LoopliftError: it is not built.
    """
    if not has_library():
        raise LoopliftError(
            "kernels for ONNX Runtime are not built: 'looplift kernels build' builds them, with a C compiler of the "
            "machine or the extra 'zig'"
        )
    return _here()


def has_library() -> bool:
    """Whether the library is built."""
    return _here().is_file()


def build_library(output: Path | None = None) -> Path:
    """Builds the library where `library_path` finds it, or in another file.

    Returns:
        The file.

    Raises:
        LoopliftError: there is no C compiler, it failed, or the file can't be written.
    """
    file = output or _here()
    try:
        compile_library(file)
    except CompilerError as error:
        raise LoopliftError(f"the kernels for ONNX Runtime were not built: {error}") from error
    except OSError as error:
        raise LoopliftError(f"can't write {file}: {error.strerror or error}; --output names another file") from error
    return file


def _here() -> Path:
    return SOURCES / NAME


def require_onnxruntime() -> Any:
    """The module.

    Raises:
        LoopliftError: it is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise LoopliftError(f"onnxruntime can't be imported ({error}); install looplift[ort]") from error
    return onnxruntime
