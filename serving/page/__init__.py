"""`roformer page`: a saved model in a browser. Only `tabs.py` and `server.py` use Gradio, from the extra `page`.

From the bottom up: `model_info.py` finds the tabs for a folder's model, `served_model.py` loads it and truncates texts.
`fill_mask.py`, `similarity.py`, `question_answering.py` and `tasks.py` run the model, `results.py` turns their outputs
into values of Gradio's components, `tabs.py` is the layout, and `server.py` serves the page.
"""
