"""Example texts of the page, in Chinese, and in English for vocabularies without Chinese. They were written for it."""

import json
from pathlib import Path

# Tab -> examples, each with one text per field.
CHINESE, ENGLISH = json.loads((Path(__file__).parent / "examples.json").read_text(encoding="utf-8")).values()
