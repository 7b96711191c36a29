//! The claude CLI: `claude -p`, over Anthropic messages.

use serde_json::Value;

use super::{Heard, Job, Start, dollars, number, os, text};
use crate::model::Usage;

/// What it may use. It works without questions, so nothing else is offered to it.
const TOOLS: &str = "Bash,Edit,Glob,Grep,Read,Write";
/// Further tries of a request; by default it tries even a refused key again for over a minute.
const RETRIES: &str = "1";

pub(super) fn start(job: &Job<'_>) -> Start {
    let mut args = os(&[
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        "--model",
        job.model,
        "--permission-mode",
        "acceptEdits",
    ]);
    args.push(format!("--tools={TOOLS}").into());
    args.push(format!("--allowedTools={TOOLS}").into());
    args.extend(os(&[
        // Settings and servers in the worktree are material to fix, not ours to obey.
        "--setting-sources",
        "user",
        "--strict-mcp-config",
        "--no-session-persistence",
    ]));
    // Its gateway counts requests; alone, it counts turns itself.
    if job.gateway.is_none() {
        args.extend(os(&["--max-turns", &job.requests.to_string()]));
    }
    args.extend(os(job.args));
    let set = |name, value: &str| (name, value.to_owned());
    let mut env = vec![
        set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        set("DISABLE_AUTOUPDATER", "1"),
        set("DISABLE_TELEMETRY", "1"),
        set("DISABLE_ERROR_REPORTING", "1"),
        set("CLAUDE_CODE_MAX_RETRIES", RETRIES),
        set("CLAUDE_CODE_MAX_OUTPUT_TOKENS", &job.output_tokens.to_string()),
    ];
    if let Some(root) = job.gateway {
        env.push(set("ANTHROPIC_BASE_URL", root));
        // Side jobs go to the pool's model too: no other one is ours to spend.
        for name in [
            "ANTHROPIC_MODEL",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL",
            "ANTHROPIC_DEFAULT_SONNET_MODEL",
            "ANTHROPIC_DEFAULT_OPUS_MODEL",
            "CLAUDE_CODE_SUBAGENT_MODEL",
        ] {
            env.push(set(name, job.model));
        }
    }
    Start {
        args,
        env,
        token: Some("ANTHROPIC_API_KEY"),
        stdin: Some(job.prompt.to_owned()),
        ..Start::default()
    }
}

pub(super) fn hear(events: &[Value]) -> Heard {
    let mut heard = Heard::default();
    for event in events {
        match text(event, "/type") {
            "assistant" => {
                let model = text(event, "/message/model");
                // `<synthetic>` is the CLI itself.
                if !model.is_empty() && !model.starts_with('<') {
                    heard.model = Some(model.to_owned());
                }
            }
            "result" => {
                let failed = event.get("is_error").and_then(Value::as_bool).unwrap_or(false);
                heard.done = !failed && text(event, "/subtype") == "success";
                text(event, "/result").clone_into(&mut heard.message);
                let tokens = |name: &str| number(event, &format!("/usage/{name}"));
                heard.usage = Usage {
                    requests: u32::try_from(number(event, "/num_turns")).unwrap_or(u32::MAX),
                    input_tokens: tokens("input_tokens")
                        + tokens("cache_creation_input_tokens")
                        + tokens("cache_read_input_tokens"),
                    output_tokens: tokens("output_tokens"),
                    cost_usd: dollars(event, "/total_cost_usd"),
                };
            }
            _ => {}
        }
    }
    heard
}
