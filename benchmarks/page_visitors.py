"""Load test of `roformer page`: waiting times, errors, and memory with many visitors at once.

    python benchmarks/page_visitors.py roformer-mini-zh --visitors 32 --seconds 60

Each visitor repeats requests over HTTP, as a browser does. Needs `pip install '.[page,bench]'`.
"""

import argparse
import asyncio
import json
import math
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field

import httpx
import measure
import psutil
from rich.table import Table

QUESTIONS = {
    "fill": ["酒店的位置很[MASK]，服务也很[MASK]。"],
    "segments": ["今天天气非常好，我们去公园玩。"],
    "triplet": ["租客要求房东退还押金。", "两车相撞，被告负主要责任。", "房屋租赁合同到期，押金没有退还。"],
    "compare": ["租客要求房东退还房屋押金。\n房屋租赁合同到期，押金没有退还。\n两车相撞，被告负主要责任。"],
}


@dataclass
class Visits:
    """Seconds of each response, and errors."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


async def ask(client: httpx.AsyncClient, tab: str, texts: list[str]) -> str:
    """Return the response's HTML; raise RuntimeError with any other response."""
    joined = await client.post(f"/gradio_api/call/{tab}", json={"data": texts})
    if joined.status_code != 200:
        raise RuntimeError(f"{joined.status_code} {joined.text}")
    event = ""
    async with client.stream("GET", f"/gradio_api/call/{tab}/{joined.json()['event_id']}") as answer:
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "event":
                event = value
            elif name == "data" and event == "complete":
                return json.loads(value)[0]
            elif name == "data" and event == "error":
                raise RuntimeError(value)
    raise RuntimeError("the response is incomplete")


async def visit(address: str, visitors: int, seconds: float) -> Visits:
    """Run a number of visitors at once, for some seconds."""
    visits, end = Visits(), time.perf_counter() + seconds
    limits = httpx.Limits(max_connections=2 * visitors)

    async def visitor(client: httpx.AsyncClient, number: int) -> None:
        while time.perf_counter() < end:
            number += 1
            tab, texts = list(QUESTIONS.items())[number % len(QUESTIONS)]
            began = time.perf_counter()
            try:
                answer = await ask(client, tab, texts)
            except (httpx.HTTPError, RuntimeError, ValueError) as error:
                visits.errors.append(f"{tab}: {error!r}")
            else:
                visits.seconds.append(time.perf_counter() - began)
                if 'class="answer"' not in answer:
                    visits.errors.append(f"{tab}: {answer!r}")

    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits, trust_env=False) as client:
        await asyncio.gather(*(visitor(client, number) for number in range(visitors)))
    return visits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="folder of a saved masked language model")
    parser.add_argument("--visitors", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60)
    measure.add_output(parser)
    options = parser.parse_args()
    figures = measure.Figures(options.output, "gradio")
    command = [sys.executable, "-m", "modeling_roformer.cli", "page", options.model, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://[\w.:]+", server.stdout.readline())
        if address is None:
            sys.exit(1)  # the server has printed the reason
        memory = psutil.Process(server.pid).memory_info
        sizes = [memory().rss]
        for seconds in (2, options.seconds):  # warm up every library and every tab first
            visits = asyncio.run(visit(address[0], options.visitors, seconds))
            sizes.append(memory().rss)
    finally:
        server.terminate()
        server.wait()
    table = Table(
        "visitors", "seconds", "answers", "errors", "waiting time, s: median", "99th percentile", "MB at first, later"
    )
    waits = measure.Measurement(visits.seconds or [math.nan])
    worst = sorted(waits.times)[int(0.99 * len(waits.times))]
    megabytes = ", ".join(f"{size / measure.MB:.0f}" for size in sizes)
    counts = (f"{count:,}" for count in (len(visits.seconds), len(visits.errors)))
    table.add_row(
        f"{options.visitors}",
        f"{options.seconds:g}",
        *counts,
        measure.duration(waits, "{:.2f}"),
        f"{worst:.2f}",
        megabytes,
    )
    with figures:
        figures.add("visitors", table)
    for error in visits.errors[:5]:
        print(error)


if __name__ == "__main__":
    main()
