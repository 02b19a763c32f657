"""Questions about graphs: values, shapes, types, constants, operators. Knows ONNX, knows no analysis of loops."""
