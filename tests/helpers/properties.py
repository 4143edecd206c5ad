"""Examples that the property tests draw: two profiles of Hypothesis, and the number that a test sets itself."""

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

FACTOR = 20  # the profile "random" draws so many times as many examples
_EXAMPLES = 100  # of a test that sets no number


def register_profiles() -> None:
    """Register "fixed", with the same examples in every run, and "random", which finds new failures; load "fixed"."""
    # On a busy machine it may take long to draw. The examples of a test share its fixtures, which all are made for
    # that.
    health_checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    common = dict(deadline=None, suppress_health_check=health_checks, print_blob=True)
    settings.register_profile("fixed", max_examples=_EXAMPLES, derandomize=True, database=None, **common)
    # Said outright, since Hypothesis' own default draws the same examples wherever the variable CI is set.
    settings.register_profile("random", max_examples=FACTOR * _EXAMPLES, derandomize=False, **common)
    settings.load_profile("fixed")


def ignore_loaded_modules() -> None:
    """Stop Hypothesis from drawing numbers that it finds in loaded modules: these depend on the tests run before."""
    providers._get_local_constants = lambda: providers._local_constants


def max_examples(count: int) -> settings:
    """Return the setting of a test that draws `count` examples, `FACTOR` times as many in the profile "random"."""
    return settings(max_examples=count * settings.default.max_examples // _EXAMPLES)
