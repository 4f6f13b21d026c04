"""What the writing thread does with uploads that come, go and come again."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.demo.conftest import BREAD
from tests.demo.site import Site, serving, wait

from eddy_demo.web.events import event
from eddy_demo.writing import sole_writer


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("web") / "library") as site:
        site.upload("other.txt", "A lighthouse stands on the cliff.")
        site.settled()
        yield site


def named(site: Site, name: str) -> list[str]:
    return [row["id"] for row in site.documents() if row["name"] == name]


def test_a_deleted_document_can_come_again(site: Site) -> None:
    """Also where it is still listed as known, and before its removal has been carried out."""
    for state in ("waiting", "known"):
        assert site.upload("bread.txt", BREAD).json()["state"] == state
        site.settled()
    (key,) = named(site, "bread.txt")
    site.client.delete(f"/api/documents/{key}")
    wait(lambda: not named(site, "bread.txt"))
    site.upload("bread.txt", BREAD)
    site.settled()
    assert named(site, "bread.txt") == [key]
    with sole_writer(site.folder):  # the removal cannot be carried out yet
        site.client.delete(f"/api/documents/{key}")
        assert site.upload("bread.txt", BREAD).json()["state"] == "waiting"
    assert [job["state"] for job in site.settled() if job["document"] == key] == ["done"]
    wait(lambda: not site.state.jobs.removing())
    assert named(site, "bread.txt") == [key]


def test_an_event_has_no_line_ends_of_a_script() -> None:
    told = event("hit", {"text": "one\u2028two\u2029three\x85four é"}).decode()
    assert len(told.splitlines()) == 3
    assert json.loads(told.split("data: ")[1]) == {"text": "one\u2028two\u2029three\x85four é"}
