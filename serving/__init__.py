"""Serving saved models with libraries made for it.

`onnx_export/` exports a model to ONNX Runtime and transformers.js, `vectors/` embeds a corpus and searches it, `page/`
shows a model in a browser. Each needs its own extra, and none uses another.
"""
