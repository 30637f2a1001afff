"""The Chromium that the dashboard is tested in."""

import shutil

import pytest

# The one without windows first: it draws the same with two thirds of the work.
PROGRAMS = ("chromium-headless-shell", "chromium")


def chromium() -> str:
    return program() or pytest.skip("chromium is missing: apt-get install chromium-headless-shell, or chromium")


def program() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)
