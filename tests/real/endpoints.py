"""The cases of `tests/real/endpoints`: overhaul OVERHAUL, scratch space in WORK."""
import datetime
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.dont_write_bytecode = True
import model  # noqa: E402
from world import World  # noqa: E402

overhaul, work = sys.argv[1], Path(sys.argv[2])
only = sys.argv[3:]
KEY = "real-part-key-5f2c91d07a3b"
ONE_TRY = "max-attempts: {contract: 1, infrastructure: 1}, concurrent: 1"
CHECK = "[grep, -qx, fixed, a.txt]"


class Server:
    """A program that listens on a port of its own until it is left."""

    def __init__(self, name, argv, healthy, env):
        self.name, self.argv, self.healthy, self.env = name, argv, healthy, env

    def __enter__(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self.log = work / f"{self.name}.log"
        env = {"PATH": os.environ["PATH"], "HOME": str(work / self.name), **self.env}
        self.child = subprocess.Popen([*self.argv, str(port)], env=env, cwd=work, stdin=subprocess.DEVNULL,
                                      stdout=self.log.open("w"), stderr=subprocess.STDOUT)
        try:
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait(self):
        for _ in range(240):
            assert self.child.poll() is None, f"{self.name} ended: {self.said()}"
            try:
                with urllib.request.urlopen(self.address + self.healthy, timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            time.sleep(0.5)
        raise AssertionError(f"{self.name} does not answer: {self.said()}")

    def said(self):
        return self.log.read_text(errors="replace")[-2000:]

    def __exit__(self, *_):
        self.child.terminate()
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def pool(name, address, *more, context=32000):
    lines = "".join(f"    {line}\n" for line in more)
    return f"""  - id: p
    provider: openai-compatible
    model: {name}
    base-url: {address}/v1
    key-env: REAL_PART_KEY
    context-tokens: {context}
    output-tokens: 64
    timeout: 300s
{lines}"""


def world(name, pools, files=("a.txt",), dispatch=ONE_TRY, more=""):
    # The check holds for one file; with several, the findings differ and the rest is not looked at.
    made = World(work / name, files)
    made.configure(pools, dispatch, CHECK if len(files) == 1 else "['true']", more)
    return made


def cycle(it, seconds=30, key=KEY):
    return it.next_step(overhaul, seconds, {"REAL_PART_KEY": key})


def settled(it, outcome, **more):
    """One cycle in which the pool leaves the set, and nothing is held against the node."""
    report, said = cycle(it, **more)
    assert report["status"] == "paused" and report["pause"]["cause"] == "no_usable_pool", said
    assert not report["nodes"].get("failed") and not it.pulls(), said
    [ended] = it.refused()
    assert (ended["outcome"], ended["burn"]) == (outcome, "none"), ended
    return f"{outcome}: {one_line(ended['detail'])}"


def one_line(text):
    return re.sub(r"\s+", " ", text)[:140]


# LiteLLM

def litellm_config(backend):
    """`backend` is the scripted model: `/NAME/SCENARIO/v1`."""
    def entry(name, params, scenario="ok"):
        params = {"api_key": "k", "api_base": f"{backend}/{name}/{scenario}/v1", **params}
        return {"model_name": name, "litellm_params": params}
    priced = {"input_cost_per_token": 1.0, "output_cost_per_token": 1.0}
    return {
        "model_list": [
            entry("fixer", {"model": "openai/scripted/model-a"}),
            entry("nim", {"model": "nvidia_nim/scripted/model-a"}),
            entry("overflow", {"model": "openai/scripted/model-a"}, "overflow"),
            entry("tight", {"model": "openai/scripted/model-a", "rpm": 5}),
            entry("declared", {"model": "openai/scripted/model-a", "rpm": 5}),
            entry("budget", {"model": "openai/scripted/model-a", "max_budget": 1.0, "budget_duration": "1d", **priced}),
        ],
        "router_settings": {"num_retries": 0, "optional_pre_call_checks": ["enforce_model_rate_limits"]},
        "litellm_settings": {"num_retries": 0, "telemetry": False},
        "general_settings": {"master_key": KEY},
    }


def lands(name):
    def case(litellm):
        it = world(f"litellm-{name}", pool(name, litellm.address))
        report, said = cycle(it)
        assert report["nodes"].get("in-review") == 1 and it.pulls(), (said, it.refused())
        return f"landed with {model.seen[f'{name}/ok']} requests"
    return case


def a_bare_429_pauses_and_goes_on(litellm):
    """Six requests are needed, five a minute let through: real time has to pass."""
    it = world("litellm-tight", pool("tight", litellm.address), ("a.txt", "b.txt"))
    into = datetime.datetime.now().second
    if into > 45:
        time.sleep(61 - into)  # the proxy counts by the minute of the clock
    report, said = cycle(it)
    assert report["status"] == "paused" and report["pause"]["cause"] == "budget_exhausted", said
    assert report["nodes"].get("in-review") == 1 and not report["nodes"].get("failed"), said
    [ended] = it.refused()
    assert (ended["outcome"], ended["burn"]) in {("rate_limited", "none"), ("quota_unclassified", "none")}, ended
    asked = model.seen["tight/ok"]
    report, said = cycle(it)
    assert report["attempts"] == 0 and model.seen["tight/ok"] == asked, said
    until = datetime.datetime.fromisoformat(report["not-before"].replace("Z", "+00:00"))
    wait = (until - datetime.datetime.now(datetime.timezone.utc)).total_seconds()
    assert 30 < wait < 90, said
    time.sleep(wait + 1)
    report, said = cycle(it)
    assert report["nodes"].get("in-review") == 2, said
    return f"{ended['outcome']}: {one_line(ended['detail'])}; paused, and both landed"


def declared_limits_are_never_hit(litellm):
    it = world("litellm-declared", pool("declared", litellm.address, "limits: {requests-per-minute: 5}"),
               ("a.txt", "b.txt"))
    report, said = cycle(it, seconds=150)
    assert report["nodes"].get("in-review") == 2 and not it.refused(), (said, it.refused())
    assert "429" not in said, said
    return "six requests at five a minute, in one cycle, without a refusal"


def a_spent_budget_is_no_limit_that_time_heals(litellm):
    it = world("litellm-budget", pool("budget", litellm.address))
    return settled(it, "credit_exhausted")


def an_unknown_model(litellm):
    return settled(world("litellm-unknown", pool("no-such-model", litellm.address)), "model_unavailable")


def a_wrong_key_at_the_proxy(litellm):
    return settled(world("litellm-key", pool("fixer", litellm.address)), "auth", key="sk-wrong-1234")


def too_large(it):
    report, said = cycle(it)
    assert report["status"] == "paused" and report["pause"]["cause"] == "no_capable_pool", said
    assert not report["nodes"].get("failed"), said
    [ended] = it.refused()
    assert (ended["outcome"], ended["burn"]) == ("packet_too_large", "none"), ended
    return f"packet_too_large: {one_line(ended['detail'])}"


def an_overflow_behind_the_proxy(litellm):
    return too_large(world("litellm-overflow", pool("overflow", litellm.address)))


# llama.cpp

# The model's own template knows no tools: the server would take them and not show them.
TEMPLATE = """{%- if tools %}<|im_start|>system
Call functions as <tool_call>
{"name": "NAME", "arguments": {}}
</tool_call>. These are there:
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
LLAMA = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel = sys.argv[1], int(sys.argv[2]), 1
params.hostnames, params.port, params.api_keys = ["127.0.0.1"], int(sys.argv[5]), [sys.argv[3]]
params.model_alias, params.use_jinja, params.chat_template = {"smollm2"}, True, sys.argv[4]
params.no_extra_bufts = True  # its repacked kernels are not for every machine
# Threads that wait for one another crawl on a machine with other work.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
while True:
    time.sleep(3600)
"""


def llama(name, context):
    [weights] = Path(sys.prefix).rglob("SmolLM2-135M*.gguf")
    return Server(name, [sys.executable, "-c", LLAMA, str(weights), str(context), KEY, TEMPLATE], "/health", {})


def an_overflow_of_a_real_window(small, _large):
    return too_large(world("llama-overflow", pool("smollm2", small.address)))


def a_wrong_key_at_the_server(small, _large):
    return settled(world("llama-key", pool("smollm2", small.address)), "auth", key="wrong-key-1234")


def useless_answers(tools):
    """The model is far too small for the task: each attempt has to fail, and to say why."""
    def case(_small, large):
        it = world(f"llama-{tools}", pool("smollm2", large.address, f"tools: {tools}", context=8192),
                   dispatch=ONE_TRY + ", budget: {attempt-requests: 4}")
        report, said = cycle(it, seconds=300)
        assert not it.pulls() and not report["nodes"].get("in-review"), said
        [ended] = it.refused()
        assert ended["outcome"] in {"invalid_result", "error"} and ended["burn"] == "contract", ended
        used = ended["usage"]
        assert used["requests"] >= 1 and used["input-tokens"] > 300 and used["output-tokens"] > 0, ended
        return f"{ended['outcome']} after {used['requests']} requests: {one_line(ended['detail'])}"
    return case


def calls_of_tools(_small, large):
    """A program of its own asks for calls of a tool, whole and as a stream, and reaches its gateway alone."""
    tool = {"type": "function", "function": {"name": "finish", "parameters": {
        "type": "object", "properties": {"done": {"type": "boolean"}}, "required": ["done"]}}}
    # So small a model only does what it has seen itself do.
    turn = [{"role": "user", "content": "Call finish."},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "call_0", "type": "function", "function": {"name": "finish", "arguments": '{"done": true}'}}]},
            {"role": "tool", "tool_call_id": "call_0", "content": "Good."}]
    body = {"model": "smollm2", "max_tokens": 60, "tools": [tool], "tool_choice": "required", "temperature": 0,
            "messages": [*turn, *turn, turn[0]]}
    seen = work / "llama-calls-seen"
    seen.mkdir()
    script = "".join(
        f"curl -sS --max-time 200 -H \"Authorization: Bearer $OVERHAUL_TOKEN\" -H 'Content-Type: application/json' "
        f"-d '{json.dumps({**body, **more})}' \"$OVERHAUL_BASE_URL/chat/completions\" > {seen}/{name} && "
        for name, more in {"whole": {}, "stream": {"stream": True}}.items()) + "echo asked"
    it = world("llama-calls", f"""  - id: p
    provider: subprocess-template
    model: smollm2
    command: {json.dumps(['sh', '-c', script])}
    base-url: {large.address}/v1
    key-env: REAL_PART_KEY
    network: none
""", dispatch=ONE_TRY + ", command-workers: true", more=f"sandbox: {{write: [{seen}]}}\n")
    report, said = cycle(it, seconds=400)
    [ended] = it.refused()
    assert ended["outcome"] == "invalid_result" and not it.pulls(), (ended, said)
    whole, stream = (seen / "whole").read_text(), (seen / "stream").read_text()
    [call] = json.loads(whole)["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "finish", whole
    assert stream.startswith("data: ") and '"tool_calls"' in stream and "data: [DONE]" in stream, stream
    used = ended["usage"]
    # It asks again in its repair turn.
    assert used["requests"] in (2, 4) and used["input-tokens"] > 0 and used["output-tokens"] > 0, ended
    return f"{used['requests']} answers with calls, {used['input-tokens']} tokens in, {used['output-tokens']} out"


LITELLM_CASES = {
    "litellm-tight": a_bare_429_pauses_and_goes_on,
    "litellm-declared": declared_limits_are_never_hit,
    "litellm-lands": lands("fixer"),
    "litellm-nim": lands("nim"),
    "litellm-budget": a_spent_budget_is_no_limit_that_time_heals,
    "litellm-unknown": an_unknown_model,
    "litellm-key": a_wrong_key_at_the_proxy,
    "litellm-overflow": an_overflow_behind_the_proxy,
}
LLAMA_CASES = {
    "llama-auto": useless_answers("auto"),
    "llama-plain": useless_answers("plain"),
    "llama-calls": calls_of_tools,
    "llama-overflow": an_overflow_of_a_real_window,
    "llama-key": a_wrong_key_at_the_server,
}


def attempt(cases, servers, at_once):
    """Runs the cases; gives those that failed."""
    failed = []
    with ThreadPoolExecutor(at_once) as threads:
        futures = {name: threads.submit(case, *servers) for name, case in cases.items()}
        for name, future in futures.items():
            try:
                print(f"{name}: {future.result()}", flush=True)
            except Exception as error:  # every case is reported, whatever happened to it
                failed.append(name)
                print(f"FAILED {name}: {error!r}", flush=True)
    for server in servers if failed else ():
        print(f"{server.name} said: {server.said()}", flush=True)
    return failed


def main():
    wanted = lambda cases: {name: case for name, case in cases.items() if not only or name in only}
    proxied, real = wanted(LITELLM_CASES), wanted(LLAMA_CASES)
    failed = []
    if proxied:
        config = work / "litellm.json"
        config.write_text(json.dumps(litellm_config(model.serve())))
        argv = [str(Path(sys.prefix) / "bin/litellm"), "--config", str(config), "--host", "127.0.0.1", "--port"]
        with Server("litellm", argv, "/health/liveliness", {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}) as litellm:
            failed += attempt(proxied, [litellm], 4)
    if real:
        with llama("small", 1024) as small, llama("large", 8192) as large:
            failed += attempt(real, [small, large], 1)
    model.stopped.set()
    if failed:
        sys.exit(f"{len(failed)} of {len(proxied) + len(real)} cases failed: {failed}")
    print(f"{len(proxied) + len(real)} cases")


main()
