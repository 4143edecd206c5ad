"""The settings that differ from those of an earlier run, in words."""

# Names of settings in messages, if they are not options of the same name.
_NAMES = {"texts": "texts", "longest": "upper bound of the default --max-length"}
_DEFAULTS = {"sample_by": "line"}


def settings_that_differ(stored: dict, settings: dict) -> str:
    """Return the values that differ between the settings in a folder and those of this run; "" if none does."""
    return "; ".join(
        "the model's files differ" if name == "model" else _difference(name, stored.get(name), value)
        for name, value in settings.items()
        if stored.get(name) != value
    )


def _difference(name: str, there: object, now: object) -> str:
    shown = _NAMES.get(name) or f"--{name.replace('_', '-')}"
    return f"{shown}: {_words(name, there)} there, {_words(name, now)} now"


def _words(name: str, value: object) -> str:
    if value is None:
        return _DEFAULTS.get(name, "none")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value)
