"""Serving: what people do with a saved model but train it, on libraries that exist for it.

`onnx_export/` writes it for ONNX Runtime and transformers.js, `vectors/` runs it over a corpus and searches what comes out,
`page/` shows it in a browser. Each has an extra of its own, and none uses another.
"""
