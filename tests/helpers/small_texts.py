"""Texts for the small models, and the folder of these models."""

from helpers.paths import REPOSITORY

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"
TEXTS = [
    "今天天气非常好",
    "我们",
    "明月",
    "天气很好，我们去看明月，今天天气非常好",
    "The moon 50",
    "我们今天去看天气",
    "好",
    "明月旋转，我们慢慢旋转",
    "今天",
    "非常非常好",
]
