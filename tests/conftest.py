"""What every test may ask for."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--soak", action="store_true", help="the long versions: more seeds, more kills, more load")


@pytest.fixture(scope="session")
def soak(request):
    """Whether to run the long version."""
    return request.config.getoption("--soak")
