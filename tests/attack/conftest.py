from pathlib import Path

import pytest

import battery


def pytest_collection_modifyitems(items):
    if not Path(battery.PROGRAM).is_file():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="NOISEFLOOR_BINARY names no program"))


@pytest.fixture(scope="session")
def swept(tmp_path_factory):
    return battery.small_runs(tmp_path_factory.mktemp("swept"))
