"""`roformer export-onnx`: a saved model as a folder for ONNX Runtime and transformers.js. It needs the extra `export`."""
