"""`looplift optimize --trace`: the model as text after each pass that changed it."""

from __future__ import annotations

from pathlib import Path

import onnx.printer
import onnx_ir as ir

from looplift import storage
from looplift.passes.graph.infer import light_proto
from looplift.passes.graph.names import fix_names
from looplift.runtime.errors import LoopliftError


class Trace:
    """Writes a file for each step: ``001-Simplify.txt``, ``002-HoistInvariants.txt`` and so on.

    Where a model is optimized again, since an engine might have rounded differently, the numbers go on. Large
    initializers are shown as inputs.

    Args:
        folder: is made if it is not there; what is in it stays, but for files of the same names.

    Raises:
        LoopliftError: the folder can't be made.
    """

    def __init__(self, folder: str) -> None:
        self._folder, self._count = Path(folder), 0
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LoopliftError(f"can't make the folder {folder}: {error.strerror or error}") from error

    def __call__(self, step: str, model: ir.Model) -> None:
        """Writes the model as it is after a step."""
        copy = model.clone()
        fix_names(copy)
        text = onnx.printer.to_text(light_proto(copy))
        self._count += 1
        storage.write_bytes(text.encode(), str(self._folder / f"{self._count:03}-{step}.txt"))
