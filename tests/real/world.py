"""A repository with a finding a file, and cycles of overhaul on it: for the parts in Python."""
import json
import os
import subprocess


def run(*argv, **more):
    return subprocess.run(argv, check=True, text=True, capture_output=True, **more).stdout


class World:
    """Below `home`; each file says `broken` and must say `fixed`."""

    def __init__(self, home, files=("a.txt",)):
        self.home = home
        self.repo = home / "repo"
        self.repo.mkdir(parents=True)
        run("git", "init", "-q", "-b", "main", cwd=self.repo)
        findings = [{"id": f"F-{name}", "title": "fix it", "severity": "medium", "category": "correctness",
                     "summary": f"{name} must say fixed", "evidence": [],
                     "affected_files": [{"path": name, "line_start": 1}]} for name in files]
        for name in files:
            (self.repo / name).write_text("broken\n")
        (self.repo / "findings.json").write_text(json.dumps(
            {"contract_version": "audit-tools/audit-findings/v1", "findings": findings}))
        run("git", "add", "-A", cwd=self.repo)
        run("git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "commit", "-q", "-m", "start",
            cwd=self.repo)

    def configure(self, pools, dispatch, check, more=""):
        (self.home / "overhaul.yml").write_text(f"""version: 1
base: main
findings: [{{file: findings.json}}]
pools:
{pools}dispatch: {{{dispatch}}}
state: {{store: directory, path: {self.home}/ledger}}
verify:
  commands: [{{name: check, argv: {check}, timeout: 20s}}]
{more}""")

    def next_step(self, overhaul, seconds, env):
        """One cycle of so many seconds; its report, and what it said."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home / "own-home"), **env}
        ended = subprocess.run(
            [overhaul, "next-step", "--json", "--time-budget", f"{seconds}s", "--config", self.home / "overhaul.yml",
             "--repo", self.repo, "--local", self.home / "forge", "--work-dir", self.home / "work"],
            env=env, text=True, capture_output=True, timeout=seconds + 60)
        said = f"{self.home.name}: {ended.stdout[-2500:]} {ended.stderr[-1500:]}"
        assert ended.stdout, said
        return json.loads(ended.stdout), said

    def events(self):
        return [json.loads(line) for path in sorted((self.home / "ledger").rglob("*.ndjson"))
                for line in path.read_text().splitlines()]

    def refused(self):
        """Attempts that ended without success."""
        return [event for event in self.events() if "burn" in event]

    def pulls(self):
        return sorted((self.home / "forge/pulls").glob("*.md"))
