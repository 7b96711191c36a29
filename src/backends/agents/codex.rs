//! The codex CLI: `codex exec`, over the Responses API.

use serde_json::Value;

use super::{Heard, Job, Start, TOKEN, number, os, text};
use crate::model::Usage;

/// Further tries of a request and of a broken stream: the scheduler repeats attempts, not the agent.
const RETRIES: u32 = 1;
/// Longest silence inside an answer, milliseconds; just above the gateway's own limit.
const IDLE_MILLIS: u32 = 150_000;

pub(super) fn start(job: &Job<'_>) -> Start {
    let mut args = os(&[
        "exec",
        "--json",
        "--ephemeral",
        "--ignore-user-config",
        "--ignore-rules",
        "--skip-git-repo-check",
        // Our own walls hold; codex's need kernel features that containers do not give.
        "--sandbox",
        "danger-full-access",
        "--disable",
        "multi_agent",
    ]);
    let mut set = |key: &str, value: String| {
        args.push("-c".into());
        args.push(format!("{key}={value}").into());
    };
    set("model", quoted(job.model));
    set("web_search", quoted("disabled"));
    set("model_context_window", job.context_tokens.to_string());
    if let Some(root) = job.gateway {
        set("model_provider", quoted("overhaul"));
        let provider = format!(
            "{{name=\"overhaul\",base_url={},env_key={},wire_api=\"responses\",request_max_retries={RETRIES},\
             stream_max_retries={RETRIES},stream_idle_timeout_ms={IDLE_MILLIS}}}",
            quoted(&format!("{root}/v1")),
            quoted(TOKEN)
        );
        set("model_providers.overhaul", provider);
    }
    args.extend(os(job.args));
    // `-`: the prompt is on standard input.
    args.push("-".into());
    Start { args, token: Some(TOKEN), stdin: Some(job.prompt.to_owned()), ..Start::default() }
}

/// A TOML basic string: JSON's escapes are a subset of TOML's, save DEL, which TOML wants escaped.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

pub(super) fn hear(events: &[Value]) -> Heard {
    let mut heard = Heard::default();
    for event in events {
        match text(event, "/type") {
            "item.completed" if text(event, "/item/type") == "agent_message" => {
                text(event, "/item/text").clone_into(&mut heard.message);
            }
            "turn.started" => heard.done = false,
            "turn.completed" => {
                heard.done = true;
                heard.usage += Usage {
                    requests: 1,
                    input_tokens: number(event, "/usage/input_tokens"),
                    output_tokens: number(event, "/usage/output_tokens"),
                    cost_usd: 0.0,
                };
            }
            "turn.failed" => heard.done = false,
            _ => {}
        }
    }
    heard
}
