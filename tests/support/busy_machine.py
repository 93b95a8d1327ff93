"""A plugin for pytest: that a machine is busy, and makes examples slowly, is no failure."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Behind the suite's own, which loads a profile."""
    settings.register_profile("busy", settings(), suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")
