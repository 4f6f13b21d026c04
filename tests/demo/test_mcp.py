"""A library as a server of the Model Context Protocol, asked by the SDK's own client."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from mcp import Client, StdioServerParameters

from eddy_demo.errors import NoLibrary
from eddy_demo.mcp import make_server

QUESTION = "When do boats with a deep keel leave?"
COMMAND = ["-c", "from eddy_demo.cli import main; main()", "mcp", "--device", "cpu", "--library"]


async def answers(client: Client) -> list[dict[str, Any]]:
    """What both tools answer: the passages found, and the documents."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {"search", "list_documents"} and all(tool.description for tool in tools.values())
    both = [await client.call_tool("search", {"question": QUESTION, "k": 2}), await client.call_tool("list_documents")]
    assert not any(answer.is_error for answer in both)
    return [answer.structured_content["result"] for answer in both if answer.structured_content]


async def test_a_client_searches_and_lists(library: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is printed to stdout, which may carry the protocol."""
    async with Client(make_server(library, "cpu")) as client:
        found, listed = await answers(client)
        wrong = [await client.call_tool("search", {"question": text, "k": k}) for text, k in ((" ", 1), ("x", 0))]
    assert [document["source"] for document in listed] == ["bread.txt", "clock.html", "tides.md"]
    assert len(found) == 2 and [passage["score"] for passage in found] == sorted(
        (passage["score"] for passage in found), reverse=True
    )
    assert found[0]["sentence"] == "Boats with a deep keel leave two hours before high water."
    assert found[0]["sentence"] in found[0]["passage"] and 0.5 <= found[0]["score"] <= 1
    assert (found[0]["source"], found[0]["title"], found[0]["page"]) == ("tides.md", "Tides", "")
    assert all(answer.is_error for answer in wrong) and "the question is empty" in wrong[0].content[0].text
    with pytest.raises(NoLibrary):
        make_server(library / "nothing")
    assert capfd.readouterr().out == ""


@pytest.mark.slow
async def test_stdin_and_stdout_carry_the_protocol_alone(library: Path) -> None:
    """A client would end the session over any other line."""
    server = StdioServerParameters(command=sys.executable, args=[*COMMAND, str(library)], env=dict(os.environ))
    async with Client(server) as client:
        found, _ = await answers(client)
    assert found[0]["source"] == "tides.md"


async def test_over_http(library: Path) -> None:
    """As `--http` has it; a page of a name of somebody else's reaches nothing."""
    web = uvicorn.Server(uvicorn.Config(make_server(library, "cpu").streamable_http_app(), log_level="error"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(web.serve([listener]))
        address = f"127.0.0.1:{listener.getsockname()[1]}/mcp"
        async with Client(f"http://{address}") as client:
            found, _ = await answers(client)
        async with httpx.AsyncClient() as other:
            refused = await other.post(f"http://{address}", json={}, headers={"host": "evil.example"})
        web.should_exit = True
        await serving
    assert found[0]["source"] == "tides.md" and refused.status_code == 421
