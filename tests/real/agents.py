"""The cases of `tests/real/agents`: overhaul OVERHAUL, agents in BIN, scratch space in WORK."""
import json
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


def run(*argv, **more):
    return subprocess.run(argv, check=True, text=True, capture_output=True, **more).stdout


def case(address, provider, scenario):
    program, version = AGENTS[provider]
    seconds, right = SCENARIOS[scenario]
    # It prepares each fresh home for many seconds before it asks anything.
    seconds *= 3 if provider == "opencode" else 1
    name = f"{provider}-{scenario}"
    home = work / name
    repo = home / "repo"
    repo.mkdir(parents=True)
    run("git", "init", "-q", "-b", "main", cwd=repo)
    (repo / "a.txt").write_text("broken\n")
    (repo / "findings.json").write_text(json.dumps({
        "contract_version": "audit-tools/audit-findings/v1",
        "findings": [{"id": "F", "title": "fix it", "severity": "medium", "category": "correctness",
                      "summary": "a.txt must say fixed", "affected_files": [{"path": "a.txt", "line_start": 1}],
                      "evidence": []}]}))
    run("git", "add", "-A", cwd=repo)
    run("git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "commit", "-q", "-m", "start", cwd=repo)
    # Notes what the agent was given, and looks for the key in what it leaves.
    wrapper = home / "agent"
    wrapper.write_text(f"""#!/bin/bash
[ "$1" = --version ] && exec {bin_dir / program} --version
{{ printf '%s\\n' "$@"; cat /proc/self/environ; }} >> {home}/given
{bin_dir / program} "$@"
code=$?
grep -rqs {KEY} "$HOME" && echo found >> {home}/leak
exit $code
""")
    wrapper.chmod(0o755)
    where = model.shut_after_first() if scenario == "shut" else f"{address}/{provider}/{scenario}"
    (home / "overhaul.yml").write_text(f"""version: 1
base: main
findings: [{{file: findings.json}}]
pools:
  - id: agent
    provider: {provider}
    version: {version}
    command: [{wrapper}]
    model: scripted/model-a
    base-url: {where}/v1
    key-env: REAL_PART_KEY
    context-tokens: 32000
    output-tokens: 4000
    timeout: {seconds}s
dispatch: {{max-attempts: {{contract: 1, infrastructure: 1}}}}
state: {{store: directory, path: {home}/ledger}}
verify:
  commands: [{{name: check, argv: [grep, -qx, fixed, a.txt], timeout: 20s}}]
""")
    env = {"PATH": os.environ["PATH"], "HOME": str(home / "own-home"), "REAL_PART_KEY": KEY}
    ended = subprocess.run(
        [overhaul, "next-step", "--json", "--time-budget", f"{seconds + 60}s", "--config", home / "overhaul.yml", "--repo", repo,
         "--local", home / "forge", "--work-dir", home / "work"],
        env=env, text=True, capture_output=True, timeout=seconds + 120)
    what = f"{name}: {ended.stdout[-1500:]} {ended.stderr[-1500:]}"
    report = json.loads(ended.stdout)
    events = [json.loads(line) for path in sorted((home / "ledger").rglob("*.ndjson"))
              for line in path.read_text().splitlines()]
    refused = [event for event in events if "burn" in event]
    requests = model.seen[f"{provider}/{scenario}"]
    assert requests <= BUDGET, (what, requests)
    assert report["agents"] == {"agent": f"agent {version}"}, what
    if right is None:
        assert report["nodes"].get("in_review") == 1, (what, refused)
        assert [path for path in (home / "forge/pulls").glob("*.md")], what
        outcome, detail = "accepted", ""
    else:
        assert len(refused) == 1 and report["nodes"].get("in_review", 0) == 0, (what, refused)
        outcome, detail = refused[0]["outcome"], refused[0]["detail"]
        assert outcome in right, (name, outcome, detail)
    if scenario == "loop":
        assert "request budget" in detail and requests == BUDGET, (name, detail, requests)
    if scenario == "hang":
        assert "s are over" in detail and requests >= 1, (name, detail, requests)
    if scenario == "text":
        assert "changed nothing" in detail, (name, detail)
    given = (home / "given").read_text(errors="replace")
    assert KEY not in given and "REAL_PART_KEY" not in given, f"{name}: the agent was given a key"
    assert not (home / "leak").exists(), f"{name}: the agent's home holds a key"
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
