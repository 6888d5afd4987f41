import foreshore
import pytest


@pytest.fixture
def db():
    with foreshore.in_memory(memory_limit=64 << 20) as db:
        yield db


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"
