"""Who is answered, and what an answer lets a browser do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from bs4 import BeautifulSoup
from starlette.responses import Response
from tests.demo.site import PATIENCE, Site, read_events, serving, two_pages

from eddy_demo.web.http import Limits, SecurityMiddleware

HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script> The ferry leaves at noon "quoted" \'so\' {{ 7*7 }}.'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    limits = Limits(question_characters=100, questions=20, body_bytes=1000, file_bytes=200_000, pages=1)
    with serving(tmp_path_factory.mktemp("web") / "library", limits) as site:
        site.upload('"><script>alert(3).txt', HOSTILE.encode())
        site.settled()
        yield site


def test_other_names_are_not_answered(site: Site) -> None:
    """A page of evil.example whose name now leads here (DNS rebinding) gets nothing; `test_endpoint` has more names."""
    for path in ("/", "/api/documents", "/static/base.css"):
        answer = site.client.get(path, headers={"host": "evil.example"})
        assert answer.status_code == 421 and "ferry" not in answer.text and "token" not in answer.text
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:9"):
        assert site.client.get("/api/health", headers={"host": host}).json()["alive"] is True, host


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_questions_at_once_are_answered_or_told_when_to_ask_again(site: Site, count: int) -> None:
    async def crowd() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=count)
        async with httpx.AsyncClient(base_url=site.url, timeout=PATIENCE, limits=limits) as client:
            asked = [client.get("/api/ask", params={"q": "ferry"}) for _ in range(count)]
            return await asyncio.gather(*asked, *(client.get("/api/health") for _ in range(20)))

    answers = asyncio.run(crowd())
    assert {each.status_code for each in answers[count:]} == {200}
    assert all(int(each.headers["retry-after"]) >= 1 for each in answers if each.status_code == 503)
    answered = [each for each in answers[:count] if each.status_code == 200]
    assert 20 <= len(answered) < count
    assert all([name for name, _ in read_events(each)] == ["answer", "hit", "done"] for each in answered)


REFUSED: tuple[dict[str, str], ...] = (
    {"x-eddy-token": "guessed"},
    {"x-eddy-token": ""},
    {"origin": "https://evil.example"},
    {"sec-fetch-site": "same-site"},
)


def test_other_pages_change_nothing(site: Site) -> None:
    key = site.documents()[0]["id"]
    for headers in REFUSED:
        for path in (f"/api/documents/{key}", "/api/folders?path=/"):
            assert site.client.delete(path, headers=headers).status_code == 403, headers
        assert site.client.post("/api/uploads?name=a.txt", content=b"text", headers=headers).status_code == 403
        for path in ("/api/handbook", "/api/jobs/clear", "/api/folders?path=/"):
            assert site.client.post(path, headers=headers).status_code == 403, headers
    assert [row["id"] for row in site.documents()] == [key]
    allowed = {"origin": site.url, "sec-fetch-site": "same-origin"}
    assert site.client.post("/api/jobs/clear", headers=allowed).status_code == 200


def test_other_pages_make_the_model_do_nothing(site: Site) -> None:
    """A reader may follow a link from another site; what that site's pages load by themselves is refused."""
    key = site.documents()[0]["id"]
    for dest, status in (("image", 403), ("iframe", 403), ("empty", 403), ("document", 200)):
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-dest": dest}
        assert httpx.get(f"{site.url}/documents/{key}?q=ferry", headers=headers).status_code == status
        assert httpx.get(f"{site.url}/api/ask?q=ferry", headers=headers).status_code == 403


def paths(site: Site) -> list[str]:
    key = site.documents()[0]["id"]
    return ["/", "/?q=%3Cscript%3E", "/library", f"/documents/{key}?q=ferry", "/nothing", "/api/health"]


def test_no_answer_lets_a_script_in(site: Site) -> None:
    """Every page: a strict policy, no inline script, style or handler, nothing from elsewhere; content is only text."""
    for path in (*paths(site), "/static/ask.js"):
        answer = site.client.get(path)
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        assert answer.headers["cache-control"] == "no-store"
        tags = BeautifulSoup(answer.text, "html.parser").find_all(True)
        assert tags and not {tag.name for tag in tags} & {"img", "iframe", "style", "object", "embed"}
        assert not [name for tag in tags for name in tag.attrs if name.startswith("on") or name == "style"]
        assert all("src" in tag.attrs for tag in tags if tag.name == "script")
        assert not any(urlsplit(str(tag.get(name, ""))).netloc for tag in tags for name in ("src", "href", "action"))


