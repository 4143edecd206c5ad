"""`roformer page`: a saved model in a browser. Only `tabs.py` and `server.py` know Gradio, which the extra `page` brings.

From the bottom up: `abilities.py` says what a folder's model can do, `served_model.py` loads it, `reading.py` is what it reads
of a text; a file for each thing that is asked of it (`fill_mask.py`, `similarity.py` …) gives answers, `drawing.py` makes HTML
of them, `tabs.py` lays the page out, `guard.py` stands before it, and `server.py` serves it.
"""
