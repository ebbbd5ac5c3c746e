import pytest
from labhost import prepare


@pytest.fixture(scope="session")
def host():
    prepare()
