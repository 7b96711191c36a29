"""A scripted model on loopback: chat completions, responses and Anthropic messages.

The first part of the path names what it does: `ok` edits by a shell command and then ends, `text` ends
at once, `loop` runs commands without end, `cut` breaks every stream, `hang` falls silent, `overflow`
refuses every request as too long, `shut` is gone after the first connection.
"""
import json
import re
import socket
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FINAL = "The file is fixed."
OVERFLOW = ("This model's maximum context length is 2048 tokens. However, your prompt contains at least "
            "9001 input tokens. Please reduce the length of the input prompt.")
seen = Counter()
keys = set()
lock = threading.Lock()


def shell_tool(body):
    """Name and argument name of the tool that runs a shell command."""
    for tool in body.get("tools") or []:
        name = tool.get("name") or (tool.get("function") or {}).get("name")
        if name in ("bash", "Bash"):
            return name, lambda command: {"command": command, "description": "a step"}
        if name == "exec_command":
            return name, lambda command: {"cmd": command}
        if name in ("shell", "shell_command"):
            return name, lambda command: {"command": ["bash", "-c", command] if name == "shell" else command}
    return None


def tool_loop(body):
    """The next call of the tool loop of `openai-compatible`: reads the file, mends it, hands in."""
    messages = body["messages"]
    task = next(message["content"] for message in messages if message["role"] == "user")
    results = [message["content"] for message in messages if message["role"] == "tool"]
    path = re.search(r"^place: ([^\s,]+)", task, re.M)[1]
    if not results:
        return "read_file", {"path": path}
    if len(results) == 1:
        known = re.search(r"^hash: (\S+)", results[0], re.M)[1]
        return "edit_file", {"path": path, "hash": known, "edits": [{"search": "broken", "replace": "fixed"}]}
    findings = re.findall(r"^### (\S+)", task.split("## Findings to resolve")[1], re.M)
    return "finish", {"resolved": findings, "summary": FINAL}


def next_call(body, scenario, number):
    """The call that is made now, if one is."""
    offered = [(tool.get("function") or {}).get("name") for tool in body.get("tools") or []]
    if "edit_file" in offered:
        return (f"call_{number}", *tool_loop(body)) if scenario == "ok" else None
    tool = shell_tool(body)
    command = "echo fixed > a.txt" if scenario == "ok" else f"echo {number}"
    wants = {"ok": answered_calls(body) == 0, "loop": True}.get(scenario, False)
    return (f"call_{number}", tool[0], tool[1](command)) if wants and tool else None


def answered_calls(body):
    count = 0
    for message in body.get("messages") or []:
        count += message.get("role") == "tool"
        if isinstance(message.get("content"), list):
            count += sum(part.get("type") == "tool_result" for part in message["content"])
    if isinstance(body.get("input"), list):
        count += sum(str(item.get("type", "")).endswith("_output") for item in body["input"])
    return count


def chat(body, call):
    """Events of a stream, and the same as one body."""
    chunk = lambda **more: {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": body["model"], **more}
    usage = {"prompt_tokens": 120, "completion_tokens": 20, "total_tokens": 140}
    message = {"role": "assistant", "content": None if call else FINAL}
    if call:
        message["tool_calls"] = [{"index": 0, "id": call[0], "type": "function",
                                  "function": {"name": call[1], "arguments": json.dumps(call[2])}}]
    reason = "tool_calls" if call else "stop"
    events = [chunk(choices=[{"index": 0, "delta": message, "finish_reason": None}]),
              chunk(choices=[{"index": 0, "delta": {}, "finish_reason": reason}]),
              chunk(choices=[], usage=usage)]
    whole = chunk(choices=[{"index": 0, "message": message, "finish_reason": reason}], usage=usage)
    return events, dict(whole, object="chat.completion")


def responses(body, call):
    item = ({"type": "function_call", "id": "f", "call_id": call[0], "name": call[1],
             "arguments": json.dumps(call[2]), "status": "completed"} if call else
            {"type": "message", "id": "m", "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": FINAL, "annotations": []}]})
    base = {"id": "r", "object": "response", "created_at": 1, "model": body["model"], "output": []}
    whole = dict(base, status="completed", output=[item],
                 usage={"input_tokens": 120, "output_tokens": 20, "total_tokens": 140,
                        "input_tokens_details": {"cached_tokens": 0},
                        "output_tokens_details": {"reasoning_tokens": 0}})
    events = [{"type": "response.created", "response": dict(base, status="in_progress")},
              {"type": "response.output_item.added", "output_index": 0, "item": item},
              {"type": "response.output_item.done", "output_index": 0, "item": item},
              {"type": "response.completed", "response": whole}]
    return [dict(event, sequence_number=n) for n, event in enumerate(events)], whole


def messages(body, call):
    block = ({"type": "tool_use", "id": call[0], "name": call[1], "input": call[2]} if call else
             {"type": "text", "text": FINAL})
    reason = "tool_use" if call else "end_turn"
    usage = {"input_tokens": 120, "output_tokens": 20}
    whole = {"id": "m", "type": "message", "role": "assistant", "model": body["model"], "content": [block],
             "stop_reason": reason, "stop_sequence": None, "usage": usage}
    start = dict(block, input={}) if call else dict(block, text="")
    delta = ({"type": "input_json_delta", "partial_json": json.dumps(call[2])} if call else
             {"type": "text_delta", "text": FINAL})
    events = [{"type": "message_start", "message": dict(whole, content=[], stop_reason=None)},
              {"type": "content_block_start", "index": 0, "content_block": start},
              {"type": "content_block_delta", "index": 0, "delta": delta},
              {"type": "content_block_stop", "index": 0},
              {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
              {"type": "message_stop"}]
    return events, whole


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply(200, {"object": "list", "data": []})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        _, name, scenario, *rest = self.path.split("?")[0].split("/")
        with lock:
            seen[f"{name}/{scenario}"] += 1
            number = seen[f"{name}/{scenario}"]
            keys.update(value for header in ("Authorization", "x-api-key")
                        if (value := self.headers.get(header)))
        if rest[-1] == "count_tokens":
            return self.reply(200, {"input_tokens": 100})
        if scenario == "overflow":
            error = {"message": OVERFLOW, "type": "invalid_request_error", "param": "input_tokens",
                     "code": "context_length_exceeded"}
            return self.reply(400, {"type": "error", "error": error})
        call = next_call(body, scenario, number)
        speak = {"completions": chat, "responses": responses, "messages": messages}[rest[-1]]
        events, whole = speak(body, call)
        if not body.get("stream") and scenario not in ("cut", "hang"):
            return self.reply(200, whole)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        if scenario == "hang":
            self.wfile.flush()
            return stopped.wait()
        for event in events[: len(events) // 2] if scenario == "cut" else events:
            named = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{named}data: {json.dumps(event)}\n\n".encode())
        if scenario != "cut" and speak is chat:
            self.wfile.write(b"data: [DONE]\n\n")


stopped = threading.Event()


def serve():
    """Starts the model; gives its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def shut_after_first():
    """An address that takes one connection and then refuses all others."""
    listener = socket.create_server(("127.0.0.1", 0))

    def once():
        listener.accept()[0].close()
        listener.close()

    threading.Thread(target=once, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"
