"""The settings that differ from those of an earlier run, in words."""

# Names of settings in messages, if they are not options of the same name.
_NAMES = {
    "texts": "texts",
    "longest": "upper bound of the default --max-length",
    "stated_length": "max_seq_length of the model",
}
# Settings that follow from others: they differ whenever one of those does.
_FOLLOWS = {"stated_length": ("model", "max_length", "chunk")}
_DEFAULTS = {"sample_by": "line"}
_NO_LIMIT = 10**9  # transformers writes 10**30 for a tokenizer without a maximum length


def settings_that_differ(stored: dict, settings: dict) -> str:
    """Return the values that differ between the settings in a folder and those of this run; "" if none does."""
    others = [name for name, value in settings.items() if stored.get(name) != value]
    return "; ".join(
        "the model's files differ" if name == "model" else _difference(name, stored.get(name), settings[name])
        for name in others
        if not any(cause in others for cause in _FOLLOWS.get(name, ()))
    )


def _difference(name: str, there: object, now: object) -> str:
    shown = _NAMES.get(name) or f"--{name.replace('_', '-')}"
    return f"{shown}: {_words(name, there)} there, {_words(name, now)} now"


def _words(name: str, value: object) -> str:
    if value is None:
        return _DEFAULTS.get(name, "none")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and value >= _NO_LIMIT:
        return "no limit"
    return ", ".join(value) if isinstance(value, list) else str(value)
