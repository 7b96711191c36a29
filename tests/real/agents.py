"""The cases of `tests/real/agents`: overhaul OVERHAUL, agents in BIN, scratch space in WORK."""
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.dont_write_bytecode = True
import model  # noqa: E402
from world import World  # noqa: E402

overhaul, bin_dir, work = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
only = sys.argv[4:]
KEY = "real-part-key-5f2c91d07a3b"
BUDGET = 60
AGENTS = {"codex": ("codex", "0.171.0"), "opencode": ("opencode", "1.18.33"), "claude-worker": ("claude", "2.1.197")}
# Per scenario: seconds for an attempt, and which outcomes are right.
SCENARIOS = {
    "ok": (90, None),
    "text": (90, {"invalid_result"}),
    "shut": (20, {"transient", "timeout"}),
    "cut": (30, {"transient", "timeout"}),
    "hang": (30, {"timeout"}),
    "overflow": (30, {"packet_too_large"}),
    "loop": (150, {"error"}),
}


def case(address, provider, scenario):
    program, version = AGENTS[provider]
    seconds, right = SCENARIOS[scenario]
    # It prepares each fresh home for many seconds before it asks anything.
    seconds *= 3 if provider == "opencode" else 1
    name = f"{provider}-{scenario}"
    home = work / name
    world = World(home)
    # Notes what the agent was given, and looks for the key in what it leaves.
    wrapper, seen = home / "agent", home / "seen"
    seen.mkdir()
    wrapper.write_text(f"""#!/bin/bash
[ "$1" = --version ] && exec {bin_dir / program} --version
{{ printf '%s\\n' "$@"; cat /proc/self/environ; }} >> {seen}/given
{bin_dir / program} "$@"
code=$?
grep -rqs {KEY} "$HOME" && echo found >> {seen}/leak
exit $code
""")
    wrapper.chmod(0o755)
    where = model.shut_after_first() if scenario == "shut" else f"{address}/{provider}/{scenario}"
    world.configure(f"""  - id: agent
    provider: {provider}
    version: {version}
    command: [{wrapper}]
    model: scripted/model-a
    base-url: {where}/v1
    key-env: REAL_PART_KEY
    context-tokens: 32000
    output-tokens: 4000
    timeout: {seconds}s
    network: none
""", "max-attempts: {contract: 1, infrastructure: 1}", "[grep, -qx, fixed, a.txt]",
                    f"sandbox: {{read: [{bin_dir.parent}], write: [{seen}]}}\n")
    report, what = world.next_step(overhaul, seconds + 60, {"REAL_PART_KEY": KEY})
    refused = world.refused()
    requests = model.seen[f"{provider}/{scenario}"]
    assert requests <= BUDGET, (what, requests)
    assert report["agents"] == {"agent": f"agent {version}"}, what
    if right is None:
        assert report["nodes"].get("in-review") == 1, (what, refused)
        assert world.pulls(), what
        outcome, detail = "accepted", ""
    else:
        assert len(refused) == 1 and report["nodes"].get("in-review", 0) == 0, (what, refused)
        outcome, detail = refused[0]["outcome"], refused[0]["detail"]
        assert outcome in right, (name, outcome, detail)
    if scenario == "loop":
        assert "request budget" in detail and requests == BUDGET, (name, detail, requests)
    if scenario == "hang":
        assert "s are over" in detail and requests >= 1, (name, detail, requests)
    if scenario == "text":
        assert "changed nothing" in detail, (name, detail)
    given = (seen / "given").read_text(errors="replace")
    assert KEY not in given and "REAL_PART_KEY" not in given, f"{name}: the agent was given a key"
    assert not (seen / "leak").exists(), f"{name}: the agent's home holds a key"
    left = subprocess.run(["pgrep", "-f", f"{home}/work"], text=True, capture_output=True).stdout.split()
    assert not left, f"{name}: processes are left: {left}"
    return f"{name}: {outcome}, {requests} requests. {re.sub(chr(10), ' ', detail)[:150]}"


def main():
    address = model.serve()
    cases = [(provider, scenario) for scenario in ("loop", *(s for s in SCENARIOS if s != "loop"))
             for provider in AGENTS if not only or f"{provider}-{scenario}" in only or scenario in only]
    failed = []
    with ThreadPoolExecutor(int(os.environ.get("CASES_AT_ONCE", "4"))) as pool:
        futures = {pool.submit(case, address, *it): it for it in cases}
        for future, it in futures.items():
            try:
                print(future.result(), flush=True)
            except Exception as error:  # every case is reported, whatever happened to it
                failed.append(it)
                print(f"FAILED {it}: {error!r}", flush=True)
    model.stopped.set()
    assert model.keys == {f"Bearer {KEY}", KEY}, "the backend saw other keys than the real one"
    if failed:
        sys.exit(f"{len(failed)} of {len(cases)} cases failed: {failed}")
    print(f"{len(cases)} cases; no agent saw a key")


main()
