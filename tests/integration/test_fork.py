"""A fork in the middle of a load: parent and child both go on, and neither disturbs the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json, os, sys, threading, time
from llm_client import Client, Pool
pool = Pool(base_url=sys.argv[1], pool={"concurrency": {"kind": "fixed", "limit": 2}})
client = Client(pool)
done = []
def call(n):
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": str(n)}], max_tokens=2)
    done.append(n)
threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
for each in threads: each.start()
time.sleep(0.25)
child = os.fork()
if child == 0:
    try:
        held = pool.endpoints[0].limit.inflight + pool.gate.waiting
        call("child"); call("child again")
        print(json.dumps({"who": "child", "held": held, "done": len(done)}), flush=True)
    finally:
        os._exit(0)
for each in threads: each.join(30)
_, status = os.waitpid(child, 0)
print(json.dumps({"who": "parent", "done": len(done), "idle": pool.endpoints[0].limit.inflight + pool.gate.waiting, "status": status}), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.llm_server(workers=8, seconds=0.1)
def test_both_sides_of_a_fork_go_on(llm_server):
    """The child forgets permits and tickets of the parent's calls; the parent's calls all end well."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, llm_server.base_url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = {line["who"]: line for line in map(json.loads, done.stdout.splitlines())}

    assert done.stderr == ""
    assert said["child"]["held"] == 0
    assert said["child"]["done"] >= 2
    assert said["parent"] == {"who": "parent", "done": 8, "idle": 0, "status": 0}
