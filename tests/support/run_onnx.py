"""Checks ONNX models, runs each on the inputs of a safetensors file, and writes what comes out into another."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file, save_file

found = {}
for path in sorted(Path(sys.argv[1]).glob("*.onnx")):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = load_file(path.with_suffix(".in.safetensors"))
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, inputs)))
    save_file({name: np.ascontiguousarray(array) for name, array in outputs.items()}, path.with_suffix(".out.safetensors"))
    found[path.stem] = {
        "opset": {entry.domain: entry.version for entry in model.opset_import},
        "metadata": {entry.key: entry.value for entry in model.metadata_props},
        "inputs": {value.name: [value.type, value.shape] for value in session.get_inputs()},
        "outputs": {value.name: [value.type, value.shape] for value in session.get_outputs()},
    }

json.dump(found, sys.stdout)