def test_errors_are_plain(site: Site) -> None:
    for path, status, message in (
        ("/api/ask?q=", 400, "the question is empty; type one"),
        (f"/api/ask?q={'x' * 101}", 400, "the question has 101 characters; ask it in at most 100"),
        ("/api/ask", 400, "q: Field required"),
        ("/api/ask?q=a&k=1000", 400, "1000 passages cannot be shown"),
        ("/api/nothing", 404, "there is no such page"),
        ("/why", 404, "There is no such page"),
        ("/documents/%2e%2e%2flibrary.json", 404, "There is no such page"),
        ("/documents/ABCDEF0123456789", 404, "The document is not in the library any more"),
        ("/static/%2e%2e/app.py", 404, "There is no such page"),
        ("/docs", 404, "There is no such page"),
        ("/openapi.json", 404, "There is no such page"),
    ):
        answer = site.client.get(path)
        assert (answer.status_code, message in answer.text) == (status, True), answer.text
        assert "Traceback" not in answer.text
    assert site.client.post("/api/jobs/clear", content=b"x" * 1001).status_code == 413


def test_what_is_not_taken(site: Site) -> None:
    for name, data, status, message in (
        ("virus.exe", b"MZ", 415, "virus.exe is of a type that is not read; readable are .txt"),
        ("rows.jsonl", b"{}", 415, "is of a type that is not read"),
        ("empty.txt", b"", 400, "empty.txt is empty"),
        ("large.txt", b"x" * 200_001, 413, "it is larger than"),
    ):
        answer = site.upload(name, data)
        assert (answer.status_code, message in answer.json()["error"]) == (status, True), answer.text
        assert len(list((site.folder / "files").iterdir())) == 1


def test_reading_is_bounded(site: Site) -> None:
    """By the limits of the server; `readers/test_reading.py` has each of them."""
    id_ = site.upload("two.pdf", two_pages()).json()["id"]
    (job,) = (job for job in site.settled() if job["id"] == id_)
    assert (job["state"], job["message"]) == ("failed", "it has 2 pages, and at most 1 are read; split it")
    assert site.client.post(f"/api/jobs/{id_}/cancel").status_code == 200


def test_the_handbook_knows_the_limits(handbook_table: Callable[[str], dict[str, str]]) -> None:
    told, own = handbook_table("web.md"), Limits()
    assert told["a file"] == f"{own.file_bytes // 2**20} MB, {own.pages:,} pages, {own.characters:,} characters"
    assert told["reading it"] == f"{own.parse_seconds:g} seconds, {own.parse_bytes // 2**30} GB of memory"
    assert told["drawing a page"].startswith(f"{own.page_seconds:g} seconds, {own.parse_bytes // 2**30} GB of memory")
    assert told["pages to draw at a time"] == f"{own.questions}, of which 1 is drawn"
    assert told["a question"] == f"{own.question_characters:,} characters"
    assert told["questions at a time"] == f"{own.questions}, of which {own.concurrent_searches} are looked up"


@pytest.fixture
async def guarded() -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application behind the token `sésame`; what it is asked, it answers with 200."""
    guard = SecurityMiddleware(Response("the library"), Limits(), access_token="sésame")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://localhost:9") as client:
        client.headers["x-eddy-token"] = guard.token
        yield client


async def test_without_the_token_nothing_is_shown(guarded: httpx.AsyncClient) -> None:
    strangers = ({}, {"authorization": "Bearer wrong"}, {"authorization": "sésame"}, {"cookie": "eddy-=; eddy=1"})
    for path in ("/", "/static/base.css", "/api/documents", "/?token=", "/?token=sesame", "/?token=%FF"):
        for headers in strangers:
            answer = await guarded.get(path, headers=[(name, value.encode()) for name, value in headers.items()])
            assert (answer.status_code, "set-cookie" in answer.headers) == (401, False), (path, headers)
            assert "library" not in answer.text and "?token=TOKEN" in answer.text
        assert (await guarded.post(path)).status_code == 401
    assert (await guarded.get("/api/health")).status_code == 200


async def test_a_browser_logs_in_by_an_address(guarded: httpx.AsyncClient) -> None:
    answer = await guarded.get("/documents/a?q=x&token=s%C3%A9same")
    assert (answer.status_code, answer.headers["location"]) == (303, "/documents/a?q=x")
    assert (
        "httponly" in answer.headers["set-cookie"].lower() and "samesite=strict" in answer.headers["set-cookie"].lower()
    )
    assert "same" not in answer.headers["set-cookie"].lower().replace("samesite", "")
    assert (await guarded.get("/")).text == "the library"  # httpx keeps the cookie
    assert (await guarded.post("/")).status_code == 200
    assert (await guarded.post("/", headers={"x-eddy-token": "guessed"})).status_code == 403
    assert (await guarded.get("/", headers={"host": "evil.example"})).status_code == 421


async def test_an_empty_access_token_is_none() -> None:
    guard = SecurityMiddleware(Response("the library"), Limits(), access_token="")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://localhost:9") as client:
        assert (await client.get("/")).status_code == 200
        assert (await client.post("/")).status_code == 403
        assert (await client.post("/", headers={"x-eddy-token": guard.token})).status_code == 200


async def test_a_program_sends_the_token(guarded: httpx.AsyncClient) -> None:
    headers = [("authorization", "Bearer sésame".encode()), ("x-eddy-token", "")]
    for method in ("GET", "POST", "DELETE"):
        assert (await guarded.request(method, "/", headers=headers)).status_code == 200
